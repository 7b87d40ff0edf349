/* What is done with a job that has more GPU memory than its memory-max. Outside of an MPS server
 * nothing stops an allocation, so the limit is compared with what the driver reports, after the
 * fact. Pure. */
#ifndef CEDE_PLAN_MEMORY_LIMIT_H
#define CEDE_PLAN_MEMORY_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/job_terms.h"

#define MEMORY_LOOK_NS 100000000ULL /* between two looks at what jobs with a limit have */

/* What was done so far; zeroed: nothing. */
struct memory_watch {
    uint64_t acted_ns;    /* when it was last done; 0: never */
    uint64_t acted_bytes; /* what the job had then, on one GPU */
};

enum memory_act { MEMORY_LEAVE, MEMORY_TELL, MEMORY_STOP, MEMORY_END };

/* has: the most that the job has on a GPU.
 *
 * A warning is repeated after a minute. A job that somebody resumed is paused again once it has
 * more than when it was paused: it cannot give memory back while it is paused. Killing is repeated
 * each second, as processes may take some time to end and others may begin. */
enum memory_act memory_limit_decide(struct memory_watch *w, uint64_t limit_bytes,
                                    enum memory_over over, uint64_t has, bool paused,
                                    uint64_t now_ns);

#endif
