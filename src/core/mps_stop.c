/* See mps_stop.h. Each stop is in the journal before it is made. */
#include "core/mps_stop.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#define STOPS_NS NSEC_PER_SEC /* between checks that stopped processes still are */

static bool wants_stop(const struct model *m, const struct process *p)
{
    const struct job *j = &m->jobs[p->job];
    return (model_job_off(j) || j->speed.held || j->out_of_turn) && j->is_client &&
           p->first_group != SLOT_NONE;
}

/* Records on all groups of a process that it is stopped, or is no more. 0 or -errno. */
static int record_stop(struct model *m, struct process *p, bool stopped)
{
    int r = 0;
    for_each_group_of (m, p, i) {
        struct channel_group *g = &m->groups[i];
        g->stopped = stopped;
        int put = journal_put_group(m->journal, i, model_journal_flags(g), &g->dg);
        r = r ? r : put;
    }
    return r;
}

static bool may_stop(const struct model *m, const struct process *p)
{
    const struct journal_job *rec = &m->jobs[p->job].rec;
    return (rec->paused && rec->paused_by == 0) || model_may_signal(m, p);
}

/* A process that somebody else has stopped is theirs to continue and is not recorded. One that cede
 * has stopped stays on record even if it cannot be checked or stopped again. */
static void mps_stop(struct model *m, struct process *p)
{
    struct error err = {""};
    if (m->now < p->stops_at)
        return;
    p->stops_at = m->now + STOPS_NS;
    if (proc_stopped(p->id))
        return;
    if (!may_stop(m, p)) {
        error_set(&err, -EPERM, "process %d is another user's: not stopped, it runs on", p->id.pid);
        model_job_failed(m, p->job, -EPERM, &err);
        return;
    }
    int r = record_stop(m, p, true);
    r = r < 0 ? r : proc_signal(p->id, SIGSTOP);
    p->stopped |= r == 0;
    if (p->stopped || r == -ESRCH)
        return;
    record_stop(m, p, false);
    error_set(&err, r, "cannot stop process %d: %s", p->id.pid, strerror(-r));
    model_job_failed(m, p->job, r, &err);
}

void mps_continue(struct model *m, struct process *p)
{
    int r = proc_signal(p->id, SIGCONT);
    if (r < 0 && r != -ESRCH && r != -EPERM)
        return; /* the next call of mps_stops() tries again */
    p->stopped = false;
    record_stop(m, p, false);
}

void mps_continue_left(struct model *m)
{
    for_each (p, m->processes, m->processes_end) {
        if (p->id.pid && p->stopped && p->first_group == SLOT_NONE)
            mps_continue(m, p);
    }
}

uint64_t mps_stops(struct model *m)
{
    uint64_t next = TIME_NEVER;
    for_each (p, m->processes, m->processes_end) {
        if (!p->id.pid)
            continue;
        if (wants_stop(m, p)) {
            mps_stop(m, p);
            next = min_u64(next, p->stops_at);
            continue;
        }
        p->stops_at = 0;
        if (p->stopped)
            mps_continue(m, p);
        if (p->stopped)
            next = min_u64(next, m->now + STOPS_NS);
    }
    return next;
}
