/* Searches among the journal's records. See journal.h. */
#include "recovery/journal.h"

const struct journal_swap *journal_swap_of(const struct journal *j, uint32_t job, uint32_t *slot)
{
    for (; *slot < JOURNAL_SWAPS; ++*slot) {
        const struct journal_swap *r = journal_swap(j, *slot);
        if (r && (job == SLOT_NONE || r->job == job))
            return r;
    }
    return NULL;
}

uint32_t journal_swap_slot(const struct journal *j, struct proc_id proc)
{
    uint32_t spare = SLOT_NONE;
    for (uint32_t i = JOURNAL_SWAPS; i-- > 0;) {
        const struct journal_swap *r = journal_swap(j, i);
        if (r && proc_same(r->proc, proc))
            return i;
        spare = r ? spare : i;
    }
    return spare;
}

bool journal_job_lives(const struct journal *j, const struct journal_job *job)
{
    bool lives = proc_alive(job->root);
    for (uint32_t i = 0; i < JOURNAL_MEMBERS && !lives; i++) {
        const struct journal_member *r = journal_member(j, i);
        lives = r && r->job == job->number && proc_alive(r->proc);
    }
    return lives;
}
