/* See ancestors.h. */
#include "core/ancestors.h"

#include <errno.h>
#include <string.h>

#include "who/schedulers.h"

#define BUCKETS  ARRAY_SIZE(((struct ancestors *)0)->buckets)
#define MANY     8192U               /* a larger cache is cleared, as most of it has ended, */
#define KEEP_NS  (10 * NSEC_PER_SEC) /* but at most once in this time */
#define FRESH_NS NSEC_PER_SEC        /* how long a parent that was read needs no check */
#define AGAIN    4U                  /* attempts of a climb, as parents may end meanwhile */

static uint32_t ancestor_bucket(pid_t pid)
{
    return (uint32_t)pid * 2654435761U % BUCKETS;
}

static uint32_t ancestor_find(const struct ancestors *a, struct proc_id id)
{
    uint32_t s = a->n ? a->buckets[ancestor_bucket(id.pid)] : SLOT_NONE;
    while (s != SLOT_NONE && !proc_same(a->v[s].id, id))
        s = a->v[s].hash_next;
    return s;
}

static void ancestors_clear(struct ancestors *a, uint64_t now_ns)
{
    a->n = 0;
    a->began_ns = now_ns;
    for (size_t i = 0; i < BUCKETS; i++)
        a->buckets[i] = SLOT_NONE;
}

void ancestors_free(struct ancestors *a)
{
    free(a->v);
    *a = (struct ancestors){.v = NULL};
}

void ancestors_begin(struct ancestors *a, const struct model *m)
{
    if (a->n == ANCESTORS_MAX || !a->n || (a->n > MANY && m->now - a->began_ns > KEEP_NS))
        ancestors_clear(a, m->now);
    a->pass++;
    a->known++;
    for (uint32_t i = 0; a->n && i < m->processes_end; i++) {
        if (m->processes[i].id.pid)
            ancestors_set_job(a, m->processes[i].id, m->processes[i].job);
    }
    for (uint32_t i = 0; a->n && i < m->jobs_end; i++) {
        if (m->jobs[i].rec.root.pid && m->jobs[i].root_pidfd >= 0)
            ancestors_set_job(a, m->jobs[i].rec.root, i);
    }
}

/* Stores what was just read of a process. SLOT_NONE: the cache is full until it is cleared. */
static uint32_t ancestor_read(struct ancestors *a, const struct model *m,
                              const struct proc_stat *st)
{
    uint32_t s = ancestor_find(a, st->id);
    if (s == SLOT_NONE) {
        if (a->n == ANCESTORS_MAX || list_grow(&a->v, a->n, &a->cap, sizeof(*a->v)) < 0)
            return SLOT_NONE;
        uint32_t *bucket = &a->buckets[ancestor_bucket(st->id.pid)];
        const uint32_t job = model_job_with(m, st->id.pid);
        s = a->n++;
        a->v[s] = (struct ancestor){.id = st->id,
                                    .ppid = st->ppid,
                                    .parent = SLOT_NONE,
                                    .hash_next = *bucket,
                                    .job_pass = job == SLOT_NONE ? 0 : a->pass,
                                    .job = job};
        *bucket = s;
    }
    struct ancestor *x = &a->v[s];
    if (x->ppid != st->ppid) {
        x->ppid = st->ppid;
        x->parent = SLOT_NONE;
        x->top = false;
        a->known++; /* every `near` that was found through the old parent is invalid */
    }
    x->top |= x->ppid <= 1 || proc_is_keeper(st);
    x->read_ns = m->now;
    return s;
}

/* Reads the process's parent again. */
static int look_again(struct ancestors *a, const struct model *m, uint32_t s, uint32_t *left)
{
    struct proc_stat st;
    if (!*left)
        return -EAGAIN;
    --*left;
    int r = proc_stat_read(a->v[s].id.pid, &st);
    if (r == 0 && !proc_same(st.id, a->v[s].id))
        r = -ESRCH;
    if (r == 0)
        ancestor_read(a, m, &st);
    return r;
}

/* Reads the parent of s: sets it, or `top` if there is none, or notes that it has changed. */
static int find_parent(struct ancestors *a, const struct model *m, uint32_t s, uint32_t *left)
{
    struct proc_stat st;
    const pid_t ppid = a->v[s].ppid;
    if (!*left)
        return -EAGAIN;
    --*left;
    int r = proc_stat_read(ppid, &st);
    if (proc_unsure(r))
        return r;
    if (r == 0 && st.id.start_ticks <= a->v[s].id.start_ticks) {
        const uint32_t parent = ancestor_read(a, m, &st);
        a->v[s].parent = parent;
        return parent == SLOT_NONE ? -EAGAIN : 0;
    }
    r = look_again(a, m, s, left);
    if (r == -EAGAIN || proc_unsure(r))
        return r;
    a->v[s].top |= r < 0 || a->v[s].ppid == ppid;
    return 0;
}

/* *near: the first process in a job, from s upwards, or SLOT_NONE. */
static int climb(struct ancestors *a, const struct model *m, uint32_t s, uint32_t *left,
                 uint32_t *near)
{
    const uint32_t first = s;
    *near = SLOT_NONE;
    for (int depth = 0; depth < PROC_LEVELS_MAX; depth++) {
        const struct ancestor *x = &a->v[s];
        if (x->job_pass == a->pass)
            *near = s;
        else if (x->near_known == a->known)
            *near = x->near;
        if (*near != SLOT_NONE || x->near_known == a->known || x->top)
            break;
        int r = x->parent == SLOT_NONE ? find_parent(a, m, s, left) : 0;
        if (r < 0)
            return r;
        s = a->v[s].parent == SLOT_NONE ? s : a->v[s].parent;
    }
    for (uint32_t i = first; i != SLOT_NONE && i != s; i = a->v[i].parent) {
        a->v[i].near_known = a->known;
        a->v[i].near = *near;
    }
    return 0;
}

/* 1 if each process from s up to `end` still has the parent that is cached, 0 if one has not. */
static int still_below(struct ancestors *a, const struct model *m, uint32_t s, uint32_t end,
                       uint32_t *left)
{
    for (; s != end; s = a->v[s].parent) {
        const pid_t ppid = a->v[s].ppid;
        if (m->now - a->v[s].read_ns <= FRESH_NS)
            continue;
        int r = look_again(a, m, s, left);
        if (r == -EAGAIN || proc_unsure(r))
            return r;
        if (r == 0 && a->v[s].ppid != ppid)
            return 0;
    }
    return 1;
}

int ancestors_job(struct ancestors *a, const struct model *m, const struct proc_stat *st,
                  uint32_t *left, uint32_t *job)
{
    const uint32_t s = ancestor_read(a, m, st);
    *job = SLOT_NONE;
    if (s == SLOT_NONE)
        return -EAGAIN;
    for (unsigned n = 0; n < AGAIN; n++) {
        uint32_t near;
        int r = climb(a, m, s, left, &near);
        if (r < 0 || near == SLOT_NONE)
            return r;
        r = still_below(a, m, s, near, left);
        if (r > 0)
            *job = a->v[near].job;
        if (r != 0)
            return r > 0 ? 0 : r;
    }
    return -EAGAIN;
}

bool ancestors_may_have_job(struct ancestors *a, const struct model *m, struct proc_id id)
{
    const uint32_t s = ancestor_find(a, id);
    uint32_t none = 0, near;
    return s == SLOT_NONE || climb(a, m, s, &none, &near) < 0 || near != SLOT_NONE;
}

void ancestors_set_job(struct ancestors *a, struct proc_id id, uint32_t job)
{
    const uint32_t s = ancestor_find(a, id);
    if (s == SLOT_NONE)
        return;
    a->v[s].job_pass = a->pass;
    a->v[s].job = job;
    a->known++;
}

bool ancestors_up(const struct ancestors *a, struct proc_id *id)
{
    const uint32_t s = ancestor_find(a, *id);
    if (s == SLOT_NONE || a->v[s].parent == SLOT_NONE)
        return false;
    *id = a->v[a->v[s].parent].id;
    return true;
}
