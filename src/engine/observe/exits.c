/* See exits.h. */
#include "engine/observe/exits.h"

void exits_reap(struct model *m)
{
    for (uint32_t i = 0; i < m->processes_end; i++) {
        uint32_t job = m->processes[i].job;
        if (!m->processes[i].id.pid || !m->processes[i].ended)
            continue;
        model_process_remove(m, i, false);
        model_job_drop_if_over(m, job);
    }
    for (uint32_t i = 0; i < m->jobs_end; i++) {
        if (m->jobs[i].rec.root.pid && m->jobs[i].root_ended && m->jobs[i].root_pidfd >= 0)
            model_job_root_ended(m, i);
    }
}
