/* What the end-to-end tests of the software GPU share: a server in a process of its own, and calls
 * that fail the test when they fail. Include after cmocka's prerequisites. */
#ifndef TESTS_DEVICE_SOFT_FIXTURE_H
#define TESTS_DEVICE_SOFT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "device/ops.h"
#include "device/soft/client.h"

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
#define end_to_end(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

struct soft_client *client(const struct fixture *f, unsigned gpu);
struct device_driver *driver(const struct fixture *f);
/* The same kernel several times, on all SMs. */
void submit(struct soft_client *c, uint32_t duration_ns, unsigned times);
struct soft_completion wait_for(struct soft_client *c);
struct proc_id id_of(pid_t pid);
/* Groups of a process, oldest first; the caller frees. */
struct group_list scan(struct device_driver *d, pid_t pid);
/* The first n groups of the list (at most 8), in one call: suspend or resume. */
int switch_groups(struct device_driver *d, const struct group_list *l, size_t n, bool suspend);
/* Both steps of each; the first error. */
int swap_away(struct device_driver *d, struct proc_id proc, unsigned lock_ms, struct error *err);
int swap_back(struct device_driver *d, struct proc_id proc);

#endif
