/* Starts programs, makes a private directory, and leaves no process and no file behind. The test
 * bed (testbed.h) and the tests' harness share it; it knows nothing of cede. */
#ifndef CEDE_TESTBED_PROCESS_H
#define CEDE_TESTBED_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "lib/util.h"

struct process_spec {
    const char *file;                     /* NULL: argv[0], searched for in PATH */
    const char *const *argv, *const *env; /* env: pairs of name and value, ended by NULL; or NULL */
    int fds[3];                           /* its standard descriptors; -1: /dev/null */
    bool own_group;                       /* ^C is not for it; kill(-pid) is */
    bool traceable;       /* by every process of the user, where Yama allows ancestors alone */
    int death_signal;     /* it gets this one when we die; 0: none */
    const sigset_t *mask; /* its signal mask; NULL: ours */
};

/* The descriptors stay the caller's. -errno. A program that cannot be executed ends with a
 * message on its standard error and status 127. */
int process_start(const struct process_spec *spec, pid_t *pid);

/* A new directory PREFIXxxxxxx. -errno. */
int process_make_dir(const char *prefix, char *buf, size_t size);
void process_remove_dir(const char *dir);

/* Waits, at most that long, for all children of this process, orphans that came to it as their
 * subreaper included, then kills those that are left. */
void process_end_all(uint64_t patience_ns);

#endif
