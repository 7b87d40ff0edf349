/* The restorer that stands by while ceded runs, and is replaced when it dies. */
#ifndef CEDE_DAEMON_STANDBY_H
#define CEDE_DAEMON_STANDBY_H

#include "journal/journal.h"

struct standby {
    struct journal *journal;
    pid_t pid; /* 0: none */
    int pipe;  /* -1: no restorer was started, or it has died */
    uint64_t started_ns;
};

int standby_start(struct standby *s, struct journal *journal, struct error *err);
/* Called after SIGCHLD. */
void standby_reap(struct standby *s);
/* Starts another restorer when there is none and standby_due() has come. */
void standby_replace(struct standby *s, uint64_t now_ns);
/* When to call standby_replace(); TIME_NEVER: a restorer runs. */
uint64_t standby_due(const struct standby *s);
/* done: nothing is left to undo, so the restorer is dismissed and waited for, half a second at
 * most. Otherwise it undoes by itself what is left. */
void standby_leave(struct standby *s, bool done);

#endif
