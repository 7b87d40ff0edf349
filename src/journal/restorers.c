/* See restorers.h. A user can make a process that looks like a restorer, which only keeps cede away
 * from the same user's programs. */
#include "journal/restorers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/unasked_fds.h"
#include "base/util.h"
#include "who/procfs.h"

bool restorers_have_lock(pid_t restorer, uint64_t device, uint64_t inode)
{
    char path[64];
    struct statx st;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)restorer, RESTORE_LOCK_FD);
    return foreign_stat(AT_FDCWD, path, &st) == 0 && st.stx_ino == inode &&
           makedev(st.stx_dev_major, st.stx_dev_minor) == device;
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
        if (restorers_have(pids[i], &owner) <= 0 || owner != geteuid() ||
            proc_stat_read(pids[i], &st) < 0 || st.state != 'T' ||
            !restorers_have_lock(pids[i], device, inode))
            continue;
        (void)proc_signal(st.id, SIGCONT);
    }
}
