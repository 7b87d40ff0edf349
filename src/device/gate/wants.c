/* See gate.h. A program says by itself that it wants a device, and others' gates are closed for it.
 * So a want is believed only as long as something comes of it: the time that a program wants a
 * device through an open gate without one of its commands ending is put on its user's account, and
 * is taken off it again when a command does end. Reconnecting, ceasing to want for a moment, or
 * many programs at once therefore gain nothing. An account that is too full makes all the user's
 * wants count for nothing until half of it has fallen off with time, but for those of programs
 * whose commands do end. A program that invents its ends is one that works all the time: it takes
 * what its class and its turns give it. */
#include "device/gate/gate.h"

#define RECENT_NS   NSEC_PER_SEC /* a program whose last command ended so lately is believed */
#define LOOK_MAX_NS (2 * NSEC_PER_SEC) /* between two looks; more: it was us who did not run */

/* The user's account, or else that of the user with the least on it. */
static struct gate_user *gate_user(struct gate_driver *d, uid_t uid)
{
    struct gate_user *least = &d->users[0];
    for (unsigned i = 0; i < GATE_USERS; i++) {
        if (d->users[i].uid == uid)
            return &d->users[i];
        least = d->users[i].fruitless_ns < least->fruitless_ns ? &d->users[i] : least;
    }
    *least = (struct gate_user){.uid = uid};
    return least;
}

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
    struct gate_user *u = gate_user(d, p->account);
    uint64_t now = d->now_ns(), passed = min_u64(now - e->looked_ns, LOOK_MAX_NS);
    if (ended(p, k)) {
        u->fruitless_ns -= min_u64(u->fruitless_ns, e->fruitless_ns);
        e->fruitless_ns = 0;
        e->worked = true;
    } else if (e->was_open && gate_believed(d, p, k)) { /* else it closed no gate */
        u->fruitless_ns += passed;
        e->fruitless_ns += passed;
    }
    e->looked_ns = now;
    e->raw_wants = atomic_load(&p->slot->device[k].wants);
    e->was_open = atomic_load(&p->control->device[k].state) == GATE_ACTIVE;
}

void gate_wants_update(struct gate_driver *d)
{
    uint64_t now = d->now_ns(), paid = (now - d->paid_ns) / GATE_FRUITLESS_PART;
    d->paid_ns = now - (now - d->paid_ns) % GATE_FRUITLESS_PART;
    for (unsigned i = 0; i < d->end; i++) {
        for (unsigned k = 0; k < GATE_DEVICES && d->programs[i].fd >= 0; k++) {
            if (d->programs[i].v[k].used)
                gate_entry_update(d, &d->programs[i], k);
        }
    }
    gate_stops_update(d);
    for (unsigned i = 0; i < GATE_USERS; i++) {
        struct gate_user *u = &d->users[i];
        u->fruitless_ns -= min_u64(u->fruitless_ns, paid);
        u->doubted =
            u->fruitless_ns > (u->doubted ? GATE_FRUITLESS_MAX_NS / 2 : GATE_FRUITLESS_MAX_NS);
    }
}

bool gate_believed(struct gate_driver *d, const struct gate_program *p, unsigned device)
{
    const struct gate_entry *e = &p->v[device];
    return e->raw_wants && !gate_stopped(p) &&
           (!gate_user(d, p->account)->doubted || (e->worked && e->fruitless_ns < RECENT_NS));
}
