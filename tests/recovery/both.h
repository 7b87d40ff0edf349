/* The end of ceded and of its restorer at the same moment, so that neither undoes anything. */
#ifndef CEDE_TESTS_RECOVERY_BOTH_H
#define CEDE_TESTS_RECOVERY_BOTH_H

#include "../e2e/fixture.h"

static inline void kill_now(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(await_child(pid), 1000 + SIGKILL);
}

static inline void kill_both(pid_t daemon, pid_t restorer)
{
    kill(restorer, SIGSTOP); /* nothing between the one kill and the other */
    await_state(restorer, "T");
    kill_now(daemon);
    kill_now(restorer);
}

#endif
