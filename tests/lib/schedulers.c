/* Which processes are parts of cede, which it never steers: of another user's none is. */
#include "lib/schedulers.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NOBODY 65534

static void other_users(void **state)
{
    (void)state;
    int fds[2];
    char c;
    struct proc_stat st;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork(); /* of this executable */
    if (pid == 0) {
        prctl(PR_SET_NAME, "cede-check");
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (write(fds[1], "", 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(fds[0], &c, 1), 1);
    assert_int_equal(proc_stat_read(pid, &st), 0);
    assert_true(proc_is_scheduler(&st, geteuid()));
    assert_true(proc_is_scheduler(&st, 0));
    assert_false(proc_is_scheduler(&st, geteuid() == NOBODY ? 1 : NOBODY));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(other_users)};
    return cmocka_run_group_tests_name("schedulers", tests, NULL, NULL);
}
