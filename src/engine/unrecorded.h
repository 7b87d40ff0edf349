/* The survey finds and undoes changes of an earlier cede that no record has, because its journal
 * was damaged, cut short, of another version, or is lost. It looks at the programs themselves, in
 * the first ticks, so that a start does not take longer:
 *   - an unmanaged process is resumed, and a timeslice that only a cede sets becomes the default;
 *   - a stopped client of an MPS server is continued, unless its job is paused;
 *   - all groups of a job's process count as suspended until they have been set again;
 *   - a swapper searches for memory that is off the GPU (journal/swapper.h), and swaps it in.
 * Programs that another living cede may have changed are left alone (journal/other_cedes.h).
 * Then the journal is complete again. What fails, for lack of memory or descriptors, is tried again
 * after 5 s, with backoff. Each process is treated once, so that later changes by its user's own
 * means are left alone.
 *
 * The author of a change is not visible from outside. So a program that a person moved off the GPU
 * with the vendor's tool is swapped in as well, and a client that a person stopped is continued,
 * once, if a cede without its journal begins just then. */
#ifndef CEDE_ENGINE_UNRECORDED_H
#define CEDE_ENGINE_UNRECORDED_H

#include "memory/swap.h"

struct suspect {
    struct proc_id id;
    uint32_t scans, groups;
    bool failed;
    bool client; /* a client of an MPS server, which a signal may have stopped */
};

struct survey {
    uint64_t floor_us; /* a timeslice that the scheduler sets (timeslice_floor_us) */
    struct suspect *v;
    uint32_t n, next;
    uint64_t at;
    bool listed;           /* processes were listed since the journal became incomplete */
    bool lost;             /* a process was not listed or treated, so all are listed at list_at */
    struct swapper search; /* searches for memory that is off the GPU; pid 0: none */
    struct watch *watch;
    bool search_ended;
    uint64_t list_at, search_at; /* TIME_NEVER: done, or in progress */
    unsigned failures, searches; /* failed lists, and searches that did not end well */
};

/* Begins with what the journal says is missing. stays: see engine_options. */
void survey_begin(struct survey *s, struct model *m, bool stays);
/* Does what is due; returns when to call again. */
uint64_t survey_due(struct survey *s, struct model *m);
/* Takes over what the search has found, if it has ended. */
void survey_take(struct survey *s, struct model *m);
/* Treats one unmanaged process now, for as long as a person waits; the rest is done in later ticks.
 * -ENODEV: it has nothing on a GPU. */
int survey_free(struct survey *s, struct model *m, struct proc_id id, struct error *err);
/* Counts all groups of a job as suspended, because a person who resumes it has seen it wait. */
void survey_distrust(struct model *m, uint32_t job);
/* Ends the survey. restore: the processes that are left are treated now, for LEAVING_NS at most. */
void survey_end(struct survey *s, struct model *m, bool restore);

#endif
