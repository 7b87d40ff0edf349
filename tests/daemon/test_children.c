/* Children of the daemon that are killed, and end later or at once: none stays a zombie, and nobody
 * waits for one. */
#include <sys/ptrace.h>

#include "../idle_child.h"
#include "daemon/config_reader.h"

static bool gone(struct children *left, pid_t pid)
{
    for (int i = 0; left->n && i < 40000; i++) {
        usleep(1000);
        process_reap(left);
    }
    return !left->n && waitpid(pid, NULL, WNOHANG) < 0 && errno == ECHILD;
}

/* Held at its exit until the tracer has ended, as if a file system did not answer. */
TEST(held_at_its_exit)
{
    struct children left = {.n = 0};
    struct reader r = {.answer = malloc(1)};
    int fds[2];
    char c;
    assert_int_equal(pipe(fds), 0);
    r.pid = fork();
    if (r.pid == 0) {
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
        idle();
    }
    pid_t tracer = fork();
    if (tracer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (ptrace(PTRACE_SEIZE, r.pid, NULL, PTRACE_O_TRACEEXIT) < 0)
            _exit(1);
        (void)!write(fds[1], "", 1);
        idle();
    }
    assert_int_equal(close(fds[1]), 0);
    r.fd = fds[0];
    if (read(fds[0], &c, 1) != 1) {
        kill(r.pid, SIGKILL);
        skip(); /* it may not be traced here */
    }
    const pid_t pid = r.pid;
    reader_stop(&r, &left);
    assert_int_equal(r.pid, 0);
    assert_int_equal(left.n, 1);
    process_reap(&left);
    assert_int_equal(left.n, 1);
    end_child(tracer);
    assert_true(gone(&left, pid));
}

/* Those for which there is no room are not remembered. */
TEST(more_than_there_is_room_for)
{
    struct children left = {.n = 0};
    pid_t pids[CHILDREN_MAX + 1];
    for (size_t i = 0; i <= CHILDREN_MAX; i++) {
        pids[i] = idle_child();
        process_leave(&left, pids[i]);
    }
    assert_int_equal(left.n, CHILDREN_MAX);
    for (size_t i = 0; i <= CHILDREN_MAX; i++)
        kill(pids[i], SIGKILL);
    assert_int_equal(waitpid(pids[CHILDREN_MAX], NULL, 0), pids[CHILDREN_MAX]);
    assert_true(gone(&left, pids[0]));
}
