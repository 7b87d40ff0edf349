/* Tracing a process for the length of a call, with the real kernel: the target is never stopped,
 * loses no signal, and is let go however the tracer ends. Needs no GPU. */
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "../test.h"
#include "gpu/amd/kfd.h"

static int answer_fd;

static void answer(int sig)
{
    if (write(answer_fd, "x", 1) != 1)
        _exit(1);
}

static bool answered(int from)
{
    char c;
    struct pollfd p = {.fd = from, .events = POLLIN};
    return poll(&p, 1, 10000) == 1 && read(from, &c, 1) == 1;
}

/* A process that answers SIGUSR1 with a byte, and is ready to. */
static pid_t start(int *from)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        answer_fd = fds[1];
        signal(SIGUSR1, answer);
        answer(0);
        for (;;)
            pause();
    }
    close(fds[1]);
    *from = fds[0];
    assert_true(answered(*from));
    return pid;
}

static struct proc_id id_of(pid_t pid)
{
    struct proc_stat st;
    assert_int_equal(proc_stat_read(pid, &st), 0);
    return st.id;
}

static void end(pid_t pid, int from)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(from);
}

struct seen {
    pid_t pid, tracer;
    char state;
};

static int look_and_signal(void *arg)
{
    struct seen *s = arg;
    struct proc_stat st;
    proc_stat_read(s->pid, &st);
    s->state = st.state;
    s->tracer = kfd_tracer(s->pid) == gettid() ? s->pid : 0;
    kill(s->pid, SIGUSR1);
    return 17;
}

TEST(test_traced)
{
    int from;
    pid_t pid = start(&from);
    for (int i = 0; i < 20; i++) {
        struct seen s = {.pid = pid};
        assert_int_equal(kfd_io_system.traced(id_of(pid), look_and_signal, &s), 17);
        assert_int_equal(s.tracer, pid);
        assert_true(s.state == 'S' || s.state == 'R');
        assert_int_equal(kfd_tracer(pid), 0);
        assert_true(answered(from)); /* also of a signal that came while it was traced */
    }
    end(pid, from);
}

static int never(void *arg)
{
    *(bool *)arg = true;
    return 0;
}

TEST(refused)
{
    int from;
    bool called = false;
    pid_t pid = start(&from);
    struct proc_id id = id_of(pid), reused = {id.pid, id.start_ticks + 1};
    assert_int_equal(kfd_io_system.traced(reused, never, &called), -ESRCH);
    assert_int_equal(kfd_tracer(pid), 0);
    assert_int_equal(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0); /* somebody debugs it */
    assert_int_equal(kfd_io_system.traced(id, never, &called), -EPERM);
    assert_int_equal(kfd_tracer(pid), getpid());
    assert_false(called);
    end(pid, from);
    assert_int_equal(kfd_io_system.traced(id, never, &called), -ESRCH);
    assert_false(called);
}

static int stay(void *arg)
{
    if (write(*(int *)arg, "t", 1) != 1)
        return -EIO;
    for (;;)
        pause();
}

TEST(tracer_killed)
{
    int from, fds[2];
    pid_t pid = start(&from);
    struct proc_id id = id_of(pid);
    assert_int_equal(pipe(fds), 0);
    pid_t tracer = fork();
    assert_true(tracer >= 0);
    if (tracer == 0)
        _exit(kfd_io_system.traced(id, stay, &fds[1]) == 0);
    assert_true(answered(fds[0]));
    assert_true(kfd_tracer(pid) > 0);
    kill(tracer, SIGKILL);
    waitpid(tracer, NULL, 0);
    assert_int_equal(kfd_tracer(pid), 0);
    kill(pid, SIGUSR1);
    assert_true(answered(from));
    end(pid, from);
    close(fds[0]);
    close(fds[1]);
}
