/* What is done with a job above its memory-max, and how often. */
#include "../test.h"
#include "plan/memory_limit.h"

#define S 1000000000ULL

struct step {
    uint64_t at_s, has;
    bool paused;
    enum memory_act act;
};

static void goes(enum memory_over over, const struct step *v, size_t n)
{
    struct memory_watch w = {0};
    for (size_t i = 0; i < n; i++)
        assert_int_equal(
            memory_limit_decide(&w, 10, over, v[i].has, v[i].paused, 1000 * S + v[i].at_s * S),
            v[i].act);
}
#define GOES(over, ...)                                                                            \
    goes(over, (const struct step[]){__VA_ARGS__},                                                 \
         sizeof((const struct step[]){__VA_ARGS__}) / sizeof(struct step))

TEST(a_warning_each_minute)
{
    GOES(MEMORY_WARN, {0, 10, false, MEMORY_LEAVE}, {1, 11, false, MEMORY_TELL},
         {2, 99, false, MEMORY_LEAVE}, {3, 9, false, MEMORY_LEAVE}, {4, 11, false, MEMORY_LEAVE},
         {61, 11, false, MEMORY_TELL});
}

TEST(paused_again_with_more)
{
    GOES(MEMORY_PAUSE, {0, 11, false, MEMORY_STOP}, {1, 11, true, MEMORY_LEAVE},
         {2, 11, false, MEMORY_LEAVE}, {3, 12, false, MEMORY_STOP}, {4, 13, true, MEMORY_LEAVE},
         {5, 9, false, MEMORY_LEAVE}, {6, 11, false, MEMORY_STOP});
}

TEST(killed_until_it_is_gone)
{
    GOES(MEMORY_KILL, {0, 11, true, MEMORY_END}, {0, 11, true, MEMORY_LEAVE},
         {1, 11, false, MEMORY_END}, {2, 0, false, MEMORY_LEAVE});
}

TEST(no_limit)
{
    struct memory_watch w = {0};
    assert_int_equal(memory_limit_decide(&w, 0, MEMORY_KILL, UINT64_MAX, false, S), MEMORY_LEAVE);
}
