/* A cache of graphs on the stand-in for libcuda, in virtual time, a step that counts, and main().
 */
#ifndef CEDE_TESTS_LIBCEDE_GRAPH_FIXTURE_H
#define CEDE_TESTS_LIBCEDE_GRAPH_FIXTURE_H

#include "bench/graph_add.h"
#include "bench/graph_rig.h"
#include "cede/graph.h"
#include "fake_gpu.h"
#include "fixture.h"
#include "libcede/clock.h"

#define FREE_BYTES (1 << 20)
#define GOES_WELL  1 /* in a script */

struct step {
    struct cede_graph *g;
    unsigned word, each; /* adds 1 to it, with `each` kernels for each row */
    unsigned calls, last_n;
    int error, inner; /* to return; what a call of the cache from here returned */
    bool calls_cache, changes, uses_pool;
    const int *script; /* NULL, or errors that the calls return one after the other, up to a 0 */
};

/* The cache of a test, with its configuration, step and stream. set_up() makes the stream, and
 * tear_down() closes all; everything has been given back then. */
static struct fixture {
    struct cede_graph_config c;
    struct step s;
    void *stream;
    struct cede_graph *g;
} f;

static struct fake_cuda *const gpu = &fake_cuda;
static struct rig rig;
static atomic_uint allocations;       /* by libcede and the test */
static atomic_uint_least64_t tick_ns; /* that each look at the clock takes */
static atomic_uint_least64_t now_ns;

uint64_t cede_clock_now_ns(void)
{
    uint64_t tick = tick_ns;
    return atomic_fetch_add(&now_ns, tick) + tick;
}

/* Calls of malloc() and the like from libcede; see the tests' link arguments. */
#define COUNTED(name, parameters, ...)                                                             \
    void *__real_##name parameters;                                                                \
    void *__wrap_##name parameters;                                                                \
    void *__wrap_##name parameters                                                                 \
    {                                                                                              \
        allocations++;                                                                             \
        return __real_##name(__VA_ARGS__);                                                         \
    }

COUNTED(malloc, (size_t n), n)
COUNTED(calloc, (size_t n, size_t size), n, size)

static inline int step(void *arg, void *stream, unsigned n)
{
    struct step *s = arg;
    rig_pointer p;
    int r = s->uses_pool ? rig.cu.mem_alloc_async(&p, 1, stream) : 0;
    s->calls++;
    s->last_n = n;
    if (s->script && *s->script && *s->script++ != GOES_WELL)
        return s->script[-1];
    if (s->calls_cache)
        s->inner = cede_graph_launch(s->g, stream, 1, NULL);
    if (s->changes)
        cede_graph_changed(s->g);
    s->changes = false;
    for (unsigned i = 1; i < n * s->each && !r; i++)
        r = rig_add(&rig, stream, RIG_WORDS - 1, 0);
    return s->error ?: r ?: rig_add(&rig, stream, s->word, 1);
}

static void close_cache(void)
{
    cede_graph_close(f.g);
    f.g = NULL;
}

static inline void open_cache(unsigned max_batch, unsigned warmups)
{
    f.c.max_batch = max_batch;
    f.c.warmups = warmups;
    OK(cede_graph_open(&f.c, step, &f.s, &f.g));
    f.s.g = f.g;
}

/* Another one begins anew, with another word to count in. */
static inline void reopen_cache(unsigned word)
{
    close_cache();
    f.s.calls = 0;
    f.s.word = word;
    open_cache(f.c.max_batch, f.c.warmups);
}

static inline struct cede_graph_statistics statistics(void)
{
    return STATS(graph, f.g);
}

static inline struct cede_graph_bucket bucket(unsigned n)
{
    struct cede_graph_bucket b;
    OK(cede_graph_get_bucket(f.g, n, &b, sizeof(b)));
    return b;
}

/* Succeeds. The bucket that was taken; 0: it ran eagerly. */
static inline unsigned launch(unsigned n)
{
    unsigned took = 99;
    OK(cede_graph_launch(f.g, f.stream, n, &took));
    return took;
}

/* Launches batches of these sizes, and says what was taken for each in the same form: "1 2 0". */
static inline const char *launches(const char *sizes)
{
    static char took[128];
    char *end;
    took[0] = '\0';
    for (unsigned long n; (n = strtoul(sizes, &end, 10)); sizes = end) {
        size_t used = strlen(took);
        snprintf(took + used, sizeof(took) - used, "%s%u", used ? " " : "", launch((unsigned)n));
    }
    return took;
}

static inline int set_up(void **state)
{
    static const uint32_t zeros[RIG_WORDS];
    gpu->fail_instantiate = gpu->fail_upload = gpu->fail_graph_launch = gpu->fail_update = 0;
    gpu->free_bytes = FREE_BYTES;
    gpu->node_bytes = 0;
    gpu->lazy = gpu->busy = 0;
    tick_ns = 0;
    f = (struct fixture){.s = {.each = 1}};
    cede_graph_defaults(&f.c);
    return rig.cu.copy_in(rig.words, zeros, sizeof(zeros))
               ?: rig.cu.stream_create(&f.stream, RIG_NON_BLOCKING);
}

static inline int tear_down(void **state)
{
    close_cache();
    if (rig.cu.stream_destroy(f.stream) || gpu->execs || gpu->graphs || gpu->bad)
        return -1;
    return gpu->free_bytes == FREE_BYTES ? 0 : -1;
}

int main(void)
{
    const char *missing = rig_open(&rig, graph_add_ptx);
    if (missing) {
        print_error("%s\n", missing);
        return 1;
    }
    int failed = test_run(NULL, NULL);
    rig_close(&rig);
    return failed || gpu->allocated || gpu->modules || gpu->contexts || gpu->pushed;
}

#endif
