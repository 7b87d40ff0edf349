/* A cache of the ancestors of GPU programs. Parents are kept as they were read from /proc, by pid
 * and start time, so a thousand programs below the same thousand forks cost two thousand reads and
 * not a million, and a climb that is too long for one tick goes on in the next.
 *
 * A process may lose ancestors but never gains one: when its parent ends, an ancestor further up
 * becomes its parent. So the cache may have too many ancestors, never too few. The answer that no
 * ancestor is in a job needs no check; the answer that one is counts only after a fresh read. */
#ifndef CEDE_CORE_ANCESTORS_H
#define CEDE_CORE_ANCESTORS_H

#include "core/model.h"

#define ANCESTORS_MAX 65536U

struct ancestor {
    struct proc_id id;
    pid_t ppid;
    uint32_t parent, hash_next;
    uint32_t job_pass, job; /* `job` is its job if job_pass is the current pass */
    uint32_t near_known;    /* `near` is valid while this equals ancestors.known */
    uint32_t near;          /* the nearest process in a job, itself or an ancestor, or SLOT_NONE */
    bool top;               /* it has no ancestor that counts */
    uint64_t read_ns;
};

struct ancestors {
    struct ancestor *v;
    uint32_t n, pass;
    size_t cap;
    uint32_t known; /* incremented to invalidate every `near` */
    uint32_t buckets[1024];
    uint64_t began_ns;
};

/* Begins a pass: marks the processes that are in jobs now. */
void ancestors_begin(struct ancestors *a, const struct model *m);
void ancestors_free(struct ancestors *a);
/* *job: the job of this process or of its nearest ancestor that is in one, or SLOT_NONE. *left: the
 * number of files that may be read; each read decrements it. -EAGAIN: it ran out, and the next call
 * goes on; another error: something could not be read (proc_unsure()). */
int ancestors_job(struct ancestors *a, const struct model *m, const struct proc_stat *st,
                  uint32_t *left, uint32_t *job);
/* From the cache alone: false only if neither the process nor an ancestor is in a job. */
bool ancestors_may_have_job(struct ancestors *a, const struct model *m, struct proc_id id);
/* The process belongs to the job in this pass. */
void ancestors_set_job(struct ancestors *a, struct proc_id id, uint32_t job);
/* Replaces *id by its parent, from the cache; false: the parent is unknown, or there is none. */
bool ancestors_up(const struct ancestors *a, struct proc_id *id);

#endif
