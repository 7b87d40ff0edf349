/* Inside the software GPU's server: its connections and GPUs, and what its files offer each other.
 *   server.c   the loop, connections, set-up
 *   context.c  what a program asks for: contexts, gangs, kernels, memory
 *   control.c  what a driver asks for: lists, controls, free memory, swapping */
#ifndef CEDE_SOFTGPU_SERVER_IMPL_H
#define CEDE_SOFTGPU_SERVER_IMPL_H

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <sys/un.h>

#include "gpu/ops.h"
#include "gpu/soft/proto.h"
#include "softgpu/engine.h"
#include "who/procfs.h"

enum conn_kind { CONN_NEW, CONN_CONTEXT, CONN_CONTROL, CONN_DEAD };

struct conn {
    TAILQ_ENTRY(conn) link; /* of control connections */
    enum conn_kind kind;
    int fd;
    bool writes; /* it is waited for that more fits in its socket */
    struct proc_id proc;
    uid_t uid;

    /* control */
    uint64_t reply_ns; /* when `result` is sent; SOFTGPU_NEVER: no call under way */
    int32_t result;
    bool watches; /* it is told of each context */

    /* context */
    uint64_t memory_bytes; /* allocated */
    enum soft_memory memory;
    enum swap_state swap, swap_to;
    uint64_t swap_at_ns; /* when it is in swap_to; SOFTGPU_NEVER: no step under way */
    uint32_t gpu;
    uint32_t ranks; /* of its gang; 0: it is in none */
    uint64_t gang;  /* its id, unless a rank of it has gone: nobody can join it then */
    uint32_t gang_number, collectives; /* the server's number for it; kernels so far */
    uint64_t mps_device, mps_inode;    /* its MPS server; inode 0: it has none */
    uint32_t shared;                   /* number of its compute group if it has one, else 0 */
    uint64_t key;                      /* of the first group; the others' follow */
    uint32_t groups[SOFT_CONTEXT_GROUPS];
    uint32_t suspensions[SOFT_CONTEXT_GROUPS]; /* of each, so far */
    uint32_t outstanding;                      /* kernels whose completion was not sent */
    uint32_t unsent_first, unsent_n;           /* ring: the socket was full */
    struct softgpu_completion unsent[SOFT_OUTSTANDING_MAX];
};

/* Seconds at some thousand switches per second, and that long without a reader. */
#define SWITCHES         16384U
#define SWITCHES_IDLE_NS (5 * NSEC_PER_SEC)

struct gpu {
    uint32_t contexts;
    struct conn **by_group; /* whose compute group has that number */
    size_t by_group_n;
    uint32_t resets; /* that were seen */
    uint64_t memory_bytes, used_bytes;
    struct softgpu_switch *switches;       /* NULL: not recorded */
    uint64_t switches_first, switches_end; /* numbers: of the first there is, of the next */
    uint64_t switches_until_ns;
};

struct server {
    int listener, signals, polls; /* polls: an epoll of all, NULL being the signals */
    bool accepting, listens;      /* it is to accept; and the epoll knows */
    struct conn **conns;          /* in the order of their keys */
    size_t nconns, conns_cap;
    bool buries; /* some are dead */
    TAILQ_HEAD(, conn) controls;
    uint64_t swap_due_ns; /* none is due before */
    struct fabric fabric; /* an engine for each GPU, all at now_ns */
    struct gpu gpus[DEVICE_GPUS_MAX];
    uint64_t now_ns, next_key;
    uint32_t gangs, mps_servers; /* their numbers so far */
    struct sockaddr_un addr;
    ino_t inode;        /* of the socket file: unlink no other */
    const char *grants; /* NULL: whose program it is alone decides (yama_may_trace()) */
    const char *driver; /* the release that it shows; NULL: none */
    uint32_t inert;     /* calls that are answered and have no effect: 1 << enum softgpu_call */
};

/* One more bit of `inert`: every second suspension of a group has no effect. */
#define INERT_SECOND_SUSPEND (SOFTGPU_PREEMPT + 1U)

#define for_each_conn_from(s, first, c)                                                            \
    for (size_t c##_i = (first); c##_i < (s)->nconns && ((c) = (s)->conns[c##_i]); c##_i++)
#define for_each_context(s, c)                                                                     \
    for_each_conn_from (s, 0, c)                                                                   \
        if (c->kind == CONN_CONTEXT)

/* The first connection whose groups' keys are not all below this one; nconns: there is none. */
static inline size_t server_find(const struct server *s, uint64_t key)
{
    size_t lo = 0, hi = s->nconns;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (s->conns[mid]->key + SOFT_CONTEXT_GROUPS <= key)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static inline bool soft_reply(const struct server *s, int result, struct soft_msg *answer)
{
    *answer = (struct soft_msg){.type = SOFT_REPLY, .u.reply = {result, s->fabric.n}};
    return true;
}

/* The functions for messages. False: the message is against the rules. `answer` is sent if it has
 * a type afterwards. */
typedef bool soft_handler(struct server *s, struct conn *c, const struct soft_msg *m,
                          struct soft_msg *answer);
soft_handler context_open, context_submit, context_alloc, context_uses;
soft_handler control_list, control_memory, control_groups, control_swap, control_counters,
    control_switches;
/* The context's groups, and its memory with it. */
void context_end(struct server *s, struct conn *c);
/* Ends records of switches that nobody reads. */
void control_switches_due(struct server *s);
/* Ends the steps of swapping that are due. */
void control_swap_due(struct server *s);

#endif
