/* libcede for C++17: the overlap loop. cede/step.h describes every call; see also cede/cede.hpp.
 *
 *     cede::futures futures;
 *     cede::step_config config;
 *     config.futures = futures.handle();
 *     cede::step_loop<request> loop(
 *         config,
 *         [&](cede::step<request> &s) {        // the next step: its requests, and what they need
 *             for (request *r : running)
 *                 if (auto symbol = loop.try_add(r->id))
 *                     input(s.lane(), *symbol ? *symbol : r->token);
 *             return !running.empty();         // false: there is nothing to run
 *         },
 *         [&](cede::step<request> &s) { launch(s.stream()); },     // and waits for nothing
 *         [&](cede::step<request> &s) {                            // it has run
 *             for (unsigned i = 0; i < s.size(); i++)
 *                 if (!s.error() && !s.surplus(i) && s[i]->ends(s.result(i)))
 *                     loop.leave(s[i]->id);
 *         });
 *     request r;
 *     r.id = loop.join(&r);
 *     loop.run();
 */
#ifndef CEDE_STEP_HPP
#define CEDE_STEP_HPP

#include <functional>
#include <memory>
#include <optional>

#include "cede/error.hpp"
#include "cede/future.hpp"
#include "cede/scope.hpp"
#include "cede/step.h"

namespace cede
{

/* Settings, with the defaults of cede_step_defaults(). `futures`, `scope` and `queue` are
 * handle()s. step_loop sets the functions and `arg`. */
struct step_config : ::cede_step_config {
    step_config() noexcept
    {
        ::cede_step_defaults(this);
    }
};

/* A step, as the program's functions see it. i: one of its size() requests. */
template <class T> class step
{
  public:
    explicit step(::cede_step *s) noexcept : s_(s)
    {
    }
    void *stream() const noexcept /* null without a GPU */
    {
        return s_->stream;
    }
    unsigned lane() const noexcept
    {
        return s_->lane;
    }
    unsigned size() const noexcept /* 0 in `schedule` */
    {
        return s_->n;
    }
    T *operator[](unsigned i) const noexcept
    {
        return static_cast<T *>(s_->user[i]);
    }
    std::int64_t symbol(unsigned i = 0) const noexcept /* 0: there is no map */
    {
        return s_->symbol ? ::cede_future_symbol(s_->symbol, i) : 0;
    }
    /* For `finish`: */
    std::error_code error() const noexcept
    {
        return detail::code(s_->error);
    }
    std::int64_t result(unsigned i) const noexcept /* 0 after an error, and without a map */
    {
        return s_->result ? s_->result[i] : 0;
    }
    bool surplus(unsigned i) const noexcept
    {
        return s_->surplus[i] != 0;
    }
    ::cede_step &info() const noexcept /* all of it; `batch` is the program's */
    {
        return *s_;
    }

  private:
    ::cede_step *s_;
};

/* Requests are pointers, which come back with each step. Functions return nothing, an int (0:
 * success), an enum such as CUresult, or a std::error_code; `schedule` returns a bool, or an int as
 * in C. An exception counts as a failure of its function, and once() throws it, or for a failure
 * that one returned, an error; another call goes on. The reason that `left` gets is an int as in C:
 * below 0 an errno value, or what leave() was given. The destructor waits
 * for running steps, and makes all requests leave. */
template <class T> class step_loop
{
  public:
    /* left(request, reason); with a queue, joined(request, id, batch) has to be given, without one
     * it must not: see struct cede_step_config. */
    template <class Schedule, class Launch, class Finish>
    step_loop(
        const step_config &config, Schedule &&schedule, Launch &&launch, Finish &&finish,
        std::function<void(T *, int)> left = [](T *, int) {},
        std::function<void(T *, std::uint64_t, const ::cede_queue_batch &)> joined = {})
    {
        detail::check(open(config, std::forward<Schedule>(schedule), std::forward<Launch>(launch),
                           std::forward<Finish>(finish), std::move(left), std::move(joined)));
    }

    /* May be called from any thread. The request and the scope have to stay until it has left. */
    std::uint64_t join(T *request, scope *in = nullptr, microseconds timeout = timeout_forever)
    {
        std::error_code why;
        auto id = try_join(request, in, timeout, &why);
        detail::check(why);
        return *id;
    }
    [[nodiscard]] std::optional<std::uint64_t> try_join(T *request, scope *in = nullptr,
                                                        microseconds timeout = timeout_forever,
                                                        std::error_code *why = nullptr) noexcept
    {
        std::uint64_t id;
        if (detail::failed(::cede_step_join(handle(), request, in ? in->handle() : nullptr,
                                            timeout.count(), &id),
                           why))
            return std::nullopt;
        return id;
    }
    /* ENOENT: it has left before. */
    [[nodiscard]] std::error_code try_leave(std::uint64_t id, int reason = 0) noexcept
    {
        return detail::code(::cede_step_leave(handle(), id, reason));
    }
    /* False: it has left before. */
    bool leave(std::uint64_t id, int reason = 0)
    {
        int r = ::cede_step_leave(handle(), id, reason);
        if (r != -ENOENT)
            detail::check(r);
        return r == 0;
    }
    /* In `schedule`: the symbol of the request's latest result, or 0 if `finish` has had that.
     * Empty: it is in the step (EALREADY), has left (ENOENT), or the step is full (ENOSPC). */
    [[nodiscard]] std::optional<std::int64_t> try_add(std::uint64_t id,
                                                      std::error_code *why = nullptr) noexcept
    {
        std::int64_t symbol;
        if (detail::failed(::cede_step_add(handle(), id, &symbol), why))
            return std::nullopt;
        return symbol;
    }

    /* False: there is nothing to do, and nothing runs. Throws a function's exception, else an
     * error: its errno value, ECANCELED (the scope has ended), EDEADLK, ENOBUFS. */
    bool once()
    {
        detail::calls during;
        int r = ::cede_step_once(handle());
        during.check();
        detail::check(r);
        return r > 0;
    }
    /* Calls once() until it returns false. */
    void run()
    {
        while (once())
            ;
    }
    [[nodiscard]] std::error_code try_once(bool *did = nullptr) noexcept
    {
        detail::calls during;
        int r = ::cede_step_once(handle());
        if (did)
            *did = r > 0;
        return detail::code(r < 0 ? r : during.result());
    }
    ::cede_step_statistics statistics() const
    {
        return detail::statistics<::cede_step_statistics>(::cede_step_get_statistics, handle());
    }
    ::cede_step_loop *handle() const noexcept
    {
        return s_ ? s_->loop : nullptr;
    }

  private:
    struct state {
        std::function<int(step<T> &)> schedule, launch, finish;
        std::function<void(T *, int)> left;
        std::function<void(T *, std::uint64_t, const ::cede_queue_batch &)> joined;
        ::cede_step_loop *loop = nullptr;
    };
    struct closer : detail::process {
        void operator()(state *s) const noexcept
        {
            if (!here())
                return;
            detail::calls during; /* exceptions of `left` are dropped */
            /* A loop that one of its functions destroys stays. */
            if (::cede_step_close(s->loop) != -EDEADLK)
                delete s;
        }
    };
    template <class F> static std::function<int(step<T> &)> any(F &&f)
    {
        return [f = std::forward<F>(f)](step<T> &s) mutable {
            if constexpr (std::is_same_v<std::invoke_result_t<decltype(f) &, step<T> &>, bool>)
                return static_cast<int>(f(s));
            else
                return detail::result_of<decltype(f), step<T> &>(f, s);
        };
    }
    template <std::function<int(step<T> &)> state::*F>
    static int call(void *arg, ::cede_step *raw) noexcept
    {
        return detail::calls::run([=] {
            step<T> s(raw);
            const int r = (static_cast<state *>(arg)->*F)(s);
            if (r && F == &state::launch) /* cede_step_once() does not return it */
                throw error(detail::returned(r),
                            "`launch` returned " + std::to_string(r) + ": see that function");
            return r;
        });
    }
    template <class Schedule, class Launch, class Finish>
    int open(const step_config &config, Schedule &&schedule, Launch &&launch, Finish &&finish,
             std::function<void(T *, int)> left,
             std::function<void(T *, std::uint64_t, const ::cede_queue_batch &)> joined)
    {
        s_.reset(new state{any(std::forward<Schedule>(schedule)), any(std::forward<Launch>(launch)),
                           any(std::forward<Finish>(finish)), std::move(left), std::move(joined)});
        ::cede_step_config c = config;
        c.arg = s_.get();
        c.schedule = call<&state::schedule>;
        c.launch = call<&state::launch>;
        c.finish = call<&state::finish>;
        c.left = [](void *arg, void *user, int reason) {
            static_cast<void>(detail::calls::run([=] {
                static_cast<state *>(arg)->left(static_cast<T *>(user), reason);
                return 0;
            }));
        };
        if (s_->joined)
            c.joined = [](void *arg, const ::cede_queue_batch *taken, std::uint64_t id) {
                static_cast<void>(detail::calls::run([=] {
                    static_cast<state *>(arg)->joined(static_cast<T *>(taken->user[0]), id, *taken);
                    return 0;
                }));
            };
        return ::cede_step_open(&c, &s_->loop);
    }
    std::unique_ptr<state, closer> s_;
};

} // namespace cede

#endif
