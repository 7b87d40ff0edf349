/* libcede for C++17: a future map. cede/future.h describes every call; see also cede/cede.hpp and
 * cede/step.hpp, whose loop reserves and releases symbols by itself. */
#ifndef CEDE_FUTURE_HPP
#define CEDE_FUTURE_HPP

#include <memory>
#include <optional>

#include "cede/error.hpp"
#include "cede/future.h"

namespace cede
{

/* Settings, with the defaults of cede_future_defaults(). */
struct futures_config : ::cede_future_config {
    futures_config() noexcept
    {
        ::cede_future_defaults(this);
    }
};

/* A map. Work that uses it has to end before it is destroyed. Calls that take a stream put one
 * kernel into it; their errors are EINVAL (no such array or symbol) and EIO (see statistics()). */
class futures
{
  public:
    explicit futures(const futures_config &config = {})
    {
        ::cede_futures *f;
        detail::check(::cede_future_open(&config, &f));
        f_.reset(f);
    }
    [[nodiscard]] static std::optional<futures> try_open(const futures_config &config = {},
                                                         std::error_code *why = nullptr) noexcept
    {
        ::cede_futures *f;
        if (detail::failed(::cede_future_open(&config, &f), why))
            return std::nullopt;
        return futures(f);
    }

    /* The symbol of the first of n values; cede_future_symbol() has the others. Empty: EAGAIN
     * (fewer than n slots are free), EINVAL. */
    [[nodiscard]] std::optional<std::int64_t> try_reserve(unsigned n,
                                                          std::error_code *why = nullptr) noexcept
    {
        std::int64_t symbol;
        if (detail::failed(::cede_future_reserve(f_.get(), n, &symbol), why))
            return std::nullopt;
        return symbol;
    }
    std::int64_t reserve(unsigned n)
    {
        std::error_code why;
        auto symbol = try_reserve(n, &why);
        detail::check(why);
        return *symbol;
    }
    [[nodiscard]] std::error_code try_release(std::int64_t symbol) noexcept
    {
        return detail::code(::cede_future_release(f_.get(), symbol));
    }
    void release(std::int64_t symbol)
    {
        detail::check(try_release(symbol));
    }
    [[nodiscard]] std::error_code try_store(void *stream, const ::cede_future_array &values,
                                            std::int64_t symbol) noexcept
    {
        return detail::code(::cede_future_store(f_.get(), stream, &values, symbol));
    }
    void store(void *stream, const ::cede_future_array &values, std::int64_t symbol)
    {
        detail::check(try_store(stream, values, symbol));
    }
    [[nodiscard]] std::error_code try_store_placed(void *stream,
                                                   const ::cede_future_array &values) noexcept
    {
        return detail::code(::cede_future_store_placed(f_.get(), stream, &values));
    }
    void store_placed(void *stream, const ::cede_future_array &values)
    {
        detail::check(try_store_placed(stream, values));
    }
    [[nodiscard]] std::error_code try_place(void *stream, std::int64_t symbol, unsigned n) noexcept
    {
        return detail::code(::cede_future_place(f_.get(), stream, symbol, n));
    }
    void place(void *stream, std::int64_t symbol, unsigned n)
    {
        detail::check(try_place(stream, symbol, n));
    }
    [[nodiscard]] std::error_code try_resolve(void *stream,
                                              const ::cede_future_array &inputs) noexcept
    {
        return detail::code(::cede_future_resolve(f_.get(), stream, &inputs));
    }
    void resolve(void *stream, const ::cede_future_array &inputs)
    {
        detail::check(try_resolve(stream, inputs));
    }
    ::cede_future_statistics statistics() const
    {
        return detail::statistics<::cede_future_statistics>(::cede_future_get_statistics, f_.get());
    }
    ::cede_futures *handle() const noexcept
    {
        return f_.get();
    }

  private:
    explicit futures(::cede_futures *f) noexcept : f_(f)
    {
    }
    std::unique_ptr<::cede_futures, detail::closer_here<::cede_futures, ::cede_future_close>> f_;
};

} // namespace cede

#endif
