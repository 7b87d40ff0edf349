/* Whether a job is starting on a device: a table of what was seen of it. */
#include "../test.h"
#include "plan/still_starting.h"

#define S 1000000000ULL

/* In seconds; until 0: it is not starting. */
static const struct {
    const char *what;
    unsigned opened, grew, max, now, until;
} rows[] = {
    {"never seen", 0, 0, 300, 1000, 0},
    {"grew, but never opened it", 0, 999, 300, 1000, 0},
    {"opened it just now", 1000, 0, 300, 1000, 1300},
    {"opened it a while ago, and has not grown since", 1000, 0, 300, 1019, 1300},
    {"quiet for long enough", 1000, 0, 300, 1020, 0},
    {"grew since", 1000, 1015, 300, 1030, 1300},
    {"grew since, and is quiet", 1000, 1015, 300, 1035, 0},
    {"still grows just before its time is up", 1000, 1298, 300, 1299, 1300},
    {"grows for ever", 1000, 1300, 300, 1300, 0},
    {"grew long after its start", 1000, 5000, 300, 5001, 0},
    {"less than the quiet time is allowed", 1000, 0, 5, 1004, 1005},
    {"and is over", 1000, 0, 5, 1005, 0},
    {"nobody waits for starts", 1000, 1000, 0, 1000, 0},
    {"a second process opened it", 5000, 1000, 300, 5010, 5300},
};

TEST(table)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct starting s = {rows[i].opened * S, rows[i].grew * S};
        uint64_t until = starting_until(&s, rows[i].max * S, rows[i].now * S);
        if (until != rows[i].until * S)
            fail_msg("%s: until %llu s", rows[i].what, (unsigned long long)(until / S));
    }
}

/* A program that is restarted for ever does not keep others where they are for ever. */
TEST(spells)
{
    struct starting_spell s = {.last_ns = 0};
    for (uint64_t t = 1000; t < 5000; t += 8)
        assert_int_equal(starting_opens(&s, t * S), t < 1020);
    assert_false(starting_opens(&s, 5050 * S));
    assert_true(starting_opens(&s, 5110 * S)); /* after a rest */
    assert_true(starting_opens(&s, 5129 * S));
    assert_false(starting_opens(&s, 5130 * S));
}
