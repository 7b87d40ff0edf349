/* Finds again what an earlier cede has changed in programs and is on record nowhere: its journal
 * was damaged, cut short, of another version, or is gone. Programs are looked at themselves, in the
 * course of the first ticks, so that a start takes no longer for it:
 *   - a process in no job is resumed, and a timeslice that only a cede sets becomes the default;
 *   - a client of an MPS server that is stopped goes on, unless its job is paused;
 *   - of a process that a job owns, all groups count as suspended until they were set anew;
 *   - what is off the GPU is searched for by a swapper (recovery/swapper.h), and comes in.
 * What another cede that is alive may have done is that cede's (recovery/other.h).
 * Then the journal is complete again. What fails, for want of memory or descriptors, is tried again
 * after 5 s, and then ever more seldom. Each process is dealt with once, so that what its user does
 * later by other means is left alone.
 *
 * From outside it does not show who did it: a program that somebody has moved off the GPU with the
 * vendor's own tool comes in too, and a client that somebody has stopped goes on, once, if a cede
 * without its journal begins just then. */
#ifndef CEDE_ENGINE_SURVEY_H
#define CEDE_ENGINE_SURVEY_H

#include "engine/swap.h"

struct suspect {
    struct proc_id id;
    uint32_t scans, groups;
    bool failed;
    bool client; /* of an MPS server: those are stopped by a signal */
};

struct survey {
    uint64_t floor_us; /* a timeslice that the scheduler may set */
    struct suspect *v;
    uint32_t n, next;
    uint64_t at;
    bool lost;             /* somebody was not listed or dealt with: listed again at list_at */
    struct swapper search; /* for what is off the GPU; pid 0: none */
    struct watch *watch;
    bool search_ended;
    uint64_t list_at, search_at; /* TIME_NEVER: that is done, or is going on */
    unsigned failures;
};

/* What the journal says is missing. stays: the engine is there long enough to bring something in.
 */
void survey_begin(struct survey *s, struct model *m, bool stays);
/* One more process, which may become a job's; nothing else of it is known. */
void survey_add(struct survey *s, const struct model *m, struct proc_id id);
/* Looks at what is due; returns when the next is. */
uint64_t survey_due(struct survey *s, struct model *m);
/* Takes what the search found, if it has ended. */
void survey_take(struct survey *s, struct model *m);
/* A process in no job, now, as far as that takes no longer than a person waits; what is left is
 * done in later ticks. -ENODEV: there is nothing of it on a GPU. */
int survey_free(struct survey *s, struct model *m, struct proc_id id, struct error *err);
/* All groups of a job count as suspended, because a person has seen it wait. */
void survey_distrust(struct model *m, uint32_t job);
/* restore: what is left is looked at now, for a moment. */
void survey_end(struct survey *s, struct model *m, bool restore);

#endif
