/* Rows of calls with bad input, of test_bad_input*.c. A row is one call with its result. A call
 * that fails leaves a text that begins with its name; one that succeeds leaves none. */
#ifndef CEDE_TESTS_LIBCEDE_BAD_INPUT_H
#define CEDE_TESTS_LIBCEDE_BAD_INPUT_H

#include <limits.h>
#include <math.h>

#include "base/util.h"
#include "fixture.h"

static inline struct cede_pool *open_one(void)
{
    return OPEN(pool, .flags = CEDE_POOL_NO_GPU, .devices = 1, .max_concurrent_streams = 1);
}

void row_seen(const char *name);
void row(const char *name, const char *arguments, long long expected, long long result, int line);

#define ROW(expected, f, ...) row(#f, #__VA_ARGS__, expected, f(__VA_ARGS__), __LINE__)
/* Rows of one function, each with the result and the arguments. */
#define ROWS(f, ...)               EACH(ROWS_NEXT, f, __VA_ARGS__)
#define ROWS_NEXT(f, row)          ROWS_CALL(f, ROWS_BARE row);
#define ROWS_BARE(...)             __VA_ARGS__
#define ROWS_CALL(...)             ROWS_ROW(__VA_ARGS__)
#define ROWS_ROW(f, expected, ...) ROW(expected, f, __VA_ARGS__)
/* Functions that cannot fail: that they return is all there is to see. */
#define NO_TEXT(f, ...) (row_seen(#f), f(__VA_ARGS__))

/* Rows with `bad` for the settings: `good`, each time with one that is out of range, by any of
 * these values. `config` is their type. */
struct bad_setting {
    size_t at, size, n;
    const void *values;
};
#define BAD(field, ...)                                                                            \
    {                                                                                              \
        offsetof(config, field), sizeof(((config *)0)->field),                                     \
            ARRAY_SIZE(((typeof(((config *)0)->field)[]){__VA_ARGS__})),                           \
            (typeof(((config *)0)->field)[])                                                       \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define REFUSED(good, row, ...)                                                                    \
    do {                                                                                           \
        const struct bad_setting settings[] = {__VA_ARGS__};                                       \
        for (const struct bad_setting *s_ = settings; s_ < settings + ARRAY_SIZE(settings); s_++)  \
            for (size_t k = 0; k < s_->n; k++) {                                                   \
                typeof(good) bad = good;                                                           \
                memcpy((char *)&bad + s_->at, (const char *)s_->values + k * s_->size, s_->size);  \
                row;                                                                               \
            }                                                                                      \
    } while (0)

/* Rows with other sizes than that of the struct, which is the last argument but one. */
#define SIZES(f, out, ...)                                                                         \
    do {                                                                                           \
        ROW(-EINVAL, f, __VA_ARGS__, out, 0);                                                      \
        ROW(-EINVAL, f, __VA_ARGS__, out, sizeof(*(out)) - 1);                                     \
        ROW(-EINVAL, f, __VA_ARGS__, out, SIZE_MAX);                                               \
        ROW(-EINVAL, f, __VA_ARGS__, NULL, sizeof(*(out)));                                        \
        ROW(0, f, __VA_ARGS__, out, sizeof(*(out)));                                               \
    } while (0)

#endif
