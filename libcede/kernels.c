/* See kernels.h. */
#include "libcede/kernels.h"

#include <errno.h>
#include <string.h>

#include "base/fnv.h"
#include "libcede/pure/leases.h"

static uint64_t kernels_mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0xbf58476d1ce4e5b9U;
    return h ^ (h >> 31);
}

/* The slot of a name, or the free one where it would be; -1: neither. */
static int kernels_slot(const struct kernels *k, const char *name)
{
    const uint64_t h = fnv(FNV_START, name, strlen(name));
    for (unsigned i = 0; i < CEDE_KERNELS_MAX; i++) {
        unsigned at = (unsigned)((h + i) % CEDE_KERNELS_MAX);
        if (!k->v[at].key || strcmp(k->v[at].name, name) == 0)
            return (int)at;
    }
    return -1;
}

int cede_kernels_set(struct kernels *k, const char *name, void *function, void *context,
                     uint32_t share)
{
    if (!name || !*name || strlen(name) > KERNEL_NAME_MAX)
        return -EINVAL;
    int at = kernels_slot(k, name);
    if (at < 0)
        return -ENOSPC;
    struct lease_kernel *f = &k->v[at];
    if (f->key && function && f->function == function)
        return 0;
    f->key = ++k->keys;
    f->function = function;
    f->context = context;
    f->share = share;
    memcpy(f->name, name, strlen(name) + 1);
    return 0;
}

const struct lease_kernel *cede_kernels_find(const struct kernels *k, const char *name)
{
    int at = kernels_slot(k, name);
    return at >= 0 && k->v[at].key ? &k->v[at] : NULL;
}

uint64_t cede_kernels_key(const struct lease_kernel *f, const struct cede_shape *s)
{
    uint64_t h =
        kernels_mix(kernels_mix(kernels_mix(f->key, s->blocks), s->threads), s->shared_bytes);
    return h ? h : 1;
}

static uint64_t kernels_profile_key(const struct lease_kernel *f, const struct cede_shape *s)
{
    return cede_kernels_key(
        f, &(struct cede_shape){.threads = s->threads, .shared_bytes = s->shared_bytes});
}

bool cede_kernels_profile(const struct kernels *k, const struct lease_kernel *f,
                          const struct cede_shape *s, struct gpu_profile *out)
{
    uint64_t key = kernels_profile_key(f, s);
    *out = k->profiles[key % PROFILES].p;
    return k->profiles[key % PROFILES].key == key;
}

void cede_kernels_learn(struct kernels *k, const struct lease_kernel *f, const struct cede_shape *s,
                        const struct gpu_profile *p)
{
    uint64_t key = kernels_profile_key(f, s);
    k->profiles[key % PROFILES] = (struct profile){.key = key, .p = *p};
}

uint32_t cede_profile_share(const struct gpu_profile *p, unsigned blocks)
{
    uint64_t fit = (uint64_t)p->blocks_per_sm * p->sms;
    uint64_t taken = blocks && blocks < fit ? blocks : fit;
    return cede_occupancy_share(&p->sm, p->sms, taken, p->threads, p->registers, p->shared_bytes);
}
