/* A daemon that hangs while programs are suspended, or in the middle of a call that suspends
 * several: its restorer resumes them, even if the device refuses that at first. The device is made
 * up, the restorer real. */
#include "journal/restorer.h"
#include "journal/restorers.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.h"

/* In memory that both processes have. */
struct made_up {
    _Atomic int refuses, refuses_pid;
    _Atomic unsigned refused, resumed;
    _Atomic unsigned away, opened; /* the device cannot be opened; how often that was tried */
    _Atomic unsigned suspended[8]; /* by key */
};
static struct made_up *gpu;

static int set_running(struct device_driver *d, const struct device_group *const *g, size_t n,
                       bool on, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (gpu->refuses || g[i]->proc.pid == gpu->refuses_pid) {
            gpu->refused++;
            return -EIO;
        }
    }
    for (size_t i = 0; i < n; i++)
        gpu->suspended[g[i]->key] -= gpu->suspended[g[i]->key] > 0;
    gpu->resumed += (unsigned)n;
    return 0;
}

static void close_driver(struct device_driver *d)
{
}

static const struct device_ops ops = {
    .name = "made-up", .set_running = set_running, .close = close_driver};
static struct device_driver driver = {.ops = &ops};

int __wrap_device_open(const char *name, const char *where, struct device_driver **out,
                       struct error *err);
int __wrap_device_open(const char *name, const char *where, struct device_driver **out,
                       struct error *err)
{
    gpu->opened++;
    *out = gpu->away ? NULL : &driver;
    return gpu->away ? error_set(err, -ENODEV, "it is away") : 0;
}

static pid_t start_restorer(const struct journal *j, int *to)
{
    char name[] = "cede-restore", *argv[] = {name, NULL};
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[1]);
        const int above[] = {fcntl(journal_fd(j), F_DUPFD, 10),
                             fcntl(journal_lock_fd(j), F_DUPFD, 10), fcntl(fds[0], F_DUPFD, 10),
                             fcntl(journal_memory_fd(j), F_DUPFD, 10)};
        for (int i = 0; i < 4; i++)
            dup2(above[i], RESTORE_JOURNAL_FD + i);
        _exit(restore_main(1, argv));
    }
    close(fds[0]);
    *to = fds[1];
    return pid;
}

static bool reaches(const _Atomic unsigned *counter, unsigned n)
{
    for (int i = 0; *counter < n && i < 40000; i++)
        usleep(1000);
    return *counter >= n;
}

static struct journal *begin(char *dir)
{
    struct journal *j;
    gpu = mmap(NULL, sizeof(*gpu), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(gpu, MAP_FAILED);
    assert_non_null(mkdtemp(dir));
    assert_int_equal(journal_open(dir, 0, &j, NULL), 0);
    return j;
}

static void finish(struct journal *j, const char *dir, pid_t restorer, int to)
{
    char cmd[64];
    uint32_t flags;
    int status;
    restorer_dismiss(to);
    assert_int_equal(waitpid(restorer, &status, 0), restorer);
    assert_int_equal(status, 0);
    for (uint32_t i = 0; i < journal_groups_end(j); i++)
        assert_null(journal_group(j, i, &flags));
    journal_close(j);
    snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    assert_int_equal(system(cmd), 0);
    munmap(gpu, sizeof(*gpu));
}

TEST(resumed_at_last)
{
    struct proc_stat self;
    char dir[] = "/tmp/cede-test-XXXXXX";
    int to;
    struct journal *j = begin(dir);
    gpu->refuses = 1;
    assert_int_equal(proc_stat_read(getpid(), &self), 0);
    const struct device_group g = {.proc = self.id, .key = 1};
    assert_int_equal(journal_put_group(j, 0, JG_SUSPENDED, &g), 0);
    journal_shared(j)->heartbeat_ns = 1;
    const pid_t restorer = start_restorer(j, &to);
    assert_true(reaches(&gpu->refused, 5)); /* each attempt is two calls */
    gpu->refuses = 0;
    assert_true(reaches(&gpu->resumed, 1));
    finish(j, dir, restorer, to);
}

/* A GPU that is away, as while its driver is changed, is tried a few times, and then seldom. */
TEST(away)
{
    struct proc_stat self;
    char dir[] = "/tmp/cede-test-XXXXXX";
    int to;
    struct journal *j = begin(dir);
    gpu->away = 1;
    assert_int_equal(proc_stat_read(getpid(), &self), 0);
    const struct device_group g = {.proc = self.id, .key = 1};
    assert_int_equal(journal_put_group(j, 0, JG_SUSPENDED, &g), 0);
    journal_shared(j)->heartbeat_ns = 1;
    const pid_t restorer = start_restorer(j, &to);
    sleep(6);
    assert_in_range(gpu->opened, 2, 6); /* after 0, 0.5, 1.5, 3.5 s, and once to undo */
    gpu->away = 0;
    assert_true(reaches(&gpu->resumed, 1));
    finish(j, dir, restorer, to);
}

/* All groups of three processes are on record, half of them are suspended, one process has ended,
 * and one is refused for a while, which keeps nobody else suspended. */
TEST(half_of_a_call)
{
    char dir[] = "/tmp/cede-test-XXXXXX";
    int to;
    pid_t pids[3];
    struct journal *j = begin(dir);
    for (uint32_t i = 0; i < 6; i++) {
        struct proc_stat st;
        if (i % 2 == 0 && (pids[i / 2] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
        assert_int_equal(proc_stat_read(pids[i / 2], &st), 0);
        const struct device_group g = {.proc = st.id, .key = i + 1};
        assert_int_equal(journal_put_group(j, i, JG_SUSPENDED, &g), 0);
        gpu->suspended[i + 1] = i < 5;
    }
    gpu->refuses_pid = pids[0];
    kill(pids[1], SIGKILL);
    waitpid(pids[1], NULL, 0);
    journal_shared(j)->heartbeat_ns = 1;
    const pid_t restorer = start_restorer(j, &to);
    assert_true(reaches(&gpu->refused, 5));
    assert_true(reaches(&gpu->resumed, 2));
    assert_int_equal(gpu->suspended[5], 0);
    assert_int_equal(gpu->suspended[1], 1);
    gpu->refuses_pid = 0;
    assert_true(reaches(&gpu->resumed, 4));
    assert_true(gpu->suspended[1] == 0 && gpu->suspended[2] == 0);
    finish(j, dir, restorer, to);
    for (int i = 0; i < 3; i += 2) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}
