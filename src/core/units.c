/* Units: jobs whose programs are clients of one MPS server. See model.h. */
#include "core/model.h"

void model_group_show(struct model *m, uint32_t slot, uint32_t job)
{
    struct channel_group *g = &m->groups[slot];
    if (g->sched_job == job)
        return;
    if (g->sched_job != SLOT_NONE)
        model_emit(m, (struct sched_event){.type = EV_GROUP_REMOVE, .group = slot});
    g->sched_job = job;
    if (job != SLOT_NONE)
        model_emit(m, (struct sched_event){.type = EV_GROUP_ADD,
                                           .group = slot,
                                           .job = job,
                                           .device = g->dg.gpu,
                                           .computes = g->dg.kind == GROUP_COMPUTE,
                                           .process = g->process,
                                           .unseen_ns = g->unseen_ns});
    g->unseen_ns = job == SLOT_NONE ? g->unseen_ns : 0;
    m->dirty = true;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The terms of two jobs of a unit together. Limits of a lower class do not count, nor a ceiling of
 * the higher one if the classes differ, because it would be charged for the lower jobs' work. */
static struct job_terms best_of(struct job_terms a, struct job_terms b)
{
    struct job_terms t = a.class <= b.class ? a : b;
    if (a.class != b.class) {
        t.gpu_max = 0;
        return t;
    }
    t.weight = larger(a.weight, b.weight);
    t.budget_us = a.budget_us < b.budget_us ? a.budget_us : b.budget_us;
    t.min_speed = larger(a.min_speed, b.min_speed);
    t.gpu_min = larger(a.gpu_min, b.gpu_min);
    t.gpu_max = a.gpu_max && b.gpu_max ? larger(a.gpu_max, b.gpu_max) : 0;
    return t;
}

/* The combined terms of the jobs that this one stands for. */
static struct job_terms unit_terms(const struct model *m, uint32_t job)
{
    const uint32_t unit = m->jobs[job].unit;
    struct job_terms t = m->jobs[job].rec.terms;
    bool any = false;
    for_each_job (m, j) {
        if (j->unit != unit || model_job_off(j))
            continue;
        t = any ? best_of(t, j->rec.terms) : j->rec.terms;
        any = true;
    }
    if (!any && m->jobs[job].is_client) { /* queued work of a paused unit runs after all others' */
        t.class = CLASS_BATCH;
        t.budget_us = t.gpu_min = 0;
    }
    return t;
}

void model_unit_changed(struct model *m, uint32_t job)
{
    struct job *j = &m->jobs[job];
    if (j->unit != job)
        model_unit_changed(m, j->unit);
    struct job_terms terms = j->unit == job ? unit_terms(m, job) : j->rec.terms;
    terms.class = j->trial.ranked ? j->trial.class : terms.class;
    j->unit_class = terms.class;
    model_emit(m, model_terms_event(EV_JOB_CHANGE, job, &terms));
    model_emit(m, (struct sched_event){
                      .type = EV_JOB_PAUSE, .job = job, .on = model_job_off(j) && !j->is_client});
}

/* ---- which jobs are a unit ---- */

void model_group_part(struct model *m, uint32_t slot)
{
    uint32_t last = slot;
    for_each_twin (m, slot, t)
        last = t;
    m->groups[last].twin = m->groups[slot].twin;
    m->groups[slot].twin = slot;
}

static int by_share(const void *a, const void *b, void *groups)
{
    const struct device_group *x = &((struct channel_group *)groups)[*(const uint32_t *)a].dg;
    const struct device_group *y = &((struct channel_group *)groups)[*(const uint32_t *)b].dg;
    if (x->gpu != y->gpu)
        return x->gpu < y->gpu ? -1 : 1;
    if (x->shared != y->shared)
        return x->shared < y->shared ? -1 : 1;
    return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1;
}

static struct job *unit_client(const struct model *m, uint32_t slot)
{
    return &m->jobs[m->processes[m->groups[slot].process].job];
}

/* The job that stands for this one in the links made so far. */
static struct job *unit_root(const struct model *m, struct job *j)
{
    while (&m->jobs[j->unit] != j)
        j = &m->jobs[j->unit];
    return j;
}

/* Unites the units of two jobs; the older job stands for both. */
static void unite(struct model *m, struct job *a, struct job *b)
{
    a = unit_root(m, a);
    b = unit_root(m, b);
    if (a->rec.number < b->rec.number)
        b->unit = model_job_slot(m, a);
    else
        a->unit = model_job_slot(m, b);
}

static bool has_foreign_client(const struct model *m, const struct device_group *dg)
{
    for_each (u, m->unmanaged, m->nunmanaged) {
        if (u->seen && u->shares[dg->gpu] == dg->shared)
            return true;
    }
    return false;
}

/* How many slots from v[0] on are the same group in the hardware. */
static uint32_t twins(const struct model *m, const uint32_t *v, uint32_t n)
{
    uint32_t k = 1;
    while (k < n && m->groups[v[k]].dg.gpu == m->groups[v[0]].dg.gpu &&
           m->groups[v[k]].dg.shared == m->groups[v[0]].dg.shared)
        k++;
    return k;
}

static void find_units(struct model *m)
{
    uint32_t n = 0, *v = m->shared;
    for (uint32_t i = 0; i < m->groups_end; i++) {
        if (group_live(&m->groups[i]) && m->groups[i].dg.shared)
            v[n++] = i;
    }
    qsort_r(v, n, sizeof(*v), by_share, m->groups);
    m->nshared = n;
    for (uint32_t from = 0, k; from < n; from += k) {
        k = twins(m, v + from, n - from);
        for (uint32_t i = from; i < from + k; i++) {
            unit_client(m, v[i])->is_client = true;
            m->groups[v[i]].twin = v[i + 1 < from + k ? i + 1 : from];
            if (unit_client(m, v[i]) != unit_client(m, v[from]))
                unite(m, unit_client(m, v[i]), unit_client(m, v[from]));
        }
        if (has_foreign_client(m, &m->groups[v[from]].dg))
            unit_client(m, v[from])->left_alone = true;
    }
    for_each_job (m, j) {
        struct job *unit = unit_root(m, j);
        unit->left_alone |= j->left_alone;
        unit->united |= unit != j;
    }
    for_each_job (m, j) {
        struct job *unit = unit_root(m, j);
        j->unit = model_job_slot(m, unit);
        j->left_alone = unit->left_alone;
        j->united = unit->united;
    }
}

void model_units_update(struct model *m)
{
    if (!m->units_dirty)
        return;
    m->units_dirty = false;
    for_each_job (m, j) {
        j->was_client = j->is_client;
        j->unit = model_job_slot(m, j);
        j->is_client = j->united = j->left_alone = false;
    }
    find_units(m);
    m->nalone = 0;
    for (uint32_t i = 0; i < m->groups_end; i++) {
        struct channel_group *g = &m->groups[i];
        if (!group_live(g))
            continue;
        const struct job *j = unit_client(m, i);
        /* The scheduler knows only the first of twins. */
        bool first = true;
        for (uint32_t t = g->twin; t != i && first; t = m->groups[t].twin)
            first = t > i;
        m->nalone += j->left_alone;
        model_group_show(m, i, j->left_alone || !first ? SLOT_NONE : j->unit);
    }
    for_each_job (m, j) {
        if (j->was_client || j->is_client)
            model_unit_changed(m, model_job_slot(m, j));
    }
}

void model_unit_leave(struct model *m, uint32_t job)
{
    for (uint32_t i = 0; i < m->groups_end; i++) {
        if (group_live(&m->groups[i]) && m->groups[i].sched_job == job)
            model_group_show(m, i, SLOT_NONE);
    }
    /* The slot may get another job before the next update, so no job may refer to it. */
    for_each_job (m, j) {
        if (j->unit == job)
            j->unit = model_job_slot(m, j);
    }
    m->units_dirty |= m->nshared > 0;
}

uint32_t model_process_gpus(const struct model *m, const struct process *p)
{
    uint32_t gpus = 0;
    for_each_group_of (m, p, g)
        gpus |= 1U << m->groups[g].dg.gpu;
    return gpus;
}

uint32_t model_job_gpus(const struct model *m, const struct job *j)
{
    uint32_t gpus = 0;
    for_each_process_of (m, j, p)
        gpus |= model_process_gpus(m, &m->processes[p]);
    return gpus;
}

uint32_t model_job_computes(const struct model *m, const struct job *j)
{
    uint32_t gpus = 0;
    for_each_process_of (m, j, p) {
        for_each_group_of (m, &m->processes[p], g)
            gpus |= (m->groups[g].dg.kind == GROUP_COMPUTE ? 1U : 0U) << m->groups[g].dg.gpu;
    }
    return gpus;
}

/* ---- the timeslice of twins ---- */

/* Finds the timeslice that a shared group had before cede changed it. The twin that has the
 * driver's default, or else the one that is known for longer, was seen before the change. If no
 * twin is left that was, a timeslice other than the default is taken for cede's. */
void model_group_inherit(struct model *m, uint32_t slot)
{
    struct channel_group *g = &m->groups[slot];
    const uint64_t usual = m->gpus[g->dg.gpu].timeslice_default_us;
    const bool is_usual = g->dg.timeslice_us == usual;
    bool known = g->timeslice_us.unsure; /* its first timeslice is from its record */
    m->units_dirty = true;
    if (!g->dg.shared)
        return;
    unit_client(m, slot)->is_client = true;
    m->discover_now |= m->nshared == 0; /* the server may have unmanaged clients */
    for_each (t, m->groups, m->groups_end) {
        if (t == g || !group_live(t) || t->dg.gpu != g->dg.gpu || t->dg.shared != g->dg.shared)
            continue;
        if (is_usual)
            t->dg.timeslice_us = usual;
        else
            g->dg.timeslice_us = t->dg.timeslice_us;
        g->timeslice_us.have = t->timeslice_us.have;
        g->timeslice_us.unsure = t->timeslice_us.unsure;
        model_group_changed(m, t);
        known = true;
    }
    g->dg.timeslice_us = known ? g->dg.timeslice_us : usual;
    model_group_changed(m, g);
}
