/* Pools: batch jobs of one user, and latency jobs, that share the GPU in space, as clients of an
 * MPS server that cede runs for them. To the scheduler they are one job (model.h, units).
 *
 * What a client has of the GPU is decided when it starts: a latency job has the higher client
 * priority, and a batch job that latency jobs may join the lower one and a part of the SMs at most,
 * since blocks that run are not preempted within a server.
 *
 * A pool is a directory of its user, for each setting of CUDA_VISIBLE_DEVICES (and each pid
 * namespace):
 *   start    locked while somebody starts or ends it
 *   users    locked (shared) by each program in it, as long as it or a child of it lives
 *   latency  locked so by each latency program, too
 *   batch    and by each batch program that has all SMs and the same priority as a latency program
 *   keeper   locked by the keeper, a process that starts the MPS control daemon, watches it, and
 *            ends it when nobody has locked `users` for some seconds
 *   control  which process the control daemon is, and whether it was asked to end
 *   faults   a line for each MPS server, or control daemon, that has ended or failed under its
 *            users
 *   mps, log the daemon's own directories
 * So a pool needs no scheduler, and outlives every one of its users, the runner that started it
 * and, if it must, its keeper: the next user starts another keeper, which takes over. */
#ifndef CEDE_POOL_POOL_H
#define CEDE_POOL_POOL_H

#include <stdbool.h>
#include <sys/types.h>

#include "lib/util.h"

#define POOL_CONTROL "nvidia-cuda-mps-control"
/* What pool_join() puts into the environment, besides CUDA_MPS_PIPE_DIRECTORY and
 * CUDA_MPS_LOG_DIRECTORY. There are two priorities: 0, normal, and 1, below that. */
#define POOL_SM       "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define POOL_PRIORITY "CUDA_MPS_CLIENT_PRIORITY"

struct pool {
    char dir[80];     /* MPS adds the names of sockets, which have at most 107 bytes */
    int users, kind;  /* the locks; -1: none */
    bool unlimited;   /* for a latency program: batch programs have all SMs and its priority */
    off_t faults_end; /* what was in the file before */
};

/* How a program is in it. */
struct pool_terms {
    bool latency;        /* it is a latency program */
    bool may_join;       /* else: latency programs may join; also while there is one */
    unsigned sm_percent; /* of the GPU's multiprocessors that it may use at most; 0: all */
    unsigned latency_sm; /* what a batch program has at most where latency programs may join */
};
/* Makes this process a user of its pool, which is started if need be, and puts what leads programs
 * there into the environment. cede: the executable that the keeper is; NULL: this process's. Waits
 * for at most POOL_WAIT_S. -ENOENT: no control daemon in $PATH; -EEXIST: the environment names
 * another MPS; -ETIMEDOUT, -EIO: it does not start; -ENAMETOOLONG, ... */
#define POOL_WAIT_S 20
int pool_join(struct pool *p, const struct pool_terms *t, const char *cede, struct error *err);
/* In the child that is about to execute the program, which keeps the pool for as long as it lives,
 * whatever becomes of its runner. */
void pool_enter(const struct pool *p);
/* What has befallen the pool since, also just now: its newest line in `faults`, or NULL. Waits for
 * the keeper, at most POOL_NOTICE_S. */
#define POOL_NOTICE_S 2
const char *pool_fault(const struct pool *p, char buf[static 160]);

/* `cede-pool DIRECTORY LOCK READY`: the keeper. Returns the exit status. */
int pool_keeper_main(int argc, char **argv);

#endif
