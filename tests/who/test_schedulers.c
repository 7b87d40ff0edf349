/* Which processes are parts of cede, which it never steers: of another user's none is. */
#include "../idle_child.h"
#include "who/schedulers.h"

#include <sys/stat.h>

#define NOBODY 65534

TEST(other_users)
{
    int fds[2];
    char c;
    struct proc_stat st;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork(); /* of this executable */
    if (pid == 0) {
        prctl(PR_SET_NAME, "cede-check");
        (void)!write(fds[1], "", 1);
        idle();
    }
    assert_int_equal(read(fds[0], &c, 1), 1);
    assert_int_equal(proc_stat_read(pid, &st), 0);
    assert_true(proc_is_scheduler(&st, geteuid()));
    assert_true(proc_is_scheduler(&st, 0));
    assert_false(proc_is_scheduler(&st, geteuid() == NOBODY ? 1 : NOBODY));
    end_child(pid);
    close(fds[0]);
    close(fds[1]);
}

/* This process has the name, forks one that has the next, and so on; the last one's pid. */
static pid_t descendants(const char *const *names, int fd)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_NAME, names[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* before there is a child, which ends with this one */
        pid = getpid();
        if (names[1])
            descendants(names + 1, fd);
        else
            (void)!write(fd, &pid, sizeof(pid));
        idle();
    }
    return pid;
}

static bool last_is_scheduler(const char *const *names)
{
    int fds[2];
    pid_t last;
    struct proc_stat st;
    assert_int_equal(pipe(fds), 0);
    pid_t first = descendants(names, fds[1]);
    assert_int_equal(read(fds[0], &last, sizeof(last)), sizeof(last));
    assert_int_equal(proc_stat_read(last, &st), 0);
    const bool is = proc_is_scheduler(&st, geteuid());
    end_child(first);
    close(fds[0]);
    close(fds[1]);
    return is;
}

/* The MPS server that the keeper of a pool runs, and none that anybody else does. */
TEST(pool_server)
{
    static const struct {
        const char *names[4];
        bool is;
    } rows[] = {
        {{"cede-pool", "nvidia-cuda-mps-control", "nvidia-cuda-mps"}, true},
        {{"cede-spool", "nvidia-cuda-mps-control", "nvidia-cuda-mps"}, false},
        {{"cede-pool", "nvidia-cuda-mps"}, false},
        {{"cede-pool", "bash", "nvidia-cuda-mps"}, false},
        {{"cede-pool", "nvidia-cuda-mps-control", "train"}, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (last_is_scheduler(rows[i].names) != rows[i].is)
            fail_msg("row %zu", i);
    }
}

/* A program in a file of that name and of that owner, run by that user. */
static bool file_is_scheduler(const char *name, uid_t owner, uid_t runs)
{
    char dir[] = "/tmp/cede-test-XXXXXX", path[64], cmd[128];
    struct proc_stat st = {.comm = ""};
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chmod(dir, 0755), 0);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    snprintf(cmd, sizeof(cmd), "cp /bin/sleep %s", path);
    assert_int_equal(system(cmd), 0);
    assert_int_equal(chown(path, owner, (gid_t)-1), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (runs != geteuid() && setuid(runs) < 0)
            _exit(1);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(path, name, "1000", NULL);
        _exit(1);
    }
    for (int i = 0; i < 4000 && strncmp(st.comm, name, 15) != 0; i++) {
        usleep(5000);
        assert_int_equal(proc_stat_read(pid, &st), 0);
    }
    const bool is = proc_is_scheduler(&st, runs), serves = proc_serves_mps(&st, runs);
    end_child(pid);
    unlink(path);
    rmdir(dir);
    assert_true(!is || serves);
    return is;
}

/* A user's program is none whatever its file is called, root's control daemon is one. */
TEST(mps_control)
{
    assert_true(file_is_scheduler("nvidia-cuda-mps-control", geteuid(), geteuid()));
    assert_false(file_is_scheduler("nvidia-cuda-mps-server", geteuid(), geteuid()));
    if (geteuid() != 0)
        skip();
    assert_false(file_is_scheduler("nvidia-cuda-mps-control", NOBODY, NOBODY));
    assert_false(file_is_scheduler("nvidia-cuda-mps-control", 0, NOBODY));
}
