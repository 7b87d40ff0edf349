/* A client program's side of the software GPU: submit kernels, wait for completions.
 * This is to the software GPU what the vendor's compute library is to a real one; cede-load's soft
 * back end is written on it. Not thread-safe. Functions return 0 or -errno. */
#ifndef CEDE_DEVICE_SOFT_CLIENT_H
#define CEDE_DEVICE_SOFT_CLIENT_H

#include <stdint.h>

#include "lib/gpu_parts.h"

struct soft_client;

struct soft_kernel {
    uint32_t stream;      /* kernels of one stream run in order */
    uint32_t duration_ns; /* on an idle GPU */
    float sm_fraction;    /* of the SMs it occupies, (0..1] */
    uint64_t cookie;      /* comes back in the completion */
    /* When the program's host launches it, by the device's clock, however late the server handles
     * the call: host work between launches has its exact length. A time that has passed, such as
     * 0: at once. At most a year ahead. */
    uint64_t launch_ns;
};

/* Times are the device's clock in ns (CLOCK_MONOTONIC of the server, exact event times: not
 * disturbed by when the server's process happened to be scheduled). */
struct soft_completion {
    uint64_t cookie;
    uint64_t submit_ns; /* accepted by the GPU */
    uint64_t start_ns;  /* first ran */
    uint64_t end_ns;    /* ran to its end */
};

/* Contexts of one user, each on another GPU, whose n-th kernels are one collective, as NCCL's are:
 * each occupies its GPU until all ranks have run at the same time for its duration. When a rank
 * ends, the kernels of the others never do, and the number may be used for another gang. */
struct soft_gang {
    uint64_t id; /* any number but 0 */
    uint32_t ranks;
};

/* path: the server's socket, or NULL for soft_default_path(). Creates one context (one compute and
 * three copy groups), a rank of `gang` if that is not NULL.
 * Where the environment's CUDA_MPS_PIPE_DIRECTORY names a directory that exists, the context is a
 * client of an MPS server, as the vendor's library would make it: all contexts of this user on this
 * GPU that were opened with the same directory have one compute group together. There need not be
 * anything in the directory.
 * CUDA_VISIBLE_DEVICES in the environment, if it begins with a number or a name such as SOFT-1: the
 * GPUs that there are for the program, which counts them from 0.
 * CEDE_SOFT_FAULT=N in the environment: the N-th kernel accesses memory that is not there. The
 * context is lost, and with it all clients of its MPS server (-EPIPE).
 * -ENOENT / -ECONNREFUSED: no server.
 * -ENODEV: there is no such GPU, or CUDA_VISIBLE_DEVICES lists fewer.
 * -EINVAL: the gang cannot have this rank: it is complete, has one on that GPU, or would have fewer
 * than two or more than there are GPUs. */
int soft_client_open(const char *path, unsigned gpu, const struct soft_gang *gang,
                     struct soft_client **out);
void soft_client_close(struct soft_client *c);

/* -EAGAIN when too many kernels (1024) are outstanding. */
int soft_client_submit(struct soft_client *c, const struct soft_kernel *k);

/* Next completion; timeout_ns 0: do not wait. -ETIMEDOUT, -EPIPE (the server has gone), -EINTR (a
 * signal came while it waited). */
int soft_client_wait(struct soft_client *c, uint64_t timeout_ns, struct soft_completion *out);

/* Takes so much more of the GPU's memory, or gives it back (bytes < 0). Waits for its turn while
 * the process is swapped out. -ENOMEM: no room; -EBUSY: completions are outstanding; -EINVAL: more
 * than it has. */
int soft_client_alloc(struct soft_client *c, int64_t bytes);

/* What its kernels use of each part of the GPU while they run alone, 0 to 1, from now on; at first
 * nothing. The GPU's counters show it, and clients of an MPS server that together want more of a
 * part than there is slow each other down. -EINVAL: no such share; -EBUSY: completions are
 * outstanding. */
int soft_client_uses(struct soft_client *c, const float uses[GPU_PARTS]);

/* $CEDE_SOFT_SOCKET, or $XDG_RUNTIME_DIR/cede-softgpu, or /tmp/cede-softgpu-UID/socket. */
int soft_default_path(char *buf, unsigned long size);

#endif
