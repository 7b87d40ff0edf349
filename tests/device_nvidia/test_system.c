/* The system behind the nvidia driver, as far as it can be asked without a GPU. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "rig.h"

/* A listing in pieces misses nothing: of descriptors without a device behind them (O_PATH), where a
 * device file can be made. */
TEST(test_listing)
{
    enum { MANY = 300, CTL = 77 };
    const struct rm_io *io = &rm_io_system;
    char path[64];
    int v[MANY];
    snprintf(path, sizeof(path), "/tmp/cede-nvidiactl-%d", getpid());
    bool made = mknod(path, S_IFCHR | 0600, makedev(RM_MAJOR, RM_CTL_MINOR)) == 0;
    for (int i = 0; i < MANY; i++)
        v[i] = open(made && i % CTL == CTL - 1 ? path : "/dev/null", O_PATH | O_CLOEXEC);
    struct rm_fds whole = {.next = 0}, fds = {.next = 0};
    uint32_t left = 100000, pieces = 0;
    assert_int_equal(io->fds(getpid(), &whole, &left), 0);
    uint32_t all = 100000 - left, sum = 0;
    assert_true(all >= MANY);
    assert_int_equal(whole.nctl, made ? MANY / CTL : 0);
    for (int r = -EAGAIN; r == -EAGAIN; pieces++) {
        left = 7;
        r = io->fds(getpid(), &fds, &left);
        sum += 7 - left;
    }
    assert_int_equal(sum, all);
    assert_in_range(pieces, MANY / 7, MANY);
    assert_memory_equal(&fds, &whole, sizeof(fds));
    left = 0;
    assert_int_equal(io->fds(getpid(), &fds, &left), -EAGAIN);
    for (int i = 0; i < MANY; i++)
        close(v[i]);
    unlink(path);
}

/* What can be asked of the real system where there is no GPU. */
TEST(test_system)
{
    const struct rm_io *io = &rm_io_system;
    struct proc_stat st;
    assert_int_equal(proc_stat_read(getpid(), &st), 0);
    struct rm_fds fds = {.next = 0};
    uint32_t left = 1;
    assert_int_equal(io->fds(0x3FFFFFFF, &fds, &left), -ESRCH);
    uint64_t count;
    assert_int_equal(io->fd_count(0x3FFFFFFF, &count), -ESRCH);
    int pidfd = io->pidfd(st.id);
    assert_true(pidfd >= 0);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    /* Not the driver's file: refused before anything is asked of it. */
    int r = io->getfd(pidfd, pipes[0]);
    assert_true(r == -EBADF || r == -ENOSYS || r == -EPERM);
    close(pipes[0]);
    close(pipes[1]);
    io->close(pidfd);
    st.id.start_ticks++;
    assert_int_equal(io->pidfd(st.id), -ESRCH);
    struct device_driver *d;
    struct error err = {""};
    if (access(RM_CTL_PATH, F_OK) < 0) {
        assert_int_equal(device_nvidia.open(NULL, &d, &err), -ENODEV);
        assert_non_null(strstr(err.text, RM_CTL_PATH));
    }
}
