/* Inside libcede: a handle of cede_connect(), shared by
 *   cede.c  requests and statistics: under `lock`, never waits
 *   link.c  the daemon: connection, page, class and weight
 * Order of locks: the list of handles (link.c), talk, lock; a lead's own is taken alone. */
#ifndef CEDE_LIBCEDE_HANDLE_H
#define CEDE_LIBCEDE_HANDLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "base/link_proto.h"
#include "base/own_fd.h"
#include "libcede/lead.h"
#include "libcede/pure/hints.h"

/* The connection to the daemon; under `talk`. */
struct link {
    struct own_fd own;
    uint64_t page;       /* of which the page is, for the daemon */
    uint64_t asked_ns;   /* when the daemon was asked for a page; not asked again sooner */
    struct link_ask set; /* class and weight for the next daemon; magic 0: none */
    bool sets;           /* they were sent to this one, whose answer has not come */
    atomic_bool met;     /* there has been a daemon; read without a lock */
};

struct cede {
    LIST_ENTRY(cede) entry; /* in the list of handles */
    pthread_mutex_t talk;   /* held while the daemon is talked to */
    struct link link;
    pthread_mutex_t lock;    /* all that follows */
    struct cede_hints hints; /* its page is set under both locks */
    uint64_t check_ns;       /* when a hint looks at the connection next */
    struct lead *lead;       /* NULL: none; set once */
    bool lead_forked;        /* it is the parent's */
};

/* ---- cede.c ---- */

/* cede_request_end(). served: false: it met no deadline, however early it ends. */
int cede_request_finish(struct cede *c, struct cede_request *in, bool served);

/* What was decided on a lease: result 0, or why there is none. True: cede_link_check() is due. */
bool cede_lease_report(struct cede *c, const struct lease_event *e, const char *kernel, int result);

/* ---- link.c: only cede_link_set(), cede_link_room(), cede_link_ask(), and cede_link_check() that
 * waits, ever wait --- */

/* Adds the handle to those that a fork takes care of. 0 or -ENOMEM. */
int cede_link_add(struct cede *c);
void cede_link_remove(struct cede *c);

/* Connects if there is no connection, reads what the daemon sent, notices its end. wait: 100 ms at
 * most for a page; else does nothing while another thread talks to the daemon. */
void cede_link_check(struct cede *c, bool wait);

/* Sends class (1 and its enum job_class) and weight (0: leave as it is), now or to the next daemon.
 * 0, -ETIMEDOUT, or the daemon's errno. */
int cede_link_set(struct cede *c, unsigned class, unsigned weight);

/* Asks the daemon to have `bytes` of that GPU's memory free for this process's job; 0: no longer.
 * gpu: its UUID. Waits 100 ms for the answer at most. 0, -ENOTCONN (no daemon), -ETIMEDOUT, or the
 * daemon's errno; why: in words. */
int cede_link_room(struct cede *c, const char *gpu, uint64_t bytes, char *why, size_t size);

/* One request that a daemon answers at once (base/link_proto.h): 0, and whether what is asked for
 * is still to come; -ENOTCONN; -EINPROGRESS (no answer within 1 s, and it does not happen later);
 * or the daemon's errno. */
int cede_link_ask(struct cede *c, struct link_ask *ask, bool *waits);

#endif
