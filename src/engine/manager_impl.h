/* Inside the manager: its tables, and what its files offer each other.
 *   manager.c    jobs, turns, beginning and ending
 *   processes.c  finding processes and their channel groups
 *   demand.c     who works
 *   apply.c      from the scheduler's plan to the device
 *   deadlines.c  when work is due
 *   swap.c       jobs that leave the GPU's memory and come back
 *   autoswap.c   for whom they leave */
#ifndef CEDE_ENGINE_MANAGER_IMPL_H
#define CEDE_ENGINE_MANAGER_IMPL_H

#include "engine/manager.h"
#include "recovery/swapper.h"

#define PROCESSES_MAX 8192U
#define BUCKETS       1024U

/* How often to look. A context appears once in a program's life, so a process that shows nothing
 * new is looked at less and less; a new job is looked for closely, because until it is found it
 * runs with the driver's default. */
#define DISCOVER_FAST_NS  (100 * NSEC_PER_MSEC)
#define DISCOVER_SLOW_NS  NSEC_PER_SEC
#define DISCOVER_YOUNG_NS (60 * NSEC_PER_SEC)
#define SCAN_FAST_NS      (20 * NSEC_PER_MSEC)
#define SCAN_SLOW_NS      (2 * NSEC_PER_SEC)
/* While they find nothing new, all scans together become so rare that they take one part in so many
 * of the time, but not rarer than SCAN_RARE_NS. */
#define SCAN_PART         1000U
#define SCAN_RARE_NS      (5 * NSEC_PER_SEC)
#define FAST_PART         4U /* of the time, while all of them find something new each time */
#define SLOW_PART         5U /* of the time, slow scans take together, */
#define SEARCH_PART       2U /* those of a process that is searched until it ends */
#define SCAN_BUDGET_NS    (5 * NSEC_PER_MSEC) /* of one turn */
#define USAGE_NS          NSEC_PER_SEC
#define USAGE_WATCHED_NS  (10 * NSEC_PER_SEC) /* how long somebody who looked counts as looking */
#define RETRY_NS          NSEC_PER_SEC
#define CLAIM_NS          (2 * NSEC_PER_SEC) /* journal records that nobody claims by then are undone */
#define ERROR_SHOWN_NS    (5 * NSEC_PER_SEC)
#define IDLE_WINDOWS      3 /* windows without work before a job counts as idle */
#define ACTIVITY_NS       (100 * NSEC_PER_MSEC)
#define ACTIVITY_RETRY_NS NSEC_PER_SEC       /* the driver paces costlier attempts itself */
#define ACTIVITY_VALID_NS (5 * NSEC_PER_SEC) /* what it told last counts for more than usage() */
/* Time of its own turns without work before a job counts as idle: with turns of 200 ms, a gap of
 * half a second or more. Shorter ones are not worth the time until it is looked at again. */
#define IDLE_QUIET_NS (300 * NSEC_PER_MSEC)

struct mprocess {
    struct proc_id id; /* pid 0: free */
    uint32_t job;
    uint32_t hash_next, job_next, first_group;
    int pidfd;
    bool listed;      /* by the driver, as one that uses it */
    uint32_t wants;   /* gated devices that it wants: bit mask */
    bool searching;   /* its last scan has not come to an end */
    bool slow;        /* or it took long */
    uint64_t scan_at; /* TIME_NEVER: let go of, for a while */
    uint64_t scan_every;
};

struct mgroup {
    struct device_group dg; /* dg.proc.pid 0: free */
    uint32_t process, next; /* next group of the process */
    bool suspended;         /* is, or may be: then */
    bool suspend_unsure;    /* it has to be suspended again, to be so */
    bool timeslice_unknown;
    bool want_runnable;
    uint64_t timeslice_us; /* what it has */
    uint64_t want_us;
    uint64_t retry_at;
};

/* A job on a device: see demand.c. */
struct mjob_on {
    uint64_t memory_bytes;
    bool idle;   /* as the scheduler was told */
    double busy; /* by usage(); < 0: unknown */
    uint8_t idle_windows;
    bool ran;      /* was runnable some time since usage() was asked */
    bool runnable; /* since since_ns; else it was until until_ns */
    uint64_t since_ns, until_ns;
    uint32_t bursts; /* in the last window of activity() */
    uint64_t busy_ns;
    uint64_t active_ns; /* when activity() last told of any */
    uint64_t quiet_ns;  /* runnable and not on the engine, since it was last */
    uint64_t seen_ns;   /* when activity() last told whether it works; 0: never */
};

enum job_place { JOB_ON_GPU, JOB_LEAVING, JOB_OUT, JOB_COMING };

#define SWAP_REFUSED_NS (60 * NSEC_PER_SEC) /* before automatic swapping tries a job again */
#define SWAP_AGAIN_NS   (60 * NSEC_PER_SEC) /* before a user may swap out the same job again */

/* Whether a job that is out, or leaving, is to come in: asked for, which may fail for want of room;
 * or because it has to, since it may be half-way. */
enum job_back { BACK_NOT, BACK_ASKED, BACK_MUST };

/* See swap.c. */
struct mjob_swap {
    enum job_place state;
    enum job_back back;
    bool by_user; /* stays out until it is asked back */
    uid_t uid;    /* of who asked */
    struct swapper child;
    uint64_t since_ns; /* when it last left or came */
    uint64_t retry_at, retry_every;
    uint64_t refused_until, user_again_at;
    uint64_t bytes[DEVICE_GPUS_MAX]; /* what it had when it left */
    int code;                        /* why it last did not move */
    struct error error;
};

struct mjob_due; /* deadlines.c */

struct mjob {
    struct journal_job j; /* root.pid 0: free */
    int root_pidfd;       /* -1: the root has ended */
    uint32_t processes, groups;
    uint32_t first_process;
    uint64_t added_ns;
    int error_code; /* shown until error_until */
    uint64_t error_until;
    struct error error;
    double busy;
    uint64_t memory_bytes;
    struct mjob_on on[DEVICE_GPUS_MAX];
    struct mjob_swap swap;
    struct mjob_due *due; /* NULL: nothing was ever due */
    uint64_t gpu_ns;      /* engine time seen since then, of the GPU where it had most */
    uint64_t need_bytes;  /* what a person said it will take of GPU need_gpu; 0: nothing said */
    uint32_t need_gpu;
    bool room; /* that was there once */
};

/* A GPU process that belongs to no job: looked at once. */
struct outsider {
    struct proc_id id;
    bool seen, let_go; /* by a person: no rule takes it again */
};

struct manager {
    struct device_driver *driver;
    struct journal *journal;
    struct sched *sched;
    struct manager_options options;
    int epoll_fd;
    unsigned ngpus;
    struct gpu_info gpus[DEVICE_GPUS_MAX];

    struct mjob *jobs;
    struct mprocess *processes;
    struct mgroup *groups;
    uint32_t jobs_end, processes_end, groups_end; /* slots below may be in use */
    uint32_t scan_from;                           /* slot of the process whose turn is next */
    uint32_t buckets[BUCKETS];
    struct outsider *outsiders;
    size_t noutsiders, outsiders_cap;

    /* Journal records of an earlier holder, until their groups turn up again. */
    bool *unclaimed;
    uint32_t nunclaimed;
    uint64_t claim_until;

    uint64_t now, discover_at, usage_at, watched_until, restored_seen;
    uint64_t activity_at, activity_ns; /* ns: known up to here; 0: nobody looked */
    /* Automatic swapping: the next look; the last want of room; how long usage() is asked for it.
     */
    uint64_t swap_at, swap_need_ns, memory_asked_until;
    double outside_busy[DEVICE_GPUS_MAX]; /* of processes in no job, by usage() */
    bool device_lost;                     /* told once, not every second */
    bool dirty[DEVICE_GPUS_MAX];
    uint64_t wake[DEVICE_GPUS_MAX];
};

/* manager.c */
void mgr_all_dirty(struct manager *m);
void mgr_job_failed(struct manager *m, uint32_t job, int code, const struct error *err);
void mgr_sched(struct manager *m, struct sched_event ev);
void mgr_job_drop_if_over(struct manager *m, uint32_t job);

/* processes.c */
uint32_t mgr_process_find(const struct manager *m, pid_t pid);
/* Descriptors in the manager's epoll set are tagged with whose end they tell, and its slot. */
enum watch { WATCH_PROCESS, WATCH_ROOT, WATCH_SWAPPER, WATCH_DRIVER };
/* A pidfd. -ESRCH, ... */
int mgr_watch(struct manager *m, struct proc_id id, enum watch whose, uint32_t slot);
void mgr_unwatch(struct manager *m, int pidfd);
int mgr_process_add(struct manager *m, struct proc_id id, uint32_t job);
/* keep: the process lives on; journal records of what could not be undone stay. */
void mgr_process_remove(struct manager *m, uint32_t slot, bool keep);
/* Its groups get back what they had and are forgotten, and it is not scanned. False: some may still
 * be suspended. */
bool mgr_process_let_go(struct manager *m, uint32_t slot);
void mgr_process_scan(struct manager *m, uint32_t slot);
/* Scans the job's processes as if they were new. */
void mgr_job_scan(struct manager *m, uint32_t job);
void mgr_discover(struct manager *m);
/* It is in no job; let_go: and a person wants it so. */
void mgr_outsider_add(struct manager *m, struct proc_id id, bool let_go);
/* All are looked at again. */
void mgr_outsiders_forget(struct manager *m);
/* Scans what is due; returns when the next is. */
uint64_t mgr_scan_due(struct manager *m);

/* demand.c */
/* After each decision: who may run now. */
void mgr_demand_decided(struct manager *m, unsigned device);
/* Asks the driver what is due; returns when the next is. */
uint64_t mgr_demand_due(struct manager *m);
/* What programs on gated devices say themselves. */
void mgr_demand_told(struct manager *m);
/* A person let it run again: it is taken to have work until it is seen that it has none. */
void mgr_demand_resumed(struct manager *m, uint32_t job);
/* A gated device: what its processes said last. */
void mgr_demand_of(struct manager *m, uint32_t job, unsigned device);

/* deadlines.c */
void mgr_deadline_free(struct mjob *j);
/* After each look at who got the engine: on[].bursts and on[].busy_ns are of the time since the
 * last one. */
void mgr_deadline_seen(struct manager *m);
/* Tells the scheduler what is due; returns when to ask again. */
uint64_t mgr_deadline_due(struct manager *m);
void mgr_deadline_view(const struct manager *m, uint32_t job, struct job_view *out);
bool mgr_deadline_wanted(const struct manager *m); /* who works has to be known */

/* swap.c */
/* by_user: see struct mjob_swap. 0: it leaves; or why it stays, running. */
int mgr_swap_out(struct manager *m, uint32_t job, bool by_user, uid_t uid, struct error *err);
uint32_t mgr_swap_moving(const struct manager *m); /* SLOT_NONE: nobody */
void mgr_swapper_ended(struct manager *m, uint32_t job);
void mgr_swap_process_gone(struct manager *m, struct proc_id id);
/* Begins what is due; returns when to ask again. */
uint64_t mgr_swap_due(struct manager *m);
/* The same, in autoswap.c, which decides what that is. */
uint64_t mgr_autoswap_due(struct manager *m);
/* The records of an earlier holder. */
void mgr_swap_take_back(struct manager *m);
/* restore: brings back whoever is out, and waits for it. */
void mgr_swap_leave(struct manager *m, bool restore);
void mgr_swap_view(const struct manager *m, uint32_t job, struct job_view *out);

/* apply.c */
uint32_t mgr_journal_flags(const struct mgroup *g);
/* All groups of that group's process and device that want the same, in one call. */
void mgr_apply_runnable(struct manager *m, uint32_t slot);
void mgr_apply_timeslice(struct manager *m, uint32_t slot);
void mgr_decide(struct manager *m, uint32_t device);
void mgr_undo_unclaimed(struct manager *m);
void mgr_restored_by_others(struct manager *m);
void mgr_undo_all(struct manager *m);

#endif
