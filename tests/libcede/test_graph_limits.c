/* The graph cache on the stand-in for libcuda: limits and evictions, and graphs whose addresses
 * change. */
#include "graph_fixture.h"

/* ---- limits ---------------------------------------------------------------------------------- */

static void the_least_recently_used_graph_goes(void **state)
{
    struct cede_graph_config c = configured(8, 0);
    struct step s = {.each = 1};
    void *stream = make_stream();
    c.max_graphs = 2;
    struct cede_graph *g = open_cache(&c, stream, &s);
    assert_int_equal(launch(g, 1), 1);
    assert_int_equal(launch(g, 2), 2);
    assert_int_equal(launch(g, 1), 1);
    assert_int_equal(launch(g, 4), 4); /* in place of 2 */
    assert_int_equal(statistics(g).evictions, 1);
    assert_int_equal(statistics(g).graphs, 2);
    assert_false(bucket(g, 2).captured);
    assert_int_equal(bucket(g, 2).nodes, 0);
    assert_int_equal(launch(g, 1), 1);
    assert_int_equal(launch(g, 2), 0); /* it has to be wanted twice before it comes back, */
    assert_int_equal(launch(g, 2), 0);
    assert_int_equal(launch(g, 2), 2); /* in place of 4 */
    assert_int_equal(launch(g, 1), 1);
    assert_int_equal(launch(g, 4), 0);
    assert_int_equal(launch(g, 4), 0);
    assert_int_equal(launch(g, 4), 4); /* in place of 2 */
    for (unsigned i = 0; i < 4; i++)   /* and then four times */
        assert_int_equal(launch(g, 2), 0);
    assert_int_equal(launch(g, 2), 2);
    assert_int_equal(statistics(g).evictions, 4);
    assert_int_equal(gpu->execs, 2);
    assert_int_equal(rig_word(&rig, 0), 17);
    close_cache(g, stream);
}

static void memory_is_measured_and_bounded(void **state)
{
    struct cede_graph_config c = configured(8, 0);
    struct step s = {.each = 1};
    void *stream = make_stream();
    gpu->node_bytes = 1000;
    c.max_bytes = 6500;
    struct cede_graph *g = open_cache(&c, stream, &s);
    assert_int_equal(launch(g, 1), 1);
    assert_int_equal(launch(g, 2), 2);
    assert_int_equal(bucket(g, 1).bytes, 1000);
    assert_int_equal(bucket(g, 2).bytes, 2000);
    assert_int_equal(launch(g, 4), 4); /* 7000: the first goes */
    assert_int_equal(statistics(g).bytes, 6000);
    assert_int_equal(bucket(g, 1).bytes, 0);
    assert_int_equal(launch(g, 8), 0); /* too large even alone */
    assert_int_equal(bucket(g, 8).refused, CEDE_GRAPH_NO_MEMORY);
    assert_int_equal(statistics(g).refused, 1);
    assert_non_null(strstr(statistics(g).error, "a batch of 8 runs eagerly"));
    assert_int_equal(statistics(g).bytes, 6000); /* no other went for it in vain */
    assert_int_equal(statistics(g).evictions, 1);
    assert_non_null(strstr(statistics(g).error, "max_bytes"));
    int begun = gpu->begun;
    assert_int_equal(launch(g, 8), 0);
    assert_int_equal(gpu->begun, begun);
    close_cache(g, stream);
}

/* What is larger than a graph that was too large is not even tried. */
static void preparing_stops_where_one_is_too_large(void **state)
{
    struct cede_graph_config c = configured(16, 0);
    struct step s = {.each = 1};
    void *stream = make_stream();
    gpu->node_bytes = 1000;
    c.max_bytes = 7500;
    struct cede_graph *g = open_cache(&c, stream, &s);
    assert_int_equal(cede_graph_prepare(g, 0), 0);
    assert_int_equal(statistics(g).bytes, 7000);
    assert_int_equal(statistics(g).evictions, 0);
    assert_int_equal(bucket(g, 8).refused, CEDE_GRAPH_NO_MEMORY);
    assert_int_equal(bucket(g, 16).refused, CEDE_GRAPH_NOT_REFUSED);
    close_cache(g, stream);
}

static void preparing_stops_at_the_limits(void **state)
{
    struct cede_graph_config c = configured(8, 0);
    struct step s = {.each = 1};
    void *stream = make_stream();
    c.max_graphs = 2;
    struct cede_graph *g = open_cache(&c, stream, &s);
    assert_int_equal(cede_graph_prepare(g, 0), 0);
    assert_int_equal(statistics(g).captures, 2);
    assert_int_equal(statistics(g).evictions, 0);
    assert_true(bucket(g, 2).captured);
    cede_graph_close(g);
    gpu->node_bytes = 1000;
    c.max_graphs = 0;
    c.max_bytes = 5000;
    g = open_cache(&c, stream, &s);
    assert_int_equal(cede_graph_prepare(g, 0), 0);
    assert_int_equal(statistics(g).captures, 3);
    assert_int_equal(statistics(g).bytes, 4000);
    close_cache(g, stream);
}

static void a_full_gpu_takes_graphs_from_others(void **state)
{
    struct cede_graph_config c = configured(8, 0);
    struct step s = {.each = 1};
    void *stream = make_stream();
    struct cede_graph *g = open_cache(&c, stream, &s);
    gpu->node_bytes = 1000;
    gpu->free_bytes = 6500;
    assert_int_equal(launch(g, 2), 2);
    assert_int_equal(launch(g, 4), 4);
    assert_int_equal(launch(g, 1), 1);
    assert_int_equal(statistics(g).evictions, 1);
    assert_false(bucket(g, 2).captured);
    assert_int_equal(launch(g, 8), 0); /* all others are gone, and still */
    assert_int_equal(bucket(g, 8).refused, CEDE_GRAPH_NO_MEMORY);
    assert_int_equal(bucket(g, 8).cuda_error, 2);
    assert_non_null(strstr(statistics(g).error, "CUDA_ERROR_OUT_OF_MEMORY (2)"));
    assert_int_equal(statistics(g).graphs, 0);
    gpu->free_bytes = FREE_BYTES;
    assert_int_equal(cede_graph_prepare(g, 8), 0); /* on request it is tried again */
    assert_int_equal(launch(g, 8), 8);
    assert_int_equal(bucket(g, 8).refused, CEDE_GRAPH_NOT_REFUSED);
    assert_int_equal(bucket(g, 8).cuda_error, 0);
    assert_int_equal(bucket(g, 8).nodes, 8);
    assert_int_equal(rig_word(&rig, 0), 5);
    close_cache(g, stream);
}

/* What an evicted graph had is there once it has ended, or the pool has given it back. */
static void memory_of_evicted_graphs_is_waited_for(void **state)
{
    struct cede_graph_config c = configured(4, 0);
    for (int uses_pool = 0; uses_pool < 2; uses_pool++) {
        struct step s = {.each = 1, .uses_pool = uses_pool};
        void *stream = make_stream();
        struct cede_graph *g = open_cache(&c, stream, &s);
        gpu->busy = 1;
        gpu->node_bytes = 1000;
        gpu->free_bytes = 6500;
        assert_int_equal(launch(g, 1), 1);
        assert_int_equal(launch(g, 2), 2);
        assert_int_equal(launch(g, 4), 4);
        assert_int_equal(statistics(g).evictions, uses_pool ? 2 : 1);
        assert_int_equal(statistics(g).refusals, 0);
        cede_graph_close(g);
        assert_int_equal(rig.cu.stream_synchronize(stream), 0);
        gpu->pool_bytes = 0;
        assert_int_equal(rig.cu.stream_destroy(stream), 0);
    }
    struct step s = {.each = 1, .uses_pool = true};
    void *stream = make_stream();
    gpu->busy = 0;
    gpu->free_bytes = FREE_BYTES;
    c.max_graphs = 1;
    struct cede_graph *g = open_cache(&c, stream, &s);
    assert_int_equal(launch(g, 1), 1);
    assert_int_equal(launch(g, 2), 2);
    assert_int_equal(gpu->free_bytes, FREE_BYTES - 3000); /* of 2 and its pool, not of 1 */
    assert_int_equal(gpu->pool_bytes, 0);
    s.uses_pool = false;
    cede_graph_changed(g);
    assert_int_equal(launch(g, 2), 2);
    gpu->free_bytes += atomic_exchange(&gpu->pool_bytes, 0);
    close_cache(g, stream);
}

/* ---- changes --------------------------------------------------------------------------------- */

#define MS 1000000U

static void graphs_are_updated_in_place(void **state)
{
    struct cede_graph_config c = configured(2, 0);
    struct step s = {.each = 1, .word = 3};
    void *stream = make_stream();
    struct cede_graph *g = open_cache(&c, stream, &s);
    tick_ns = 5 * MS;
    assert_int_equal(launch(g, 2), 2);
    uint64_t first_us = statistics(g).capture_us;
    assert_int_equal(first_us, 15000); /* to the end, and to the beginning and end of the making */
    int made = gpu->instantiated, uploads = gpu->uploads;
    s.word = 4;
    cede_graph_changed(g);
    tick_ns = 2 * MS;
    assert_int_equal(launch(g, 2), 2);
    assert_int_equal(launch(g, 2), 2);
    assert_int_equal(rig_word(&rig, 3), 1);
    assert_int_equal(rig_word(&rig, 4), 2);
    assert_int_equal(gpu->instantiated, made);
    assert_int_equal(gpu->uploads, uploads + 1);
    struct cede_graph_statistics t = statistics(g);
    assert_int_equal(t.captures, 2);
    assert_int_equal(t.updates, 1);
    assert_int_equal(t.rebuilds, 0);
    assert_int_equal(t.saved_us, 3000);
    assert_int_equal(t.capture_us - first_us, 6000);

    gpu->fail_update = 1;
    s.word = 5;
    cede_graph_changed(g);
    cede_graph_changed(g); /* as good as once */
    assert_int_equal(cede_graph_prepare(g, 2), 0);
    gpu->fail_update = 0;
    s.each = 2;
    cede_graph_changed(g);
    assert_int_equal(launch(g, 2), 2);
    assert_int_equal(bucket(g, 2).nodes, 4);
    t = statistics(g);
    assert_int_equal(t.updates, 1);
    assert_int_equal(t.rebuilds, 2);
    assert_int_equal(t.evictions, 0);
    assert_int_equal(rig_word(&rig, 5), 1);
    close_cache(g, stream);
}

/* One that comes while the step is captured is seen by the next launch. */
static void a_change_meanwhile_is_not_lost(void **state)
{
    struct cede_graph_config c = configured(1, 0);
    struct step s = {.each = 1, .changes = true};
    void *stream = make_stream();
    struct cede_graph *g = open_cache(&c, stream, &s);
    assert_int_equal(launch(g, 1), 1);
    s.word = 6;
    assert_int_equal(launch(g, 1), 1);
    assert_int_equal(rig_word(&rig, 0), 1);
    assert_int_equal(rig_word(&rig, 6), 1);
    assert_int_equal(statistics(g).updates, 1);
    close_cache(g, stream);
}

static void a_step_that_can_no_longer_be_captured_loses_its_graph(void **state)
{
    struct cede_graph_config c = configured(1, 0);
    struct step s = {.each = 1};
    void *stream = make_stream();
    struct cede_graph *g = open_cache(&c, stream, &s);
    assert_int_equal(launch(g, 1), 1);
    s.error = 904;
    cede_graph_changed(g);
    unsigned took = 9;
    assert_int_equal(cede_graph_launch(g, 1, &took), -EIO); /* eagerly it fails, too */
    assert_int_equal(took, 0);
    assert_int_equal(bucket(g, 1).refused, CEDE_GRAPH_UNJOINED);
    assert_int_equal(gpu->execs, 0);
    s.error = 0;
    assert_int_equal(launch(g, 1), 0);
    assert_int_equal(statistics(g).refusals, 1);
    close_cache(g, stream);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup(f, set_up)
    const struct CMUnitTest tests[] = {
        T(the_least_recently_used_graph_goes),
        T(memory_is_measured_and_bounded),
        T(preparing_stops_at_the_limits),
        T(preparing_stops_where_one_is_too_large),
        T(a_full_gpu_takes_graphs_from_others),
        T(memory_of_evicted_graphs_is_waited_for),
        T(graphs_are_updated_in_place),
        T(a_change_meanwhile_is_not_lost),
        T(a_step_that_can_no_longer_be_captured_loses_its_graph),
    };
    return run_graph_tests(tests, ARRAY_SIZE(tests));
}
