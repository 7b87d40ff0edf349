/* See mock_gpu.h. Time advances in steps of 1 ms or to the scheduler's own timer, whichever is
 * first. */
#include "mock_gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define STEP_NS         1000000ULL
#define DEFAULT_SLICE   2048.0
#define DEMAND_EVERY_NS 500000000ULL
#define TELL_EVERY_NS   100000000ULL
#define STARVES         0.01 /* of the time: less is as good as none */

struct state {
    bool present, paused, runnable, was_runnable, worked, limited;
    double slice_us;
    double backlog; /* seconds of GPU work it waits for */
    double got;
    double begun_s, next_s; /* requests; begun_s < 0: none is open */
    double waits_s, starves_s;
    double step, frame; /* had in this step, and in this frame */
    uint32_t frames;
};

static bool in(double t, double from, double to)
{
    return t >= from && (to <= 0 || t < to);
}

static void event(struct sched *c, struct sched_event ev)
{
    assert_int_equal(sched_event(c, &ev), 0);
}

/* Ends and begins them, and tells the scheduler. Whether it was told anything. */
static bool requests(struct sched *c, const struct mock_job *j, struct state *x,
                     struct mock_result *r, uint32_t i, double t, bool tell)
{
    bool news = false;
    if (x->begun_s >= 0 && x->backlog <= 1e-12) {
        double took = t - x->begun_s;
        r->requests[i]++;
        r->late[i] += j->due_s > 0 && took > j->due_s;
        r->slowest_s[i] = took > r->slowest_s[i] ? took : r->slowest_s[i];
        x->begun_s = -1;
        news = true;
    }
    if (x->begun_s < 0 && t >= x->next_s && in(t, j->works_from_s, j->works_to_s)) {
        /* Late already if the one before took long; those that should have ended are left out. */
        x->begun_s = t < x->next_s + j->every_s ? x->next_s : t;
        x->next_s = x->begun_s + j->every_s;
        x->backlog = j->work_s;
        news = true;
    }
    if (j->due_s <= 0 || !(news || tell))
        return false;
    double left = x->backlog * (j->guess > 0 ? j->guess : 1);
    bool open = x->begun_s >= 0;
    event(c, (struct sched_event){.type = EV_DEADLINE,
                                  .job = i,
                                  .deadline_ns =
                                      open ? (uint64_t)((x->begun_s + j->due_s) * 1e9) : TIME_NEVER,
                                  .left_ns = open ? (uint64_t)(left * 1e9) : 0,
                                  .priority = j->priority,
                                  .may_promote = j->may_promote,
                                  .on = true});
    return true;
}

/* Round-robin: in proportion to the slices, what one leaves goes to the others. What is left. */
static double share_out(const struct mock_scenario *s, struct state *st, uint32_t n, double dt,
                        double *upper_s)
{
    double left = dt;
    for (uint32_t i = 0; i < n; i++)
        st[i].step = 0;
    for (int round = 0; round < 8 && left > 1e-12; round++) {
        double sum = 0, given = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += st[i].present && st[i].runnable && st[i].backlog > 1e-12 ? st[i].slice_us : 0;
        if (sum <= 0)
            break;
        for (uint32_t i = 0; i < n; i++) {
            if (!st[i].present || !st[i].runnable || st[i].backlog <= 1e-12)
                continue;
            double x = left * st[i].slice_us / sum;
            x = x < st[i].backlog ? x : st[i].backlog;
            st[i].backlog -= x;
            st[i].worked = true;
            *upper_s += s->jobs[i].class == CLASS_LATENCY ? x : 0;
            given += x;
            st[i].step += x;
        }
        left -= given;
    }
    return left;
}

/* What each had, in all and in each of its frames. */
static void count(const struct mock_job *jobs, struct state *st, struct mock_result *r, uint32_t n,
                  double t, double dt)
{
    for (uint32_t i = 0; i < n; i++) {
        struct state *x = &st[i];
        double frame_s = jobs[i].class == CLASS_LATENCY ? 0.1 : 0.5;
        bool ends = floor((t + dt) / frame_s + 1e-6) > floor(t / frame_s + 1e-6);
        x->got += x->step;
        x->frame += x->step;
        if (!ends)
            continue;
        double share = x->frame / frame_s;
        bool whole = x->frames++ > 0; /* the first may be half a frame */
        r->frame_most[i] = whole && share > r->frame_most[i] ? share : r->frame_most[i];
        r->frame_least[i] =
            whole && (x->frames == 2 || share < r->frame_least[i]) ? share : r->frame_least[i];
        x->frame = 0;
    }
}

static void count_waits(struct state *st, struct mock_result *r, uint32_t n, const bool *wanted,
                        double dt)
{
    for (uint32_t i = 0; i < n; i++) {
        st[i].waits_s = wanted[i] && st[i].step <= 0 ? st[i].waits_s + dt : 0;
        st[i].starves_s = wanted[i] && st[i].step < dt * STARVES ? st[i].starves_s + dt : 0;
        r->wait_s[i] = fmax(r->wait_s[i], st[i].waits_s);
        r->starved_s[i] = fmax(r->starved_s[i], st[i].starves_s);
    }
}

static void mock_accounts(struct sched *c, const struct mock_scenario *s)
{
    for (uint32_t i = 0; i < sizeof(s->account) / sizeof(s->account[0]); i++) {
        uint32_t weight = s->account[i].weight ? s->account[i].weight : WEIGHT_DEFAULT;
        event(c, (struct sched_event){.type = EV_ACCOUNT,
                                      .account = i,
                                      .weight = weight,
                                      .gpu_min = s->account[i].min,
                                      .gpu_max = s->account[i].max});
    }
}

/* What it is told that a job waits for is so. */
static void assert_explained(struct sched *c, uint32_t job, const struct state *x,
                             const struct state *all, uint32_t n)
{
    struct sched_reason r = sched_explain(c, job, 0);
    const bool runs = r.why == WHY_ALONE || r.why == WHY_FIRST || r.why == WHY_SLICES ||
                      r.why == WHY_SLACK || r.why == WHY_TURN || r.why == WHY_WATCHED;
    assert_int_equal(r.why == WHY_ABSENT, !x->present);
    if (!x->present)
        return;
    assert_int_equal(runs, x->runnable);
    assert_true(r.why != WHY_PAUSED || x->paused);
    assert_true(r.other == SLOT_NONE || (r.other < n && r.other != job && all[r.other].present));
    assert_true(r.why != WHY_NEXT || r.other == SLOT_NONE || all[r.other].runnable);
    assert_true(r.ahead < n);
}

void mock_run(const struct mock_scenario *s, struct mock_result *r)
{
    struct sched_params params;
    struct sched *c;
    params_default(&params);
    params.floor = s->floor;
    params.urgent_us = s->urgent_s > 0 ? (uint32_t)(s->urgent_s * 1e6) : params.urgent_us;
    params.deadline_share = s->deadline_share > 0   ? s->deadline_share
                            : s->deadline_share < 0 ? 0
                                                    : params.deadline_share;
    assert_int_equal(
        sched_new(&(struct sched_limits){1, MOCK_JOBS, MOCK_JOBS, MOCK_JOBS}, &params, &c), 0);
    if (s->policy)
        assert_int_equal(sched_set_policy(c, s->policy), 0);

    mock_accounts(c, s);
    struct state st[MOCK_JOBS] = {0};
    uint32_t njobs = 0;
    while (njobs < sizeof(s->jobs) / sizeof(s->jobs[0]) && s->jobs[njobs].need > 0)
        njobs++;
    memset(r, 0, sizeof(*r));

    uint64_t now = 0, end = (uint64_t)(s->seconds * 1e9), wake = 0, demand_at = DEMAND_EVERY_NS;
    uint64_t tell_at = TELL_EVERY_NS;
    wake = s->policy ? 0 : TIME_NEVER;
    double lost = 0, measured = 0, upper_s = 0;
    bool deadlines = false;
    for (uint32_t i = 0; i < njobs; i++) {
        st[i].begun_s = -1;
        deadlines |= s->jobs[i].due_s > 0;
    }
    while (now < end) {
        double t = (double)now / 1e9;
        bool changed = now >= wake;
        for (uint32_t i = 0; i < njobs; i++) {
            const struct mock_job *j = &s->jobs[i];
            bool present = in(t, j->from_s, j->to_s);
            bool paused = j->pause_s > 0 && in(t, j->pause_s, j->resume_s);
            if (present && !st[i].present) {
                event(c, (struct sched_event){.type = EV_JOB_ADD,
                                              .job = i,
                                              .account = j->account,
                                              .gpu_min = j->min,
                                              .gpu_max = j->max,
                                              .class = j->class,
                                              .weight = j->weight ? j->weight : WEIGHT_DEFAULT});
                event(c, (struct sched_event){.type = EV_GROUP_ADD, .job = i, .group = i});
                st[i].runnable = true;
                st[i].slice_us = DEFAULT_SLICE;
                st[i].limited = j->limits_to_s > 0;
            } else if (!present && st[i].present) {
                event(c, (struct sched_event){.type = EV_JOB_REMOVE, .job = i});
            } else if (present && st[i].limited && t >= j->limits_to_s) {
                st[i].limited = false;
                event(c, (struct sched_event){.type = EV_JOB_CHANGE,
                                              .job = i,
                                              .class = j->class,
                                              .weight = j->weight ? j->weight : WEIGHT_DEFAULT});
            } else if (present && paused != st[i].paused) {
                event(c, (struct sched_event){.type = EV_JOB_PAUSE, .job = i, .on = paused});
            } else {
                continue;
            }
            st[i].present = present;
            st[i].paused = paused && present;
            changed = true;
        }
        if (s->usage && now >= demand_at) {
            demand_at += DEMAND_EVERY_NS;
            for (uint32_t i = 0; i < njobs; i++) {
                /* A job that could not run tells nothing. */
                if (st[i].present && (st[i].worked || st[i].was_runnable))
                    event(c, (struct sched_event){.type = EV_DEMAND, .job = i, .on = st[i].worked});
                st[i].worked = st[i].was_runnable = false;
            }
            changed = true;
        }
        bool tell = deadlines && now >= tell_at;
        if (tell) {
            double most = (double)TELL_EVERY_NS / 1e9;
            event(c, (struct sched_event){.type = EV_ACTIVITY,
                                          .window_ns = TELL_EVERY_NS,
                                          .busy_ns =
                                              (uint64_t)((upper_s < most ? upper_s : most) * 1e9)});
            tell_at += TELL_EVERY_NS;
            upper_s = 0;
            changed = true;
        }
        for (uint32_t i = 0; i < njobs; i++) {
            const struct mock_job *j = &s->jobs[i];
            if (!st[i].present || j->every_s <= 0)
                continue;
            changed |= requests(c, j, &st[i], r, i, t, tell);
        }
        if (changed && s->policy) {
            struct sched_plan plan;
            sched_decide(c, now, &plan);
            r->decisions++;
            bool seen_runnable = false;
            for (size_t k = 0; k < plan.n; k++) {
                const struct sched_setting *set = &plan.settings[k];
                struct state *x = &st[set->group];
                assert_true(x->present);
                assert_false(set->runnable && x->paused);
                /* Those to stop come first. */
                assert_true(set->runnable || !seen_runnable);
                seen_runnable |= set->runnable;
                r->turns += x->runnable != set->runnable;
                x->runnable = set->runnable;
                x->slice_us = set->timeslice_us ? set->timeslice_us : DEFAULT_SLICE;
            }
            for (uint32_t i = 0; i < njobs; i++)
                assert_explained(c, i, &st[i], st, njobs);
            assert_true(plan.wake_ns > now);
            wake = plan.wake_ns;
        }

        uint64_t next = now + STEP_NS < wake ? now + STEP_NS : wake;
        double dt = (double)(next - now) / 1e9;

        enum job_class top = CLASS_BATCH;
        for (uint32_t i = 0; i < njobs; i++) {
            const struct mock_job *j = &s->jobs[i];
            if (!st[i].present)
                continue;
            if (!st[i].paused && j->class < top)
                top = j->class;
            if (in(t, j->works_from_s, j->works_to_s) && j->every_s <= 0)
                st[i].backlog += j->need * dt;
            /* An unsaturating job's backlog is bounded: it waits for its answers. */
            if (st[i].backlog > 0.05 && j->every_s <= 0)
                st[i].backlog = 0.05;
        }
        uint32_t lower = 0;
        bool wanted[MOCK_JOBS] = {false};
        for (uint32_t i = 0; i < njobs; i++)
            wanted[i] = st[i].present && !st[i].paused && st[i].backlog > 1e-12;
        bool has_work = false;
        for (uint32_t i = 0; i < njobs; i++) {
            has_work |= st[i].present && !st[i].paused && st[i].backlog > 1e-12;
            lower += wanted[i] && st[i].runnable && s->jobs[i].class > top;
            st[i].was_runnable |= st[i].present && st[i].runnable;
        }
        r->overlaps += lower > 1;
        double left = share_out(s, st, njobs, dt, &upper_s);
        count_waits(st, r, njobs, wanted, dt);
        if (t >= s->measure_from_s) {
            count(s->jobs, st, r, njobs, t, dt);
            measured += dt;
            lost += has_work ? left : 0;
        }
        now = next;
    }
    for (uint32_t i = 0; i < njobs; i++)
        r->share[i] = st[i].got / measured;
    r->lost = lost / measured;
    sched_free(c);
}
