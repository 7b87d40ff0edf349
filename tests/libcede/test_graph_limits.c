/* The graph cache on the stand-in for libcuda: limits and evictions, and graphs whose addresses
 * change. */
#include "graph_fixture.h"

/* ---- limits ---------------------------------------------------------------------------------- */

TEST_WITH(the_least_recently_used_graph_goes, set_up, tear_down)
{
    f.c.max_graphs = 2;
    open_cache(8, 0);
    assert_string_equal(launches("1 2 1 4"), "1 2 1 4"); /* 4 in place of 2 */
    HAS(statistics(), (evictions, 1), (graphs, 2));
    HAS(bucket(2), (captured, false), (nodes, 0));
    /* One has to be wanted twice before it comes back, and then four times. */
    assert_string_equal(launches("1 2 2 2"), "1 0 0 2"); /* in place of 4 */
    assert_string_equal(launches("1 4 4 4"), "1 0 0 4"); /* in place of 2 */
    assert_string_equal(launches("2 2 2 2 2"), "0 0 0 0 2");
    assert_int_equal(statistics().evictions, 4);
    assert_int_equal(gpu->execs, 2);
    assert_int_equal(rig_word(&rig, 0), 17);
}

TEST_WITH(memory_is_measured_and_bounded, set_up, tear_down)
{
    gpu->node_bytes = 1000;
    f.c.max_bytes = 6000;
    open_cache(8, 0);
    assert_string_equal(launches("1 2"), "1 2");
    assert_int_equal(bucket(1).bytes, 1000);
    assert_int_equal(bucket(2).bytes, 2000);
    assert_int_equal(launch(4), 4); /* 7000: the first goes */
    assert_int_equal(statistics().bytes, 6000);
    assert_int_equal(bucket(1).bytes, 0);
    assert_int_equal(launch(8), 0); /* too large even alone */
    assert_int_equal(bucket(8).refused, CEDE_GRAPH_NO_MEMORY);
    assert_int_equal(statistics().refused, 1);
    assert_non_null(strstr(statistics().error, "a batch of 8 runs eagerly"));
    assert_int_equal(statistics().bytes, 6000); /* no other went for it in vain */
    assert_int_equal(statistics().evictions, 1);
    assert_non_null(strstr(statistics().error, "max_bytes"));
    int begun = gpu->begun;
    assert_int_equal(launch(8), 0);
    assert_int_equal(gpu->begun, begun);
}

/* What is larger than a graph that was too large is not even tried. */
TEST_WITH(preparing_stops_where_one_is_too_large, set_up, tear_down)
{
    gpu->node_bytes = 1000;
    f.c.max_bytes = 7500;
    open_cache(16, 0);
    OK(cede_graph_prepare(f.g, f.stream, 0));
    HAS(statistics(), (bytes, 7000), (evictions, 0));
    assert_int_equal(bucket(8).refused, CEDE_GRAPH_NO_MEMORY);
    assert_int_equal(bucket(16).refused, CEDE_GRAPH_NOT_REFUSED);
}

TEST_WITH(preparing_stops_at_the_limits, set_up, tear_down)
{
    f.c.max_graphs = 2;
    open_cache(8, 0);
    OK(cede_graph_prepare(f.g, f.stream, 0));
    HAS(statistics(), (captures, 2), (evictions, 0));
    assert_true(bucket(2).captured);
    gpu->node_bytes = 1000;
    f.c.max_graphs = 0;
    f.c.max_bytes = 5000;
    reopen_cache(1);
    OK(cede_graph_prepare(f.g, f.stream, 0));
    HAS(statistics(), (captures, 3), (bytes, 4000));
}

TEST_WITH(a_full_gpu_takes_graphs_from_others, set_up, tear_down)
{
    open_cache(8, 0);
    gpu->node_bytes = 1000;
    gpu->free_bytes = 6500;
    assert_string_equal(launches("2 4 1"), "2 4 1");
    assert_int_equal(statistics().evictions, 1);
    assert_false(bucket(2).captured);
    assert_int_equal(launch(8), 0); /* all others are gone, and still */
    HAS(bucket(8), (refused, CEDE_GRAPH_NO_MEMORY), (cuda_error, 2));
    assert_non_null(strstr(statistics().error, "CUDA_ERROR_OUT_OF_MEMORY (2)"));
    assert_int_equal(statistics().graphs, 0);
    gpu->free_bytes = FREE_BYTES;
    OK(cede_graph_prepare(f.g, f.stream, 8)); /* on request it is tried again */
    assert_int_equal(launch(8), 8);
    HAS(bucket(8), (refused, CEDE_GRAPH_NOT_REFUSED), (cuda_error, 0), (nodes, 8));
    assert_int_equal(rig_word(&rig, 0), 5);
}

/* What an evicted graph had is there once it has ended, or the pool has given it back. */
TEST_WITH(memory_of_evicted_graphs_is_waited_for, set_up, tear_down)
{
    open_cache(4, 0);
    for (unsigned uses_pool = 0; uses_pool < 2; uses_pool++) {
        reopen_cache(uses_pool);
        OK(rig.cu.stream_synchronize(f.stream));
        f.s.uses_pool = uses_pool;
        gpu->busy = 1;
        gpu->node_bytes = 1000;
        gpu->free_bytes = 6500;
        assert_string_equal(launches("1 2 4"), "1 2 4");
        HAS(statistics(), (evictions, uses_pool ? 2 : 1), (refusals, 0));
    }
    f.c.max_graphs = 1;
    reopen_cache(2);
    OK(rig.cu.stream_synchronize(f.stream));
    gpu->pool_bytes = 0;
    gpu->busy = 0;
    gpu->free_bytes = FREE_BYTES;
    assert_string_equal(launches("1 2"), "1 2");
    assert_int_equal(gpu->free_bytes, FREE_BYTES - 3000); /* of 2 and its pool, not of 1 */
    assert_int_equal(gpu->pool_bytes, 0);
    f.s.uses_pool = false;
    cede_graph_changed(f.g);
    assert_int_equal(launch(2), 2);
    gpu->free_bytes += atomic_exchange(&gpu->pool_bytes, 0);
}

/* ---- changes --------------------------------------------------------------------------------- */

#define MS 1000000U

TEST_WITH(graphs_are_updated_in_place, set_up, tear_down)
{
    f.s = (struct step){.each = 1, .word = 3};
    open_cache(2, 0);
    tick_ns = 5 * MS;
    assert_int_equal(launch(2), 2);
    uint64_t first_us = statistics().capture_us;
    assert_int_equal(first_us, 15000); /* to the end, and to the beginning and end of the making */
    int made = gpu->instantiated, uploads = gpu->uploads;
    f.s.word = 4;
    cede_graph_changed(f.g);
    tick_ns = 2 * MS;
    assert_string_equal(launches("2 2"), "2 2");
    assert_int_equal(rig_word(&rig, 3), 1);
    assert_int_equal(rig_word(&rig, 4), 2);
    assert_int_equal(gpu->instantiated, made);
    assert_int_equal(gpu->uploads, uploads + 1);
    struct cede_graph_statistics t = statistics();
    HAS(t, (captures, 2), (updates, 1), (rebuilds, 0), (saved_us, 3000));
    assert_int_equal(t.capture_us - first_us, 6000);

    gpu->fail_update = 1;
    f.s.word = 5;
    cede_graph_changed(f.g);
    cede_graph_changed(f.g); /* as good as once */
    OK(cede_graph_prepare(f.g, f.stream, 2));
    gpu->fail_update = 0;
    f.s.each = 2;
    cede_graph_changed(f.g);
    assert_int_equal(launch(2), 2);
    assert_int_equal(bucket(2).nodes, 4);
    t = statistics();
    HAS(t, (updates, 1), (rebuilds, 2), (evictions, 0));
    assert_int_equal(rig_word(&rig, 5), 1);
}

/* One that comes while the step is captured is seen by the next launch. */
TEST_WITH(a_change_meanwhile_is_not_lost, set_up, tear_down)
{
    f.s = (struct step){.each = 1, .changes = true};
    open_cache(1, 0);
    assert_int_equal(launch(1), 1);
    f.s.word = 6;
    assert_int_equal(launch(1), 1);
    assert_int_equal(rig_word(&rig, 0), 1);
    assert_int_equal(rig_word(&rig, 6), 1);
    assert_int_equal(statistics().updates, 1);
}

TEST_WITH(a_step_that_can_no_longer_be_captured_loses_its_graph, set_up, tear_down)
{
    open_cache(1, 0);
    assert_int_equal(launch(1), 1);
    f.s.error = 904;
    cede_graph_changed(f.g);
    unsigned took = 9;
    assert_int_equal(cede_graph_launch(f.g, f.stream, 1, &took), -EIO); /* eagerly it fails, too */
    assert_int_equal(took, 0);
    assert_int_equal(bucket(1).refused, CEDE_GRAPH_UNJOINED);
    assert_int_equal(gpu->execs, 0);
    f.s.error = 0;
    assert_int_equal(launch(1), 0);
    assert_int_equal(statistics().refusals, 1);
}
