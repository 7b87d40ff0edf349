/* The system behind the nvidia driver, as far as it can be asked without a GPU. */
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

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
    int r = io->getfd(getpid(), pidfd, pipes[0]);
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

/* A file system in user space that is one file. It answers until that is open; whatever is asked
 * after that it tells, and ends. */
static void serve_file(int device, int tell)
{
    static char in[1 << 17];
    const struct fuse_in_header *asked = (const struct fuse_in_header *)(const void *)in;
    alarm(20);
    for (bool open = false; read(device, in, sizeof(in)) > 0 && !open;) {
        struct {
            struct fuse_out_header head;
            struct fuse_init_out init; /* all zero, it also says that a file is open */
        } out = {.head = {.unique = asked->unique, .len = sizeof(out.head)}};
        open = asked->opcode == FUSE_OPEN;
        if (asked->opcode == FUSE_INIT) {
            out.init = (struct fuse_init_out){.major = FUSE_KERNEL_VERSION,
                                              .minor = FUSE_KERNEL_MINOR_VERSION,
                                              .max_write = 4096};
            out.head.len = sizeof(out);
        } else if (open) {
            out.head.len += (uint32_t)sizeof(struct fuse_open_out);
        } else {
            out.head.error = -ENOSYS;
        }
        (void)!write(device, &out, out.head.len);
    }
    (void)!write(tell, "asked", 5);
    _exit(0);
}

/* Opens that file, where the process may mount one, tells its number or -1, and waits. */
static void open_served(int tell)
{
    char path[] = "/tmp/cede-test-XXXXXX", options[100];
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC), fd = mkstemp(path);
    snprintf(options, sizeof(options), "fd=%d,rootmode=100600,user_id=0,group_id=0", device);
    const bool mounted = unshare(CLONE_NEWNS) == 0 &&
                         mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                         mount("cede-test", path, "fuse", MS_NOSUID | MS_NODEV, options) == 0;
    if (mounted && fork() == 0)
        serve_file(device, tell);
    close(device);
    close(fd);
    fd = mounted ? open(path, O_RDONLY) : -1;
    umount2(path, MNT_DETACH);
    unlink(path);
    if (write(tell, &fd, sizeof(fd)) == sizeof(fd))
        pause();
    _exit(0);
}

/* No copy is made of a file that is not the driver's: its server may never answer a close(). */
TEST(test_unanswered_close)
{
    const struct rm_io *io = &rm_io_system;
    int tell[2], number = -1;
    struct proc_stat st;
    assert_int_equal(pipe2(tell, O_CLOEXEC), 0);
    pid_t owner = fork();
    if (owner == 0) {
        alarm(20);
        open_served(tell[1]);
    }
    close(tell[1]);
    assert_int_equal(read(tell[0], &number, sizeof(number)), sizeof(number));
    if (number < 0) {
        print_message("skipped: no file system in user space can be mounted\n");
    } else {
        assert_int_equal(proc_stat_read(owner, &st), 0);
        int pidfd = io->pidfd(st.id);
        assert_int_equal(io->getfd(owner, pidfd, number), -EBADF);
        io->close(pidfd);
        struct pollfd p = {.fd = tell[0], .events = POLLIN};
        assert_int_equal(poll(&p, 1, 0), 0); /* its server was not asked */
    }
    kill(owner, SIGKILL);
    waitpid(owner, NULL, 0);
    close(tell[0]);
}
