/* See harness.h. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/procfs.h"
#include "lib/util.h"
#include "testbed/process.h"

#define PATIENCE_MS 20000

static char dir[64];

const char *harness_dir(void)
{
    return dir;
}

const char *harness_exe(void)
{
    const char *exe = getenv("CEDE_EXE");
    return exe ? exe : "cede";
}

int harness_begin(void **state)
{
    (void)state;
    char none[96];
    if (process_make_dir("/tmp/cede-test-", dir, sizeof(dir)) < 0)
        return -1;
    snprintf(none, sizeof(none), "%s/no-gpu", dir);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setenv("CEDE_DIR", dir, 1);
    setenv("CEDE_SOFT_SOCKET", none, 1);
    setenv("LC_ALL", "C", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return 0;
}

int harness_end(void **state)
{
    (void)state;
    process_end_all(0); /* a test that failed half-way leaves programs behind */
    process_remove_dir(dir);
    return access(dir, F_OK) < 0 ? 0 : -1;
}

pid_t harness_start(const char *const argv[], int in, int out, int err, bool own_group)
{
    const struct process_spec spec = {.file = strcmp(argv[0], "cede") == 0 ? harness_exe() : NULL,
                                      .argv = argv,
                                      .fds = {in, out, err},
                                      .own_group = own_group};
    pid_t pid;
    assert_int_equal(process_start(&spec, &pid), 0);
    return pid;
}

static int temporary(const char *text)
{
    char name[96];
    snprintf(name, sizeof(name), "%s/io-XXXXXX", dir);
    int fd = mkostemp(name, O_CLOEXEC);
    assert_true(fd >= 0);
    unlink(name);
    if (text) {
        assert_int_equal(write_full(fd, text, strlen(text)), 0);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    }
    return fd;
}

static void slurp(int fd, char *buf, size_t size)
{
    ssize_t n = pread(fd, buf, size - 1, 0);
    buf[n > 0 ? n : 0] = '\0';
    close(fd);
}

void run_program(struct result *r, const char *in, const char *const argv[])
{
    int fds[3] = {temporary(in), temporary(NULL), temporary(NULL)};
    pid_t pid = harness_start(argv, fds[0], fds[1], fds[2], false);
    assert_int_equal(waitpid(pid, &r->status, 0), pid);
    close(fds[0]);
    slurp(fds[1], r->out, sizeof(r->out));
    slurp(fds[2], r->err, sizeof(r->err));
}

int status_of(int st)
{
    return WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st);
}

pid_t start_program(int *out, const char *const argv[])
{
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    /* As a shell does; a group without a parent in the session cannot stop. */
    pid_t pid = harness_start(argv, STDIN_FILENO, fds[1], -1, true);
    close(fds[1]);
    *out = fds[0];
    return pid;
}

void read_line(int fd, char *buf, size_t size)
{
    size_t n = 0;
    for (; n + 1 < size; n++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
        if (read(fd, buf + n, 1) != 1)
            fail_msg("output ended after '%.*s'", (int)n, buf);
        if (buf[n] == '\r')
            n--; /* a terminal's line end */
        else if (buf[n] == '\n')
            break;
    }
    buf[n] = '\0';
}

char process_state(pid_t pid)
{
    struct proc_stat st;
    return proc_stat_read(pid, &st) == 0 ? st.state : '\0';
}

pid_t process_parent(pid_t pid)
{
    struct proc_stat st;
    return proc_stat_read(pid, &st) == 0 ? st.ppid : -1;
}

void await_state(pid_t pid, const char *states)
{
    for (int i = 0; i < PATIENCE_MS / 5; i++) {
        char c = process_state(pid);
        if (c ? strchr(states, c) != NULL : !*states)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    fail_msg("process %d is '%c', not one of '%s'", (int)pid, process_state(pid), states);
}

static void serve(int listener, const char *const replies[])
{
    char buf[70000], log[96];
    size_t k = 0;
    snprintf(log, sizeof(log), "%s/requests", dir);
    int log_fd = open(log, O_WRONLY | O_APPEND | O_CLOEXEC);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        ssize_t n;
        while (fd >= 0 && (n = recv(fd, buf, sizeof(buf) - 1, 0)) > 0) {
            buf[n] = '\n';
            if (write_full(log_fd, buf, (size_t)n + 1) < 0)
                _exit(1);
            const char *reply = replies[k];
            if (reply && !*reply && replies[k + 1]) { /* silence, until the client has gone */
                k++;
                continue;
            }
            if (!reply || send(fd, reply, strlen(reply), MSG_NOSIGNAL) < 0)
                break;
            k += replies[k + 1] != NULL || replies[k] == NULL;
        }
        close(fd);
    }
}

pid_t fake_daemon(uid_t uid, const char *const replies[])
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    char log[96];
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/socket", dir);
    snprintf(log, sizeof(log), "%s/requests", dir);
    int log_fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_true(log_fd >= 0);
    assert_int_equal(fchmod(log_fd, 0666), 0);
    close(log_fd);

    unlink(sa.sun_path);
    int ready[2];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    if (uid != (uid_t)-1)
        assert_int_equal(chmod(dir, 0777), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (uid != (uid_t)-1 && setuid(uid) < 0)
            _exit(1);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 8) < 0)
            _exit(1);
        close(ready[0]);
        close(ready[1]);
        serve(fd, replies);
        _exit(0);
    }
    close(ready[1]);
    char c;
    assert_int_equal(read(ready[0], &c, 1), 0); /* ends when it listens, or has failed */
    close(ready[0]);
    return pid;
}

char *fake_daemon_end(pid_t pid)
{
    char path[96], *text = calloc(1, OUTPUT_MAX);
    assert_non_null(text);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    snprintf(path, sizeof(path), "%s/socket", dir);
    unlink(path);
    chmod(dir, 0700);
    snprintf(path, sizeof(path), "%s/requests", dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    slurp(fd, text, OUTPUT_MAX);
    return text;
}
