/* The scheduler: which job may use which GPU now, and with what timeslice.
 *
 * A deterministic function of events and of a clock value that is passed in. No system calls, no
 * clock, no allocation after sched_new(), no knowledge of drivers or processes. The same code runs
 * in the daemon, in tests on a mock GPU and in the simulator in virtual time.
 *
 * Terms: a *job* is what the user names (a process tree). A *group* is what the hardware schedules
 * (a channel group, on one device). A *member* is a job on a device: its groups there, treated
 * alike. An *account* has jobs that share one part of a GPU (account_shares.h). A *gang* is a job
 * with compute groups on more than one device (turns.h). Job, group and device numbers are slots
 * that the caller chooses, below the limits given at set-up.
 *
 * Not thread-safe. Times are nanoseconds of any monotonic clock; timeslices are microseconds.
 */
#ifndef CEDE_PLAN_SCHED_H
#define CEDE_PLAN_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/job_terms.h"

const char *job_class_name(enum job_class c);
/* 0 or -EINVAL. */
int job_class_parse(const char *name, enum job_class *out);

struct sched_limits {
    uint32_t devices, jobs, groups, accounts;
};

/* The parameters of the policies. What each is, defaults, bounds and reasons: policy_settings.c. */
struct sched_params {
    uint32_t timeslice_min_us, timeslice_latency_us, timeslice_alone_us, timeslice_share_us;
    uint32_t timeslice_max_us, timeslice_floor_us, rotation_us, probe_us, urgent_us;
    uint32_t switch_us, copies_apart, edf_k;
    double switch_loss, latency_speed, top_loss, floor, deadline_share;
};
void params_default(struct sched_params *p);

/* A constant, or the value of another parameter. */
struct param_bound {
    double value;
    const char *field; /* NULL: the constant */
};

/* A parameter, by its name in cede.conf and in `cede policy`. */
struct param {
    const char *name, *help; /* help: a few words for `cede policy` */
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
/* -EINVAL: not a whole number, where one is needed. params_check() checks the bounds. */
int param_set(struct sched_params *p, const struct param *f, double value);
/* 0, or -EINVAL with *what the first parameter that is out of range. */
int params_check(const struct sched_params *p, const struct param **what);
/* Writes "timeslice_min_us to timeslice_max_us", "0, or 0.001 to 0.5"; returns buf. */
#define PARAM_RANGE 72
const char *param_range(const struct param *f, char buf[static PARAM_RANGE]);

enum sched_event_type {
    EV_ACCOUNT,      /* account, weight (before: WEIGHT_DEFAULT), gpu_min, gpu_max */
    EV_JOB_ADD,      /* job, account, terms */
    EV_JOB_CHANGE,   /* job, terms */
    EV_JOB_REMOVE,   /* job; its groups are removed with it */
    EV_JOB_PAUSE,    /* job, on: true pauses, false resumes */
    EV_GROUP_ADD,    /* group, job, device, computes, process, unseen_ns */
    EV_GROUP_CHANGE, /* group, computes */
    EV_GROUP_REMOVE, /* group */
    EV_DEMAND,       /* job, device, on: whether the job was seen working there lately; busy */
    EV_DEVICE,       /* device, on: its programs delay their own submissions (policy/gated.c) */
    EV_ACTIVITY, /* device, window_ns, returns, busy_ns: observations since the last such event */
    EV_SWITCH,   /* device, group, at_ns, on: the compute engine went to a group, which stands for
                    all of its process (SLOT_NONE: to none, or an unknown one); on: switches before
                    it were lost */
    EV_DEADLINE, /* job, deadline_ns, left_ns, priority, may_promote, on */
    EV_COUNT
};

/* The terms of a job that the scheduler needs: those of job_terms, as shares. */
struct sched_terms {
    enum job_class class;
    uint32_t weight;
    uint32_t budget_us;      /* extra delay that a latency job tolerates; 0: none */
    double min_speed;        /* part of its speed that it keeps; 0: params.latency_speed */
    double gpu_min, gpu_max; /* shares of each GPU, see limits.h; 0: none */
};

struct sched_event {
    enum sched_event_type type;
    uint32_t job, group, device, account;
    union {
        struct sched_terms;
        struct sched_terms terms;
    };
    uint64_t at_ns;
    uint32_t process; /* the same number for all groups of one process */
    bool on;
    double busy;   /* share of the last second or so in which the job kept the device busy; 0: not
                      known */
    bool computes; /* it runs kernels, and so competes with other such groups, also of its job */
    uint64_t unseen_ns; /* time for which the group may have had the device before it was known;
                           one second at most counts */
    uint32_t returns;   /* how often a lower job got the GPU back while a latency job was there */
    uint64_t busy_ns;   /* time for which latency jobs had it */
    uint64_t window_ns; /* length of the observation; at most 1 s */

    /* The deadline of the job's present work, and the GPU time that it still needs. deadline_ns
     * TIME_NEVER: there is none. left_ns TIME_NEVER: not known, so that the job may be urgent but
     * is not promoted. A new deadline says that the job works, and its end that it does not.
     * may_promote: the job may join the latency class. on: further deadlines will come, so that an
     * idle job is not suspended but watched; only so two jobs below a latency job may be runnable
     * at once. */
    uint64_t deadline_ns, left_ns;
    int priority; /* among jobs of its class with deadlines; the highest comes first */
    bool may_promote;
};

/* The setting of one group. */
struct sched_setting {
    uint32_t group;
    uint32_t timeslice_us; /* 0: that which it had at first */
    bool runnable;
};

/* The settings of all groups, and when to decide again at the latest. Groups to suspend come before
 * groups to resume, on all devices, so that a caller that applies them in order never has two batch
 * jobs runnable on one device. The groups of a job follow each other, so that a gang starts on all
 * its devices within a few control calls. */
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

/* Whether EV_ACTIVITY would change anything on this device: there are lower jobs, a latency job,
 * and a budget or a deadline. */
bool sched_wants_activity(const struct sched *c, uint32_t device);

/* Whether the policy gives jobs below the highest class turns. */
bool sched_rotates(const struct sched *c);

/* Whether the policy orders latency jobs by their deadlines. */
bool sched_orders(const struct sched *c);

/* Whether jobs get this timeslice when they run together, or below a launch-bound job, whatever the
 * parameters, so that probably a scheduler has set it. */
bool sched_has_slice(uint64_t us);

/* Whether EV_SWITCH may change anything there. The record is kept only then, because it makes
 * switches slower by some microseconds. latency_busy: load of the GPU by latency jobs, as far as is
 * known. */
bool sched_wants_switches(const struct sched *c, uint32_t device, double latency_busy);

/* Whether lower jobs are throttled there. */
bool sched_throttled(const struct sched *c, uint32_t device);

/* Facts about the latency jobs of a device and the lower jobs, for display. */
struct sched_speed {
    bool launch_bound; /* latency jobs leave only gaps that are shorter than a switch */
    double bursts_hz;  /* number of bursts between gaps, per second */
    double busy;       /* share of the GPU's time that they work when alone; 0: not known */
    double speed;      /* present speed, relative to alone; 0: not known */
    uint32_t slice_us; /* of the lower jobs; 0: there are none, or no latency jobs */
};
struct sched_speed sched_speed(const struct sched *c, uint32_t device);

/* Gets the decision for a job on a device. False if it has no groups there, and is not runnable. */
bool sched_member_state(const struct sched *c, uint32_t job, uint32_t device, bool *runnable);
/* The reason of the last decision, for people. Comments say where `other` is a job. */
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
    uint32_t other, device; /* SLOT_NONE: none */
    uint32_t ahead;         /* NEXT: number of working jobs that have their turn before it */
    uint64_t until_ns;      /* TURN, NEXT: latest end of the turn; THROTTLED: its end */
};
const char *sched_why_text(enum sched_why why);
const char *sched_why_name(enum sched_why why); /* "next": for programs */
struct sched_reason sched_explain(struct sched *c, uint32_t job, uint32_t device);
/* Whether the job may not run there because of its ceiling alone, whatever others do. */
bool sched_member_at_ceiling(const struct sched *c, uint32_t job, uint32_t device);
/* Whether the job, if it wants the device, has to wait there for a job of a higher class. */
bool sched_member_outranked(struct sched *c, uint32_t job, uint32_t device);
/* Whether the job is boosted there, or leads latency jobs; *promoted: is in the latency class. */
bool sched_member_boosted(const struct sched *c, uint32_t job, uint32_t device, bool *promoted);

#endif
