/* libcede for C++17: a GPU's memory. cede/memory.h describes every call; see also cede/cede.hpp. */
#ifndef CEDE_MEMORY_HPP
#define CEDE_MEMORY_HPP

#include <memory>
#include <optional>
#include <utility>

#include "cede/error.hpp"
#include "cede/memory.h"

namespace cede
{

/* Settings, with the defaults of cede_memory_defaults(). */
struct memory_config : ::cede_memory_config {
    memory_config() noexcept
    {
        ::cede_memory_defaults(this);
    }
};

/* Room that is kept until this goes. */
class reservation
{
  public:
    reservation() noexcept = default; /* empty */
    reservation(reservation &&other) noexcept : r_(std::exchange(other.r_, ::cede_reservation{}))
    {
    }
    reservation &operator=(reservation &&other) noexcept
    {
        if (this != &other) {
            static_cast<void>(release());
            r_ = std::exchange(other.r_, ::cede_reservation{});
        }
        return *this;
    }
    ~reservation()
    {
        static_cast<void>(release());
    }
    /* EINVAL: it is empty. ESTALE: its memory was closed. */
    std::error_code release() noexcept
    {
        ::cede_reservation r = std::exchange(r_, ::cede_reservation{});
        return detail::code(::cede_memory_release(&r));
    }
    std::uint64_t bytes() const noexcept
    {
        return r_.bytes;
    }
    explicit operator bool() const noexcept
    {
        return r_.opaque[0] != 0;
    }

  private:
    friend class memory;
    ::cede_reservation r_{};
};

/* Memory on the GPU that is freed when this goes, which has to be before its cede::memory does. */
class allocation
{
  public:
    allocation() noexcept = default; /* empty */
    allocation(allocation &&other) noexcept
        : m_(std::exchange(other.m_, nullptr)), address_(std::exchange(other.address_, 0))
    {
    }
    allocation &operator=(allocation &&other) noexcept
    {
        if (this != &other) {
            static_cast<void>(free());
            m_ = std::exchange(other.m_, nullptr);
            address_ = std::exchange(other.address_, 0);
        }
        return *this;
    }
    ~allocation()
    {
        static_cast<void>(free());
    }
    std::error_code free() noexcept
    {
        return detail::code(
            ::cede_memory_free(std::exchange(m_, nullptr), std::exchange(address_, 0)));
    }
    std::uint64_t address() const noexcept /* a CUdeviceptr */
    {
        return address_;
    }
    explicit operator bool() const noexcept
    {
        return m_ != nullptr;
    }

  private:
    friend class memory;
    ::cede_memory *m_ = nullptr;
    std::uint64_t address_ = 0;
};

class memory
{
  public:
    explicit memory(const memory_config &config = {})
    {
        ::cede_memory *m;
        int r = ::cede_memory_open(&config, &m);
        detail::check(r, r == -EINVAL   ? "cede_memory_open: a setting is out of range"
                         : r == -EMFILE ? "cede_memory_open: CEDE_MEMORIES_MAX are open"
                         : r == -ENODEV ? "cede_memory_open: there is no such GPU"
                                        : "cede_memory_open");
        m_.reset(m);
    }
    bool can_allocate(std::uint64_t bytes) const noexcept
    {
        return ::cede_memory_can_allocate(m_.get(), bytes) == 1;
    }
    /* Waits; what() of the exception says how much there is and which processes have it. */
    reservation reserve(std::uint64_t bytes, microseconds timeout = default_timeout)
    {
        reservation r;
        check(::cede_memory_reserve(m_.get(), bytes, detail::timeout_us(timeout), &r.r_),
              "cede_memory_reserve");
        return r;
    }
    std::optional<reservation> try_reserve(std::uint64_t bytes,
                                           microseconds timeout = microseconds(0),
                                           std::error_code *why = nullptr) noexcept
    {
        reservation r;
        if (detail::failed(
                ::cede_memory_reserve(m_.get(), bytes, detail::timeout_us(timeout), &r.r_), why))
            return std::nullopt;
        return r;
    }
    allocation allocate(std::uint64_t bytes, microseconds timeout = default_timeout)
    {
        return allocate_from(nullptr, bytes, timeout);
    }
    /* Does not wait. */
    allocation allocate(const reservation &from, std::uint64_t bytes)
    {
        return allocate_from(&from.r_, bytes, microseconds(0));
    }
    enum ::cede_pressure pressure() const noexcept
    {
        int r = ::cede_memory_pressure(m_.get());
        return r < 0 ? CEDE_PRESSURE_LOW : static_cast<enum ::cede_pressure>(r);
    }
    std::string text() const
    {
        char t[2048] = "";
        static_cast<void>(::cede_memory_text(m_.get(), t, sizeof(t)));
        return t;
    }
    std::optional<::cede_memory_statistics> statistics() const noexcept
    {
        ::cede_memory_statistics s{};
        if (::cede_memory_get_statistics(m_.get(), &s, sizeof(s)) < 0)
            return std::nullopt;
        return s;
    }
    ::cede_memory *handle() const noexcept
    {
        return m_.get();
    }

  private:
    allocation allocate_from(const ::cede_reservation *from, std::uint64_t bytes,
                             microseconds timeout)
    {
        allocation a;
        check(
            ::cede_memory_allocate(m_.get(), from, bytes, detail::timeout_us(timeout), &a.address_),
            "cede_memory_allocate");
        a.m_ = m_.get();
        return a;
    }
    void check(int r, const char *call) const
    {
        if (r < 0)
            throw error(r, r == -ENOMEM ? std::string(call) + ": " + text() : std::string(call));
    }
    std::unique_ptr<::cede_memory, detail::closer<::cede_memory, ::cede_memory_close>> m_;
};

} // namespace cede

#endif
