/* See util.h. */
#include "base/util.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

int(error_set)(struct error *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof(err->text), fmt, ap);
        va_end(ap);
    }
    return code;
}

int error_prefix(struct error *err, int code, const char *fmt, ...)
{
    if (err) {
        struct error old = *err;
        va_list ap;
        va_start(ap, fmt);
        int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < sizeof(err->text))
            snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %.*s",
                     (int)(sizeof(err->text) - (size_t)n), old.text);
    }
    return code;
}

uint64_t read_clock_ns(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

uint64_t monotonic_ns(void)
{
    return read_clock_ns(CLOCK_MONOTONIC);
}

uint64_t thread_cpu_ns(void)
{
    return read_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

int list_grow(void *v, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return 0;
    const size_t cap2 = max_u64(max_u64(*cap * 2, n + 1), 8);
    void *p = reallocarray(*(void **)v, cap2, size);
    if (!p)
        return -ENOMEM;
    *(void **)v = p;
    *cap = cap2;
    return 0;
}

int parse_u64(const char *s, uint64_t lo, uint64_t hi, uint64_t *out)
{
    if (!s || *s < '0' || *s > '9')
        return -EINVAL;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (*end)
        return -EINVAL;
    if (errno || v < lo || v > hi)
        return -ERANGE;
    *out = v;
    return 0;
}

int parse_percent(const char *s, uint64_t lo, uint64_t *out)
{
    char number[8];
    size_t n = strlen(s);
    n -= n > 1 && s[n - 1] == '%';
    if ((size_t)snprintf(number, sizeof(number), "%.*s", (int)min_u64(n, INT32_MAX), s) >=
        sizeof(number))
        return -EINVAL;
    return parse_u64(number, lo, 100, out);
}

int parse_double(const char *s, double lo, double hi, double *out)
{
    if (!s || !*s || strchr(" \t\n\v\f\r", *s))
        return -EINVAL;
    char *end;
    errno = 0;
    double v = strtod(s, &end);
    if (*end || isnan(v))
        return -EINVAL;
    if (errno || v < lo || v > hi)
        return -ERANGE;
    *out = v;
    return 0;
}

int parse_duration_us(const char *s, uint64_t max_us, uint64_t *out)
{
    static const struct {
        const char *name;
        double us;
    } units[] = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"", 1}};
    char number[32];
    double v;
    size_t n = s ? strspn(s, "0123456789.") : 0, k = 0;
    if (!n || n >= sizeof(number))
        return -EINVAL;
    memcpy(number, s, n);
    number[n] = '\0';
    while (k < ARRAY_SIZE(units) && strcmp(s + n, units[k].name) != 0)
        k++;
    int r = k < ARRAY_SIZE(units) ? parse_double(number, 0, 1e15, &v) : -EINVAL;
    if (r < 0)
        return r;
    if (!units[k].name[0] && v > 0)
        return -EINVAL;
    if (v * units[k].us > (double)max_us)
        return -ERANGE;
    *out = (uint64_t)(v * units[k].us + 0.5);
    return 0;
}

int parse_bytes(const char *s, uint64_t max, uint64_t *out)
{
    static const char units[] = "KMGT";
    char number[24];
    uint64_t v;
    size_t n = s ? strspn(s, "0123456789") : 0;
    const char *unit = n && s[n] ? strchr(units, s[n]) : NULL;
    if (!n || n >= sizeof(number) || (s[n] && (!unit || s[n + 1])))
        return -EINVAL;
    memcpy(number, s, n);
    number[n] = '\0';
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    int r = parse_u64(number, 0, max >> shift, &v);
    if (r == 0)
        *out = v << shift;
    return r;
}

void list_add(char *buf, size_t size, const char *entry)
{
    size_t n = strlen(buf);
    snprintf(buf + n, size - n, "%s%s", n ? ", " : "", entry);
}

int write_full(int fd, const void *buf, size_t n)
{
    const char *p = buf;
    while (n) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -errno;
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

int read_full(int fd, void *buf, size_t n)
{
    char *p = buf;
    while (n) {
        ssize_t r = read(fd, p, n);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return r < 0 ? -errno : -EPIPE;
        p += r;
        n -= (size_t)r;
    }
    return 0;
}

ssize_t recv_last(int fd, void *buf, size_t n, int flags)
{
    ssize_t got;
    bool reset = false;
    while ((got = recv(fd, buf, n, flags)) < 0 &&
           (errno == EINTR || (errno == ECONNRESET && !reset)))
        reset |= errno == ECONNRESET;
    return got;
}
