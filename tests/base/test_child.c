/* How processes are started: what one gets of its parent, and what not. */
#include "../test.h"
#include "base/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"

#define BIT(signal) (1ULL << ((signal)-1)) /* in /proc/PID/status */

#define SPEC(...) (&(struct child_spec){__VA_ARGS__})

static int status_of(const struct child_spec *spec)
{
    pid_t pid;
    int status;
    assert_int_equal(child_start(spec, &pid), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

/* What the shell says to this script, by its descriptor 1. */
static const char *said(struct child_spec *spec, const char *script)
{
    static char text[4096];
    int out[2];
    size_t i = 0;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    spec->argv = (const char *const[]){"sh", "-c", script, NULL};
    while (spec->fds[i].from || spec->fds[i].as)
        i++;
    spec->fds[i].from = out[1];
    spec->fds[i].as = STDOUT_FILENO;
    assert_int_equal(status_of(spec), 0);
    close(out[1]);
    ssize_t n = read(out[0], text, sizeof(text) - 1);
    close(out[0]);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static int answer(void *arg)
{
    return *(int *)arg;
}

TEST(statuses)
{
    int three = 3, none = 0;
    const char *const missing[] = {"/nonexistent/program", NULL}, *const folder[] = {"/", NULL},
                      *const shell[] = {"sh", "-c", "exit 7", NULL};
    assert_int_equal(status_of(SPEC(.begin = answer, .arg = &three)), 3);
    assert_int_equal(status_of(SPEC(.argv = shell, .begin = answer, .arg = &three)), 3);
    assert_int_equal(status_of(SPEC(.argv = shell, .begin = answer, .arg = &none)), 7);
    assert_int_equal(status_of(SPEC(.argv = shell, .file = "/bin/true")), 0);
    assert_int_equal(status_of(SPEC(.argv = missing, .fds = {{-1, 2}})), 127);
    assert_int_equal(status_of(SPEC(.argv = folder, .fds = {{-1, 2}})), 126);
    assert_int_equal(child_become(missing[0], missing), -ENOENT);
}

/* Out of the way of the numbers that a test wants. */
static void high_pipe(int fds[2])
{
    int low[2];
    assert_int_equal(pipe2(low, O_CLOEXEC), 0);
    for (int i = 0; i < 2; i++) {
        fds[i] = fcntl(low[i], F_DUPFD_CLOEXEC, 20);
        close(low[i]);
    }
}

/* Each by the other's number, and one that is not open by none. */
TEST(descriptors)
{
    int a[2], b[2];
    high_pipe(a);
    high_pipe(b);
    const int three = dup2(a[1], 3), four = dup2(b[1], 4), other = dup2(a[1], 50);
    struct child_spec spec = {.fds = {{-1, 0}, {four, 3}, {three, 4}}};
    assert_string_equal(said(&spec, "printf b >&3; printf a >&4; ls /proc/self/fd | tr '\\n' ' '"),
                        "0 1 2 3 4 5 ");
    char c[2] = "";
    assert_int_equal(read(a[0], c, 1), 1);
    assert_string_equal(c, "a");
    assert_int_equal(read(b[0], c, 1), 1);
    assert_string_equal(c, "b");
    struct child_spec all = {.inherit = true};
    assert_non_null(strstr(said(&all, "ls /proc/self/fd"), "50"));
    struct child_spec null = {.fds = {{-1, 0}}};
    assert_string_equal(said(&null, "readlink /proc/self/fd/0"), "/dev/null\n");
    assert_int_equal(status_of(SPEC(.begin = answer, .fds = {{777, 3}, {-1, 2}})), 126);
    close(other);
    close(three);
    close(four);
    for (int i = 0; i < 2; i++) {
        close(a[i]);
        close(b[i]);
    }
}

/* Sends back what comes by descriptor 3. */
static int send_back(void *arg)
{
    char c;
    (void)arg;
    return recv(3, &c, 1, 0) != 1 || send(3, &c, 1, MSG_NOSIGNAL) != 1;
}

TEST(links)
{
    const char *const reads[] = {"sh", "-c", "exec cat <&3 >&2", NULL}, *const says[] = {
                                                                            "echo", "said", NULL};
    char text[8] = "";
    pid_t pid[3];
    const int fd[3] = {
        child_start_linked(SPEC(.argv = reads, .fds = {{-1, 2}}), CHILD_READS, 3, &pid[0]),
        child_start_linked(SPEC(.argv = says), CHILD_WRITES, STDOUT_FILENO, &pid[1]),
        child_start_linked(SPEC(.begin = send_back), CHILD_SOCKET, 3, &pid[2])};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fcntl(fd[i], F_GETFD), FD_CLOEXEC);
        assert_int_equal(!(fcntl(fd[i], F_GETFL) & O_NONBLOCK), i != 1);
    }
    assert_int_equal(write(fd[0], "x", 1), 1);
    assert_int_equal(send(fd[2], "x", 1, 0), 1);
    assert_int_equal(recv(fd[2], text, 2, 0), 1);
    close(fd[0]); /* at which the first child ends: no other process has that end */
    for (int i = 0; i < 3; i++) {
        int status;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(read(fd[1], text, sizeof(text)), 5);
    assert_string_equal(text, "said\n");
    close(fd[1]);
    close(fd[2]);
}

static volatile sig_atomic_t handled;

static void on_signal(int number)
{
    (void)number;
    handled = 1;
}

/* 1: the handler ran here. */
static int raise_usr1(void *arg)
{
    (void)arg;
    raise(SIGUSR1);
    return handled;
}

/* Which of SIGHUP, SIGUSR1 and SIGUSR2 a program finds blocked and ignored. What runs the tests may
 * have set others, and signals of libc cannot be set back. */
static void finds(struct child_spec *spec, uint64_t blocked, uint64_t ignored)
{
    const uint64_t ours = BIT(SIGHUP) | BIT(SIGUSR1) | BIT(SIGUSR2);
    unsigned long long found[2];
    /* By no other process: dash unblocks all signals in what it starts. */
    const char *text = said(spec, "while read key value; do case $key in SigBlk: | SigIgn:) "
                                  "echo $key $value; esac; done </proc/$$/status");
    assert_int_equal(sscanf(text, "SigBlk: %llx SigIgn: %llx", &found[0], &found[1]), 2);
    assert_int_equal(found[0] & ours, blocked);
    assert_int_equal(found[1] & ours, ignored);
}

TEST(signals)
{
    const struct sigaction own = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN},
                           usual = {.sa_handler = SIG_DFL};
    struct sigaction before[3];
    sigset_t usr2, old, none;
    sigemptyset(&none);
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    sigaction(SIGUSR1, &own, &before[0]);
    sigaction(SIGHUP, &ignore, &before[1]);
    sigaction(SIGUSR2, &usual, &before[2]);
    sigprocmask(SIG_SETMASK, &usr2, &old);
    assert_int_equal(status_of(SPEC(.begin = raise_usr1)), 256 + SIGUSR1);
    assert_int_equal(status_of(SPEC(.begin = raise_usr1, .fresh = true)), 256 + SIGUSR1);
    finds(SPEC(.mask = NULL), BIT(SIGUSR2), BIT(SIGHUP)); /* as here */
    finds(SPEC(.mask = &none), 0, BIT(SIGHUP));
    finds(SPEC(.fresh = true), 0, 0);
    sigprocmask(SIG_SETMASK, NULL, &none);
    assert_int_equal(sigismember(&none, SIGUSR2), 1);
    assert_int_equal(sigismember(&none, SIGTERM), 0);
    sigprocmask(SIG_SETMASK, &old, NULL);
    sigaction(SIGUSR1, &before[0], NULL);
    sigaction(SIGHUP, &before[1], NULL);
    sigaction(SIGUSR2, &before[2], NULL);
}

static int sleep_long(void *arg)
{
    (void)arg;
    return poll(NULL, 0, 20000);
}

static int start_another(void *arg)
{
    pid_t pid;
    if (child_start(SPEC(.begin = sleep_long, .death_signal = SIGKILL), &pid) < 0 ||
        write_full(*(int *)arg, &pid, sizeof(pid)) < 0)
        return 1;
    return 0;
}

TEST(death)
{
    int fds[2], status;
    pid_t pid;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(status_of(SPEC(.begin = start_another, .arg = &fds[1], .inherit = true)), 0);
    assert_int_equal(read(fds[0], &pid, sizeof(pid)), sizeof(pid));
    assert_int_equal(waitpid(pid, &status, 0), pid); /* this process is a subreaper */
    /* Before or after it had asked for the signal. */
    assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 126);
    close(fds[0]);
    close(fds[1]);
}

struct place {
    pid_t pid, parent, group, session;
};

static int tell_place(void *arg)
{
    const struct place p = {getpid(), getppid(), getpgrp(), getsid(0)};
    return write_full(*(int *)arg, &p, sizeof(p)) < 0;
}

static struct place place_of(struct child_spec spec)
{
    int fds[2];
    struct place p;
    pid_t pid;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    spec.begin = tell_place;
    spec.arg = &fds[1];
    spec.inherit = true;
    assert_int_equal(child_start(&spec, spec.detached ? NULL : &pid), 0);
    assert_int_equal(read(fds[0], &p, sizeof(p)), sizeof(p));
    waitpid(p.pid, NULL, 0);
    close(fds[0]);
    close(fds[1]);
    return p;
}

TEST(places)
{
    struct place p = place_of((struct child_spec){.detached = false});
    assert_int_equal(p.parent, getpid());
    assert_int_equal(p.group, getpgrp());
    p = place_of((struct child_spec){.group = true});
    assert_int_equal(p.group, p.pid);
    assert_int_equal(p.session, getsid(0));
    p = place_of((struct child_spec){.session = true});
    assert_int_equal(p.session, p.pid);
    p = place_of((struct child_spec){.detached = true});
    assert_int_not_equal(p.session, getsid(0));
    assert_int_not_equal(p.session, p.pid); /* so it never has a terminal */
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

TEST(environment)
{
    struct child_spec spec = {.env = (const char *const[]){"A", "1", "B", "2 3", NULL}};
    assert_string_equal(said(&spec, "echo \"$A $B\""), "1 2 3\n");
    assert_null(getenv("A"));
}

int main(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return test_run(NULL, NULL);
}
