/* See other.h. A user can make a process that looks like a restorer, and keeps cede from that
 * user's own programs by it. */
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

/* The number of its journal's descriptor is a restorer's first argument. -1: not known. */
static int journal_number(pid_t restorer)
{
    char path[64], args[64] = "";
    int number = -1;
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)restorer);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, args, sizeof(args) - 1);
    size_t name = strlen(args);
    if (n > 0 && name < (size_t)n && sscanf(args + name + 1, "%d", &number) != 1)
        number = -1;
    return number;
}

/* What may not be read counts as being about the same devices. A cede that has just ended, or whose
 * journal is no journal any more, knows of nothing. A look at what the descriptor is comes first:
 * opening a pipe would block. */
static bool overlaps(pid_t restorer, const char *driver, const char *where)
{
    char path[64], theirs[16], there[256];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)restorer, journal_number(restorer));
    _cleanup_close_ int any = open(path, O_PATH | O_CLOEXEC);
    if (any < 0)
        return errno == EACCES || errno == EPERM;
    if (fstat(any, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", any);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    return journal_devices(fd, theirs, there) == 0 && theirs[0] &&
           address_overlap(driver, where, theirs, there);
}

void other_cedes_find(struct other_cedes *o, const char *driver, const char *where, pid_t daemon)
{
    _cleanup_free_ pid_t *pids = NULL;
    size_t n = 0;
    struct proc_stat st;
    uid_t uid;
    *o = (struct other_cedes){.n = 0};
    o->more = proc_list(&pids, &n) < 0;
    for (size_t i = 0; i < n; i++) {
        if (proc_stat_read(pids[i], &st) < 0 || strcmp(st.comm, "cede-restore") != 0 ||
            st.ppid == daemon || proc_owner(pids[i], &uid) < 0 || !overlaps(pids[i], driver, where))
            continue;
        o->more |= o->n == OTHERS_MAX;
        if (o->n < OTHERS_MAX)
            o->owners[o->n++] = uid;
    }
}

bool other_cedes_have(const struct other_cedes *o, pid_t pid)
{
    uid_t owner;
    if (o->more || (o->n && proc_owner(pid, &owner) < 0))
        return true;
    for (unsigned i = 0; i < o->n; i++) {
        if (o->owners[i] == 0 || o->owners[i] == owner)
            return true;
    }
    return false;
}
