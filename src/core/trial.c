/* See trial.h. */
#include "core/trial.h"

#include <errno.h>

static void trial_put(struct model *m, struct job *j, const struct job_trial *t)
{
    j->trial = *t;
    model_unit_changed(m, model_job_slot(m, j));
    m->dirty = true;
}

int trial_set(struct model *m, uint32_t job, const struct job_trial *t, struct error *err)
{
    struct job *j = &m->jobs[job];
    for_each_job (m, o) {
        if (o->trial.until_ns > m->now && o->trial.connection != t->connection &&
            (o == j || (o->rec.uid == j->rec.uid && model_job_gpus(m, o) & model_job_gpus(m, j))))
            return error_set(err, -EBUSY,
                             "job #%llu is tried on that GPU now: wait for some seconds",
                             (unsigned long long)o->rec.number);
    }
    if (t->ranked && j->is_client)
        return error_set(err, -EINVAL,
                         "it is a client of an MPS server, whose programs have one class together");
    trial_put(m, j, t);
    return 0;
}

void trials_close(struct model *m, uint64_t connection)
{
    for_each_job (m, j) {
        if (j->trial.until_ns && j->trial.connection == connection) {
            j->trial.until_ns = 1;
            m->watches.pending = true;
        }
    }
}

uint64_t trials_due(struct model *m)
{
    uint64_t next = TIME_NEVER;
    for_each_job (m, j) {
        if (j->trial.until_ns && j->trial.until_ns <= m->now)
            trial_put(m, j, &(struct job_trial){.until_ns = 0});
        if (j->trial.until_ns)
            next = min_u64(next, j->trial.until_ns);
    }
    return next;
}

uint32_t trials_of(const struct model *m, uint64_t connection, uid_t uid, uint32_t *jobs,
                   uint32_t max)
{
    uint32_t n = 0;
    for_each_job (m, j) {
        if (!j->trial.until_ns || j->trial.connection != connection)
            continue;
        if (j->rec.uid != uid || n == max)
            return 0;
        jobs[n++] = model_job_slot(m, j);
    }
    return n;
}

bool trials_are_all(const struct model *m, uint64_t connection, uint32_t job)
{
    for_each_job (m, j) {
        if (m->jobs[job].united && j->unit == m->jobs[job].unit && !j->rec.paused &&
            j->trial.connection != connection)
            return false;
    }
    return true;
}
