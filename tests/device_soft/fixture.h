/* What the end-to-end tests of the software GPU share: a server in a process of its own, and calls
 * that fail the test when they fail. */
#ifndef TESTS_DEVICE_SOFT_FIXTURE_H
#define TESTS_DEVICE_SOFT_FIXTURE_H

#include <sys/types.h>

#include "../test.h"
#include "clean.h"

#define US       1000U
#define MS       1000000U
#define PATIENCE 20000 /* ms until a wait that has to succeed is given up */

struct fixture {
    char dir[64], path[80]; /* the socket is in a directory that the server makes */
    pid_t server;
};

/* A server with two GPUs and driver 999.1; returns when it listens. If it ends instead: -1, and how
 * in *status. */
pid_t start_server(const char *path, uid_t uid, int *status);
extern const char *inert; /* --inert of servers that are started from now on; NULL: none */
void stop_server(pid_t pid);

/* One server a test; the teardown checks that it ends well and leaves nothing behind. */
int setup(void **state);
int teardown(void **state);
/* Lets other users in. */
void open_to_all(const struct fixture *f);
#define END_TO_END(name) TEST_IN(name, struct fixture *f, setup, teardown)

struct soft_client *client(const struct fixture *f, unsigned gpu);
struct device_driver *driver(const struct fixture *f);
/* The same kernel several times, on all SMs. */
void submit(struct soft_client *c, uint32_t duration_ns, unsigned times);
struct soft_completion wait_for(struct soft_client *c);
/* The last of so many. */
struct soft_completion wait_for_all(struct soft_client *c, unsigned times);
/* Submits, and waits for all of them. */
struct soft_completion run(struct soft_client *c, uint32_t duration_ns, unsigned times);
void drain(struct soft_client *c);    /* takes what has completed */
void has_none(struct soft_client *c); /* no completion is there */
struct proc_id id_of(pid_t pid);
/* Groups of a process, oldest first; the caller frees. */
struct group_list scan(struct device_driver *d, pid_t pid);
/* The first n groups of the list (at most 8), in one call: suspend or resume. */
int switch_groups(struct device_driver *d, const struct group_list *l, size_t n, bool suspend);
/* A process with a context on GPU 0 and so many kernels of a second with half of the SMs, a client
 * of the MPS server of that directory if it is not NULL; waits to be killed. */
pid_t start_client(const struct fixture *f, const char *mps, uid_t uid, unsigned kernels);
/* Kills it; returns when the server knows. */
void end_client(struct device_driver *d, pid_t pid);
/* Both steps of each; the first error. */
int swap_away(struct device_driver *d, struct proc_id proc, unsigned lock_ms, struct error *err);
int swap_back(struct device_driver *d, struct proc_id proc);

#endif
