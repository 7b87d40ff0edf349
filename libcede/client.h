/* Inside libcede.
 *   cede.c  requests, statistics: under `lock`, never waits
 *   lead.c  the GPU is here when the work comes
 *   link.c  the daemon: connection, page, class and weight
 * Order of locks: the list of handles (link.c), talk, lock; a lead's own is taken alone. */
#ifndef CEDE_LIBCEDE_CLIENT_H
#define CEDE_LIBCEDE_CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "cede/cede.h"
#include "lib/hints_proto.h"
#include "libcede/clock.h"
#include "libcede/lead.h"

#define OPEN_MAX   256 /* requests with deadlines whose earliest is known; more are only counted */
#define SUB        16  /* buckets an octave */
#define OCTAVES    40  /* of ns */
#define CLIENT_API __attribute__((visibility("default")))

struct stream_hint {
    cede_stream stream;
    uint64_t deadline_us, laxity_us; /* 0: not said */
    int priority;
    bool prior; /* that was said */
};

/* A request that is due. */
struct open_request {
    uint64_t deadline_ns; /* 0: free */
    uint64_t need_us;
    int priority;
};

struct cede {
    struct cede *next;    /* of the list of handles */
    pthread_mutex_t talk; /* who speaks with the daemon */
    pthread_mutex_t lock; /* all else here */

    int fd;       /* -1: none */
    dev_t fd_dev; /* a program may close what it did not open */
    ino_t fd_ino;
    pid_t pid;                   /* of this process, as the daemon sees it */
    struct hints_page *page;     /* NULL: nobody reads */
    unsigned owed;               /* answers to come */
    uint64_t look_ns;            /* when to look after the connection */
    uint64_t asked_ns;           /* when the daemon was asked for the page */
    int told_class, told_weight; /* -1: nothing that the daemon does not know */

    struct lead *lead; /* NULL: none; set once */
    bool lead_forked;  /* it is the parent's */

    uint64_t generation; /* changes in a forked child */
    uint64_t begun, ended, due, met, max_ns;
    struct open_request open[OPEN_MAX];
    uint32_t earliest; /* of them; OPEN_MAX: none */
    uint32_t open_end; /* slots below may be in use */
    uint32_t nstreams;
    struct stream_hint job, streams[CEDE_STREAMS_MAX];
    uint64_t histogram[SUB * (OCTAVES + 1)];
};

/* cede.c: all of it into the page, with the lock held. */
void cede_client_publish(struct cede *c);
/* Forgets requests and statistics. */
void cede_client_reset(struct cede *c);

/* link.c */
int cede_link_add(struct cede *c); /* to the handles that a fork looks after */
void cede_link_remove(struct cede *c);
/* Looks after the connection unless another thread does; wait_ms: for the daemon's answer. */
void cede_link_look(struct cede *c, int wait_ms);
int cede_link_set(struct cede *c, int cls, int weight);

#endif
