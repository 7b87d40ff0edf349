/* See step_order.h. */
#include "libcede/pure/step_order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "cede/step.h"
#include "libcede/pure/times.h"

#define DEPTHS (CEDE_STEP_DEPTH_MAX + 1) /* slots: a step may be begun while `depth` run */

struct order_member {
    uint32_t generation;
    uint32_t steps; /* that have it and are not finished */
    uint32_t index; /* in step `latest` */
    bool used, left;
    int reason;
    uint64_t added;  /* number of the step that it was put into last */
    uint64_t latest; /* the same, of those launched */
    uint64_t deadline_ns;
    const struct cede_scope *scope;
    void *user;
    STAILQ_ENTRY(order_member) link; /* among the free ones, or those that have left */
};
STAILQ_HEAD(order_list, order_member);

struct order_block {
    int64_t symbol;
    uint64_t last; /* step that may read it */
};

struct step_order {
    unsigned depth, batch, requests;
    uint64_t begun, launched, finished; /* numbers */
    struct order_step steps[DEPTHS];    /* by number */
    struct order_block blocks[DEPTHS];  /* of finished steps */
    unsigned nblocks, njoined;
    unsigned watched;             /* requests with a scope or a deadline that have not left */
    struct order_list free, gone; /* gone: they have left, and no step has them */
    struct order_member *members;
};

static struct order_step *order_at(const struct step_order *o, uint64_t number)
{
    return (struct order_step *)&o->steps[number % (o->depth + 1)];
}

int cede_order_new(unsigned depth, unsigned batch, unsigned requests, struct step_order **out)
{
    struct step_order *o = calloc(1, sizeof(*o));
    if (!o)
        return -ENOMEM;
    *o = (struct step_order){.depth = depth, .batch = batch, .requests = requests};
    o->members = calloc(requests, sizeof(*o->members));
    bool made = o->members;
    for (unsigned i = 0; i <= depth; i++) {
        struct order_step *s = &o->steps[i];
        s->user = calloc(batch, sizeof(*s->user));
        s->surplus = calloc(batch, 1);
        s->member = calloc(batch, sizeof(*s->member));
        made = made && s->user && s->surplus && s->member;
    }
    if (!made) {
        cede_order_free(o);
        return -ENOMEM;
    }
    STAILQ_INIT(&o->free);
    STAILQ_INIT(&o->gone);
    for (uint32_t i = 0; i < requests; i++)
        STAILQ_INSERT_TAIL(&o->free, &o->members[i], link);
    *out = o;
    return 0;
}

void cede_order_free(struct step_order *o)
{
    if (!o)
        return;
    for (unsigned i = 0; i <= o->depth; i++) {
        free((void *)o->steps[i].user);
        free(o->steps[i].surplus);
        free(o->steps[i].member);
    }
    free(o->members);
    free(o);
}

/* ---- requests -------------------------------------------------------------------------------- */

static bool order_watched(const struct order_member *m)
{
    return m->scope || m->deadline_ns != TIME_NEVER;
}

int cede_order_join(struct step_order *o, void *user, const struct cede_scope *scope,
                    uint64_t deadline_ns, uint64_t *id)
{
    struct order_member *m = STAILQ_FIRST(&o->free);
    if (!m)
        return -ENOSPC;
    STAILQ_REMOVE_HEAD(&o->free, link);
    o->njoined++;
    *m = (struct order_member){.generation = m->generation + 1,
                               .used = true,
                               .deadline_ns = deadline_ns,
                               .scope = scope,
                               .user = user};
    o->watched += order_watched(m);
    *id = (uint64_t)m->generation << 32 | (uint64_t)(m - o->members + 1);
    return 0;
}

static struct order_member *order_find(const struct step_order *o, uint64_t id)
{
    uint32_t i = order_slot(id);
    if (i >= o->requests)
        return NULL;
    struct order_member *m = &o->members[i];
    return m->used && !m->left && m->generation == id >> 32 ? m : NULL;
}

static void order_leave(struct step_order *o, struct order_member *m, int reason)
{
    m->left = true;
    o->watched -= order_watched(m);
    m->reason = reason;
    if (!m->steps)
        STAILQ_INSERT_TAIL(&o->gone, m, link);
}

int cede_order_leave(struct step_order *o, uint64_t id, int reason)
{
    struct order_member *m = order_find(o, id);
    if (!m)
        return -ENOENT;
    order_leave(o, m, reason);
    return 0;
}

void cede_order_expire(struct step_order *o, uint64_t now_ns,
                       int (*stopped)(const struct cede_scope *scope))
{
    unsigned left = o->watched;
    for (uint32_t i = 0; left && i < o->requests; i++) {
        struct order_member *m = &o->members[i];
        if (!m->used || m->left || !order_watched(m))
            continue;
        left--;
        if (now_ns >= m->deadline_ns)
            order_leave(o, m, -ETIMEDOUT);
        else if (m->scope && stopped(m->scope))
            order_leave(o, m, -ECANCELED);
    }
}

void cede_order_leave_all(struct step_order *o, int reason)
{
    for (uint32_t i = 0; i < o->requests; i++) {
        if (o->members[i].used && !o->members[i].left)
            order_leave(o, &o->members[i], reason);
    }
}

bool cede_order_take_left(struct step_order *o, void **user, int *reason, uint32_t *slot)
{
    struct order_member *m = STAILQ_FIRST(&o->gone);
    if (!m)
        return false;
    *user = m->user;
    *reason = m->reason;
    *slot = (uint32_t)(m - o->members);
    STAILQ_REMOVE_HEAD(&o->gone, link);
    STAILQ_INSERT_HEAD(&o->free, m, link);
    m->used = false;
    o->njoined--;
    return true;
}

unsigned cede_order_requests(const struct step_order *o)
{
    return o->njoined;
}

/* ---- steps ----------------------------------------------------------------------------------- */

unsigned cede_order_running(const struct step_order *o)
{
    return (unsigned)(o->launched - o->finished);
}

struct order_step *cede_order_begin(struct step_order *o)
{
    struct order_step *s = order_at(o, o->launched + 1);
    o->begun = o->launched + 1;
    s->number = o->begun;
    s->n = 0;
    s->symbol = 0;
    return s;
}

int cede_order_add(struct step_order *o, uint64_t id, int64_t *symbol)
{
    struct order_step *s = order_at(o, o->begun);
    struct order_member *m = order_find(o, id);
    if (!m)
        return -ENOENT;
    if (m->added == o->begun)
        return -EALREADY;
    if (s->n == o->batch)
        return -ENOSPC;
    const struct order_step *latest = order_at(o, m->latest);
    *symbol = m->latest > o->finished && latest->symbol
                  ? cede_future_symbol(latest->symbol, m->index)
                  : 0;
    m->added = o->begun;
    m->steps++;
    s->user[s->n] = m->user;
    s->surplus[s->n] = 0;
    s->member[s->n++] = (uint32_t)(m - o->members);
    return 0;
}

/* A step does not have its requests any more. */
static void order_drop(struct step_order *o, struct order_step *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        struct order_member *m = &o->members[s->member[i]];
        if (--m->steps == 0 && m->left)
            STAILQ_INSERT_TAIL(&o->gone, m, link);
    }
}

void cede_order_abandon(struct step_order *o)
{
    struct order_step *s = order_at(o, o->begun);
    for (unsigned i = 0; i < s->n; i++)
        o->members[s->member[i]].added = 0; /* its number is used again */
    order_drop(o, s);
}

void cede_order_launched(struct step_order *o, int64_t symbol)
{
    struct order_step *s = order_at(o, o->begun);
    s->symbol = symbol;
    for (unsigned i = 0; i < s->n; i++) {
        o->members[s->member[i]].latest = s->number;
        o->members[s->member[i]].index = i;
    }
    o->launched = o->begun;
}

struct order_step *cede_order_oldest(const struct step_order *o)
{
    return o->launched > o->finished ? order_at(o, o->finished + 1) : NULL;
}

void cede_order_finish(struct step_order *o, int error)
{
    struct order_step *s = order_at(o, ++o->finished);
    for (unsigned i = 0; i < s->n; i++) {
        struct order_member *m = &o->members[s->member[i]];
        s->surplus[i] = m->left;
        if (error && !m->left)
            order_leave(o, m, error);
    }
    if (s->symbol)
        o->blocks[o->nblocks++] = (struct order_block){s->symbol, o->launched};
}

void cede_order_finished(struct step_order *o)
{
    order_drop(o, order_at(o, o->finished));
}

/* Blocks are in the order of steps, and so is what may read them. */
bool cede_order_take_free(struct step_order *o, int64_t *symbol)
{
    if (!o->nblocks || o->blocks[0].last > o->finished)
        return false;
    *symbol = o->blocks[0].symbol;
    memmove(o->blocks, o->blocks + 1, --o->nblocks * sizeof(o->blocks[0]));
    return true;
}
