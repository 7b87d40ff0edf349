/* The engine observes jobs, processes and channel groups, has src/plan decide, and applies the
 * difference to the devices.
 *
 * The engine has no thread and no clock of its own: the owner of the libuv loop calls engine_tick()
 * when engine_pending() is true or the time that the last tick returned has come. Not thread-safe.
 *
 * Requests of users are commands, which are carried out within a tick and answered at its end, when
 * their changes are recorded and applied. So a handler on the socket changes nothing, and no object
 * that it uses can disappear meanwhile.
 *
 * Errors are returned as text about one job; a job that cannot be steered never hurts another. */
#ifndef CEDE_ENGINE_ENGINE_H
#define CEDE_ENGINE_ENGINE_H

#include <uv.h>

#include "core/model.h"
#include "core/observe/deadlines.h"
#include "core/observe/discovery.h"
#include "memory/swap.h"

struct engine;
struct identities; /* who/agent_reports.h */
struct job_view;

struct engine_options {
    uv_loop_t *loop;
    struct sched_params params;
    const char *policy; /* NULL: the default */
    struct swap_options swap;
    rule_fn rule; /* NULL: none */
    void *rule_arg;
    const char *experience; /* directory for experience.h; the caller keeps it. NULL: none */
    bool stays;             /* it runs long enough to swap in what an earlier one swapped out */
    /* Called when a job has begun, or (ends) before it ends, with all its sums; also within
     * engine_new(). It must not change the engine. May be NULL. */
    void (*job_changed)(void *arg, uint32_t job, const struct job_view *v, bool ends);
    void *job_arg;
};

/* Makes an engine with the jobs of the journal. The caller still owns the driver and the journal.
 */
int engine_new(struct device_driver *driver, struct journal *journal,
               const struct engine_options *options, struct engine **out, struct error *err);

/* restore: undo all changes, as at the normal end of a daemon. Without it, changes stay on the
 * devices and in the journal, as after kill -9. Commands that still wait are answered with
 * -ESHUTDOWN. Returns the number of groups that could not be undone. The loop has to run once more
 * before it can be closed. */
unsigned engine_free(struct engine *e, bool restore);

/* The engine's tables, for callers of functions of core and memory. Only a command's run() may
 * change them. */
struct model *engine_model(const struct engine *e);

/* Whether a tick is due: something happened, or a command waits. */
bool engine_pending(const struct engine *e);

/* Everything that is due: observe, carry out commands, decide, record, apply, answer. Returns when
 * to call again. */
uint64_t engine_tick(struct engine *e, uint64_t now_ns);

/* A command. run() is called in the next tick and makes changes by the functions below; answer() is
 * called in the same tick, when these are recorded and applied, and, if run() has set `looks`,
 * after discovery and scans. code: the result of run(). The caller owns the command again when
 * answer() is called. */
struct command {
    int (*run)(struct command *c, struct engine *e);
    void (*answer)(struct command *c, struct engine *e, int code);
    int code;
    bool looks; /* the answer depends on processes or groups that are still to be found */
    struct command *next;
};
void engine_submit(struct engine *e, struct command *c);

/* ---- what commands do; applied at the end of the tick ---- */

/* Adopts a process and its descendants, see model_job_add(). -ERANGE: as engine_change(). */
int engine_add(struct engine *e, struct proc_id root, const struct job_spec *spec, uint32_t *job,
               struct error *err);
/* Sets all terms of a job. -ERANGE: its floor does not fit beside those of others. */
int engine_change(struct engine *e, uint32_t job, const struct job_terms *terms, struct error *err);
/* Gives a job another valid name. */
void engine_rename(struct engine *e, uint32_t job, const char *name);
int engine_pause(struct engine *e, uint32_t job, bool paused, uid_t by);
/* Begins to move a job out of GPU memory, which takes seconds to minutes: job_view.swap shows the
 * progress, job_view.swap_error a failure, after which the job runs on. 0 also if it is out
 * already. -ENOTSUP, -EBUSY (another job moves), -ENODEV. */
int engine_swap_out(struct engine *e, uint32_t job, uid_t by, struct error *err);
/* Makes the job yield `what` (enum job_yield) until it acquires again. over: also what another user
 * has yielded, who then may not acquire it. 0: done, or its memory is being moved; yield_outcome()
 * has the outcome. Errors as engine_swap_out(): then nothing has changed. */
int engine_yield(struct engine *e, uint32_t job, unsigned what, uid_t by, bool over,
                 struct error *err);
/* Resumes an unmanaged process that may be suspended because a journal was lost; it stays
 * unmanaged. -ENODEV: it has nothing on a GPU. */
int engine_resume_unmanaged(struct engine *e, struct proc_id proc, struct error *err);
/* States the memory that a job is going to take on a GPU; the job waits for it in line
 * (plan/memory_line.h). For a latency job others make room. job_view.job.room shows when there is
 * room, which is then kept. -EINVAL: no such GPU, or it is not that large. */
int engine_need(struct engine *e, uint32_t job, uint64_t bytes, uint32_t gpu, struct error *err);
/* A running latency job lacks memory: others make room, as for engine_need(), until `bytes` are
 * free on that GPU. The request ends at until_ns, or with bytes = 0. */
void engine_room(struct engine *e, uint32_t job, unsigned gpu, uint64_t bytes, uint64_t until_ns);
/* Chooses the GPUs of a job that has just been added, in job_view.job.placed; its program is then
 * started so that it uses no others. A job that has GPUs keeps them. need: number of GPUs,
 * candidates and memory. -EINVAL: there are too few candidates. */
int engine_place(struct engine *e, uint32_t job, const struct place_need *need, struct error *err);
/* Detaches a job that is not swapped, and gives its groups their first state back. */
void engine_release(struct engine *e, uint32_t job);
/* Another caller besides the first is answered that the job exists. */
void engine_told(struct engine *e, uint32_t job);
/* An answer did not arrive. If none did, the job is undone as if it had not been asked for. */
void engine_untold(struct engine *e, uint32_t job);
/* 0 or -EINVAL: no such policy; out of range. */
int engine_set_policy(struct engine *e, const char *name);
int engine_set_params(struct engine *e, const struct sched_params *params);
/* Makes discovery look at unmanaged programs soon. anew: also at those that no rule took before. */
void engine_look_for_jobs(struct engine *e, bool anew);
/* An agent has a new report of a control group: programs and jobs are classified again soon, and
 * pods of jobs are looked up in `reports`, which have to last as long as the engine. */
void engine_facts_came(struct engine *e, const struct identities *reports);
void engine_set_swap(struct engine *e, const struct swap_options *o);

/* ---- a driver that is not known: engine/withhold.c ---- */

/* While the engine is quiesced, no program is scanned or steered; changes of an earlier cede are
 * undone. */
void engine_quiesce(struct engine *e, bool on);
/* Whether the driver came back as another release, as after an update. Then the engine is quiesced
 * for good, as only a new engine finds out which GPUs there are and what the driver can do. */
bool engine_driver_changed(const struct engine *e);
/* Withholds these capabilities (enum gpu_caps) on that GPU, and allows all others. */
void engine_withhold(struct engine *e, unsigned gpu, uint32_t caps, const char *why);
/* The capabilities of a GPU, those of them that are withheld, and why ("": none is). */
uint32_t engine_gpu_caps(const struct engine *e, unsigned gpu, uint32_t *withheld,
                         const char **why);
/* How long the GPU was idle while a job waited for it, since the engine began (counts.h). False:
 * not known. */
bool engine_gpu_idle(const struct engine *e, unsigned gpu, uint64_t *ns);
/* 0, or -ENOTSUP: suspension is withheld on a GPU that the job uses, or may come to use. */
int engine_may_pause(const struct engine *e, uint32_t job, struct error *err);

/* 0, or an error if the journal cannot record changes of the job's groups, or of a new job's first
 * group (SLOT_NONE): then the job would be left running, whatever is asked for. */
int engine_may_record(struct engine *e, uint32_t job, struct error *err);
/* The same for changes that take no more room in the journal. */
int engine_records(struct engine *e, struct error *err);
/* Writes what has changed to the journal now, before the end of the tick. */
void engine_record(struct engine *e);

/* Tries something with a job for some time (core/trial.h). together: what all jobs of its user that
 * this connection tries do together, in thousandths of one of them alone, to be remembered for
 * speeds_lose() and `cede why`; 0: nothing. */
int engine_try(struct engine *e, uint32_t job, const struct job_trial *t, uint64_t for_ns,
               uint32_t together, struct error *err);
/* The connection is closed: what it tries ends with the next tick. */
void engine_try_no_more(struct engine *e, uint64_t connection);

/* ---- looking ---- */

/* As model_job_of(); SLOT_NONE also after an error. */
uint32_t engine_job_of(const struct engine *e, pid_t pid);
/* See speeds_lose(). */
bool engine_loses_in_space(const struct engine *e, uint32_t slot);

/* The job's last error: 0 if there is none, -ENODEV if none of its processes uses a GPU yet,
 * -EAGAIN if that is still being found out. */
int engine_job_status(const struct engine *e, uint32_t job, struct error *err);

struct job_view {
    uint64_t number;
    struct journal_job job; /* name, class, weight, ... */
    struct proc_id member;  /* engine_member() */
    bool rootless;          /* its root has ended, so the pid may be another process's */
    struct pod_names pod;
    uint32_t processes;             /* that use a GPU */
    uint32_t gpus;                  /* bit mask of GPU indices */
    uint8_t level[DEVICE_GPUS_MAX]; /* lowest enum device_level of its groups; 0: no groups */
    uint32_t groups;
    uint32_t runnable_groups;
    bool stopped;    /* all processes on gated devices are, by a signal or a debugger */
    bool throttled;  /* no group is runnable because it is throttled (sched_throttled()) */
    bool is_client;  /* a client of an MPS server */
    bool signalled;  /* it is a client and was paused by a signal */
    bool held;       /* somebody tries what others do without it (core/trial.h) */
    bool left_alone; /* another client of its server is unmanaged */
    uint64_t unit;   /* number of the job that stands for its unit; 0: it is alone */
    enum job_class unit_class;        /* the highest class in its unit */
    bool speed_told, speed_profiling; /* `speed` is known; it is being measured */
    bool speed_turns;                 /* it takes turns with the others of its unit */
    double speed, speed_error;        /* relative to alone; one standard deviation */
    uint32_t together;                /* speeds_together() of its first GPU */
    uint32_t timeslice_us; /* the longest of its compute groups on the first GPU; 0: the driver's
                              default */
    bool preempt_active;   /* it has a group that is preempted at block ends */
    double busy;           /* share of GPU time lately, summed over GPUs; < 0: unknown */
    uint64_t memory_bytes;
    bool due, due_first, due_promoted; /* a deadline is open; it is boosted; it is promoted */
    int64_t due_in_ns;                 /* < 0: it is late */
    uint64_t due_needs_ns;             /* GPU time that is left; TIME_NEVER: not known */
    enum place_reason placed_why;      /* the reason for job.placed */
    bool queued;          /* it waits for room before its program is started (engine_need()) */
    uint32_t position;    /* while queued, its position in line from 0 */
    bool infeasible;      /* it would lack room even if all jobs ended, so others overtake it */
    uint64_t memory_held; /* memory that it has on the GPU for which it stated a need */
    struct job_totals counts;
    struct job_why { /* on each GPU: */
        enum sched_why why;
        uint64_t other;           /* number of the job that `why` refers to; 0: none */
        uint32_t gpu;             /* the GPU that `why` refers to; SLOT_NONE: this one */
        uint32_t ahead;           /* jobs whose turn comes before its own */
        uint64_t for_ns;          /* the longest time that is left; TIME_NEVER: not known */
        struct sched_speed speed; /* of latency jobs on this GPU */
        bool throttled;           /* lower jobs are throttled for it */
        uint32_t slice_us;        /* its longest timeslice; 0: the driver's default */
        double busy;              /* share of this GPU's time lately; < 0: unknown */
    } why[DEVICE_GPUS_MAX];
    uint64_t count_age_ns[DEVICE_GPUS_MAX]; /* age of engine time; TIME_NEVER: not counted */
    const char *swap;                       /* "", "swapping-out", "swapped" or "swapping-in" */
    bool swap_by_user;
    uid_t swap_uid; /* of the user who swapped it out */
    uint64_t swapped_bytes;
    char swap_error[160]; /* why the last move failed, or "" */
    char error[160];      /* the last error, for some seconds, or "" */
    bool memory_exceeded; /* it is that the job had more memory than its memory-max */
};
/* Lowers the job's level to that of a group. */
static inline void job_view_level(struct job_view *v, const struct device_group *g)
{
    uint8_t *l = g->gpu < DEVICE_GPUS_MAX ? &v->level[g->gpu] : NULL;
    if (l && (!*l || g->level < *l))
        *l = (uint8_t)g->level;
}
/* Next job at or after slot *cursor, in slot order; false at the end. Advances *cursor. */
bool engine_next_job(const struct engine *e, uint32_t *cursor, struct job_view *out);
/* The same for the job's record alone, which takes a hundredth of the time; NULL at the end. */
const struct journal_job *engine_next_record(const struct engine *e, uint32_t *cursor);
/* A process of the job that lives, if one does: its root, or one that uses a GPU. */
struct proc_id engine_member(const struct engine *e, uint32_t job);
/* The job in this slot; false: there is none. */
bool engine_view(const struct engine *e, uint32_t job, struct job_view *out);
/* For each GPU the highest class of jobs that wait for memory there; CLASS_COUNT: none waits. */
struct room_wanted {
    uint8_t class[DEVICE_GPUS_MAX];
};
struct room_wanted engine_room_wanted(const struct engine *e);
/* Whether a job of a higher class waits until this one yields: on a device that cannot preempt it
 * in the middle of its work, or for its memory. */
bool engine_job_wanted(const struct engine *e, uint32_t job, const struct room_wanted *w);
/* The share of a GPU, in thousandths from 1, that this process of a job can expect now. By the use
 * in the last second, it is what jobs of higher classes leave, and of that what its peers leave or
 * at least its part by accounts and weights, within its limits. If it uses several GPUs, the least
 * counts. 0: not known, as usage() was not asked lately (engine_watch()). */
uint32_t engine_job_share(const struct engine *e, uint32_t job, pid_t pid);
/* The next unmanaged GPU process, as it was last seen; cursor as in engine_next_job(). */
bool engine_next_unmanaged(const struct engine *e, uint32_t *cursor, struct unmanaged *out);
/* Brings the time of views up to date when no tick follows any more. */
void engine_last_look(struct engine *e, uint64_t now_ns);
/* Keeps busy and memory_bytes up to date for some seconds, as a person looks at them. */
void engine_watch(struct engine *e);

/* The GPU's counters since the last call for it. -EBUSY: they are in use for speeds of jobs;
 * -ENOTSUP, -EAGAIN and others: as device_ops.counters. */
int engine_counters(struct engine *e, unsigned gpu, struct gpu_counters *out);

/* Switches of the compute engines since the last call (device_ops.switches); the caller owns the
 * list. They are kept from the first call on, until engine_switches_end(). -ENOTSUP: the driver has
 * no record of them. */
int engine_switches(struct engine *e, struct switch_list *out);
void engine_switches_end(struct engine *e);

/* Numbers since the daemon began: decisions, control calls, and control calls that failed. */
void engine_totals(const struct engine *e, uint64_t out[3]);
const struct sched_params *engine_params(const struct engine *e);
const char *engine_policy(const struct engine *e);
struct device_driver *engine_driver(const struct engine *e);

#endif
