/* libcede for C++17: errors, devices and times that the other headers use. See cede/cede.hpp. */
#ifndef CEDE_ERROR_HPP
#define CEDE_ERROR_HPP

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include <unistd.h>

#include "cede/cede.h"
#include "cede/lease.h"

namespace cede
{

using std::chrono::microseconds;

enum class job_class { latency = CEDE_LATENCY, normal = CEDE_NORMAL, batch = CEDE_BATCH };

inline constexpr ::cede_stream whole_job = ~::cede_stream{0};
inline constexpr int any_device = -1;
/* An argument for this device and no other; a plain number is a preference. */
constexpr int only_device(int device)
{
    return CEDE_ONLY_DEVICE(device);
}
/* How long a call may wait: 0 or more, or one of these; see cede_timeout. */
inline constexpr microseconds timeout_now{CEDE_TIMEOUT_NOW};
inline constexpr microseconds timeout_default{CEDE_TIMEOUT_DEFAULT};
inline constexpr microseconds timeout_forever{CEDE_TIMEOUT_FOREVER};

/* what(): cede_error_text(), which names the call; "" becomes the text of the errno value. */
class error : public std::system_error
{
  public:
    error(int result, const std::string &text)
        : std::system_error(std::error_code(-result, std::generic_category())),
          text_(text.empty() ? code().message() : text)
    {
    }
    const char *what() const noexcept override
    {
        return text_.what();
    }

  private:
    std::runtime_error text_; /* copies of it do not throw */
};

namespace detail
{

inline std::error_code code(int result) noexcept
{
    return {result < 0 ? -result : 0, std::generic_category()};
}

inline void check(int result)
{
    if (result < 0)
        throw error(result, ::cede_error_text());
}

inline void check(std::error_code c)
{
    check(-c.value());
}

/* Whether a call failed; gives the reason to functions that return an optional. */
inline bool failed(int result, std::error_code *why) noexcept
{
    if (why)
        *why = code(result);
    return result < 0;
}

inline std::uint64_t span_us(microseconds t) noexcept
{
    return t.count() > 0 ? static_cast<std::uint64_t>(t.count()) : 0;
}

inline std::uint64_t deadline_us(microseconds t) noexcept
{
    return t.count() < 0 ? 1 : span_us(t);
}

/* A failure's errno value, below 0; -EIO where it has none. */
inline int errno_of(const std::error_code &c) noexcept
{
    bool is_errno =
        c.category() == std::generic_category() || c.category() == std::system_category();
    return is_errno && c.value() > 0 && c.value() < 4096 ? -c.value() : -EIO;
}

/* What libcede makes of a failure that a function of the program returned. */
inline int returned(int r) noexcept
{
    const bool ours =
        r == -EAGAIN || r == -EBUSY || r == -ECANCELED || r == -EDEADLK || r == -ETIMEDOUT;
    return r > 0 || r <= -4096 || ours ? -EIO : r;
}

/* The negative errno value of the exception that is being handled. */
inline int current_errno() noexcept
{
    try {
        throw;
    } catch (const std::system_error &e) {
        return errno_of(e.code());
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    } catch (...) {
        return -EIO;
    }
}

/* Calls a function of the program that returns nothing, an int, a driver's enum such as CUresult,
 * or a std::error_code. */
template <class F, class... A> int result_of(F &f, A... args)
{
    using R = std::invoke_result_t<F &, A...>;
    if constexpr (std::is_void_v<R>) {
        f(args...);
        return 0;
    } else if constexpr (std::is_same_v<R, std::error_code>) {
        std::error_code c = f(args...);
        return c ? errno_of(c) : 0;
    } else {
        static_assert(std::is_same_v<R, int> || std::is_enum_v<R>,
                      "return nothing, an int, a driver's enum or a std::error_code");
        return static_cast<int>(f(args...));
    }
}

/* Reads the statistics S by one of libcede's functions for it. */
template <class S, class F, class... A> S statistics(F get, A... of)
{
    S s;
    check(get(of..., &s, sizeof(s)));
    return s;
}

template <class T, auto Close> struct closer {
    void operator()(T *p) const noexcept
    {
        static_cast<void>(Close(p));
    }
};

/* The process that made an object. A forked child must not use what its parent opened, so the
 * destructor leaves that alone. */
class process
{
  public:
    bool here() const noexcept
    {
        return pid_ == ::getpid();
    }

  private:
    ::pid_t pid_ = ::getpid();
};

template <class T, auto Close> struct closer_here : process {
    void operator()(T *p) const noexcept
    {
        if (here())
            static_cast<void>(Close(p));
    }
};

/* Owner of a struct of libcede that is released once, and is empty if its opaque[0] is 0. */
template <class T, auto Release> class held
{
  public:
    held() noexcept = default; /* empty */
    held(held &&other) noexcept : raw_(std::exchange(other.raw_, T{}))
    {
    }
    held &operator=(held &&other) noexcept
    {
        if (this != &other) {
            drop();
            raw_ = std::exchange(other.raw_, T{});
        }
        return *this;
    }
    ~held()
    {
        drop();
    }
    /* EINVAL: it is empty. ESTALE: its pool or memory is closed. */
    [[nodiscard]] std::error_code try_release() noexcept
    {
        T raw = std::exchange(raw_, T{});
        return code(Release(&raw));
    }
    void release()
    {
        check(try_release());
    }
    explicit operator bool() const noexcept
    {
        return raw_.opaque[0] != 0;
    }
    const T *handle() const noexcept /* for settings; valid while this stays in place */
    {
        return &raw_;
    }

  protected:
    void drop() noexcept /* leaves cede_error_text() as it is if it is empty */
    {
        if (*this)
            static_cast<void>(try_release());
    }
    T raw_{};
};

/* Surrounds a call of libcede that calls functions of the program in the same thread, so that none
 * of their exceptions crosses C code. The first one is kept. */
class calls
{
  public:
    calls() noexcept : outer_(std::exchange(innermost, this))
    {
    }
    calls(const calls &) = delete;
    calls &operator=(const calls &) = delete;
    ~calls()
    {
        innermost = outer_;
    }
    const std::exception_ptr &thrown() const noexcept
    {
        return thrown_;
    }
    /* Throws the exception that was kept. */
    void check() const
    {
        if (thrown_)
            std::rethrow_exception(thrown_);
    }
    /* Calls f in a function that C calls: its result, or the errno value of its exception. */
    template <class F> static int run(F &&f) noexcept
    {
        try {
            return f();
        } catch (...) {
            int r = current_errno();
            if (innermost && !innermost->thrown_) {
                innermost->thrown_ = std::current_exception();
                innermost->result_ = r;
            }
            return r;
        }
    }
    int result() const noexcept /* the kept exception's errno value; 0: nothing was thrown */
    {
        return result_;
    }
    static void forget() noexcept
    {
        if (innermost) {
            innermost->thrown_ = nullptr;
            innermost->result_ = 0;
        }
    }

  private:
    inline static thread_local calls *innermost = nullptr;
    calls *outer_;
    std::exception_ptr thrown_;
    int result_ = 0;
};

} // namespace detail

} // namespace cede

#endif
