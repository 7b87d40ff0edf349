/* Chooses the GPUs of a job that is about to start: gathers the state of each GPU for
 * plan/placement_choice.h, which decides. A job that was given GPUs but has not opened them counts
 * on them for as long as memory is kept for a job that starts (autoswap_begins()). */
#ifndef CEDE_ENGINE_PLACEMENT_H
#define CEDE_ENGINE_PLACEMENT_H

#include "core/observe/demand.h"
#include "core/observe/speeds.h"
#include "memory/autoswap.h"
#include "plan/placement_choice.h"

/* Moves a job that waits for memory to a candidate GPU with room beyond what jobs wait for there.
 * Each call moves one job, the first in line. */
void place_moves(struct place_names *names, const struct autoswap *s, struct model *m);
/* See engine_place(). */
int place_job(struct place_names *names, const struct demand *x, const struct autoswap *s,
              const struct speeds *speeds, struct model *m, uint32_t job,
              const struct place_need *asked, struct error *err);

#endif
