/* Agents report what a control group is after programs in it were classified: jobs of rules become
 * what they are by that, jobs that somebody typed stay, and only what is concerned is asked about.
 */
#include "fixture.h"

/* What agents have reported, of all programs at once, and what each then is. */
struct agent {
    uint64_t number; /* of the latest report */
    pid_t none;      /* no rule takes it, before a report */
    pid_t later;     /* cannot be told for so many times: */
    unsigned delays;
    unsigned asked, answered;
    enum job_class class[3]; /* by the number of the report */
    uint32_t deadline_us;
    enum job_source source;
    bool slow;
};

static int by_reports(void *arg, pid_t pid, struct job_spec *spec)
{
    struct agent *a = arg;
    const uint64_t until = monotonic_ns() + 6 * NSEC_PER_MSEC;
    while (a->slow && monotonic_ns() < until)
        ;
    a->asked++;
    if (spec->again && a->number <= spec->facts)
        return 0;
    if (pid == a->later && a->number && a->delays-- > 0)
        return -EAGAIN;
    a->answered++;
    *spec = (struct job_spec){.terms = {.class = a->class[a->number],
                                        .weight = 50,
                                        .deadline_us = a->number ? a->deadline_us : 0},
                              .source = a->source,
                              .facts = a->number,
                              .name = "r"};
    return pid != a->none || a->number;
}

static void report(struct fixture *f, struct agent *a)
{
    a->number++;
    engine_facts_came(f->m, NULL);
}

static struct journal_job job_of(struct fixture *f, pid_t pid)
{
    return view(f, job_with(f, pid)).job;
}

static void start_with(struct fixture *f, struct agent *a)
{
    f->rule = by_reports;
    f->rule_arg = a;
    a->source = JOB_RULE;
    start(f, "priority", NULL);
    ticks(f, 100);
}

ENGINE_TEST(test_becomes_another)
{
    struct agent a = {.class = {CLASS_BATCH, CLASS_LATENCY, CLASS_BATCH}};
    programs(f, p, 2, 0);
    start_with(f, &a);
    mock_context(&f->d, p[2] = child(f), 0, 0);
    add(f, p[2], CLASS_LATENCY);
    ticks(f, 100);
    const struct journal_job before = job_of(f, p[0]);
    assert_int_equal(before.class, CLASS_BATCH);
    assert_int_equal(suspended_groups(f), 1);
    report(f, &a);
    ticks(f, 30);
    for (int i = 0; i < 2; i++)
        assert_int_equal(job_of(f, p[i]).class, CLASS_LATENCY);
    assert_int_equal(job_of(f, p[0]).number, before.number);
    assert_int_equal(suspended_groups(f), 0);
    a.deadline_us = 30000;
    report(f, &a);
    ticks(f, 30);
    assert_int_equal(job_of(f, p[0]).class, CLASS_BATCH);
    assert_int_equal(job_of(f, p[0]).deadline_us, 30000);
    assert_int_equal(a.answered, 6);
    /* What is no news changes nothing. */
    engine_facts_came(f->m, NULL);
    ticks(f, 1100);
    assert_int_equal(a.answered, 6);
}

/* Many reports are one look. */
ENGINE_TEST(test_one_look)
{
    struct agent a = {.class = {CLASS_BATCH, CLASS_NORMAL}};
    pid_t pid = child(f), none = child(f);
    mock_context(&f->d, pid, 0, 0);
    mock_context(&f->d, none, 0, 0);
    a.none = none;
    start_with(f, &a);
    assert_int_equal(a.asked, 2);
    a.number++;
    for (int i = 0; i < 200; i++) {
        engine_facts_came(f->m, NULL);
        tick(f);
    }
    ticks(f, 30);
    assert_int_equal(a.asked, 4);
    assert_int_equal(job_of(f, pid).class, CLASS_NORMAL);
    assert_int_equal(job_of(f, none).class, CLASS_NORMAL); /* it was in no job */
}

ENGINE_TEST(test_typed_stays)
{
    struct agent a = {.class = {CLASS_BATCH, CLASS_LATENCY, CLASS_NORMAL}};
    programs(f, p, 4, 0);
    f->rule = by_reports;
    f->rule_arg = &a;
    a.source = JOB_ENVIRONMENT;
    start(f, "priority", NULL);
    add(f, p[0], CLASS_NORMAL);
    ticks(f, 100);
    const struct job_terms to = {.class = CLASS_BATCH, .weight = 70};
    assert_int_equal(engine_change(f->m, job_with(f, p[1]), &to, NULL), 0);
    engine_release(f->m, job_with(f, p[2]));
    report(f, &a);
    ticks(f, 1100);
    assert_int_equal(job_of(f, p[0]).class, CLASS_NORMAL);
    assert_int_equal(job_of(f, p[1]).class, CLASS_BATCH);
    assert_int_equal(job_of(f, p[1]).weight, 70);
    assert_int_equal(job_of(f, p[1]).source, JOB_PID);
    assert_int_equal(job_with(f, p[2]), SLOT_NONE);
    assert_int_equal(job_of(f, p[3]).class, CLASS_LATENCY);
    /* The next daemon knows it, too. */
    restart(f, "priority");
    report(f, &a);
    ticks(f, 1100);
    assert_int_equal(job_of(f, p[1]).weight, 70);
    assert_int_equal(job_of(f, p[3]).class, CLASS_NORMAL);
}

ENGINE_TEST(test_is_told_later)
{
    struct agent a = {.class = {CLASS_BATCH, CLASS_NORMAL}, .delays = 3, .later = child(f)};
    mock_context(&f->d, a.later, 0, 0);
    start_with(f, &a);
    report(f, &a);
    ticks(f, 30);
    assert_int_equal(job_of(f, a.later).class, CLASS_BATCH);
    engine_look_for_jobs(f->m, false); /* there is an answer */
    ticks(f, 30);
    assert_int_equal(a.asked, 3);
    ticks(f, 2100);
    assert_int_equal(job_of(f, a.later).class, CLASS_NORMAL);
    assert_int_equal(a.asked, 5);
}

/* Rules that take long: a part of the jobs per tick, and each has its turn. */
ENGINE_TEST(test_takes_its_time)
{
    struct agent a = {.class = {CLASS_BATCH, CLASS_NORMAL}};
    programs(f, p, 5, 0);
    start_with(f, &a);
    a.slow = true;
    a.asked = 0;
    report(f, &a);
    ticks(f, 25);
    assert_int_equal(a.asked, 1);
    ticks(f, 500);
    assert_int_equal(a.asked, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(job_of(f, p[i]).class, CLASS_NORMAL);
}

/* One that has yielded has its new class when it acquires. */
ENGINE_TEST(test_yielded)
{
    struct agent a = {.class = {CLASS_NORMAL, CLASS_LATENCY}};
    programs(f, p, 1, 0);
    start_with(f, &a);
    const uint32_t job = job_with(f, p[0]);
    assert_int_equal(engine_yield(f->m, job, YIELD_CLASS, 0, true, &f->err), 0);
    report(f, &a);
    ticks(f, 30);
    assert_int_equal(job_of(f, p[0]).class, CLASS_BATCH);
    yield_acquire(engine_model(f->m), job, 0);
    ticks(f, 1);
    assert_int_equal(job_of(f, p[0]).class, CLASS_LATENCY);
}
