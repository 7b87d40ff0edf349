/* Finds the processes that use a GPU and decides whose each is: it belongs to a job
 * (core/job_of_process.c), becomes a job by a rule, or is unmanaged. Decides when to look again.
 * Changes nothing on a device. */
#ifndef CEDE_CORE_OBSERVE_DISCOVERY_H
#define CEDE_CORE_OBSERVE_DISCOVERY_H

#include "core/ancestors.h"

/* Asks rules about an unmanaged process. 1: it becomes a job with *spec; 0: it stays unmanaged; an
 * error: unknown now (-EAGAIN: facts are being looked up), and the next look asks again. With
 * spec->again it is also 0 if no agent has reported anything about it after spec->facts; otherwise
 * spec->facts becomes the number of the latest report. */
typedef int (*rule_fn)(void *arg, pid_t pid, struct job_spec *spec);

struct discovery {
    rule_fn rule; /* NULL: none */
    void *rule_arg;
    uint64_t at, soon_at, took_ns; /* when looks are due; how long the last one took */
    struct ancestors ancestors;
    /* A look is bounded and the next one goes on: */
    size_t from;          /* unmanaged program at which the search for MPS clients goes on */
    bool left;            /* unmanaged programs are left for the next look */
    pid_t next_pid;       /* first new program of the next look, by pid */
    size_t check;         /* first known program to be checked */
    size_t first;         /* first candidate, by age */
    unsigned njobs;       /* jobs at the last look */
    uint64_t next_number; /* model.next_number at the last look */
    bool device_lost;     /* so that a lost device is reported once, not every second */
    /* The driver's release differs from that at the engine's start. Nothing is known of the new
     * one, so nothing is scanned or steered any more. */
    bool driver_changed;
    uint64_t driver_at; /* when to check its release again */
};

/* Looks until nothing is left, for 0.2 s at most; then -EAGAIN. */
int discovery_all(struct discovery *d, struct model *m);
/* Looks if that is due; returns when the next look is. */
uint64_t discovery_due(struct discovery *d, struct model *m);

#endif
