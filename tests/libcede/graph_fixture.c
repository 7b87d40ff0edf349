/* See graph_fixture.h. */
#include "graph_fixture.h"

struct rig rig;
atomic_uint allocations;
atomic_uint_least64_t tick_ns;
static atomic_uint_least64_t now_ns;

uint64_t cede_clock_now_ns(void)
{
    uint64_t tick = tick_ns;
    return atomic_fetch_add(&now_ns, tick) + tick;
}

/* Calls of malloc() and the like from libcede; see the tests' link arguments. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_malloc(size_t n)
{
    allocations++;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    allocations++;
    return __real_calloc(n, size);
}

int step(void *arg, void *stream, unsigned n)
{
    struct step *s = arg;
    rig_pointer p;
    int r = s->uses_pool ? rig.cu.mem_alloc_async(&p, 1, stream) : 0;
    s->calls++;
    s->last_n = n;
    if (s->script && *s->script && *s->script++ != GOES_WELL)
        return s->script[-1];
    if (s->calls_cache)
        s->inner = cede_graph_launch(s->g, 1, NULL);
    if (s->changes)
        cede_graph_changed(s->g);
    s->changes = false;
    for (unsigned i = 1; i < n * s->each && !r; i++)
        r = rig_add(&rig, stream, RIG_WORDS - 1, 0);
    return s->error ?: r ?: rig_add(&rig, stream, s->word, 1);
}

struct cede_graph_config configured(unsigned max_batch, unsigned warmups)
{
    struct cede_graph_config c;
    cede_graph_defaults(&c);
    c.max_batch = max_batch;
    c.warmups = warmups;
    return c;
}

void *make_stream(void)
{
    void *stream = NULL;
    assert_int_equal(rig.cu.stream_create(&stream, RIG_NON_BLOCKING), 0);
    return stream;
}

struct cede_graph *open_cache(const struct cede_graph_config *c, void *stream, struct step *s)
{
    struct cede_graph *g = NULL;
    assert_int_equal(cede_graph_open(c, stream, step, s, &g), 0);
    s->g = g;
    return g;
}

/* With the stream, and everything has been given back. */
void close_cache(struct cede_graph *g, void *stream)
{
    cede_graph_close(g);
    assert_int_equal(rig.cu.stream_destroy(stream), 0);
    assert_int_equal(gpu->execs, 0);
    assert_int_equal(gpu->graphs, 0);
    assert_int_equal(gpu->bad, 0);
    assert_int_equal(gpu->free_bytes, FREE_BYTES);
}

struct cede_graph_statistics statistics(struct cede_graph *g)
{
    struct cede_graph_statistics s;
    assert_int_equal(cede_graph_get_statistics(g, &s, sizeof(s)), 0);
    return s;
}

struct cede_graph_bucket bucket(struct cede_graph *g, unsigned n)
{
    struct cede_graph_bucket b;
    assert_int_equal(cede_graph_get_bucket(g, n, &b, sizeof(b)), 0);
    return b;
}

/* Succeeds. The bucket that was taken; 0: it ran eagerly. */
unsigned launch(struct cede_graph *g, unsigned n)
{
    unsigned took = 99;
    assert_int_equal(cede_graph_launch(g, n, &took), 0);
    return took;
}

int set_up(void **state)
{
    static const uint32_t zeros[RIG_WORDS];
    gpu->fail_instantiate = gpu->fail_upload = gpu->fail_graph_launch = gpu->fail_update = 0;
    gpu->free_bytes = FREE_BYTES;
    gpu->node_bytes = 0;
    gpu->lazy = gpu->busy = 0;
    tick_ns = 0;
    return rig.cu.copy_in(rig.words, zeros, sizeof(zeros));
}

int run_graph_tests(const struct CMUnitTest *tests, size_t n)
{
    const char *missing = rig_open(&rig, graph_add_ptx);
    if (missing) {
        print_error("%s\n", missing);
        return 1;
    }
    int failed = _cmocka_run_group_tests("graphs", tests, n, NULL, NULL);
    rig_close(&rig);
    return failed || gpu->allocated || gpu->modules || gpu->contexts || gpu->pushed;
}
