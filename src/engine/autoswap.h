/* For whom jobs leave the GPU's memory, and who waits for it. See autoswap.c; swap.c moves them. */
#ifndef CEDE_ENGINE_AUTOSWAP_H
#define CEDE_ENGINE_AUTOSWAP_H

#include "engine/swap.h"

struct autoswap {
    struct swap_options options;
    uint64_t at; /* the next look */
};

struct autoswap_move {
    uint32_t job; /* SLOT_NONE: nothing to do */
    bool out;
};

/* Whether the next look is due and for jobs that wait: it needs what others hold by now. */
bool autoswap_looks(const struct autoswap *x, const struct model *m);
/* Looks if it is due; returns when to ask again. */
uint64_t autoswap_due(struct autoswap *x, struct model *m, struct autoswap_move *move);
/* See engine_need(), engine_started(). */
int autoswap_need(struct autoswap *x, struct model *m, uint32_t job, uint64_t bytes, uint32_t gpu,
                  struct error *err);
void autoswap_started(struct model *m, uint32_t job);

#endif
