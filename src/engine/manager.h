/* Jobs <-> processes <-> channel groups <-> scheduler <-> driver: finds what the jobs' processes
 * have on the GPUs, feeds the scheduler, and applies the difference between its plan and what is.
 *
 * Has no event loop and no clock of its own: whoever runs it calls manager_tick() with the time
 * when its descriptor is readable or its wake-up time has come. The daemon does so for ever; a
 * direct `cede set` does so once. Not thread-safe.
 *
 * Errors are returned as text about one job; a job that cannot be steered never hurts another. */
#ifndef CEDE_ENGINE_MANAGER_H
#define CEDE_ENGINE_MANAGER_H

#include <stdbool.h>
#include <stdint.h>

#include "device/ops.h"
#include "lib/util.h"
#include "recovery/journal.h"
#include "sched/sched.h"

struct manager;

/* So that users cannot take all JOURNAL_JOBS, neither one nor several: kept to by rules here and by
 * verbs.c; root and administrators may have more. */
#define USER_JOBS_MAX  1024
#define USERS_JOBS_MAX (JOURNAL_JOBS / 4 * 3) /* all but root's together */

/* What a GPU process that belongs to no job shall be (rules of the configuration). */
struct job_spec {
    enum job_class class;
    uint32_t weight;
    uint32_t budget_us;              /* of added latency, for a latency job; 0: none */
    uint32_t deadline_us, laxity_us; /* see manager_set_deadline() */
    bool may_rise;
    enum job_source source;
    uid_t uid;
    char name[JOB_NAME_MAX];
};
typedef bool (*manager_rule_fn)(void *arg, pid_t pid, struct job_spec *spec);

enum swap_mode {
    SWAP_AUTO,   /* jobs leave for latency jobs that need memory */
    SWAP_MANUAL, /* only when a person asks */
    SWAP_OFF,
};

struct swap_options {
    enum swap_mode mode;
    /* For a latency job that begins without manager_need(): of the GPU, or of those it has begun to
     * use. */
    uint64_t reserve_bytes;
};

struct manager_options {
    struct sched_params params;
    const char *policy;
    struct swap_options swap;
    manager_rule_fn rule; /* NULL: none */
    void *rule_arg;
};

/* Takes back the jobs of the journal. The driver and the journal stay the caller's. */
int manager_new(struct device_driver *driver, struct journal *journal,
                const struct manager_options *options, struct manager **out, struct error *err);

/* restore: undo everything that was changed (how a daemon leaves). Without it, what is set stays
 * and stays in the journal (how a direct command leaves). Returns how many groups could not be
 * undone. */
unsigned manager_free(struct manager *m, bool restore);

/* Readable when a process of a job has ended. */
int manager_fd(const struct manager *m);

/* Everything that is due: exits, discovery, scans, usage, decisions. Returns when to call again. */
uint64_t manager_tick(struct manager *m, uint64_t now_ns);

/* The job that this living process is known to be in; the one that it belongs to, by what is known
 * or by its ancestors now. */
uint32_t manager_job_with(const struct manager *m, pid_t pid);
uint32_t manager_job_of(const struct manager *m, pid_t pid);
uint32_t manager_job_by_number(const struct manager *m, uint64_t number);

/* Adopts a process and its descendants. -ESRCH, -EEXIST (already in a job: *job says which),
 * -ENOSPC (too many jobs). */
int manager_add(struct manager *m, struct proc_id root, const struct job_spec *spec, uint32_t *job,
                struct error *err);
int manager_change(struct manager *m, uint32_t job, enum job_class class, uint32_t weight,
                   uint32_t budget_us);
/* For programs that do not tell of requests: what the job's GPUs have to do is done so long after
 * it began; 0: whenever. laxity_us: of that time, what it can spare (it does not need the GPU); 0:
 * find out. may_rise: above latency jobs if need be. -ENOMEM. */
int manager_set_deadline(struct manager *m, uint32_t job, uint32_t deadline_us, uint32_t laxity_us,
                         bool may_rise);

/* What a job's programs tell of their requests now, to be told again and again (after 1 s of
 * silence they are taken to be gone). Numbers of strangers: nothing is believed that costs others
 * more than the scheduler allows. */
struct told {
    uint64_t now_ns;
    uint64_t ended;       /* requests, ever */
    uint64_t deadline_ns; /* the earliest of those that are open; 0: none is due */
    uint64_t need_ns;     /* GPU time that it will take; 0: not said */
    int priority;         /* among those that are due; higher: sooner */
    bool root;            /* all of the programs are an administrator's */
};
void manager_told(struct manager *m, uint32_t job, const struct told *t);

int manager_pause(struct manager *m, uint32_t job, bool paused, uid_t by);
/* Off the GPU's memory and back, in the course of seconds to minutes: job_view.swap tells how far
 * it is, and job_view.swap_error why it did not go. A job that does not leave runs on; one that
 * finds no room stays out. 0 if it is there already. -ENOTSUP, -EBUSY (another one moves), -ENODEV.
 */
int manager_swap_out(struct manager *m, uint32_t job, uid_t by, struct error *err);
int manager_swap_in(struct manager *m, uint32_t job);
/* What a latency job is going to take of a GPU: others make room for it, and keep it. job_view.room
 * tells when it is there. -EINVAL: no such GPU, or it is not that large. */
int manager_need(struct manager *m, uint32_t job, uint64_t bytes, uint32_t gpu, struct error *err);
/* Lets go of a job that is not swapped: its groups get back what they had. */
void manager_release(struct manager *m, uint32_t job);

/* Undoes what the journal tells of processes that are in no job any more. A manager that goes on
 * does so by itself after 2 s; one that is used once has to be told. */
void manager_undo_leftovers(struct manager *m);
/* Whether not all processes were looked at to the end; to be asked by whoever does not go on. */
bool manager_searching(const struct manager *m);

/* Changes are applied at the next tick; this makes that tick look at the job's processes first, and
 * tells what went wrong with this job lately (0 if nothing, -ENODEV if none of its processes uses a
 * GPU yet, -EAGAIN if that is still being found out). */
int manager_job_status(const struct manager *m, uint32_t job, struct error *err);

struct job_view {
    uint64_t number;
    struct journal_job job;         /* name, class, weight, ... */
    uint32_t processes;             /* that use a GPU */
    uint32_t gpus;                  /* bit mask of GPU indices */
    uint8_t level[DEVICE_GPUS_MAX]; /* enum device_level, of what is steered worst; 0: nothing */
    uint32_t groups;
    uint32_t runnable_groups;
    bool rests;            /* that there are none is not for want of a turn (sched_rests()) */
    uint32_t timeslice_us; /* of its compute group on the first GPU; 0: the driver's default */
    double busy;           /* share of GPU time lately, summed over GPUs; < 0: unknown */
    uint64_t memory_bytes;
    bool due, due_first, due_risen; /* a deadline is open; it goes before others for it */
    int64_t due_in_ns;              /* < 0: it is late */
    uint64_t due_needs_ns;          /* GPU time still; TIME_NEVER: not known */
    bool needs, room;               /* it said what it needs (manager_need()), and that is there */
    const char *swap;               /* "", "swapping-out", "swapped" or "swapping-in" */
    bool swap_by_user;
    uid_t swap_uid; /* of who swapped it out, if it was a person */
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
bool manager_next_job(const struct manager *m, uint32_t *cursor, struct job_view *out);
/* Somebody looks: keeps busy and memory_bytes up to date for the next seconds. */
void manager_watch(struct manager *m);

int manager_set_policy(struct manager *m, const char *name);
int manager_set_params(struct manager *m, const struct sched_params *params);
void manager_set_swap(struct manager *m, const struct swap_options *o);
const struct sched_params *manager_params(const struct manager *m);
const char *manager_policy(const struct manager *m);
struct device_driver *manager_driver(const struct manager *m);

#endif
