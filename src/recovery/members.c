/* Members of jobs on record. See journal.h. */
#include "recovery/journal.h"

bool journal_job_lives(const struct journal *j, const struct journal_job *job)
{
    bool lives = proc_alive(job->root);
    for (uint32_t i = 0; i < JOURNAL_MEMBERS && !lives; i++) {
        const struct journal_member *r = journal_member(j, i);
        lives = r && r->job == job->number && proc_alive(r->proc);
    }
    return lives;
}
