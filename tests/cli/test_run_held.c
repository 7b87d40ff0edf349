/* `cede run` below a shell, while ceded holds its program for moments. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "harness.h"

/* ceded stops clients of MPS servers for moments: no shell shall see a stopped job then. ^Z it
 * sees. */
static void batch_job_is_held(void **state)
{
    (void)state;
    int out, status;
    char line[64];
    pid_t runner = start_program(&out, (const char *const[]){"cede", "run", "--gpu-device", "soft",
                                                             "-c", "batch", "sh", "-c",
                                                             "echo $$; exec sleep 600", NULL});
    read_line(out, line, sizeof(line));
    pid_t program = (pid_t)strtol(line, NULL, 10);
    kill(program, SIGSTOP);
    await_state(program, "T");
    kill(runner, SIGWINCH); /* it has looked at its child before it forwards this */
    await_state(runner, "S");
    assert_int_equal(waitpid(runner, &status, WUNTRACED | WNOHANG), 0);
    kill(program, SIGCONT);
    await_state(program, "S");
    kill(program, SIGTSTP);
    assert_int_equal(waitpid(runner, &status, WUNTRACED), runner);
    assert_true(WIFSTOPPED(status));
    kill(program, SIGKILL);
    assert_int_equal(waitpid(runner, &status, 0), runner);
    assert_int_equal(status_of(status), 1000 + SIGKILL);
    close(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(batch_job_is_held)};
    return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
