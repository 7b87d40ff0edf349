/* Decisions of a graph cache, as tables: sizes of buckets, captures, and what a failed one means.
 * Which bucket is picked or evicted, and what attempts come to, show test_graph*.c. */
#include "../fixture.h"
#include "libcede/pure/graph_plan.h"

#define ELEMENTS(a) (sizeof(a) / sizeof(*(a)))

TEST(sizes_are_powers_of_two_or_a_list)
{
    static const struct {
        unsigned max_batch, nlist, list[4];
        int n;
        unsigned sizes[5];
    } cases[] = {
        {1, 0, {0}, 1, {1}},
        {2, 0, {0}, 2, {1, 2}},
        {8, 0, {0}, 4, {1, 2, 4, 8}},
        {9, 0, {0}, 5, {1, 2, 4, 8, 9}},
        {0, 0, {0}, -EINVAL, {0}},
        {(1U << 30) + 1, 0, {0}, -EINVAL, {0}},
        {0, 3, {3, 7, 100}, 3, {3, 7, 100}},
        {0, 3, {3, 3, 100}, -EINVAL, {0}}, /* not rising */
        {0, 2, {7, 3}, -EINVAL, {0}},
        {0, 1, {0}, -EINVAL, {0}},
        {0, 1, {UINT32_MAX}, -EINVAL, {0}},
        {0, CEDE_GRAPH_BUCKETS_MAX + 1, {1}, -EINVAL, {0}},
    };
    for (size_t i = 0; i < ELEMENTS(cases); i++) {
        struct cede_graph_config c = {
            .max_batch = cases[i].max_batch, .nbuckets = cases[i].nlist, .buckets = cases[i].list};
        unsigned out[CEDE_GRAPH_BUCKETS_MAX];
        print_message("case %zu\n", i);
        assert_int_equal(cede_graph_sizes(&c, out), cases[i].n);
        for (int k = 0; k < cases[i].n; k++)
            assert_int_equal(out[k], cases[i].sizes[k]);
    }
    struct cede_graph_config none = {.nbuckets = 1}, most = {.max_batch = 1U << 30};
    unsigned out[CEDE_GRAPH_BUCKETS_MAX];
    assert_int_equal(cede_graph_sizes(&none, out), -EINVAL);
    assert_int_equal(cede_graph_sizes(&most, out), 31);
}

TEST(a_bucket_is_due)
{
    static const struct {
        unsigned eager, evictions, warmups;
        bool due;
    } cases[] = {
        {0, 0, 0, true},     {0, 0, 1, false},    {1, 0, 1, true},      {2, 0, 3, false},
        {1, 1, 1, false},    {2, 1, 1, true},     {2, 1, 100, true}, /* it has been warm */
        {3, 2, 0, false},    {4, 2, 0, true},     {1023, 10, 1, false}, {1024, 10, 1, true},
        {1024, 11, 1, true}, {1024, 99, 1, true},
    };
    for (size_t i = 0; i < ELEMENTS(cases); i++) {
        struct graph_use u = {.eager = cases[i].eager, .evictions = cases[i].evictions};
        print_message("case %zu\n", i);
        assert_int_equal(cede_graph_due(&u, cases[i].warmups), cases[i].due);
    }
}

TEST(every_code_has_its_reason)
{
    static const struct {
        int code;
        bool relaxed, ambiguous;
        enum cede_graph_reason reason;
    } cases[] = {
        {900, false, true, CEDE_GRAPH_SYNCHRONIZES},
        {900, true, true, CEDE_GRAPH_UNSAFE_CALL},
        {901, false, true, CEDE_GRAPH_INVALIDATED},
        {901, true, true, CEDE_GRAPH_UNSAFE_CALL},
        {902, false, false, CEDE_GRAPH_MERGES},
        {903, false, false, CEDE_GRAPH_UNMATCHED},
        {904, false, false, CEDE_GRAPH_UNJOINED},
        {905, false, false, CEDE_GRAPH_OUTSIDE_EVENT},
        {906, false, false, CEDE_GRAPH_DEFAULT_STREAM},
        {907, false, false, CEDE_GRAPH_CAPTURED_EVENT},
        {908, false, false, CEDE_GRAPH_OTHER_THREAD},
        {904, true, false, CEDE_GRAPH_UNJOINED},
        {401, false, false, CEDE_GRAPH_UNMATCHED},
        {2, false, false, CEDE_GRAPH_NO_MEMORY},
        {801, false, false, CEDE_GRAPH_OTHER},
        {909, false, false, CEDE_GRAPH_OTHER},
        {899, false, false, CEDE_GRAPH_OTHER},
    };
    for (size_t i = 0; i < ELEMENTS(cases); i++) {
        print_message("case %zu\n", i);
        assert_int_equal(cede_graph_explain(cases[i].code, cases[i].relaxed), cases[i].reason);
        assert_int_equal(cede_graph_ambiguous(cases[i].code), cases[i].ambiguous);
    }
}

/* Each in words of its own, which fit into the statistics' error with what stands before. */
TEST(every_reason_has_words)
{
    struct cede_graph_statistics s;
    for (unsigned i = 0; i <= CEDE_GRAPH_OTHER; i++) {
        const char *text = cede_graph_text((enum cede_graph_reason)i);
        assert_non_null(text);
        assert_true(strlen(text) > 5 && strlen(text) + 60 < sizeof(s.error));
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(text, cede_graph_text((enum cede_graph_reason)k));
    }
    assert_string_equal(cede_graph_text((enum cede_graph_reason)99), "unknown reason");
}
