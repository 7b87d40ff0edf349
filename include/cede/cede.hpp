/* libcede for C++17: RAII over the C headers of this folder, which describe every call. Header
 * only; programs link with libcede. It decides nothing: each function is one call of libcede.
 *
 * Objects are moved, not copied, and release what they hold in their destructors: a request ends, a
 * lease is released, a batch that was not done is reported as failed, a scope cancels its tasks and
 * waits for them. A moved-from object is empty: calls on it do nothing or fail with EINVAL. A
 * request cannot be moved either.
 *
 * Functions throw an `error`. try_ functions throw nothing, and return a std::error_code or an
 * empty std::optional, which has to be looked at. Codes are errno values, as in the C headers:
 * compare with std::errc.
 *
 * Times are std::chrono's. A deadline of 0 is none, one below 0 has passed. A time-out of 0 is no
 * wait, one below 0, but for timeout_default, is EINVAL. What C takes as (device, kernel, shape) is
 * (kernel, shape, device) here, with defaults. cede_memory_users() and functions that return a text
 * are called as in C, with handle().
 *
 * Thread-safe as the calls of libcede are; an object must not be moved or destroyed while another
 * thread uses it. */
#ifndef CEDE_CEDE_HPP
#define CEDE_CEDE_HPP

#include <memory>
#include <optional>

#include "cede/cede.h"
#include "cede/error.hpp"
#include "cede/future.hpp"
#include "cede/graph.hpp"
#include "cede/lease.hpp"
#include "cede/memory.hpp"
#include "cede/queue.hpp"
#include "cede/scope.hpp"
#include "cede/slice.hpp"
#include "cede/step.hpp"

namespace cede
{

/* A handle of libcede, which works with or without a daemon. */
class client
{
  public:
    client()
    {
        ::cede_handle *c;
        detail::check(::cede_connect(&c));
        c_.reset(c);
    }
    [[nodiscard]] static std::optional<client> try_connect(std::error_code *why = nullptr) noexcept
    {
        ::cede_handle *c;
        if (detail::failed(::cede_connect(&c), why))
            return std::nullopt;
        return client(c);
    }

    [[nodiscard]] std::error_code try_set_class(job_class cls) noexcept
    {
        return detail::code(::cede_set_class(c_.get(), static_cast<::cede_class>(cls)));
    }
    void set_class(job_class cls)
    {
        detail::check(try_set_class(cls));
    }
    [[nodiscard]] std::error_code try_set_weight(unsigned weight) noexcept
    {
        return detail::code(::cede_set_weight(c_.get(), weight));
    }
    void set_weight(unsigned weight)
    {
        detail::check(try_set_weight(weight));
    }
    /* See cede_job_yield(): flags of enum cede_yield_flags. ENOTCONN: there is no daemon. */
    [[nodiscard]] std::error_code try_job_yield(unsigned flags = 0) noexcept
    {
        return detail::code(::cede_job_yield(c_.get(), flags));
    }
    void job_yield(unsigned flags = 0)
    {
        detail::check(try_job_yield(flags));
    }
    [[nodiscard]] std::error_code try_job_acquire(microseconds timeout = timeout_default) noexcept
    {
        return detail::code(::cede_job_acquire(c_.get(), timeout.count()));
    }
    void job_acquire(microseconds timeout = timeout_default)
    {
        detail::check(try_job_acquire(timeout));
    }
    /* Deadline of requests that state none; 0: none. This and the next two only fail by ENOSPC. */
    [[nodiscard]] std::error_code try_set_deadline(microseconds d,
                                                   ::cede_stream stream = whole_job) noexcept
    {
        return detail::code(::cede_set_deadline(c_.get(), stream, detail::deadline_us(d)));
    }
    void set_deadline(microseconds d, ::cede_stream stream = whole_job)
    {
        detail::check(try_set_deadline(d, stream));
    }
    [[nodiscard]] std::error_code try_set_laxity(microseconds laxity,
                                                 ::cede_stream stream = whole_job) noexcept
    {
        return detail::code(::cede_set_laxity(c_.get(), stream, detail::span_us(laxity)));
    }
    void set_laxity(microseconds laxity, ::cede_stream stream = whole_job)
    {
        detail::check(try_set_laxity(laxity, stream));
    }
    [[nodiscard]] std::error_code try_set_priority(int priority,
                                                   ::cede_stream stream = whole_job) noexcept
    {
        return detail::code(::cede_set_priority(c_.get(), stream, priority));
    }
    void set_priority(int priority, ::cede_stream stream = whole_job)
    {
        detail::check(try_set_priority(priority, stream));
    }
    /* Pre-preemption: see cede_lead_cuda(). ENOSYS: there is no CUDA. */
    [[nodiscard]] std::error_code try_lead_cuda(microseconds keep = microseconds(0)) noexcept
    {
        return detail::code(::cede_lead_cuda(c_.get(), detail::span_us(keep)));
    }
    void lead_cuda(microseconds keep = microseconds(0))
    {
        detail::check(try_lead_cuda(keep));
    }

    bool connected() const noexcept
    {
        return ::cede_connected(c_.get()) == 1;
    }
    bool wanted() const noexcept
    {
        return ::cede_wanted(c_.get()) == 1;
    }
    /* The share of the GPU, up to 1, that this process can expect: see cede_share(). */
    double share() const noexcept
    {
        return ::cede_share(c_.get());
    }
    ::cede_statistics statistics() const
    {
        return detail::statistics<::cede_statistics>(::cede_get_statistics, c_.get());
    }
    ::cede_handle *handle() const noexcept
    {
        return c_.get();
    }

  private:
    explicit client(::cede_handle *c) noexcept : c_(c)
    {
    }
    std::unique_ptr<::cede_handle, detail::closer<::cede_handle, ::cede_close>> c_;
};

/* A request, which ends with this object. queued_in: from now until its first work is queued. The
 * client has to outlive it. It cannot be moved, but `auto r = request(c)` and emplace(c) of a
 * std::optional work. */
class request
{
  public:
    explicit request(client &c, microseconds queued_in = microseconds(0),
                     microseconds deadline = microseconds(0),
                     ::cede_stream stream = whole_job) noexcept
        : c_(c.handle())
    {
        ::cede_request_begin(c_, &r_, stream, detail::span_us(queued_in),
                             detail::deadline_us(deadline));
    }
    request(const request &) = delete;
    request &operator=(const request &) = delete;
    ~request()
    {
        if (r_.opaque[0])
            static_cast<void>(try_end());
    }
    /* EINVAL: it has ended. ESTALE: it began before a fork(). */
    [[nodiscard]] std::error_code try_queued() noexcept
    {
        return detail::code(::cede_request_queued(c_, &r_));
    }
    void queued()
    {
        detail::check(try_queued());
    }
    [[nodiscard]] std::error_code try_end() noexcept
    {
        return detail::code(::cede_request_end(c_, &r_));
    }
    void end()
    {
        detail::check(try_end());
    }

  private:
    ::cede_handle *c_;
    ::cede_request r_;
};

} // namespace cede

#endif
