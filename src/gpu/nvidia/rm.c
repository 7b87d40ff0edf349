/* See rm.h: the wire format, and the system calls behind struct rm_io.
 * Keeps no state of any process. */
#include "gpu/nvidia/rm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "base/unasked_fds.h"

#define X(name, cmd, type, bytes) _Static_assert(sizeof(type) == (bytes), #name);
RM_CONTROLS(X)
#undef X
_Static_assert(offsetof(struct rm_disable_channels, count) == 4, "count");
_Static_assert(offsetof(struct rm_disable_channels, only_scheduling) == 8, "only_scheduling");
_Static_assert(offsetof(struct rm_disable_channels, rewind_put) == 9, "rewind_put");
_Static_assert(offsetof(struct rm_disable_channels, preempt_event) == 16, "preempt_event");
_Static_assert(offsetof(struct rm_disable_channels, client) == 24, "client");
_Static_assert(offsetof(struct rm_disable_channels, channel) == 280, "channel");
_Static_assert(offsetof(struct rm_preemption_mode, compute) == 12, "compute");
_Static_assert(offsetof(struct rm_preemption_mode, route) == 24, "route");
_Static_assert(sizeof(struct rm_ioctl_control) == 32, "NVOS54");
_Static_assert(sizeof(struct rm_ioctl_alloc) == 32, "NVOS21");
_Static_assert(sizeof(struct rm_ioctl_free) == 16, "NVOS00");
_Static_assert(sizeof(struct rm_device_params) == 56, "NV0080");
_Static_assert(sizeof(struct rm_memory_params) == 128, "NV_MEMORY");
_Static_assert(sizeof(struct rm_event_buffer_params) == 72, "NV_EVENT_BUFFER");
_Static_assert(sizeof(struct rm_event_header) == 32, "event buffer header");
_Static_assert(sizeof(struct rm_switch_record) == 32, "record header and FECS_RECORD_V2");
_Static_assert(offsetof(struct rm_switch_record, ns) == 24, "ns");
_Static_assert(offsetof(struct rm_ioctl_map, fd) == 48, "NVOS33");
_Static_assert(RM_IOCTL_MAP == 0xC038464EUL, "map");
_Static_assert(RM_IOCTL_FREE == 0xC0104629UL, "free");
_Static_assert(RM_IOCTL_CONTROL == 0xC020462AUL, "control");
_Static_assert(RM_IOCTL_ALLOC == 0xC020462BUL, "alloc");

static const struct {
    const char *name;
    uint32_t cmd, size;
} controls[] = {
#define X(name, cmd, type, bytes) {&#name[3], cmd, bytes},
    RM_CONTROLS(X)
#undef X
};
_Static_assert(ARRAY_SIZE(controls) == RM_CONTROL_COUNT, "one line per control");

static const struct {
    uint32_t status;
    int code; /* 0: -EIO */
    const char *text;
} statuses[] = {
    {0x03, 0, "busy, retry"},
    {0x0F, 0, "the GPU is lost"},
    {0x10, 0, "the GPU is in reset"},
    {0x1A, 0, "out of resources"},
    {RM_STATUS_INSUFFICIENT_PERMISSIONS, -EPERM, "insufficient permissions"},
    {0x1F, 0, "invalid argument"},
    {RM_STATUS_INVALID_CHANNEL, -ENOENT, "invalid channel"},
    {RM_STATUS_INVALID_CLIENT, -ENOENT, "invalid client"},
    {0x24, 0, "invalid command"},
    {0x26, 0, "invalid device"},
    {RM_STATUS_INVALID_OBJECT, -ENOENT, "invalid object"},
    {RM_STATUS_INVALID_OBJECT_HANDLE, -ENOENT, "invalid object handle"},
    {0x3A, 0, "invalid parameter structure"},
    {0x3B, 0, "invalid parameter"},
    {0x40, 0, "invalid state"},
    {0x51, 0, "out of memory"},
    {0x55, 0, "not ready"},
    {0x56, 0, "not supported"},
    {RM_STATUS_OBJECT_NOT_FOUND, -ENOENT, "object not found"},
    {0x62, 0, "the GPU needs a reset"},
    {0x63, 0, "state in use"},
    {0x65, 0, "timed out"},
    {0x6C, 0, "the GPU is in debug mode"},
    {0xFFFF, 0, "generic error"},
};

int rm_control(const struct rm_io *io, int fd, uint32_t client, uint32_t object,
               enum rm_control_id id, void *params, struct error *err)
{
    struct rm_ioctl_control c = {
        .client = client,
        .object = object,
        .cmd = controls[id].cmd,
        .params = (uintptr_t)params,
        .size = controls[id].size,
        .status = UINT32_MAX, /* so that no answer is no success */
    };
    int r = io->ioctl(fd, RM_IOCTL_CONTROL, &c);
    if (r < 0)
        return error_set(err, r, "control %s (0x%08x) on object 0x%x: ioctl: %s", controls[id].name,
                         c.cmd, object, strerror(-r));
    if (c.status == 0)
        return 0;
    size_t i = 0;
    while (i < ARRAY_SIZE(statuses) && statuses[i].status != c.status)
        i++;
    bool known = i < ARRAY_SIZE(statuses);
    r = known && statuses[i].code ? statuses[i].code : -EIO;
    if (!err)
        return r;
    return error_set(err, r, "control %s (0x%08x) on object 0x%x of client 0x%x: status 0x%x%s%s%s",
                     controls[id].name, c.cmd, object, client, c.status, known ? " (" : "",
                     known ? statuses[i].text : "", known ? ")" : "");
}

int rm_info(const struct rm_io *io, int fd, uint32_t client, uint32_t object, uint32_t index,
            uint32_t *out)
{
    struct rm_handle_info info = {.object = object, .index = index};
    int r = rm_control(io, fd, client, client, RM_HANDLE_INFO, &info, NULL);
    *out = r == 0 ? (uint32_t)info.result : 0;
    return r;
}

int rm_alloc(const struct rm_io *io, int fd, uint32_t *client, uint32_t parent, uint32_t object,
             uint32_t class, void *params, uint32_t size, struct error *err)
{
    struct rm_ioctl_alloc a = {
        .root = *client,
        .parent = parent,
        .object = object,
        .class = class,
        .params = (uintptr_t)params,
        .size = size,
        .status = UINT32_MAX,
    };
    int r = io->ioctl(fd, RM_IOCTL_ALLOC, &a);
    if (r < 0)
        return error_set(err, r, "allocating class 0x%x on " RM_CTL_PATH ": %s", class,
                         strerror(-r));
    if (a.status != 0)
        return error_set(err, -EIO, "allocating class 0x%x on " RM_CTL_PATH ": status 0x%x", class,
                         a.status);
    if (class == RM_CLASS_ROOT)
        *client = a.object;
    return 0;
}

int rm_free(const struct rm_io *io, int fd, uint32_t client, uint32_t object)
{
    struct rm_ioctl_free f = {.root = client, .parent = client, .object = object};
    return io->ioctl(fd, RM_IOCTL_FREE, &f);
}

int rm_client_counter(const struct rm_io *io, int ctl_fd, uint32_t *index, struct error *err)
{
    uint32_t client = 0;
    int r = rm_alloc(io, ctl_fd, &client, 0, 0, RM_CLASS_ROOT, NULL, 0, err);
    if (r < 0)
        return r;
    *index = (client - RM_CLIENT_BASE) % RM_CLIENT_RANGE;
    r = rm_free(io, ctl_fd, client, client);
    return r < 0 ? error_set(err, r, "freeing an RM client: %s", strerror(-r)) : 0;
}

int rm_borrow_error(struct error *err, int code, pid_t pid)
{
    switch (code) {
    case -ESRCH:
        return error_set(err, code, "process %d is gone", (int)pid);
    case -EPERM:
    case -EACCES:
        return error_set(err, -EPERM,
                         "no right to borrow " RM_CTL_PATH " of process %d: run as root or with "
                         "CAP_SYS_PTRACE, or, with kernel.yama.ptrace_scope=1, as its ancestor "
                         "and the same user",
                         (int)pid);
    case -ENOSYS:
        return error_set(err, -ENOTSUP,
                         "this kernel has no pidfd_getfd: Linux 5.6 or newer is needed");
    case -EMFILE:
    case -ENFILE:
        return error_set(err, code,
                         "no free descriptor to borrow one of process %d: raise "
                         "the limit on open files (ulimit -n)",
                         (int)pid);
    default:
        return error_set(err, code, "borrowing " RM_CTL_PATH " of process %d: %s", (int)pid,
                         strerror(-code));
    }
}

/* ---- the real system ---- */

/* By device number, because in a container the node may have any path. */
static bool is_nvidia(const struct statx *st)
{
    return S_ISCHR(st->stx_mode) && st->stx_rdev_major == RM_MAJOR;
}

static bool is_ctl(int fd)
{
    struct statx st;
    return foreign_stat(fd, "", &st) == 0 && is_nvidia(&st) && st.stx_rdev_minor == RM_CTL_MINOR;
}

static int sys_open_ctl(void)
{
    int fd = open(RM_CTL_PATH, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (!is_ctl(fd)) {
        close(fd);
        return -ENODEV;
    }
    return fd;
}

static void sys_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

static int sys_ioctl(int fd, unsigned long request, void *arg)
{
    int r;
    do
        r = ioctl(fd, request, arg);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

/* The owner may have closed it, and the number may be any other file now, of which no copy is made
 * here. It is looked at once more, because that may happen between both calls. */
static int sys_getfd(pid_t pid, int pidfd, int fd)
{
    char path[48];
    struct statx st;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
    if (foreign_stat(AT_FDCWD, path, &st) == 0 && !is_nvidia(&st))
        return -EBADF;
    int got = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
    if (got < 0)
        return -errno;
    if (!is_ctl(got)) {
        unasked_drop(got);
        return -EBADF;
    }
    return got;
}

static int sys_fd_count(pid_t pid, uint64_t *out)
{
    char path[32];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    if (stat(path, &st) < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    *out = (uint64_t)st.st_size;
    return 0;
}

/* Counts a descriptor of the driver's devices. */
static void count_fd(int dir, const char *name, struct rm_fds *io)
{
    struct statx st;
    uint64_t n;
    if (parse_u64(name, 0, INT32_MAX, &n) < 0 || foreign_stat(dir, name, &st) < 0 ||
        !is_nvidia(&st))
        return;
    if (st.stx_rdev_minor != RM_CTL_MINOR)
        io->ngpu++;
    else if (io->nctl < RM_CTL_FDS_MAX)
        io->ctl[io->nctl++] = (int32_t)n;
}

static int sys_fds(pid_t pid, struct rm_fds *io, uint32_t *left)
{
    if (*left == 0)
        return -EAGAIN;
    if (io->next == 0) {
        memset(io, 0, sizeof(*io));
        int r = sys_fd_count(pid, &io->fd_count);
        if (r < 0)
            return r;
    }
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    if (!d)
        return errno == ENOENT ? -ESRCH : -errno;
    /* A position in /proc/PID/fd is a descriptor's number plus two, also in another open(). */
    if (io->next)
        seekdir(d, io->next);
    struct dirent *e = NULL;
    for (; *left && (e = readdir(d)); --*left)
        count_fd(dirfd(d), e->d_name, io);
    io->next = *left ? 0 : telldir(d);
    closedir(d);
    qsort(io->ctl, io->nctl, sizeof(io->ctl[0]), compare_int32);
    return io->next ? -EAGAIN : 0;
}

static int sys_open_gpu(const char *bus_id)
{
    char path[128], line[256];
    snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%.20s/information", bus_id);
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    if (!f)
        return -errno;
    unsigned number;
    while (fgets(line, sizeof(line), f)) {
        if (sscanf(line, "Device Minor: %u", &number) != 1 || number >= RM_CTL_MINOR)
            continue;
        snprintf(path, sizeof(path), "/dev/nvidia%u", number);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
    }
    return -ENODEV;
}

static int sys_map(int fd, size_t size, const void **out)
{
    void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    *out = p == MAP_FAILED ? NULL : p;
    return p == MAP_FAILED ? -errno : 0;
}

static void sys_unmap(const void *p, size_t size)
{
    munmap((void *)(uintptr_t)p, size);
}

static uint64_t sys_now_ns(void)
{
    return read_clock_ns(CLOCK_BOOTTIME);
}

static void sys_release(char *buf, size_t size)
{
    char line[64];
    _cleanup_close_ int fd = open("/sys/module/nvidia/version", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, line, sizeof(line) - 1) : 0;
    line[n > 0 ? n : 0] = '\0';
    line[strspn(line, ".0123456789")] = '\0';
    snprintf(buf, size, "%s", line[0] ? line : "unknown");
}

const struct rm_io rm_io_system = {
    .open_ctl = sys_open_ctl,
    .close = sys_close,
    .ioctl = sys_ioctl,
    .pidfd = proc_pidfd,
    .getfd = sys_getfd,
    .fds = sys_fds,
    .fd_count = sys_fd_count,
    .open_gpu = sys_open_gpu,
    .release = sys_release,
    .map = sys_map,
    .unmap = sys_unmap,
    .same_pids = proc_sees_all,
    .alive = proc_alive,
    .pids = proc_list,
    .now_ns = sys_now_ns,
};
