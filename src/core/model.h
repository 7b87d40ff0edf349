/* The model: jobs, their processes, the processes' channel groups, and unmanaged GPU programs. The
 * tables and the links between them change here and nowhere else, and each change that matters to
 * the scheduler is passed to it as an event. Facts that were observed about a job, a process or a
 * group stand in the same tables; a comment at each set of facts names the file that writes it.
 *
 * The model reads /proc (identity and parents of processes) and the journal's records. It makes no
 * change on a device and does not write the journal. Slots are those of the journal. Not
 * thread-safe. */
#ifndef CEDE_CORE_MODEL_H
#define CEDE_CORE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/job_terms.h"
#include "base/quota.h"
#include "base/util.h"
#include "core/watch.h"
#include "gpu/ops.h"
#include "journal/journal.h"
#include "journal/swapper.h"
#include "plan/memory_limit.h"
#include "plan/placement_choice.h"
#include "plan/sched.h"
#include "plan/still_starting.h"
#include "who/pod_names.h"

/* Limits so that users, alone or together, cannot take all JOURNAL_JOBS; administrators have no
 * such limit. */
#define USER_JOBS_MAX   1024
#define USERS_JOBS_MAX  USERS_PART(JOURNAL_JOBS)
#define USER_WAITS_MAX  256 /* jobs that wait for room */
#define USERS_WAITS_MAX USERS_PART(1024)

/* The terms and the origin of a job that is about to be made of a process. */
struct job_spec {
    struct job_terms terms;
    enum job_source source;
    uid_t uid;
    char name[JOB_NAME_MAX];
    char account[ACCOUNT_NAME_MAX]; /* "": the account of the principal */
    uid_t principal;
    uint64_t program;      /* a hash of the arguments; 0: not known */
    uint64_t memory_bytes; /* of a rule: what it needs of a GPU's memory; 0: not known */
    bool again;         /* a rule is to answer only if an agent reported something after `facts` */
    uint64_t facts;     /* number of the report by which it was classified; 0: there was none */
    uint64_t slurm_job; /* with source JOB_SLURM */
    uint64_t launch;    /* programs with the same number, of what started them, are one job; 0: a
                           job by itself */
};

struct process {
    struct proc_id id; /* pid 0: free */
    uint32_t job;
    uint32_t hash_next, job_next, first_group;
    int pidfd;
    struct watch *watch;
    bool ended;
    bool record_changed; /* engine/tick.c is to write its journal record */
    uint32_t opened;     /* GPUs on which it has been seen: bit mask */
    bool listed;         /* the driver lists it as a user of a GPU; core/observe/discovery.c */
    uint32_t wants;      /* gated devices for which it has work: bit mask; core/observe/demand.c */
    /* core/apply.c */
    bool joins; /* its last suspend or resume succeeded, so calls may join it with others */
    /* core/mps_stop.c */
    bool stopped;      /* cede has stopped it (SIGSTOP), and that is on record */
    uint64_t stops_at; /* when to check again whether it is stopped */
    /* core/observe/scans.c */
    uint64_t unseen_since; /* end of its last full scan: later groups may have run unseen since */
    uint32_t charged;      /* GPUs on which a group since then was charged for that: bit mask */
    bool searching;        /* its last scan was incomplete */
    bool slow;             /* its last scan was incomplete or took long */
    uint64_t scan_at;      /* TIME_NEVER: detached until model_job_rescan() */
    uint64_t scan_every;
};

/* A setting of a group: the wanted value and the present one. `unsure`: a call failed or an earlier
 * cede may have changed it, so it is set again. */
struct setting {
    uint64_t wanted, have;
    bool unsure;
};

struct channel_group {
    struct device_group dg; /* dg.proc.pid 0: free, or an orphan */
    uint32_t process, next; /* next group of the process */
    uint32_t twin;          /* ring of the slots that are one group in the hardware */
    uint32_t sched_job;     /* its job for the scheduler; SLOT_NONE: unknown to the scheduler */
    bool orphan;            /* the journal has a record of it, and no job's process shows it */
    bool stopped;           /* its record says that its process is stopped */
    uint64_t unseen_ns;     /* time that it may have run before it was found; the scheduler is not
                               notified of it yet */
    bool record_changed;    /* its journal record has to be written again */
    /* core/apply.c sets these on the device. The hardware counts suspensions, so a group that may
     * be suspended is resumed before it is suspended. */
    struct setting suspended;  /* 0 or 1 */
    struct setting block_ends; /* 1: it is preempted at block ends */
    struct setting timeslice_us;
    /* When a failed control is tried again: suspend and resume, or timeslice and preemption mode.
     * They are separate, as a group whose timeslice cannot be set must still be resumed. */
    uint64_t retry_at, settings_at;
};

/* A member, which is a job on one device; written by core/observe/demand.c. */
struct job_demand {
    uint64_t memory_bytes;
    bool idle;   /* as last reported to the scheduler */
    double busy; /* 0..1, by usage() and activity(); < 0: unknown */
    uint8_t idle_windows;
    bool ran;      /* was runnable at some time since the last usage() */
    bool runnable; /* it is, since since_ns; else it was, until until_ns */
    uint64_t since_ns, until_ns;
    uint32_t bursts; /* in the last window of activity() */
    uint64_t busy_ns;
    uint64_t active_ns; /* when activity() last reported any */
    uint64_t had_ns;    /* engine time by activity() since the last usage(), */
    uint32_t got;       /* and how often it got the engine */
    uint64_t quiet_ns;  /* time without the engine while runnable, since it last had it */
    uint64_t seen_ns;   /* when activity() last showed whether it works; 0: never */
    struct starting start;
    uint64_t start_bytes; /* the most memory that it was seen with */
};

/* Swapping of a job; memory/swap.c writes it and has the transitions. */
struct job_swap {
    enum swap_phase phase;
    bool by_user; /* a user swapped it out: it stays out until a user asks for it */
    bool guessed; /* no record says that it is out: a user or a search did */
    uid_t uid;    /* the user who asked */
    struct swapper child;
    struct watch *watch;
    bool ended;
    uint64_t since_ns; /* when it last left or came */
    uint64_t asked_ns; /* SWAP_ASKED: since when, which is its position in line */
    uint64_t retry_at, retry_every;
    uint64_t refused_until, user_again_at;
    uint64_t bytes[DEVICE_GPUS_MAX]; /* its GPU memory when it left */
    int code;                        /* error of the last move that failed */
    bool stayed;                     /* the last attempt to swap it out failed */
    uint64_t began_ns;               /* when the last move began */
    struct error error;
};

/* Accounts, in the scheduler's slots. One without jobs keeps its slot as long as there is room,
 * because the GPU time that it had still counts. */
#define MODEL_ACCOUNTS (JOURNAL_JOBS + ACCOUNTS_NAMED)
struct model_account {
    bool used;
    char name[ACCOUNT_NAME_MAX]; /* "": the account of the principal `uid` */
    uid_t uid;
    uint32_t jobs;
    uint32_t weight, gpu_min, gpu_max; /* weight 0: not in the configuration, WEIGHT_DEFAULT */
    uint64_t swap_again_at;            /* when its users may swap jobs out again; memory/swap.c */
    struct starting_spell spell[DEVICE_GPUS_MAX];
};

struct job_due; /* core/observe/deadlines.c */

/* How a job spent its time since it is known; written by engine/counts.c, and engine time by
 * core/observe/demand.c. Each member is a sum of 64 bits, so that all are added alike. */
enum job_where { WHERE_HERE, WHERE_QUEUED, WHERE_PAUSED, WHERE_SWAPPED, WHERE_COUNT };
struct job_totals {
    uint64_t where_ns[WHERE_COUNT];
    uint64_t swaps;         /* times that it was swapped out */
    uint64_t swapped_bytes; /* sum of what was swapped out */
    struct gpu_totals {
        uint64_t exact_ns, sampled_ns; /* engine time: by activity(), and elsewhere by usage() */
        uint64_t ran_ns, waited_ns;
        uint64_t turns, preempted; /* times that it began to run, and that it was suspended */
    } on[DEVICE_GPUS_MAX];
};

/* The totals lack the time since where_since and, on each GPU, since `since`. */
struct job_counts {
    struct job_totals total;
    enum job_where where;
    uint64_t where_since; /* ns */
    bool away;
    struct gpu_counts {
        bool runs, waits; /* it may run; it may not although it has work, as far as is known */
        uint64_t since;   /* ns */
    } on[DEVICE_GPUS_MAX];
};

/* A job's speed beside others in an MPS server; written by core/observe/speeds.c. */
struct job_speed {
    bool known;                /* `profile` is known */
    double profile[GPU_PARTS]; /* what it does alone, as struct gpu_counters */
    uint32_t idle_looks;       /* profiles in a row that found it idle, */
    uint64_t look_again_at;    /* and when the next one is due */
    bool told;                 /* `value` and `error` are known */
    double value, error;       /* its speed, as struct speed */
    bool profiling;            /* the profiles of its unit are being measured */
    bool turns;                /* its unit takes turns, because together they would do less */
    bool held;                 /* it is stopped until its turn */
};

/* What somebody tries with the job for a moment; core/trial.h. */
struct job_trial {
    uint64_t until_ns;   /* 0: nothing */
    uint64_t connection; /* of the one who tries */
    bool held;
    bool ranked; /* it has this class meanwhile */
    enum job_class class;
};

struct job {
    struct journal_job rec; /* root.pid 0: free */
    bool record_changed;    /* engine_record() is to write the journal's */
    int root_pidfd;         /* -1: the root has ended */
    struct watch *root_watch;
    bool root_ended;
    bool group_lives; /* its control group had processes when it was last looked at */
    uint32_t nprocesses, ngroups;
    uint64_t program; /* as in its spec; 0 in the next daemon */
    uint64_t facts;   /* likewise */
    uint32_t told;    /* callers who asked for it and have their reply (api/take_back.h) */
    bool was_free;    /* before the job began, no person had detached its process */
    bool facts_came;  /* there are new reports; engine/reclassify.c */
    bool pod_asked;   /* its pod is to be found; engine/reclassify.c */
    struct pod_names pod;
    uint32_t first_process;
    uint32_t account;
    /* units.c */
    uint32_t unit;              /* the job that stands for its unit, usually itself */
    bool is_client, was_client; /* it has groups that others may share */
    bool united;                /* its unit has other jobs */
    enum job_class unit_class;  /* class of the unit for which it stands */
    bool left_alone;            /* its unit contains an unmanaged program */
    bool out_of_turn;           /* it is stopped until its turn; core/observe/mps_clients.c */
    uint64_t added_ns;
    uint64_t moved_ns; /* when one of its programs last came or ended */
    int error_code;    /* shown until error_until */
    uint64_t error_until;
    struct error error;
    /* core/observe/demand.c */
    bool wants_changed; /* `wants` of a process changed */
    struct job_demand on[DEVICE_GPUS_MAX];
    struct job_speed speed;
    struct job_trial trial;
    struct job_counts counts;
    struct memory_watch memory_watch; /* memory/over.c */
    /* core/observe/deadlines.c */
    struct job_due *due; /* NULL: nothing was ever due */
    uint64_t gpu_ns;     /* engine time seen since `due` exists, of the GPU where it had most */
    /* memory/swap.c, memory/autoswap.c */
    struct job_swap swap;
    uint64_t rule_bytes; /* memory that a rule says it needs; 0: not known */
    uint64_t room_bytes[DEVICE_GPUS_MAX], room_until[DEVICE_GPUS_MAX]; /* engine_room() */
    /* memory/yield.c: a caller of `cede acquire` waits for it */
    uint64_t acquire_ns, acquire_until;  /* since when, which is its position in line; until when */
    uint64_t acquire_at;                 /* when its memory may be asked in again */
    uint32_t yields_with;                /* what it yielded for as long as its memory leaves */
    uint64_t kept_ns;                    /* since when its stated memory is kept for it */
    uint64_t line_ns, first_ns, pass_ns; /* as in plan/memory_line.h */
    uint32_t position;                   /* likewise */
    bool infeasible;   /* for a while it would have lacked room even without other jobs */
    uint64_t short_ns; /* since when it would; 0: it would not */
    /* engine/placement.c */
    enum place_reason placed_why; /* the reason for rec.placed */
    uint32_t candidates; /* other GPUs where it may go while it waits: bit map; 0: not known */
};

/* A GPU process that no job owns. */
struct unmanaged {
    struct proc_id id;
    uint32_t hash_next;
    uid_t uid;
    /* core/observe/discovery.c */
    pid_t group, session; /* as of read_ns */
    uint64_t read_ns;
    char comm[32];                    /* chosen by the program: any bytes */
    bool seen;                        /* it is in the driver's last list */
    bool looked;                      /* rules were asked, and have nothing for it now */
    bool crowded;                     /* a rule takes it, but there was no room for another job */
    bool pending;                     /* the rules' answer is not known yet */
    bool facts_came;                  /* an agent has reported something since rules were asked */
    uint64_t facts;                   /* as in struct job_spec */
    bool detached;                    /* a person detached it, so no rule takes it */
    bool scheduler;                   /* it schedules GPUs itself, so no rule takes it */
    bool serves;                      /* an MPS server, which runs no work of its own */
    bool client;                      /* a client of an MPS server */
    uint32_t shares[DEVICE_GPUS_MAX]; /* device_group.shared on each GPU, as far as is known */
    /* core/observe/demand.c */
    uint32_t gpus; /* bit mask, as far as usage() showed them; 0: not known */
    uint8_t asked; /* calls of usage() while they were not known */
};

struct model {
    struct device_driver *driver;
    struct journal *journal;
    struct sched *sched;
    struct watches watches;
    struct ancestors *ancestors;                              /* the cache of core/ancestors.h */
    void (*process_gone)(struct model *m, struct proc_id id); /* called when a process has ended */
    /* Called after a job has begun and before one ends; may be NULL. */
    void (*job_changed)(struct model *m, uint32_t job, bool ends);
    uint64_t now;                       /* of this tick */
    bool dirty;                         /* something changed since the last decision */
    uint64_t wake;                      /* when to decide again; TIME_NEVER: no jobs take turns */
    uint64_t decisions;                 /* number so far; engine/tick.c */
    uint64_t controls, controls_failed; /* control calls to the driver, each for many groups */
    unsigned ngpus;
    struct gpu_info gpus[DEVICE_GPUS_MAX]; /* without the capabilities that are withheld */
    struct withheld {
        uint32_t caps;
        char why[160];           /* for people */
    } withheld[DEVICE_GPUS_MAX]; /* engine/withhold.c */
    bool quiesced;               /* no program is scanned or steered (engine_quiesce()) */
    struct job *jobs;
    struct model_account *accounts;
    uint32_t accounts_end,
        account_hand; /* slots below may be in use; where to look for a free one */
    struct process *processes;
    struct channel_group *groups;
    uint32_t jobs_end, processes_end, groups_end; /* slots below may be in use */
    uint32_t processes_free, groups_free;         /* all slots below are in use */
    uint32_t buckets[1024];
    uint32_t watched_max; /* jobs and processes together: one descriptor each */
    uint32_t nprocesses, user_processes, user_groups; /* user: all but root's */
    struct unmanaged *unmanaged;
    size_t nunmanaged, unmanaged_cap;
    uint32_t unmanaged_buckets[4096]; /* by pid */
    uint32_t *shared;                 /* groups that several processes may have, sorted: units.c */
    uint32_t nshared, nalone;
    bool preempts; /* some job has a preemption mode, or some group; core/apply.c */
    bool units_dirty;
    uint32_t norphans;
    uint64_t orphans_until;    /* when orphans whose processes have not appeared are undone */
    uint32_t orphans_from;     /* first slot that this round of undoing has not reached */
    uint64_t next_number;      /* number of the next job */
    bool records_changed;      /* record_changed is set for some job, process or group */
    uint64_t looked_ns;        /* when the driver's processes were last listed in full */
    bool discover_now;         /* there are new processes: discovery is due */
    bool discover_soon;        /* there may be: due as soon as its share of time allows */
    uint64_t memory_until;     /* automatic swapping requires usage() until then */
    uint64_t swap_pressure_ns; /* when a job last lacked memory */
};

#define for_each_job(m, j)                                                                         \
    for (struct job *j = (m)->jobs; j < (m)->jobs + (m)->jobs_end; j++)                            \
        if (!j->rec.root.pid) {                                                                    \
        } else
#define for_each_process_of(m, j, p)                                                               \
    for (uint32_t p = (j)->first_process; p != SLOT_NONE; p = (m)->processes[p].job_next)
#define for_each_group_of(m, p, g)                                                                 \
    for (uint32_t g = (p)->first_group; g != SLOT_NONE; g = (m)->groups[g].next)

/* The slots that are the same group in the hardware, this one first. */
#define for_each_twin(m, slot, t)                                                                  \
    for (uint32_t t = (slot), t##_more = 1; t##_more;                                              \
         t = (m)->groups[t].twin, t##_more = t != (slot))

/* Allocates the tables: all at once, for as many as the journal has room for. 0 or -ENOMEM. */
int model_init(struct model *m);
void model_free(struct model *m);

static inline void model_job_changed(struct model *m, struct job *j)
{
    j->record_changed = m->records_changed = true;
}

static inline void model_group_changed(struct model *m, struct channel_group *g)
{
    g->record_changed = m->records_changed = true;
}

/* Whether there is a descriptor for one more job or process of this user. */
bool model_may_watch(const struct model *m, uid_t uid);

/* Passes an event to the scheduler, and returns the scheduler's result. */
int model_emit(struct model *m, struct sched_event ev);

/* ---- jobs ---- */

static inline uint32_t model_job_slot(const struct model *m, const struct job *j)
{
    return (uint32_t)(j - m->jobs);
}

/* Makes a record a job in that slot, with its root as a process unless the root has ended and only
 * processes on record or its control group are left. -ESRCH, ... : no such process. */
int model_job_enter(struct model *m, uint32_t slot, const struct journal_job *rec);
/* Adopts a process and its descendants; one that another job owns becomes the root of its own.
 * -ESRCH, -EEXIST (already a root: *job says whose), -EBUSY, -ENOSPC. */
int model_job_add(struct model *m, struct proc_id root, const struct job_spec *spec, uint32_t *job,
                  struct error *err);
/* Adds a process and its descendants to a job. -ESRCH, -EBUSY, -ENOSPC. */
int model_job_join(struct model *m, uint32_t job, struct proc_id proc, struct error *err);
/* Gives a job new terms. -EINVAL: the terms are invalid. */
int model_job_change(struct model *m, uint32_t job, const struct job_terms *terms);
void model_job_rename(struct model *m, uint32_t job, const char *name);
/* Pauses a job, or lets it run again, for user `by`. */
void model_job_pause(struct model *m, uint32_t job, bool paused, uid_t by);
/* Whether the job's user may signal its process: the right to pause or to limit a user's job is no
 * right to signal all its processes, because a descendant may belong to another user. */
bool model_may_signal(const struct model *m, const struct process *p);
/* Removes a job. The caller has undone all changes to its groups before. */
void model_job_remove(struct model *m, uint32_t job);
/* Closes the root's pidfd and stops waiting for its end. */
void model_root_close(struct job *j);
void model_job_root_ended(struct model *m, uint32_t job);
/* Checks the control group of a job without processes, and removes the job if that is empty. */
void model_job_group_look(struct model *m, uint32_t job);
/* Removes a job of which nothing is left. */
void model_job_drop_if_over(struct model *m, uint32_t job);
/* Keeps an error of the job, which is shown for some seconds. */
static inline void model_job_failed(struct model *m, uint32_t job, int code,
                                    const struct error *err)
{
    m->jobs[job].error_code = code;
    m->jobs[job].error_until = m->now + 5 * NSEC_PER_SEC;
    m->jobs[job].error = *err;
}
/* Why a job cannot be preempted at block ends; NULL: it can. Clients of an MPS server share one
 * group, and the halves of a job on several GPUs wait for each other within a block. */
const char *model_job_preempt_refused(const struct model *m, const struct job *j);
/* Marks the job's share of time and its memory as unknown. */
static inline void model_job_usage_clear(struct job *j)
{
    for (unsigned d = 0; d < DEVICE_GPUS_MAX; d++) {
        j->on[d].busy = -1;
        j->on[d].memory_bytes = 0;
    }
}
/* Whether it waits for room in GPU memory before its program is started. */
static inline bool model_job_waits(const struct job *j)
{
    return j->rec.memory_bytes && j->rec.room == ROOM_AWAITED;
}
/* Whether a caller waits for it to come back (memory/yield.h). */
static inline bool model_job_acquires(const struct model *m, const struct job *j)
{
    return j->acquire_ns && m->now < j->acquire_until;
}
/* Whether no process of it may run: it is paused, held, or its memory is away. */
static inline bool model_job_off(const struct job *j)
{
    const enum swap_phase phase = j->swap.phase;
    return j->rec.paused || j->trial.held || phase == SWAP_AWAY || phase == SWAP_ASKED ||
           phase == SWAP_STRANDED;
}
/* Scans its processes as if they were new. */
void model_job_rescan(struct model *m, uint32_t job);

/* ---- job_of_process.c, job_pids.c: which job a process belongs to ---- */

/* The job that has this pid as its root; SLOT_NONE: none, or the root has ended. */
uint32_t model_job_by_root(const struct model *m, pid_t pid);
/* The job that has that control group and may take this process (st NULL: any process). */
uint32_t model_job_of_group(const struct model *m, struct cgroup group, const struct proc_stat *st,
                            int *unsure);
/* The job in whose tables this living process is, or SLOT_NONE. */
uint32_t model_job_with(const struct model *m, pid_t pid);
/* The job that the process belongs to, by the tables, its ancestors, the leader of its process
 * group or session, or its control group (docs/concepts.md). An error if something could not be
 * read (proc_unsure()): then it may be in one. */
int model_job_of(const struct model *m, pid_t pid, uint32_t *job);
/* The same if `near`, the job of the nearest ancestor that is in one, is known already. */
int model_job_near(const struct model *m, const struct proc_stat *st, uint32_t near, uint32_t *job);
/* Lists the processes of the job, and of jobs that began within it, from pid *from on. *from: where
 * the next call goes on, as one looks for a bounded time; 0: at the end. 0 or -errno. */
int model_job_pids(const struct model *m, uint32_t job, pid_t *from, struct pid_list *out);
/* The job that has the user's processes of that Slurm job; SLOT_NONE: there is none yet. */
uint32_t model_job_of_slurm(const struct model *m, const struct job_spec *spec);
/* *job: the job of the process's owner with this `launch`; SLOT_NONE: there is none yet. 0 or
 * -errno. */
int model_job_of_launch(const struct model *m, uint64_t launch, struct proc_id proc, uint32_t *job);

/* ---- jobs: numbers and limits ---- */

uint32_t model_job_by_number(const struct model *m, uint64_t number);
unsigned model_jobs(const struct model *m); /* their number */
/* Whether a principal has as many jobs as it may have, or as may wait for room. principal 0:
 * root in a container, for whom all jobs count as users'. Administrators have no such limit. */
bool model_user_full(const struct model *m, uid_t principal);
bool model_user_waits_full(const struct model *m, uid_t principal);

/* The event EV_JOB_ADD or EV_JOB_CHANGE with these terms. */
struct sched_event model_terms_event(enum sched_event_type type, uint32_t job,
                                     const struct job_terms *terms);

/* ---- units ----
 * Clients of one MPS server have the same compute group in the hardware: what is set for one is set
 * for all, and suspending one stops all. So their jobs are one *unit* for the scheduler: it knows
 * all their groups as the oldest job's, of twins only the first, and applies the terms of the
 * highest class among the jobs that are not paused. A client is paused by a signal to its process
 * (core/apply.c), even if it is alone. A unit with an unmanaged client is left as it was. */

/* Determines which jobs are units; called before each decision. */
void model_units_update(struct model *m);
/* The GPUs on which a process or a job has groups, or on which a job computes: bit maps. */
uint32_t model_process_gpus(const struct model *m, const struct process *p);
uint32_t model_job_gpus(const struct model *m, const struct job *j);
uint32_t model_job_computes(const struct model *m, const struct job *j);
/* The class of a job's unit: the highest among its jobs that are not paused. */
static inline enum job_class model_class(const struct model *m, const struct job *j)
{
    return j->united || j->trial.ranked ? m->jobs[j->unit].unit_class : j->rec.class;
}
/* Updates the unit after a job's terms or pause changed. */
void model_unit_changed(struct model *m, uint32_t job);
/* Takes a job that ends out of its unit. */
void model_unit_leave(struct model *m, uint32_t job);
/* Notifies the scheduler that the group belongs to this job, or to none (SLOT_NONE). */
void model_group_show(struct model *m, uint32_t slot, uint32_t job);
/* Takes a group that ends, or is another one in the hardware now, out of its ring of twins. */
void model_group_part(struct model *m, uint32_t slot);
/* Updates a group after scans found it shared, or not shared any more. */
void model_group_inherit(struct model *m, uint32_t slot);

/* ---- accounts ---- */

/* The account of that name; if that is "", of the principal `uid` (base/principal.h). */
uint32_t model_account(struct model *m, const char *name, uid_t uid);
/* Forgets, or sets, the terms that the configuration gives to named accounts. */
void model_accounts_forget(struct model *m);
void model_account_set(struct model *m, const char *name, const struct job_terms *terms);
/* Whether all floors can be kept if this job, of this account, has these terms: 0, or -ERANGE with
 * the arithmetic in *err. job SLOT_NONE: a new job. */
int model_floors_check(const struct model *m, uint32_t job, const char *account, uid_t uid,
                       const struct job_terms *terms, struct error *err);

/* ---- processes ---- */

uint32_t model_process_find(const struct model *m, pid_t pid);
int model_process_add(struct model *m, struct proc_id id, uint32_t job);
/* The same in a given free slot, the one of its journal record. */
int model_process_enter(struct model *m, uint32_t slot, struct proc_id id, uint32_t job);
/* keep: the process lives on, and journal records of what could not be undone become orphans. */
void model_process_remove(struct model *m, uint32_t slot, bool keep);
/* Forgets its groups, as with keep above, and does not scan it until model_job_rescan(). */
void model_process_detach(struct model *m, uint32_t slot);

/* ---- groups ---- */

/* Whether a process of a job has this group: the slot is neither free nor an orphan's. */
static inline bool group_live(const struct channel_group *g)
{
    return g->dg.proc.pid && !g->orphan;
}

/* The settings (JG_...) in which a group differs, or may differ, from what its program set. */
uint32_t model_journal_flags(const struct channel_group *g);
/* Adds a group. If an orphan is the same group, its slot and first timeslice are kept. -ENOSPC. */
int model_group_add(struct model *m, uint32_t process, const struct device_group *dg);
/* Takes over what a scan found of a known group: channels come and go, its kind may become known,
 * and the program's own library may set the timeslice. Returns whether anything changed. */
bool model_group_update(struct model *m, uint32_t slot, const struct device_group *found);
void model_group_remove(struct model *m, uint32_t slot, bool keep);
/* Adds a journal record that no process of a job shows yet. */
void model_orphan_add(struct model *m, uint32_t slot, const struct device_group *dg,
                      uint32_t flags);
void model_orphan_remove(struct model *m, uint32_t slot);

/* ---- programs that no job owns ---- */

/* Called once, before the first. */
void model_unmanaged_init(struct model *m);
struct unmanaged *model_unmanaged_find(struct model *m, struct proc_id id);
/* The one with this pid, whatever its start time. */
struct unmanaged *model_unmanaged_with(struct model *m, pid_t pid);
/* The one that is known already, or a new one; NULL: it has ended, or there is no memory. */
struct unmanaged *model_unmanaged_add(struct model *m, struct proc_id id, bool detached);
/* Asks rules again about all programs except those that a person detached. */
void model_unmanaged_forget(struct model *m);
/* The same, but only about programs of which agents have new reports. */
void model_unmanaged_facts(struct model *m);
/* Notes which of its groups are shared; NULL: it is no client of an MPS server. */
void model_unmanaged_share(struct model *m, struct unmanaged *u, const struct group_list *l);
/* Removes those that are not in the driver's last list. */
void model_unmanaged_sweep(struct model *m);

#endif
