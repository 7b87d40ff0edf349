/* Which processes use a GPU: each belongs to a job by its ancestors, becomes a job by a rule, or is
 * unmanaged. Decides nothing and changes nothing on a device. */
#ifndef CEDE_ENGINE_OBSERVE_DISCOVERY_H
#define CEDE_ENGINE_OBSERVE_DISCOVERY_H

#include "model/ancestors.h"

/* What a GPU process that no job owns shall be: 1; 0: it is left alone; an error: that cannot be
 * told now, and is asked again at the next look, until which it is left alone. -EAGAIN: that is
 * being found out. With spec->again also 0: no agent has reported anything of it after
 * spec->facts; else that becomes the number of the latest report. */
typedef int (*rule_fn)(void *arg, pid_t pid, struct job_spec *spec);

struct discovery {
    rule_fn rule; /* NULL: none */
    void *rule_arg;
    uint64_t at, soon_at, took_ns; /* the last one took so long */
    struct ancestors ancestors;
    size_t from;          /* which program in no job is the first to be looked at */
    bool left;            /* one look was not enough for all programs in no job: */
    pid_t next_pid;       /* of new ones, by number, this is the next time's first, */
    size_t check;         /* of known ones this, */
    size_t first;         /* and of those of which it is not known whose they are, by age, this */
    unsigned njobs;       /* at the last look; and */
    uint64_t next_number; /* of the job that is the next to begin after it */
    bool device_lost;     /* reported once, not every second */
    /* A driver is another release than when the engine began: nothing is known of it, so nothing is
     * scanned or steered any more. */
    bool driver_changed;
    uint64_t driver_at; /* when that is looked at again */
};

/* Until nothing is left, but for a fifth of a second at most: -EAGAIN. */
int discovery_all(struct discovery *d, struct model *m);
/* Runs it if it is due; returns when the next is. */
uint64_t discovery_due(struct discovery *d, struct model *m);

#endif
