/* See pidns.h. */
#include "lib/pidns.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/procfs.h"
#include "lib/util.h"

#define PID_LEVELS   33 /* pid namespaces are nested so deep, at most (MAX_PID_NS_LEVEL) */
#define TRANSLATE_NS (20 * NSEC_PER_MSEC)

/* A process's numbers, from our pid namespace's to its own. How many, or -errno. */
static int numbers(pid_t pid, int v[PID_LEVELS])
{
    char buf[4096];
    int n = 0, used = 0;
    ssize_t got = proc_read(pid, "status", buf, sizeof(buf));
    if (got < 0)
        return (int)got;
    const char *p = strstr(buf, "\nNSpid:");
    for (p = p ? p + strlen("\nNSpid:") : NULL;
         p && n < PID_LEVELS && sscanf(p, "%*[ \t]%d%n", &v[n], &used) == 1; p += used)
        n++;
    return n;
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

int pidns_of(pid_t pid, struct pidns *out)
{
    int v[PID_LEVELS];
    const int level = numbers(pid, v);
    int r = level < 0 ? level : namespace_id(pid, &out->id);
    out->level = r < 0 ? 0 : level;
    return r < 0 ? r : level > 0 ? 0 : -EIO;
}

pid_t pidns_number(struct pidns ns, pid_t pid)
{
    int v[PID_LEVELS];
    uint64_t id = 0;
    if (ns.level <= 1)
        return pid;
    return numbers(pid, v) == ns.level && namespace_id(pid, &id) == 0 && id == ns.id
               ? v[ns.level - 1]
               : 0;
}

int pidns_translate(pid_t peer, pid_t pid, pid_t *out)
{
    int own[PID_LEVELS], v[PID_LEVELS];
    int level = numbers(peer, own);
    *out = level > 0 && own[level - 1] == pid ? peer : pid;
    if (level <= 1 || *out == peer)
        return level < 0 ? level : 0;
    uint64_t theirs = 0, ns = 0;
    int r = namespace_id(peer, &theirs);
    _cleanup_free_ pid_t *all = NULL;
    size_t n = 0;
    if (r == 0)
        r = proc_list(&all, &n);
    const uint64_t until = monotonic_ns() + TRANSLATE_NS;
    for (size_t i = 0; r == 0 && i < n; i++) {
        if (numbers(all[i], v) == level && v[level - 1] == pid && namespace_id(all[i], &ns) == 0 &&
            ns == theirs) {
            *out = all[i];
            return 0;
        }
        if (monotonic_ns() > until)
            return -EAGAIN;
    }
    return r < 0 ? r : -ESRCH;
}
