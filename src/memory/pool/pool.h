/* Pools: batch jobs of one user, and latency jobs, that share the GPU in space, as clients of an
 * MPS server that cede runs for them. For the scheduler they are one job (model.h, units).
 *
 * MPS fixes a client's part of the GPU when it starts: a latency job has the higher client
 * priority; a batch job that latency jobs may join has the lower one and a part of the SMs, because
 * running blocks are not preempted within a server.
 *
 * A pool is a directory of its user, for each setting of CUDA_VISIBLE_DEVICES (and each pid
 * namespace), with these files:
 *   start    locked while a process starts or ends the pool
 *   users    locked (shared) by each program in it, as long as it or a child of it lives
 *   latency  the same for latency programs
 *   batch    the same for batch programs with all SMs and the priority of a latency program
 *   keeper   locked by the keeper, a process that starts the MPS control daemon, watches it, and
 *            ends it when no program has locked `users` for some seconds
 *   control  the pid of the control daemon, and whether it was asked to end
 *   faults   a line for each MPS server, or control daemon, that ended or failed while it was used
 *   mps, log the control daemon's directories
 * So a pool needs no scheduler, and outlives each of its users, the process that started it and its
 * keeper: the next user starts another keeper, which takes over. */
#ifndef CEDE_MEMORY_POOL_POOL_H
#define CEDE_MEMORY_POOL_POOL_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/util.h"

#define POOL_CONTROL "nvidia-cuda-mps-control"
/* Variables that pool_join() sets, besides CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY.
 * There are two priorities: 0, normal, and 1, below that. */
#define POOL_SM       "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define POOL_PRIORITY "CUDA_MPS_CLIENT_PRIORITY"
#define POOL_MEMORY   "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" /* of each process, "0=8192M,1=8192M" */

struct pool {
    char dir[80];     /* MPS adds the names of sockets, which have at most 107 bytes */
    int users, kind;  /* the locks; -1: none */
    bool unlimited;   /* for a latency program: a batch program has all SMs and its priority */
    off_t faults_end; /* the file's size when the program joined */
};

/* The terms on which a program joins. */
struct pool_terms {
    bool latency;        /* it is a latency program */
    bool may_join;       /* of a batch program: latency programs may join, as if one were there */
    unsigned sm_percent; /* the most of the GPU's multiprocessors that it may use; 0: all */
    unsigned latency_sm; /* the same for a batch program that latency programs may join */
    uint32_t memory_mib; /* the most memory that it may have on a GPU; 0: any */
};
/* Makes this process a user of its pool, which is started if it is not there, and sets the
 * environment for that. cede: the keeper's executable; NULL: this process's. Waits for at most
 * POOL_WAIT_S. -ENOENT: no control daemon in $PATH; -EEXIST: the environment names another MPS;
 * -ETIMEDOUT, -EIO: it does not start; -ENAMETOOLONG, ... */
#define POOL_WAIT_S 20
int pool_join(struct pool *p, const struct pool_terms *t, const char *cede, struct error *err);
/* Called in the child that will execute the program: keeps the pool for as long as the program
 * lives, even if its parent ends. */
void pool_enter(const struct pool *p);
/* The newest line in `faults` since the program joined, or NULL. Waits for the keeper to notice a
 * fault of just now, for at most POOL_NOTICE_S. */
#define POOL_NOTICE_S 2
const char *pool_fault(const struct pool *p, char buf[static 160]);

/* `cede-pool DIRECTORY`: the keeper, with the descriptors of its lock and of a pipe for its answer.
 * Returns the exit status. */
#define POOL_LOCK_FD  3
#define POOL_READY_FD 4
int pool_keeper_main(int argc, char **argv);

#endif
