/* Whether a job is starting on a device, as far as that is seen from outside: it opened the device
 * lately, or its memory there is still growing. Servers size themselves by the memory that is free
 * when they start, so nobody's memory is moved there meanwhile. A job that grows for ever is not
 * waited for for ever. A pure decision, as in sched.h. */
#ifndef CEDE_SCHED_STARTING_H
#define CEDE_SCHED_STARTING_H

#include <stdint.h>

#define STARTING_QUIET_NS (20 * 1000000000ULL) /* without a sign of it */
#define STARTING_MAX_NS   (300 * 1000000000ULL)

struct starting {
    uint64_t opened_ns; /* when a process of the job last opened the device; 0: never */
    uint64_t grew_ns;   /* when its memory was last seen to grow; 0: never */
};

/* Until when it may count as starting at most; 0: it is not starting. max_ns: after it opened the
 * device; 0: nobody waits for starts. */
uint64_t starting_until(const struct starting *s, uint64_t max_ns, uint64_t now_ns);

#endif
