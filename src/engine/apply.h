/* From the scheduler's plan to the device. See apply.c. Decides nothing. */
#ifndef CEDE_ENGINE_APPLY_H
#define CEDE_ENGINE_APPLY_H

#include "model/model.h"

struct apply {
    struct device_driver *driver;
    struct journal *journal;
};

/* Returns when to try again what failed; TIME_NEVER: nothing did. */
uint64_t apply_plan(const struct apply *a, struct model *m, const struct sched_plan *plan);
/* The groups of a process get back what they had and are forgotten, and it is not scanned. False:
 * some may still be suspended. */
bool apply_detach(const struct apply *a, struct model *m, uint32_t process);

#endif
