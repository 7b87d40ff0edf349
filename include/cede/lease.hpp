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

namespace detail
{

inline ::cede_shape raw(const shape &s) noexcept
{
    return {s.blocks, s.threads, s.shared_bytes, s.priority, s.memory_bytes, deadline_us(s.due)};
}

} // namespace detail

/* Room on a GPU and a stream for it. Work in the stream has to end before the lease is released. */
class [[nodiscard]] lease : public detail::held<::cede_lease, ::cede_release>
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

/* Settings, with the defaults of cede_pool_defaults(). `client` is a client's handle(). */
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
        detail::check(::cede_pool_open(&config, &p));
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
        detail::check(try_kernel(name, function));
    }
    [[nodiscard]] std::error_code try_occupancy(const char *name, double occupancy) noexcept
    {
        return detail::code(::cede_pool_occupancy(p_.get(), name, occupancy));
    }
    void occupancy(const char *name, double occupancy)
    {
        detail::check(try_occupancy(name, occupancy));
    }

    /* What a lease for this kernel and shape takes. */
    [[nodiscard]] cede_profile profile(const char *name, const shape &s = {}) const
    {
        cede_profile out;
        const ::cede_shape c = detail::raw(s);
        detail::check(::cede_pool_profile(p_.get(), name, &c, &out, sizeof(out)));
        return out;
    }

    lease acquire(const char *kernel = nullptr, const shape &s = {}, int device = any_device,
                  microseconds timeout = timeout_default)
    {
        lease l;
        detail::check(take(device, kernel, s, timeout, l));
        return l;
    }
    /* Does not wait, unless there is a timeout. */
    [[nodiscard]] std::optional<lease> try_acquire(const char *kernel = nullptr,
                                                   const shape &s = {}, int device = any_device,
                                                   microseconds timeout = timeout_now,
                                                   std::error_code *why = nullptr) noexcept
    {
        lease l;
        if (detail::failed(take(device, kernel, s, timeout, l), why))
            return std::nullopt;
        return l;
    }
    ::cede_pool_statistics statistics(int device = 0) const
    {
        return detail::statistics<::cede_pool_statistics>(::cede_pool_get_statistics, p_.get(),
                                                          device);
    }
    ::cede_pool *handle() const noexcept
    {
        return p_.get();
    }

  private:
    explicit pool(::cede_pool *p) noexcept : p_(p)
    {
    }
    int take(int device, const char *kernel, const shape &s, microseconds timeout,
             lease &out) noexcept
    {
        const ::cede_shape c = detail::raw(s);
        return ::cede_acquire(p_.get(), device, kernel, &c, timeout.count(), &out.raw_);
    }
    std::unique_ptr<::cede_pool, detail::closer<::cede_pool, ::cede_pool_close>> p_;
};

} // namespace cede

#endif
