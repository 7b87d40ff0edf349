/* The kernels that cede-load runs, as texts that a driver compiles at run time: the files in the
 * folder kernels, made into C by kernels/embed.awk. Constants that host and GPU share are here. */
#ifndef CEDE_BENCH_LOAD_KERNELS_H
#define CEDE_BENCH_LOAD_KERNELS_H

#include <stdint.h>

/* Spinning. One 32-bit word of state a thread: x = x * MUL + ADD, `iters` times. The full period of
 * 2^32 gives every step count another value, each step is a bijection, and each kernel goes on
 * where the one before it stopped: so one look at the end shows whether every kernel ran exactly
 * its steps, once. The steps depend on each other: the time is proportional to iters. */
#define SPIN_MUL     1664525U
#define SPIN_ADD     1013904223U
#define SPIN_THREADS 256U /* a block */
#define SPIN_ENTRY   "cede_spin"
extern const char spin_ptx[], spin_cl[], spin_hip[];

/* What --memory holds: word i of the block is HOLD_WORD(i), other words than its neighbours' and,
 * within 16 GiB, than any other's, so that a page that came back elsewhere is seen. Both kernels go
 * over the words in steps of the grid; the second counts the words that differ into *wrong. */
#define HOLD_MUL     2654435761U
#define HOLD_WORD(i) ((uint32_t)(i)*HOLD_MUL + (uint32_t)((uint64_t)(i) >> 32) + 1)
#define HOLD_FILL    "cede_fill"
#define HOLD_CHECK   "cede_check"
extern const char hold_ptx[];

/* Of works.c; compiled by scripts/ptx from the .cu files beside them. */
extern const char black_scholes_ptx[], digest_ptx[], euler_ptx[];

#endif
