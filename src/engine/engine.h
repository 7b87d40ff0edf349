/* The scheduler of one machine at work: it observes jobs, processes and channel groups, has
 * src/sched decide, and makes the difference so on the devices.
 *
 * Has no thread and no clock of its own: whoever owns the libuv loop calls engine_tick() when
 * engine_pending() or when the time that the last tick returned has come. The daemon does so for
 * ever; a verb without a daemon does so until nothing is due. Not thread-safe.
 *
 * What people ask for comes as commands, which are carried out within a tick and answered at its
 * end, when what they changed is recorded and applied. So a handler on the socket changes nothing,
 * and nothing that it stands on can go away under it.
 *
 * Errors are returned as text about one job; a job that cannot be steered never hurts another. */
#ifndef CEDE_ENGINE_ENGINE_H
#define CEDE_ENGINE_ENGINE_H

#include <uv.h>

#include "engine/observe/deadlines.h"
#include "engine/observe/discovery.h"
#include "engine/swap.h"
#include "model/model.h"

struct engine;
struct job_view;

struct engine_options {
    uv_loop_t *loop;
    struct sched_params params;
    const char *policy; /* NULL: the default */
    struct swap_options swap;
    rule_fn rule; /* NULL: none */
    void *rule_arg;
    bool once;              /* for one command: nothing is begun that has to be ended later */
    const char *experience; /* directory for experience.h; the caller keeps it. NULL: none */
    bool stays;             /* long enough to bring in what an earlier one has swapped out */
    /* When something has become a job (ends: ceases to be one, with all its sums); also within
     * engine_new(). It must not change anything here. NULL: nobody asks. */
    void (*job_changed)(void *arg, uint32_t job, const struct job_view *v, bool ends);
    void *job_arg;
};

/* Takes back the jobs of the journal. The driver and the journal stay the caller's. */
int engine_new(struct device_driver *driver, struct journal *journal,
               const struct engine_options *options, struct engine **out, struct error *err);

/* restore: undo everything that was changed (how a daemon leaves). Without it, what is set stays
 * and stays in the journal (how a direct command leaves). Commands that are still waiting are
 * answered with -ESHUTDOWN. Returns how many groups could not be undone. The loop has to run once
 * more before it can be closed. */
unsigned engine_free(struct engine *e, bool restore);

/* Something happened, or a command waits. */
bool engine_pending(const struct engine *e);

/* Everything that is due: observe, carry out commands, decide, record, apply, answer. Returns when
 * to call again. */
uint64_t engine_tick(struct engine *e, uint64_t now_ns);

/* A command: run() is called in the next tick and changes what it wants to by the functions below;
 * answer() in the same tick, when that is recorded and applied: at once, or, if run() has set
 * `looks`, when the tick has looked around too. code: what run() returned. The command is the
 * caller's again when answer() is called. */
struct command {
    int (*run)(struct command *c, struct engine *e);
    void (*answer)(struct command *c, struct engine *e, int code);
    int code;
    bool looks; /* the answer is about what has still to be found */
    struct command *next;
};
void engine_submit(struct engine *e, struct command *c);

/* ---- what commands do; applied at the end of the tick ---- */

/* Adopts a process and its descendants: see model_job_add(). -ERANGE: as engine_change(). */
int engine_add(struct engine *e, struct proc_id root, const struct job_spec *spec, uint32_t *job,
               struct error *err);
/* -ERANGE: its floor cannot be had beside those of others. */
int engine_change(struct engine *e, uint32_t job, const struct job_terms *terms, struct error *err);
/* The account of that name, with a weight and limits; what is named no more has those of a user. */
void engine_accounts_forget(struct engine *e);
void engine_account_set(struct engine *e, const char *name, const struct job_terms *terms);
/* For programs that do not report requests: what the job's GPUs have to do is done so long after it
 * began; 0: whenever. laxity_us: of that time, what it can spare (it does not need the GPU); 0:
 * find out. may_promote: it may join the latency class for that. -ENOMEM. */
int engine_set_deadline(struct engine *e, uint32_t job, uint32_t deadline_us, uint32_t laxity_us,
                        bool may_promote);
/* See deadlines_report(). */
uint64_t engine_report(struct engine *e, uint32_t job, const struct report *r);
int engine_pause(struct engine *e, uint32_t job, bool paused, uid_t by);
/* Off the GPU's memory and back, in the course of seconds to minutes: job_view.swap shows how far
 * it is, and job_view.swap_error why it did not go. A job that does not leave runs on; one that
 * finds no room stays out. 0 if it is there already. -ENOTSUP, -EBUSY (another one moves), -ENODEV.
 */
int engine_swap_out(struct engine *e, uint32_t job, uid_t by, struct error *err);
int engine_swap_in(struct engine *e, uint32_t job);
/* The job gives way until it acquires again: `what` of enum job_yield. over: also what another user
 * has yielded, who then may not acquire it. 0: it has, or its memory is on the way, which
 * engine_yielded() tells the outcome of. Errors as engine_swap_out(): then nothing has changed. */
int engine_yield(struct engine *e, uint32_t job, unsigned what, uid_t by, bool over,
                 struct error *err);
/* 0; -EINPROGRESS: its memory is leaving; -EAGAIN: an earlier engine ended over that; or why
 * nothing was yielded. */
int engine_yielded(const struct engine *e, uint32_t job, struct error *err);
/* It is to have back what it yielded: at once, or when its memory has found room. The wish
 * ends after wait_us, unless it is renewed. */
void engine_acquire(struct engine *e, uint32_t job, uint64_t wait_us);
/* A person has decided on that: acquiring does not touch it any more. */
void engine_yield_forget(struct engine *e, uint32_t job, unsigned what);
/* For a process of which nothing is known, as the journal was lost: brings it in wherever it is. It
 * becomes a job if it is in none. -EEXIST: that is known already. */
int engine_swap_in_process(struct engine *e, struct proc_id proc, uint32_t *job, struct error *err);
/* The same for a process in no job that may be suspended; it stays in no job. -ENODEV: there is
 * nothing of it on a GPU. */
int engine_resume_unmanaged(struct engine *e, struct proc_id proc, struct error *err);
/* And for one that is about to become a job. */
void engine_distrust(struct engine *e, struct proc_id proc);
/* What a job is going to take of a GPU, which it waits for in line (sched/room.h). For a latency
 * job others make room. job_view.job.room shows when it is there; from then on it is kept. -EINVAL:
 * no such GPU, or it is not that large. */
int engine_need(struct engine *e, uint32_t job, uint64_t bytes, uint32_t gpu, struct error *err);
/* A latency job that runs lacks memory: `bytes` are to be free on that GPU for it, until then; 0:
 * no longer. Others make room as for engine_need(). */
void engine_room(struct engine *e, uint32_t job, unsigned gpu, uint64_t bytes, uint64_t until_ns);
/* Its program starts though there is no room, or did. */
void engine_started(struct engine *e, uint32_t job);
/* Whether a user has as many jobs that wait for room as users may have. */
bool engine_user_waits_full(const struct engine *e, uid_t account);
/* Chooses GPUs for a job that has just been added, whose program is then to be started so that it
 * uses no others; job_view.job.placed has them. One that has GPUs keeps them. w: its number of
 * GPUs, the candidates and the memory. -EINVAL: there are not so many. */
int engine_place(struct engine *e, uint32_t job, const struct place_wish *w, struct error *err);
/* Detaches a job that is not swapped: its groups get back what they had. */
void engine_release(struct engine *e, uint32_t job);
/* One more than the first asked for the job, and is told that it is there. */
void engine_told(struct engine *e, uint32_t job);
/* One of them was not: the job is released with the last. */
void engine_untold(struct engine *e, uint32_t job);
/* 0 or -EINVAL: no such policy; out of range. */
int engine_set_policy(struct engine *e, const char *name);
int engine_set_params(struct engine *e, const struct sched_params *params);
/* Programs in no job are looked at soon. anew: also those that no rule took before. */
void engine_look_for_jobs(struct engine *e, bool anew);
/* An agent reported something new of a control group: programs and jobs in it are looked at soon.
 */
void engine_facts_came(struct engine *e);
void engine_set_swap(struct engine *e, const struct swap_options *o);

/* ---- a driver that is not known: engine/withhold.c ---- */

/* While held no program is scanned, and nothing is set on any. What an earlier cede has changed is
 * undone. */
void engine_hold(struct engine *e, bool on);
/* Whether the driver came back as another release, as after an update of it. Then the engine holds
 * for ever: only a new one knows which GPUs there are now and what can be done to programs. */
bool engine_driver_changed(const struct engine *e);
/* From now on these capabilities (enum gpu_caps) are not used on that GPU, and all others are. */
void engine_withhold(struct engine *e, unsigned gpu, uint32_t caps, const char *why);
/* What a GPU can do, what is withheld of that, and why ("": nothing is). */
uint32_t engine_gpu_caps(const struct engine *e, unsigned gpu, uint32_t *withheld,
                         const char **why);
/* How long it was idle while a job waited for it, since the engine began (idle.h). False: not
 * known.
 */
bool engine_gpu_idle(const struct engine *e, unsigned gpu, uint64_t *ns);
/* 0, or -ENOTSUP: suspension is withheld on a GPU that the job uses, or may come to use. */
int engine_may_pause(const struct engine *e, uint32_t job, struct error *err);

/* 0, or that the journal cannot take changes of what the job has on its GPUs, or of a new job's
 * first group (SLOT_NONE): it would be left running whatever is asked for. */
int engine_may_record(struct engine *e, uint32_t job, struct error *err);
/* What has changed is in the journal from now on, before the next tick. */
void engine_record(struct engine *e);

/* ---- for a verb that ends when it has done its work ---- */

/* Undoes what the journal has of processes that are in no job any more. An engine that goes on does
 * so by itself after 2 s. */
void engine_undo_orphans(struct engine *e);
/* Whether not all processes were looked at to the end. */
bool engine_searching(const struct engine *e);

/* ---- looking ---- */

/* See model_job_with(), model_job_of() (engine_job_find()), model_job_by_number(). Of none as far
 * as can be told: engine_job_of(). */
uint32_t engine_job_with(const struct engine *e, pid_t pid);
uint32_t engine_job_of(const struct engine *e, pid_t pid);
int engine_job_find(const struct engine *e, pid_t pid, uint32_t *job);
uint32_t engine_job_by_number(const struct engine *e, uint64_t number);
/* See speeds_lose(). */
bool engine_loses_in_space(const struct engine *e, uint32_t slot);
bool engine_user_full(const struct engine *e, uid_t account);
unsigned engine_jobs(const struct engine *e); /* how many */

/* What went wrong with this job lately: 0 if nothing, -ENODEV if none of its processes uses a GPU
 * yet, -EAGAIN if that is still being found out. */
int engine_job_status(const struct engine *e, uint32_t job, struct error *err);

struct job_view {
    uint64_t number;
    struct journal_job job;         /* name, class, weight, ... */
    uint32_t processes;             /* that use a GPU */
    uint32_t gpus;                  /* bit mask of GPU indices */
    uint8_t level[DEVICE_GPUS_MAX]; /* enum device_level, of what is steered worst; 0: nothing */
    uint32_t groups;
    uint32_t runnable_groups;
    bool stopped;   /* all that hold their own work are, by a signal or a debugger */
    bool throttled; /* that there are none is not for want of a turn (sched_throttled()) */
    bool is_client; /* of an MPS server; then paused by a signal: */
    bool signalled;
    bool left_alone; /* because another client of its server is in no job */
    uint64_t unit;   /* number of the job that stands for all of a server's; 0: one alone */
    enum job_class unit_class;        /* the best of them */
    bool speed_told, speed_profiling; /* relative to alone, beside the others of its unit */
    bool speed_turns;                 /* with which it takes turns */
    double speed, speed_error;        /* one standard deviation */
    uint32_t timeslice_us; /* the longest of its compute groups on the first GPU; 0: the driver's
                              default */
    bool preempt_active;   /* it has a group that is preempted at block ends */
    double busy;           /* share of GPU time lately, summed over GPUs; < 0: unknown */
    uint64_t memory_bytes;
    bool due, due_first, due_promoted; /* a deadline is open; it overtakes others for it */
    int64_t due_in_ns;                 /* < 0: it is late */
    uint64_t due_needs_ns;             /* GPU time still; TIME_NEVER: not known */
    enum place_reason placed_why;      /* job.placed, by engine_place() */
    bool queued;          /* it waits for room before its program is started (engine_need()) */
    uint32_t place;       /* then, in line: 0 is the first */
    bool infeasible;      /* there is too little for it even if all jobs end: others go first */
    uint64_t memory_held; /* of the GPU for which it said how much it will take */
    struct job_counts counts;
    struct job_why { /* on each GPU: */
        enum sched_why why;
        uint64_t other;           /* number of the job that it names; 0: none */
        uint32_t gpu;             /* where that is so; SLOT_NONE: here */
        uint32_t ahead;           /* jobs whose turn comes before its own */
        uint64_t for_ns;          /* so long at most; TIME_NEVER: not known */
        struct sched_speed speed; /* of latency jobs there */
        bool throttled;           /* lower jobs are */
        uint32_t slice_us;        /* its longest timeslice; 0: the driver's default */
        double busy;              /* share of this GPU's time lately; < 0: unknown */
    } why[DEVICE_GPUS_MAX];
    uint64_t exact_ns[DEVICE_GPUS_MAX], sampled_ns[DEVICE_GPUS_MAX]; /* as in struct job_demand */
    uint64_t count_age_ns[DEVICE_GPUS_MAX]; /* the two are complete up to so long ago; TIME_NEVER:
                                               never */
    const char *swap;                       /* "", "swapping-out", "swapped" or "swapping-in" */
    bool swap_by_user;
    uid_t swap_uid; /* of the user who swapped it out */
    uint64_t swapped_bytes;
    char swap_error[160]; /* why it last did not go or come, or "" */
    char error[160];      /* what went wrong lately, or "" */
};
/* Takes a group into account. */
static inline void job_view_level(struct job_view *v, const struct device_group *g)
{
    uint8_t *l = g->gpu < DEVICE_GPUS_MAX ? &v->level[g->gpu] : NULL;
    if (l && (!*l || g->level < *l))
        *l = (uint8_t)g->level;
}
/* Next job at or after slot *cursor, in slot order; false at the end. Advances *cursor. */
bool engine_next_job(const struct engine *e, uint32_t *cursor, struct job_view *out);
/* The same for who needs only what is on record of it, which takes a hundredth of the time; NULL at
 * the end. */
const struct journal_job *engine_next_record(const struct engine *e, uint32_t *cursor);
/* The job in this slot; false: there is none. */
bool engine_view(const struct engine *e, uint32_t job, struct job_view *out);
/* On each GPU the best class of jobs that wait for room in its memory; CLASS_COUNT: none waits. */
struct room_wanted {
    uint8_t class[DEVICE_GPUS_MAX];
};
struct room_wanted engine_room_wanted(const struct engine *e);
/* A job of a higher class waits until this one gives way: on a device that cannot preempt it in the
 * middle of its work, or for its memory. */
bool engine_job_wanted(const struct engine *e, uint32_t job, const struct room_wanted *w);
/* The share of a GPU, in thousandths from 1, that this process of a job can expect now: what jobs
 * of higher classes leave, by their use in the last second; of that what jobs of its own class
 * leave, and at least its part by accounts and weights; within its limits. Of the GPUs that it
 * uses, the least. 0: not known, as nothing was looked at lately (engine_watch()). */
uint32_t engine_job_share(const struct engine *e, uint32_t job, pid_t pid);
/* Next GPU process that no job owns, as it was seen last; as engine_next_job(). */
bool engine_next_unmanaged(const struct engine *e, uint32_t *cursor, struct unmanaged *out);
/* Views are as of this time, though no tick comes any more. */
void engine_last_look(struct engine *e, uint64_t now_ns);
/* Somebody looks: keeps busy and memory_bytes up to date for the next seconds. */
void engine_watch(struct engine *e);

/* What the parts of a GPU did since the last call for it. -EBUSY: the speeds of jobs are told from
 * that; -ENOTSUP, -EAGAIN and others: as device_ops.counters. */
int engine_counters(struct engine *e, unsigned gpu, struct gpu_counters *out);

/* Switches of the compute engines since the last call (device_ops.switches); the caller owns the
 * list. They are kept from the first call on, until engine_switches_end(). -ENOTSUP: the driver has
 * no record of them. */
int engine_switches(struct engine *e, struct switch_list *out);
void engine_switches_end(struct engine *e);

/* Since the daemon began: decisions, controls of the device, those of them that failed. */
void engine_totals(const struct engine *e, uint64_t out[3]);
const struct sched_params *engine_params(const struct engine *e);
const char *engine_policy(const struct engine *e);
struct device_driver *engine_driver(const struct engine *e);

#endif
