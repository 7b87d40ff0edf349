/* libcede for C++17: leases. cede/lease.h describes every call; see also cede/cede.hpp. */
#ifndef CEDE_LEASE_HPP
#define CEDE_LEASE_HPP

#include <memory>
#include <optional>

#include "cede/error.hpp"
#include "cede/lease.h"
#include "cede/scope.h"

namespace cede
{

/* See struct cede_shape. due: from now. */
struct shape {
    unsigned blocks = 0, threads = 0, shared_bytes = 0;
    int priority = 0;
    std::uint64_t memory_bytes = 0;
    microseconds due{0};
};

/* Room on a GPU and a stream for it. Work in the stream has to end before the lease is released. */
class lease : public detail::held<::cede_lease, ::cede_release>
{
  public:
    void *stream() const noexcept /* a CUstream; null without a GPU */
    {
        return raw_.stream;
    }
    int device() const noexcept /* -1: it is empty */
    {
        return *this ? raw_.device : -1;
    }
    bool urgent() const noexcept
    {
        return raw_.urgent != 0;
    }
    /* An urgent lease displaces this one on its GPU: hold the next kernels back. */
    bool wanted() const noexcept
    {
        return ::cede_lease_wanted(&raw_) == 1;
    }

  private:
    friend class pool;
    friend class memory;
};

/* Settings, with the defaults of cede_pool_defaults(). */
struct pool_config : ::cede_pool_config {
    pool_config() noexcept
    {
        ::cede_pool_defaults(this);
    }
};

class pool
{
  public:
    explicit pool(const pool_config &config = {})
    {
        ::cede_pool *p;
        int r = ::cede_pool_open(&config, &p);
        detail::check(r, r == -EINVAL   ? "cede_pool_open: a setting is out of range"
                         : r == -EMFILE ? "cede_pool_open: CEDE_POOLS_MAX pools are open"
                         : r == -ENODEV ? "cede_pool_open: there are fewer GPUs than `devices`"
                                        : "cede_pool_open");
        p_.reset(p);
    }
    [[nodiscard]] static std::optional<pool> try_open(const pool_config &config = {},
                                                      std::error_code *why = nullptr) noexcept
    {
        ::cede_pool *p;
        if (detail::failed(::cede_pool_open(&config, &p), why))
            return std::nullopt;
        return pool(p);
    }

    [[nodiscard]] std::error_code try_kernel(const char *name, void *function) noexcept
    {
        return detail::code(::cede_pool_kernel(p_.get(), name, function));
    }
    void kernel(const char *name, void *function)
    {
        registered(try_kernel(name, function), "cede_pool_kernel");
    }
    [[nodiscard]] std::error_code try_occupancy(const char *name, double share) noexcept
    {
        return detail::code(::cede_pool_occupancy(p_.get(), name, share));
    }
    void occupancy(const char *name, double share)
    {
        registered(try_occupancy(name, share), "cede_pool_occupancy");
    }

    lease acquire(const char *kernel = nullptr, const shape &s = {}, int device = any_device,
                  microseconds timeout = timeout_default)
    {
        lease l;
        int r = take(p_.get(), device, kernel, s, timeout, l.raw_);
        if (r < 0)
            throw refusal("cede_acquire", r, p_.get(), kernel);
        return l;
    }
    /* Does not wait, unless there is a timeout. */
    [[nodiscard]] std::optional<lease> try_acquire(const char *kernel = nullptr,
                                                   const shape &s = {}, int device = any_device,
                                                   microseconds timeout = timeout_now,
                                                   std::error_code *why = nullptr) noexcept
    {
        lease l;
        if (detail::failed(take(p_.get(), device, kernel, s, timeout, l.raw_), why))
            return std::nullopt;
        return l;
    }
    /* Figures of a device; empty: no such device, or the pool was moved from. */
    std::optional<::cede_pool_statistics> statistics(int device = 0) const noexcept
    {
        ::cede_pool_statistics s{};
        if (::cede_pool_get_statistics(p_.get(), device, &s, sizeof(s)) < 0)
            return std::nullopt;
        return s;
    }
    ::cede_pool *handle() const noexcept
    {
        return p_.get();
    }

  private:
    friend class memory;
    explicit pool(::cede_pool *p) noexcept : p_(p)
    {
    }
    void registered(std::error_code c, const char *call) const
    {
        if (c)
            throw error(-c.value(),
                        std::string(call) + (!p_ ? ": the pool was moved from"
                                             : c == std::errc::invalid_argument
                                                 ? ": the name or its value is out of range"
                                             : c == std::errc::no_space_on_device
                                                 ? ": CEDE_KERNELS_MAX names are registered"
                                                 : ": the pool is not open"));
    }
    static ::cede_shape raw(const shape &s) noexcept
    {
        return {s.blocks,   s.threads,      s.shared_bytes,
                s.priority, s.memory_bytes, detail::deadline_us(s.due)};
    }
    static int take(::cede_pool *p, int device, const char *kernel, const shape &s,
                    microseconds timeout, ::cede_lease &out) noexcept
    {
        const ::cede_shape c = raw(s);
        return ::cede_acquire(p, device, kernel, &c, timeout.count(), &out);
    }
    /* Why there is no lease, with the driver's message if there is one. */
    static error refusal(const char *call, int r, ::cede_pool *p, const char *kernel)
    {
        std::string text = std::string(call) + (kernel ? " of '" + std::string(kernel) + "'" : "");
        ::cede_pool_statistics s{};
        switch (r) {
        case -EAGAIN:
        case -ETIMEDOUT:
            return {r, text + ": there was no room on a GPU in time"};
        case -ECANCELED:
            return {r, text + ": the scope is cancelled"};
        case -EINVAL:
            return {r, detail::reason(text, p ? "" : "the pool was moved from")};
        case -ENOENT:
            return {r, detail::reason(text, "")};
        case -ENOSPC:
            return {r, text + ": `capacity` leases are held or waited for"};
        case -ESHUTDOWN:
            return {r, text + ": the pool is closed"};
        default:
            for (int d = 0; ::cede_pool_get_statistics(p, d, &s, sizeof(s)) == 0; d++) {
                if (s.error[0])
                    return {r, text + ": " + s.error};
            }
            return {r, text};
        }
    }
    std::unique_ptr<::cede_pool, detail::closer<::cede_pool, ::cede_pool_close>> p_;
};

} // namespace cede

#endif
