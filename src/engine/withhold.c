/* Limits on what can be done to jobs now: capabilities that are withheld, because a driver's check
 * has not ended or did not see their effect, and changes that the journal has no room for. The
 * check itself is in daemon/driver_check.c. See engine.h. */
#include <errno.h>
#include <string.h>

#include "engine/engine_impl.h"

bool engine_driver_changed(const struct engine *e)
{
    return e->discovery.driver_changed;
}

void engine_quiesce(struct engine *e, bool on)
{
    struct model *m = &e->model;
    on |= e->discovery.driver_changed;
    m->quiesced = on;
    for (uint32_t i = 0; i < m->processes_end && !on; i++) {
        if (m->processes[i].id.pid && m->processes[i].scan_at != TIME_NEVER)
            m->processes[i].scan_at = 0;
    }
}

void engine_withhold(struct engine *e, unsigned gpu, uint32_t caps, const char *why)
{
    struct model *m = &e->model;
    if (gpu >= m->ngpus)
        return;
    struct withheld *w = &m->withheld[gpu];
    uint32_t all = m->gpus[gpu].caps | w->caps;
    w->caps = all & caps;
    m->gpus[gpu].caps = all & ~caps;
    snprintf(w->why, sizeof(w->why), "%s", w->caps ? why : "");
    m->dirty = true;
}

uint32_t engine_gpu_caps(const struct engine *e, unsigned gpu, uint32_t *withheld, const char **why)
{
    const struct model *m = &e->model;
    if (gpu >= m->ngpus) {
        *withheld = 0;
        *why = "";
        return 0;
    }
    *withheld = m->withheld[gpu].caps;
    *why = m->withheld[gpu].why;
    return m->gpus[gpu].caps;
}

static int unrecorded(int r, struct error *err)
{
    return r < 0 ? error_set(err, r,
                             "cannot write the journal (%s), and what is not on record is not "
                             "changed: make room in ceded's directory",
                             strerror(-r))
                 : 0;
}

int engine_records(struct engine *e, struct error *err)
{
    return unrecorded(journal_mend(e->model.journal), err);
}

int engine_may_record(struct engine *e, uint32_t job, struct error *err)
{
    struct model *m = &e->model;
    uint32_t next = 0;
    int r = engine_records(e, err);
    if (r < 0)
        return r;
    while (next < m->groups_end && m->groups[next].dg.proc.pid)
        next++;
    if (job == SLOT_NONE)
        r = journal_reserve(m->journal, (uint32_t)min_u64(next, JOURNAL_GROUPS - 1));
    for (uint32_t i = 0; job != SLOT_NONE && r == 0 && i < m->groups_end; i++) {
        if (group_live(&m->groups[i]) && m->processes[m->groups[i].process].job == job)
            r = journal_reserve(m->journal, i);
    }
    return unrecorded(r, err);
}

int engine_may_pause(const struct engine *e, uint32_t job, struct error *err)
{
    const struct model *m = &e->model;
    const struct job *j = &m->jobs[job];
    const uint32_t on = j->ngroups ? model_job_gpus(m, j) : UINT32_MAX;
    for (unsigned d = 0; d < m->ngpus && !j->is_client; d++) {
        if ((on >> d & 1) && (m->withheld[d].caps & GPU_CAP_SUSPEND))
            return error_set(err, -ENOTSUP, "it cannot be paused: suspension is off on GPU %u: %s",
                             d, m->withheld[d].why);
    }
    return 0;
}
