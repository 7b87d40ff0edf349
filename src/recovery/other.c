/* See other.h. A user can make a process that looks like a restorer, and keeps cede from that
 * user's own programs by it. */
#include "recovery/other.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lib/procfs.h"
#include "lib/util.h"
#include "recovery/address.h"
#include "recovery/journal.h"

/* The journal that a restorer holds, by the number in its arguments. False: it cannot be read. */
static bool journal_of(pid_t restorer, struct journal **out)
{
    char path[64], args[64] = "", dir[PATH_MAX];
    int fd;
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)restorer);
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    size_t n = f ? fread(args, 1, sizeof(args) - 1, f) : 0, name = strnlen(args, n);
    if (name >= n || sscanf(args + name + 1, "%d", &fd) != 1)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)restorer, fd);
    ssize_t len = readlink(path, dir, sizeof(dir) - 1);
    if (len <= 0)
        return false;
    dir[len] = '\0';
    char *slash = strrchr(dir, '/');
    if (!slash || strcmp(slash, "/journal") != 0)
        return false;
    *slash = '\0';
    return journal_open_readonly(dir, out, NULL) == 0;
}

/* What cannot be read counts as being about the same devices. */
static bool overlaps(pid_t restorer, const char *driver, const char *where)
{
    struct journal *theirs;
    if (!journal_of(restorer, &theirs))
        return true;
    const struct journal_shared *s = journal_shared(theirs);
    bool overlap =
        !driver[0] || !s->driver[0] || address_overlap(driver, where, s->driver, s->where);
    journal_close(theirs);
    return overlap;
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
