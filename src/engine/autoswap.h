/* For whom jobs leave the GPU's memory. See autoswap.c; swap.c does it. */
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

/* Looks if it is due; returns when to ask again. */
uint64_t autoswap_due(struct autoswap *x, struct model *m, struct autoswap_move *move);
/* See engine_need(). */
int autoswap_need(struct autoswap *x, struct model *m, uint32_t job, uint64_t bytes, uint32_t gpu,
                  struct error *err);

#endif
