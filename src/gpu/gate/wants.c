/* See gate.h. A program itself reports that it wants a device, and the gates of others are closed
 * for it. So a want is believed only as long as it has results. The time for which a program wants
 * a device through an open gate without one of its commands ending is a debt of its user, which is
 * cancelled when a command does end. Reconnecting, withdrawing a want for a moment, or many
 * programs at once therefore gain nothing. When the debt is too large, no want of the user is
 * believed until half of it has expired, except those of programs whose commands do end. A program
 * that invents ends of commands gains no more than one that works all the time: the turns of its
 * class. */
#include "gpu/gate/gate.h"

/* ---- programs that are stopped ---- */

/* A program that is stopped (^Z, a debugger) while it wants a device cannot withdraw its want, so
 * that is ignored until it goes on. Only programs whose want makes others wait are looked at, with
 * a few hundred looks per second at most. */

#define LOOK_NS       (50 * NSEC_PER_MSEC)
#define LOOKS_AT_ONCE 32 /* looks at once before each program is looked at more rarely */

/* A program that is found stopped once may have a tracer that stops it at each system call; twice
 * in a row means that a person stopped it. */
#define STOPPED_LOOKS 2

static bool gate_stopped(const struct gate_program *p)
{
    return p->stopped_looks >= STOPPED_LOOKS;
}

/* A bit for each device that the program wants. */
static uint32_t wanted_gpus(const struct gate_program *p)
{
    uint32_t gpus = 0;
    for (unsigned k = 0; k < GATE_DEVICES && p->fd >= 0; k++) {
        if (p->v[k].used && p->v[k].raw_wants)
            gpus |= 1U << p->v[k].gpu;
    }
    return gpus;
}

static void stops_look(struct gate_program *p)
{
    bool stopped = proc_stopped(p->proc);
    p->stopped_looks = !stopped ? 0 : gate_stopped(p) ? STOPPED_LOOKS : p->stopped_looks + 1;
}

static void stops_update(struct gate_driver *d)
{
    uint64_t now = d->now_ns();
    uint32_t once = 0, twice = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < d->end; i++) {
        uint32_t w = wanted_gpus(&d->programs[i]);
        twice |= once & w;
        once |= w;
    }
    for_each (p, d->programs, d->end) {
        if (p->fd < 0 || (!p->stopped_looks && !(wanted_gpus(p) & twice)))
            continue;
        n++;
        if (now >= d->stops_ns)
            stops_look(p);
    }
    d->stops_looked = n > 0;
    if (now >= d->stops_ns)
        d->stops_ns = now + LOOK_NS * (1 + n / LOOKS_AT_ONCE);
}

/* ---- wants that are believed ---- */

#define RECENT_NS   NSEC_PER_SEC       /* within which an ended command makes a program believed */
#define LOOK_MAX_NS (2 * NSEC_PER_SEC) /* the most time that is charged at once */

/* Returns whether a command has ended since the last look. */
static bool ended(struct gate_program *p, unsigned k)
{
    uint64_t now = atomic_load(&p->slot->device[k].ended);
    bool more = now != p->v[k].ended;
    p->v[k].ended = now;
    return more;
}

void gate_entry_update(struct gate_driver *d, struct gate_program *p, unsigned k)
{
    struct gate_entry *e = &p->v[k];
    struct quota *q = quota_of(&d->fruitless, p->principal);
    uint64_t now = d->now_ns(), passed = min_u64(now - e->looked_ns, LOOK_MAX_NS);
    if (ended(p, k)) {
        q->paid_ns -= min_u64(q->paid_ns, e->fruitless_ns * GATE_FRUITLESS_PART);
        e->fruitless_ns = 0;
        e->worked = true;
    } else if (e->was_open && gate_believed(d, p, k)) { /* other wants closed no gate */
        quota_charge(q, now, passed * GATE_FRUITLESS_PART);
        e->fruitless_ns += passed;
    }
    e->looked_ns = now;
    e->raw_wants = atomic_load(&p->slot->device[k].wants);
    e->was_open = atomic_load(&p->control->device[k].state) == GATE_ACTIVE;
}

void gate_wants_update(struct gate_driver *d)
{
    uint64_t now = d->now_ns();
    for (unsigned i = 0; i < d->end; i++) {
        for (unsigned k = 0; k < GATE_DEVICES && d->programs[i].fd >= 0; k++) {
            if (d->programs[i].v[k].used)
                gate_entry_update(d, &d->programs[i], k);
        }
    }
    stops_update(d);
    for_each (q, d->fruitless.v, QUOTA_USERS) {
        uint64_t most = q->left_out ? GATE_FRUITLESS_MAX_NS / 2 : GATE_FRUITLESS_MAX_NS;
        q->left_out = q->paid_ns > now + most * GATE_FRUITLESS_PART;
    }
}

bool gate_believed(struct gate_driver *d, const struct gate_program *p, unsigned device)
{
    const struct gate_entry *e = &p->v[device];
    return e->raw_wants && !gate_stopped(p) &&
           (!quota_of(&d->fruitless, p->principal)->left_out ||
            (e->worked && e->fruitless_ns < RECENT_NS));
}
