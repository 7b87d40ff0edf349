/* See mock_gpu.h. Time advances in steps of 1 ms or to the scheduler's own timer, whichever is
 * first. */
#include "mock_gpu.h"

#include <math.h>

#define STEP_NS         MS
#define DEFAULT_SLICE   2048.0
#define DEMAND_EVERY_NS (500 * MS)
#define TELL_EVERY_NS   (100 * MS)
#define STARVES         0.01  /* of the time: less is as good as none */
#define SOME            1e-12 /* s of work: less is none */

struct state {
    bool present, paused, runnable, was_runnable, worked, limited, wants;
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

struct mock {
    const struct mock_scenario *s;
    struct mock_result *r;
    struct sched *c;
    uint32_t n;
    struct state st[MOCK_JOBS];
    bool deadlines; /* somebody has some */
    uint64_t now, wake, demand_at, tell_at;
    double upper_s; /* that latency jobs had since they were told of */
    double lost, measured;
};

/* Ends and begins requests of a job, and tells the scheduler. Whether it was told anything. */
static bool requests(struct mock *m, uint32_t i, double t, bool tell)
{
    const struct mock_job *j = &m->s->jobs[i];
    struct state *x = &m->st[i];
    struct mock_result *r = m->r;
    bool news = false;
    if (!x->present || j->every_s <= 0)
        return false;
    if (x->begun_s >= 0 && x->backlog <= SOME) {
        double took = t - x->begun_s;
        r->requests[i]++;
        r->late[i] += j->due_s > 0 && took > j->due_s;
        r->slowest_s[i] = fmax(r->slowest_s[i], took);
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
    EVENT(m->c, DEADLINE, .job = i, .priority = j->priority, .may_promote = j->may_promote,
          .deadline_ns = open ? (uint64_t)((x->begun_s + j->due_s) * 1e9) : TIME_NEVER,
          .left_ns = open ? (uint64_t)(left * 1e9) : 0, .on = true);
    return true;
}

/* Jobs come, go, are paused and lose their limits. Whether one does. */
static bool changes(struct mock *m, double t)
{
    bool changed = false;
    for (uint32_t i = 0; i < m->n; i++) {
        const struct mock_job *j = &m->s->jobs[i];
        struct state *x = &m->st[i];
        uint32_t weight = j->weight ? j->weight : WEIGHT_DEFAULT;
        bool present = in(t, j->from_s, j->to_s);
        bool paused = j->pause_s > 0 && in(t, j->pause_s, j->resume_s);
        if (present && !x->present) {
            EVENT(m->c, JOB_ADD, .job = i, .account = j->account, .gpu_min = j->min,
                  .gpu_max = j->max, .class = j->class, .weight = weight);
            EVENT(m->c, GROUP_ADD, .job = i, .group = i);
            x->runnable = true;
            x->slice_us = DEFAULT_SLICE;
            x->limited = j->limits_to_s > 0;
        } else if (!present && x->present) {
            EVENT(m->c, JOB_REMOVE, .job = i);
        } else if (present && x->limited && t >= j->limits_to_s) {
            x->limited = false;
            EVENT(m->c, JOB_CHANGE, .job = i, .class = j->class, .weight = weight);
        } else if (present && paused != x->paused) {
            EVENT(m->c, JOB_PAUSE, .job = i, .on = paused);
        } else {
            continue;
        }
        x->present = present;
        x->paused = paused && present;
        changed = true;
    }
    return changed;
}

/* The driver tells who worked. A job that could not run tells nothing. */
static bool demand(struct mock *m)
{
    if (!m->s->usage || m->now < m->demand_at)
        return false;
    m->demand_at += DEMAND_EVERY_NS;
    for (uint32_t i = 0; i < m->n; i++) {
        struct state *x = &m->st[i];
        if (x->present && (x->worked || x->was_runnable))
            EVENT(m->c, DEMAND, .job = i, .on = x->worked);
        x->worked = x->was_runnable = false;
    }
    return true;
}

/* And how long latency jobs had the GPU, where there are deadlines. */
static bool activity(struct mock *m)
{
    if (!m->deadlines || m->now < m->tell_at)
        return false;
    EVENT(m->c, ACTIVITY, .window_ns = TELL_EVERY_NS,
          .busy_ns = (uint64_t)(fmin(m->upper_s, (double)TELL_EVERY_NS / 1e9) * 1e9));
    m->tell_at += TELL_EVERY_NS;
    m->upper_s = 0;
    return true;
}

/* What it is told that a job waits for is so. */
static void assert_explained(const struct mock *m, uint32_t job)
{
    struct sched_reason r = sched_explain(m->c, job, 0);
    const struct state *x = &m->st[job];
    const bool runs = r.why == WHY_ALONE || r.why == WHY_FIRST || r.why == WHY_SLICES ||
                      r.why == WHY_SLACK || r.why == WHY_TURN || r.why == WHY_WATCHED;
    assert_int_equal(r.why == WHY_ABSENT, !x->present);
    if (!x->present)
        return;
    assert_int_equal(runs, x->runnable);
    assert_true(r.why != WHY_PAUSED || x->paused);
    assert_true(r.other == SLOT_NONE ||
                (r.other < m->n && r.other != job && m->st[r.other].present));
    assert_true(r.why != WHY_NEXT || r.other == SLOT_NONE || m->st[r.other].runnable);
    assert_true(r.ahead < m->n);
}

static void decide(struct mock *m)
{
    struct sched_plan plan;
    bool started = false;
    sched_decide(m->c, m->now, &plan);
    m->r->decisions++;
    for (size_t k = 0; k < plan.n; k++) {
        const struct sched_setting *set = &plan.settings[k];
        struct state *x = &m->st[set->group];
        assert_true(set->runnable || !started);
        started |= set->runnable;
        m->r->turns += x->runnable != set->runnable;
        x->runnable = set->runnable;
        x->slice_us = set->timeslice_us ? set->timeslice_us : DEFAULT_SLICE;
    }
    for (uint32_t i = 0; i < m->n; i++)
        assert_explained(m, i);
    assert_true(plan.wake_ns > m->now);
    m->wake = plan.wake_ns;
}

/* Round-robin: in proportion to the slices, what one leaves goes to the others. What is left. */
static double share_out(struct mock *m, double dt)
{
    double left = dt;
    for (int round = 0; round < 8 && left > SOME; round++) {
        double sum = 0, given = 0;
        for (uint32_t i = 0; i < m->n; i++)
            sum += m->st[i].wants && m->st[i].runnable && m->st[i].backlog > SOME
                       ? m->st[i].slice_us
                       : 0;
        for (uint32_t i = 0; i < m->n; i++) {
            struct state *x = &m->st[i];
            if (!x->wants || !x->runnable || x->backlog <= SOME)
                continue;
            double part = fmin(left * x->slice_us / sum, x->backlog);
            x->backlog -= part;
            x->worked = true;
            x->step += part;
            m->upper_s += m->s->jobs[i].class == L ? part : 0;
            given += part;
        }
        left -= given;
    }
    return left;
}

/* What a job had, in all and in each of its frames. */
static void count(struct mock *m, uint32_t i, double t, double dt)
{
    struct state *x = &m->st[i];
    struct mock_result *r = m->r;
    double frame_s = m->s->jobs[i].class == L ? 0.1 : 0.5;
    x->got += x->step;
    x->frame += x->step;
    if (floor((t + dt) / frame_s + 1e-6) <= floor(t / frame_s + 1e-6))
        return;
    double share = x->frame / frame_s;
    if (x->frames++ > 0) { /* the first may be half a frame */
        r->frame_most[i] = fmax(r->frame_most[i], share);
        r->frame_least[i] = x->frames == 2 ? share : fmin(r->frame_least[i], share);
    }
    x->frame = 0;
}

static void count_waits(struct mock *m, uint32_t i, double dt)
{
    struct state *x = &m->st[i];
    x->waits_s = x->wants && x->step <= 0 ? x->waits_s + dt : 0;
    x->starves_s = x->wants && x->step < dt * STARVES ? x->starves_s + dt : 0;
    m->r->wait_s[i] = fmax(m->r->wait_s[i], x->waits_s);
    m->r->starved_s[i] = fmax(m->r->starved_s[i], x->starves_s);
}

static void work(struct mock *m, double t, double dt)
{
    enum job_class top = B;
    bool wanted = false;
    uint32_t lower = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        const struct mock_job *j = &m->s->jobs[i];
        struct state *x = &m->st[i];
        /* An unsaturating job's backlog is bounded: it waits for its answers. */
        if (x->present && j->every_s <= 0)
            x->backlog =
                fmin(x->backlog + (in(t, j->works_from_s, j->works_to_s) ? j->need * dt : 0), 0.05);
        if (x->present && !x->paused && j->class < top)
            top = j->class;
        x->wants = x->present && !x->paused && x->backlog > SOME;
        x->was_runnable |= x->present && x->runnable;
        x->step = 0;
        wanted |= x->wants;
    }
    for (uint32_t i = 0; i < m->n; i++)
        lower += m->st[i].wants && m->st[i].runnable && m->s->jobs[i].class > top;
    m->r->overlaps += lower > 1;
    double left = share_out(m, dt);
    bool measured = t >= m->s->measure_from_s;
    for (uint32_t i = 0; i < m->n; i++) {
        count_waits(m, i, dt);
        if (measured)
            count(m, i, t, dt);
    }
    m->measured += measured ? dt : 0;
    m->lost += measured && wanted ? left : 0;
}

static struct sched *mock_sched(const struct mock_scenario *s)
{
    struct sched *c = scheduler(1, MOCK_JOBS, MOCK_JOBS);
    struct sched_params p = *sched_current_params(c);
    p.floor = s->floor;
    p.urgent_us = s->urgent_s > 0 ? (uint32_t)(s->urgent_s * 1e6) : p.urgent_us;
    p.deadline_share = s->deadline_share != 0 ? fmax(s->deadline_share, 0) : p.deadline_share;
    assert_int_equal(sched_set_params(c, &p), 0);
    if (s->policy)
        assert_int_equal(sched_set_policy(c, s->policy), 0);
    for (uint32_t i = 0; i < ARRAY_SIZE(s->account); i++)
        EVENT(c, ACCOUNT, .account = i, .gpu_min = s->account[i].min, .gpu_max = s->account[i].max,
              .weight = s->account[i].weight ? s->account[i].weight : WEIGHT_DEFAULT);
    return c;
}

static uint32_t jobs_of(const struct mock_scenario *s)
{
    uint32_t n = 0;
    while (n < MOCK_JOBS && s->jobs[n].need > 0)
        n++;
    return n;
}

/* With a job of its own for each of the jobs of a kind. */
static struct mock_scenario spread(const struct mock_scenario *s)
{
    struct mock_scenario all = *s;
    uint32_t n = 0;
    memset(all.jobs, 0, sizeof(all.jobs));
    for (uint32_t i = 0; i < jobs_of(s); i++) {
        for (uint32_t k = 0; k < (s->jobs[i].times ? s->jobs[i].times : 1); k++) {
            assert_true(n < MOCK_JOBS);
            all.jobs[n++] = s->jobs[i];
        }
    }
    return all;
}

void mock_run(const struct mock_scenario *kinds, struct mock_result *r)
{
    const struct mock_scenario all = spread(kinds), *s = &all;
    struct mock m = {.s = s,
                     .r = r,
                     .c = mock_sched(s),
                     .n = jobs_of(s),
                     .wake = s->policy ? 0 : TIME_NEVER,
                     .demand_at = DEMAND_EVERY_NS,
                     .tell_at = TELL_EVERY_NS};
    memset(r, 0, sizeof(*r));
    for (uint32_t i = 0; i < m.n; i++) {
        m.st[i].begun_s = -1; /* none is open */
        m.deadlines |= s->jobs[i].due_s > 0;
    }
    while (m.now < (uint64_t)(s->seconds * 1e9)) {
        double t = (double)m.now / 1e9;
        bool changed = m.now >= m.wake;
        changed |= changes(&m, t);
        changed |= demand(&m);
        bool tell = activity(&m);
        changed |= tell;
        for (uint32_t i = 0; i < m.n; i++)
            changed |= requests(&m, i, t, tell);
        if (changed && s->policy)
            decide(&m);
        uint64_t next = min_u64(m.now + STEP_NS, m.wake);
        work(&m, t, (double)(next - m.now) / 1e9);
        m.now = next;
    }
    for (uint32_t i = 0; i < m.n; i++)
        r->share[i] = m.st[i].got / m.measured;
    r->lost = m.lost / m.measured;
    sched_free(m.c);
}

static bool as_expected(const struct mock_scenario *s, const struct mock_result *r, double lost)
{
    bool ok = !s->saturated || r->lost < lost;
    ok &= r->turns >= s->turns_least && (!s->turns_most || r->turns <= s->turns_most);
    ok &= !s->decisions_most || r->decisions <= s->decisions_most;
    bool late = false, may_be_late = false, limits = false;
    for (uint32_t i = 0; i < jobs_of(s); i++) {
        const struct mock_job *j = &s->jobs[i];
        ok &= r->share[i] >= j->lo - 1e-9 && r->share[i] <= j->hi + 1e-9;
        bool has_time = j->hi >= 0.02 && 2 * j->work_s <= s->seconds;
        ok &= r->late[i] <= j->late && (j->due_s <= 0 || !has_time || r->requests[i] > 0);
        ok &= j->slowest_s <= 0 || r->slowest_s[i] < j->slowest_s;
        /* Two points; what is shorter than a window is saved up. */
        ok &= j->max < 0.05 || j->limits_to_s > 0 || r->frame_most[i] <= j->max + 0.02;
        late |= r->late[i] > 0;
        may_be_late |= j->late > 0;
        limits |= j->min > 0 || j->max > 0 || s->account[1].max > 0 || s->account[1].min > 0;
    }
    /* A row that says so has to show it. Two jobs at once beside a better one would thrash. */
    return ok && late == may_be_late && (limits || r->overlaps == 0 || *s->policy == 's');
}

void mock_table(const struct mock_scenario *rows, size_t n, double lost)
{
    unsigned wrong = 0;
    for (size_t k = 0; k < n; k++) {
        const struct mock_scenario all = spread(&rows[k]), *s = &all;
        struct mock_result r;
        mock_run(&rows[k], &r);
        bool ok = as_expected(s, &r, lost);
        printf("%-58s", s->name);
        for (uint32_t i = 0; i < jobs_of(s); i++) {
            const struct mock_job *j = &s->jobs[i];
            printf(" %c%u %.3f", job_class_name(j->class)[0], j->account, r.share[i]);
            if (j->min > 0 || j->max > 0)
                printf(" (%.2f %.2f)", r.frame_least[i], r.frame_most[i]);
            if (j->every_s > 0)
                printf(" (%u of %u late, %.3f s)", r.late[i], r.requests[i], r.slowest_s[i]);
        }
        printf("  lost %.4f turns %lu decisions %lu%s\n", r.lost, (unsigned long)r.turns,
               (unsigned long)r.decisions, ok ? "" : "  <-- WRONG");
        wrong += !ok;
    }
    assert_int_equal(wrong, 0);
}
