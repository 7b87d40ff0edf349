/* Inside the software GPU's server: its connections and GPUs, and what its files offer each other.
 *   server.c   the loop, connections, contexts and their kernels
 *   control.c  what a driver asks: lists, controls, memory and swapping */
#ifndef CEDE_DEVICE_SOFT_SERVER_IMPL_H
#define CEDE_DEVICE_SOFT_SERVER_IMPL_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#include "device/ops.h"
#include "device/soft/fabric.h"
#include "device/soft/proto.h"
#include "lib/procfs.h"

#define SOFT_MEMORY_BYTES 141000000000ULL /* an H200's */

enum conn_kind { CONN_NEW, CONN_CONTEXT, CONN_CONTROL, CONN_DEAD };

struct conn {
    struct conn *prev, *next; /* in the order of their keys, for contexts */
    enum conn_kind kind;
    int fd;
    struct proc_id proc;
    uid_t uid;

    /* control */
    uint64_t reply_ns; /* SOFTGPU_NEVER: no call under way */
    int32_t result;

    /* context */
    uint64_t memory_bytes; /* allocated */
    enum swap_state swap, swap_to;
    uint64_t swap_at_ns; /* when it is in swap_to; SOFTGPU_NEVER: no step under way */
    uint32_t gpu;
    uint32_t ranks; /* of its gang; 0: it is in none */
    uint64_t gang;  /* its id, unless a rank of it has gone: nobody can join it then */
    uint32_t gang_number, collectives; /* the server's number for it; kernels so far */
    uint64_t key;                      /* of the first group; the others' follow */
    uint32_t groups[SOFT_CONTEXT_GROUPS];
    uint32_t outstanding;            /* kernels whose completion was not sent */
    uint32_t unsent_first, unsent_n; /* ring: the socket was full */
    struct softgpu_completion unsent[SOFT_OUTSTANDING_MAX];
};

struct gpu {
    struct conn **owners; /* by group number */
    uint32_t owners_cap, contexts;
    uint64_t memory_bytes, used_bytes;
};

struct server {
    int epoll, listener, timer, signals;
    bool accepting;
    struct fabric fabric; /* an engine for each GPU, all at now_ns */
    struct gpu gpus[DEVICE_GPUS_MAX];
    uint64_t now_ns;
    uint32_t gangs;    /* so far */
    struct conn conns; /* head of the list */
    uint64_t next_key;
    struct sockaddr_un addr;
    ino_t inode;        /* of the socket file: unlink no other */
    const char *grants; /* NULL: whose program it is alone decides (yama.h) */
};

static inline struct soft_msg soft_result(const struct server *s, int result)
{
    return (struct soft_msg){.type = SOFT_REPLY, .u.reply = {result, s->fabric.n}};
}

/* control.c. False: the message is against the rules. Else the answer to send, or (control, swap
 * step) c->result to send at c->reply_ns. */
bool soft_list(struct server *s, const struct soft_msg *m, struct soft_msg *answer);
bool soft_alloc(struct server *s, struct conn *c, const struct soft_msg *m,
                struct soft_msg *answer);
bool soft_memory(struct server *s, const struct soft_msg *m, struct soft_msg *answer);
bool soft_control(struct server *s, struct conn *c, const struct soft_msg *m);
bool soft_swap_step(struct server *s, struct conn *c, const struct soft_msg *m);
/* Ends the steps that are due. */
void soft_swap_due(struct server *s);
/* A context goes, and its memory with it. */
void soft_memory_end(struct server *s, struct conn *c);

#endif
