/* Decides which jobs, below the latency class, run together with the job that has its turn.
 *
 * One job at a time that saturates the GPU runs, with the shortest slice. A *light* context waits
 * for its host most of the time. It need not be suspended, because the hardware gives it the GPU
 * when it has work, and to another context when it has none. So in each turn one job runs that
 * saturates the GPU, and together with it light jobs, in the order of turns, as far as their
 * *duties* (the share of time in which they want the GPU) fit on one GPU, and as long as they have
 * not had more than the other. The time that they use counts as their turn. While a normal job
 * wants the GPU, batch jobs get what it leaves: nothing if it saturates the GPU; else light batch
 * jobs run too, as far as all duties fit on the GPU, and one other with the shortest slice.
 *
 * A light context's slice is as long as most of its runs, so that these are not cut, and
 * LIGHT_MOST_US at most. A latency job then waits for one slice and one switch of each light
 * context that has work just then, and for one switch of the job that saturates the GPU. A budget
 * bounds that, as does the floor of speed of a launch-bound latency job (speed_floor.h).
 *
 * The duty follows from the record of switches (switch_record.h): from a context's runs, and from
 * the time after them in which it certainly had no work. Only runs of other contexts show that,
 * best if these always have work and short slices. So a job that counts as saturating the GPU is
 * *tried* for a moment: all its contexts run with slices of TRY_SLICE_US, together with one context
 * of a *witness* with the shortest slice. There are tries only where turns leave the GPU idle, and
 * ever fewer. Without a record all jobs take turns.
 *
 * A gang runs together with others on all its devices or on none. On linked devices a job that is
 * light on each of its devices with other jobs *floats*: rounds (gang_turns.c) leave it out, and it
 * runs together with any current job.
 *
 * Contexts of one job that saturate the GPU have its turn one after the other. If they wait for
 * each other (ranks that meet at a barrier), the GPU is idle most of that time, as the load of all
 * jobs together shows. Then they are *gathered*: all run in the turn, with slices of GATHER_US, as
 * long as that keeps the GPU busier, up to 64 contexts of a job. */
#ifndef CEDE_PLAN_LIGHT_JOBS_H
#define CEDE_PLAN_LIGHT_JOBS_H

#include <stdbool.h>
#include <stdint.h>

#define TRY_SLICE_US  500U  /* slice of contexts that are tried */
#define LIGHT_MOST_US 1100U /* the longest slice of light ones; two are enough for 2 ms of work */
#define COMPANY_IDLE  0.15  /* idle share of the time from which on there are tries */

struct group;
struct machine;
struct member;
struct policy_device;
struct sched;
struct sched_params;

/* A member's state. */
struct member_company {
    double duty;       /* 0..1; a context that is not known, or not light, counts as 1 */
    bool unknown;      /* some contexts are not known */
    uint32_t heavy;    /* number of contexts that are not light; without a record 1 */
    uint32_t light;    /* number of light contexts */
    bool saturates;    /* `heavy` is above 0 since this decision */
    uint32_t slice_us; /* the longest slice of its light contexts */
    double used_ns;    /* engine time, and a switch for each run, since it was charged */
    double busy;       /* from EV_DEMAND */
    bool beside;       /* it runs together with the current job */
    bool floats;       /* on linked devices: it needs no turn */
    uint64_t tried_ns; /* time of the last try */
    uint64_t try_ns;   /* time between tries */
};

/* A device's state. */
struct company_gather {
    bool on;
    uint64_t since_ns; /* of the present state, which is judged some time later */
    uint64_t again_ns, bar_ns;
    double busy, before;  /* load of the device now, and before it was gathered */
    double idle;          /* mean share of the time that turns leave idle; may be below 0 */
    uint64_t judged_ns;   /* time of that mean */
    uint32_t judged_runs; /* number of runs until then */
    uint32_t members;     /* number of jobs then */
    uint32_t light;       /* number of light contexts then */
    uint64_t settled_ns;  /* time from which on it is known what new jobs do */
};

/* The room that a device has besides the current job; scratch of a decision. */
struct company_room {
    struct member *heavy; /* the job that saturates the GPU; NULL: none does */
    double duty;
    uint32_t contexts; /* within the latency jobs' budget */
};

/* A job in a list, with its device or the first one of a gang. */
struct company_entry {
    struct policy_device *dev;
    struct member *m;
};

/* Whether contexts get this slice, where no budget and no floor of speed makes it shorter. */
bool company_has_slice(uint64_t us);
/* Whether there is a record of switches. */
bool company_is_fed(const struct policy_device *dev, uint64_t now_ns);
/* Called before a decision: judges the contexts and the jobs by the record. */
void company_judge(struct sched *c, uint64_t now_ns);
/* Called before the turns are decided: whether jobs may run together here. */
void company_open(const struct sched_params *p, struct policy_device *dev);
/* On linked devices: decides whether this job floats. */
void company_float(const struct machine *mc, struct policy_device *own, const struct member *m);
/* Called when the turns are decided: which jobs run together with the current ones. */
void company_pick(const struct machine *mc);
/* Called after a decision: notes since when contexts run together. */
void company_count(struct sched *c, uint64_t now_ns);
/* The part of a turn that a member is charged which has it, or runs together with that one: a
 * light job is charged what it used, and one that saturates the GPU what the others left. */
double company_charge(const struct policy_device *dev, const struct member *m, double turn_ns);
/* The slice of jobs in turns, which is slice_us where one runs at a time; several share the budget
 * of the latency jobs. A floor is kept against latency jobs whatever their budget. */
uint32_t company_bounds(const struct sched_params *p, const struct policy_device *dev,
                        uint32_t slice_us);
/* The slice of a context that runs together with others; 0: it has that of its job. */
uint32_t company_slice(const struct sched *c, const struct group *g);
/* The context by which the record names this one: the first of its process. */
uint32_t company_first(const struct sched *c, uint32_t group);

#endif
