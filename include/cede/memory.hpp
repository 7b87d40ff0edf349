/* libcede for C++17: a GPU's memory. cede/memory.h describes every call; see also cede/cede.hpp. */
#ifndef CEDE_MEMORY_HPP
#define CEDE_MEMORY_HPP

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cede/error.hpp"
#include "cede/lease.hpp"
#include "cede/memory.h"

namespace cede
{

/* Settings, with the defaults of cede_memory_defaults(). `client` is a client's handle(). */
struct memory_config : ::cede_memory_config {
    memory_config() noexcept
    {
        ::cede_memory_defaults(this);
    }
};

/* Room that is kept until this is destroyed. */
class [[nodiscard]] reservation : public detail::held<::cede_reservation, ::cede_memory_release>
{
  public:
    std::uint64_t bytes() const noexcept
    {
        return raw_.bytes;
    }

  private:
    friend class memory;
};

/* A lease with room for memory::allocate(room, bytes). The lease ends before the room. */
struct [[nodiscard]] memory_lease {
    reservation room;
    cede::lease lease;

    memory_lease() noexcept = default; /* empty */
    memory_lease(memory_lease &&) noexcept = default;
    memory_lease &operator=(memory_lease &&other) noexcept
    {
        lease = std::move(other.lease);
        room = std::move(other.room);
        return *this;
    }
};

namespace detail
{

struct allocated {
    std::uint64_t opaque[1]; /* its address */
    ::cede_memory *of;
};
inline int free_allocated(const allocated *a) noexcept
{
    return ::cede_memory_free(a->of, a->opaque[0]);
}

} // namespace detail

/* Memory on the GPU, freed by the destructor. Its cede::memory has to outlive it. */
class [[nodiscard]] allocation : public detail::held<detail::allocated, detail::free_allocated>
{
  public:
    std::uint64_t address() const noexcept /* a CUdeviceptr */
    {
        return raw_.opaque[0];
    }

  private:
    friend class memory;
};

class memory
{
  public:
    explicit memory(const memory_config &config = {})
    {
        ::cede_memory *m;
        detail::check(::cede_memory_open(&config, &m));
        m_.reset(m);
    }
    [[nodiscard]] static std::optional<memory> try_open(const memory_config &config = {},
                                                        std::error_code *why = nullptr) noexcept
    {
        ::cede_memory *m;
        if (detail::failed(::cede_memory_open(&config, &m), why))
            return std::nullopt;
        return memory(m);
    }
    bool can_allocate(std::uint64_t bytes) const noexcept
    {
        return ::cede_memory_can_allocate(m_.get(), bytes) == 1;
    }
    /* Waits for room; what() of the exception says how much there is and who has it. */
    reservation reserve(std::uint64_t bytes, microseconds timeout = timeout_default)
    {
        reservation r;
        check(::cede_memory_reserve(m_.get(), bytes, timeout.count(), &r.raw_));
        return r;
    }
    [[nodiscard]] std::optional<reservation> try_reserve(std::uint64_t bytes,
                                                         microseconds timeout = timeout_now,
                                                         std::error_code *why = nullptr) noexcept
    {
        reservation r;
        if (detail::failed(::cede_memory_reserve(m_.get(), bytes, timeout.count(), &r.raw_), why))
            return std::nullopt;
        return r;
    }
    allocation allocate(std::uint64_t bytes, microseconds timeout = timeout_default)
    {
        allocation a;
        check(take(nullptr, bytes, timeout, a));
        return a;
    }
    [[nodiscard]] std::optional<allocation> try_allocate(std::uint64_t bytes,
                                                         microseconds timeout = timeout_now,
                                                         std::error_code *why = nullptr) noexcept
    {
        allocation a;
        if (detail::failed(take(nullptr, bytes, timeout, a), why))
            return std::nullopt;
        return a;
    }
    /* Does not wait. */
    allocation allocate(const reservation &from, std::uint64_t bytes)
    {
        allocation a;
        check(take(from.handle(), bytes, timeout_now, a));
        return a;
    }
    /* Waits for room and for a lease of the pool: see cede_memory_acquire(). Ranges of managed
     * memory are on the GPU afterwards. Throws as reserve() and pool::acquire(). */
    memory_lease acquire(pool &p, const char *kernel = nullptr, const shape &s = {},
                         const std::vector<::cede_range> &ranges = {},
                         microseconds timeout = timeout_default)
    {
        memory_lease l;
        check(take(p, kernel, s, ranges, timeout, l));
        return l;
    }
    [[nodiscard]] std::optional<memory_lease>
    try_acquire(pool &p, const char *kernel = nullptr, const shape &s = {},
                const std::vector<::cede_range> &ranges = {}, microseconds timeout = timeout_now,
                std::error_code *why = nullptr) noexcept
    {
        memory_lease l;
        if (detail::failed(take(p, kernel, s, ranges, timeout, l), why))
            return std::nullopt;
        return l;
    }
    /* The bytes that leases of this kernel and shape are expected to allocate; 0: not known. */
    std::uint64_t need(const char *kernel, const shape &s = {}) const noexcept
    {
        const ::cede_shape c = detail::raw(s);
        return ::cede_memory_need(m_.get(), kernel, &c);
    }
    enum ::cede_pressure pressure() const
    {
        int r = ::cede_memory_pressure(m_.get());
        detail::check(r);
        return static_cast<enum ::cede_pressure>(r);
    }
    std::string text() const
    {
        char t[2048] = "";
        static_cast<void>(::cede_memory_text(m_.get(), t, sizeof(t)));
        return t;
    }
    ::cede_memory_statistics statistics() const
    {
        return detail::statistics<::cede_memory_statistics>(::cede_memory_get_statistics, m_.get());
    }
    ::cede_memory *handle() const noexcept
    {
        return m_.get();
    }

  private:
    explicit memory(::cede_memory *m) noexcept : m_(m)
    {
    }
    int take(pool &p, const char *kernel, const shape &s, const std::vector<::cede_range> &ranges,
             microseconds timeout, memory_lease &out) noexcept
    {
        const ::cede_shape c = detail::raw(s);
        return ::cede_memory_acquire(m_.get(), p.handle(), kernel, &c, ranges.data(),
                                     static_cast<unsigned>(ranges.size()), timeout.count(),
                                     &out.lease.raw_, &out.room.raw_);
    }
    int take(const ::cede_reservation *from, std::uint64_t bytes, microseconds timeout,
             allocation &out) noexcept
    {
        out.raw_.of = m_.get();
        return ::cede_memory_allocate(m_.get(), from, bytes, timeout.count(), &out.raw_.opaque[0]);
    }
    void check(int r) const
    {
        const std::string why = r == -ENOMEM ? ::cede_error_text() : "";
        if (r == -ENOMEM)
            throw error(r, why + "; " + text());
        detail::check(r);
    }
    std::unique_ptr<::cede_memory, detail::closer<::cede_memory, ::cede_memory_close>> m_;
};

} // namespace cede

#endif
