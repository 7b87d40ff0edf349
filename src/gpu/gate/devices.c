/* See gate.h. The driver has numbers for a few devices, and programs may name their devices as they
 * like. A name has one as long as a program uses it. A user gets two numbers that no other user
 * has; further names of the user share the second one, so that a user who invents names takes no
 * more of them from others. Root's programs are not limited. */
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

/* Who uses a number: nobody, other users, others and this user, this user alone. */
enum gpu_use { GPU_FREE, GPU_OTHERS, GPU_SHARED, GPU_OWN };

static enum gpu_use gpu_use(const struct gate_driver *d, uint32_t gpu, uid_t uid)
{
    bool own = false, others = false;
    for_each (p, d->programs, d->end) {
        for (unsigned k = 0; k < GATE_DEVICES && p->fd >= 0; k++) {
            if (!p->v[k].used || p->v[k].gpu != gpu)
                continue;
            own |= p->principal == uid;
            others |= p->principal != uid;
        }
    }
    return own ? (others ? GPU_SHARED : GPU_OWN) : others ? GPU_OTHERS : GPU_FREE;
}

uint32_t gate_gpu_of(struct gate_driver *d, const struct gate_program *p, const struct gate_msg *m)
{
    struct gate_name n;
    uint32_t spare = GATE_GPUS, last_own = GATE_GPUS, own = 0;
    take_text(n.name, m->name);
    take_text(n.id, m->id);
    for (uint32_t i = 0; i < GATE_GPUS; i++) {
        enum gpu_use use = gpu_use(d, i, p->principal);
        if (use != GPU_FREE && strcmp(d->gpus[i].name, n.name) == 0 &&
            strcmp(d->gpus[i].id, n.id) == 0)
            return i;
        own += use == GPU_OWN;
        if (use == GPU_OWN)
            last_own = i;
        if (use == GPU_FREE && spare == GATE_GPUS)
            spare = i;
    }
    if (own >= GATE_GPUS_OF_USER && p->principal != 0)
        return last_own;
    if (spare == GATE_GPUS)
        return last_own < GATE_GPUS ? last_own : GATE_GPUS - 1;
    d->gpus[spare] = n;
    return spare;
}
