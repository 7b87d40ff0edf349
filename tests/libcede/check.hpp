/* For the tests of the C++ headers. */
#ifndef CEDE_TESTS_LIBCEDE_CHECK_HPP
#define CEDE_TESTS_LIBCEDE_CHECK_HPP

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "cede/error.hpp"

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                           \
            std::abort();                                                                          \
        }                                                                                          \
    } while (0)

template <class T>
constexpr bool move_only =
    std::is_nothrow_move_constructible_v<T> &&std::is_nothrow_move_assignable_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;

/* Runs f, which has to throw an error with this code and these words. */
template <class F> static void fails(std::errc code, const char *words, F &&f)
{
    try {
        f();
    } catch (const cede::error &e) {
        if (e.code() != code || !std::strstr(e.what(), words))
            std::fprintf(stderr, "'%s' has not '%s', or is not %d\n", e.what(), words, int(code));
        CHECK(e.code() == code && std::strstr(e.what(), words));
        CHECK(!std::strstr(e.what(), ": Invalid argument")); /* the text says more */
        return;
    }
    std::fprintf(stderr, "nothing was thrown; wanted: %s\n", words);
    std::abort();
}

/* Runs f, which has to throw just this. */
template <class E, class F> static void throws(const E &what, F &&f)
{
    try {
        f();
    } catch (const E &e) {
        CHECK(e == what);
        return;
    }
    std::fprintf(stderr, "nothing was thrown\n");
    std::abort();
}

#endif
