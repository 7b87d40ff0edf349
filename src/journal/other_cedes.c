/* See other_cedes.h. */
#include "journal/other_cedes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/unasked_fds.h"
#include "base/util.h"
#include "journal/address.h"
#include "journal/restorers.h"
#include "who/pidns.h"
#include "who/procfs.h"

#define VISIBLE_MS 1000 /* in which a restorer gets its name after fork(2) */
/* Time to wait until a cede with a younger restorer is gone. One that stays was there before, and
 * has started a new restorer. */
#define LEAVES_MS 5000
#define DIR_ROOM  256

enum { NO, PERHAPS, CERTAIN };

/* Gets devices, as in an address of several drivers, and directory from the arguments of root's
 * restorer, for users who may not look at its descriptors. */
static bool root_says(pid_t restorer, char devices[ADDRESS_TEXT], char dir[DIR_ROOM])
{
    char text[ADDRESS_TEXT + 2 * DIR_ROOM] = "";
    const ssize_t n = proc_read(restorer, "cmdline", text, sizeof(text));
    const char *first = memchr(text, '\0', n > 0 ? (size_t)n : 0);
    const char *second = first ? memchr(first + 1, '\0', (size_t)(text + n - first - 1)) : NULL;
    if (!second || strlen(first + 1) >= ADDRESS_TEXT || strlen(second + 1) >= DIR_ROOM)
        return false;
    snprintf(devices, ADDRESS_TEXT, "%s", first + 1);
    snprintf(dir, DIR_ROOM, "%s", second + 1);
    return devices[0] && dir[0] == '/';
}

static int root_overlaps(pid_t restorer, const char *driver, const char *where)
{
    char devices[ADDRESS_TEXT], dir[DIR_ROOM];
    return !root_says(restorer, devices, dir)                         ? PERHAPS
           : address_overlap(driver, where, ADDRESS_SEVERAL, devices) ? CERTAIN
                                                                      : NO;
}

/* Whether the restorer's journal has one of these devices. PERHAPS: the restorer may not be looked
 * at. NO also if it has just ended, or its file is no journal any more. Or an error. The type of
 * the descriptor is checked first, because opening a pipe would block. */
static int overlaps(pid_t restorer, uid_t owner, const char *driver, const char *where,
                    const struct journal_lock_id *own)
{
    char path[64], theirs[16], there[256];
    struct statx st;
    if (restorers_have_lock(restorer, own->device, own->inode))
        return NO;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)restorer, RESTORE_JOURNAL_FD);
    _cleanup_close_ int any = open(path, O_PATH | O_CLOEXEC);
    if (any < 0 && (errno == EACCES || errno == EPERM))
        return owner == 0 ? root_overlaps(restorer, driver, where) : PERHAPS;
    if (any < 0)
        return errno == ENOENT ? NO : -errno;
    if (foreign_stat(any, "", &st) < 0 || !S_ISREG(st.stx_mode))
        return NO;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", any);
    /* O_NONBLOCK: open() would wait for a lease that the owner has (fcntl(2)). */
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == EACCES || errno == EPERM || errno == EWOULDBLOCK ? PERHAPS : -errno;
    return journal_devices(fd, theirs, there) == 0 && theirs[0] &&
                   address_overlap(driver, where, theirs, there)
               ? CERTAIN
               : NO;
}

/* Gets the living cede of a restorer, and its directory. Those in other pid namespaces do not
 * count, because otherwise root of a container could keep the machine's ceded from starting. */
static bool stands_by(const struct proc_stat *restorer, struct proc_stat *cede, char dir[DIR_ROOM])
{
    char path[64], devices[ADDRESS_TEXT], *end;
    if (pidns_level(restorer->id.pid) != 1)
        return false;
    *cede = *restorer;
    if (proc_stat_parent(cede) < 0 || strncmp(cede->comm, "cede", 4) != 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)restorer->id.pid, RESTORE_JOURNAL_FD);
    ssize_t n = readlink(path, dir, DIR_ROOM - 1);
    dir[n > 0 ? n : 0] = '\0';
    if (n < 0)
        return root_says(restorer->id.pid, devices, dir);
    end = strrchr(dir, '/');
    if (end)
        *end = '\0';
    return end;
}

static bool is_older(struct proc_id a, struct proc_id b)
{
    return a.start_ticks < b.start_ticks || (a.start_ticks == b.start_ticks && a.pid < b.pid);
}

/* 1, with a message: another cede schedules these devices; `older`: its restorer is older. */
static int other_steers(const struct journal_shared *s, const struct journal_lock_id *own,
                        struct proc_id restorer, bool *older, struct error *err)
{
    _cleanup_free_ pid_t *pids = NULL;
    size_t n = 0;
    int r = proc_list(&pids, &n);
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct proc_stat st, cede;
        char dir[DIR_ROOM];
        uid_t uid;
        if (restorers_have(pids[i], &uid) <= 0 || (uid != 0 && uid != geteuid()) ||
            overlaps(pids[i], uid, s->driver, s->where, own) != CERTAIN ||
            proc_stat_read(pids[i], &st) < 0 || !stands_by(&st, &cede, dir))
            continue;
        *older = is_older(st.id, restorer);
        error_set(err, -EBUSY,
                  "another cede (pid %d) is scheduling the same devices (%s) from %s: use its "
                  "socket (CEDE_DIR=%s), or stop it",
                  (int)cede.id.pid, strcmp(s->driver, ADDRESS_SEVERAL) == 0 ? s->where : s->driver,
                  dir, dir);
        return 1;
    }
    return 0;
}

int other_cedes_refuse(const struct journal_shared *s, const struct journal_lock_id *own,
                       pid_t restorer, struct error *err)
{
    struct proc_stat st;
    uid_t uid;
    bool older = false;
    int ms = 0, r;
    if (!restorer)
        return other_steers(s, own, (struct proc_id){0}, &older, err) ? -EBUSY : 0;
    while (restorers_have(restorer, &uid) == 0 && ms++ < VISIBLE_MS)
        usleep(1000);
    if (proc_stat_read(restorer, &st) < 0)
        return 0; /* the caller runs on, and starts another restorer */
    for (ms = 0; (r = other_steers(s, own, st.id, &older, err)) > 0 && !older; ms += 20) {
        if (ms >= LEAVES_MS)
            break;
        usleep(20000);
    }
    return r > 0 ? -EBUSY : 0;
}

/* Keeps each user once, who can make any number of processes that look like a restorer. */
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
                      const struct journal_lock_id *own)
{
    _cleanup_free_ pid_t *pids = NULL;
    size_t n = 0;
    *o = (struct other_cedes){.n = 0};
    o->unsure = proc_list(&pids, &n) < 0;
    for (size_t i = 0; i < n; i++) {
        uid_t uid = 0;
        int r = restorers_have(pids[i], &uid);
        if (r > 0)
            r = overlaps(pids[i], uid, driver, where, own);
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
