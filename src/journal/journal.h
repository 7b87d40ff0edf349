/* The journal: cede's jobs and the changes that were made to them, in a file of fixed records,
 * which its holders have in memory (journal_impl.h). A record is written before its change is
 * applied, and stays in the page cache when the writer is killed at any instruction, so that the
 * next holder (the restorer, a restarted daemon, a direct `cede resume`) can take over or undo.
 *
 * There is one holder at a time, by flock(2) on a file beside the journal that only its owner may
 * open; the restorer inherits that lock. Nothing here touches a device. Not thread-safe. */
#ifndef CEDE_JOURNAL_JOURNAL_H
#define CEDE_JOURNAL_JOURNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/job_terms.h"
#include "base/util.h"
#include "gpu/ops.h"
#include "who/cgroup.h"

#define JOURNAL_JOBS    4096U
#define JOURNAL_MEMBERS 8192U
#define JOURNAL_GROUPS  16384U
#define JOURNAL_SWAPS   256U
#define JOB_NAME_MAX    64

/* The GPU memory that a job says it will take: the job waits for it; it was free and is kept for
 * the job; or the job has started without it, and nothing is kept unless it is a latency job. */
enum job_room { ROOM_AWAITED, ROOM_KEPT, ROOM_NONE };

enum job_source { JOB_RUN, JOB_PID, JOB_RULE, JOB_ENVIRONMENT, JOB_SLURM };

/* The things that a job has yielded until it acquires them: journal_job.yielded. */
enum job_yield { YIELD_CLASS = 1 << 0, YIELD_PAUSE = 1 << 1, YIELD_MEMORY = 1 << 2 };

/* The name of a job of source JOB_SLURM is this and Slurm's number. */
#define SLURM_JOB_NAME "slurm-"

struct journal_job {
    struct proc_id root; /* pid 0: free record */
    union {
        struct job_terms;
        struct job_terms terms;
    };
    uint32_t uid;                   /* of the user who asked for the job */
    uint32_t owner;                 /* uid of the root process */
    uint32_t source;                /* enum job_source */
    uint16_t paused;                /* 1: a person, or its memory-max, paused it */
    uint16_t room;                  /* enum job_room */
    uint32_t paused_by;             /* that person's uid */
    char account[ACCOUNT_NAME_MAX]; /* "": the account of the principal */
    uint32_t principal;
    struct cgroup cgroup;  /* the control group that it has to itself */
    uint64_t memory_bytes; /* memory that it was said to take of memory_gpu; 0: nothing said */
    uint32_t memory_gpu;
    uint32_t placed;  /* bit map of GPUs that were chosen for it; 0: none were */
    uint32_t yielded; /* enum job_yield; the fields below say what it had before, and who asked */
    uint32_t yielded_class, yielded_budget_us;
    uint32_t yielded_by; /* uid */
    uint64_t launch;     /* what started it, as in struct job_spec; 0: not known */
    uint64_t number;     /* shown by `cede ps`; never reused while the machine is up */
    char name[JOB_NAME_MAX];
    uint32_t sum; /* checksum of all above, which journal_put_job() fills in */
};

/* A process of a job. When the job's first process has ended, this may be the only evidence. */
struct journal_member {
    struct proc_id proc; /* pid 0: free record */
    uint64_t job;        /* its number */
    uint64_t sum;        /* checksum of all above, which journal_put_member() fills in */
};

enum journal_group_flags {                        /* each is set before the change is made */
                           JG_SUSPENDED = 1 << 0, /* its channels are disabled */
                           JG_TIMESLICE = 1 << 1, /* its timeslice is not group.timeslice_us */
                           JG_STOPPED = 1 << 3,   /* its process was stopped by SIGSTOP */
                           JG_PREEMPT = 1 << 4,   /* it is preempted at block ends */
};

struct journal_group {
    _Atomic uint32_t state; /* flags, with their complement in the upper half; 0: free record */
    uint32_t sum;           /* checksum of group */
    struct device_group group;
};

static inline bool journal_same(const struct device_group *a, const struct device_group *b)
{
    return a->key == b->key && a->gpu == b->gpu && proc_same(a->proc, b->proc);
}

/* A process that is swapped out or being moved. The record is written before the first step, and
 * freed when the process is known to be back. */
struct journal_swap {
    struct proc_id proc;    /* pid 0: free record */
    struct proc_id swapper; /* the process that moves it; pid 0: none yet */
    uint32_t arrived;       /* 1: it is out, as far as is known; 0: it is being moved */
    uint32_t by_user;       /* 1: users asked for it, and ask it back; 0: automatic */
    uint32_t uid;           /* of the user who asked */
    uint32_t job;           /* slot; processes of one job are moved together */
    uint64_t host_bytes;    /* its host memory before; the GPU's memory comes on top of it */
    uint64_t bytes[DEVICE_GPUS_MAX]; /* memory that it had on each GPU */
};

/* The part of the header that the holders share. */
struct journal_shared {
    _Atomic uint64_t heartbeat_ns; /* CLOCK_MONOTONIC of the daemon's last turn; 0: no daemon */
    _Atomic uint64_t restored;     /* how often everything was undone */
    _Atomic uint64_t next_number;
    char driver[16];
    char where[256];
    /* By these the next holder finds out whether the file is complete. */
    _Atomic uint32_t incomplete; /* enum journal_missing */
    _Atomic uint32_t reserved;   /* number of group records that there is room for */
    _Atomic uint32_t used;       /* number of group and swap records in use */
};

/* Changes that may have been made without a record here, because the file is new, or was damaged,
 * cut short or of another version. A flag stays set until journal_complete(). */
enum journal_missing { JOURNAL_GROUPS_MISSING = 1 << 0, JOURNAL_SWAPS_MISSING = 1 << 1 };

struct journal;

/* Opens dir/journal, 0644, as its holder; dir is created (0755) if only it is missing. Everybody
 * may read the file, because a job's name and class are no secret; only the owner may open the
 * lock, dir/lock, 0600. wait_ms: how long to wait for another holder. -EBUSY with the holder's pid
 * in err; -ENOSPC. A damaged or foreign file (of another boot or version) is set aside as
 * journal.bad if it has records, and a new one is begun; single damaged records are dropped. */
int journal_open(const char *dir, int wait_ms, struct journal **out, struct error *err);
/* Reads a copy of the present journal, without the lock. -ENOENT; -EPERM: it is neither root's nor
 * this user's. */
int journal_open_readonly(const char *dir, struct journal **out, struct error *err);
/* The pid of the present or the last holder of the journal in dir; 0: it is not known. */
pid_t journal_holder(const char *dir);
/* Gets a journal's driver and address from its header. -ENOENT: it is no journal of this boot and
 * version. */
int journal_devices(int fd, char driver[16], char where[256]);
/* Opens a journal by descriptors, which it owns from now on, also when that fails: of the file, of
 * its holders' memory (-1: there is none yet), and of the lock, which this process or its parent
 * holds (-1: the journal is only read). -ENOENT: it is no journal of this boot and version. */
int journal_from_fd(int fd, int memory_fd, int lock_fd, struct journal **out, struct error *err);
/* Writes the file anew from memory if it was cut short or overwritten, or if a write has failed. 1:
 * it did; 0: the file is right; -EBUSY: it is yielded; another error: to be tried again. */
int journal_mend(struct journal *j);
/* Tries that for a second, for a holder after which the next one knows only the file. */
void journal_mend_soon(struct journal *j);
/* Whether a write has failed since. */
bool journal_stale(const struct journal *j);
/* For a holder that waits and has nothing to write meanwhile: gives up the lock, unless the file
 * cannot be brought up to date. To be called only if no process that inherited the lock relies on
 * it. */
void journal_yield(struct journal *j);
/* Takes the lock again. 0: records that were read before may have changed; -EBUSY: another holder
 * has it, and is responsible for the records. */
int journal_reclaim(struct journal *j);
void journal_close(struct journal *j);

int journal_fd(const struct journal *j);
int journal_memory_fd(const struct journal *j);
int journal_lock_fd(const struct journal *j);
/* Identifies a journal by its lock file, which stays the same from holder to holder. */
struct journal_lock_id {
    uint64_t device, inode;
};
struct journal_lock_id journal_lock_id(const struct journal *j);
struct journal_shared *journal_shared(struct journal *j);
/* Writes the shared part to the file, as needed after every change of it but the heartbeat. */
void journal_store_shared(struct journal *j);

/* The caller chooses slots. job NULL frees the record. */
void journal_put_job(struct journal *j, uint32_t slot, const struct journal_job *job);
const struct journal_job *journal_job(const struct journal *j, uint32_t slot);

/* member NULL frees the record. */
void journal_put_member(struct journal *j, uint32_t slot, const struct journal_member *member);
/* NULL: the slot is free. */
const struct journal_member *journal_member(const struct journal *j, uint32_t slot);
/* Whether the job's first process, or a member on record, lives. */
bool journal_job_lives(const struct journal *j, const struct journal_job *job);

/* Makes room for the record of that group, so that writing it cannot fail. 0 or -ENOSPC. */
int journal_reserve(struct journal *j, uint32_t slot);
/* Sets the record; flags 0 frees it. -ENOSPC: the file cannot grow, and the caller must not touch
 * the device. A change of flags alone does not rewrite the group. */
int journal_put_group(struct journal *j, uint32_t slot, uint32_t flags,
                      const struct device_group *g);
/* The same for a change that has been made already: the holders have it on record in memory even if
 * the file cannot be written. An error: there is no room for it. */
int journal_keep_group(struct journal *j, uint32_t slot, uint32_t flags,
                       const struct device_group *g);
/* NULL: the slot is free. */
const struct device_group *journal_group(const struct journal *j, uint32_t slot, uint32_t *flags);

/* The caller chooses slots. swap NULL frees the record; one of the same process is changed in
 * place.
 */
void journal_put_swap(struct journal *j, uint32_t slot, const struct journal_swap *swap);
/* NULL: the slot is free. */
const struct journal_swap *journal_swap(const struct journal *j, uint32_t slot);
/* Finds the first record of this job (SLOT_NONE: of any) from *slot on, and sets *slot; NULL: there
 * is none. */
const struct journal_swap *journal_swap_of(const struct journal *j, uint32_t job, uint32_t *slot);
/* The slot of the process's record, else a free one; SLOT_NONE: there is none. */
uint32_t journal_swap_slot(const struct journal *j, struct proc_id proc);

/* Whether journal_open() found invalid records. A new file is not damaged. */
bool journal_damaged(const struct journal *j);
/* enum journal_missing: the changes that have to be searched for in the programs. */
uint32_t journal_incomplete(const struct journal *j);
/* Says that the search was done, and that its results are undone or on record. */
void journal_complete(struct journal *j, enum journal_missing what);

/* For the second holder: notices records that the first one has added. */
void journal_refresh(struct journal *j);

/* Slots below these may have records; the numbers grow with use. */
uint32_t journal_jobs_end(const struct journal *j);
uint32_t journal_groups_end(const struct journal *j);

/* Continues every stopped process, then resumes every suspended group, then gives every group its
 * old timeslice and preemption mode back, for the records that `want` accepts (NULL: all). Frees
 * each record that was undone or whose process is gone. Returns the number of those left. */
unsigned journal_undo(struct journal *j, struct device_driver *d,
                      bool (*want)(uint32_t slot, void *arg), void *arg);
/* Only continues the stopped processes, which needs no device. */
void journal_undo_stops(struct journal *j, bool (*want)(uint32_t slot, void *arg), void *arg);

#endif
