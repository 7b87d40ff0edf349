/* libcede for C++17: CUDA graphs of a program's step, one for each batch size. cede/graph.h
 * describes every call; see also cede/cede.hpp.
 *
 *     cede::graph_cache graphs([&](void *s, unsigned n) {
 *         return cuLaunchKernel(kernel, n, 1, 1, 256, 1, 1, 0, CUstream(s), params, nullptr);
 *     });
 *     graphs.prepare(stream);          // captures all buckets now
 *     graphs.launch(stream, n);        // the smallest one that fits
 */
#ifndef CEDE_GRAPH_HPP
#define CEDE_GRAPH_HPP

#include <memory>
#include <optional>
#include <string>

#include "cede/error.hpp"
#include "cede/graph.h"

namespace cede
{

/* Settings, with the defaults of cede_graph_defaults(). */
struct graph_config : ::cede_graph_config {
    graph_config() noexcept
    {
        ::cede_graph_defaults(this);
    }
};

/* A cache. One thread at a time may use it: a second one gets EBUSY. */
class graph_cache
{
  public:
    /* step(stream, n) queues one step. It returns nothing, a std::error_code, or a CUresult,
     * cudaError_t or int as in C. A driver's error should be returned, not thrown, since it gives a
     * refusal its reason. An exception ends the launch, which throws it. */
    template <class Step,
              class = std::enable_if_t<!std::is_same_v<std::decay_t<Step>, graph_cache>>>
    explicit graph_cache(Step &&step, const graph_config &config = {})
    {
        detail::check(open(config, std::forward<Step>(step)));
    }
    template <class Step>
    [[nodiscard]] static std::optional<graph_cache>
    try_open(Step &&step, const graph_config &config = {}, std::error_code *why = nullptr)
    {
        graph_cache g;
        if (detail::failed(g.open(config, std::forward<Step>(step)), why))
            return std::nullopt;
        return g;
    }

    graph_cache(graph_cache &&) noexcept = default;
    graph_cache &operator=(graph_cache &&other) noexcept /* frees the graphs before their step */
    {
        g_ = std::move(other.g_);
        step_ = std::move(other.step_);
        return *this;
    }

    /* Captures the bucket of a batch of n on the stream, or with 0 all. Throws as launch(). */
    void prepare(void *stream, unsigned n = 0)
    {
        detail::calls during;
        int r = ::cede_graph_prepare(handle(), stream, n);
        if (r < 0)
            during.check();
        detail::check(r);
    }
    [[nodiscard]] std::error_code try_prepare(void *stream, unsigned n = 0) noexcept
    {
        detail::calls during;
        return detail::code(::cede_graph_prepare(handle(), stream, n));
    }
    /* The size of the graph that was launched; 0: the step ran eagerly. Throws the step's
     * exception, else an error with the driver's message. */
    unsigned launch(void *stream, unsigned n)
    {
        unsigned bucket = 0;
        detail::calls during;
        int r = ::cede_graph_launch(handle(), stream, n, &bucket);
        if (r < 0)
            during.check();
        detail::check(r);
        return bucket;
    }
    [[nodiscard]] std::error_code try_launch(void *stream, unsigned n,
                                             unsigned *bucket = nullptr) noexcept
    {
        detail::calls during;
        return detail::code(::cede_graph_launch(handle(), stream, n, bucket));
    }
    /* Addresses have changed: all graphs are captured again. */
    void changed() noexcept
    {
        ::cede_graph_changed(handle());
    }
    /* The bucket of a batch of n; empty: out of range, or the cache was moved from. */
    std::optional<::cede_graph_bucket> bucket(unsigned n) const noexcept
    {
        ::cede_graph_bucket b{};
        if (::cede_graph_get_bucket(handle(), n, &b, sizeof(b)) < 0)
            return std::nullopt;
        return b;
    }
    ::cede_graph_statistics statistics() const
    {
        return detail::statistics<::cede_graph_statistics>(::cede_graph_get_statistics, handle());
    }
    ::cede_graph *handle() const noexcept
    {
        return g_.get();
    }

  private:
    graph_cache() noexcept = default;
    template <class Step> int open(const graph_config &config, Step &&step)
    {
        using F = std::decay_t<Step>;
        auto f = std::make_shared<F>(std::forward<Step>(step));
        ::cede_graph *g;
        int r = ::cede_graph_open(&config, run<F>, f.get(), &g);
        g_.reset(g);
        step_ = std::move(f);
        return r;
    }
    template <class F> static int run(void *arg, void *stream, unsigned n) noexcept
    {
        detail::calls::forget(); /* drops the exception of an earlier attempt to capture */
        return detail::calls::run(
            [=] { return detail::result_of(*static_cast<F *>(arg), stream, n); });
    }
    std::shared_ptr<void> step_; /* its address stays when the cache is moved */
    std::unique_ptr<::cede_graph, detail::closer_here<::cede_graph, ::cede_graph_close>> g_;
};

} // namespace cede

#endif
