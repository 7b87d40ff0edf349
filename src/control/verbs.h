/* The verbs as commands to the engine: a request, who asks, and what became of it. Knows nothing of
 * sockets. A command changes what it asks for in run(), and its reply is composed in answer(), when
 * the change is recorded and applied: by then the job may have ended, and who asked may be gone. */
#ifndef CEDE_CONTROL_VERBS_H
#define CEDE_CONTROL_VERBS_H

#include "control/hints.h"
#include "control/rights.h"
#include "control/rules.h"
#include "control/trace.h"
#include "engine/engine.h"

struct verbs {
    struct engine *engine;
    const struct rule_list *rules; /* with accounts; NULL: none */
    struct hints *hints;           /* NULL: no program can report requests */
    struct traces *traces;         /* NULL: nobody can trace */
    bool once; /* no process continues what a verb begins: what needs that is refused */
    uint64_t (*cpu_ns)(void); /* what users are charged by; NULL: the thread's processor time */
    /* Commands of this tick, how many are answered, and cpu_ns() when the first was run: what each
     * took. */
    unsigned batch, answered;
    uint64_t batch_ns;
};

/* What a request is about: a job, or a process in none. */
struct target {
    uint32_t slot; /* SLOT_NONE: no job yet */
    struct job_view view;
    struct proc_id proc; /* of a request that names a pid */
    uid_t proc_uid;
    char comm[32];
};

/* What a verb found, and goes back to if it is taken back (control/take_back.h). */
struct verb_before {
    bool noted; /* it has come to where it changes something */
    bool out;   /* the job was swapped out */
    struct journal_job job, after;
    char policy[32];
    struct sched_params params;
};

/* One request. command.code is what became of it. */
struct verb {
    struct command command;
    struct verbs *verbs;
    struct caller who;
    struct request request;
    int parsed; /* not 0: it is no request; the reason is in error */
    struct target target;
    struct verb_before before;
    bool adopted;              /* its process was in no job before */
    bool again;                /* `cede run` has asked for the same before */
    bool in_none;              /* and is in none now: there is no job to show */
    char note[256];            /* for the reply; "" none */
    char visible[VISIBLE_MAX]; /* for the reply: the GPUs that were chosen */
    int fd;                    /* goes with the reply; -1: none */
    struct error error;
    /* Whether the one who asked still waits. One that has gone was told, or knows, that nothing was
     * done, so nothing is: the verb is dropped. NULL: it waits. No clock says it as well: client
     * and daemon may be in time namespaces of their own, and a wait may be cut short by a signal.
     */
    bool (*awaited)(const struct verb *v);
    /* The verb is the receiver's again; reply is malloc'd JSON of at most PROTO_MESSAGE_MAX bytes,
     * NULL: no memory. */
    void (*done)(struct verb *v, char *reply);
    void *arg;
    uint64_t took_ns; /* the engine's processor time, when done() is called */
};

/* For a request as a message; a message that is none becomes a refusal. */
void verb_parse(struct verb *v, struct verbs *verbs, const struct caller *who, const char *text,
                size_t n);
/* For a request that is there already. */
void verb_init(struct verb *v, struct verbs *verbs, const struct caller *who,
               const struct request *r);

uint64_t verbs_cpu_ns(const struct verbs *verbs);

#endif
