/* The restorer that stands by while ceded runs, and is replaced should it die. */
#ifndef CEDE_DAEMON_STANDBY_H
#define CEDE_DAEMON_STANDBY_H

#include "recovery/journal.h"

struct standby {
    struct journal *journal;
    pid_t pid; /* 0: none */
    int pipe;  /* -1: it was never started, or has died */
    uint64_t started_ns;
};

int standby_start(struct standby *s, struct journal *journal, struct error *err);
/* A child has ended. */
void standby_reap(struct standby *s);
/* Starts another where there is none and it is time. */
void standby_replace(struct standby *s, uint64_t now_ns);
/* When to call that; TIME_NEVER: there is one. */
uint64_t standby_due(const struct standby *s);
/* done: nothing is left for it to undo, and it is waited for, half a second at most. Else it tries
 * by itself. */
void standby_leave(struct standby *s, bool done);

#endif
