/* See estimate.h. */
#include "base/estimate.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buckets.h"

#define BITS 3U /* eight buckets per octave */
#define WAYS 8U /* slots that a key may be in */

void cede_estimate_add(struct estimate *e, uint64_t run_ns)
{
    if (e->n >= EST_KEEP) {
        e->n = 0;
        for (uint32_t i = 0; i < EST_BUCKETS; i++)
            e->n += e->count[i] /= 2;
    }
    e->count[bucket_of(run_ns, BITS)]++;
    e->n++;
}

/* The bucket of the ceil(q (n + 1))-th smallest of the n smallest samples. */
static uint32_t bucket_at(const struct estimate *e, double q, uint32_t n)
{
    double exact = (q > 0 && q < 1 ? q : 0.99) * (n + 1.0);
    uint32_t rank = (uint32_t)exact, sum = 0, last = 0; /* no ceil(): libcede does without libm */
    rank += rank < exact;
    rank = rank < n ? rank : n;
    for (uint32_t i = 0; i < EST_BUCKETS && sum < rank; i++) {
        sum += e->count[i];
        last = e->count[i] ? i : last;
    }
    return last;
}

uint64_t cede_estimate_get(const struct estimate *e, double q, uint64_t unknown_ns)
{
    return e->n ? bucket_top(bucket_at(e, q, e->n), BITS) : unknown_ns;
}

uint64_t cede_estimate_typical(const struct estimate *e, double q, uint64_t unknown_ns)
{
    uint32_t outliers = 0;
    for (uint32_t i = bucket_at(e, 0.5, e->n) + (2U << BITS) + 1; i < EST_BUCKETS; i++)
        outliers += e->count[i];
    if (outliers > 1 + e->n / 16)
        outliers = 0;
    return e->n ? bucket_top(bucket_at(e, q, e->n - outliers), BITS) : unknown_ns;
}

struct slot {
    struct keyed;
    struct estimate e;
};

struct estimates {
    uint32_t n;
    uint64_t tick;
    struct slot slots[];
};

int cede_estimates_new(uint32_t keys, struct estimates **out)
{
    *out = NULL;
    if (keys < 1 || keys > 65536)
        return -EINVAL;
    struct estimates *s = calloc(1, sizeof(*s) + keys * sizeof(s->slots[0]));
    if (!s)
        return -ENOMEM;
    s->n = keys;
    *out = s;
    return 0;
}

void cede_estimates_free(struct estimates *s)
{
    free(s);
}

/* splitmix64's finalizer spreads keys. */
struct keyed *cede_keyed_find(void *all, uint32_t n, size_t bytes, uint64_t key, bool *found)
{
    uint64_t h = key;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9U;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebU;
    h ^= h >> 31;
    struct keyed *take = NULL;
    for (uint32_t i = 0; i < WAYS && i < n; i++) {
        struct keyed *k = (struct keyed *)((char *)all + (h % n + i) % n * bytes);
        *found = k->used && k->key == key;
        if (*found)
            return k;
        if (!take || k->used < take->used)
            take = k;
    }
    return take;
}

static struct slot *estimates_find(const struct estimates *s, uint64_t key, bool *found)
{
    return (struct slot *)cede_keyed_find((void *)s->slots, s->n, sizeof(s->slots[0]), key, found);
}

void cede_estimates_add(struct estimates *s, uint64_t key, uint64_t run_ns)
{
    bool found = false;
    struct slot *p = estimates_find(s, key, &found);
    if (!found)
        *p = (struct slot){.key = key};
    p->used = ++s->tick;
    cede_estimate_add(&p->e, run_ns);
}

uint64_t cede_estimates_get(const struct estimates *s, uint64_t key, double q, uint64_t unknown_ns)
{
    bool found = false;
    const struct slot *p = estimates_find(s, key, &found);
    return found ? cede_estimate_get(&p->e, q, unknown_ns) : unknown_ns;
}
