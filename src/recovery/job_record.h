/* What a job has yielded, in its record: journal.c. */
#ifndef CEDE_RECOVERY_JOB_RECORD_H
#define CEDE_RECOVERY_JOB_RECORD_H

#include <string.h>

#include "recovery/journal.h"

static inline bool yield_ok(const struct journal_job *r)
{
    return r->yielded <= (YIELD_CLASS | YIELD_PAUSE | YIELD_MEMORY) &&
           r->yielded_class < CLASS_COUNT && r->yielded_budget_us <= BUDGET_MAX_US;
}

/* With what is between the members, which is summed too. A job that has not yielded its class
 * yields the one that it has: so a record in which old and new are mixed gives no other back. */
static inline void job_copy(struct journal_job *to, const struct journal_job *job)
{
    memcpy(to, job, sizeof(*to));
    if (to->yielded & YIELD_CLASS)
        return;
    to->yielded_class = to->class;
    to->yielded_budget_us = to->budget_us;
}

#endif
