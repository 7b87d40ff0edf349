/* See estimate.h: a hash table; a full bucket loses its first entry. */
#include "gate/estimate.h"

#define ENTRIES 4096U
#define PROBES  8U

static struct estimate {
    uint64_t key, ns;
} table[ENTRIES];

uint64_t estimate_key(uint64_t a, uint64_t b, uint64_t c)
{
    const uint64_t v[] = {a, b, c};
    uint64_t h = 0x9e3779b97f4a7c15ULL;
    for (unsigned i = 0; i < 3; i++) {
        h = (h ^ v[i]) * 0xff51afd7ed558ccdULL;
        h ^= h >> 32;
    }
    return h ? h : 1;
}

static struct estimate *estimate_find(uint64_t key)
{
    for (unsigned i = 0; i < PROBES; i++) {
        struct estimate *e = &table[(key + i) % ENTRIES];
        if (e->key == key || !e->key)
            return e;
    }
    return &table[key % ENTRIES];
}

uint64_t estimate_of(uint64_t key)
{
    const struct estimate *e = estimate_find(key);
    return e->key == key ? e->ns : 0;
}

void estimate_set(uint64_t key, uint64_t ns)
{
    *estimate_find(key) = (struct estimate){.key = key, .ns = ns};
}

/* A quarter of the way: follows data that changes, ignores one disturbed run. */
void estimate_learn(uint64_t key, uint64_t ns)
{
    uint64_t before = estimate_of(key);
    ns = before ? before - before / 4 + ns / 4 : ns;
    estimate_set(key, ns ? ns : 1);
}
