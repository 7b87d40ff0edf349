/* What exists: jobs, their processes, the processes' channel groups, and GPU programs that no job
 * owns. The tables and the links between them change here and nowhere else, and each change that
 * matters to the scheduler becomes its event. Facts that were observed about a job, a process or a
 * group stand in the same tables; each struct of facts names the one part that writes it.
 *
 * Knows /proc (who a process is, and whose child) and the journal's records. Holds what the parts
 * of the engine work on, too, but itself makes no change on a device and writes no journal. Slots
 * are those of the journal. Not thread-safe. */
#ifndef CEDE_MODEL_MODEL_H
#define CEDE_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "device/ops.h"
#include "lib/quota.h"
#include "lib/terms.h"
#include "lib/util.h"
#include "model/watch.h"
#include "recovery/journal.h"
#include "recovery/swapper.h"
#include "sched/place.h"
#include "sched/sched.h"
#include "sched/starting.h"

/* So that users cannot take all JOURNAL_JOBS, neither one nor several. Administrators may have
 * more. */
#define USER_JOBS_MAX   1024
#define USERS_JOBS_MAX  USERS_PART(JOURNAL_JOBS)
#define USER_WAITS_MAX  256 /* jobs that wait for room */
#define USERS_WAITS_MAX USERS_PART(1024)

/* What can be set for a job at any time. */
struct job_terms {
    enum job_class class;
    uint32_t weight;
    uint32_t budget_us;        /* of added latency, for a latency job; 0: none */
    uint32_t gpu_min, gpu_max; /* percent of each GPU; 0: none */
    enum preempt_mode preempt; /* of a batch job */
    uint32_t min_speed;        /* percent of its speed alone, which it keeps: a latency job beside
                                  lower ones, a batch job in an MPS server; 0: none */
};

/* What a process that is about to be a job's root shall be. */
struct job_spec {
    struct job_terms terms;
    uint32_t deadline_us, laxity_us; /* see engine_set_deadline() */
    bool may_promote;
    enum job_source source;
    uid_t uid;
    char name[JOB_NAME_MAX];
    char account[ACCOUNT_NAME_MAX]; /* "": that of a user: */
    uid_t account_uid;
    uint64_t program;   /* a number made of the arguments; 0: not known */
    bool again;         /* asked of a rule: only if an agent reported something after: */
    uint64_t facts;     /* the number of the report by which it was classified; 0: there was none */
    uint64_t slurm_job; /* of source JOB_SLURM */
    uint64_t launch;    /* what started it: programs with the same number are one job; 0: it is one
                           by itself */
};

struct process {
    struct proc_id id; /* pid 0: free */
    uint32_t job;
    uint32_t hash_next, job_next, first_group;
    int pidfd;
    struct watch *watch;
    bool ended;
    bool record_changed; /* the journal's is older; engine/tick.c */
    uint32_t opened;     /* GPUs on which it has been seen: bit mask */
    bool listed;         /* by the driver, as one that uses it; engine/observe/discovery.c */
    uint32_t wants;      /* gated devices that it wants: bit mask; engine/observe/demand.c */
    /* engine/apply.c */
    bool joins;        /* its last suspension or resumption succeeded: one call with others */
    bool stopped;      /* by us (SIGSTOP), and on record */
    uint64_t stops_at; /* whether it is, and shall be, is looked at again then */
    /* engine/observe/scans.c */
    uint64_t unseen_since; /* what it opened after that was not known until its last scan */
    uint32_t charged;      /* GPUs on which that scan has shown so already: bit mask */
    bool searching;        /* its last scan has not come to an end */
    bool slow;             /* or it took long */
    uint64_t scan_at;      /* TIME_NEVER: detached, for a while */
    uint64_t scan_every;
};

/* Facts and wishes are engine/apply.c's. */
struct channel_group {
    struct device_group dg; /* dg.proc.pid 0: free, or an orphan */
    uint32_t process, next; /* next group of the process */
    uint32_t twin;          /* the next of those that are the same in the hardware: a ring */
    uint32_t sched_job;     /* for the scheduler it is this job's; SLOT_NONE: it does not know it */
    bool orphan;            /* the journal has a record of it, and no job's process shows it */
    bool stopped;           /* the record says so of its process */
    uint64_t unseen_ns;     /* it may have run so long before it was known, as the scheduler has
                               still to be told */
    bool suspended;         /* is, or may be: then */
    bool suspend_unsure;    /* by whom is not known: resumed first, and suspended again to be so */
    bool timeslice_unknown;
    bool block_ends;        /* is preempted there, or may be: then */
    bool block_ends_unsure; /* it has to be set again, to be so */
    bool record_changed;    /* its journal record has to be written again */
    bool want_runnable;
    uint64_t timeslice_us; /* what it has */
    uint64_t want_us;
    /* When what failed is tried again: suspending and resuming, and its timeslice and preemption
     * mode, without which it runs rather than not at all. */
    uint64_t retry_at, settings_at;
};

/* A job on a device; engine/observe/demand.c. */
struct job_demand {
    uint64_t memory_bytes;
    bool idle;   /* as the scheduler knows it */
    double busy; /* 0..1, by usage() and activity(); < 0: unknown */
    uint8_t idle_windows;
    bool ran;      /* was runnable some time since usage() was asked */
    bool runnable; /* since since_ns; else it was until until_ns */
    uint64_t since_ns, until_ns;
    uint32_t bursts; /* in the last window of activity() */
    uint64_t busy_ns;
    uint64_t active_ns;            /* when activity() last reported any */
    uint64_t exact_ns, sampled_ns; /* engine time in all, by activity(); else by usage() */
    uint64_t
        had_ns; /* the engine, by activity() since usage() was asked; and how often it got it */
    uint32_t got;
    uint64_t quiet_ns; /* runnable and not on the engine, since it was last */
    uint64_t seen_ns;  /* when activity() last showed whether it works; 0: never */
    struct starting start;
    uint64_t start_bytes; /* what it had when its memory was last seen */
};

/* engine/swap.c, which has the transitions. */
struct job_swap {
    enum swap_phase phase;
    bool by_user; /* stays out until it is asked back */
    bool guessed; /* that it is out: asked about, or found by a search */
    uid_t uid;    /* of the user who asked */
    struct swapper child;
    struct watch *watch;
    bool ended;
    uint64_t since_ns; /* when it last left or came */
    uint64_t asked_ns; /* of SWAP_ASKED: its place in line */
    uint64_t retry_at, retry_every;
    uint64_t refused_until, user_again_at;
    uint64_t bytes[DEVICE_GPUS_MAX]; /* what it had when it left */
    int code;                        /* why it last did not move */
    bool stayed;                     /* it was to leave, and did not */
    uint64_t began_ns;               /* of the last move */
    struct error error;
};

/* Those whose jobs share a part of each GPU; the scheduler's slots. One that has no jobs left stays
 * as long as there is room, because what it had still counts. */
#define MODEL_ACCOUNTS (JOURNAL_JOBS + ACCOUNTS_NAMED)
struct model_account {
    bool used;
    char name[ACCOUNT_NAME_MAX]; /* ""; then it is a user's */
    uid_t uid;
    uint32_t jobs;
    uint32_t weight, gpu_min, gpu_max; /* weight 0: nobody named it; as WEIGHT_DEFAULT */
    uint64_t swap_again_at;            /* engine/swap.c: its users may have jobs swapped out */
    struct starting_spell spell[DEVICE_GPUS_MAX];
};

struct job_due; /* engine/observe/deadlines.c */

/* Where its time went since it is known: engine/counts.c. */
enum job_where { WHERE_HERE, WHERE_QUEUED, WHERE_PAUSED, WHERE_SWAPPED, WHERE_COUNT };
struct job_counts {
    enum job_where where;
    uint64_t where_since;           /* ns */
    uint64_t where_ns[WHERE_COUNT]; /* before that */
    bool away;
    uint32_t swaps;         /* times that it left, */
    uint64_t swapped_bytes; /* and what it took with it */
    struct gpu_counts {
        bool runs, waits; /* may run; has work, as far as is known, and may not */
        uint64_t since;   /* ns */
        uint64_t ran_ns, waited_ns;
        uint32_t turns, preempted; /* times that it came to run, and that it had to make room */
    } on[DEVICE_GPUS_MAX];
};

/* Beside others in an MPS server: engine/observe/speeds.c. */
struct job_speed {
    bool known;                /* what it does alone: */
    double profile[GPU_PARTS]; /* as struct gpu_counters */
    uint32_t idle_looks;       /* times in a row that it did nothing when that was measured, */
    uint64_t look_again_at;    /* and when that is measured once more */
    bool told;                 /* how fast it goes: */
    double value, error;       /* as struct speed */
    bool profiling;            /* the profiles of its unit are being measured */
    bool turns;                /* together they would do less: they take turns */
    bool held;                 /* stopped for that */
};

struct job {
    struct journal_job rec; /* root.pid 0: free */
    bool record_changed;    /* the journal's is older; engine/record.c */
    int root_pidfd;         /* -1: the root has ended */
    struct watch *root_watch;
    bool root_ended;
    bool group_lives; /* its control group had processes when it was last looked at */
    uint32_t nprocesses, ngroups;
    uint64_t program; /* as in its spec; 0 in the next daemon */
    uint64_t facts;   /* too */
    uint32_t told;    /* how many who asked for it know of it */
    bool facts_came;  /* there are new reports; engine/reclassify.c */
    uint32_t first_process;
    uint32_t account;
    /* units.c */
    uint32_t unit;              /* the job that stands for all of its unit: itself, mostly */
    bool is_client, was_client; /* it has groups that others may share */
    bool united;                /* with other jobs */
    enum job_class unit_class;  /* of all that it stands for */
    bool left_alone;            /* a program that is in no job is one of them */
    bool out_of_turn;           /* stopped: engine/observe/clients.c */
    uint64_t added_ns;
    uint64_t moved_ns; /* when one of its programs last came or ended */
    int error_code;    /* shown until error_until */
    uint64_t error_until;
    struct error error;
    /* engine/observe/demand.c */
    bool wants_changed; /* what its processes want of gated devices */
    struct job_demand on[DEVICE_GPUS_MAX];
    struct job_speed speed;
    struct job_counts counts;
    /* engine/observe/deadlines.c */
    struct job_due *due; /* NULL: nothing was ever due */
    uint64_t gpu_ns;     /* engine time seen since then, of the GPU where it had most */
    /* engine/swap.c, engine/autoswap.c */
    struct job_swap swap;
    uint64_t room_bytes[DEVICE_GPUS_MAX], room_until[DEVICE_GPUS_MAX]; /* engine_room() */
    /* engine/yield.c: it is to come back */
    uint64_t wish_ns, wish_until;        /* since then, its place in line; and only until then */
    uint64_t wish_at;                    /* when its memory may be asked in again */
    uint32_t yields_with;                /* what it yielded for as long as its memory leaves */
    uint64_t kept_ns;                    /* since when what it said is kept for it */
    uint64_t line_ns, first_ns, pass_ns; /* as in sched/room.h, */
    uint32_t place;                      /* too */
    bool infeasible;   /* for a while there has been too little for it even if all jobs ended: */
    uint64_t short_ns; /* since then; 0: it is not so */
    /* engine/place.c */
    enum place_reason placed_why; /* rec.placed */
    uint32_t candidates;          /* it waits, and may go there too: bit map; 0: not known */
};

/* A GPU process that no job owns. */
struct unmanaged {
    struct proc_id id;
    uint32_t hash_next;
    uid_t uid;
    /* engine/observe/discovery.c */
    pid_t group, session; /* when it was last read: */
    uint64_t read_ns;
    char comm[32];   /* its own to choose: any bytes */
    bool seen;       /* by the driver's last list */
    bool looked;     /* whether a rule takes it; asked once */
    bool crowded;    /* one does, and there was no room for another job */
    bool pending;    /* that cannot be told yet */
    bool facts_came; /* an agent has reported something since */
    uint64_t facts;  /* as in struct job_spec */
    bool detached;   /* by a person: no rule takes it again */
    bool scheduler;  /* a process that schedules: no program, and no rule takes it */
    bool serves;     /* an MPS server: it runs nothing of its own */
    bool client;     /* of one */
    uint32_t shares[DEVICE_GPUS_MAX]; /* device_group.shared, on each GPU; as far as is known */
    /* engine/observe/demand.c */
    uint32_t gpus; /* bit mask, as far as usage() showed them; 0: not known */
    uint8_t asked; /* how often usage() was asked, while they were not known */
};

struct model {
    struct device_driver *driver;
    struct journal *journal;
    struct sched *sched;
    struct watches watches;
    void (*process_gone)(struct model *m, struct proc_id id); /* called when one has ended */
    /* Called when one has begun to be a job, and before one ceases to be; NULL: nobody asks. */
    void (*job_changed)(struct model *m, uint32_t job, bool ends);
    uint64_t now;                       /* of this tick */
    bool dirty;                         /* something changed since the last decision */
    uint64_t wake;                      /* decide again then; TIME_NEVER: no jobs take turns */
    uint64_t decisions;                 /* made; engine/tick.c */
    uint64_t controls, controls_failed; /* calls of the driver that steer, not groups in them */
    unsigned ngpus;
    struct gpu_info gpus[DEVICE_GPUS_MAX]; /* without the capabilities that are: */
    struct withheld {
        uint32_t caps;
        char why[160];           /* for people */
    } withheld[DEVICE_GPUS_MAX]; /* engine/withhold.c */
    bool held;                   /* no program is scanned or steered (engine_hold()) */
    struct job *jobs;
    struct model_account *accounts;
    uint32_t accounts_end, account_hand; /* slots below may be in use; where to look for one */
    struct process *processes;
    struct channel_group *groups;
    uint32_t jobs_end, processes_end, groups_end; /* slots below may be in use, */
    uint32_t processes_free, groups_free;         /* and slots below are */
    uint32_t buckets[1024];
    uint32_t watched_max; /* jobs and processes together: one descriptor each */
    uint32_t nprocesses, user_processes, user_groups; /* user: all but root's */
    struct unmanaged *unmanaged;
    size_t nunmanaged, unmanaged_cap;
    uint32_t unmanaged_buckets[4096]; /* by pid */
    uint32_t *shared;                 /* groups that several processes may have, sorted: units.c */
    uint32_t nshared, nalone;
    bool preempts; /* some job has a preemption mode, or some group; engine/apply.c */
    bool units_dirty;
    uint32_t norphans;
    uint64_t orphans_until;    /* those whose processes have not turned up by then are undone */
    uint64_t next_number;      /* of a job */
    bool records_changed;      /* of some job, process or group */
    uint64_t looked_ns;        /* when the driver's processes were last listed */
    bool discover_now;         /* there are processes that nobody has looked at */
    bool discover_soon;        /* there may be: as soon as looks may be that often */
    uint64_t memory_until;     /* usage() is wanted until then for automatic swapping; */
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

/* Those that are the same group in the hardware, this one first. */
#define for_each_twin(m, slot, t)                                                                  \
    for (uint32_t t = (slot), t##_more = 1; t##_more;                                              \
         t = (m)->groups[t].twin, t##_more = t != (slot))

/* Allocates the tables: all at once, for as many as the journal holds. 0 or -ENOMEM. */
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

/* Passes it to the scheduler, and returns what that says of it. */
int model_emit(struct model *m, struct sched_event ev);

/* ---- jobs ---- */

static inline struct job_terms job_terms(const struct journal_job *r)
{
    return (struct job_terms){
        (enum job_class)r->class,      r->weight,   r->budget_us, r->gpu_min, r->gpu_max,
        (enum preempt_mode)r->preempt, r->min_speed};
}

static inline uint32_t model_job_slot(const struct model *m, const struct job *j)
{
    return (uint32_t)(j - m->jobs);
}

/* A record becomes a job in that slot, with its root as a process unless that has ended and only
 * members on record or its control group are left. -ESRCH, ... : no such process. */
int model_job_enter(struct model *m, uint32_t slot, const struct journal_job *rec);
/* Adopts a process and its descendants; one that another job owns becomes the root of its own.
 * -ESRCH, -EEXIST (already a root: *job says whose), -EBUSY, -ENOSPC. */
int model_job_add(struct model *m, struct proc_id root, const struct job_spec *spec, uint32_t *job,
                  struct error *err);
/* The one that has the user's processes of that Slurm job; SLOT_NONE: there is none yet. */
uint32_t model_job_of_slurm(const struct model *m, const struct job_spec *spec);
/* The one of this owner's programs that the same thing started; SLOT_NONE: there is none yet. 0 or
 * -errno. */
int model_job_of_launch(const struct model *m, uint64_t launch, struct proc_id proc, uint32_t *job);
/* One more process, with its descendants, beside the root. -ESRCH, -EBUSY, -ENOSPC. */
int model_job_join(struct model *m, uint32_t job, struct proc_id proc, struct error *err);
/* It has these terms from now on. -EINVAL: they are no terms. */
int model_job_change(struct model *m, uint32_t job, const struct job_terms *terms);
/* A person, or the job itself, takes it off the GPU or lets it run. */
void model_job_pause(struct model *m, uint32_t job, bool paused, uid_t by);
/* Its groups have to be as their program left them. */
void model_job_remove(struct model *m, uint32_t job);
/* Its end is not waited for any more. */
void model_root_close(struct job *j);
void model_job_root_ended(struct model *m, uint32_t job);
/* Looks whether there are processes in its control group, for a job that has nothing else. */
void model_job_group_look(struct model *m, uint32_t job);
/* Removes a job of which nothing is left. */
void model_job_drop_if_over(struct model *m, uint32_t job);
/* Shown for some seconds. */
static inline void model_job_failed(struct model *m, uint32_t job, int code,
                                    const struct error *err)
{
    m->jobs[job].error_code = code;
    m->jobs[job].error_until = m->now + 5 * NSEC_PER_SEC;
    m->jobs[job].error = *err;
}
/* Why it cannot be preempted at block ends; NULL: it can. Clients of an MPS server have one group
 * together, and of the halves of a job on several GPUs one waits in a block for the other. */
const char *model_job_preempt_refused(const struct model *m, const struct job *j);
/* Nothing is known of its share of time and its memory. */
static inline void model_job_usage_clear(struct job *j)
{
    for (unsigned d = 0; d < DEVICE_GPUS_MAX; d++) {
        j->on[d].busy = -1;
        j->on[d].memory_bytes = 0;
    }
}
/* It waits for room in GPU memory before its program is started. */
static inline bool model_job_waits(const struct job *j)
{
    return j->rec.memory_bytes && j->rec.room == ROOM_AWAITED;
}
/* A caller waits for it to come back (engine/yield.h). */
static inline bool model_job_wished(const struct model *m, const struct job *j)
{
    return j->wish_ns && m->now < j->wish_until;
}
/* Whether no process of it may run: it is paused, or its memory is away. */
static inline bool model_job_off(const struct job *j)
{
    const enum swap_phase phase = j->swap.phase;
    return j->rec.paused || phase == SWAP_AWAY || phase == SWAP_ASKED || phase == SWAP_STRANDED;
}
/* Its processes are looked at as if they were new. */
void model_job_rescan(struct model *m, uint32_t job);

/* The job that this living process is known to be in; the one that it belongs to, by what is known,
 * by its ancestors now, or by the root that leads or has led its process group or session; or by
 * its control group. An error if something could not be read (proc_unsure()): it may be in one. */
uint32_t model_job_with(const struct model *m, pid_t pid);
int model_job_of(const struct model *m, pid_t pid, uint32_t *job);
/* The same for one of which it is known which job its nearest ancestor is in that is in one. */
int model_job_near(const struct model *m, const struct proc_stat *st, uint32_t near, uint32_t *job);
uint32_t model_job_by_number(const struct model *m, uint64_t number);
unsigned model_jobs(const struct model *m); /* how many */
/* Whether a user, by the account, has as many jobs as users may have, or as may wait for room. 0:
 * root in a container, for whom all jobs count as users'; administrators have no such limit. */
bool model_user_full(const struct model *m, uid_t account);
bool model_user_waits_full(const struct model *m, uid_t account);

/* The event EV_JOB_ADD or EV_JOB_CHANGE with these terms. */
struct sched_event model_terms_event(enum sched_event_type type, uint32_t job,
                                     const struct job_terms *terms);

/* ---- units ----
 * Clients of one MPS server have the same compute group in the hardware: what is set for one is set
 * for all, and suspending one stops all. So their jobs are one *unit* for the scheduler, which
 * knows all of their groups as those of the oldest job, of several that are the same only the
 * first, and the terms of the best of those that are not paused. A client is paused by a signal to
 * its process (engine/apply.c), whether or not there are others yet. Of a unit with a client that
 * is in no job everything is left as it was. */

/* Before each decision: which jobs are one now. */
void model_units_update(struct model *m);
/* The GPUs on which it computes: bit map. */
uint32_t model_job_computes(const struct model *m, const struct job *j);
/* Of its unit: the best of those that are not paused. */
static inline enum job_class model_class(const struct model *m, const struct job *j)
{
    return j->united ? m->jobs[j->unit].unit_class : (enum job_class)j->rec.class;
}
/* Its terms or its pause changed. */
void model_unit_changed(struct model *m, uint32_t job);
/* It ends, and stands for nobody any more. */
void model_unit_leave(struct model *m, uint32_t job);
/* Tells the scheduler that it is this job's, or nobody's (SLOT_NONE). */
void model_group_show(struct model *m, uint32_t slot, uint32_t job);
/* It ends, or is another one in the hardware now: those that were the same as it still are. */
void model_group_part(struct model *m, uint32_t slot);
/* It turned out to be shared, or is shared no more. */
void model_group_inherit(struct model *m, uint32_t slot);

/* ---- accounts ---- */

/* The one of that name, or the user's own if name is "". uid: of the person, see lib/account.h. */
uint32_t model_account(struct model *m, const char *name, uid_t uid);
/* What the configuration says of those that it names; the others are as if never named. */
void model_accounts_forget(struct model *m);
void model_account_set(struct model *m, const char *name, const struct job_terms *terms);
/* Whether floors can be had together if this job, of this account and with these terms, is one of
 * them: 0, or -ERANGE with the arithmetic. job SLOT_NONE: it is not there yet. */
int model_floors_check(const struct model *m, uint32_t job, const char *account, uid_t uid,
                       const struct job_terms *terms, struct error *err);

/* ---- processes ---- */

uint32_t model_process_find(const struct model *m, pid_t pid);
int model_process_add(struct model *m, struct proc_id id, uint32_t job);
/* The same, in that free slot: where it is on record. */
int model_process_enter(struct model *m, uint32_t slot, struct proc_id id, uint32_t job);
/* keep: the process lives on, and journal records of what could not be undone become orphans. */
void model_process_remove(struct model *m, uint32_t slot, bool keep);
/* It is not scanned until model_job_rescan(); its groups are forgotten, as with keep above. */
void model_process_detach(struct model *m, uint32_t slot);

/* ---- groups ---- */

/* A job's process has it: neither a free slot nor an orphan. */
static inline bool group_live(const struct channel_group *g)
{
    return g->dg.proc.pid && !g->orphan;
}

/* What of a group differs from what its program gave it. */
uint32_t model_journal_flags(const struct channel_group *g);
/* An orphan of the same process takes its slot, and its own first timeslice. -ENOSPC. */
int model_group_add(struct model *m, uint32_t process, const struct device_group *dg);
/* Channels come and go in a living group, its kind may become known, and the program's own library
 * may set the timeslice anew. Whether anything changed. */
bool model_group_update(struct model *m, uint32_t slot, const struct device_group *found);
void model_group_remove(struct model *m, uint32_t slot, bool keep);
/* A record of the journal that no process of a job shows, yet. */
void model_orphan_add(struct model *m, uint32_t slot, const struct device_group *dg,
                      uint32_t flags);
void model_orphan_remove(struct model *m, uint32_t slot);

/* ---- programs that no job owns ---- */

/* Called once, before the first. */
void model_unmanaged_init(struct model *m);
struct unmanaged *model_unmanaged_find(struct model *m, struct proc_id id);
/* The one of this number, whenever it began. */
struct unmanaged *model_unmanaged_with(struct model *m, pid_t pid);
/* The one that is there already, or a new one; NULL: it has ended, or no memory. */
struct unmanaged *model_unmanaged_add(struct model *m, struct proc_id id, bool detached);
/* All but those that a person detached are looked at again. */
void model_unmanaged_forget(struct model *m);
/* Those are, too, but only if there are new reports of agents about them. */
void model_unmanaged_facts(struct model *m);
/* What of its groups others share too; NULL: it is no client of an MPS server. */
void model_unmanaged_share(struct model *m, struct unmanaged *u, const struct group_list *l);
/* Those that were not seen are gone. */
void model_unmanaged_sweep(struct model *m);

#endif
