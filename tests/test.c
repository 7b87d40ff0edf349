/* See test.h. */
#include "test.h"

static struct CMUnitTest tests[64];
static size_t count;

void test_add(const struct CMUnitTest *test)
{
    if (count == sizeof(tests) / sizeof(*tests))
        abort();
    tests[count++] = *test;
}

const struct CMUnitTest *test_list(size_t *n)
{
    *n = count;
    return tests;
}

int test_run(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    cmocka_set_test_filter(getenv("FILTER"));
    return _cmocka_run_group_tests("tests", tests, count, set_up, tear_down);
}
