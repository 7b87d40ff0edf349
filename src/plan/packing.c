/* See packing.h. */
#include "plan/packing.h"

#include <string.h>

#define FIRST_ROUNDS 100 /* simulated rounds when sets are new */
#define MORE_ROUNDS  8   /* simulated rounds at each later call */
#define VIOLATED     1.01
#define FULL         1e-9
#define NONE         UINT8_MAX

static int bits(uint64_t map)
{
    int n = 0;
    for (; map; map &= map - 1)
        n++;
    return n;
}

/* The sets by their lowest device, as lists. */
struct by_lowest {
    uint8_t head[PACKING_GPUS], next[PACKING_SETS];
};

static struct by_lowest lists_by_lowest(const struct packing *p, const double *value)
{
    struct by_lowest b;
    memset(&b, NONE, sizeof(b));
    for (uint32_t i = 0; i < p->n; i++) {
        int lowest = __builtin_ctzll(p->sets[i].devices);
        if (value[i] <= 0 || lowest >= PACKING_GPUS)
            continue;
        b.next[i] = b.head[lowest];
        b.head[lowest] = (uint8_t)i;
    }
    return b;
}

/* Dynamic programming: the best packing of each subset of the free devices follows from those of
 * smaller subsets, because its lowest device stays free or belongs to a set that fits. */
static uint64_t exact(const struct packing *p, const double *value, uint64_t free)
{
    double worth[1U << PACKING_GPUS];
    uint8_t with[1U << PACKING_GPUS];
    struct by_lowest b = lists_by_lowest(p, value);
    worth[0] = 0;
    for (uint64_t mask = -free & free; mask; mask = (mask - free) & free) {
        worth[mask] = worth[mask & (mask - 1)];
        with[mask] = NONE;
        for (uint8_t i = b.head[__builtin_ctzll(mask)]; i != NONE; i = b.next[i]) {
            uint64_t devices = p->sets[i].devices;
            if (devices & ~mask || value[i] + worth[mask & ~devices] <= worth[mask])
                continue;
            worth[mask] = value[i] + worth[mask & ~devices];
            with[mask] = i;
        }
    }
    uint64_t chosen = 0;
    for (uint64_t mask = free; mask;) {
        uint8_t i = with[mask]; // cppcheck-suppress uninitvar
        chosen |= i == NONE ? 0 : 1ULL << i;
        mask &= i == NONE ? mask - 1 : ~p->sets[i].devices;
    }
    return chosen;
}

/* Takes the set that is worth most per device, then the next. */
static uint64_t greedy(const struct packing *p, const double *value, uint64_t free)
{
    uint64_t chosen = 0;
    for (;;) {
        uint32_t best = NONE;
        double most = 0;
        for (uint32_t i = 0; i < p->n; i++) {
            double worth = value[i] / bits(p->sets[i].devices);
            if (worth <= most || p->sets[i].devices & ~free)
                continue;
            most = worth;
            best = i;
        }
        if (best == NONE)
            return chosen;
        chosen |= 1ULL << best;
        free &= ~p->sets[best].devices;
    }
}

uint64_t packing_best(const struct packing *p, const double *value, uint64_t free)
{
    return free >> PACKING_GPUS ? greedy(p, value, free) : exact(p, value, free);
}

/* ---- fair parts ---- */

/* The coefficient of a set's part in a limit: of a device's time, or of a cut. */
static double takes(const struct packing *p, uint32_t limit, uint32_t set)
{
    return limit < PACKING_CUTS ? p->cut[limit][set]
                                : (double)(p->sets[set].devices >> (limit - PACKING_CUTS) & 1);
}

/* Raises the parts of one tier within what the limits leave. */
static void raise_parts(struct packing *p, uint32_t tier, double *left, uint32_t limits)
{
    uint64_t rising = 0;
    for (uint32_t i = 0; i < p->n; i++)
        rising |= p->sets[i].tier == tier ? 1ULL << i : 0;
    while (rising) {
        double speed[PACKING_CUTS + 64] = {0}, step = 1e9;
        for (uint32_t c = 0; c < limits; c++) {
            for (uint64_t r = rising; r; r &= r - 1) {
                uint32_t i = (uint32_t)__builtin_ctzll(r);
                speed[c] += takes(p, c, i) * p->sets[i].rate;
            }
            step = speed[c] > 0 && left[c] < step * speed[c] ? left[c] / speed[c] : step;
        }
        uint64_t full = 0;
        for (uint64_t r = rising; r; r &= r - 1)
            p->sets[__builtin_ctzll(r)].part += step * p->sets[__builtin_ctzll(r)].rate;
        for (uint32_t c = 0; c < limits; c++) {
            left[c] -= step * speed[c];
            for (uint64_t r = rising; r && left[c] < FULL; r &= r - 1)
                full |= takes(p, c, (uint32_t)__builtin_ctzll(r)) > 0 ? r & -r : 0;
        }
        rising &= ~full;
    }
}

static void raise_all(struct packing *p)
{
    uint64_t devices = 0;
    double left[PACKING_CUTS + 64];
    for (uint32_t i = 0; i < p->n; i++) {
        devices |= p->sets[i].devices;
        p->sets[i].part = 0;
    }
    uint32_t limits = PACKING_CUTS + 64U - (devices ? (uint32_t)__builtin_clzll(devices) : 64U);
    for (uint32_t c = 0; c < limits; c++)
        left[c] = 1;
    for (uint32_t tier = 0; tier < 2; tier++)
        raise_parts(p, tier, left, limits);
}

/* Adds a cut if the parts of these sets need more than can run at the same time. */
static void try_cut(struct packing *p, const double *in, uint64_t devices)
{
    double parts = 0;
    int most = bits(packing_best(p, in, devices));
    for (uint32_t i = 0; i < p->n; i++)
        parts += in[i] * p->sets[i].part;
    if (parts <= VIOLATED * most || p->cuts == PACKING_CUTS)
        return;
    for (uint32_t i = 0; i < p->n; i++)
        p->cut[p->cuts][i] = in[i] / most;
    p->cuts++;
    raise_all(p);
}

/* Simulates a round: each set is owed its part, and those that are owed most have the round. Parts
 * that are not possible show as sets that are owed ever more. */
static void pack_once(struct packing *p, uint64_t devices)
{
    double owed[PACKING_SETS] = {0}, in[PACKING_SETS] = {0}, most = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        p->sets[i].owed += p->sets[i].part;
        owed[i] = p->sets[i].owed > 0 ? p->sets[i].owed : 0;
        most = owed[i] > most ? owed[i] : most;
    }
    for (uint64_t b = packing_best(p, owed, devices); b; b &= b - 1)
        p->sets[__builtin_ctzll(b)].owed -= 1;
    for (uint32_t i = 0; i < p->n; i++)
        in[i] = owed[i] > most / 2;
    if (!(devices >> PACKING_GPUS)) /* exact */
        try_cut(p, in, devices);
}

static bool same_sets(const struct packing *p, const struct packing_set *sets, uint32_t n)
{
    bool same = p->n == n;
    for (uint32_t i = 0; i < n && same; i++)
        same = p->sets[i].devices == sets[i].devices && p->sets[i].tier == sets[i].tier &&
               p->sets[i].rate == sets[i].rate;
    return same;
}

void packing_update(struct packing *p, const struct packing_set *sets, uint32_t n)
{
    int rounds = MORE_ROUNDS;
    uint64_t devices = 0;
    if (!same_sets(p, sets, n)) {
        *p = (struct packing){.n = n};
        memcpy(p->sets, sets, n * sizeof(*sets));
        for (uint32_t i = 0; i < n; i++)
            p->sets[i].owed = 0;
        raise_all(p);
        rounds = FIRST_ROUNDS;
    }
    for (uint32_t i = 0; i < n; i++)
        devices |= p->sets[i].devices;
    while (rounds--)
        pack_once(p, devices);
}
