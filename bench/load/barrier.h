/* A barrier of several programs of one user (--barrier), which the end of any of them ends for all,
 * as ranks of an MPI program end together. */
#ifndef CEDE_BENCH_LOAD_BARRIER_H
#define CEDE_BENCH_LOAD_BARRIER_H

#include <stdint.h>

#include "base/util.h"

#define BARRIER_RANKS_MAX 64U

struct barrier;

/* Joins the barrier NAME, which the first of its ranks makes. -EINVAL: it is for another number of
 * ranks; -EBUSY: all of them have joined already. */
int barrier_open(const char *name, uint64_t ranks, struct barrier **out, struct error *err);
/* Ends the barrier for all. NULL is allowed. */
void barrier_close(struct barrier *b);

/* This rank has come. Ask with barrier_wait() before it comes again. */
void barrier_arrive(struct barrier *b);
/* 0: all have come; -ETIMEDOUT: not yet; -ECANCELED: a rank has ended, so that they never will. */
int barrier_wait(struct barrier *b, uint64_t timeout_ns);

#endif
