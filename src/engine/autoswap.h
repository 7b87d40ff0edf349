/* For whom jobs leave the GPU's memory, and who waits for it. See autoswap.c; swap.c moves them. */
#ifndef CEDE_ENGINE_AUTOSWAP_H
#define CEDE_ENGINE_AUTOSWAP_H

#include "engine/swap.h"
#include "sched/swap.h"

struct autoswap {
    struct swap_options options;
    uint64_t at; /* the next look */
};

/* Whether a job has been promised something lately, or waits for it, and may not have taken it yet.
 * Nobody keeps memory or GPUs from others for ever. */
bool autoswap_begins(const struct model *m, const struct job *j);
/* What of a GPU's memory is free and kept for a job: what it is going to take beyond what it has
 * there, or comes back to. */
uint64_t autoswap_kept(const struct autoswap *x, const struct model *m, const struct job *j,
                       unsigned gpu);
/* Whether the next look is due and for jobs that wait: it needs what others hold by now. */
bool autoswap_looks(const struct autoswap *x, const struct model *m);
/* Which job moves, if a look is due; returns when to ask again. */
uint64_t autoswap_due(struct autoswap *x, struct model *m, struct swap_move *move);
/* See engine_need(), engine_room(), engine_started(). */
int autoswap_need(struct autoswap *x, struct model *m, uint32_t job, uint64_t bytes, uint32_t gpu,
                  struct error *err);
void autoswap_room(struct autoswap *x, struct model *m, uint32_t job, unsigned gpu, uint64_t bytes,
                   uint64_t until_ns);
void autoswap_started(struct model *m, uint32_t job);

#endif
