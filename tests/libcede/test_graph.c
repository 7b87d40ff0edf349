/* The graph cache on the stand-in for libcuda: what is captured when, what a launch does, failures
 * of the driver, and use from several threads. The reasons of failed captures are in
 * test_graph_gpu.c.
 */
#include "graph_fixture.h"

/* ---- what is captured when ------------------------------------------------------------------- */

TEST_WITH(a_launch_takes_the_smallest_bucket, set_up, tear_down)
{
    open_cache(8, 1);
    static const struct {
        unsigned n, calls, last_n, took;
    } cases[] = {
        {3, 1, 4, 0}, /* warmed up in its own size */
        {4, 2, 4, 4}, /* captured, then launched */
        {3, 2, 4, 4},     {4, 2, 4, 4}, {1, 3, 1, 0}, {1, 4, 1, 1}, {9, 5, 9, 0},
        {100, 6, 100, 0}, {5, 7, 8, 0}, {8, 8, 8, 8}, {3, 8, 8, 4},
    };
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        print_message("launch %u\n", i);
        assert_int_equal(launch(cases[i].n), cases[i].took);
        HAS(f, (s.calls, cases[i].calls), (s.last_n, cases[i].last_n));
        assert_int_equal(rig_word(&rig, 0), i + 1); /* each launch ran the step once */
    }
    HAS(statistics(), (buckets, 4), (graphs, 3), (refused, 0), (launched, 6), (eager, 5),
        (warmups, 3), (too_large, 2), (captures, 3), (retried, 0));
    assert_string_equal(statistics().error, "");
    HAS(bucket(3), (launched, 4), (eager, 1), (size, 4), (nodes, 4), (captured, true));
    assert_false(bucket(2).captured);
}

TEST_WITH(buckets_are_prepared, set_up, tear_down)
{
    static const unsigned sizes[] = {2, 5, 6};
    f.c.nbuckets = 3;
    f.c.buckets = sizes;
    open_cache(0, 2);
    int uploads = gpu->uploads;
    assert_int_equal(f.s.calls, 0);
    OK(cede_graph_prepare(f.g, f.stream, 4));
    assert_int_equal(f.s.calls, 3);
    assert_int_equal(statistics().graphs, 1);
    OK(cede_graph_prepare(f.g, f.stream, 0));
    assert_int_equal(f.s.calls, 9);
    assert_int_equal(statistics().graphs, 3);
    assert_int_equal(gpu->uploads - uploads, 3);
    OK(cede_graph_prepare(f.g, f.stream, 0));
    assert_int_equal(f.s.calls, 9);
    assert_int_equal(rig_word(&rig, 0), 6); /* the warm-ups ran, and nothing else */
    assert_string_equal(launches("1 6"), "2 6");
    assert_int_equal(statistics().eager, 0);
    assert_int_equal(cede_graph_prepare(f.g, f.stream, 7), -EINVAL);
    f.s.error = 700;
    cede_graph_changed(f.g);
    assert_int_equal(cede_graph_prepare(f.g, f.stream, 0), -EIO);
    assert_non_null(strstr(statistics().error, "run the step for a batch of 2"));
}

TEST_WITH(without_warmups_a_lazy_library_costs_a_second_attempt, set_up, tear_down)
{
    open_cache(1, 0);
    int begun = gpu->begun;
    gpu->lazy = 1;
    assert_int_equal(launch(1), 1);
    assert_int_equal(gpu->begun - begun, 3);
    HAS(statistics(), (retried, 1), (refusals, 0));
    assert_int_equal(rig_word(&rig, 0), 1);
}

TEST_WITH(nothing_is_captured_if_so_wished, set_up, tear_down)
{
    int begun = gpu->begun;
    open_cache(2, 0);
    for (unsigned by_flag = 0; by_flag < 2; by_flag++) {
        setenv("CEDE_GRAPH", by_flag ? "1" : "0", 1);
        f.c.flags = by_flag ? CEDE_GRAPH_EAGER : 0;
        reopen_cache(by_flag);
        OK(cede_graph_prepare(f.g, f.stream, 0));
        assert_string_equal(launches("1 1"), "0 0");
        HAS(statistics(), (eager, 2), (refused, 0));
        assert_int_equal(rig_word(&rig, by_flag), 2);
    }
    unsetenv("CEDE_GRAPH");
    assert_int_equal(gpu->begun, begun);
}

TEST_WITH(without_a_context, set_up, tear_down)
{
    struct cede_graph *g;
    void *context;
    rig.cu.pop(&context);
    assert_int_equal(cede_graph_open(&f.c, step, &f.s, &g), -ENOSYS);
    f.c.flags = CEDE_GRAPH_EAGER;
    OK(cede_graph_open(&f.c, step, &f.s, &g));
    cede_graph_close(g);
    rig.cu.push(context);
    OK(cede_graph_open(NULL, step, &f.s, &g));
    assert_int_equal(STATS(graph, g).buckets, 8); /* up to 128 */
    cede_graph_close(g);
}

/* A larger graph that the program captures of the stream has the step in it. */
TEST_WITH(a_capture_of_the_programs_own_is_left_alone, set_up, tear_down)
{
    void *graph = NULL;
    open_cache(1, 0);
    OK(rig.cu.begin(f.stream, RIG_THREAD_LOCAL));
    OK(cede_graph_prepare(f.g, f.stream, 0));
    assert_int_equal(launch(1), 0);
    OK(rig.cu.end(f.stream, &graph));
    OK(rig.cu.graph_destroy(graph));
    assert_int_equal(rig_word(&rig, 0), 0);
    assert_int_equal(statistics().refusals, 0);
    assert_int_equal(launch(1), 1);
}

/* ---- failures of the driver ------------------------------------------------------------------ */

TEST_WITH(what_the_driver_refuses_runs_eagerly, set_up, tear_down)
{
    static const struct {
        int instantiate, upload;
        enum cede_graph_reason reason;
    } cases[] = {{801, 0, CEDE_GRAPH_NOT_EXECUTABLE},
                 {0, 801, CEDE_GRAPH_NOT_EXECUTABLE},
                 {0, 2, CEDE_GRAPH_NO_MEMORY}};
    open_cache(1, 0);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        reopen_cache(i);
        gpu->fail_instantiate = cases[i].instantiate;
        gpu->fail_upload = cases[i].upload;
        assert_string_equal(launches("1 1"), "0 0");
        HAS(bucket(1), (refused, cases[i].reason),
            (cuda_error, cases[i].instantiate + cases[i].upload));
        assert_int_equal(statistics().refusals, 1);
        assert_int_equal(rig_word(&rig, i), 2);
    }
}

TEST_WITH(a_launch_that_fails_is_told_or_made_good, set_up, tear_down)
{
    open_cache(1, 0);
    assert_int_equal(launch(1), 1);
    gpu->fail_graph_launch = 719;
    assert_int_equal(cede_graph_launch(f.g, f.stream, 1, NULL), -EIO);
    assert_non_null(strstr(statistics().error, "launch the graph for a batch of 1"));
    assert_non_null(strstr(statistics().error, "(719)"));
    assert_int_equal(rig_word(&rig, 0), 1);
    gpu->fail_graph_launch = 2; /* no memory: eagerly it works */
    assert_int_equal(launch(1), 0);
    assert_int_equal(rig_word(&rig, 0), 2);
    assert_int_equal(bucket(1).refused, CEDE_GRAPH_NO_MEMORY);
}

/* The first call is in thread-local mode, the second in relaxed mode, the third as the first. */
TEST_WITH(attempts_are_put_together, set_up, tear_down)
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
        {{899}, -EIO, 0, CEDE_GRAPH_NOT_REFUSED, 1},
        {{909}, -EIO, 0, CEDE_GRAPH_NOT_REFUSED, 1},
    };
    open_cache(1, 0);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        reopen_cache(i);
        f.s.script = cases[i].script;
        print_message("case %u\n", i);
        assert_int_equal(cede_graph_launch(f.g, f.stream, 1, NULL), cases[i].result);
        assert_int_equal(f.s.calls, cases[i].calls);
        HAS(bucket(1), (cuda_error, cases[i].code), (refused, cases[i].reason));
        assert_int_equal(rig_word(&rig, i), cases[i].result == 0);
        assert_int_equal(statistics().retried, !cases[i].result && !cases[i].code);
    }
}

/* The mode in which captures of other threads concern this one is the program's again. */
TEST_WITH(the_threads_mode_is_given_back, set_up, tear_down)
{
    open_cache(1, 0);
    int mode = RIG_RELAXED;
    rig.cu.exchange_mode(&mode);
    assert_int_equal(mode, RIG_GLOBAL);
    assert_int_equal(launch(1), 1);
    rig.cu.exchange_mode(&mode);
    assert_int_equal(mode, RIG_RELAXED);
}

TEST_WITH(errors_of_the_step_come_back, set_up, tear_down)
{
    f.s = (struct step){.each = 1, .error = -ENOMEM};
    open_cache(1, 1);
    for (unsigned i = 0; i < 3; i++) /* in the warm-up and in the capture */
        assert_int_equal(cede_graph_launch(f.g, f.stream, 1, NULL), -ENOMEM);
    assert_non_null(strstr(statistics().error, "returned -12"));
    f.s.error = 700;
    assert_int_equal(cede_graph_launch(f.g, f.stream, 1, NULL), -EIO);
    assert_non_null(strstr(statistics().error, "(700)"));
    assert_int_equal(cede_graph_launch(f.g, f.stream, 200, NULL), -EIO);
    assert_int_equal(statistics().refusals, 0);
    f.s.error = 0;
    assert_int_equal(launch(1), 1);
}

/* ---- threads --------------------------------------------------------------------------------- */

TEST_WITH(a_captured_bucket_allocates_nothing, set_up, tear_down)
{
    unsigned before = allocations;
    open_cache(4, 0);
    assert_true(allocations > before); /* they are counted */
    OK(cede_graph_prepare(f.g, f.stream, 0));
    before = allocations;
    for (unsigned i = 0; i < 1000; i++)
        assert_int_not_equal(launch(1 + i % 4), 0);
    assert_int_equal(allocations, before);
}

TEST_WITH(a_second_user_is_turned_away, set_up, tear_down)
{
    f.s = (struct step){.each = 1, .calls_cache = true};
    open_cache(1, 1);
    assert_int_equal(launch(1), 0);
    assert_int_equal(f.s.inner, -EBUSY);
    f.s.calls_cache = false;
    assert_int_equal(launch(1), 1);
}

static int changes_errno(void *arg, void *stream, unsigned n)
{
    errno = EDOM;
    return step(arg, stream, n);
}

/* Warming up, capturing and failing, whatever the driver and the step do to it. */
TEST_WITH(errno_stays, set_up, tear_down)
{
    errno = ERANGE;
    f.c.max_batch = 2;
    OK(cede_graph_open(&f.c, changes_errno, &f.s, &f.g));
    OK(cede_graph_launch(f.g, f.stream, 1, NULL));
    OK(cede_graph_launch(f.g, f.stream, 1, NULL));
    OK(cede_graph_prepare(f.g, f.stream, 2));
    f.s.error = -ENOENT;
    assert_int_equal(cede_graph_launch(f.g, f.stream, 3, NULL), -ENOENT);
    assert_int_equal(errno, ERANGE);
}

#define THREADS 4U
#define ROUNDS  2000U

struct worker {
    pthread_t thread;
    struct step s;
    struct cede_graph *g;
    void *stream;
    unsigned launched;
};

static atomic_bool ended;

static void *works(void *arg)
{
    struct worker *w = arg;
    void *context;
    rig.cu.push(rig.context);
    for (unsigned i = 0; i < ROUNDS; i++)
        w->launched += cede_graph_launch(w->g, w->stream, 1 + i % 5, NULL) == 0;
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

TEST_WITH(caches_of_threads_are_independent, set_up, tear_down)
{
    struct worker w[THREADS];
    f.c.max_batch = 4;
    f.c.max_graphs = 2;
    ended = false;
    for (unsigned i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.s = {.each = 1, .word = i}};
        OK(rig.cu.stream_create(&w[i].stream, RIG_NON_BLOCKING));
        OK(cede_graph_open(&f.c, step, &w[i].s, &w[i].g));
    }
    const pthread_t watcher = start(watches, w);
    for (unsigned i = 0; i < THREADS; i++)
        w[i].thread = start(works, &w[i]);
    for (unsigned i = 0; i < THREADS; i++)
        result_of(w[i].thread);
    ended = true;
    OK(result_of(watcher));
    for (unsigned i = 0; i < THREADS; i++) {
        struct cede_graph_statistics t = STATS(graph, w[i].g);
        assert_int_equal(w[i].launched, ROUNDS);
        assert_int_equal(t.launched + t.eager, ROUNDS);
        assert_true(t.launched > 0);
        assert_int_equal(rig_word(&rig, i), ROUNDS);
        cede_graph_close(w[i].g);
        rig.cu.stream_destroy(w[i].stream);
    }
}
