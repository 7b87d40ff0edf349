/* The interface of the software GPU for programs, which submit kernels and wait for completions. It
 * stands for the vendor's compute library; cede-load's soft back end uses it. Not thread-safe.
 * Functions return 0 or -errno. */
#ifndef CEDE_GPU_SOFT_CLIENT_H
#define CEDE_GPU_SOFT_CLIENT_H

#include <stdint.h>

#include "base/gpu_parts.h"

#define SOFTGPU_STREAMS 32U /* of one group */

struct soft_client;

struct soft_kernel {
    uint32_t stream;      /* kernels of one stream run in order */
    uint32_t duration_ns; /* on an idle GPU */
    float sm_fraction;    /* the part of the SMs that it occupies, (0..1] */
    uint64_t cookie;      /* returned with the completion */
    /* When the program's host launches it, by the device's clock. Host work between launches so has
     * its exact length, however late the server handles the call. A time that has passed, such as
     * 0: at once. At most a year ahead. */
    uint64_t launch_ns;
};

/* Times are the device's clock in ns (CLOCK_MONOTONIC of the server). They are those of the events,
 * and do not depend on when the server's process was scheduled. */
struct soft_completion {
    uint64_t cookie;
    uint64_t submit_ns; /* accepted by the GPU */
    uint64_t start_ns;  /* first ran */
    uint64_t end_ns;    /* ended */
};

/* A gang is contexts of one user, each on another GPU, whose n-th kernels are one collective, as
 * with NCCL: each occupies its GPU until all ranks have run at the same time for its duration. When
 * a rank ends, the kernels of the others never do, and another gang may use the number. */
struct soft_gang {
    uint64_t id; /* any number but 0 */
    uint32_t ranks;
};

/* Creates one context (one compute and three copy groups), a rank of `gang` if that is not NULL.
 * path: the server's socket, or NULL for soft_default_path(). Of the environment these count:
 * - CUDA_MPS_PIPE_DIRECTORY: if the directory exists, the context is a client of an MPS server, as
 *   with the vendor's library: all contexts of this user on this GPU with the same directory share
 *   one compute group. The directory may be empty.
 * - CUDA_VISIBLE_DEVICES: if it begins with a number or a name such as SOFT-1, it lists the GPUs
 *   that the program has, which counts them from 0.
 * - CEDE_SOFT_FAULT=N: the N-th kernel accesses memory that does not exist. The context is lost,
 *   and with it all clients of its MPS server (-EPIPE).
 * -ENOENT / -ECONNREFUSED: no server.
 * -ENODEV: there is no such GPU, or CUDA_VISIBLE_DEVICES lists fewer.
 * -EINVAL: the gang cannot have this rank: it is complete, has one on that GPU, or would have fewer
 * than two or more than there are GPUs. */
int soft_client_open(const char *path, unsigned gpu, const struct soft_gang *gang,
                     struct soft_client **out);
void soft_client_close(struct soft_client *c);

/* Submits a kernel. -EAGAIN: too many kernels (1024) are outstanding. */
int soft_client_submit(struct soft_client *c, const struct soft_kernel *k);

/* Gets the next completion; timeout_ns 0: does not wait. -ETIMEDOUT, -EPIPE (the server has gone),
 * -EINTR (a signal came while it waited). */
int soft_client_wait(struct soft_client *c, uint64_t timeout_ns, struct soft_completion *out);

/* Allocates more of the GPU's memory, or frees it (bytes < 0). Waits while the process is swapped
 * out. -ENOMEM: no room; -EBUSY: completions are outstanding; -EINVAL: it has less than that. */
int soft_client_alloc(struct soft_client *c, int64_t bytes);

/* Sets the load, 0 to 1, that its kernels put on each part of the GPU when they run alone; at first
 * 0. The GPU's counters show it, and clients of an MPS server that together overload a part slow
 * each other down. -EINVAL: out of range; -EBUSY: completions are outstanding. */
int soft_client_uses(struct soft_client *c, const float uses[GPU_PARTS]);

/* Gets $CEDE_SOFT_SOCKET, or $XDG_RUNTIME_DIR/cede-softgpu, or /tmp/cede-softgpu-UID/socket. */
int soft_default_path(char *buf, unsigned long size);

#endif
