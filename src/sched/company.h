/* Which jobs run beside the one that has its turn, below the latency class.
 *
 * A job that saturates the GPU runs with the shortest slice, and no other such job beside it. A
 * *light* context waits for its host most of the time. It need not be suspended: the hardware gives
 * it the GPU when it has work, and the GPU to another when it has none, so nothing is idle while
 * somebody has work. So in each turn one job runs that saturates the GPU, and beside it those that
 * are light, in the order of turns, as far as their *duties* (the share of time in which they want
 * the GPU) fit into what one GPU can do, and as long as they have not had more than the other. What
 * they use counts as their turn. While a normal job wants the GPU, batch jobs have what it leaves:
 * nothing beside one that saturates it; beside light ones those that are light, too, as far as
 * their duties fit into the whole, and one with the shortest slice.
 *
 * A light context's slice is as long as its work mostly is, so that it is not cut into pieces, and
 * LIGHT_MOST_US at most. A latency job then waits for one slice and one switch of each light
 * context that has work just then, and for one switch of the job that saturates the GPU. A budget
 * bounds that, and beside a launch-bound latency job its floor of speed does (speed_floor.h).
 *
 * The duty is told from the record of switches (runs.h): of a context's runs and of the time after
 * them in which it certainly had no work. Only the runs of others show that, and best if these have
 * work all the time and short slices. So one that counts as saturating the GPU is *tried* for a
 * moment: all its contexts run with slices of TRY_SLICE_US, and beside it one context of a
 * *witness* with the shortest. That is done only where turns leave the GPU idle, and more and more
 * seldom. Without a record everybody takes turns.
 *
 * A gang runs beside others on all its devices or on none. On linked devices a job that is light on
 * all of its own, where others take turns, *floats*: rounds (round.c) leave it out, and it runs
 * beside whoever has the turns.
 *
 * Contexts of one job that saturate the GPU have its turn one after the other. Where they wait for
 * each other (ranks that meet at a barrier), the GPU is idle most of that. That is seen by how busy
 * all jobs together keep it, and then they are *gathered*: all run in the turn, with slices of
 * GATHER_US, as long as that keeps the GPU busier; 64 contexts of a job at most. */
#ifndef CEDE_SCHED_COMPANY_H
#define CEDE_SCHED_COMPANY_H

#include <stdbool.h>
#include <stdint.h>

#define TRY_SLICE_US  500U  /* of contexts that are tried */
#define LIGHT_MOST_US 1100U /* of light ones: two hold a burst of 2 ms */
#define COMPANY_IDLE  0.15  /* of the time: less is no reason for a try */

struct group;
struct machine;
struct member;
struct policy_device;
struct sched;
struct sched_params;

/* A member's part of it. */
struct member_company {
    double duty;       /* 0..1; a context that is not known, or not light, counts as 1 */
    bool unknown;      /* some are not known */
    uint32_t heavy;    /* of them are not light; 1: without a record */
    uint32_t light;    /* and these are */
    bool saturates;    /* it is above 0 since this decision */
    uint32_t slice_us; /* the longest of these */
    double used_ns;    /* engine time since it was charged, and a switch for each run */
    double busy;       /* as EV_DEMAND says */
    bool beside;       /* runs beside the holder */
    bool floats;       /* of linked devices: it needs no turn, for it is light on all of them where
                          there are others */
    uint64_t tried_ns; /* when it last was */
    uint64_t try_ns;   /* so long until it is again */
};

/* A device's. */
struct company_gather {
    bool on;
    uint64_t since_ns; /* it is so, or may be judged */
    uint64_t again_ns, bar_ns;
    double busy, before;  /* how busy jobs keep the device; did until then */
    double idle;          /* how much of the time turns left it idle, on average; may be below 0 */
    uint64_t judged_ns;   /* when that was last seen, */
    uint32_t judged_runs; /* and after how many runs */
    uint32_t members;     /* jobs there were, */
    uint32_t light;       /* and light contexts */
    uint64_t settled_ns;  /* until then it is not known what they do */
};

/* What there is room for on a device, beside the holder of the turn; scratch of a decision. */
struct company_room {
    struct member *heavy; /* saturates the GPU; NULL: none does */
    double duty;
    uint32_t contexts; /* within the latency jobs' budget */
};

/* A job that may run beside others, and its device, the first of a gang's. */
struct company_place {
    struct policy_device *dev;
    struct member *m;
};

/* Whether contexts have this slice, where no budget and no floor of speed makes it shorter. */
bool company_has_slice(uint64_t us);
/* Whether the record of switches tells anything. */
bool company_is_fed(const struct policy_device *dev, uint64_t now_ns);
/* Before a decision: what is known of the contexts and of the jobs. */
void company_judge(struct sched *c, uint64_t now_ns);
/* Before it is decided whose turn it is: whether jobs may run beside others here. */
void company_open(const struct sched_params *p, struct policy_device *dev);
/* Of linked devices: whether this job floats. */
void company_float(const struct machine *mc, struct policy_device *own, const struct member *m);
/* Whose turn it is is decided: who runs beside the holder. */
void company_pick(const struct machine *mc);
/* After a decision: from when on contexts are seen beside others. */
void company_count(struct sched *c, uint64_t now_ns);
/* What a member is charged of a turn that it has, or in which it runs beside the holder: a light
 * job what it used, and one that saturates the GPU what they left it. */
double company_charge(const struct sched_params *p, const struct policy_device *dev,
                      const struct member *m, double turn_ns);
/* The slice of jobs in turns, which is slice_us where one runs at a time: several have the budget
 * of the latency jobs together. A floor is kept against latency jobs, whatever their budget. */
uint32_t company_bounds(const struct sched_params *p, const struct policy_device *dev,
                        uint32_t slice_us);
/* The slice of a context that runs beside others; 0: it has that of its job. */
uint32_t company_slice(const struct sched *c, const struct group *g);
/* The context by which the record names this one: its process's first. */
uint32_t company_first(const struct sched *c, uint32_t group);

#endif
