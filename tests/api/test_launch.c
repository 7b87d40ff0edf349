/* Which programs one thing has started, and what a rule says of that. */
#include "../test.h"
#include "api/rules/launch.h"
#include "daemon/config.h"

/* Of one that can be told. */
static uint64_t number_of(const struct facts *f, const struct outcome *o)
{
    uint64_t n;
    assert_int_equal(launch_of(f, o, &n), 0);
    return n;
}

/* They have the same number. */
TEST(numbers)
{
    struct rule r = {.title = "r", .launch = LAUNCH_CONTAINER},
                other = {.title = "other", .launch = LAUNCH_CONTAINER},
                words = {.class_said = true};
    static struct facts a = {.proc = {7, 1}, .cgroup = "/a", .workload = {.container = "c"}}, b;
    struct outcome o = {.by = BY_RULE, .rule = &r}, of_other = {.by = BY_RULE, .rule = &other};
    b = a;
    b.proc.pid = 8;
    /* The container's, of one user and rule. */
    assert_int_equal(number_of(&a, &o), number_of(&b, &o));
    assert_true(number_of(&a, &o));
    b.of.uid = 1;
    assert_int_not_equal(number_of(&a, &o), number_of(&b, &o));
    b.of.uid = 0;
    assert_int_not_equal(number_of(&a, &o), number_of(&b, &of_other));
    snprintf(b.workload.container, sizeof(b.workload.container), "d");
    assert_int_not_equal(number_of(&a, &o), number_of(&b, &o));
    /* Where a rule says nothing, a step of Slurm, whatever the container. */
    r.launch = LAUNCH_ANY;
    a.workload.slurm_job = b.workload.slurm_job = 3;
    a.workload.slurm_step[0] = b.workload.slurm_step[0] = '0';
    assert_int_equal(number_of(&a, &o), number_of(&b, &o));
    b.workload.slurm_step[0] = '1';
    assert_int_not_equal(number_of(&a, &o), number_of(&b, &o));
    /* What a rule says. */
    static const struct {
        enum launch_by by;
        bool none, same;
    } rows[] = {{LAUNCH_PROCESS, true, true},
                {LAUNCH_CGROUP, false, true},
                {LAUNCH_CONTAINER, false, false},
                {LAUNCH_STEP, false, false}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        r.launch = rows[i].by;
        assert_int_equal(number_of(&a, &o) == 0, rows[i].none);
        assert_int_equal(number_of(&a, &o) == number_of(&b, &o), rows[i].same);
    }
    /* Words count for who said them first, whatever the container is. */
    o = (struct outcome){.by = BY_RULE, .rule = &words};
    a.of.origin.speaker = b.of.origin.speaker = (struct proc_id){5, 1};
    assert_int_equal(number_of(&a, &o), number_of(&b, &o));
    o = (struct outcome){.by = BY_ENVIRONMENT};
    assert_int_equal(number_of(&a, &o), number_of(&b, &o));
    b.of.origin.speaker.start_ticks++;
    assert_int_not_equal(number_of(&a, &o), number_of(&b, &o));
}

/* A group is one of Unix, or says which programs are one job; a rule may say both. */
TEST(of_a_rule)
{
    static const char good[] = "[rule a]\ngroup = root\nclass = batch\n"
                               "[rule b]\ngroup = step\ngroup = 0\nclass = batch\n",
                      bad[] = "[rule c]\ngroup = session\nclass = batch\n"; /* matches nothing */
    struct config c;
    struct error err = {""};
    assert_int_equal(config_parse("f", good, sizeof(good) - 1, &c, &err), 0);
    assert_int_equal(c.rules[0].launch, LAUNCH_ANY);
    assert_int_equal(c.rules[0].conditions[0].kind, COND_GROUP);
    assert_int_equal(c.rules[1].launch, LAUNCH_STEP);
    assert_int_equal(c.rules[1].n, 1);
    assert_string_equal(launch_name(c.rules[1].launch), "step");
    config_free(&c);
    assert_true(config_parse("f", bad, sizeof(bad) - 1, &c, &err) < 0);
}
