/* Small things every part needs: error text, scope-bound clean-up, clamping.
 * Nothing here knows about GPUs, jobs or sockets. */
#ifndef CEDE_LIB_UTIL_H
#define CEDE_LIB_UTIL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define NSEC_PER_USEC 1000ULL
#define NSEC_PER_MSEC 1000000ULL
#define NSEC_PER_SEC  1000000000ULL

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* What went wrong, on what, and what to do about it: one sentence for a person, no newline.
 * Every function that takes one accepts NULL and leaves it alone on success. */
struct error {
    char text[512];
};

/* Writes the text (if err is not NULL) and returns code, a negative errno, so that a caller can
 * say `return error_set(err, -ESRCH, "...")`. */
int error_set(struct error *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
#ifdef __clang_analyzer__ /* it looks into no other file: what is returned is negative */
#define error_set(err, code, ...)                                                                  \
    ({                                                                                             \
        int error_set_ = (code);                                                                   \
        snprintf((err)->text, 0, __VA_ARGS__);                                                     \
        error_set_ < 0 ? error_set_ : -1;                                                          \
    })
#endif

/* Puts "context: " in front of the text that is already there. Returns code. */
int error_prefix(struct error *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* _cleanup_(free_p) char *s = ...;  the helper runs when the variable goes out of scope. */
#define _cleanup_(f) __attribute__((cleanup(f)))

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

/* Takes the value out of an owner that _cleanup_ would release. */
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

/* CLOCK_MONOTONIC in nanoseconds. Never called from src/sched. */
uint64_t monotonic_ns(void);
/* Processor time of the calling thread, ever. */
uint64_t thread_cpu_ns(void);

/* Strict decimal parse of the whole string. 0, or -EINVAL / -ERANGE. */
int parse_u64(const char *s, uint64_t lo, uint64_t hi, uint64_t *out);
int parse_double(const char *s, double lo, double hi, double *out);
/* "30%" or "30": at most 100. */
int parse_percent(const char *s, uint64_t lo, uint64_t *out);
/* A time such as "2ms", "500us", "0.01s" or "0", rounded to whole microseconds. 0, -EINVAL (what is
 * no time, or has no unit) or -ERANGE. */
int parse_duration_us(const char *s, uint64_t max_us, uint64_t *out);

/* Bytes: a whole number, and K, M, G or T for powers of 1024. 0, -EINVAL or -ERANGE. */
int parse_bytes(const char *s, uint64_t max, uint64_t *out);

/* One more entry of a list for people: "a, b, c"; cut where buf ends. */
void list_add(char *buf, size_t size, const char *entry);

/* Whole-buffer I/O that survives EINTR and short transfers. 0 or -errno (-EPIPE on early end). */
int write_full(int fd, const void *buf, size_t n);
int read_full(int fd, void *buf, size_t n);

#endif
