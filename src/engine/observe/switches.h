/* The driver's record of switches: who had the compute engines, in order. The scheduler learns of
 * it what it wants to (sched_wants_switches()), and traces get all of it. Decides nothing. */
#ifndef CEDE_ENGINE_OBSERVE_SWITCHES_H
#define CEDE_ENGINE_OBSERVE_SWITCHES_H

#include "model/model.h"

struct switches {
    uint64_t at;             /* asked again then */
    bool recording;          /* the driver keeps a record */
    bool refused;            /* it has none, or not for us */
    bool traced;             /* somebody takes `kept` */
    struct switch_list kept; /* since it was last taken */
};

/* Returns when the next look is due. */
uint64_t switches_due(struct switches *x, struct model *m);
/* What was seen since the last call, as the caller's own list; from the first call on it is kept.
 * -ENOTSUP: the driver has no such record, or refuses it. */
int switches_take(struct switches *x, struct model *m, struct switch_list *out);
/* Nobody takes it any more. */
void switches_untaken(struct switches *x);
void switches_free(struct switches *x);

#endif
