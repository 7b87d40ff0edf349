/* When the work of jobs is due. See deadlines.c. Decides nothing. */
#ifndef CEDE_ENGINE_OBSERVE_DEADLINES_H
#define CEDE_ENGINE_OBSERVE_DEADLINES_H

#include "model/model.h"

#define REPORT_NS (20 * NSEC_PER_MSEC) /* deadlines are of a second or so */
#define ORDER_NS  (2 * NSEC_PER_MSEC)  /* where latency jobs are ordered, whose deadlines are not */

/* What a job's programs report of their requests, again and again (after 1 s of silence they are
 * taken to be gone). Numbers of strangers: nothing is believed that costs others more than the
 * scheduler allows. */
struct report {
    uint64_t now_ns;
    uint64_t ended;       /* requests, ever */
    uint64_t deadline_ns; /* the earliest of those that are open; 0: none is due */
    uint64_t need_ns;     /* GPU time that it will take; 0: not said */
    int priority;         /* among those that are due; higher: sooner */
    bool root;            /* all of the programs are an administrator's */
};
/* Returns how long until the next report. */
uint64_t deadlines_report(struct model *m, uint32_t job, const struct report *r);
/* See engine_set_deadline(). */
int deadlines_set(struct model *m, uint32_t job, uint32_t deadline_us, uint32_t laxity_us,
                  bool may_promote);

/* After each look at who got the engine: on[].bursts and on[].busy_ns are of the time since the
 * last one. */
void deadlines_observe(struct model *m);
/* Reports to the scheduler what is due; returns when to ask again. */
uint64_t deadlines_due(struct model *m);
bool deadlines_wanted(const struct model *m); /* which jobs work has to be known */
/* Whether a deadline is open: due in so much time (< 0: late), and needs so much GPU time still
 * (TIME_NEVER: not known). */
bool deadlines_open(const struct model *m, uint32_t job, int64_t *in_ns, uint64_t *needs_ns);

#endif
