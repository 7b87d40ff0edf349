/* The verbs as commands to the engine: a request, its caller and its result. Knows nothing of
 * sockets. A command makes its change in run(), and its reply is composed in answer(), when the
 * change is recorded and applied: by then the job may have ended, and the client may have gone. */
#ifndef CEDE_API_VERBS_H
#define CEDE_API_VERBS_H

#include "api/hints.h"
#include "api/rights.h"
#include "api/rules/rules.h"
#include "api/trace.h"
#include "engine/engine.h"

struct verbs {
    struct engine *engine;
    const struct rule_list *rules; /* with accounts; NULL: none */
    struct hints *hints;           /* NULL: hints are refused */
    struct traces *traces;         /* NULL: traces are refused */
    struct job_sums *sums;         /* NULL: jobs are not summed up */
    bool no_gpu;                   /* only programs that hold their own work are scheduled */
    uint64_t (*cpu_ns)(void); /* the time that users are charged; NULL: the thread's CPU time */
    /* To charge each command its part: the number of commands in this tick, the number answered,
     * and cpu_ns() when the first was run. */
    unsigned batch, answered;
    uint64_t batch_ns;
};

/* An operation; its row is in the table in verbs.c. */
struct verb;
struct operation {
    int (*run)(struct verb *v, struct engine *e);
    /* The JSON; NULL: v->command.code, or no memory. libcede is answered without it. */
    char *(*reply)(struct verb *v, struct engine *e);
    /* Takes back its changes (api/take_back.h); may be NULL. */
    void (*back)(const struct verb *v, struct engine *e, uint32_t job);
    /* For operations that steer a job: */
    int (*change)(struct verb *v, struct engine *e, struct error *err);
    bool of_new; /* change() is also called for a process that has just become a job */
    bool (*waits)(const struct verb *v, const struct engine *e); /* the client is to ask again */
    unsigned decides; /* parts of a yield (enum job_yield) that acquiring then leaves alone */
};

/* The target of a request: a job, or a process in none. */
struct target {
    uint32_t slot; /* SLOT_NONE: no job yet */
    struct job_view view;
    struct proc_id proc; /* if the request names a pid */
    uid_t proc_uid;
    char comm[32];
};

/* The state before a verb, for taking it back (api/take_back.h). */
struct verb_before {
    bool noted; /* the verb was about to make changes */
    bool out;   /* the job was swapped out, by: */
    bool swap_by_user;
    uid_t swap_uid;
    struct journal_job job, after;
    char policy[32];
    struct sched_params params;
};

/* One request. command.code is its result. */
struct verb {
    struct command command;
    struct verbs *verbs;
    struct caller who;
    struct request request;
    const struct operation *op; /* NULL: the message is no valid request */
    int parsed;                 /* < 0: the same, with the reason in error */
    struct target target;
    struct verb_before before;
    bool adopted;              /* its process was in no job before */
    bool again;                /* `cede run` has asked for the same before */
    bool waits;                /* the client is to ask again */
    bool in_none;              /* its process is in no job, so the reply shows none */
    bool vain;                 /* there was nothing to undo, as note says */
    char note[256];            /* for the reply; "": none */
    char visible[VISIBLE_MAX]; /* for the reply: the GPUs that were chosen */
    int fd;                    /* sent with the reply; -1: none */
    struct error error;
    /* Whether the client still waits (NULL: it does). One that has gone takes the request as not
     * done, so the verb is dropped. A clock could not replace this, as client and daemon may be in
     * different time namespaces, and a signal may cut a wait short. */
    bool (*awaited)(const struct verb *v);
    /* Hands the verb back to its owner. reply: malloc'd JSON of at most PROTO_MESSAGE_MAX bytes,
     * or reply_bytes for libcede; NULL: no memory. */
    void (*done)(struct verb *v, char *reply);
    size_t reply_bytes;
    void *arg;
    uint64_t took_ns; /* its processor time in the engine; set before done() */
};

/* Makes a verb of a message; an invalid message is answered with a refusal. */
void verb_parse(struct verb *v, struct verbs *verbs, const struct caller *who, const char *text,
                size_t n);
/* Makes a verb of a parsed request. */
void verb_init(struct verb *v, struct verbs *verbs, const struct caller *who,
               const struct request *r);

uint64_t verbs_cpu_ns(const struct verbs *verbs);

#endif
