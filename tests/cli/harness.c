/* See harness.h. */
#include "harness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/util.h"
#include "doctor/cleanup.h"
#include "who/procfs.h"

#define PATIENCE_MS 20000

static char dir[64];

const char *harness_dir(void)
{
    return dir;
}

const char *harness_file(const char *name)
{
    static char paths[8][160];
    static unsigned n;
    char *path = paths[n++ % ARRAY_SIZE(paths)];
    snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    return path;
}

const char *harness_exe(void)
{
    const char *exe = getenv("CEDE_EXE");
    return exe ? exe : "cede";
}

int harness_begin(void **state)
{
    if (process_make_dir("/tmp/cede-test-", dir, sizeof(dir)) < 0)
        return -1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setenv("CEDE_DIR", dir, 1);
    setenv("CEDE_SOFT_SOCKET", harness_file("no-gpu"), 1);
    setenv("LC_ALL", "C", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return 0;
}

int harness_end(void **state)
{
    process_end_all(0); /* a test that failed half-way leaves programs behind */
    process_remove_dir(dir);
    return access(dir, F_OK) < 0 ? 0 : -1;
}

pid_t harness_start(const char *const argv[], int in, int out, int err, bool own_group)
{
    const struct child_spec spec = {.file = strcmp(argv[0], "cede") == 0 ? harness_exe() : NULL,
                                    .argv = argv,
                                    .fds = {{in, 0}, {out, 1}, {err, 2}},
                                    .inherit = true,
                                    .group = own_group};
    pid_t pid;
    assert_int_equal(child_start(&spec, &pid), 0);
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

static bool has_part(const char *text, const char *part)
{
    return !part || (*part ? strstr(text, part) != NULL : !*text);
}

void run_says(struct result *r, int status, const char *out, const char *err,
              const char *const argv[])
{
    run_program(r, NULL, argv);
    if (status_of(r->status) == status && has_part(r->out, out) && has_part(r->err, err))
        return;
    for (size_t i = 0; argv[i]; i++)
        print_message("%s ", argv[i]);
    fail_msg("status %d, it says\n%s%s", status_of(r->status), r->out, r->err);
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

void reads(int fd, const char *line)
{
    char buf[512];
    read_line(fd, buf, sizeof(buf));
    assert_string_equal(buf, line);
}

void ends_with(pid_t pid, int status)
{
    int st;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(status_of(st), status);
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

/* ' stands for ". NULL of NULL. */
static char *quoted(const char *text)
{
    char *s = text ? strdup(text) : NULL;
    for (char *c = s; c && *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return s;
}

static void serve(int listener, const char *const replies[])
{
    char buf[70000], *reply;
    size_t k = 0;
    int log_fd = open(harness_file("requests"), O_WRONLY | O_APPEND | O_CLOEXEC);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        ssize_t n;
        while (fd >= 0 && (n = recv(fd, buf, sizeof(buf) - 1, 0)) > 0) {
            buf[n] = '\n';
            if (write_full(log_fd, buf, (size_t)n + 1) < 0)
                _exit(1);
            if (replies[k] && !*replies[k] && replies[k + 1]) { /* silence, until the client goes */
                k++;
                continue;
            }
            reply = quoted(replies[k]);
            if (!reply || send(fd, reply, strlen(reply), MSG_NOSIGNAL) < 0)
                break;
            free(reply);
            k += replies[k + 1] != NULL || replies[k] == NULL;
        }
        close(fd);
    }
}

pid_t fake_daemon(uid_t uid, const char *const replies[])
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/socket", dir);
    int log_fd = open(harness_file("requests"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
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
    char *text = calloc(1, OUTPUT_MAX);
    assert_non_null(text);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(harness_file("socket"));
    chmod(dir, 0700);
    int fd = open(harness_file("requests"), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    slurp(fd, text, OUTPUT_MAX);
    return text;
}

/* wanted is cut up. */
static bool has_parts(const char *text, char *wanted)
{
    char *save;
    if (wanted[0] == '{' || !wanted[0])
        return strcmp(text, wanted) == 0;
    for (char *part = strtok_r(wanted, " ", &save); part; part = strtok_r(NULL, " ", &save)) {
        const bool none = part[0] == '!';
        if ((strstr(text, part + none) != NULL) == none)
            return false;
    }
    return true;
}

static void check_talk(const struct talk *t, size_t i)
{
    static struct result r;
    const char *replies[TALK_REPLIES + 1] = {NULL};
    char *words = strdup(t->command), *wanted = quoted(t->asked), *set[5], *save;
    const char *argv[20] = {"cede"};
    size_t argc = 1, nset = 0;
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        char *value = argc == 1 ? strchr(w, '=') : NULL;
        if (value) {
            *value = '\0';
            setenv(w, value + 1, 1);
            set[nset++] = w;
        } else {
            argv[argc++] = w;
        }
    }
    memcpy(replies, t->replies, sizeof(t->replies));
    const char *uid = getenv("DAEMON_UID");
    pid_t daemon = fake_daemon(uid ? (uid_t)atoi(uid) : (uid_t)-1, replies);
    run_program(&r, NULL, argv);
    char *asked = fake_daemon_end(daemon);
    if (status_of(r.status) != t->status || (t->out && strcmp(r.out, t->out) != 0) ||
        !strstr(r.err, t->err) || (!t->err[0] && r.err[0]) || (wanted && !has_parts(asked, wanted)))
        fail_msg("%zu, cede %s: status %d, it asked\n%sand said\n%s%s", i, t->command,
                 status_of(r.status), asked, r.out, r.err);
    while (nset > 0)
        unsetenv(set[--nset]);
    free(asked);
    free(wanted);
    free(words);
}

void check_talks(const struct talk *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (getuid() == 0 || !strstr(v[i].command, "DAEMON_UID"))
            check_talk(&v[i], i);
    }
}
