/* See principal.h. Only root writes the two files, but they may be long, so reading is bounded. */
#include "base/principal.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/util.h"

#define RANGES_MAX     4096U
#define LINES_MAX      65536U
#define NAMESPACES_MAX 33 /* nesting, as the kernel's MAX_PID_NS_LEVEL; user namespaces alike */
#define CHECK_NS       NSEC_PER_SEC
#define BLOCK          65536U
#define NO_UID         ((uid_t)-1)

/* ---- /etc/subuid ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct subuid_range *)a)->name, ((const struct subuid_range *)b)->name);
}

/* Finds the number of each range's owner who is written as a name. */
static void resolve_owners(struct principals *a, const char *path)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    const struct passwd *p;
    qsort(a->v, a->n, sizeof(*a->v), by_name);
    for (unsigned i = 0; f && i < LINES_MAX && (p = fgetpwent(f)); i++) {
        struct subuid_range key = {.first = 0};
        if ((size_t)snprintf(key.name, sizeof(key.name), "%s", p->pw_name) >= sizeof(key.name))
            continue;
        struct subuid_range *r = bsearch(&key, a->v, a->n, sizeof(*a->v), by_name);
        while (r && r > a->v && by_name(r - 1, &key) == 0)
            r--;
        for (; r && r < a->v + a->n && by_name(r, &key) == 0; r++)
            r->owner = r->owner == NO_UID ? p->pw_uid : r->owner;
    }
}

static void ranges_read(struct principals *a, const char *path)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    char line[256];
    a->n = 0;
    for (unsigned i = 0; f && i < LINES_MAX && a->n < RANGES_MAX; i++) {
        struct subuid_range r;
        uint64_t owner;
        if (!fgets(line, sizeof(line), f))
            break;
        if (sscanf(line, "%31[^:#\n]:%u:%u", r.name, &r.first, &r.count) != 3 || !r.first)
            continue;
        r.owner = parse_u64(r.name, 0, NO_UID - 1, &owner) == 0 ? (uid_t)owner : NO_UID;
        struct subuid_range *v = reallocarray(a->v, a->n + 1, sizeof(*v));
        if (!v)
            break;
        a->v = v;
        a->v[a->n++] = r;
    }
}

/* Whether the file differs from that of the previous call, by number, size and time. */
static bool file_changed(const char *path, struct stat *was)
{
    struct stat now = {.st_ino = 0};
    if (stat(path, &now) < 0)
        now = (struct stat){.st_ino = 0};
    bool same = now.st_ino == was->st_ino && now.st_size == was->st_size &&
                now.st_mtim.tv_sec == was->st_mtim.tv_sec &&
                now.st_mtim.tv_nsec == was->st_mtim.tv_nsec;
    *was = now;
    return !same;
}

static uid_t range_owner(struct principals *a, uid_t uid)
{
    const char *subuid = a->subuid ? a->subuid : "/etc/subuid";
    const char *passwd = a->passwd ? a->passwd : "/etc/passwd";
    uint64_t now = monotonic_ns();
    if (!a->checked_ns || now - a->checked_ns >= CHECK_NS) {
        a->checked_ns = now;
        bool changed = file_changed(subuid, &a->subuid_was);
        if (file_changed(passwd, &a->passwd_was) || changed) {
            ranges_read(a, subuid);
            if (a->n)
                resolve_owners(a, passwd);
        }
    }
    for_each (r, a->v, a->n) {
        if (uid < r->first || uid - r->first >= r->count)
            continue;
        bool person = r->owner != NO_UID && r->owner != 0;
        return person ? r->owner : r->first + (uid - r->first) / BLOCK * BLOCK;
    }
    return uid;
}

/* ---- user namespaces ---- */

static bool own_namespace(struct principals *a)
{
    struct stat st;
    if (!a->ns_ino && stat("/proc/self/ns/user", &st) == 0) {
        a->ns_dev = st.st_dev;
        a->ns_ino = st.st_ino;
    }
    return a->ns_ino != 0;
}

static bool is_own(const struct principals *a, const struct stat *st)
{
    return st->st_dev == a->ns_dev && st->st_ino == a->ns_ino;
}

/* The user who made this user namespace or, if it is nested, the outermost one around it that is
 * not ours. Closes fd. NO_UID: the namespace is ours, or its maker cannot be found. */
static uid_t outer_owner(struct principals *a, int fd)
{
    struct stat st;
    uid_t owner = NO_UID;
    const bool own = fd >= 0 && fstat(fd, &st) == 0 && is_own(a, &st);
    for (unsigned i = 0; !own && fd >= 0 && i < NAMESPACES_MAX && owner == NO_UID; i++) {
        int parent = ioctl(fd, NS_GET_PARENT);
        if (parent < 0 || fstat(parent, &st) < 0 ||
            (is_own(a, &st) && ioctl(fd, NS_GET_OWNER_UID, &owner) < 0))
            owner = NO_UID;
        close(fd);
        fd = parent;
    }
    close_p(&fd);
    return owner;
}

/* The user who made the process's user namespace. NO_UID: it is ours, or its maker cannot be found.
 * The uid of the process does not prove that the pid is still the peer's, because a process may
 * change its uid within its namespace. */
static uid_t namespace_owner(struct principals *a, pid_t pid)
{
    char path[40];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    if (!own_namespace(a) || stat(path, &st) < 0 || is_own(a, &st))
        return NO_UID;
    return outer_owner(a, open(path, O_RDONLY | O_CLOEXEC));
}

uid_t principal_of(struct principals *a, uid_t uid, pid_t pid)
{
    if (uid == 0)
        return 0;
    uid_t owner = pid > 0 ? namespace_owner(a, pid) : NO_UID;
    return range_owner(a, owner != NO_UID && owner != 0 ? owner : uid);
}

/* Opens the outermost pid namespace around the process that is not ours. -1: the process is in
 * ours, or that cannot be found out. */
static int outer_pidns(pid_t pid, ino_t *number)
{
    char path[40];
    struct stat own, st = {.st_ino = 0};
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
    int outer = -1, fd = open(path, O_RDONLY | O_CLOEXEC);
    bool found = stat("/proc/self/ns/pid", &own) < 0;
    for (unsigned i = 0; fd >= 0 && !found && i < NAMESPACES_MAX; i++) {
        found = fstat(fd, &st) < 0 || st.st_ino == own.st_ino;
        if (found)
            break;
        *number = st.st_ino;
        close_p(&outer);
        outer = fd;
        fd = ioctl(outer, NS_GET_PARENT);
    }
    close_p(&fd);
    if (fd >= 0 && found && st.st_ino == own.st_ino)
        return outer;
    close_p(&outer);
    return -1;
}

uid_t principal_of_guest(struct principals *a, uid_t uid, pid_t pid)
{
    ino_t number = 0;
    int fd = outer_pidns(pid, &number);
    if (fd < 0)
        return principal_of(a, uid, pid);
    const uid_t owner = own_namespace(a) ? outer_owner(a, ioctl(fd, NS_GET_USERNS)) : NO_UID;
    close(fd);
    return owner != NO_UID && owner != 0 ? range_owner(a, owner) : (uid_t)number;
}

void principals_free(struct principals *a)
{
    free(a->v);
    a->v = NULL;
    a->n = 0;
}
