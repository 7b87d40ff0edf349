/* See restorers.h. A user can make a process that looks like a restorer, and keeps cede from that
 * user's own programs by it. */
#include "recovery/restorers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/procfs.h"
#include "lib/util.h"

int restorers_descriptors(pid_t restorer, int *journal, int *lock)
{
    char path[64], args[64] = "";
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)restorer);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, args, sizeof(args) - 1);
    if (n < 0)
        return -errno;
    for (ssize_t i = 0; i < n; i++)
        args[i] = args[i] ? args[i] : ' ';
    return sscanf(args, "%*s %d %d", journal, lock) == 2 ? 0 : -ESRCH;
}

bool restorers_hold(pid_t restorer, int lock, uint64_t device, uint64_t inode)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)restorer, lock);
    return stat(path, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

int restorers_have(pid_t pid, uid_t *owner)
{
    struct proc_stat st;
    int r = proc_stat_read(pid, &st);
    if (r == 0 && strcmp(st.comm, "cede-restore") != 0)
        return 0;
    if (r == 0)
        r = proc_owner(pid, owner);
    return r == 0 ? 1 : r == -ESRCH ? 0 : r;
}

void restorers_continue(uint64_t device, uint64_t inode)
{
    _cleanup_free_ pid_t *pids = NULL;
    size_t n = 0;
    if (proc_list(&pids, &n) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        struct proc_stat st;
        uid_t owner = 0;
        int journal = -1, held = -1;
        if (restorers_have(pids[i], &owner) <= 0 || owner != geteuid() ||
            proc_stat_read(pids[i], &st) < 0 || st.state != 'T' ||
            restorers_descriptors(pids[i], &journal, &held) < 0 ||
            !restorers_hold(pids[i], held, device, inode))
            continue;
        (void)proc_signal(st.id, SIGCONT);
    }
}
