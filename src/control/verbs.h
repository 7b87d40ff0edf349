/* The verbs of the control socket as calls to the manager: one request in, one reply out. Knows
 * nothing of sockets; who asks is told to it. */
#ifndef CEDE_CONTROL_VERBS_H
#define CEDE_CONTROL_VERBS_H

#include "control/hints.h"
#include "control/rights.h"
#include "engine/manager.h"
#include "lib/log.h"

struct verbs {
    struct manager *manager;
    const struct logger *log;
    /* Applies what is due in the manager now, so that it has happened when the reply is sent. */
    void (*apply)(void *arg);
    void *arg;
    struct hints *hints; /* NULL: nobody can tell of requests */
};

/* malloc'd JSON of at most PROTO_MESSAGE_MAX bytes. NULL: no memory. *fd: a descriptor that goes
 * with it, the caller's; -1: none. */
char *verbs_answer(const struct verbs *v, const struct caller *who, const char *text, size_t n,
                   int *fd);

/* A refusal that has nothing to do with a verb. */
char *verbs_refusal(int code, const struct error *err);

#endif
