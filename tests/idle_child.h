/* A child that waits for nothing but its end, which also comes with that of the test. */
#ifndef CEDE_TESTS_IDLE_CHILD_H
#define CEDE_TESTS_IDLE_CHILD_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

/* In a child that the test has made itself. */
static inline void idle(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        pause();
}

static inline pid_t idle_child(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        idle();
    return pid;
}

static inline void end_child(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

#endif
