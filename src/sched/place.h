/* Placement: which GPUs a job that is about to start gets. A pure decision over facts that the
 * caller gathers, as in sched.h; it is made once, because a program keeps its GPUs.
 *
 * Of all sets of as many GPUs as are wanted the first in this order is chosen:
 *
 *   memory    as few GPUs as possible that lack what the job needs
 *   chains    of several GPUs: as few other gangs as possible with a GPU inside and one outside of
 *             the set, because GPUs that share a gang switch together
 *   load      the most time for the job, on the worst of the GPUs and then in all. Where nothing is
 *             known of what jobs use, that is where its class has the least weight; better classes
 *             come first, what jobs were seen to leave counts as free, and a GPU with half the
 *             multiprocessors has half the time
 *   all       the least weight of all jobs
 *   jobs      the fewest
 *   used      the GPUs that were busy for the shortest time so far: where jobs are few, all others
 *             are alike most of the time
 *   number    the lowest
 *
 * A gang counts on each of its GPUs with its weight divided by their number, as it has turns. GPUs
 * on which a job of the same name ran last are kept as long as they are not worse by half a job,
 * nor were busy for five minutes longer. */
#ifndef CEDE_SCHED_PLACE_H
#define CEDE_SCHED_PLACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/terms.h"

#define PLACE_GPUS  16
#define PLACE_GANGS 64           /* sets of GPUs; more are not told apart */
#define PLACE_NEED  (1ULL << 30) /* bytes, if nothing is said: a context and some data */

struct place_gpu {
    uint64_t free_bytes;     /* UINT64_MAX: not known */
    double speed;            /* of the fastest one's; 0 counts as 1 */
    uint64_t used_s;         /* how long it was busy so far, as far as is known */
    uint64_t promised_bytes; /* free, but to be taken by jobs that are there or come */
    /* By place_add(): */
    double weight[CLASS_COUNT];
    double busy[CLASS_COUNT];
    uint32_t jobs;
};

/* Begins as zeros. */
struct place {
    struct place_gpu gpus[PLACE_GPUS];
    uint32_t gangs[PLACE_GANGS]; /* bit maps of GPUs, each once */
    uint32_t ngangs;
};

/* A job that runs, or was given GPUs and has not opened them yet. */
struct place_job {
    uint32_t gpus; /* bit map */
    enum job_class class;
    uint32_t weight;
    double busy[PLACE_GPUS]; /* share of the GPU's time lately; < 0: not known, or it is new */
};
void place_add(struct place *p, const struct place_job *j);

struct place_wish {
    uint32_t ngpus, candidates; /* of these, a bit map */
    enum job_class class;
    uint32_t weight;
    uint64_t memory_bytes; /* of each GPU; 0: not said */
    uint32_t before;       /* bit map: where a job of this name ran last; 0: not known */
};

enum place_reason {
    PLACE_BEFORE,
    PLACE_ONLY,
    PLACE_SAME_NAME,
    PLACE_IDLE,
    PLACE_MEMORY,
    PLACE_LEAST
};
/* For people: "no job is there". */
const char *place_reason_text(enum place_reason r);

/* The set, as a bit map; 0: there are not so many candidates, or none is wanted. */
uint32_t place_choose(const struct place *p, const struct place_wish *w, enum place_reason *why);

/* Where jobs of a name ran last, by user. Of the user with the most names the one that was used
 * longest ago makes room: nobody makes others' jobs forget their GPUs by many names of his own. */
#define PLACE_NAMES 256
struct place_names {
    struct place_name {
        uint64_t used; /* 0: free */
        uint32_t gpus;
        uid_t uid;
        char name[64];
    } v[PLACE_NAMES];
    uint64_t clock; /* counts uses */
};
uint32_t place_recall(struct place_names *n, uid_t uid, const char *name); /* 0: not known */
void place_remember(struct place_names *n, uid_t uid, const char *name, uint32_t gpus);

#endif
