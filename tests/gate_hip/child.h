/* A HIP program that a test starts and talks to: a byte from it after each step, and a byte to it
 * for the next. */
#ifndef CEDE_TESTS_GATE_HIP_CHILD_H
#define CEDE_TESTS_GATE_HIP_CHILD_H

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.h"

struct child {
    pid_t pid;
    int to, from; /* the program's descriptors 3 and 4 */
};

/* With its output in that file; under the gate that GATE in the environment names, or without. */
static inline struct child child_start(const char *program, const char *what, const char *arg,
                                       const char *out, bool gated)
{
    int to[2], from[2];
    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    struct child c = {fork(), to[1], from[0]};
    assert_true(c.pid >= 0);
    if (c.pid == 0) {
        int in3 = fcntl(to[0], F_DUPFD_CLOEXEC, 20), out4 = fcntl(from[1], F_DUPFD_CLOEXEC, 20);
        dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), 1);
        dup2(in3, 3);
        dup2(out4, 4);
        if (gated)
            setenv("LD_PRELOAD", getenv("GATE"), 1);
        alarm(60);
        execl(program, program, what, arg, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    return c;
}

/* The exit status, or 128 and the signal. */
static inline int child_end(struct child *c)
{
    int status = -1;
    close(c->to);
    close(c->from);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    c->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline bool child_says(const struct child *c, int ms)
{
    char byte;
    struct pollfd p = {.fd = c->from, .events = POLLIN};
    return poll(&p, 1, ms) == 1 && read(c->from, &byte, 1) == 1;
}

#endif
