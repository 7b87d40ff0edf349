/* Which job a process belongs to if its ancestors count, too, and which processes belong to a job.
 * See model.h. Changes nothing but the cache of ancestors. */
#include <errno.h>
#include <stdlib.h>

#include "core/ancestors.h"

#define NESTED_MAX 16                  /* levels of jobs within jobs */
#define PIDS_NS    (5 * NSEC_PER_MSEC) /* per call, for the processes of a job */
#define PIDS_MAX   1024U               /* per call */

/* model_job_of() within a pass of the cache. */
static int job_of(const struct model *m, pid_t pid, uint32_t *job)
{
    struct proc_stat st;
    uint32_t left = PROC_LEVELS_MAX, near;
    *job = model_job_with(m, pid);
    if (*job != SLOT_NONE)
        return 0;
    int r = proc_stat_read(pid, &st);
    if (r < 0 || st.kernel)
        return proc_unsure(r) ? r : 0;
    r = ancestors_job(m->ancestors, m, &st, &left, &near);
    return r < 0 ? r : model_job_near(m, &st, near, job);
}

int model_job_of(const struct model *m, pid_t pid, uint32_t *job)
{
    ancestors_begin(m->ancestors, m);
    return job_of(m, pid, job);
}

/* Whether the job is that one, or began within it: then its root's parent belongs to that one. */
static bool is_within(const struct model *m, uint32_t job, uint32_t outer)
{
    for (int depth = 0; depth < NESTED_MAX && job != SLOT_NONE && job != outer; depth++) {
        const pid_t root = m->jobs[job].rec.root.pid;
        struct proc_stat st;
        if (model_job_with(m, root) != job || proc_stat_read(root, &st) < 0 ||
            job_of(m, st.ppid, &job) < 0)
            return false;
    }
    return job == outer;
}

int model_job_pids(const struct model *m, uint32_t job, pid_t *from, struct pid_list *out)
{
    _cleanup_free_ pid_t *all = NULL;
    size_t n = 0, first = 0;
    uint32_t of;
    int r = proc_list(&all, &n);
    const uint64_t until_ns = monotonic_ns() + PIDS_NS;
    if (n)
        qsort(all, n, sizeof(*all), compare_int32);
    while (first < n && all[first] < *from)
        first++;
    ancestors_begin(m->ancestors, m);
    *from = 0;
    for (size_t i = first; r == 0 && i < n && !*from; i++) {
        r = job_of(m, all[i], &of);
        if (r == 0 && is_within(m, of, job))
            r = pid_list_push(out, all[i]);
        if (monotonic_ns() > until_ns || out->n == PIDS_MAX)
            *from = all[i] + 1;
        if (r == -EAGAIN && i > first) { /* the cache is full until the next pass */
            *from = all[i];
            r = 0;
        }
    }
    return r;
}
