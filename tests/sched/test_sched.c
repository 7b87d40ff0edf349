/* The scheduler's tables: slots, refusals, random event sequences that must keep its promises. */
#include "../sanitized.h"
#include "fixture.h"

#include <math.h>

TEST(refusals)
{
    /* In this order: what was accepted is there for the rows that follow. */
    static const struct {
        int result;
        struct sched_event e;
    } rows[] = {
        {-EINVAL, {.type = EV_JOB_ADD, .job = 4, .class = B, .weight = 100}},
        {-EINVAL, {.type = EV_JOB_ADD, .class = B, .weight = 0}},
        {-EINVAL, {.type = EV_JOB_ADD, .class = B, .weight = 10001}},
        {-EINVAL, {.type = EV_JOB_ADD, .class = CLASS_COUNT, .weight = 100}},
        {-EINVAL, {.type = EV_GROUP_ADD}},
        {0, {.type = EV_JOB_ADD, .class = B, .weight = 100}},
        {-EEXIST, {.type = EV_JOB_ADD, .class = B, .weight = 100}},
        {-EINVAL, {.type = EV_GROUP_ADD, .group = 4}},
        {-EINVAL, {.type = EV_GROUP_ADD, .device = 2}},
        {0, {.type = EV_GROUP_ADD, .device = 1}},
        {-EEXIST, {.type = EV_GROUP_ADD}},
        {-EINVAL, {.type = EV_GROUP_REMOVE, .group = 1}},
        {-EINVAL, {.type = EV_JOB_PAUSE, .job = 1}},
        {-EINVAL, {.type = EV_DEMAND, .device = 2}},
        {-EINVAL, {.type = EV_DEVICE, .device = 2}},
        {-EINVAL, {.type = (enum sched_event_type)99}},
    };
    struct sched *c = scheduler(2, 4, 4);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int r = sched_event(c, &rows[i].e);
        if (r != rows[i].result)
            fail_msg("row %zu: %d, not %d", i, r, rows[i].result);
    }
    assert_int_equal(sched_set_policy(c, "nonsense"), -EINVAL);
    assert_string_equal(sched_policy(c), "laxity");

    struct sched_plan plan;
    sched_decide(c, 0, &plan);
    assert_int_equal(plan.n, 1);
    assert_int_equal(plan.wake_ns, TIME_NEVER);
    sched_free(c);
}

static struct sched_setting setting(const struct sched_plan *plan, uint32_t g)
{
    for (size_t i = 0; i < plan->n; i++) {
        if (plan->settings[i].group == g)
            return plan->settings[i];
    }
    fail_msg("no group %u in the plan", g);
    return (struct sched_setting){0};
}

/* Job 0 is a latency job, 1 and 2 are batch jobs; group 10 + j computes, 20 + j copies. */
TEST(test_copies)
{
    for (uint32_t apart = 0; apart < 2; apart++) {
        struct sched *c = scheduler(1, 3, 32);
        struct sched_params p = *sched_current_params(c);
        struct sched_plan plan;
        p.copies_apart = apart;
        assert_int_equal(sched_set_params(c, &p), 0);
        for (uint32_t j = 0; j < 3; j++) {
            EVENT(c, JOB_ADD, .job = j, .class = j ? B : L, .weight = WEIGHT_DEFAULT);
            EVENT(c, GROUP_ADD, .job = j, .group = 10 + j, .computes = true);
            EVENT(c, GROUP_ADD, .job = j, .group = 20 + j);
        }
        sched_decide(c, 0, &plan);
        uint32_t holder = setting(&plan, 11).runnable ? 1 : 2, waits = 3 - holder;
        assert_false(setting(&plan, 10 + waits).runnable);
        assert_int_equal(setting(&plan, 10 + holder).timeslice_us, p.timeslice_min_us);
        assert_int_equal(setting(&plan, 20 + waits).runnable, apart);
        assert_true(setting(&plan, 20 + holder).runnable);
        assert_int_equal(setting(&plan, 20 + holder).timeslice_us, apart ? 0 : p.timeslice_min_us);
        assert_int_equal(setting(&plan, 20).timeslice_us, setting(&plan, 10).timeslice_us);

        /* Paused is paused, all of it. */
        EVENT(c, JOB_PAUSE, .job = 1, .on = true);
        sched_decide(c, 0, &plan);
        assert_false(setting(&plan, 11).runnable || setting(&plan, 21).runnable);
        assert_true(setting(&plan, 12).runnable && setting(&plan, 22).runnable);
        sched_free(c);
    }
}

/* A latency job that is never done has 38 ms of each 40 with a floor of 0.05: a job that is only
 * looked at for 20 would have nothing to show. */
TEST(turn_with_floor_has_a_slice)
{
    static const struct {
        double floor;
        bool idle;
        uint64_t turn_ms;
    } cases[] = {{0, true, 20},      {0.05, true, 40},   {0.5, true, 20},
                 {0.005, true, 400}, {0.05, false, 200}, {0.005, false, 400}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct sched *c = scheduler(1, 3, 3);
        struct sched_params p;
        struct sched_plan plan;
        params_default(&p);
        p.floor = cases[i].floor;
        assert_int_equal(sched_set_params(c, &p), 0);
        for (uint32_t j = 0; j < 3; j++)
            add_job(c, j, j ? B : L);
        EVENT(c, DEMAND, .job = 1, .on = !cases[i].idle);
        sched_decide(c, 0, &plan);
        assert_true(setting(&plan, 1).runnable);
        assert_int_equal(plan.wake_ns, cases[i].turn_ms * MS);
        sched_decide(c, plan.wake_ns, &plan);
        assert_false(setting(&plan, 1).runnable);
        sched_free(c);
    }
}

TEST(params)
{
    static const struct {
        const char *name;
        double value;
        bool allowed;
    } rows[] = {
        {"floor", 0.6, false},
        {"timeslice_min_us", 0, false},
        {"probe_us", 200001, false}, /* longer than a turn */
        {"floor", 0.001, true},
        {"deadline_share", 0.001, true},
        /* So small that the times which follow from it fit no integer; the same for deadlines. */
        {"floor", 1e-20, false},
        {"floor", 5e-324, false},
        {"floor", 0.0009, false},
        {"floor", -0.0009, false},
        {"floor", NAN, false},
        {"deadline_share", 1e-20, false},
        {"deadline_share", 5e-324, false},
        {"deadline_share", 0.0009, false},
        {"deadline_share", -0.0009, false},
    };
    struct sched *c = scheduler(1, 1, 1), *none;
    struct sched_params p;
    const struct param *what = NULL;
    char range[PARAM_RANGE];
    params_default(&p);
    assert_int_equal(params_check(&p, &what), 0);
    assert_int_equal(p.rotation_us, 200000);
    assert_string_equal(param_range(param_find("floor"), range), "0, or 0.001 to 0.5");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        params_default(&p);
        assert_int_equal(param_set(&p, param_find(rows[i].name), rows[i].value), 0);
        int r = params_check(&p, &what);
        if (r != (rows[i].allowed ? 0 : -EINVAL) || (r && strcmp(what->name, rows[i].name) != 0))
            fail_msg("%s = %g: %d", rows[i].name, rows[i].value, r);
        assert_int_equal(sched_set_params(c, &p), r);
    }
    /* Each by its name: what is put there is there, and nothing else changes. */
    for (unsigned i = 0; param_at(i); i++) {
        const struct param *f = param_at(i);
        assert_ptr_equal(param_find(f->name), f);
        params_default(&p);
        struct sched_params before = p;
        double was = param_get(&p, f);
        assert_int_equal(param_set(&p, f, was + 1), 0);
        assert_true(param_get(&p, f) == was + 1);
        for (unsigned k = 0; param_at(k); k++)
            assert_true(k == i || param_get(&p, param_at(k)) == param_get(&before, param_at(k)));
        assert_int_equal(param_set(&p, f, -1), f->real ? 0 : -EINVAL);
        assert_int_equal(param_set(&p, f, 1.5), f->real ? 0 : -EINVAL);
        assert_int_equal(param_set(&p, f, 1e10), f->real ? 0 : -EINVAL);
    }
    assert_null(param_find("timeslice"));
    assert_null(param_at(PARAMS_COUNT));
    params_default(&p);
    assert_int_equal(sched_new(&(struct sched_limits){0, 1, 1, 1}, &p, &none), -EINVAL);
    sched_free(c);
}

TEST(test_names)
{
    enum job_class k;
    assert_int_equal(job_class_parse("batch", &k), 0);
    assert_int_equal(k, CLASS_BATCH);
    assert_int_equal(job_class_parse("Batch", &k), -EINVAL);
    assert_int_equal(job_class_parse("", &k), -EINVAL);
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        assert_int_equal(job_class_parse(job_class_name((enum job_class)i), &k), 0);
        assert_int_equal(k, i);
    }
    const char *name, *summary;
    unsigned n = 0;
    while (sched_policy_at(n, &name, &summary))
        n++;
    assert_int_equal(n, 4);
}

enum { DEVICES = 3, JOBS = 12, GROUPS = 40, ACCOUNTS = 4, STEPS = 20000 };

/* What the events so far amount to. */
struct model {
    uint64_t s, now; /* random state; time */
    bool limited;    /* some have floors and ceilings */
    bool recorded;   /* there is a record of switches: light jobs may run beside others */
    bool job[JOBS], paused[JOBS], gated[DEVICES];
    enum job_class class[JOBS];
    uint32_t gjob[GROUPS], gdev[GROUPS]; /* job SLOT_NONE: no such group */
    bool gcomputes[GROUPS];
    uint32_t idle[JOBS]; /* on these devices it may be so: bit map */
};

static struct sched_event random_event(struct model *m)
{
    uint64_t *s = &m->s;
    return (struct sched_event){.type = (enum sched_event_type)(rng(s) % EV_COUNT),
                                .job = rng(s) % JOBS,
                                .group = rng(s) % GROUPS,
                                .device = rng(s) % DEVICES,
                                .account = rng(s) % ACCOUNTS,
                                .class = (enum job_class)(rng(s) % CLASS_COUNT),
                                .weight = 1 + rng(s) % 10000,
                                .on = rng(s) % 2,
                                .computes = rng(s) % 2,
                                .gpu_min = m->limited && rng(s) % 3 == 0 ? rng(s) % 40 * 0.01 : 0,
                                .gpu_max =
                                    m->limited && rng(s) % 3 == 0 ? 0.4 + rng(s) % 60 * 0.01 : 0,
                                .budget_us = rng(s) % 4 ? 0 : rng(s) % 100000,
                                .min_speed = rng(s) % 4 ? 0 : 1 - rng(s) % 99 * 0.01,
                                .at_ns = m->now + rng(s) % 2000000U,
                                .returns = rng(s) % 1000,
                                .busy_ns = rng(s) % 100000000,
                                .window_ns = 100000000,
                                .deadline_ns = rng(s) % 3   ? m->now + rng(s) % 4000000000U
                                               : rng(s) % 2 ? TIME_NEVER
                                                            : rng(s),
                                .left_ns = rng(s) % 4 ? rng(s) : UINT64_MAX - rng(s),
                                .may_promote = rng(s) % 2};
}

static void model_event(struct model *m, struct sched_event e, int r)
{
    bool jlive = m->job[e.job], glive = m->gjob[e.group] != SLOT_NONE;
    switch (e.type) {
    case EV_JOB_ADD:
        assert_int_equal(r, jlive ? -EEXIST : 0);
        if (!jlive) {
            m->job[e.job] = true;
            m->paused[e.job] = false;
            m->idle[e.job] = 0;
            m->class[e.job] = e.class;
        }
        break;
    case EV_JOB_CHANGE:
        assert_int_equal(r, jlive ? 0 : -EINVAL);
        if (jlive)
            m->class[e.job] = e.class;
        break;
    case EV_JOB_REMOVE:
        assert_int_equal(r, jlive ? 0 : -EINVAL);
        m->job[e.job] = false;
        for (uint32_t g = 0; g < GROUPS; g++)
            m->gjob[g] = m->gjob[g] == e.job ? SLOT_NONE : m->gjob[g];
        break;
    case EV_JOB_PAUSE:
        assert_int_equal(r, jlive ? 0 : -EINVAL);
        if (jlive)
            m->paused[e.job] = e.on;
        break;
    case EV_GROUP_ADD:
        assert_int_equal(r, !jlive ? -EINVAL : glive ? -EEXIST : 0);
        if (r == 0) {
            m->gjob[e.group] = e.job;
            m->gdev[e.group] = e.device;
            m->gcomputes[e.group] = e.computes;
        }
        break;
    case EV_ACCOUNT:
        assert_int_equal(r, 0);
        break;
    case EV_GROUP_REMOVE:
    case EV_GROUP_CHANGE:
        assert_int_equal(r, glive ? 0 : -EINVAL);
        if (e.type == EV_GROUP_REMOVE)
            m->gjob[e.group] = SLOT_NONE;
        else if (glive)
            m->gcomputes[e.group] = e.computes;
        break;
    case EV_DEMAND:
    case EV_DEADLINE:
        assert_int_equal(r, jlive ? 0 : -EINVAL);
        if (e.type == EV_DEMAND)
            m->idle[e.job] = (m->idle[e.job] & ~(1U << e.device)) | (e.on ? 0 : 1U << e.device);
        else if (e.on && e.deadline_ns == TIME_NEVER)
            m->idle[e.job] = (1U << DEVICES) - 1;
        break;
    case EV_SWITCH:
        assert_int_equal(r, glive && m->gdev[e.group] == e.device ? 0 : -EINVAL);
        break;
    case EV_DEVICE:
        assert_int_equal(r, 0);
        m->gated[e.device] = e.on;
        break;
    case EV_ACTIVITY:
        assert_int_equal(r, 0);
        break;
    case EV_COUNT:
        fail();
    }
}

/* On which devices a job's computing groups are, and on which of them one runs: bit maps. Gated
 * devices do not count. */
static uint32_t computes_on(const struct model *m, const bool *runs, uint32_t job)
{
    uint32_t map = 0;
    for (uint32_t g = 0; g < GROUPS; g++) {
        if (m->gjob[g] == job && m->gcomputes[g] && !m->gated[m->gdev[g]] && (!runs || runs[g]))
            map |= 1U << m->gdev[g];
    }
    return map;
}

static bool is_gang(const struct model *m, uint32_t job)
{
    return __builtin_popcount(computes_on(m, NULL, job)) > 1;
}

/* Where it may have contexts that it does not use, since it works elsewhere: these may run beside
 * others. */
static uint32_t strays(const struct model *m, uint32_t job)
{
    return is_gang(m, job) ? m->idle[job] : 0;
}

/* Of the jobs of a device: which run, and which is the highest class of those not paused. */
static enum job_class on_device(const struct model *m, uint32_t d, const bool *runs, bool *there,
                                bool *jruns)
{
    enum job_class top = CLASS_COUNT;
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint32_t j = m->gjob[g];
        if (j == SLOT_NONE || m->gdev[g] != d)
            continue;
        there[j] = true;
        jruns[j] |= runs[g];
        top = !m->paused[j] && m->class[j] < top ? m->class[j] : top;
    }
    return top;
}

/* Somebody runs on the device if anybody could: all that wait are gangs. */
static void check_device(const struct model *m, uint32_t d, const bool *runs, bool one_lower)
{
    bool there[JOBS] = {0}, jruns[JOBS] = {0};
    enum job_class top = on_device(m, d, runs, there, jruns);
    uint32_t lower = 0, lower_computing = 0, running = 0, single = 0, waiting_gangs = 0;
    bool any = false;
    for (uint32_t g = 0; g < GROUPS; g++)
        lower_computing += m->gjob[g] != SLOT_NONE && m->gdev[g] == d && runs[g] &&
                           m->gcomputes[g] && m->class[m->gjob[g]] > top &&
                           !(strays(m, m->gjob[g]) >> d & 1);
    for (uint32_t j = 0; j < JOBS; j++) {
        bool gang = is_gang(m, j) && computes_on(m, NULL, j) >> d & 1;
        any |= jruns[j];
        jruns[j] |= strays(m, j) >> d & 1;
        running += jruns[j] && !(strays(m, j) >> d & 1);
        lower += jruns[j] && m->class[j] > top && !(strays(m, j) >> d & 1);
        single += there[j] && !m->paused[j] && !gang;
        waiting_gangs += there[j] && !m->paused[j] && gang && !jruns[j] && m->class[j] == top;
    }
    assert_true(any || top == CLASS_COUNT || !single);
    /* Gated, those who want nothing are let be. */
    if (one_lower && !m->gated[d] && !m->recorded) {
        assert_true(lower <= 1 && lower_computing <= 1);
        /* Where a gang of the top class waits, all jobs take turns. */
        assert_true(!waiting_gangs || top == CLASS_LATENCY || running <= 1);
    }
}

/* The plan holds each living group once, those to stop first; what is paused does not run, a gang
 * runs on all its devices or on none, no gang waits whose devices are all free (but for a limit),
 * and the timer lies ahead. */
static void check_plan(const struct model *m, const struct sched_plan *plan, bool one_lower,
                       uint32_t slice_max_us)
{
    bool seen[GROUPS] = {0}, runs[GROUPS] = {0}, started = false;
    assert_true(plan->wake_ns > m->now);
    for (size_t k = 0; k < plan->n; k++) {
        const struct sched_setting *s = &plan->settings[k];
        assert_true(s->group < GROUPS && m->gjob[s->group] != SLOT_NONE && !seen[s->group]);
        seen[s->group] = true;
        runs[s->group] = s->runnable;
        assert_true(s->runnable || !started);
        started |= s->runnable;
        assert_false(s->runnable && m->paused[m->gjob[s->group]]);
        assert_true(s->timeslice_us <= slice_max_us);
    }
    for (uint32_t g = 0; g < GROUPS; g++)
        assert_int_equal(seen[g], m->gjob[g] != SLOT_NONE);
    uint32_t taken = 0;
    for (uint32_t g = 0; g < GROUPS; g++)
        taken |= runs[g] ? 1U << m->gdev[g] : 0;
    for (uint32_t j = 0; j < JOBS; j++) {
        uint32_t on = computes_on(m, NULL, j) & ~strays(m, j), run = computes_on(m, runs, j) & on;
        if (!m->job[j] || m->paused[j] || !is_gang(m, j) || !on)
            continue;
        assert_true(run == 0 || run == on);
        assert_true(run || m->limited || (computes_on(m, NULL, j) & taken));
    }
    for (uint32_t d = 0; d < DEVICES && !m->limited; d++)
        check_device(m, d, runs, one_lower);
}

/* Any sequence of events, under any policy, keeps what check_plan() says. */
TEST(random_events)
{
    static const char *const names[] = {"laxity", "edf", "priority", "shares"};
    for (uint64_t seed = 1; seed <= 40; seed += SANITIZED ? 3 : 1) {
        struct model m = {.s = seed, .limited = seed > 12, .recorded = seed % 3 == 0};
        struct sched *c = scheduler(DEVICES, JOBS, GROUPS);
        struct sched_params p;
        params_default(&p);
        for (uint32_t i = 0; i < GROUPS; i++)
            m.gjob[i] = SLOT_NONE;
        for (int step = 0; step < STEPS; step++) {
            struct sched_event e = random_event(&m);
            struct sched_plan plan;
            /* Half of the sequences are without gated devices, and their jobs live longer. */
            if (seed % 2 && (e.type == EV_DEVICE || (e.type == EV_JOB_REMOVE && rng(&m.s) % 4)))
                continue;
            if (e.type == EV_SWITCH && !m.recorded)
                continue;
            model_event(&m, e, sched_event(c, &e));
            if (rng(&m.s) % 50 == 0)
                assert_int_equal(sched_set_policy(c, names[rng(&m.s) % 4]), 0);
            if (rng(&m.s) % 100 == 0) {
                p.floor = (rng(&m.s) % 3) * 0.1;
                assert_int_equal(sched_set_params(c, &p), 0);
            }
            m.now += rng(&m.s) % 100000000;
            sched_decide(c, m.now, &plan);
            check_plan(&m, &plan, strcmp(sched_policy(c), "priority") == 0, p.timeslice_max_us);
        }
        sched_free(c);
    }
}
