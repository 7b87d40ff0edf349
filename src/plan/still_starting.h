/* Decides whether a job is starting on a device, as seen from outside: it has opened the device
 * lately, or its memory there is still growing. Servers size themselves by the memory that is free
 * when they start, so no job's memory is moved there meanwhile, up to a limit. Pure, as sched.h. */
#ifndef CEDE_PLAN_STILL_STARTING_H
#define CEDE_PLAN_STILL_STARTING_H

#include <stdbool.h>
#include <stdint.h>

#define STARTING_QUIET_NS (20 * 1000000000ULL) /* after which a job without a sign has started */
#define STARTING_MAX_NS   (300 * 1000000000ULL)

struct starting {
    uint64_t opened_ns; /* when a process of the job last opened the device; 0: never */
    uint64_t grew_ns;   /* when its memory was last seen to grow; 0: never */
};

/* Programs of one account that begin on a device less than STARTING_REST_NS apart are one *spell*,
 * in however many jobs. Only those of its first STARTING_SPELL_NS count, because otherwise a
 * program that is restarted all the time would delay others for ever. */
#define STARTING_SPELL_NS (20 * 1000000000ULL)
#define STARTING_REST_NS  (60 * 1000000000ULL)

struct starting_spell {
    uint64_t began_ns, last_ns; /* 0: there was none */
};

/* Called when a program of the account opens the device: whether that counts for its job. */
bool starting_opens(struct starting_spell *s, uint64_t now_ns);

/* The latest time until which the job counts as starting; 0: it does not. max_ns: limit after it
 * opened the device; 0: starts delay nothing. */
uint64_t starting_until(const struct starting *s, uint64_t max_ns, uint64_t now_ns);

#endif
