/* The messages of libcede on the control socket: a program sends a struct link_ask, about its own
 * process and job, and the daemon answers with a struct link_answer. They go through the same
 * checks as the JSON of api/proto.h; a request whose sender closes the connection before it has the
 * answer is dropped or taken back. */
#ifndef CEDE_BASE_LINK_PROTO_H
#define CEDE_BASE_LINK_PROTO_H

#include <stdint.h>

/* Another number for each change of the messages, or of what struct hints_page has already: a
 * program without a daemon of the same number runs as without a daemon. No JSON begins with any of
 * its bytes. */
#define LINK_MAGIC 0xcededa83U

enum link_op {
    LINK_HINTS,   /* a page for requests, base/hints_proto.h, whose descriptor is sent along */
    LINK_SET,     /* class and weight */
    LINK_ROOM,    /* `bytes` free on a GPU, for a job of class latency; for 5 s, or while the
                     connection of that page lasts */
    LINK_YIELD,   /* class batch and what `flags` say; with LINK_LOOK only the outcome */
    LINK_ACQUIRE, /* what was yielded; repeated within wait_us until it is done */
};
#define ACQUIRE_WAIT_US 5000000 /* the longest wait_us; then the request is made anew, or ends */

#define LINK_PAUSE  1U
#define LINK_MEMORY 2U
#define LINK_LOOK   4U

/* What an operation does not need is 0. */
struct link_ask {
    uint32_t magic, op, flags;
    uint32_t wait_us;
    uint32_t class, weight; /* class: 1 and its enum job_class; 0: it stays as it is */
    uint64_t bytes;         /* 0: no longer */
    uint64_t page;          /* as answered to LINK_HINTS */
    char gpu[64];           /* its UUID; "": the only GPU */
};

struct link_answer {
    uint32_t magic;
    int32_t code;   /* 0 or -errno */
    uint32_t waits; /* 1: it is not done yet */
    uint32_t reserved;
    uint64_t page; /* the number of this connection, and of its page */
};

#endif
