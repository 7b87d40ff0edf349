/* The journal: which jobs are ours and what was changed in them, in a file of fixed records, which
 * its holders have in memory (journal_impl.h). A record is written before the change it speaks of
 * is applied, and stays in the page cache when the writer is killed at any instruction, so whoever
 * comes next (the restorer, a restarted daemon, a direct `cede resume`) can take over or undo.
 *
 * One holder at a time: flock(2) on a file beside it that only its owner may open, shared with the
 * restorer that inherits it.
 * Nothing here touches a device. Not thread-safe. */
#ifndef CEDE_RECOVERY_JOURNAL_H
#define CEDE_RECOVERY_JOURNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/ops.h"
#include "lib/cgroup.h"
#include "lib/terms.h"
#include "lib/util.h"

#define JOURNAL_JOBS    4096U
#define JOURNAL_MEMBERS 8192U
#define JOURNAL_GROUPS  16384U
#define JOURNAL_SWAPS   256U
#define JOB_NAME_MAX    64

/* Of a job that says what it will take: it waits in line for it, it was there and is kept, or it
 * has started without; then nothing is kept for it unless it is a latency job. */
enum job_room { ROOM_AWAITED, ROOM_KEPT, ROOM_NONE };

enum job_source { JOB_RUN, JOB_PID, JOB_RULE, JOB_ENVIRONMENT, JOB_SLURM };

/* What a job has given away until it acquires it: journal_job.yielded. */
enum job_yield { YIELD_CLASS = 1 << 0, YIELD_PAUSE = 1 << 1, YIELD_MEMORY = 1 << 2 };

/* Of the name of a job of source JOB_SLURM, before the number. */
#define SLURM_JOB_NAME "slurm-"

struct journal_job {
    struct proc_id root; /* pid 0: free record */
    uint32_t class;      /* enum job_class */
    uint32_t weight;
    uint32_t budget_us;              /* of added latency; 0: none */
    uint32_t uid;                    /* of who asked */
    uint32_t owner;                  /* of the root process */
    uint32_t source;                 /* enum job_source */
    uint32_t paused;                 /* by a person */
    uint32_t paused_by;              /* that person's uid */
    uint32_t deadline_us, laxity_us; /* see manager_set_deadline() */
    uint32_t may_promote;
    uint32_t gpu_min, gpu_max;      /* percent of each GPU; 0: none */
    uint32_t preempt;               /* enum preempt_mode */
    uint32_t min_speed;             /* percent, as struct job_terms; 0: none */
    char account[ACCOUNT_NAME_MAX]; /* "": that of a user: */
    uint32_t account_uid;
    struct cgroup cgroup;  /* of its own */
    uint64_t memory_bytes; /* what a person said it will take of that GPU; 0: nothing said */
    uint32_t memory_gpu;
    uint32_t room;    /* enum job_room */
    uint32_t placed;  /* GPUs that were chosen for it: bit map; 0: none were */
    uint32_t yielded; /* enum job_yield; of a job that has, what it had before, and by whom: */
    uint32_t yielded_class, yielded_budget_us;
    uint32_t yielded_by; /* uid */
    uint64_t launch;     /* what started it, as in struct job_spec; 0: not known */
    uint64_t number;     /* what `cede ps` shows; never reused while the machine is up */
    char name[JOB_NAME_MAX];
    uint32_t sum; /* of all above: journal_put_job() fills it in */
};

/* A process that is known to be a job's: once the first one has ended nothing else may tell. */
struct journal_member {
    struct proc_id proc; /* pid 0: free record */
    uint64_t job;        /* its number */
    uint64_t sum;        /* of all above: journal_put_member() fills it in */
};

enum journal_group_flags {
    JG_SUSPENDED = 1 << 0, /* its channels are disabled, or were about to be */
    JG_TIMESLICE = 1 << 1, /* its timeslice is not group.timeslice_us, or was about to be */
    JG_STOPPED = 1 << 3,   /* its process was stopped by SIGSTOP, or was about to be */
    JG_PREEMPT = 1 << 4,   /* it is preempted at block ends, or was about to be */
};

struct journal_group {
    _Atomic uint32_t state; /* flags, and above them their complement; 0: free record */
    uint32_t sum;           /* of group */
    struct device_group group;
};

static inline bool journal_same(const struct device_group *a, const struct device_group *b)
{
    return a->key == b->key && a->gpu == b->gpu && proc_same(a->proc, b->proc);
}

/* A process that is not on the GPU, or is on its way: written before the first step, and freed when
 * it is known to be back. */
struct journal_swap {
    struct proc_id proc;    /* pid 0: free record */
    struct proc_id swapper; /* that moves it; pid 0: none yet */
    uint32_t arrived;       /* out, as far as is known; 0: on its way, out or in */
    uint32_t by_user;       /* asked for by a user, and back when asked for; else: automatic */
    uint32_t uid;           /* of who asked */
    uint32_t job;           /* slot; processes of one job go and come together */
    uint64_t host_bytes;    /* its own host memory before it went: what is more came from the GPU */
    uint64_t bytes[DEVICE_GPUS_MAX]; /* what it had on each GPU */
};

/* Shared by the holders. */
struct journal_shared {
    _Atomic uint64_t heartbeat_ns; /* CLOCK_MONOTONIC of the daemon's last turn; 0: no daemon */
    _Atomic uint64_t restored;     /* how often everything was undone */
    _Atomic uint64_t next_number;
    char driver[16];
    char where[256];
    /* Of the file itself, to tell at its next opening whether all is there. */
    _Atomic uint32_t incomplete; /* enum journal_missing */
    _Atomic uint32_t reserved;   /* groups that there is room for */
    _Atomic uint32_t used;       /* records of groups and swaps */
};

/* What may have been changed without being on record here: the file is new, or was damaged, cut
 * short or of another version. It stays so, over every kill -9, until somebody has looked at all
 * programs and said so. */
enum journal_missing { JOURNAL_GROUPS_MISSING = 1 << 0, JOURNAL_SWAPS_MISSING = 1 << 1 };

struct journal;

/* dir is created (0755; its parent must exist) when missing; the file is dir/journal, 0644 (a job's
 * name and class are no secret, and `cede ps` reads them), the lock dir/lock, 0600. wait_ms: how
 * long to wait for another holder. -EBUSY with the holder's pid in err; -ENOSPC; a damaged, foreign
 * or older file (another boot, another version) is set aside as journal.bad if it holds records,
 * and a new one is begun. Damaged records in a file that is otherwise whole are dropped. */
int journal_open(const char *dir, int wait_ms, struct journal **out, struct error *err);
/* For showing: a copy of what is there now, without the lock. -ENOENT; -EPERM: it is neither root's
 * nor this user's. */
int journal_open_readonly(const char *dir, struct journal **out, struct error *err);
/* Which devices a journal is about, by its header alone. -ENOENT: it is no journal of this boot and
 * version. */
int journal_devices(int fd, char driver[16], char where[256]);
/* Takes over inherited descriptors: the file's, its holders' memory, and the lock's that its giver
 * holds. All are closed after a failure too. */
int journal_from_fd(int fd, int memory_fd, int lock_fd, struct journal **out, struct error *err);
/* If the file was cut short or written over, or could not be written, it is made anew from what its
 * holders know: then 1. 0: it is as it should be. Else an error, to be tried again. */
int journal_mend(struct journal *j);
/* Something could not be written since. */
bool journal_stale(const struct journal *j);
/* For a holder that waits for something else and has nothing to write meanwhile: others may take
 * the lock. To be called only where nobody who has the same lock by inheritance relies on it. */
void journal_yield(struct journal *j);
/* Holds it again, and is named as the holder: 0; -EBUSY: somebody else does, and cares for what is
 * on record. What was read before may have changed. */
int journal_reclaim(struct journal *j);
void journal_close(struct journal *j);

int journal_fd(const struct journal *j);
int journal_memory_fd(const struct journal *j);
int journal_lock_fd(const struct journal *j);
/* Of its lock file, which stays the same for all that hold a journal there, one after the other. */
struct journal_place {
    uint64_t device, inode;
};
struct journal_place journal_place(const struct journal *j);
struct journal_shared *journal_shared(struct journal *j);
/* What was changed in it, for who opens the file next: all but the heartbeat has to be. */
void journal_store_shared(struct journal *j);

/* Slots are the caller's. job NULL frees the record. */
void journal_put_job(struct journal *j, uint32_t slot, const struct journal_job *job);
const struct journal_job *journal_job(const struct journal *j, uint32_t slot);

/* member NULL frees the record. */
void journal_put_member(struct journal *j, uint32_t slot, const struct journal_member *member);
/* NULL where free. */
const struct journal_member *journal_member(const struct journal *j, uint32_t slot);
/* Whether the job's first process or one that is on record as a member lives. */
bool journal_job_lives(const struct journal *j, const struct journal_job *job);

/* Makes room for the record of that group, so that writing it cannot fail. -ENOSPC */
int journal_reserve(struct journal *j, uint32_t slot);
/* Sets the record; flags 0 frees it. -ENOSPC when the file cannot grow: then do not touch the
 * device. A change of flags alone does not rewrite the group. */
int journal_put_group(struct journal *j, uint32_t slot, uint32_t flags,
                      const struct device_group *g);
/* NULL where free. */
const struct device_group *journal_group(const struct journal *j, uint32_t slot, uint32_t *flags);

/* swap NULL frees the record; an identical pid is changed in place. Slots are the caller's. */
void journal_put_swap(struct journal *j, uint32_t slot, const struct journal_swap *swap);
/* NULL where free. */
const struct journal_swap *journal_swap(const struct journal *j, uint32_t slot);
/* The first record at *slot or after it that is of this job (SLOT_NONE: of any), and *slot is where
 * it was found; NULL: there is none. */
const struct journal_swap *journal_swap_of(const struct journal *j, uint32_t job, uint32_t *slot);
/* Where the process is on record, or else a free slot; SLOT_NONE: there is none. */
uint32_t journal_swap_slot(const struct journal *j, struct proc_id proc);

/* journal_open() found something that nobody writes so; a new file is not damaged. */
bool journal_damaged(const struct journal *j);
/* enum journal_missing: what has to be looked for in the programs themselves. */
uint32_t journal_incomplete(const struct journal *j);
/* That was looked for, and what was found is undone or on record. */
void journal_complete(struct journal *j, enum journal_missing what);

/* For a second holder of the same file: takes notice of records that were added since. */
void journal_refresh(struct journal *j);

/* Slots below these may hold records (grows with use). */
uint32_t journal_jobs_end(const struct journal *j);
uint32_t journal_groups_end(const struct journal *j);

/* Continues every stopped process, resumes every suspended group and gives every group its old
 * timeslice and preemption mode back, for the records that `want` accepts (NULL: all), in this
 * order. Frees each record that was undone or whose process is gone. Returns how many could not be
 * undone. */
unsigned journal_undo(struct journal *j, struct device_driver *d,
                      bool (*want)(uint32_t slot, void *arg), void *arg);
/* The first of these, which needs no device. */
void journal_undo_stops(struct journal *j, bool (*want)(uint32_t slot, void *arg), void *arg);

#endif
