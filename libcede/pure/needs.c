/* See needs.h. */
#include "libcede/pure/needs.h"

#define FNV_START 0xcbf29ce484222325U
#define FNV_PRIME 0x100000001b3U

uint64_t cede_needs_key(const char *kernel, const uint64_t *shape, unsigned n)
{
    uint64_t h = FNV_START;
    for (const char *c = kernel ? kernel : ""; *c; c++)
        h = (h ^ (unsigned char)*c) * FNV_PRIME;
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < 64; k += 8)
            h = (h ^ (shape[i] >> k & 0xff)) * FNV_PRIME;
    }
    return h ? h : 1;
}

static uint32_t needs_slot(uint64_t key)
{
    return (uint32_t)(key * 0x9e3779b97f4a7c15U >> 32) & (NEEDS - 1);
}

uint64_t cede_needs_get(const struct needs *n, uint64_t key)
{
    uint32_t i = needs_slot(key);
    return n->v[i].key == key ? n->v[i].bytes : 0;
}

void cede_needs_learn(struct needs *n, uint64_t key, uint64_t bytes)
{
    uint32_t i = needs_slot(key);
    uint64_t *known = &n->v[i].bytes;
    if (n->v[i].key != key || bytes >= *known)
        *known = bytes;
    else
        *known -= (*known - bytes) / 8;
    n->v[i].key = key;
}
