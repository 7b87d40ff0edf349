/* What is said of control groups of a process that cannot be looked at. */
#include "../test.h"
#include "who/cgroup.h"

#include <sys/resource.h>
#include <unistd.h>

/* What the next function may find on its stack: the end of a path, without a slash. */
static void __attribute__((noinline)) use_stack(void)
{
    char used[32768];
    memset(used, 'x', sizeof(used));
    __asm__ volatile("" ::"r"(used) : "memory");
}

TEST(without_descriptors)
{
    struct cgroup g = {0};
    struct rlimit before;
    uint64_t ids[CGROUP_LEVELS_MAX];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    use_stack();
    const bool above = cgroup_above(getpid(), "x", &g), own = cgroup_own(getpid(), &g);
    bool unknown = false;
    for (uint32_t h = 1; h <= CGROUP_HIERARCHIES; h++)
        unknown |= cgroup_levels(getpid(), h, ids) < 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_false(above || own || g.hierarchy);
    if (!unknown)
        skip(); /* there are no groups here */
}
