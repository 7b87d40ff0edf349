/* The HIP gate as it is installed, on the stand-in library, against the daemon's driver: a closed
 * device holds a program, a driver that goes lets it on, and mixes of everything have the results
 * that they have alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "device/ops.h"

static char dir[64], socket_path[96];

struct child {
    pid_t pid;
    int to, from; /* the program's descriptors 3 and 4 */
};

static struct child start(const char *what, const char *arg, const char *out, bool gated)
{
    int to[2], from[2];
    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    struct child c = {fork(), to[1], from[0]};
    assert_true(c.pid >= 0);
    if (c.pid == 0) {
        int in3 = fcntl(to[0], F_DUPFD, 20), out4 = fcntl(from[1], F_DUPFD, 20);
        dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
        dup2(in3, 3);
        dup2(out4, 4);
        setenv("CEDE_GATE", socket_path, 1);
        if (gated)
            setenv("LD_PRELOAD", getenv("GATE"), 1);
        execl(getenv("PROG"), "prog", what, arg, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    return c;
}

static int end(struct child *c)
{
    int status = -1;
    close(c->to);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    close(c->from);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static struct device_driver *driver(void)
{
    struct device_driver *d;
    struct pid_list pids = {0};
    assert_int_equal(device_gate.open(socket_path, &d, NULL), 0);
    assert_int_equal(d->ops->processes(d, &pids, NULL), 0);
    pid_list_free(&pids);
    return d;
}

/* Sets all that the process has; how much that is. */
static size_t set(struct device_driver *d, pid_t pid, bool runs, uint64_t us)
{
    struct pid_list pids = {0};
    struct group_list l = {0};
    struct proc_stat st;
    assert_int_equal(d->ops->processes(d, &pids, NULL), 0);
    pid_list_free(&pids);
    if (proc_stat_read(pid, &st) == 0)
        d->ops->scan(d, st.id, &l, NULL);
    size_t n = l.n;
    for (size_t i = 0; i < n; i++) {
        const struct device_group *g = &l.v[i];
        d->ops->set_timeslice(d, g, us, NULL);
        d->ops->set_running(d, &g, 1, runs, NULL);
    }
    group_list_free(&l);
    return n;
}

static bool says(const struct child *c, int ms)
{
    struct pollfd p = {.fd = c->from, .events = POLLIN};
    char byte;
    return poll(&p, 1, ms) == 1 && read(c->from, &byte, 1) == 1;
}

static void held_and_let_go(void **state)
{
    (void)state;
    struct device_driver *d = driver();
    struct child c = start("each", NULL, "/dev/null", true);
    assert_true(says(&c, 10000)); /* the first call: it has found the daemon */
    for (int i = 0; i < 10000 && !set(d, c.pid, false, 1000); i++)
        usleep(1000);
    assert_int_equal(write(c.to, "x", 1), 1);
    for (int i = 0; i < 20; i++) {
        set(d, c.pid, false, 1000);
        assert_false(says(&c, 10));
    }
    set(d, c.pid, true, 1000);
    assert_true(says(&c, 10000));
    set(d, c.pid, false, 1000);
    assert_int_equal(write(c.to, "x", 1), 1);
    assert_false(says(&c, 100));
    device_close(d); /* and nobody is there */
    assert_true(says(&c, 10000));
    while (write(c.to, "x", 1) == 1 && says(&c, 10000))
        ;
    assert_int_equal(end(&c), 0);
}

static void text_of(const char *path, char *buf, size_t size)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    buf[fread(buf, 1, size - 1, f)] = '\0';
    fclose(f);
}

static void mixes(void **state)
{
    (void)state;
    struct device_driver *d = driver();
    static char a[65536], b[65536];
    char seed[16], out[2][96];
    for (int s = 1; s <= 30; s++) {
        snprintf(seed, sizeof(seed), "%d", s);
        for (int gated = 0; gated < 2; gated++) {
            int status;
            snprintf(out[gated], sizeof(out[gated]), "%s/out%d", dir, gated);
            struct child c = start("mix", seed, out[gated], gated);
            for (int i = 0;
                 gated &&
                 waitid(P_PID, (id_t)c.pid, &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                 kill(c.pid, 0) == 0 && i < 40;
                 i++) {
                set(d, c.pid, i % 3 != 0, i % 2 ? 200 : 5000);
                usleep(1000);
            }
            if (gated)
                set(d, c.pid, true, 0);
            status = end(&c);
            assert_int_equal(status, 0);
        }
        text_of(out[0], a, sizeof(a));
        text_of(out[1], b, sizeof(b));
        assert_true(strlen(a) > 10);
        assert_string_equal(a, b);
    }
    device_close(d);
}

int main(void)
{
    snprintf(dir, sizeof(dir), "/tmp/cede-hip-gate-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    snprintf(socket_path, sizeof(socket_path), "%s/gate", dir);
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {cmocka_unit_test(held_and_let_go), cmocka_unit_test(mixes)};
    int r = cmocka_run_group_tests_name("gate_hip_driver", tests, NULL, NULL);
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command) == 0 ? r : 1;
}
