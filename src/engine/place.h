/* Chooses the GPUs of a job that is about to start: gathers what is known of each for
 * sched/place.h, which decides. A job that was given GPUs counts there, though it has not opened
 * them, for as long as memory is kept for one (autoswap_begins()). */
#ifndef CEDE_ENGINE_PLACE_H
#define CEDE_ENGINE_PLACE_H

#include "engine/autoswap.h"
#include "engine/observe/demand.h"
#include "sched/place.h"

/* Jobs that wait for memory, whose programs have not begun, go where there is room: one each time,
 * the first in line. After those that wait there. */
void place_moves(struct place_names *names, const struct autoswap *s, struct model *m);
/* See engine_place(). */
int place_job(struct place_names *names, const struct demand *x, const struct autoswap *s,
              struct model *m, uint32_t job, const struct place_wish *wish, struct error *err);

#endif
