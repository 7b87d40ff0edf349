/* See gate.h. A program that is stopped (^Z, a debugger) while it wants a device cannot say that it
 * does not: its want counts for nothing until it goes on. Only programs whose want keeps others
 * waiting are looked at, and all together a few hundred times a second at most. */
#include "device/gate/gate.h"

#define LOOK_NS       (50 * NSEC_PER_MSEC)
#define LOOKS_AT_ONCE 32 /* of so many more programs, each is looked at more rarely */

/* Once is a tracer's, who stops it at each system call; twice is a person's. */
#define STOPPED_LOOKS 2

bool gate_stopped(const struct gate_program *p)
{
    return p->stopped_looks >= STOPPED_LOOKS;
}

/* Bit for each place that it wants. */
static uint32_t wanted_places(const struct gate_program *p)
{
    uint32_t places = 0;
    for (unsigned k = 0; k < GATE_DEVICES && p->fd >= 0; k++) {
        if (p->v[k].used && p->v[k].raw_wants)
            places |= 1U << p->v[k].place;
    }
    return places;
}

static void stops_look(struct gate_program *p)
{
    bool stopped = proc_stopped(p->proc);
    p->stopped_looks = !stopped ? 0 : gate_stopped(p) ? STOPPED_LOOKS : p->stopped_looks + 1;
}

void gate_stops_update(struct gate_driver *d)
{
    uint64_t now = d->now_ns();
    uint32_t once = 0, twice = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < d->end; i++) {
        uint32_t w = wanted_places(&d->programs[i]);
        twice |= once & w;
        once |= w;
    }
    for (unsigned i = 0; i < d->end; i++) {
        struct gate_program *p = &d->programs[i];
        if (p->fd < 0 || (!p->stopped_looks && !(wanted_places(p) & twice)))
            continue;
        n++;
        if (now >= d->stops_ns)
            stops_look(p);
    }
    d->stops_looked = n > 0;
    if (now >= d->stops_ns)
        d->stops_ns = now + LOOK_NS * (1 + n / LOOKS_AT_ONCE);
}
