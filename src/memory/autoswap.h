/* Automatic swapping, and jobs that wait for memory: see autoswap.c. */
#ifndef CEDE_MEMORY_AUTOSWAP_H
#define CEDE_MEMORY_AUTOSWAP_H

#include "memory/swap.h"
#include "plan/swap_choice.h"

struct autoswap {
    struct swap_options options;
    uint64_t at; /* the next look */
};

/* Whether a job waits for memory, or was promised memory or GPUs lately and may not have taken them
 * yet. Promises end after a while. */
bool autoswap_begins(const struct model *m, const struct job *j);
/* The free memory of a GPU that is kept for a job: what it is going to take in addition, or what it
 * takes when it comes back. */
uint64_t autoswap_kept(const struct autoswap *x, const struct model *m, const struct job *j,
                       unsigned gpu);
/* Whether a look is due and jobs wait, so that the memory of all jobs has to be known. */
bool autoswap_looks(const struct autoswap *x, const struct model *m);
/* Chooses the job that moves, if a look is due; returns when to ask again. */
uint64_t autoswap_due(struct autoswap *x, struct model *m, struct swap_move *move);
/* See engine_need(), engine_room(). */
int autoswap_need(struct autoswap *x, struct model *m, uint32_t job, uint64_t bytes, uint32_t gpu,
                  struct error *err);
void autoswap_room(struct autoswap *x, struct model *m, uint32_t job, unsigned gpu, uint64_t bytes,
                   uint64_t until_ns);
/* The program of a job has started, or will start, without room. */
void autoswap_started(struct model *m, uint32_t job);

#endif
