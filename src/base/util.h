/* Helpers for every room: error texts, clean-up at the end of a scope, clocks, parsers, I/O. */
#ifndef CEDE_BASE_UTIL_H
#define CEDE_BASE_UTIL_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
/* for_each (x, v, n): x points to each of the first n elements of v. v may be NULL if n is 0. */
#define for_each(x, v, n) for (__typeof__((v)[0]) *x = (v); (size_t)(x - (v)) < (size_t)(n); x++)

#define NSEC_PER_USEC 1000ULL
#define NSEC_PER_MSEC 1000000ULL
#define NSEC_PER_SEC  1000000000ULL

#define CEDE_API                                                                                   \
    __attribute__((visibility("default"))) /* exported by a library; others are hidden */

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* An error message: one sentence on what went wrong, on what, and what to do, without a newline.
 * Every function that takes one accepts NULL and leaves it alone on success. */
struct error {
    char text[512];
};

/* Writes the text and returns code, a negative errno: `return error_set(err, -ESRCH, "...")`. */
int error_set(struct error *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
#ifdef __clang_analyzer__ /* it does not see util.c, so this shows that < 0 is returned */
#define error_set(err, code, ...)                                                                  \
    ({                                                                                             \
        int error_set_ = (code);                                                                   \
        snprintf((err)->text, 0, __VA_ARGS__);                                                     \
        error_set_ < 0 ? error_set_ : -1;                                                          \
    })
#endif

/* Puts "context: " before the text that err has. Returns code. */
int error_prefix(struct error *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* In `_cleanup_(free_p) char *s = ...;` free_p() runs when the variable goes out of scope. */
#define _cleanup_(f) __attribute__((cleanup(f), unused))

static inline void free_p(void *p)
{
    free(*(void **)p);
}

static inline void close_p(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void fclose_p(FILE **f)
{
    if (*f)
        fclose(*f);
}

#define _cleanup_free_   _cleanup_(free_p)
#define _cleanup_close_  _cleanup_(close_p)
#define _cleanup_fclose_ _cleanup_(fclose_p)

/* Takes the descriptor out of a variable that _cleanup_close_ would close. */
#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int take_fd_ = (fd);                                                                       \
        (fd) = -1;                                                                                 \
        take_fd_;                                                                                  \
    })

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t clamp_u64(uint64_t v, uint64_t lo, uint64_t hi)
{
    return min_u64(max_u64(v, lo), hi);
}

/* Whether a call failed, with this -errno, for a reason that says nothing about the object and may
 * pass: it was interrupted, or memory or descriptors ran out. */
static inline bool error_may_pass(int code)
{
    return code == -EINTR || code == -ENOMEM || code == -EMFILE || code == -ENFILE;
}

/* For qsort() and bsearch() of int32_t, or of structs that begin with one. */
static inline int compare_int32(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* The same of uint64_t. */
static inline int compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A clock in nanoseconds, and CLOCK_MONOTONIC. Never called from src/plan. */
uint64_t read_clock_ns(clockid_t clock);
uint64_t monotonic_ns(void);
/* Processor time of the calling thread since it began. */
uint64_t thread_cpu_ns(void);

/* Makes room for one more element of `size` bytes in an array of n, whose address is in *v. 0 or
 * -ENOMEM. */
int list_grow(void *v, size_t n, size_t *cap, size_t size);

/* Parse the whole string as a decimal number. 0, -EINVAL or -ERANGE. */
int parse_u64(const char *s, uint64_t lo, uint64_t hi, uint64_t *out);
int parse_double(const char *s, double lo, double hi, double *out);
/* Parses "30%" or "30", at most 100. */
int parse_percent(const char *s, uint64_t lo, uint64_t *out);
/* Parses a time such as "2ms", "500us", "0.01s" or "0", rounded to whole microseconds. 0, -EINVAL
 * (no time, or no unit) or -ERANGE. */
int parse_duration_us(const char *s, uint64_t max_us, uint64_t *out);

/* Parses bytes: a whole number, with K, M, G or T for powers of 1024. 0, -EINVAL or -ERANGE. */
int parse_bytes(const char *s, uint64_t max, uint64_t *out);

/* Appends an entry to a list for people, "a, b, c", which is cut where buf ends. */
void list_add(char *buf, size_t size, const char *entry);

/* Write or read the whole buffer, despite EINTR and short transfers. 0 or -errno; -EPIPE: the file
 * ended early. */
int write_full(int fd, const void *buf, size_t n);
int read_full(int fd, void *buf, size_t n);
/* recv() of a SEQPACKET socket, despite EINTR, and past the ECONNRESET that comes once, before the
 * last messages of a peer that has closed. */
ssize_t recv_last(int fd, void *buf, size_t n, int flags);

#endif
