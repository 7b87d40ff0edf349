/* Placement: decides which GPUs a job that is about to start gets. Pure, over facts that the caller
 * gathers; it is decided once, because a program keeps its GPUs.
 *
 * Of all sets of the wanted number of GPUs the first in this order is chosen:
 *
 *   memory    as few GPUs as possible that lack memory for the job
 *   chains    for several GPUs: as few other gangs as possible with a GPU inside and one outside of
 *             the set, because GPUs that share a gang switch together
 *   load      the most time for the job, on the worst of the GPUs and then in all. If the load of
 *             jobs is not known, that is where its class has the least weight; higher classes come
 *             first, time that jobs leave counts as free, and a GPU with half the multiprocessors
 *             has half the time
 *   together  the most that the job and those of its user there do together in a pool, as measured
 *             before; unknown is as one of them alone
 *   all       the least weight of all jobs
 *   jobs      the fewest
 *   used      the GPUs that were busy for the shortest time so far, which decides where jobs are
 *             few
 *   number    the lowest
 *
 * A gang counts on each of its GPUs with its weight divided by their number, as with turns. GPUs on
 * which a job of the same name ran last are kept if they are not worse by half a job, and were not
 * busy for five minutes longer. */
#ifndef CEDE_PLAN_PLACEMENT_CHOICE_H
#define CEDE_PLAN_PLACEMENT_CHOICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/job_terms.h"

#define PLACE_GPUS  16
#define PLACE_GANGS 64           /* sets of GPUs; more do not count */
#define PLACE_NEED  (1ULL << 30) /* bytes of a job that says nothing: a context and some data */

struct place_gpu {
    uint64_t free_bytes;     /* UINT64_MAX: not known */
    double speed;            /* relative to the fastest GPU; 0 counts as 1 */
    uint64_t used_s;         /* time for which it was busy so far, as far as is known */
    uint64_t promised_bytes; /* free memory that other jobs will take */
    uint32_t together;       /* in thousandths of one alone; 0: not known */
    /* Set by place_add(): */
    double weight[CLASS_COUNT];
    double busy[CLASS_COUNT];
    uint32_t jobs;
};

/* All zero at the start. */
struct place {
    struct place_gpu gpus[PLACE_GPUS];
    uint32_t gangs[PLACE_GANGS]; /* bit maps of GPUs, each once */
    uint32_t ngangs;
};

/* A job that runs, or has been given GPUs that it has not opened yet. */
struct place_job {
    uint32_t gpus; /* bit map */
    enum job_class class;
    uint32_t weight;
    double busy[PLACE_GPUS]; /* recent share of the GPU's time; < 0: not known, or a new job */
};
void place_add(struct place *p, const struct place_job *j);

struct place_need {
    uint32_t ngpus, candidates; /* number of GPUs; bit map of those that are allowed */
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

/* Returns the set, as a bit map; 0: there are too few candidates, or none is wanted. */
uint32_t place_choose(const struct place *p, const struct place_need *need, enum place_reason *why);

/* The GPUs on which jobs of a name ran last, by user. When it is full, the oldest name of the user
 * with the most names makes room, so that a user with many names does not displace others'. */
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
