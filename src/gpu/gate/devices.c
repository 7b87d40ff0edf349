/* See gate.h. The driver has a few places for devices, and programs may name their devices as they
 * like. A name has a place as long as a program uses it. A user gets two places that no other user
 * has; further names of the user share the second one, so that a user who invents names takes no
 * more places from others. Root's programs are not limited. */
#include <string.h>

#include "gpu/gate/gate.h"

/* Copies a program's text, and replaces everything but printable ASCII by ?. */
static void take_text(char out[static 64], const char in[static 64])
{
    unsigned n = 0;
    for (; n < 63 && in[n]; n++)
        out[n] = in[n] >= ' ' && in[n] <= '~' ? in[n] : '?';
    out[n] = '\0';
}

/* Who uses a place: nobody, other users, others and this user, this user alone. */
enum place_use { PLACE_FREE, PLACE_OTHERS, PLACE_SHARED, PLACE_OWN };

static enum place_use place_use(const struct gate_driver *d, uint32_t place, uid_t uid)
{
    bool own = false, others = false;
    for (unsigned i = 0; i < d->end; i++) {
        const struct gate_program *p = &d->programs[i];
        for (unsigned k = 0; k < GATE_DEVICES && p->fd >= 0; k++) {
            if (!p->v[k].used || p->v[k].place != place)
                continue;
            own |= p->principal == uid;
            others |= p->principal != uid;
        }
    }
    return own ? (others ? PLACE_SHARED : PLACE_OWN) : others ? PLACE_OTHERS : PLACE_FREE;
}

uint32_t gate_place_of(struct gate_driver *d, const struct gate_program *p,
                       const struct gate_msg *m)
{
    struct gate_name n;
    uint32_t spare = GATE_PLACES, last_own = GATE_PLACES, own = 0;
    take_text(n.name, m->name);
    take_text(n.id, m->id);
    for (uint32_t i = 0; i < GATE_PLACES; i++) {
        enum place_use use = place_use(d, i, p->principal);
        if (use != PLACE_FREE && strcmp(d->places[i].name, n.name) == 0 &&
            strcmp(d->places[i].id, n.id) == 0)
            return i;
        own += use == PLACE_OWN;
        if (use == PLACE_OWN)
            last_own = i;
        if (use == PLACE_FREE && spare == GATE_PLACES)
            spare = i;
    }
    if (own >= GATE_PLACES_OF_USER && p->principal != 0)
        return last_own;
    if (spare == GATE_PLACES)
        return last_own < GATE_PLACES ? last_own : GATE_PLACES - 1;
    d->places[spare] = n;
    return spare;
}
