/* See pidns.h. */
#include "who/pidns.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "who/procfs.h"

#define PID_LEVELS   33 /* depth to which pid namespaces can be nested (MAX_PID_NS_LEVEL) */
#define TRANSLATE_NS (20 * NSEC_PER_MSEC)

/* Reads the pids of the line "NSpid:", which may be far behind. Returns their number; 0: there is
 * no such line. */
static int read_numbers(const char *path, int v[PID_LEVELS])
{
    char line[PID_LEVELS * 12 + 16];
    int n = 0, used = 0;
    bool begins = true;
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    if (!f)
        return errno == ENOENT ? -ESRCH : -errno;
    while (fgets(line, sizeof(line), f) && !(begins && strncmp(line, "NSpid:", 6) == 0))
        begins = strchr(line, '\n') != NULL;
    if (ferror(f) || feof(f))
        return ferror(f) ? -errno : 0;
    const char *p = line + strlen("NSpid:");
    for (; n < PID_LEVELS && sscanf(p, "%*[ \t]%d%n", &v[n], &used) == 1; p += used)
        n++;
    return n && *p == '\n' ? n : -EIO;
}

/* Reads a process's pids, from that in our namespace to that in its own. Returns their number, 0
 * where the kernel has no pid namespaces, or -errno. They are in `status` too, but reading that
 * takes 25 ms for a process that gave itself 65536 groups, so it is read only where a pidfd does
 * not have them (before Linux 5.5). */
static int numbers(pid_t pid, int v[PID_LEVELS])
{
    char path[40];
    _cleanup_close_ int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    int n = fd < 0 ? -errno : read_numbers(path, v);
    if (n == 0 || n == -ENOSYS) {
        snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
        n = read_numbers(path, v);
    }
    return n > 0 && v[0] != pid ? -ESRCH : n; /* it has ended */
}

static int namespace_id(pid_t pid, uint64_t *out)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
    if (stat(path, &st) < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    *out = st.st_ino;
    return 0;
}

int pidns_level(pid_t pid)
{
    int v[PID_LEVELS] = {0};
    const int level = numbers(pid, v);
    return level ? level : -EIO;
}

int pidns_of(pid_t pid, struct pidns *out)
{
    const int level = pidns_level(pid);
    int r = level < 0 ? level : namespace_id(pid, &out->id);
    out->level = r < 0 ? 0 : level;
    return r;
}

pid_t pidns_number(struct pidns ns, pid_t pid)
{
    int v[PID_LEVELS] = {0};
    uint64_t id = 0;
    if (ns.level <= 1)
        return pid;
    /* The namespace is compared first, because that is quick for every process. */
    return namespace_id(pid, &id) == 0 && id == ns.id && numbers(pid, v) == ns.level
               ? v[ns.level - 1]
               : 0;
}

int pidns_translate(pid_t peer, pid_t pid, pid_t *out)
{
    int own[PID_LEVELS] = {0};
    struct pidns ns = {.level = numbers(peer, own)};
    *out = ns.level > 0 && own[ns.level - 1] == pid ? peer : pid;
    if (ns.level <= 1 || *out == peer)
        return ns.level < 0 ? ns.level : 0;
    _cleanup_free_ pid_t *all = NULL;
    size_t n = 0;
    int r = namespace_id(peer, &ns.id);
    if (r == 0)
        r = proc_list(&all, &n);
    const uint64_t until = monotonic_ns() + TRANSLATE_NS;
    for (size_t i = 0; r == 0 && i < n; i++) {
        if (pidns_number(ns, all[i]) == pid) {
            *out = all[i];
            return 0;
        }
        if (monotonic_ns() > until)
            return -EAGAIN;
    }
    return r < 0 ? r : -ESRCH;
}
