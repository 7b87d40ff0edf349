/* See other.h. */
#include "recovery/other.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/procfs.h"
#include "lib/util.h"
#include "recovery/address.h"
#include "recovery/journal.h"
#include "recovery/restorers.h"

/* 1: it has something to do with these devices, or may not be looked at; 0: not, or it has just
 * ended, or what it has is no journal any more; else an error. A look at what a descriptor is comes
 * first: opening a pipe would block. */
static int overlaps(pid_t restorer, const char *driver, const char *where,
                    const struct journal_place *own)
{
    char path[64], theirs[16], there[256];
    struct stat st;
    if (restorers_hold(restorer, own->device, own->inode))
        return 0;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)restorer, RESTORE_JOURNAL_FD);
    _cleanup_close_ int any = open(path, O_PATH | O_CLOEXEC);
    if (any < 0)
        return errno == EACCES || errno == EPERM ? 1 : errno == ENOENT ? 0 : -errno;
    if (fstat(any, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", any);
    /* Its owner may have a lease on it (fcntl(2)), for which opening would wait. */
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == EACCES || errno == EPERM || errno == EWOULDBLOCK ? 1 : -errno;
    return journal_devices(fd, theirs, there) == 0 && theirs[0] &&
           address_overlap(driver, where, theirs, there);
}

/* Once for each user, who can make any number of processes that look like one. */
static void add_owner(struct other_cedes *o, uid_t uid)
{
    unsigned i = 0;
    while (i < o->n && o->owners[i] != uid)
        i++;
    if (i == OTHERS_MAX)
        o->unsure = true;
    else if (i == o->n)
        o->owners[o->n++] = uid;
}

void other_cedes_find(struct other_cedes *o, const char *driver, const char *where,
                      const struct journal_place *own)
{
    _cleanup_free_ pid_t *pids = NULL;
    size_t n = 0;
    *o = (struct other_cedes){.n = 0};
    o->unsure = proc_list(&pids, &n) < 0;
    for (size_t i = 0; i < n; i++) {
        uid_t uid = 0;
        int r = restorers_have(pids[i], &uid);
        if (r > 0)
            r = overlaps(pids[i], driver, where, own);
        if (r > 0)
            add_owner(o, uid);
        o->unsure |= r < 0;
    }
}

bool other_cedes_have(struct other_cedes *o, pid_t pid)
{
    uid_t owner = 0;
    int r = o->n ? proc_owner(pid, &owner) : 0;
    o->unsure |= r < 0 && r != -ESRCH;
    if (o->unsure || r < 0)
        return true;
    for (unsigned i = 0; i < o->n; i++) {
        if (o->owners[i] == 0 || o->owners[i] == owner)
            return true;
    }
    return false;
}
