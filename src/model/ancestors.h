/* Whose descendants GPU programs are. Parents are kept as they were read from /proc, by pid and
 * start time, so a thousand programs below the same thousand forks cost two thousand reads and not
 * a million, and a climb that is too long for one tick goes on in the next.
 *
 * A process may lose ancestors, and never gets another one: when its parent ends, one of those
 * above becomes its parent. So what is kept has all ancestors there are. That none of them is a
 * job's needs no other look; that one of them is, is believed only for what was read just now. */
#ifndef CEDE_MODEL_ANCESTORS_H
#define CEDE_MODEL_ANCESTORS_H

#include "model/model.h"

#define ANCESTORS_MAX 65536U

struct ancestor {
    struct proc_id id;
    pid_t ppid;
    uint32_t parent, hash_next;
    uint32_t job_pass, job; /* it is that job's in this pass; */
    uint32_t near_known; /* the nearest of a job, itself or an ancestor, was found in this one: */
    uint32_t near;       /* SLOT_NONE: there is none */
    bool top;            /* nobody is above */
    uint64_t read_ns;
};

struct ancestors {
    struct ancestor *v;
    uint32_t n, cap, pass;
    uint32_t known; /* grows where what was found before does not count any more */
    uint32_t buckets[1024];
    uint64_t began_ns;
};

/* Before each pass: which processes are jobs' now. */
void ancestors_begin(struct ancestors *a, const struct model *m);
void ancestors_free(struct ancestors *a);
/* The job that this process, or the nearest of its ancestors that is in one, belongs to; SLOT_NONE:
 * there is none. *left: so many files may be read; fewer are left afterwards. -EAGAIN: they did not
 * do, and the next call goes on; another error: something could not be read (proc_unsure()). */
int ancestors_job(struct ancestors *a, const struct model *m, const struct proc_stat *st,
                  uint32_t *left, uint32_t *job);
/* By what was read before: false only if neither it nor an ancestor is a job's. */
bool ancestors_may_have_job(struct ancestors *a, const struct model *m, struct proc_id id);
/* In this pass it belongs to the job. */
void ancestors_set_job(struct ancestors *a, struct proc_id id, uint32_t job);
/* Its parent in its place, by what was read before; false: that is not known, or there is none. */
bool ancestors_up(const struct ancestors *a, struct proc_id *id);

#endif
