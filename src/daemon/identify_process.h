/* ceded's sources of facts beyond /proc, for rules: the process cede-identify, which is started at
 * the first question and again when it has ended, and the reports of agents. */
#ifndef CEDE_DAEMON_IDENTIFY_PROCESS_H
#define CEDE_DAEMON_IDENTIFY_PROCESS_H

#include <uv.h>

#include "daemon/config.h"
#include "who/agent_reports.h"
#include "who/identify_lookups.h"

struct identifier {
    uv_loop_t *loop;
    uv_poll_t *poll; /* NULL: no process runs */
    int link;
    pid_t pid; /* 0: none */
    uint64_t start_at;
    struct lookups *lookups; /* NULL: identifier_init() was not called */
    struct identities *identities;
    void (*answered)(void *arg, bool late);
    void *arg;
};

/* answered() is called after answers have come; late: see lookups_take(). -ENOMEM */
int identifier_init(struct identifier *x, uv_loop_t *loop, void (*answered)(void *arg, bool late),
                    void *arg);
/* Fills l with the configuration's rules and their sources, and logs rules that can never match.
 * Without identifier_init() l has no rules: a transient daemon serves only the jobs of its user,
 * and classifies no other programs. */
void identifier_use(struct identifier *x, struct rule_list *l, const struct config *c,
                    struct principals *principals);
/* Called after SIGCHLD. */
void identifier_reap(struct identifier *x);
/* Closes the link, at which cede-identify ends by itself. */
void identifier_free(struct identifier *x);

#endif
