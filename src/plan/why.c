/* See sched.h: explains the last decision by the scheduler's state. */
#include <stdlib.h>

#include "plan/sched_impl.h"

static const struct {
    const char *name, *text;
} reasons[] = {
#define X(why, name, text) {name, text},
    SCHED_WHY(X)
#undef X
};

const char *sched_why_text(enum sched_why why)
{
    return reasons[why].text;
}

const char *sched_why_name(enum sched_why why)
{
    return reasons[why].name;
}

static bool wants_turn(const struct policy_device *dev, const struct member *m)
{
    return rotation_takes_part(dev, m) && !m->idle &&
           !(dev->rotation.batch_waits && m->class == CLASS_BATCH);
}

/* No two are equal, so that the order is the same with any qsort(). */
static int why_order(const void *x, const void *y)
{
    const struct company_entry *a = x, *b = y;
    if (account_before(a->dev, a->m, b->m) != account_before(a->dev, b->m, a->m))
        return account_before(a->dev, a->m, b->m) ? -1 : 1;
    return a->m->job < b->m->job ? -1 : a->m->job > b->m->job;
}

/* Gets facts about all members of a device. They are computed once until something changes, because
 * otherwise a list of all jobs would take quadratic time. */
static const struct crowd *crowd_of(struct sched *c, uint32_t device)
{
    struct policy_device *dev = &c->devices[device];
    struct crowd *w = &dev->crowd;
    struct company_entry *queue = &c->order[(size_t)device * c->limits.jobs];
    if (c->explained >> device & 1)
        return w;
    *w = (struct crowd){.works = {SLOT_NONE, SLOT_NONE, SLOT_NONE}, .queue = queue};
    for_each_member (dev, x) {
        if (wants_turn(dev, x) && x->job != dev->rotation.current)
            queue[w->queued++] = (struct company_entry){dev, x};
        w->busy += wants_turn(dev, x);
        w->width += rotation_takes_part(dev, x) ? member_width(x) : 0;
        w->present[x->class] += x->present;
        if (x->present && !x->idle && w->works[x->class] == SLOT_NONE)
            w->works[x->class] = x->job;
    }
    qsort(queue, w->queued, sizeof(*queue), why_order);
    c->explained |= 1U << device;
    return w;
}

/* The number of jobs in the queue that have their turn before this one. */
static uint32_t count_ahead(const struct crowd *w, const struct policy_device *dev,
                            const struct member *m)
{
    uint32_t lo = 0, hi = w->queued;
    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;
        const struct member *x = w->queue[mid].m;
        if (x != m && account_before(dev, x, m))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* When the present turn ends, if a job waits for that. */
static uint64_t turn_end(const struct sched *c, const struct policy_device *dev)
{
    const struct crowd *w = &dev->crowd;
    if (w->width < 2 || dev->rotation.current == SLOT_NONE)
        return TIME_NEVER;
    return rotation_turn_end(&c->params, dev, w->busy);
}

static void why_runs(const struct sched *c, const struct policy_device *dev, const struct member *m,
                     struct sched_reason *out)
{
    uint32_t others = 0, peers = 0;
    for (unsigned class = 0; class < CLASS_COUNT; class ++) {
        others += dev->crowd.present[class];
        peers += class <= m->class ? dev->crowd.present[class] : 0;
    }
    others -= m->present;
    peers -= m->present;
    if (m->watched)
        out->why = WHY_WATCHED;
    else if (!others)
        out->why = WHY_ALONE;
    else if (dev->rotation.current == m->job)
        out->why = WHY_TURN;
    else if (m->company.beside)
        out->why = WHY_BESIDE;
    else if (m->slack.role != SLACK_NONE && dev->order.leader != SLOT_NONE)
        out->why = WHY_SLACK;
    else
        out->why = peers ? WHY_SLICES : WHY_FIRST;
    if (out->why == WHY_SLACK && dev->order.leader != m->job)
        out->other = dev->order.leader;
    out->until_ns = out->why == WHY_TURN ? turn_end(c, dev) : TIME_NEVER;
}

/* A working job of a higher class for which this one waits; SLOT_NONE: there is none. */
static uint32_t find_better(const struct crowd *w, const struct policy_device *dev,
                            const struct member *m)
{
    if (!dev->gated && !(dev->rotation.batch_waits && m->class == CLASS_BATCH))
        return SLOT_NONE;
    for (unsigned class = dev->gated ? 0 : CLASS_NORMAL; class < m->class; class ++) {
        if (w->works[class] != SLOT_NONE)
            return w->works[class];
    }
    return SLOT_NONE;
}

bool sched_member_outranked(struct sched *c, uint32_t job, uint32_t device)
{
    if (job >= c->limits.jobs || device >= c->limits.devices)
        return false;
    const struct policy_device *dev = &c->devices[device];
    const struct member *m = &dev->members[job];
    return m->used && find_better(crowd_of(c, device), dev, m) != SLOT_NONE;
}

/* The other device because of which a gang may not run; SLOT_NONE: there is none. */
static uint32_t held_elsewhere(const struct sched *c, const struct member *m)
{
    for (uint32_t d = 0; m->gang && d < c->limits.devices; d++) {
        const struct policy_device *dev = &c->devices[d];
        if (dev->members[m->job].gang && dev->rotation.current != m->job &&
            dev->rotation.current != SLOT_NONE)
            return d;
    }
    return SLOT_NONE;
}

static void why_waits(const struct sched *c, const struct policy_device *dev,
                      const struct member *m, struct sched_reason *out)
{
    const struct rotation *r = &dev->rotation;
    const uint32_t above = find_better(&dev->crowd, dev, m), boost = dev->boost.job;
    if (dev->gated && m->idle) {
        out->why = WHY_IDLE;
    } else if (dev->speed.phase == SPEED_THROTTLED) {
        out->why = WHY_THROTTLED;
        out->until_ns = dev->speed.until_ns;
    } else if (boost != SLOT_NONE && boost != m->job &&
               (dev->boost.promoted || r->current == boost)) {
        out->why = WHY_BOOSTED;
        out->other = boost;
    } else if (above != SLOT_NONE) {
        out->why = WHY_CLASS;
        out->other = above;
    } else if (r->current == SLOT_NONE && held_elsewhere(c, m) != SLOT_NONE) {
        out->why = WHY_GANG;
        out->device = held_elsewhere(c, m);
        out->other = c->devices[out->device].rotation.current;
    } else {
        out->why = WHY_NEXT;
        out->other = r->current;
        out->until_ns = turn_end(c, dev);
        out->ahead = count_ahead(&dev->crowd, dev, m);
    }
}

static bool is_in_window_of_other(const struct policy_device *dev, const struct member *m)
{
    return dev->window != SLOT_NONE && dev->window != m->job;
}

bool sched_member_at_ceiling(const struct sched *c, uint32_t job, uint32_t device)
{
    const struct policy_device *dev = &c->devices[device];
    const struct member *m = &dev->members[job];
    return m->used && m->limit.verdict != LIMIT_NONE && !is_in_window_of_other(dev, m);
}

struct sched_reason sched_explain(struct sched *c, uint32_t job, uint32_t device)
{
    struct sched_reason out = {
        .why = WHY_ABSENT, .other = SLOT_NONE, .device = SLOT_NONE, .until_ns = TIME_NEVER};
    if (job >= c->limits.jobs || device >= c->limits.devices ||
        !c->devices[device].members[job].used)
        return out;
    const struct policy_device *dev = &c->devices[device];
    const struct member *m = &dev->members[job];
    crowd_of(c, device);
    if (m->limit.verdict != LIMIT_NONE && is_in_window_of_other(dev, m)) {
        out.why = WHY_WINDOW;
        out.other = dev->window;
    } else if (m->limit.verdict != LIMIT_NONE) {
        out.why = WHY_CEILING;
    } else if (!m->present) {
        out.why = WHY_PAUSED;
    } else if (m->runnable) {
        why_runs(c, dev, m, &out);
    } else {
        why_waits(c, dev, m, &out);
    }
    return out;
}
