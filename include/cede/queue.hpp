/* libcede for C++17: the request queue. cede/queue.h describes every call; see also cede/cede.hpp.
 * The queue owns no request; it returns the pointers that were submitted. */
#ifndef CEDE_QUEUE_HPP
#define CEDE_QUEUE_HPP

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "cede/error.hpp"
#include "cede/lease.hpp"
#include "cede/queue.h"

namespace cede
{

/* submit() refused a request, and answer() is why. */
class refused : public error
{
  public:
    explicit refused(::cede_queue_answer answer)
        : error(-EBUSY, std::string("cede_queue_submit: ") + ::cede_queue_text(answer)),
          answer_(answer)
    {
    }
    ::cede_queue_answer answer() const noexcept
    {
        return answer_;
    }

  private:
    ::cede_queue_answer answer_;
};

/* Settings, with the defaults of cede_queue_defaults(). `client` is a client's handle(). */
struct queue_config : ::cede_queue_config {
    queue_config() noexcept
    {
        ::cede_queue_defaults(this);
    }
};

/* See struct cede_queue_request. Times are from now. */
struct admission {
    std::uint32_t model = 0;
    std::uint64_t shape = 0;
    job_class cls = job_class::normal;
    microseconds deadline{0}, after{0};
    int device = any_device; /* the preferred one */
};

/* Requests that run together: `for (T *r : batch)`. The destructor reports the batch as failed
 * unless done() was called. The queue has to outlive it. */
template <class T> class batch
{
  public:
    class iterator
    {
      public:
        explicit iterator(void *const *p) noexcept : p_(p)
        {
        }
        T *operator*() const noexcept
        {
            return static_cast<T *>(*p_);
        }
        iterator &operator++() noexcept
        {
            ++p_;
            return *this;
        }
        bool operator!=(const iterator &other) const noexcept
        {
            return p_ != other.p_;
        }

      private:
        void *const *p_;
    };

    batch(batch &&other) noexcept : q_(std::exchange(other.q_, nullptr)), b_(other.b_)
    {
        other.b_.n = 0;
    }
    batch &operator=(batch &&other) noexcept
    {
        if (this != &other) {
            if (q_)
                static_cast<void>(finish(true));
            q_ = std::exchange(other.q_, nullptr);
            b_ = other.b_;
            other.b_.n = 0;
        }
        return *this;
    }
    ~batch()
    {
        if (q_ && made_.here())
            static_cast<void>(finish(true));
    }
    /* Its requests have run, or failed, and its device is free. EINVAL: it was done before. */
    [[nodiscard]] std::error_code try_done(bool failed = false) noexcept
    {
        return finish(failed);
    }
    void done(bool failed = false)
    {
        detail::check(finish(failed));
    }
    std::size_t size() const noexcept
    {
        return b_.n;
    }
    iterator begin() const noexcept
    {
        return iterator(b_.user);
    }
    iterator end() const noexcept
    {
        return iterator(b_.user + b_.n);
    }
    void *stream() const noexcept /* of its lease, until done(); null without a pool or a GPU */
    {
        return q_ ? b_.lease.stream : nullptr;
    }
    const ::cede_queue_batch &info() const noexcept /* its model, shape, device and so on */
    {
        return b_;
    }

  private:
    template <class> friend class queue;
    explicit batch(::cede_queue *q) noexcept : q_(q)
    {
    }
    std::error_code finish(bool failed) noexcept
    {
        return detail::code(::cede_queue_done(std::exchange(q_, nullptr), &b_, failed));
    }
    ::cede_queue *q_;
    ::cede_queue_batch b_{};
    detail::process made_;
};

template <class T> class queue
{
  public:
    explicit queue(const queue_config &config = {})
    {
        ::cede_queue *q;
        detail::check(::cede_queue_open(&config, &q));
        q_.reset(q);
    }
    [[nodiscard]] static std::optional<queue> try_open(const queue_config &config = {},
                                                       std::error_code *why = nullptr) noexcept
    {
        ::cede_queue *q;
        if (detail::failed(::cede_queue_open(&config, &q), why))
            return std::nullopt;
        return queue(q);
    }

    /* EINVAL: out of range. */
    [[nodiscard]] std::error_code try_set_model(unsigned model, unsigned batch_max,
                                                microseconds batch_wait,
                                                microseconds expected) noexcept
    {
        return detail::code(::cede_queue_set_model(
            q_.get(), model, batch_max, detail::span_us(batch_wait), detail::span_us(expected)));
    }
    void set_model(unsigned model, unsigned batch_max, microseconds batch_wait,
                   microseconds expected)
    {
        detail::check(try_set_model(model, batch_max, batch_wait, expected));
    }

    /* Kernel and shape for leases of a model's batches. EINVAL: out of range, or there is no pool.
     * ENOENT: register the kernel with the pool first. */
    [[nodiscard]] std::error_code try_set_lease(unsigned model, const char *kernel,
                                                const shape &one = {}) noexcept
    {
        const ::cede_shape c = detail::raw(one);
        return detail::code(::cede_queue_set_lease(q_.get(), model, kernel, &c));
    }
    void set_lease(unsigned model, const char *kernel, const shape &one = {})
    {
        detail::check(try_set_lease(model, kernel, one));
    }

    /* Throws `refused`, or `error` (EINVAL, ESHUTDOWN). */
    ::cede_queue_ticket submit(T *item, const admission &a = {})
    {
        ::cede_queue_ticket t{};
        int r = put(item, a, t);
        if (r == -EBUSY)
            throw refused(t.answer);
        detail::check(r);
        return t;
    }
    /* A ticket whose id is 0 was refused. Empty: EINVAL or ESHUTDOWN. */
    [[nodiscard]] std::optional<::cede_queue_ticket>
    try_submit(T *item, const admission &a = {}, std::error_code *why = nullptr) noexcept
    {
        ::cede_queue_ticket t{};
        int r = put(item, a, t);
        if (detail::failed(r, why) && r != -EBUSY)
            return std::nullopt;
        return t;
    }
    /* EBUSY: it runs. ENOENT: it has ended. */
    [[nodiscard]] std::error_code try_cancel(const ::cede_queue_ticket &t) noexcept
    {
        return detail::code(::cede_queue_cancel(q_.get(), t.id));
    }
    /* Whether it was removed; else it runs, or has ended. */
    bool cancel(const ::cede_queue_ticket &t)
    {
        int r = ::cede_queue_cancel(q_.get(), t.id);
        if (r != -EBUSY && r != -ENOENT)
            detail::check(r);
        return r == 0;
    }

    /* Waits for a batch. Empty: there was none in time, or the queue is shut down and nothing waits
     * in it any more; only the latter without a time-out. Throws ECANCELED (the scope of the
     * calling task has ended: return), EINVAL, and the pool's errors: ENOSPC, EIO. */
    std::optional<batch<T>> next(int device = 0, microseconds timeout = timeout_forever)
    {
        std::error_code why;
        std::optional<batch<T>> b = try_next(device, timeout, &why);
        int r = -why.value();
        if (r && r != -EAGAIN && r != -ETIMEDOUT && r != -ESHUTDOWN)
            detail::check(r);
        return b;
    }
    [[nodiscard]] std::optional<batch<T>> try_next(int device = 0,
                                                   microseconds timeout = timeout_now,
                                                   std::error_code *why = nullptr) noexcept
    {
        batch<T> b(q_.get());
        if (detail::failed(::cede_queue_next(q_.get(), device, timeout.count(), &b.b_), why)) {
            b.q_ = nullptr;
            return std::nullopt;
        }
        return b;
    }

    /* No further request is accepted; next() goes on with those that wait. */
    void shutdown() noexcept
    {
        ::cede_queue_shutdown(q_.get());
    }
    /* After shutdown(), to end at once: removes each waiting request and calls f(T *) for it. */
    template <class F> void reclaim(F &&f)
    {
        void *item;
        while (::cede_queue_reclaim(q_.get(), &item) == 0)
            f(static_cast<T *>(item));
    }
    ::cede_queue_statistics statistics() const
    {
        return detail::statistics<::cede_queue_statistics>(::cede_queue_get_statistics, q_.get());
    }
    ::cede_queue *handle() const noexcept
    {
        return q_.get();
    }

  private:
    explicit queue(::cede_queue *q) noexcept : q_(q)
    {
    }
    int put(T *item, const admission &a, ::cede_queue_ticket &t) noexcept
    {
        const ::cede_queue_request r{a.model,
                                     a.shape,
                                     static_cast<::cede_class>(a.cls),
                                     detail::deadline_us(a.deadline),
                                     detail::span_us(a.after),
                                     CEDE_PREFER_DEVICE(a.device),
                                     item};
        return ::cede_queue_submit(q_.get(), &r, &t);
    }
    std::unique_ptr<::cede_queue, detail::closer_here<::cede_queue, ::cede_queue_close>> q_;
};

} // namespace cede

#endif
