/* The tests' random numbers: the same for the same seed, on every machine. */
#ifndef CEDE_TESTS_RANDOM_H
#define CEDE_TESTS_RANDOM_H

#include <stdint.h>

static uint64_t state; /* the seed */

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t rnd(uint64_t below)
{
    uint64_t z = state += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (z ^ (z >> 31)) % below;
}

#endif
