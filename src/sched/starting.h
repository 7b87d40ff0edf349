/* Whether a job is starting on a device, as far as that is seen from outside: it opened the device
 * lately, or its memory there is still growing. Servers size themselves by the memory that is free
 * when they start, so nobody's memory is moved there meanwhile. A job that grows for ever is not
 * waited for for ever. A pure decision, as in sched.h. */
#ifndef CEDE_SCHED_STARTING_H
#define CEDE_SCHED_STARTING_H

#include <stdbool.h>
#include <stdint.h>

#define STARTING_QUIET_NS (20 * 1000000000ULL) /* without a sign of it */
#define STARTING_MAX_NS   (300 * 1000000000ULL)

struct starting {
    uint64_t opened_ns; /* when a process of the job last opened the device; 0: never */
    uint64_t grew_ns;   /* when its memory was last seen to grow; 0: never */
};

/* Programs of one account that begin one after another on a device, less than STARTING_REST_NS
 * apart, are one *spell*, however many jobs they are in. Those of its first STARTING_SPELL_NS keep
 * others where they are: else one program that is restarted all the time would do so for ever. */
#define STARTING_SPELL_NS (20 * 1000000000ULL)
#define STARTING_REST_NS  (60 * 1000000000ULL)

struct starting_spell {
    uint64_t began_ns, last_ns; /* 0: there was none */
};

/* A program of the account opens the device: whether that counts for its job. */
bool starting_opens(struct starting_spell *s, uint64_t now_ns);

/* Until when it may count as starting at most; 0: it is not starting. max_ns: after it opened the
 * device; 0: nobody waits for starts. */
uint64_t starting_until(const struct starting *s, uint64_t max_ns, uint64_t now_ns);

#endif
