/* The graph cache on the stand-in for libcuda: what is captured when, what a launch does, failures
 * of the driver, and use from several threads. The reasons of failed captures are in
 * test_graph_gpu.c.
 */
#include "graph_fixture.h"

/* ---- what is captured when ------------------------------------------------------------------- */

static void a_launch_takes_the_smallest_bucket(void **state)
{
    struct cede_graph_config c = configured(8, 1);
    struct step s = {.each = 1};
    void *stream = make_stream();
    struct cede_graph *g = open_cache(&c, stream, &s);
    static const struct {
        unsigned n, calls, last_n, took;
    } launches[] = {
        {3, 1, 4, 0}, /* warmed up in its own size */
        {4, 2, 4, 4}, /* captured, then launched */
        {3, 2, 4, 4},     {4, 2, 4, 4}, {1, 3, 1, 0}, {1, 4, 1, 1}, {9, 5, 9, 0},
        {100, 6, 100, 0}, {5, 7, 8, 0}, {8, 8, 8, 8}, {3, 8, 8, 4},
    };
    for (unsigned i = 0; i < ARRAY_SIZE(launches); i++) {
        print_message("launch %u\n", i);
        assert_int_equal(launch(g, launches[i].n), launches[i].took);
        assert_int_equal(s.calls, launches[i].calls);
        assert_int_equal(s.last_n, launches[i].last_n);
        assert_int_equal(rig_word(&rig, 0), i + 1); /* each launch ran the step once */
    }
    struct cede_graph_statistics t = statistics(g);
    assert_int_equal(t.buckets, 4);
    assert_int_equal(t.graphs, 3);
    assert_int_equal(t.refused, 0);
    assert_int_equal(t.launched, 6);
    assert_int_equal(t.eager, 5);
    assert_int_equal(t.warmups, 3);
    assert_int_equal(t.too_large, 2);
    assert_int_equal(t.captures, 3);
    assert_int_equal(t.retried, 0);
    assert_string_equal(t.error, "");
    assert_int_equal(bucket(g, 3).launched, 4);
    assert_int_equal(bucket(g, 3).eager, 1);
    assert_int_equal(bucket(g, 3).size, 4);
    assert_int_equal(bucket(g, 3).nodes, 4);
    assert_true(bucket(g, 3).captured);
    assert_false(bucket(g, 2).captured);
    close_cache(g, stream);
}

static void buckets_are_prepared(void **state)
{
    static const unsigned sizes[] = {2, 5, 6};
    struct cede_graph_config c = configured(0, 2);
    struct step s = {.each = 1};
    void *stream = make_stream();
    c.nbuckets = 3;
    c.buckets = sizes;
    struct cede_graph *g = open_cache(&c, stream, &s);
    int uploads = gpu->uploads;
    assert_int_equal(s.calls, 0);
    assert_int_equal(cede_graph_prepare(g, 4), 0);
    assert_int_equal(s.calls, 3);
    assert_int_equal(statistics(g).graphs, 1);
    assert_int_equal(cede_graph_prepare(g, 0), 0);
    assert_int_equal(s.calls, 9);
    assert_int_equal(statistics(g).graphs, 3);
    assert_int_equal(gpu->uploads - uploads, 3);
    assert_int_equal(cede_graph_prepare(g, 0), 0);
    assert_int_equal(s.calls, 9);
    assert_int_equal(rig_word(&rig, 0), 6); /* the warm-ups ran, and nothing else */
    assert_int_equal(launch(g, 1), 2);
    assert_int_equal(launch(g, 6), 6);
    assert_int_equal(statistics(g).eager, 0);
    assert_int_equal(cede_graph_prepare(g, 7), -EINVAL);
    s.error = 700;
    cede_graph_changed(g);
    assert_int_equal(cede_graph_prepare(g, 0), -EIO);
    assert_non_null(strstr(statistics(g).error, "run the step for a batch of 2"));
    close_cache(g, stream);
}

static void without_warmups_a_lazy_library_costs_a_second_attempt(void **state)
{
    struct cede_graph_config c = configured(1, 0);
    struct step s = {.each = 1};
    void *stream = make_stream();
    struct cede_graph *g = open_cache(&c, stream, &s);
    int begun = gpu->begun;
    gpu->lazy = 1;
    assert_int_equal(launch(g, 1), 1);
    assert_int_equal(gpu->begun - begun, 3);
    assert_int_equal(statistics(g).retried, 1);
    assert_int_equal(statistics(g).refusals, 0);
    assert_int_equal(rig_word(&rig, 0), 1);
    close_cache(g, stream);
}

static void nothing_is_captured_if_so_wished(void **state)
{
    struct cede_graph_config c = configured(2, 0), eager = c;
    struct step s = {.each = 1};
    void *stream = make_stream();
    int begun = gpu->begun;
    eager.flags = CEDE_GRAPH_EAGER;
    for (int by_flag = 0; by_flag < 2; by_flag++) {
        setenv("CEDE_GRAPH", by_flag ? "1" : "0", 1);
        struct cede_graph *g = open_cache(by_flag ? &eager : &c, stream, &s);
        assert_int_equal(cede_graph_prepare(g, 0), 0);
        assert_int_equal(launch(g, 1), 0);
        assert_int_equal(launch(g, 1), 0);
        assert_int_equal(statistics(g).eager, 2);
        assert_int_equal(statistics(g).refused, 0);
        cede_graph_close(g);
    }
    unsetenv("CEDE_GRAPH");
    assert_int_equal(gpu->begun, begun);
    assert_int_equal(rig_word(&rig, 0), 4);
    rig.cu.stream_destroy(stream);
}

static void what_is_wrong_is_told(void **state)
{
    struct cede_graph_config c = configured(8, 1), bad;
    struct step s = {.each = 1};
    struct cede_graph *g = (void *)&c;
    struct cede_graph_statistics t;
    struct cede_graph_bucket b;
    void *stream = make_stream(), *context;
    assert_int_equal(cede_graph_open(&c, stream, NULL, NULL, &g), -EINVAL);
    assert_null(g);
    assert_int_equal(cede_graph_open(&c, stream, step, &s, NULL), -EINVAL);
#define BAD(field, value)                                                                          \
    bad = c, bad.field = (value);                                                                  \
    assert_int_equal(cede_graph_open(&bad, stream, step, &s, &g), -EINVAL)
    BAD(size, 8);
    BAD(flags, 2);
    BAD(max_batch, 0);
    BAD(nbuckets, 3);
    BAD(warmups, 1001);
#undef BAD
    rig.cu.pop(&context);
    assert_int_equal(cede_graph_open(&c, stream, step, &s, &g), -ENOSYS);
    bad = c, bad.flags = CEDE_GRAPH_EAGER;
    assert_int_equal(cede_graph_open(&bad, stream, step, &s, &g), 0);
    cede_graph_close(g);
    rig.cu.push(context);
    g = open_cache(NULL, stream, &s);
    assert_int_equal(statistics(g).buckets, 8); /* up to 128 */
    assert_int_equal(cede_graph_launch(g, 0, NULL), -EINVAL);
    assert_int_equal(cede_graph_launch(NULL, 1, NULL), -EINVAL);
    assert_int_equal(cede_graph_prepare(NULL, 1), -EINVAL);
    assert_int_equal(cede_graph_get_statistics(g, &t, sizeof(t) - 1), -EINVAL);
    assert_int_equal(cede_graph_get_bucket(g, 1, &b, sizeof(b) + 1), -EINVAL);
    assert_int_equal(cede_graph_get_bucket(g, 0, &b, sizeof(b)), -EINVAL);
    assert_int_equal(cede_graph_get_bucket(g, 129, &b, sizeof(b)), -EINVAL);
    cede_graph_changed(NULL);
    cede_graph_close(NULL);
    close_cache(g, stream);
}

/* A larger graph that the program captures of the stream has the step in it. */
static void a_capture_of_the_programs_own_is_left_alone(void **state)
{
    struct cede_graph_config c = configured(1, 0);
    struct step s = {.each = 1};
    void *stream = make_stream(), *graph = NULL;
    struct cede_graph *g = open_cache(&c, stream, &s);
    assert_int_equal(rig.cu.begin(stream, RIG_THREAD_LOCAL), 0);
    assert_int_equal(cede_graph_prepare(g, 0), 0);
    assert_int_equal(launch(g, 1), 0);
    assert_int_equal(rig.cu.end(stream, &graph), 0);
    assert_int_equal(rig.cu.graph_destroy(graph), 0);
    assert_int_equal(rig_word(&rig, 0), 0);
    assert_int_equal(statistics(g).refusals, 0);
    assert_int_equal(launch(g, 1), 1);
    close_cache(g, stream);
}

/* ---- failures of the driver ------------------------------------------------------------------ */

static void what_the_driver_refuses_runs_eagerly(void **state)
{
    static const struct {
        int instantiate, upload;
        enum cede_graph_reason reason;
    } cases[] = {{801, 0, CEDE_GRAPH_NOT_EXECUTABLE},
                 {0, 801, CEDE_GRAPH_NOT_EXECUTABLE},
                 {0, 2, CEDE_GRAPH_NO_MEMORY}};
    struct cede_graph_config c = configured(1, 0);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct step s = {.each = 1, .word = i};
        void *stream = make_stream();
        struct cede_graph *g = open_cache(&c, stream, &s);
        gpu->fail_instantiate = cases[i].instantiate;
        gpu->fail_upload = cases[i].upload;
        assert_int_equal(launch(g, 1), 0);
        assert_int_equal(launch(g, 1), 0);
        assert_int_equal(bucket(g, 1).refused, cases[i].reason);
        assert_int_equal(bucket(g, 1).cuda_error, cases[i].instantiate + cases[i].upload);
        assert_int_equal(statistics(g).refusals, 1);
        assert_int_equal(rig_word(&rig, i), 2);
        gpu->fail_instantiate = gpu->fail_upload = 0;
        close_cache(g, stream);
    }
}

static void a_launch_that_fails_is_told_or_made_good(void **state)
{
    struct cede_graph_config c = configured(1, 0);
    struct step s = {.each = 1};
    void *stream = make_stream();
    struct cede_graph *g = open_cache(&c, stream, &s);
    assert_int_equal(launch(g, 1), 1);
    gpu->fail_graph_launch = 719;
    assert_int_equal(cede_graph_launch(g, 1, NULL), -EIO);
    assert_non_null(strstr(statistics(g).error, "launch the graph for a batch of 1"));
    assert_non_null(strstr(statistics(g).error, "(719)"));
    assert_int_equal(rig_word(&rig, 0), 1);
    gpu->fail_graph_launch = 2; /* no memory: eagerly it works */
    assert_int_equal(launch(g, 1), 0);
    assert_int_equal(rig_word(&rig, 0), 2);
    assert_int_equal(bucket(g, 1).refused, CEDE_GRAPH_NO_MEMORY);
    close_cache(g, stream);
}

/* The first call is in thread-local mode, the second in relaxed mode, the third as the first. */
static void attempts_are_put_together(void **state)
{
    static const struct {
        int script[4], result, code;
        enum cede_graph_reason reason;
        unsigned calls;
    } cases[] = {
        {{904}, 0, 904, CEDE_GRAPH_UNJOINED, 2},
        {{900, 900}, 0, 900, CEDE_GRAPH_SYNCHRONIZES, 3},
        {{900, 901}, 0, 900, CEDE_GRAPH_SYNCHRONIZES, 3},
        {{901, 904}, 0, 904, CEDE_GRAPH_UNJOINED, 3},
        {{900, -5}, 0, 900, CEDE_GRAPH_SYNCHRONIZES, 3},
        {{900, GOES_WELL, 900}, 0, 900, CEDE_GRAPH_UNSAFE_CALL, 4},
        {{901, GOES_WELL, 906}, 0, 906, CEDE_GRAPH_DEFAULT_STREAM, 4},
        {{900, GOES_WELL, -5}, -5, 0, CEDE_GRAPH_NOT_REFUSED, 3},
        {{900, GOES_WELL, GOES_WELL}, 0, 0, CEDE_GRAPH_NOT_REFUSED, 3},
        {{901, GOES_WELL, GOES_WELL}, 0, 0, CEDE_GRAPH_NOT_REFUSED, 3},
        {{-5}, -5, 0, CEDE_GRAPH_NOT_REFUSED, 1},
    };
    struct cede_graph_config c = configured(1, 0);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct step s = {.each = 1, .word = i, .script = cases[i].script};
        void *stream = make_stream();
        struct cede_graph *g = open_cache(&c, stream, &s);
        print_message("case %u\n", i);
        assert_int_equal(cede_graph_launch(g, 1, NULL), cases[i].result);
        assert_int_equal(s.calls, cases[i].calls);
        assert_int_equal(bucket(g, 1).cuda_error, cases[i].code);
        assert_int_equal(bucket(g, 1).refused, cases[i].reason);
        assert_int_equal(rig_word(&rig, i), cases[i].result == 0);
        assert_int_equal(statistics(g).retried, !cases[i].result && !cases[i].code);
        close_cache(g, stream);
    }
}

/* The mode in which captures of other threads concern this one is the program's again. */
static void the_threads_mode_is_given_back(void **state)
{
    struct cede_graph_config c = configured(1, 0);
    struct step s = {.each = 1};
    void *stream = make_stream();
    struct cede_graph *g = open_cache(&c, stream, &s);
    int mode = RIG_RELAXED;
    rig.cu.exchange_mode(&mode);
    int was = mode;
    assert_int_equal(was, RIG_GLOBAL);
    assert_int_equal(launch(g, 1), 1);
    rig.cu.exchange_mode(&mode);
    assert_int_equal(mode, RIG_RELAXED);
    close_cache(g, stream);
}

static void errors_of_the_step_come_back(void **state)
{
    struct cede_graph_config c = configured(1, 1);
    struct step s = {.each = 1, .error = -ENOMEM};
    void *stream = make_stream();
    struct cede_graph *g = open_cache(&c, stream, &s);
    for (unsigned i = 0; i < 3; i++) /* in the warm-up and in the capture */
        assert_int_equal(cede_graph_launch(g, 1, NULL), -ENOMEM);
    assert_non_null(strstr(statistics(g).error, "returned -12"));
    s.error = 700;
    assert_int_equal(cede_graph_launch(g, 1, NULL), -EIO);
    assert_non_null(strstr(statistics(g).error, "(700)"));
    assert_int_equal(cede_graph_launch(g, 200, NULL), -EIO);
    assert_int_equal(statistics(g).refusals, 0);
    s.error = 0;
    assert_int_equal(launch(g, 1), 1);
    close_cache(g, stream);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void a_captured_bucket_allocates_nothing(void **state)
{
    struct cede_graph_config c = configured(4, 0);
    struct step s = {.each = 1};
    void *stream = make_stream();
    unsigned before = allocations;
    struct cede_graph *g = open_cache(&c, stream, &s);
    assert_true(allocations > before); /* they are counted */
    assert_int_equal(cede_graph_prepare(g, 0), 0);
    before = allocations;
    for (unsigned i = 0; i < 1000; i++)
        assert_int_not_equal(launch(g, 1 + i % 4), 0);
    assert_int_equal(allocations, before);
    close_cache(g, stream);
}

static void a_second_user_is_turned_away(void **state)
{
    struct cede_graph_config c = configured(1, 1);
    struct step s = {.each = 1, .calls_cache = true};
    void *stream = make_stream();
    struct cede_graph *g = open_cache(&c, stream, &s);
    assert_int_equal(launch(g, 1), 0);
    assert_int_equal(s.inner, -EBUSY);
    s.calls_cache = false;
    assert_int_equal(launch(g, 1), 1);
    close_cache(g, stream);
}

static int changes_errno(void *arg, void *stream, unsigned n)
{
    errno = EDOM;
    return step(arg, stream, n);
}

/* Warming up, capturing and failing, whatever the driver and the step do to it. */
static void errno_stays(void **state)
{
    struct cede_graph_config c = configured(2, 1);
    struct step s = {.each = 1};
    void *stream = make_stream();
    struct cede_graph *g = NULL;
    errno = ERANGE;
    assert_int_equal(cede_graph_open(&c, stream, changes_errno, &s, &g), 0);
    assert_int_equal(cede_graph_launch(g, 1, NULL), 0);
    assert_int_equal(cede_graph_launch(g, 1, NULL), 0);
    assert_int_equal(cede_graph_prepare(g, 2), 0);
    s.error = -ENOENT;
    assert_int_equal(cede_graph_launch(g, 3, NULL), -ENOENT);
    assert_int_equal(errno, ERANGE);
    close_cache(g, stream);
}

#define THREADS 4U
#define ROUNDS  2000U

struct worker {
    pthread_t thread;
    struct step s;
    struct cede_graph *g;
    unsigned launched;
};

static atomic_bool ended;

static void *works(void *arg)
{
    struct worker *w = arg;
    void *context;
    rig.cu.push(rig.context);
    for (unsigned i = 0; i < ROUNDS; i++)
        w->launched += cede_graph_launch(w->g, 1 + i % 5, NULL) == 0;
    rig.cu.pop(&context);
    return NULL;
}

static void *watches(void *arg)
{
    struct worker *w = arg;
    struct cede_graph_statistics t;
    struct cede_graph_bucket b;
    uintptr_t bad = 0, changes = 0;
    while (!ended) {
        for (unsigned i = 0; i < THREADS; i++) {
            if (changes++ % 8 == 0)
                cede_graph_changed(w[i].g);
            bad += cede_graph_get_statistics(w[i].g, &t, sizeof(t)) != 0 || t.refused != 0;
            bad += cede_graph_get_bucket(w[i].g, 2, &b, sizeof(b)) != 0;
        }
    }
    return (void *)bad;
}

static void caches_of_threads_are_independent(void **state)
{
    struct cede_graph_config c = configured(4, 1);
    struct worker w[THREADS];
    void *stream[THREADS], *bad;
    pthread_t watcher;
    c.max_graphs = 2;
    ended = false;
    for (unsigned i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.s = {.each = 1, .word = i}};
        stream[i] = make_stream();
        w[i].g = open_cache(&c, stream[i], &w[i].s);
    }
    assert_int_equal(pthread_create(&watcher, NULL, watches, w), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&w[i].thread, NULL, works, &w[i]), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(w[i].thread, NULL);
    ended = true;
    pthread_join(watcher, &bad);
    assert_null(bad);
    for (unsigned i = 0; i < THREADS; i++) {
        struct cede_graph_statistics t = statistics(w[i].g);
        assert_int_equal(w[i].launched, ROUNDS);
        assert_int_equal(t.launched + t.eager, ROUNDS);
        assert_true(t.launched > 0);
        assert_int_equal(rig_word(&rig, i), ROUNDS);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        cede_graph_close(w[i].g);
        rig.cu.stream_destroy(stream[i]);
    }
    assert_int_equal(gpu->execs, 0);
    assert_int_equal(gpu->graphs, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup(f, set_up)
    const struct CMUnitTest tests[] = {
        T(a_launch_takes_the_smallest_bucket),
        T(buckets_are_prepared),
        T(without_warmups_a_lazy_library_costs_a_second_attempt),
        T(nothing_is_captured_if_so_wished),
        T(what_is_wrong_is_told),
        T(a_capture_of_the_programs_own_is_left_alone),
        T(what_the_driver_refuses_runs_eagerly),
        T(a_launch_that_fails_is_told_or_made_good),
        T(attempts_are_put_together),
        T(the_threads_mode_is_given_back),
        T(errors_of_the_step_come_back),
        T(a_captured_bucket_allocates_nothing),
        T(a_second_user_is_turned_away),
        T(errno_stays),
        T(caches_of_threads_are_independent),
    };
    return run_graph_tests(tests, ARRAY_SIZE(tests));
}
