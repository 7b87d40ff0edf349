/* The control page: what the daemon has decided about this process. Read by every submission
 * without a lock; it stays readable at one address or the other for the life of the process. */
#ifndef CEDE_GATE_PAGE_H
#define CEDE_GATE_PAGE_H

#include <stdbool.h>

#include "base/gate_proto.h"

/* All zero while there is no daemon. */
extern struct gate_control *_Atomic gate_page;

static inline struct gate_control *gate_control(void)
{
    return atomic_load_explicit(&gate_page, memory_order_relaxed);
}

/* Whether a daemon schedules a device of this process. False: no other call is needed for this
 * submission. Two relaxed loads. */
static inline bool gate_active(void)
{
    return atomic_load_explicit(&gate_control()->any, memory_order_relaxed) != 0;
}

#endif
