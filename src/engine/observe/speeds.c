/* See speeds.h. */
#include "engine/observe/speeds.h"

#include <string.h>

#define SETTLE_NS   (200 * NSEC_PER_MSEC) /* what was queued when a job was held ends */
#define BESIDE_NS   (300 * NSEC_PER_MSEC)
#define ALONE_NS    NSEC_PER_SEC
#define WINDOW_NS   NSEC_PER_SEC
#define AGAIN_NS    (60 * NSEC_PER_SEC) /* between profiles of the same jobs */
#define NEWER       0.4                 /* weight of the last window */
#define NOTHING     0.003               /* of all parts together: it did not work */
#define MISFIT      4.0
#define MISFITS_MAX 10

static bool has_group_on(const struct model *m, const struct job *j, unsigned d)
{
    for_each_process_of (m, j, p) {
        for_each_group_of (m, &m->processes[p], g) {
            if (m->groups[g].dg.gpu == d && m->groups[g].dg.kind == GROUP_COMPUTE)
                return true;
        }
    }
    return false;
}

/* A job that is on several GPUs must not be held: its peers would wait inside a collective. */
static bool on_one_gpu(const struct model *m, const struct job *j)
{
    unsigned n = 0;
    for (unsigned d = 0; d < m->ngpus; d++)
        n += has_group_on(m, j, d);
    return n == 1;
}

/* The jobs of the only unit that works on this GPU below the latency class; 0 if there are others,
 * or one of them is not to be held. */
static uint32_t find_unit(const struct model *m, unsigned d, uint32_t *jobs)
{
    uint32_t n = 0, unit = SLOT_NONE;
    for_each_job (m, j) {
        if (j->rec.paused || !has_group_on(m, j, d) || model_class(m, j) == CLASS_LATENCY)
            continue;
        if (!j->united || j->left_alone || model_class(m, j) != CLASS_BATCH || !on_one_gpu(m, j)) {
            if (!j->on[d].idle || j->united)
                return 0;
            continue;
        }
        if ((unit != SLOT_NONE && unit != j->unit) || n == SPEED_JOBS)
            return 0;
        unit = j->unit;
        jobs[n++] = model_job_slot(m, j);
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

static void release(struct model *m, const struct speeds_gpu *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        struct job *j = &m->jobs[g->jobs[i]];
        if (j->rec.number == g->numbers[i])
            j->speed.held = j->speed.profiling = j->speed.turns = false;
    }
}

/* If they are not the same jobs as before, all starts anew with these. */
static void adopt_jobs(struct model *m, struct speeds_gpu *g, const uint32_t *jobs, uint32_t n)
{
    bool same = n == g->n;
    for (uint32_t i = 0; i < n && same; i++)
        same = jobs[i] == g->jobs[i] && m->jobs[jobs[i]].rec.number == g->numbers[i];
    if (same)
        return;
    release(m, g);
    for (uint32_t i = 0; i < g->n; i++)
        m->jobs[g->jobs[i]].speed.told = false;
    *g = (struct speeds_gpu){.n = n, .at = m->now};
    for (uint32_t i = 0; i < n; i++) {
        g->jobs[i] = jobs[i];
        g->numbers[i] = m->jobs[jobs[i]].rec.number;
    }
}

static bool profile_missing(const struct model *m, const struct speeds_gpu *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        if (!m->jobs[g->jobs[i]].speed.known)
            return true;
    }
    return false;
}

/* ---- profiles ---- */

static void profile_step(struct model *m, struct speeds_gpu *g)
{
    while (g->next > 0 && g->next <= g->n && m->jobs[g->jobs[g->next - 1]].speed.known)
        g->next++;
    g->profiling = g->next <= g->n;
    g->settled = false;
    g->at = m->now + (g->profiling ? SETTLE_NS : 0);
    if (g->profiling)
        hold_all_but(m, g, g->next ? g->jobs[g->next - 1] : SLOT_NONE);
    else
        release(m, g);
}

static void profile_begin(struct model *m, struct speeds_gpu *g)
{
    g->next = 0;
    g->profile_at = m->now + AGAIN_NS;
    g->misfits = 0;
    for (uint32_t i = 0; i < g->n; i++)
        m->jobs[g->jobs[i]].speed.profiling = true;
    profile_step(m, g);
}

static void profile_take(struct model *m, struct speeds_gpu *g, const struct gpu_counters *c)
{
    if (g->next == 0) {
        memcpy(g->beside, c->parts, sizeof(g->beside));
    } else {
        struct job_speed *s = &m->jobs[g->jobs[g->next - 1]].speed;
        double sum = 0;
        for (unsigned p = 0; p < GPU_PARTS; p++) {
            double v = c->parts[p] - g->beside[p];
            s->profile[p] = v > 0 ? v : 0;
            sum += s->profile[p];
        }
        s->known = sum > NOTHING;
    }
    g->next++;
    profile_step(m, g);
}

/* ---- speeds ---- */

/* What one keeps others lose: only those of the same user. */
static struct space_job space_terms(const struct model *m, const struct speeds_gpu *g, uint32_t i)
{
    const struct journal_job *rec = &m->jobs[g->jobs[i]].rec;
    bool alike = true;
    for (uint32_t k = 0; k < g->n; k++)
        alike &= m->jobs[g->jobs[k]].rec.uid == rec->uid;
    return (struct space_job){.weight = rec->weight,
                              .min_speed = alike ? rec->min_speed / 100.0 : 0};
}

static void tell(struct model *m, struct speeds_gpu *g, const struct gpu_counters *c)
{
    double profiles[SPEED_JOBS][GPU_PARTS], together[GPU_PARTS], misfit;
    struct speed got[SPEED_JOBS], all;
    struct space_job v[SPEED_JOBS];
    for (uint32_t i = 0; i < g->n; i++)
        memcpy(profiles[i], m->jobs[g->jobs[i]].speed.profile, sizeof(profiles[i]));
    for (unsigned p = 0; p < GPU_PARTS; p++)
        together[p] = c->parts[p] > g->beside[p] ? c->parts[p] - g->beside[p] : 0;
    speeds_estimate(profiles, g->n, together, got, &all, &misfit);
    for (uint32_t i = 0; i < g->n; i++) {
        struct job_speed *s = &m->jobs[g->jobs[i]].speed;
        double by = s->told ? NEWER : 1;
        s->value += (got[i].value - s->value) * by;
        s->error += (got[i].error - s->error) * by;
        s->told = true;
        v[i] = space_terms(m, g, i);
        v[i].speed = got[i];
    }
    space_told(&g->space, v, g->n, all, m->now);
    /* They do something else than when they were alone. */
    g->misfits = misfit > MISFIT ? g->misfits + 1 : 0;
    if (g->misfits < MISFITS_MAX || m->now < g->profile_at)
        return;
    for (uint32_t i = 0; i < g->n; i++)
        m->jobs[g->jobs[i]].speed.known = false;
}

static void speeds_look(struct speeds_gpu *g, struct model *m, unsigned d)
{
    struct gpu_counters c;
    int r = m->driver->ops->counters(m->driver, d, &c, NULL);
    if (g->profiling && !g->settled) {
        g->settled = true; /* this window has the time before in it */
        g->at = m->now + (g->next ? ALONE_NS : BESIDE_NS);
    } else if (g->profiling && r == 0) {
        profile_take(m, g, &c);
    } else if (profile_missing(m, g) && m->now >= g->profile_at) {
        profile_begin(m, g);
    } else {
        /* A longer one has something else in it: turns, or a pause. */
        if (r == 0 && !profile_missing(m, g) && c.window_ns < 2 * WINDOW_NS)
            tell(m, g, &c);
        g->at = m->now + WINDOW_NS;
    }
    if (g->at <= m->now)
        g->at = m->now + WINDOW_NS;
}

/* Holds those whose turn it is not. In turns each is as fast as its share of them. */
static uint64_t take_turns(struct model *m, struct speeds_gpu *g)
{
    struct space_job v[SPEED_JOBS] = {{0}};
    double weights = 0;
    uint64_t wake;
    for (uint32_t i = 0; i < g->n; i++) {
        v[i] = space_terms(m, g, i);
        weights += v[i].weight;
    }
    uint32_t held = space_decide(&g->space, v, g->n, m->now, &wake);
    for (uint32_t i = 0; i < g->n; i++) {
        struct job_speed *s = &m->jobs[g->jobs[i]].speed;
        s->held = held >> i & 1;
        s->turns = g->space.turns;
        s->value = s->turns ? v[i].weight / weights : s->value;
    }
    return wake;
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
        adopt_jobs(m, g, jobs, n);
        if (!n)
            continue;
        uint64_t turn = g->profiling ? TIME_NEVER : take_turns(m, g);
        if (m->now >= g->at && (g->profiling || !g->space.turns))
            speeds_look(g, m, d);
        next = min_u64(next, g->space.turns ? turn : min_u64(turn, g->at));
    }
    return next;
}
