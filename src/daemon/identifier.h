/* What rules look at beyond /proc, as ceded has it: cede-identify, which is started when it is
 * first asked and again when it has ended, and what agents told. */
#ifndef CEDE_DAEMON_IDENTIFIER_H
#define CEDE_DAEMON_IDENTIFIER_H

#include <uv.h>

#include "control/config.h"
#include "control/identities.h"
#include "control/lookups.h"

struct identifier {
    uv_loop_t *loop;
    uv_poll_t *poll; /* NULL: none runs */
    int link;
    pid_t pid; /* 0: none */
    uint64_t start_at;
    struct lookups *lookups;       /* this and the next are NULL without memory, */
    struct identities *identities; /* or if this is never begun */
    void (*answered)(void *arg, bool late);
    void *arg;
};

/* answered: called after answers; late: as lookups_take(). */
void identifier_init(struct identifier *x, uv_loop_t *loop, void (*answered)(void *arg, bool late),
                     void *arg);
/* The rules of the configuration, with what they need, into l; what can never match is logged.
 * Where identifier_init() was not called there are none: a transient daemon serves those who
 * started it, and looks for nobody else's programs. */
void identifier_use(struct identifier *x, struct rule_list *l, const struct config *c,
                    struct accounts *people);
/* After SIGCHLD. */
void identifier_reap(struct identifier *x);
/* It ends by itself then. */
void identifier_free(struct identifier *x);

#endif
