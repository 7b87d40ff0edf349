/* libcede for C++17: a long computation in slices, and checkpoints. cede/slice.h describes every
 * call; see also cede/cede.hpp.
 *
 *     cede::checkpoint file("sum.checkpoint", version);
 *     cede::slice_run run;
 *     run.progress.done = file.read(state, sizeof(state)).value_or(0);
 *     run.config.count = n;
 *     run.config.client = client.handle();
 *     while (!run(launch, [&](std::uint64_t done) { file.write(done, state, sizeof(state)); }))
 *         std::this_thread::sleep_for(1s);     // a job of a higher class waits: it is saved
 */
#ifndef CEDE_SLICE_HPP
#define CEDE_SLICE_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cede/error.hpp"
#include "cede/slice.h"

namespace cede
{

/* Settings, with the defaults of cede_slice_defaults(). `scope`, `client` and `lease` are
 * handle()s. slice_run sets the functions and `arg`. */
struct slice_config : ::cede_slice_config {
    slice_config() noexcept
    {
        ::cede_slice_defaults(this);
    }
};

/* Settings and progress of a computation. Functions return nothing, an int (0: success), an
 * enum such as CUresult, or a std::error_code; an exception or a failure that one returns ends the
 * run. */
class slice_run
{
  public:
    slice_config config;
    ::cede_slice_progress progress{};

    /* launch(first, count, stream) puts elements into the stream, save(done) saves the state.
     * True: all is done, and saved. False: a job of a higher class waits, or timeout_us has passed;
     * another call goes on. Throws a function's exception, else an error with libcede's message;
     * ECANCELED: the scope has ended. */
    template <class Launch, class Save> bool operator()(Launch &&launch, Save &&save)
    {
        return finished(run(&launch, &save));
    }
    template <class Launch> bool operator()(Launch &&launch)
    {
        return finished(run(&launch, static_cast<nothing *>(nullptr)));
    }
    /* EAGAIN, ETIMEDOUT: it is not finished, as above. An exception becomes its code, or EIO. */
    template <class Launch, class Save>
    [[nodiscard]] std::error_code try_run(Launch &&launch, Save &&save) noexcept
    {
        return detail::code(run(&launch, &save).result);
    }
    template <class Launch> [[nodiscard]] std::error_code try_run(Launch &&launch) noexcept
    {
        return detail::code(run(&launch, static_cast<nothing *>(nullptr)).result);
    }

  private:
    struct nothing {
        void operator()(std::uint64_t) const noexcept
        {
        }
    };
    struct outcome {
        int result;
        std::exception_ptr thrown;
    };
    template <class Launch, class Save> outcome run(Launch *launch, Save *save) noexcept
    {
        struct functions {
            Launch *launch;
            Save *save;
        } f{launch, save};
        ::cede_slice_config c = config;
        c.arg = &f;
        c.launch = [](void *arg, std::uint64_t first, std::uint64_t count, void *stream) {
            return detail::calls::run([=] {
                return detail::result_of(*static_cast<functions *>(arg)->launch, first, count,
                                         stream);
            });
        };
        c.save = [](void *arg, std::uint64_t done) {
            return detail::calls::run(
                [=] { return detail::result_of(*static_cast<functions *>(arg)->save, done); });
        };
        if (!save)
            c.save = nullptr;
        detail::calls during;
        int r = ::cede_slice_run(&c, &progress);
        return {r, during.thrown()};
    }
    bool finished(const outcome &o) const
    {
        if (o.thrown)
            std::rethrow_exception(o.thrown);
        if (o.result == -EAGAIN || o.result == -ETIMEDOUT)
            return false;
        detail::check(o.result);
        return true;
    }
};

/* A file that is whole or not there. work: a number that stands for the computation; a file with
 * another number is refused. One thread at a time may use it. */
class checkpoint
{
  public:
    checkpoint(std::string path, std::uint64_t work) : path_(std::move(path))
    {
        c_.work = work;
    }
    [[nodiscard]] std::error_code try_write(std::uint64_t done, const void *data,
                                            std::size_t bytes) noexcept
    {
        return detail::code(::cede_checkpoint_write(raw(), done, data, bytes));
    }
    void write(std::uint64_t done, const void *data, std::size_t bytes)
    {
        detail::check(::cede_checkpoint_write(raw(), done, data, bytes));
    }
    /* The number of elements that are done; empty: there is no checkpoint, and data may have
     * changed. Throws EBADMSG (damaged file), EPROTO (another format), ESTALE (other work). */
    std::optional<std::uint64_t> read(void *data, std::size_t bytes)
    {
        std::uint64_t done = 0;
        int r = ::cede_checkpoint_read(raw(), &done, data, bytes);
        if (r == -ENOENT)
            return std::nullopt;
        detail::check(r);
        return done;
    }
    [[nodiscard]] std::optional<std::uint64_t> try_read(void *data, std::size_t bytes,
                                                        std::error_code *why = nullptr) noexcept
    {
        std::uint64_t done = 0;
        if (detail::failed(::cede_checkpoint_read(raw(), &done, data, bytes), why))
            return std::nullopt;
        return done;
    }

  private:
    ::cede_checkpoint *raw() noexcept
    {
        c_.path = path_.c_str(); /* set each time, as this object may have been moved or copied */
        return &c_;
    }
    std::string path_;
    ::cede_checkpoint c_{};
};

} // namespace cede

#endif
