/* The scheduler: which job may use which GPU now, and with what timeslice.
 *
 * A deterministic function of events and of a clock value that is passed in. No system calls, no
 * clock, no allocation after sched_new(), no knowledge of drivers or processes. The same code runs
 * in the daemon, in tests on a mock GPU and in the simulator in virtual time.
 *
 * Terms: a *job* is what the user names (a process tree). A *group* is what the hardware schedules
 * (a channel group, on one device). A *member* is a job on a device: its groups there, treated
 * alike. An *account* is whose jobs they are (account.h). A *gang* is a job with compute groups on
 * more than one device (rotation.h). Job, group and device numbers are slots that the caller
 * chooses, below the limits given at set-up.
 *
 * Not thread-safe. Times are nanoseconds of any monotonic clock; timeslices are microseconds.
 */
#ifndef CEDE_SCHED_SCHED_H
#define CEDE_SCHED_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/terms.h"

const char *job_class_name(enum job_class c);
/* 0 or -EINVAL. */
int job_class_parse(const char *name, enum job_class *out);

struct sched_limits {
    uint32_t devices, jobs, groups, accounts;
};

/* What the policies may be told; defaults, bounds and reasons in params.c. */
struct sched_params {
    uint32_t timeslice_min_us;     /* a batch group beside a latency job */
    uint32_t timeslice_latency_us; /* each of several latency jobs */
    uint32_t timeslice_alone_us;   /* the only job of the top class beside lower ones */
    uint32_t timeslice_share_us;   /* the lightest of jobs that share by weight */
    uint32_t timeslice_max_us;
    uint32_t rotation_us;        /* turn of one batch job */
    uint32_t probe_us;           /* turn of a job not seen working lately */
    uint32_t timeslice_floor_us; /* a lower class's slice when floor > 0 */
    uint32_t switch_us;          /* what switching once between two jobs takes: see budget.h */
    uint32_t
        copies_apart;   /* 1: copy groups of jobs that wait or have short slices are left alone */
    double switch_loss; /* share of a batch job's time that may go into switching while a budget
                           allows longer slices, 0.001..0.5 */
    double
        latency_speed;  /* of a latency job's speed alone, which it keeps at least: speed_floor.h */
    double top_loss;    /* what a latency job that is to keep all of it may lose, 0.001..1 */
    double floor;       /* share kept for lower classes when higher ones saturate; 0: none */
    uint32_t urgent_us; /* laxity below which a job overtakes the others of its class */
    uint32_t edf_k;     /* of so many earliest deadlines the first that can still be met */
    double deadline_share; /* of the time that others may be held up for deadlines, 0..0.95 */
};
void params_default(struct sched_params *p);

/* A constant, or the value of another parameter. */
struct param_bound {
    double value;
    const char *field; /* NULL: the constant */
};

/* One of them, by its name in cede.conf and in `cede policy`. */
struct param {
    const char *name;
    size_t offset;
    bool real;    /* a double; else a uint32_t */
    double value; /* by default */
    struct param_bound lo, hi;
    bool or_zero; /* 0 is allowed too, and switches it off */
};
#define PARAMS_COUNT 17
const struct param *param_at(unsigned i);         /* NULL: past the last */
const struct param *param_find(const char *name); /* NULL: none */
double param_get(const struct sched_params *p, const struct param *f);
/* -EINVAL: not a whole number, where one is needed. Bounds are params_check()'s. */
int param_set(struct sched_params *p, const struct param *f, double value);
/* 0, or -EINVAL with *what being the first that is out of range. */
int params_check(const struct sched_params *p, const struct param **what);
/* "timeslice_min_us to timeslice_max_us", "0, or 0.001 to 0.5"; returns buf. */
#define PARAM_RANGE 72
const char *param_range(const struct param *f, char buf[static PARAM_RANGE]);

enum sched_event_type {
    EV_ACCOUNT,      /* account, weight, gpu_min, gpu_max; by itself one has WEIGHT_DEFAULT */
    EV_JOB_ADD,      /* job, account, class, weight, budget_us, min_speed, gpu_min, gpu_max */
    EV_JOB_CHANGE,   /* job, class, weight, budget_us, min_speed, gpu_min, gpu_max */
    EV_JOB_REMOVE,   /* job; its groups are removed with it */
    EV_JOB_PAUSE,    /* job, on: true pauses, false resumes */
    EV_GROUP_ADD,    /* group, job, device, computes, process, unseen_ns */
    EV_GROUP_CHANGE, /* group, computes */
    EV_GROUP_REMOVE, /* group */
    EV_DEMAND,       /* job, device, on: whether the job was seen working there lately; busy */
    EV_DEVICE,       /* device, on: its programs hold their own submissions (policy/gated.c) */
    EV_ACTIVITY, /* device, window_ns, returns, busy_ns: what was seen since the last of these */
    EV_SWITCH, /* device, group, at_ns, on: the compute engine went to a group, which stands for all
                  of its process (SLOT_NONE: to nobody, or to a stranger); on: others before it were
                  lost */
    EV_DEADLINE, /* job, deadline_ns, left_ns, may_promote, on: see there */
    EV_COUNT
};

struct sched_event {
    enum sched_event_type type;
    uint32_t job, group, device, account;
    enum job_class class;
    uint32_t weight;
    double gpu_min, gpu_max; /* shares of each GPU, see limits.h; 0: none */
    uint32_t budget_us;      /* how much longer requests of a latency job may take; 0: no longer */
    double min_speed;        /* of a latency job: see params.latency_speed; 0: that */
    uint64_t at_ns;
    uint32_t process; /* any number that the groups of one process have in common */
    bool on;
    double busy;   /* share of the last second or so in which the job kept the device busy; 0: not
                      known */
    bool computes; /* runs kernels: competes with the other such groups of its own job too */
    uint64_t unseen_ns; /* so long may the group have had the device before anybody knew of it; more
                           than a second counts as that */
    uint32_t returns;   /* how often a lower job got the GPU back while a latency job was there */
    uint64_t busy_ns;   /* for how long latency jobs had it */
    uint64_t window_ns; /* during so long; at most 1 s */

    /* When what the job does now is due, and how much GPU time that still needs. TIME_NEVER:
     * nothing is due; left unknown: it may be urgent, but is not promoted. A new deadline says that
     * the job works, and its end that it does not. may_promote: it may join the latency class if it
     * has to. on: deadlines will come, so that a job that does nothing is not suspended but
     * watched: this is the one case in which two jobs below a latency job may be runnable at once.
     */
    uint64_t deadline_ns, left_ns;
    int priority; /* of those of its class that are due the highest goes first */
    bool may_promote;
};

/* What one group shall have. */
struct sched_setting {
    uint32_t group;
    uint32_t timeslice_us; /* 0: whatever it had before we came */
    bool runnable;
};

/* What all devices shall look like, and when to decide again at the latest. Groups to suspend come
 * before groups to resume, on all devices, so that a caller who applies it in order never has two
 * batch jobs runnable on one device; the groups of a job follow each other, so that the halves of a
 * gang start within a few control calls of each other. */
struct sched_plan {
    const struct sched_setting *settings;
    size_t n;
    uint64_t wake_ns; /* TIME_NEVER: only an event changes anything */
};

struct sched;

/* 0, -ENOMEM or -EINVAL (limits of zero, parameters out of range). Policy is "laxity" at first. */
int sched_new(const struct sched_limits *limits, const struct sched_params *params,
              struct sched **out);
void sched_free(struct sched *c);

/* 0 or -EINVAL (unknown name or parameters out of range): then nothing changes. */
int sched_set_policy(struct sched *c, const char *name);
const char *sched_policy(const struct sched *c);
int sched_set_params(struct sched *c, const struct sched_params *params);
const struct sched_params *sched_current_params(const struct sched *c);
/* Names and one-line summaries of the policies; false when i is past the last. */
bool sched_policy_at(unsigned i, const char **name, const char **summary);

/* 0; -EINVAL (slot out of range, weight, class, budget or limit out of range, unknown job or
 * group), -EEXIST (slot in use). A refused event changes nothing. */
int sched_event(struct sched *c, const struct sched_event *ev);

/* The plan for this moment. Points into the scheduler: valid until the next call. */
void sched_decide(struct sched *c, uint64_t now_ns, struct sched_plan *plan);

/* Whether EV_ACTIVITY would change anything on this device: beside lower jobs there is a latency
 * job and a budget or a deadline. */
bool sched_wants_activity(const struct sched *c, uint32_t device);

/* Whether the policy gives jobs below the highest class turns. */
bool sched_rotates(const struct sched *c);

/* Whether the policy orders latency jobs by what is due for them. */
bool sched_orders(const struct sched *c);

/* Whether a job may have this timeslice beside others or below a launch-bound one, whatever the
 * parameters: so it is likely that a scheduler has set it. */
bool sched_has_slice(uint64_t us);

/* Whether EV_SWITCH may change anything there. latency_busy: share of the time that latency jobs
 * keep the GPU busy, as far as is known. A GPU whose switches are recorded switches more slowly, by
 * some microseconds. */
bool sched_wants_switches(const struct sched *c, uint32_t device, double latency_busy);

/* Whether lower jobs are throttled there. */
bool sched_throttled(const struct sched *c, uint32_t device);

/* What is known of the latency jobs of a device and the lower jobs beside them, for people. */
struct sched_speed {
    bool launch_bound; /* they leave only gaps that are shorter than a switch */
    double bursts_hz;  /* so many of them per second */
    double busy;       /* share of the GPU's time that they work, alone; 0: not known */
    double speed;      /* of their speed alone, now; 0: not known */
    uint32_t slice_us; /* of the lower jobs; 0: there are none, or no latency jobs */
};
struct sched_speed sched_speed(const struct sched *c, uint32_t device);

/* What is decided for a job on a device. False if it has no groups there, and is not runnable. */
bool sched_member_state(const struct sched *c, uint32_t job, uint32_t device, bool *runnable);
/* Why that is so, by the last decision: for people. `other` is a job: SCHED_WHY has where. */
#define SCHED_WHY(X)                                                                               \
    X(ABSENT, "absent", "nothing of it is there")                                                  \
    X(ALONE, "alone", "no other job wants it")                                                     \
    X(FIRST, "first", "its class comes before those of all others")                                \
    X(SLACK, "slack", "the order of jobs of its class follows their slack") /* other: who leads */ \
    X(SLICES, "slices", "it shares by weight with others, in timeslices of the hardware")          \
    X(TURN, "turn", "it has its turn")                                                             \
    X(BESIDE, "beside", "it waits for its host most of the time, and runs beside others")          \
    X(WATCHED, "watched", "it was not seen working: it may begin at any time")                     \
    X(IDLE, "idle", "it does not want the device")                                                 \
    X(PAUSED, "paused", "it is paused")                                                            \
    X(NEXT, "next", "another has its turn")                  /* other: who */                      \
    X(CLASS, "class", "a job of a better class works")       /* other: one of them */              \
    X(GANG, "gang", "another has a turn on one of its GPUs") /* other: who; device: where */       \
    X(CEILING, "ceiling", "it has had what its limit allows, for now")                             \
    X(WINDOW, "window", "another has the time that its limits give") /* other: who */              \
    X(BOOSTED, "boosted", "another comes first, for its deadline")   /* other: who */              \
    X(THROTTLED, "throttled", "latency jobs leave gaps that are too short to be of use, for now")

enum sched_why {
#define X(why, name, text) WHY_##why,
    SCHED_WHY(X)
#undef X
};
struct sched_reason {
    enum sched_why why;
    uint32_t other, device; /* SLOT_NONE: nobody */
    uint32_t ahead;         /* NEXT: so many that work and wait have their turn before it */
    uint64_t until_ns; /* TURN, NEXT: the turn ends at the latest; THROTTLED; else TIME_NEVER */
};
const char *sched_why_text(enum sched_why why);
const char *sched_why_name(enum sched_why why); /* "next": for programs */
struct sched_reason sched_explain(struct sched *c, uint32_t job, uint32_t device);
/* Whether it is held there by its ceiling alone, whatever others do. */
bool sched_member_at_ceiling(const struct sched *c, uint32_t job, uint32_t device);
/* Whether it has to wait there while a job of a higher class works, now or as soon as it wants to.
 */
bool sched_member_outranked(struct sched *c, uint32_t job, uint32_t device);
/* Whether the job is boosted there, for its deadline, or leads latency jobs, and whether it joined
 * the latency class. */
bool sched_member_boosted(const struct sched *c, uint32_t job, uint32_t device, bool *promoted);

#endif
