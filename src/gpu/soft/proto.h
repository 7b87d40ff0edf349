/* The messages between the software GPU's server and its clients: programs (contexts) and the
 * driver (controls). Both ends run on one machine and are built together, so that a message is a
 * plain struct in a SEQPACKET message of exactly the size of its type. Private to src/gpu/soft and
 * softgpu.
 *
 *   program:  OPEN_CONTEXT -> REPLY, then SUBMIT ... -> COMPLETION ..., and with no kernel
 *             outstanding ALLOC | USES -> REPLY
 *   driver:   OPEN_CONTROL -> REPLY, then one request at a time: LIST -> GROUPS,
 *             CONTROL | SWAP -> REPLY when the call is done, MEMORY -> MEMORY,
 *             COUNTERS -> COUNTERS, SWITCHES -> SWITCHES; or
 *             OPEN_CONTROL -> REPLY, WATCH -> REPLY, then -> OPENED for each context that is opened
 * Anything else closes the connection. */
#ifndef CEDE_GPU_SOFT_PROTO_H
#define CEDE_GPU_SOFT_PROTO_H

#include "gpu/soft/client.h"

#include <stddef.h>
#include <sys/types.h>

/* "sg", and a number for each incompatible change (bench/programs/softgpu.py has it too). */
#define SOFT_VERSION             0x73670009U
#define SOFTGPU_TIMESLICE_US     2048U /* as the vendor's library sets it */
#define SOFTGPU_TIMESLICE_MIN_US 1U
#define SOFTGPU_TIMESLICE_MAX_US 1000000U
#define SOFT_TIMESLICE_BACK_US   1024U /* of a compute group after a swap, as on an H200 */
#define SOFT_OUTSTANDING_MAX     1024U /* kernels and unread completions of a context */
#define SOFT_COPY_GROUPS         3U    /* of a context, after its compute group */
#define SOFT_CONTEXT_GROUPS      (1U + SOFT_COPY_GROUPS)

enum softgpu_call { SOFTGPU_SUSPEND, SOFTGPU_TIMESLICE, SOFTGPU_RESUME, SOFTGPU_PREEMPT };

enum soft_type {
    SOFT_OPEN_CONTEXT = 1,
    SOFT_OPEN_CONTROL,
    SOFT_REPLY,
    SOFT_SUBMIT,
    SOFT_COMPLETION,
    SOFT_LIST,
    SOFT_GROUPS,
    SOFT_CONTROL,
    SOFT_ALLOC,
    SOFT_MEMORY,
    SOFT_SWAP,
    SOFT_USES,
    SOFT_COUNTERS,
    SOFT_SWITCHES,
    SOFT_WATCH,
    SOFT_OPENED,
    SOFT_TYPES
};

/* The steps of swapping a process, as with the vendor's driver. LOCK leads from RUNNING to LOCKED,
 * MOVE_OUT to OUT, MOVE_IN back to LOCKED, UNLOCK to RUNNING. SHARES asks whether the process has
 * memory of another one open: 0 or 1. */
enum soft_swap {
    SOFT_SWAP_STATE,
    SOFT_LOCK,
    SOFT_MOVE_OUT,
    SOFT_MOVE_IN,
    SOFT_UNLOCK,
    SOFT_SHARES
};

/* Memory of a context that checkpoints cannot move. On an H200 with driver 580 the checkpoint of a
 * process with managed memory was refused, and one with memory of another process (CUDA IPC) was
 * swapped out but could not be brought back. */
enum soft_memory { SOFT_MEMORY_OWN, SOFT_MEMORY_MANAGED, SOFT_MEMORY_SHARED, SOFT_MEMORY_KINDS };

struct soft_group {
    uint64_t key;
    uint64_t start_ticks; /* of the owner */
    uint64_t busy_ns, bursts;
    uint64_t memory_bytes; /* of the context; only a compute group has it */
    int32_t pid;
    uint32_t gpu;
    uint32_t copy; /* 0: compute, 1: copy */
    uint32_t timeslice_us;
    uint32_t shared;     /* number of the compute group of an MPS server's clients; else 0 */
    uint32_t block_ends; /* 1: it is preempted only at block ends */
};

struct soft_msg {
    uint32_t version, type;
    union {
        struct {
            uint32_t gpu;
            uint32_t ranks; /* 0: the context is not a rank of a gang */
            uint64_t gang;
            /* Those of an MPS server's directory; inode 0: the context is no client. */
            uint64_t mps_device, mps_inode;
            uint32_t memory;               /* enum soft_memory */
            uint16_t sm_percent, priority; /* from the client's environment; 0: all */
        } open;
        struct {
            int32_t result; /* 0 or -errno; of SOFT_SWAP_STATE an enum swap_state */
            uint32_t gpus;
        } reply;
        struct {
            uint64_t cookie;
            uint32_t stream, duration_ns;
            float sm_fraction;
            uint32_t fault; /* 1: it accesses memory that does not exist */
            uint64_t launch_ns;
        } submit;
        struct soft_completion completion;
        /* Groups with larger keys than `after`, in the order of the keys. */
        struct {
            uint64_t after;
            uint64_t start_ticks;
            int32_t pid; /* 0: of all processes */
            uint32_t compute_only;
        } list;
        struct {
            uint64_t now_ns;
            uint32_t n;
            uint32_t more; /* 1: there are more, after the last of these */
            struct soft_group v[64];
        } groups;
        struct {
            uint32_t what; /* enum softgpu_call */
            uint32_t value;
            uint32_t n, zero;
            uint64_t keys[16]; /* of any processes; the call takes as long for all as for one */
        } control;
        struct {
            int64_t bytes; /* more, or < 0: less */
        } alloc;
        struct {
            uint32_t gpu, zero;
            uint64_t total_bytes, free_bytes; /* in the answer */
            char driver[32];                  /* in the answer: gpu_info.driver */
        } memory;
        struct {
            uint64_t start_ticks;
            int32_t pid;
            uint32_t step;    /* enum soft_swap; of STATE the result is an enum swap_state */
            uint32_t lock_ms; /* of LOCK */
            uint32_t zero;
        } swap;
        struct {
            int32_t pid;
            uint32_t gpu;
        } opened;
        struct {
            float parts[GPU_PARTS]; /* load that its kernels put on each, 0 to 1 */
        } uses;
        struct {
            uint32_t gpu, zero;
            uint64_t now_ns, parts_ns[GPU_PARTS]; /* in the answer: softgpu_counters() */
        } counters;
        /* The switches from number `first` on, as many as fit. In the answer `first` is the number
         * of v[0], which is larger if switches were lost, and `end` that of the next switch there
         * will be. The record runs while a connection that asked with `on` asks now and then. */
        struct {
            uint32_t gpu, on, n, zero;
            uint64_t first, end;
            struct soft_switch {
                uint64_t ns;
                int32_t pid; /* 0: nobody's kernels run */
                uint32_t zero;
            } v[64];
        } switches;
    } u;
};

/* Bytes of a message; 0 for an unknown type. */
static inline size_t soft_msg_size(uint32_t type)
{
#define SIZE(member) (offsetof(struct soft_msg, u) + sizeof(((struct soft_msg *)0)->u.member))
    static const size_t sizes[SOFT_TYPES] = {
        [SOFT_OPEN_CONTEXT] = SIZE(open), [SOFT_OPEN_CONTROL] = SIZE(open),
        [SOFT_REPLY] = SIZE(reply),       [SOFT_SUBMIT] = SIZE(submit),
        [SOFT_LIST] = SIZE(list),         [SOFT_COMPLETION] = SIZE(completion),
        [SOFT_GROUPS] = SIZE(groups),     [SOFT_CONTROL] = SIZE(control),
        [SOFT_ALLOC] = SIZE(alloc),       [SOFT_MEMORY] = SIZE(memory),
        [SOFT_SWAP] = SIZE(swap),         [SOFT_USES] = SIZE(uses),
        [SOFT_COUNTERS] = SIZE(counters), [SOFT_SWITCHES] = SIZE(switches),
        [SOFT_WATCH] = SIZE(opened),      [SOFT_OPENED] = SIZE(opened),
    };
#undef SIZE
    return type < SOFT_TYPES ? sizes[type] : 0;
}

/* These are in client.c. Connects and opens; the reply is in *m. 0 or -errno; -EPERM: the server is
 * neither root's nor this user's, or does not serve this user. server: its pid, or NULL. */
int soft_connect(const char *path, struct soft_msg *m, int *fd, pid_t *server);
/* Sends a message and gets the answer, of type `want`, for which the server has 60 s. -ETIMEDOUT,
 * -EPIPE (the server has gone), -EPROTO: the connection cannot be used any more. */
int soft_transact(int fd, struct soft_msg *m, uint32_t want);

#endif
