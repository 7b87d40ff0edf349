/* The driver's record of switches: which processes had the compute engines, in order. The scheduler
 * gets what it asks for (sched_wants_switches()), and traces get all. Decides nothing. */
#ifndef CEDE_CORE_OBSERVE_SWITCHES_H
#define CEDE_CORE_OBSERVE_SWITCHES_H

#include "core/model.h"

struct switches {
    uint64_t at;             /* when to ask again */
    bool recording;          /* the driver keeps a record */
    bool refused;            /* the driver has no record, or refuses it */
    bool traced;             /* a trace takes `kept` */
    struct switch_list kept; /* switches since the last switches_take() */
};

/* Returns when the next look is due. */
uint64_t switches_due(struct switches *x, struct model *m);
/* *out: the switches since the last call, a list that the caller owns. They are kept from the first
 * call on. -ENOTSUP: the driver has no such record, or refuses it. */
int switches_take(struct switches *x, struct model *m, struct switch_list *out);
/* The trace has ended: nothing is kept any more. */
void switches_untaken(struct switches *x);
void switches_free(struct switches *x);

#endif
