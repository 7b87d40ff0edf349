/* What tests of libcede share: handles that are open, their statistics, threads and waits, the
 * stand-ins for drivers. */
#ifndef CEDE_TESTS_LIBCEDE_FIXTURE_H
#define CEDE_TESTS_LIBCEDE_FIXTURE_H

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.h"
#include "cede/lease.h"

#define S INT64_C(1000000) /* in microseconds */

#define OK(call) assert_int_equal(call, 0)
#define UNTIL(what)                                                                                \
    while (!(what))                                                                                \
    usleep(100)

/* EACH(m, x, a, b) is m(x, a) m(x, b), for up to 27 arguments. */
#define EACH(m, x, ...)         __VA_OPT__(EACH_27(EACH_NEXT(m, x, __VA_ARGS__)))
#define EACH_27(...)            EACH_9(EACH_9(EACH_9(__VA_ARGS__)))
#define EACH_9(...)             EACH_3(EACH_3(EACH_3(__VA_ARGS__)))
#define EACH_3(...)             __VA_ARGS__
#define EACH_NEXT(m, x, a, ...) m(x, a) __VA_OPT__(EACH_AGAIN EACH_END(m, x, __VA_ARGS__))
#define EACH_AGAIN()            EACH_NEXT
#define EACH_END                ()

/* CONFIG(pool, .devices = 2) has these settings and else the defaults, of whatever has some;
 * OPEN(pool, .devices = 2) is a handle with them, of the kinds below. */
#define CONFIG(kind, ...)                                                                          \
    ({                                                                                             \
        struct cede_##kind##_config config_;                                                       \
        cede_##kind##_defaults(&config_);                                                          \
        EACH(CONFIG_SET, config_, __VA_ARGS__)                                                     \
        config_;                                                                                   \
    })
#define CONFIG_SET(config, setting) config setting;
#define OPEN(kind, ...)                                                                            \
    ({                                                                                             \
        const struct cede_##kind##_config open_ = CONFIG(kind, ##__VA_ARGS__);                     \
        struct handle_of_##kind *handle_;                                                          \
        OK(cede_##kind##_open(&open_, &handle_));                                                  \
        handle_;                                                                                   \
    })
#define handle_of_pool   cede_pool
#define handle_of_memory cede_memory
#define handle_of_queue  cede_queue
#define handle_of_future cede_futures
#define handle_of_step   cede_step_loop

/* HAS(stats, (active, 1), (waiting, 0)): these members have these values. */
#define HAS(of, ...)                                                                               \
    do {                                                                                           \
        const __auto_type has_ = of;                                                               \
        EACH(HAS_NEXT, has_, __VA_ARGS__)                                                          \
    } while (0)
#define HAS_NEXT(of, pair) HAS_PAIR(of, HAS_BARE pair)
#define HAS_BARE(...)      __VA_ARGS__
#define HAS_PAIR(...)      HAS_MEMBER(__VA_ARGS__)
#define HAS_MEMBER(of, member, value)                                                              \
    if (of.member != (typeof(of.member + 0))(value))                                               \
        fail_msg("line %d: " #member " is %lld, not " #value, __LINE__, (long long)of.member);

/* STATS(pool, p, 0): those of a handle, and of a device of it. */
#define STATS(kind, ...)                                                                           \
    ({                                                                                             \
        struct cede_##kind##_statistics stats_;                                                    \
        OK(cede_##kind##_get_statistics(__VA_ARGS__, &stats_, sizeof(stats_)));                    \
        stats_;                                                                                    \
    })

static inline pthread_t start(void *(*f)(void *), const void *arg)
{
    pthread_t t;
    OK(pthread_create(&t, NULL, f, (void *)(uintptr_t)arg));
    return t;
}

static inline intptr_t result_of(pthread_t t)
{
    void *r;
    OK(pthread_join(t, &r));
    return (intptr_t)r;
}

/* Thread i gets i + 1 as its argument. */
static inline void start_threads(pthread_t *t, unsigned n, void *(*f)(void *))
{
    for (uintptr_t i = 0; i < n; i++)
        t[i] = start(f, (void *)(i + 1));
}

/* How many of them returned `result`. */
static inline unsigned join_threads(const pthread_t *t, unsigned n, intptr_t result)
{
    unsigned equal = 0;
    for (unsigned i = 0; i < n; i++)
        equal += result_of(t[i]) == result;
    return equal;
}

static inline void child_ends_well(pid_t child)
{
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- pools ----------------------------------------------------------------------------------- */

static inline struct cede_pool_config no_gpu(unsigned devices, unsigned streams)
{
    return CONFIG(pool, .flags = CEDE_POOL_NO_GPU, .devices = devices,
                  .max_concurrent_streams = streams);
}

static inline struct cede_pool_statistics pool_stats(struct cede_pool *p, int device)
{
    return STATS(pool, p, device);
}

static inline void until_waiting(struct cede_pool *p, unsigned n)
{
    UNTIL(pool_stats(p, 0).waiting == n);
}

/* What a handle has counted, as in "2 begun, 1 ended, 1 due, 0 met". */
static inline const char *reported(cede_handle *c)
{
    static char text[96];
    struct cede_statistics s;
    OK(cede_get_statistics(c, &s, sizeof(s)));
    snprintf(text, sizeof(text), "%d begun, %d ended, %d due, %d met", (int)s.begun, (int)s.ended,
             (int)s.with_deadline, (int)s.deadlines_met);
    return text;
}

/* What a stand-in for a vendor's library exports. The library stays open. */
static inline void *find(const char *library, const char *symbol)
{
    void *lib = dlopen(library, RTLD_NOW), *p = lib ? dlsym(lib, symbol) : NULL;
    assert_non_null(p);
    return p;
}

#endif
