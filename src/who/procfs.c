/* See procfs.h. */
#include "who/procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"

#define PF_KTHREAD 0x00200000U /* include/linux/sched.h; /proc shows it */

ssize_t proc_read(pid_t pid, const char *name, char *buf, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd;
    while (fd >= 0 && (n = read(fd, buf, size - 1)) < 0 && errno == EINTR)
        ;
    buf[n > 0 ? n : 0] = '\0';
    return n >= 0 ? n : errno == ENOENT ? -ESRCH : -errno;
}

int proc_stat_read(pid_t pid, struct proc_stat *out)
{
    char buf[1024];
    memset(out, 0, sizeof(*out));
    if (pid <= 0)
        return -ESRCH;
    /* The main thread's file has the same fields as /proc/PID/stat, for which the kernel adds up
     * the times of all threads: with hundreds of them that takes 0.1 ms and more. */
    char name[32];
    snprintf(name, sizeof(name), "task/%d/stat", (int)pid);
    ssize_t n = proc_read(pid, name, buf, sizeof(buf));
    if (n < 0)
        return (int)n;

    /* "pid (comm) S ppid ...": comm may contain blanks and parentheses, so the last one counts. */
    char *open_paren = strchr(buf, '('), *close_paren = strrchr(buf, ')');
    if (!open_paren || !close_paren || close_paren < open_paren)
        return -EIO;
    size_t len = min_u64((size_t)(close_paren - open_paren - 1), sizeof(out->comm) - 1);
    memcpy(out->comm, open_paren + 1, len);

    int ppid, group, session, tty;
    unsigned threads, flags;
    unsigned long long start;
    if (sscanf(close_paren + 1,
               " %c %d %d %d %d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %u %*d %llu",
               &out->state, &ppid, &group, &session, &tty, &flags, &threads, &start) != 8)
        return -EIO;
    out->kernel = flags & PF_KTHREAD;
    out->ppid = ppid;
    out->group = group;
    out->session = session;
    out->tty = tty;
    out->threads = threads;
    out->id = (struct proc_id){.pid = (int32_t)pid, .start_ticks = start};
    return 0;
}

int proc_boot_id(char buf[static 37])
{
    _cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    int r = fd < 0 ? -errno : read_full(fd, buf, 36);
    buf[r < 0 ? 0 : 36] = '\0';
    return r;
}

uint64_t proc_ticks_now(void)
{
    return read_clock_ns(CLOCK_BOOTTIME) / (NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK));
}

int proc_owner(pid_t pid, uid_t *uid)
{
    return proc_credentials(pid, uid, NULL, 0);
}

int proc_credentials(pid_t pid, uid_t *uid, gid_t *groups, size_t max)
{
    char buf[8192];
    size_t n = 0;
    ssize_t got = proc_read(pid, "status", buf, sizeof(buf));
    if (got < 0)
        return (int)got;
    /* The line "Name:" before these cannot contain one of them: the kernel escapes newlines. */
    const char *line = strstr(buf, "\nUid:"), *gid = strstr(buf, "\nGid:");
    unsigned v;
    if (!line || sscanf(line + 5, " %u", uid) != 1 || !gid || sscanf(gid + 5, " %u", &v) != 1)
        return -EIO;
    if (n < max)
        groups[n++] = v;
    /* A number at the end of the buffer may be cut, and does not count. */
    const char *p = strstr(buf, "\nGroups:");
    int used = 0;
    for (p = p ? p + strlen("\nGroups:") : ""; n < max && sscanf(p, "%*[ \t]%u%n", &v, &used) == 1;
         p += used) {
        if (!p[used])
            break;
        groups[n++] = v;
    }
    return (int)n;
}

int proc_image_read(struct proc_id id, struct proc_image *out)
{
    char buf[1024], name[32];
    snprintf(name, sizeof(name), "task/%d/stat", (int)id.pid);
    ssize_t n = proc_read(id.pid, name, buf, sizeof(buf));
    if (n < 0)
        return (int)n;
    const char *end = strrchr(buf, ')');
    unsigned long long start, code, code_end, stack;
    if (!end || sscanf(end + 1,
                       " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*u "
                       "%*d %llu %*u %*d %*u %llu %llu %llu",
                       &start, &code, &code_end, &stack) != 4)
        return -EIO;
    if (start != id.start_ticks)
        return -ESRCH;
    *out = (struct proc_image){code, code_end, stack};
    return 0;
}

bool proc_ended(const struct proc_stat *st)
{
    return (st->state == 'Z' || st->state == 'X') && st->threads <= 1;
}

int proc_check(struct proc_id id)
{
    struct proc_stat st;
    int r = proc_stat_read(id.pid, &st);
    return r < 0 ? r : st.id.start_ticks == id.start_ticks && !proc_ended(&st) ? 0 : -ESRCH;
}

bool proc_alive(struct proc_id id)
{
    return proc_check(id) != -ESRCH;
}

bool proc_stopped(struct proc_id id)
{
    struct proc_stat st;
    return proc_stat_read(id.pid, &st) == 0 && proc_same(st.id, id) &&
           (st.state == 'T' || st.state == 't');
}

int proc_pidfd(struct proc_id id)
{
    if (id.pid <= 0)
        return -ESRCH;
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)id.pid, 0);
    if (fd < 0)
        return -errno;
    /* The start time proves the identity only now that the descriptor pins the process. */
    struct proc_stat st;
    int r = proc_stat_read(id.pid, &st);
    if (r == 0 && st.id.start_ticks == id.start_ticks)
        return fd;
    close(fd);
    return r < 0 ? r : -ESRCH;
}

int proc_signal(struct proc_id id, int signal)
{
    _cleanup_close_ int fd = proc_pidfd(id);
    if (fd < 0)
        return fd;
    return syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0) < 0 ? -errno : 0;
}

bool pidfd_alive(int pidfd)
{
    return poll(&(struct pollfd){.fd = pidfd, .events = POLLIN}, 1, 0) == 0;
}

int proc_exe(pid_t pid, char *buf, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    ssize_t n = readlink(path, buf, size - 1);
    buf[n > 0 ? n : 0] = '\0';
    return n >= 0 ? 0 : errno == ENOENT ? -ESRCH : -errno;
}

int proc_cgroup(pid_t pid, char *buf, size_t size)
{
    char text[4096];
    buf[0] = '\0';
    ssize_t n = proc_read(pid, "cgroup", text, sizeof(text));
    if (n < 0)
        return (int)n;
    /* "0::/path" is version 2; on a version-1 machine take the first hierarchy's path. */
    const char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    line = line ? line : text;
    const char *slash = strchr(line, '/');
    if (!slash)
        return -EIO;
    snprintf(buf, size, "%.*s", (int)strcspn(slash, "\n"), slash);
    return 0;
}

int proc_list(pid_t **pids, size_t *n)
{
    *pids = NULL;
    *n = 0;
    DIR *d = opendir("/proc");
    if (!d)
        return -errno;
    size_t cap = 0;
    int r = 0;
    for (struct dirent *e; r == 0 && (e = readdir(d));) {
        uint64_t pid;
        if (parse_u64(e->d_name, 1, INT32_MAX, &pid) < 0)
            continue;
        r = list_grow(pids, *n, &cap, sizeof(pid_t));
        if (r == 0)
            (*pids)[(*n)++] = (pid_t)pid;
    }
    closedir(d);
    if (r < 0) {
        free(*pids);
        *pids = NULL;
    }
    return r;
}

bool proc_sees_all(void)
{
    struct stat st; /* the first namespace's inode is fixed in the kernel */
    return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == 0xEFFFFFFCU;
}

int proc_stat_parent(struct proc_stat *st)
{
    struct proc_stat parent;
    int r = proc_stat_read(st->ppid, &parent);
    if (r < 0 || parent.id.start_ticks > st->id.start_ticks)
        return r < 0 ? r : -ESRCH;
    *st = parent;
    return 0;
}

bool proc_is_descendant(pid_t pid, pid_t ancestor)
{
    struct proc_stat st;
    if (pid == ancestor)
        return pid > 0;
    int r = proc_stat_read(pid, &st);
    for (int depth = 0; r == 0 && depth < PROC_LEVELS_MAX; depth++) {
        if (st.ppid == ancestor)
            return ancestor > 0;
        r = proc_stat_parent(&st);
    }
    return false;
}
