/* The scheduler's tables: slots, refusals, random event sequences that must keep its promises. */
#include "sched/sched.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sched *new_core(uint32_t devices, uint32_t jobs, uint32_t groups)
{
    struct sched_params p;
    struct sched *c;
    params_default(&p);
    assert_int_equal(sched_new(&(struct sched_limits){devices, jobs, groups}, &p, &c), 0);
    return c;
}

static int ev(struct sched *c, struct sched_event e)
{
    return sched_event(c, &e);
}

static struct sched_event add(uint32_t job, enum job_class class, uint32_t weight)
{
    return (struct sched_event){.type = EV_JOB_ADD, .job = job, .class = class, .weight = weight};
}

static struct sched_event group(uint32_t g, uint32_t job, uint32_t device)
{
    return (struct sched_event){.type = EV_GROUP_ADD, .group = g, .job = job, .device = device};
}

static void test_refusals(void **state)
{
    (void)state;
    struct sched *c = new_core(2, 4, 4);
    assert_int_equal(ev(c, add(4, CLASS_BATCH, 100)), -EINVAL);
    assert_int_equal(ev(c, add(0, CLASS_BATCH, 0)), -EINVAL);
    assert_int_equal(ev(c, add(0, CLASS_BATCH, 10001)), -EINVAL);
    assert_int_equal(ev(c, add(0, CLASS_COUNT, 100)), -EINVAL);
    assert_int_equal(ev(c, group(0, 0, 0)), -EINVAL);
    assert_int_equal(ev(c, add(0, CLASS_BATCH, 100)), 0);
    assert_int_equal(ev(c, add(0, CLASS_BATCH, 100)), -EEXIST);
    assert_int_equal(ev(c, group(4, 0, 0)), -EINVAL);
    assert_int_equal(ev(c, group(0, 0, 2)), -EINVAL);
    assert_int_equal(ev(c, group(0, 0, 1)), 0);
    assert_int_equal(ev(c, group(0, 0, 0)), -EEXIST);
    assert_int_equal(ev(c, (struct sched_event){.type = EV_GROUP_REMOVE, .group = 1}), -EINVAL);
    assert_int_equal(ev(c, (struct sched_event){.type = EV_JOB_PAUSE, .job = 1}), -EINVAL);
    assert_int_equal(ev(c, (struct sched_event){.type = EV_DEMAND, .job = 0, .device = 2}),
                     -EINVAL);
    assert_int_equal(ev(c, (struct sched_event){.type = (enum sched_event_type)99}), -EINVAL);
    assert_int_equal(sched_set_policy(c, "nonsense"), -EINVAL);
    assert_string_equal(sched_policy(c), "laxity");

    struct sched_plan plan;
    assert_int_equal(sched_decide(c, 2, 0, &plan), -EINVAL);
    assert_int_equal(sched_decide(c, 0, 0, &plan), 0);
    assert_int_equal(plan.n, 0);
    assert_int_equal(sched_decide(c, 1, 0, &plan), 0);
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
static void test_copies(void **state)
{
    (void)state;
    for (uint32_t apart = 0; apart < 2; apart++) {
        struct sched *c = new_core(1, 3, 32);
        struct sched_params p = *sched_current_params(c);
        struct sched_plan plan;
        p.copies_apart = apart;
        assert_int_equal(sched_set_params(c, &p), 0);
        for (uint32_t j = 0; j < 3; j++) {
            assert_int_equal(ev(c, add(j, j ? CLASS_BATCH : CLASS_LATENCY, 100)), 0);
            struct sched_event compute = group(10 + j, j, 0), copy = group(20 + j, j, 0);
            compute.computes = true;
            assert_int_equal(ev(c, compute), 0);
            assert_int_equal(ev(c, copy), 0);
        }
        assert_int_equal(sched_decide(c, 0, 0, &plan), 0);
        uint32_t holder = setting(&plan, 11).runnable ? 1 : 2, waits = 3 - holder;
        assert_false(setting(&plan, 10 + waits).runnable);
        assert_int_equal(setting(&plan, 10 + holder).timeslice_us, p.timeslice_min_us);
        assert_int_equal(setting(&plan, 20 + waits).runnable, apart);
        assert_true(setting(&plan, 20 + holder).runnable);
        assert_int_equal(setting(&plan, 20 + holder).timeslice_us, apart ? 0 : p.timeslice_min_us);
        assert_int_equal(setting(&plan, 20).timeslice_us, setting(&plan, 10).timeslice_us);

        /* Paused is paused, all of it. */
        assert_int_equal(ev(c, (struct sched_event){.type = EV_JOB_PAUSE, .job = 1, .on = true}),
                         0);
        assert_int_equal(sched_decide(c, 0, 0, &plan), 0);
        assert_false(setting(&plan, 11).runnable || setting(&plan, 21).runnable);
        assert_true(setting(&plan, 12).runnable && setting(&plan, 22).runnable);
        sched_free(c);
    }
}

/* Four tenths of a second: latency jobs had so much of the GPU and took it back so often. Says
 * whether the batch job may run after that. */
static bool batch_runs_after(struct sched *c, double busy, uint32_t returns_hz, uint64_t *now_ns)
{
    struct sched_plan plan;
    for (int i = 0; i < 4; i++) {
        struct sched_event e = {.type = EV_ACTIVITY, .window_ns = 100000000};
        e.returns = returns_hz / 10;
        e.busy_ns = (uint64_t)(busy * 1e8);
        assert_int_equal(ev(c, e), 0);
        *now_ns += e.window_ns;
    }
    assert_int_equal(sched_decide(c, 0, *now_ns, &plan), 0);
    assert_true(setting(&plan, 0).runnable);
    assert_int_equal(setting(&plan, 1).runnable, !sched_rests(c, 0));
    return setting(&plan, 1).runnable;
}

/* The figures are of an H200: a training job that feeds the GPU kernel by kernel, gaps of 0.1 ms
 * every 4, requests of 0.1 ms 2000 times a second and 500 times. */
static void test_rest(void **state)
{
    (void)state;
    static const struct {
        double busy;
        uint32_t returns_hz;
        bool runs;
    } cases[] = {{0.95, 50, false},  {0.97, 70, false}, {0.33, 2000, true},
                 {0.083, 500, true}, {0.97, 20, true},  {0.8, 100, true}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sched *c = new_core(1, 2, 2);
        struct sched_plan plan;
        uint64_t now = 0;
        for (uint32_t j = 0; j < 2; j++) {
            assert_int_equal(ev(c, add(j, j ? CLASS_BATCH : CLASS_LATENCY, 100)), 0);
            assert_int_equal(ev(c, group(j, j, 0)), 0);
        }
        assert_int_equal(sched_decide(c, 0, now, &plan), 0);
        assert_true(setting(&plan, 1).runnable && sched_minds_gaps(c, 0));
        bool runs = batch_runs_after(c, cases[i].busy, cases[i].returns_hz, &now);
        assert_int_equal(runs, cases[i].runs);
        if (!runs) {
            /* It ends by itself, and begins again only with what is seen after it. */
            assert_int_equal(sched_decide(c, 0, now, &plan), 0);
            assert_true(plan.wake_ns > now && plan.wake_ns <= now + 5000000000U);
            now = plan.wake_ns;
            assert_int_equal(sched_decide(c, 0, now, &plan), 0);
            assert_true(setting(&plan, 1).runnable && !sched_rests(c, 0));
            while (batch_runs_after(c, cases[i].busy, cases[i].returns_hz, &now))
                assert_true(now < 20000000000U);
        }
        /* Nobody rests who is paused, nor when resumed for what was seen before. */
        for (int on = 1; on >= 0; on--) {
            struct sched_event pause = {.type = EV_JOB_PAUSE, .job = 1, .on = on};
            assert_int_equal(ev(c, pause), 0);
            assert_int_equal(sched_decide(c, 0, now, &plan), 0);
            assert_false(sched_rests(c, 0));
            assert_int_equal(setting(&plan, 1).runnable, !on);
        }
        runs = batch_runs_after(c, cases[i].busy, cases[i].returns_hz, &now);
        assert_int_equal(sched_set_policy(c, "shares"), 0);
        assert_int_equal(sched_decide(c, 0, now, &plan), 0);
        assert_true(setting(&plan, 1).runnable && !sched_rests(c, 0) && !sched_minds_gaps(c, 0));
        sched_free(c);
    }
}

/* A latency job that is never done has 38 ms of each 40 with a floor of 0.05: a job that is only
 * looked at for 20 would have nothing to show. */
static void test_turn_with_floor_has_a_slice(void **state)
{
    static const struct {
        double floor;
        bool idle;
        uint64_t turn_ms;
    } cases[] = {{0, true, 20},      {0.05, true, 40},   {0.5, true, 20},
                 {0.005, true, 400}, {0.05, false, 200}, {0.005, false, 400}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sched *c = new_core(1, 3, 3);
        struct sched_params p;
        struct sched_plan plan;
        params_default(&p);
        p.floor = cases[i].floor;
        assert_int_equal(sched_set_params(c, &p), 0);
        for (uint32_t j = 0; j < 3; j++) {
            assert_int_equal(ev(c, add(j, j ? CLASS_BATCH : CLASS_LATENCY, 100)), 0);
            assert_int_equal(ev(c, group(j, j, 0)), 0);
        }
        ev(c, (struct sched_event){.type = EV_DEMAND, .job = 1, .on = !cases[i].idle});
        assert_int_equal(sched_decide(c, 0, 0, &plan), 0);
        assert_true(setting(&plan, 1).runnable);
        assert_int_equal(plan.wake_ns, cases[i].turn_ms * 1000000);
        assert_int_equal(sched_decide(c, 0, plan.wake_ns, &plan), 0);
        assert_false(setting(&plan, 1).runnable);
        sched_free(c);
    }
}

static void test_params(void **state)
{
    (void)state;
    struct sched *c = new_core(1, 1, 1);
    struct sched_params p;
    const struct param *what = NULL;
    params_default(&p);
    assert_int_equal(params_check(&p, &what), 0);
    p.floor = 0.6;
    assert_int_equal(params_check(&p, &what), -EINVAL);
    assert_string_equal(what->name, "floor");
    p.floor = NAN;
    assert_int_equal(sched_set_params(c, &p), -EINVAL);
    params_default(&p);
    p.timeslice_min_us = 0;
    assert_int_equal(params_check(&p, &what), -EINVAL);
    assert_string_equal(what->name, "timeslice_min_us");
    params_default(&p);
    p.probe_us = p.rotation_us + 1;
    assert_int_equal(params_check(&p, &what), -EINVAL);
    assert_string_equal(what->name, "probe_us");
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
    struct sched *none;
    params_default(&p);
    assert_int_equal(sched_new(&(struct sched_limits){0, 1, 1}, &p, &none), -EINVAL);
    sched_free(c);
}

static void test_names(void **state)
{
    (void)state;
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
    assert_int_equal(n, 5);
}

static uint32_t rng(uint64_t *s)
{
    *s = *s * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(*s >> 33);
}

/* Any sequence of events, under any policy: the plan holds each living group of the device once,
 * paused jobs never run, somebody runs if anybody may, best-effort jobs never run two at a time
 * beside a better class, and the timer lies ahead. */
static void test_random_events(void **state)
{
    (void)state;
    enum { DEVICES = 3, JOBS = 12, GROUPS = 40, STEPS = 20000 };
    static const char *const names[] = {"laxity", "edf", "priority", "shares", "static"};
    for (uint64_t seed = 1; seed <= 12; seed++) {
        uint64_t s = seed, now = 0;
        struct sched *c = new_core(DEVICES, JOBS, GROUPS);
        struct sched_params p;
        params_default(&p);
        bool job[JOBS] = {0}, paused[JOBS] = {0};
        enum job_class class[JOBS] = {0};
        uint32_t gjob[GROUPS], gdev[GROUPS];
        bool gcomputes[GROUPS] = {0};
        for (uint32_t i = 0; i < GROUPS; i++)
            gjob[i] = SLOT_NONE;

        bool gated[DEVICES] = {0};
        for (int step = 0; step < STEPS; step++) {
            struct sched_event e = {.type = (enum sched_event_type)(rng(&s) % 10),
                                    .job = rng(&s) % JOBS,
                                    .group = rng(&s) % GROUPS,
                                    .device = rng(&s) % DEVICES,
                                    .class = (enum job_class)(rng(&s) % CLASS_COUNT),
                                    .weight = 1 + rng(&s) % 10000,
                                    .on = rng(&s) % 2,
                                    .computes = rng(&s) % 2,
                                    .budget_us = rng(&s) % 4 ? 0 : rng(&s) % 100000,
                                    .returns = rng(&s) % 1000,
                                    .busy_ns = rng(&s) % 100000000,
                                    .window_ns = 100000000,
                                    .deadline_ns = rng(&s) % 3   ? now + rng(&s) % 4000000000U
                                                   : rng(&s) % 2 ? TIME_NEVER
                                                                 : rng(&s),
                                    .left_ns = rng(&s) % 4 ? rng(&s) : UINT64_MAX - rng(&s),
                                    .may_rise = rng(&s) % 2};
            int r = sched_event(c, &e);
            bool jlive = job[e.job], glive = gjob[e.group] != SLOT_NONE;
            switch (e.type) {
            case EV_JOB_ADD:
                assert_int_equal(r, jlive ? -EEXIST : 0);
                if (!jlive) {
                    job[e.job] = true;
                    paused[e.job] = false;
                    class[e.job] = e.class;
                }
                break;
            case EV_JOB_CHANGE:
                assert_int_equal(r, jlive ? 0 : -EINVAL);
                if (jlive)
                    class[e.job] = e.class;
                break;
            case EV_JOB_REMOVE:
                assert_int_equal(r, jlive ? 0 : -EINVAL);
                job[e.job] = false;
                for (uint32_t g = 0; g < GROUPS; g++)
                    gjob[g] = gjob[g] == e.job ? SLOT_NONE : gjob[g];
                break;
            case EV_JOB_PAUSE:
                assert_int_equal(r, jlive ? 0 : -EINVAL);
                if (jlive)
                    paused[e.job] = e.on;
                break;
            case EV_GROUP_ADD:
                assert_int_equal(r, !jlive ? -EINVAL : glive ? -EEXIST : 0);
                if (r == 0) {
                    gjob[e.group] = e.job;
                    gdev[e.group] = e.device;
                    gcomputes[e.group] = e.computes;
                }
                break;
            case EV_GROUP_REMOVE:
                assert_int_equal(r, glive ? 0 : -EINVAL);
                gjob[e.group] = SLOT_NONE;
                break;
            case EV_DEMAND:
            case EV_DEADLINE:
                assert_int_equal(r, jlive ? 0 : -EINVAL);
                break;
            case EV_DEVICE:
                assert_int_equal(r, 0);
                gated[e.device] = e.on;
                break;
            case EV_ACTIVITY:
                assert_int_equal(r, 0);
                break;
            }
            if (rng(&s) % 50 == 0)
                assert_int_equal(sched_set_policy(c, names[rng(&s) % 5]), 0);
            if (rng(&s) % 100 == 0) {
                p.floor = (rng(&s) % 3) * 0.1;
                assert_int_equal(sched_set_params(c, &p), 0);
            }
            now += rng(&s) % 100000000;

            uint32_t d = rng(&s) % DEVICES;
            struct sched_plan plan;
            assert_int_equal(sched_decide(c, d, now, &plan), 0);
            assert_true(plan.wake_ns > now);
            bool seen[GROUPS] = {0}, jruns[JOBS] = {0};
            enum job_class top = CLASS_COUNT;
            for (size_t k = 0; k < plan.n; k++) {
                uint32_t g = plan.settings[k].group;
                assert_true(g < GROUPS && gjob[g] != SLOT_NONE && gdev[g] == d && !seen[g]);
                seen[g] = true;
                uint32_t j = gjob[g];
                assert_false(plan.settings[k].runnable && paused[j]);
                assert_true(plan.settings[k].timeslice_us <= p.timeslice_max_us);
                jruns[j] |= plan.settings[k].runnable;
                if (!paused[j] && class[j] < top)
                    top = class[j];
            }
            uint32_t lower = 0, running = 0, lower_computing = 0;
            for (size_t k = 0; k < plan.n; k++) {
                uint32_t g = plan.settings[k].group;
                lower_computing +=
                    plan.settings[k].runnable && gcomputes[g] && class[gjob[g]] > top;
            }
            for (uint32_t g = 0; g < GROUPS; g++)
                assert_true(seen[g] == (gjob[g] != SLOT_NONE && gdev[g] == d));
            for (uint32_t j = 0; j < JOBS; j++) {
                running += jruns[j];
                lower += jruns[j] && class[j] > top;
            }
            assert_true(running > 0 || top == CLASS_COUNT);
            /* Gated, those who want nothing are let be. */
            if (strcmp(sched_policy(c), "priority") == 0 && !gated[d])
                assert_true(lower <= 1 && lower_computing <= 1);
        }
        sched_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_copies),
        cmocka_unit_test(test_params),        cmocka_unit_test(test_names),
        cmocka_unit_test(test_random_events), cmocka_unit_test(test_turn_with_floor_has_a_slice),
        cmocka_unit_test(test_rest),
    };
    return cmocka_run_group_tests_name("core", tests, NULL, NULL);
}
