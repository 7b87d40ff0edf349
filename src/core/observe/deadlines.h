/* Deadlines of jobs, as facts for the scheduler. See deadlines.c. Decides nothing. */
#ifndef CEDE_CORE_OBSERVE_DEADLINES_H
#define CEDE_CORE_OBSERVE_DEADLINES_H

#include "core/model.h"

#define REPORT_NS (20 * NSEC_PER_MSEC) /* between reports: deadlines are a second or so away */
#define ORDER_NS  (2 * NSEC_PER_MSEC)  /* the same for latency jobs, whose deadlines are close */

/* A repeated report of a job's programs about their requests; after 1 s of silence the programs
 * count as gone. The numbers are not trusted: the scheduler bounds what they can cost others. */
struct report {
    uint64_t now_ns;
    uint64_t ended;       /* requests since the program began */
    uint64_t deadline_ns; /* the earliest of those that are open; 0: none is due */
    uint64_t need_ns;     /* GPU time that it will take; 0: not reported */
    int priority;         /* among those that are due; higher: sooner */
    bool root;            /* all of the programs are root's */
};
/* Returns how long until the next report. */
uint64_t deadlines_report(struct model *m, uint32_t job, const struct report *r);
/* Prepares for the deadline of new terms; called before the job has them. -ENOMEM. */
int deadlines_set(struct model *m, uint32_t job, const struct job_terms *terms);

/* Called after each activity(): on[].bursts and on[].busy_ns are of the time since the last one. */
void deadlines_observe(struct model *m);
/* Reports to the scheduler what is due; returns when to ask again. */
uint64_t deadlines_due(struct model *m);
bool deadlines_wanted(const struct model *m); /* deadlines require to know which jobs work */
/* Whether a deadline is open. *in_ns: time until it (< 0: late); *needs_ns: the GPU time that the
 * work still needs (TIME_NEVER: not known). */
bool deadlines_open(const struct model *m, uint32_t job, int64_t *in_ns, uint64_t *needs_ns);

#endif
