/* See speeds.h. */
#include "core/observe/speeds.h"

#include <errno.h>
#include <string.h>

#define SETTLE_NS   (200 * NSEC_PER_MSEC) /* in which a held job's queued work ends */
#define BESIDE_NS   (300 * NSEC_PER_MSEC)
#define ALONE_NS    NSEC_PER_SEC
#define WINDOW_NS   NSEC_PER_SEC
#define LONG_NS     (2 * NSEC_PER_SEC) /* after SHORT_MAX short windows, as each costs 2 ms */
#define SHORT_MAX   10
#define RARELY      20U                 /* one part in 20 of the time is for profiles, */
#define AHEAD_NS    (12 * NSEC_PER_SEC) /* of which 12 s may come at once, for eight new jobs */
#define FAILED_NS   (60 * NSEC_PER_SEC) /* without profiles after the counters failed */
#define NEWER       0.4                 /* weight of the last window */
#define PART_MOST   4.0
#define MISFIT      4.0
#define MISFITS_MAX 10
#define MISFITS_NEW 3 /* the same while a job has no profile, as it was starting then */
#define BLIND_MAX   5
#define IDLE_NS     (10 * NSEC_PER_SEC) /* until an idle job is measured again; doubled, */
#define IDLE_MAX    7U                  /* at most so often */

/* A job on several GPUs must not be held, as its parts would wait inside a collective. */
static bool on_one_gpu(const struct model *m, const struct job *j)
{
    return __builtin_popcount(model_job_computes(m, j)) == 1;
}

/* The jobs of the only unit that works on this GPU below the latency class. 0 if other jobs work,
 * one must not be held or is tried, or users differ: no user's job waits for a measurement of
 * another's. */
static uint32_t find_unit(const struct model *m, unsigned d, uint32_t *jobs)
{
    uint32_t n = 0, unit = SLOT_NONE;
    uid_t user = 0;
    for_each_job (m, j) {
        if (!(model_job_computes(m, j) >> d & 1))
            continue;
        if (j->rec.paused || model_class(m, j) == CLASS_LATENCY)
            continue;
        if (!j->united || j->left_alone || model_class(m, j) != CLASS_BATCH || !on_one_gpu(m, j)) {
            if (!j->on[d].idle || j->united)
                return 0;
            continue;
        }
        if ((unit != SLOT_NONE && (unit != j->unit || user != j->rec.uid)) || n == SPEED_JOBS)
            return 0;
        unit = j->unit;
        user = j->rec.uid;
        jobs[n++] = model_job_slot(m, j);
    }
    for_each_job (m, j) { /* one that is held, too */
        if (j->trial.until_ns && j->rec.uid == user && model_job_computes(m, j) >> d & 1)
            return 0;
    }
    return n > 1 ? n : 0;
}

static void hold_all_but(struct model *m, const struct speeds_gpu *g, uint32_t job)
{
    for (uint32_t i = 0; i < g->n; i++) {
        struct job *j = &m->jobs[g->jobs[i]];
        if (j->rec.number == g->numbers[i])
            j->speed.held = g->jobs[i] != job;
    }
}

static void release(const struct model *m, const struct speeds_gpu *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        struct job *j = &m->jobs[g->jobs[i]];
        if (j->rec.number == g->numbers[i])
            j->speed.held = j->speed.profiling = j->speed.turns = false;
    }
}

static bool same_jobs(const struct model *m, const struct speeds_gpu *g, const uint32_t *jobs,
                      uint32_t n)
{
    bool same = n == g->n;
    for (uint32_t i = 0; i < n && same; i++)
        same = jobs[i] == g->jobs[i] && m->jobs[jobs[i]].rec.number == g->numbers[i];
    return same;
}

static void profile_end(const struct model *m, struct speeds_gpu *g)
{
    uint64_t ahead = RARELY * AHEAD_NS;
    release(m, g);
    g->profiling = g->settled = false;
    g->profile_at = max_u64(g->profile_at, m->now > ahead ? m->now - ahead : 0);
    g->profile_at += RARELY * (m->now - g->began);
    g->at = m->now + WINDOW_NS;
}

/* If the unit's jobs have changed, begins anew with these, except that profiles are kept. */
static void adopt_jobs(struct model *m, struct speeds_gpu *g, const struct experience *x,
                       const uint32_t *jobs, uint32_t n)
{
    if (same_jobs(m, g, jobs, n))
        return;
    if (g->profiling)
        profile_end(m, g);
    release(m, g);
    for (uint32_t i = 0; i < g->n; i++)
        m->jobs[g->jobs[i]].speed.told = false;
    g->space = (struct space){0};
    g->n = n;
    g->misfits = 0;
    g->windows = 0;
    g->settled = false;
    g->at = m->now;
    for (uint32_t i = 0; i < n; i++) {
        g->jobs[i] = jobs[i];
        g->numbers[i] = m->jobs[jobs[i]].rec.number;
    }
    g->key = n ? experience_key(m, jobs, n) : 0;
    if (n && experience_lost(x, g->key, m->now))
        space_begin_turns(&g->space, m->now);
}

/* Whether the job has a profile and did something in it. */
static bool has_profile(const struct job_speed *s)
{
    return s->known && speeds_work(s->profile) > SPEED_NOTHING;
}

static bool profile_missing(const struct model *m, const struct speeds_gpu *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        if (!m->jobs[g->jobs[i]].speed.known)
            return true;
    }
    return false;
}

/* Adds the counters since the last call to the window. The driver's values are checked, as they may
 * not be numbers. */
static bool add_counters(const struct model *m, struct speeds_gpu *g, unsigned d)
{
    struct gpu_counters c;
    int r = m->driver->ops->counters(m->driver, d, &c, NULL);
    for (unsigned p = 0; p < GPU_PARTS && r == 0; p++)
        r = c.parts[p] >= 0 && c.parts[p] <= PART_MOST ? 0 : -EIO;
    for (unsigned p = 0; p < GPU_PARTS && r == 0; p++)
        g->sum[p] += c.parts[p] * (double)c.window_ns;
    g->sum_ns += r == 0 ? c.window_ns : 0;
    return r == 0 || r == -EAGAIN;
}

/* Begins a window: discards what the counters have so far. */
static bool start_window(const struct model *m, struct speeds_gpu *g, unsigned d)
{
    memset(g->sum, 0, sizeof(g->sum));
    g->sum_ns = 0;
    return m->driver->ops->counters(m->driver, d, NULL, NULL) == 0;
}

/* *out: the window's mean; false: the counters failed. */
static bool end_window(const struct model *m, struct speeds_gpu *g, unsigned d,
                       struct gpu_counters *out)
{
    bool good = add_counters(m, g, d) && g->sum_ns;
    *out = (struct gpu_counters){.window_ns = g->sum_ns};
    for (unsigned p = 0; p < GPU_PARTS && good; p++)
        out->parts[p] = g->sum[p] / (double)g->sum_ns;
    memset(g->sum, 0, sizeof(g->sum));
    g->sum_ns = 0;
    return good;
}

/* ---- profiles ---- */

static void profile_step(struct model *m, struct speeds_gpu *g)
{
    while (g->next > 0 && g->next <= g->n && m->jobs[g->jobs[g->next - 1]].speed.known)
        g->next++;
    if (g->next > g->n) {
        profile_end(m, g);
        return;
    }
    g->settled = false;
    g->at = m->now + SETTLE_NS;
    hold_all_but(m, g, g->next ? g->jobs[g->next - 1] : SLOT_NONE);
}

static void profile_begin(struct model *m, struct speeds_gpu *g)
{
    g->next = 0;
    g->profiling = true;
    g->began = m->now;
    g->misfits = 0;
    for (uint32_t i = 0; i < g->n; i++)
        m->jobs[g->jobs[i]].speed.profiling = true;
    profile_step(m, g);
}

/* What the counters show beyond the work of latency jobs. */
static void own_parts(const struct speeds_gpu *g, const struct gpu_counters *c, double *own)
{
    for (unsigned p = 0; p < GPU_PARTS; p++)
        own[p] = c->parts[p] > g->beside[p] ? c->parts[p] - g->beside[p] : 0;
}

static void profile_look(struct model *m, struct speeds_gpu *g, const struct gpu_counters *c)
{
    if (!g->settled) {
        g->settled = true; /* this window began before the jobs were held and does not count */
        g->at = m->now + (g->next ? ALONE_NS : BESIDE_NS);
        return;
    }
    if (g->next == 0) {
        memcpy(g->beside, c->parts, sizeof(g->beside));
    } else {
        struct job_speed *s = &m->jobs[g->jobs[g->next - 1]].speed;
        own_parts(g, c, s->profile);
        s->known = true;
        s->idle_looks = has_profile(s) ? 0 : s->idle_looks + 1;
        s->look_again_at = m->now + ((IDLE_NS << min_u64(s->idle_looks, IDLE_MAX)) >> 1);
    }
    g->next++;
    profile_step(m, g);
}

static void profile_fail(const struct model *m, struct speeds_gpu *g)
{
    profile_end(m, g);
    g->profile_at = max_u64(g->profile_at, m->now + FAILED_NS);
}

/* ---- speeds ---- */

static struct space_job space_terms(const struct model *m, const struct speeds_gpu *g, uint32_t i)
{
    const struct job *j = &m->jobs[g->jobs[i]];
    return (struct space_job){.weight = j->rec.weight,
                              .min_speed = j->rec.min_speed / 100.0,
                              .unknown = j->speed.known && !has_profile(&j->speed)};
}

/* Discards profiles that do not explain the counters any more, because a job has changed what it
 * does or has begun to work. */
static void see_misfit(const struct model *m, struct speeds_gpu *g, bool fits)
{
    unsigned most = MISFITS_MAX;
    for (uint32_t i = 0; i < g->n; i++)
        most = has_profile(&m->jobs[g->jobs[i]].speed) ? most : MISFITS_NEW;
    g->misfits = fits ? 0 : g->misfits + 1;
    if (m->now < g->profile_at)
        return;
    for (uint32_t i = 0; i < g->n; i++) {
        struct job_speed *s = &m->jobs[g->jobs[i]].speed;
        /* The others' profiles may happen to explain the work of a job that was idle. */
        bool again = !has_profile(s) && m->now >= s->look_again_at;
        s->known &= g->misfits < most && !again;
    }
}

/* While one job has its turn, the counters show what it does alone. */
static bool renew_profile(struct model *m, const struct speeds_gpu *g, const double *own)
{
    struct job_speed *s = &m->jobs[g->jobs[g->space.current]].speed;
    if (!g->space.turns || g->space.idle || speeds_work(own) <= SPEED_NOTHING)
        return false;
    for (uint32_t i = 0; i < g->n; i++) {
        if (!has_profile(&m->jobs[g->jobs[i]].speed))
            return false;
    }
    for (unsigned p = 0; p < GPU_PARTS; p++)
        s->profile[p] += (own[p] - s->profile[p]) * NEWER;
    return true;
}

static void tell(struct model *m, struct speeds_gpu *g, struct experience *x,
                 const struct gpu_counters *c)
{
    double profiles[SPEED_JOBS][GPU_PARTS], own[GPU_PARTS], misfit;
    struct speed got[SPEED_JOBS], all;
    struct space_job v[SPEED_JOBS];
    uint32_t ran[SPEED_JOBS], n = 0;
    own_parts(g, c, own);
    bool renewed = renew_profile(m, g, own);
    for (uint32_t i = 0; i < g->n; i++) {
        struct job_speed *s = &m->jobs[g->jobs[i]].speed;
        v[i] = space_terms(m, g, i);
        s->told &= !v[i].unknown;
        if ((g->space.turns && s->held) || v[i].unknown)
            continue; /* it has not run in this window, or has no profile */
        memcpy(profiles[n], s->profile, sizeof(profiles[n]));
        ran[n++] = i;
    }
    if (!n) {
        see_misfit(m, g, speeds_work(own) <= SPEED_NOTHING);
        return;
    }
    speeds_estimate(profiles, n, own, NULL, got, &all, &misfit);
    for (uint32_t k = 0; k < n; k++) {
        struct job_speed *s = &m->jobs[g->jobs[ran[k]]].speed;
        double by = s->told ? NEWER : 1;
        s->value += (got[k].value - s->value) * by;
        s->error += (got[k].error - s->error) * by;
        s->told = true;
        v[ran[k]].speed = got[k];
    }
    int trial = space_told(&g->space, v, g->n, all, m->now);
    if (trial)
        experience_learn(x, g->key, trial < 0, m->now);
    see_misfit(m, g, renewed || misfit <= MISFIT);
}

static void speeds_look(struct speeds *s, struct model *m, unsigned d)
{
    struct speeds_gpu *g = &s->gpu[d];
    struct gpu_counters c = {.window_ns = 0};
    bool good = g->settled ? end_window(m, g, d, &c) : start_window(m, g, d),
         ends = g->space.turns && g->space.turn_until > m->now;
    uint64_t window = g->windows < SHORT_MAX || g->space.less > 0 ? WINDOW_NS : LONG_NS;
    g->at = ends ? g->space.turn_until : m->now + window;
    /* A longer window includes turns or a pause, and does not count. */
    bool whole = good && g->settled && c.window_ns < 2 * window;
    if (g->profiling && (good || !g->settled))
        profile_look(m, g, &c);
    else if (g->profiling)
        profile_fail(m, g);
    else if (profile_missing(m, g) && m->now >= g->profile_at)
        profile_begin(m, g);
    else if (whole && !profile_missing(m, g))
        tell(m, g, &s->experience, &c);
    g->blind = good ? 0 : g->blind + 1;
    if (g->blind > BLIND_MAX) { /* old speeds must hold no job */
        g->space.less = 0;
        g->space.turns = false;
    }
    g->windows += g->settled && g->windows < SHORT_MAX;
    g->settled |= !g->profiling;
}

/* Holds the jobs that have no turn. A job that takes turns has its share of them as its speed. */
static uint64_t take_turns(struct model *m, struct speeds_gpu *g, unsigned d)
{
    struct space_job v[SPEED_JOBS] = {{0}};
    double weights = 0;
    uint64_t wake;
    bool turns = g->space.turns;
    uint32_t current = g->space.current;
    for (uint32_t i = 0; i < g->n; i++)
        v[i] = space_terms(m, g, i);
    uint32_t held = space_decide(&g->space, v, g->n, m->now, &wake);
    if (turns != g->space.turns || (turns && current != g->space.current)) {
        g->settled = false;
        g->at = m->now + SETTLE_NS;
    }
    /* The GPU's clock changes with the jobs that run, so the window is summed from parts. */
    if (g->space.less > 0 && held != g->held && !add_counters(m, g, d))
        g->settled = false;
    g->held = held;
    for (uint32_t i = 0; i < g->n; i++)
        weights += held >> i & 1 || i == g->space.current ? v[i].weight : 0;
    for (uint32_t i = 0; i < g->n; i++) {
        struct job_speed *s = &m->jobs[g->jobs[i]].speed;
        s->held = held >> i & 1;
        s->turns = g->space.turns && (s->held || i == g->space.current);
        s->value = s->turns ? v[i].weight / weights : s->value;
    }
    return wake;
}

uint32_t speeds_together(const struct speeds *s, const struct model *m, uint32_t slot, unsigned d,
                         bool clients)
{
    uint32_t jobs[SPEED_JOBS] = {slot}, n = 1;
    for_each_job (m, j) {
        if (s->experience.n && n < SPEED_JOBS && model_job_slot(m, j) != slot &&
            (j->is_client || !clients) && !j->rec.paused && j->rec.class == CLASS_BATCH &&
            j->rec.uid == m->jobs[slot].rec.uid && model_job_computes(m, j) >> d & 1)
            jobs[n++] = model_job_slot(m, j);
    }
    return n > 1 && n < SPEED_JOBS
               ? experience_of(&s->experience, experience_key(m, jobs, n), m->now)
               : 0;
}

bool speeds_lose(const struct speeds *s, const struct model *m, uint32_t slot)
{
    bool lose = false;
    for (unsigned d = 0; d < m->ngpus; d++) {
        const uint32_t together = speeds_together(s, m, slot, d, true);
        lose |= together && together < EXPERIENCE_LEAST;
    }
    return lose;
}

uint64_t speeds_due(struct speeds *s, struct model *m)
{
    uint64_t next = TIME_NEVER;
    for (unsigned d = 0; d < m->ngpus; d++) {
        struct speeds_gpu *g = &s->gpu[d];
        uint32_t jobs[SPEED_JOBS];
        if (!(m->gpus[d].caps & GPU_CAP_COUNTERS))
            continue;
        uint32_t n = m->nshared ? find_unit(m, d, jobs) : 0;
        adopt_jobs(m, g, &s->experience, jobs, n);
        if (!n)
            continue;
        if (m->now >= g->at)
            speeds_look(s, m, d);
        next = min_u64(next, g->profiling ? g->at : min_u64(take_turns(m, g, d), g->at));
    }
    return next;
}
