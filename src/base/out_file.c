/* See out_file.h. The path is walked one name at a time, so that the file which was checked is the
 * one that is written. */
#include "base/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define LINKS_MAX 40   /* as in the kernel */
#define NAMES_MAX 16   /* tries for a temporary name */
#define READER_MS 5000 /* time to wait for a reader of a pipe */

/* ---- the walk ---- */

struct walk {
    int dir;                 /* the directory that was reached */
    char rest[2 * PATH_MAX]; /* the part of the path that is left */
    unsigned links;
};

/* Whether the link is root's and in a directory in which no other user could have put it. */
static bool link_is_roots(int dir, const struct stat *link)
{
    struct stat st;
    return link->st_uid == 0 && fstat(dir, &st) == 0 && st.st_uid == 0 &&
           (!(st.st_mode & (S_IWGRP | S_IWOTH)) || (st.st_mode & S_ISVTX));
}

/* The text of a link in /proc is no path: the link leads to what the process has open. */
static bool is_magic(int dir)
{
    struct statfs fs;
    return fstatfs(dir, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
}

/* Puts the link's text before the rest of the path. */
static int walk_link(struct walk *w, int link)
{
    char text[PATH_MAX], rest[sizeof(w->rest)];
    ssize_t n = readlinkat(link, "", text, sizeof(text) - 1);
    if (n < 0)
        return -errno;
    text[n] = '\0';
    if (++w->links > LINKS_MAX)
        return -ELOOP;
    int size = snprintf(rest, sizeof(rest), "%s/%s", text, w->rest);
    if (size < 0 || (size_t)size >= sizeof(rest))
        return -ENAMETOOLONG;
    memcpy(w->rest, rest, (size_t)size + 1);
    return 0;
}

static int walk_from(struct walk *w)
{
    int fd = w->rest[0] == '/' ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)
             : w->dir >= 0     ? w->dir
                               : open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd != w->dir && w->dir >= 0)
        close(w->dir);
    w->dir = fd;
    return fd < 0 ? -errno : 0;
}

/* Takes the next name of the path. False: there is none, or *r is an error. */
static bool walk_name(struct walk *w, char name[NAME_MAX + 1], bool *last, int *r)
{
    char *at = w->rest + strspn(w->rest, "/");
    size_t n = strcspn(at, "/"), more = n + strspn(at + n, "/");
    *r = n > NAME_MAX ? -ENAMETOOLONG : 0;
    if (*r < 0 || !n)
        return false;
    memcpy(name, at, n);
    name[n] = '\0';
    *last = !at[more];
    memmove(w->rest, at + more, strlen(at + more) + 1);
    return true;
}

/* Walks to the directory of the file. There the file has `name`, which is no link, or one of /proc.
 * 0; -EISDIR; -EPERM: another user's link; or another error. */
static int walk_to(struct walk *w, char name[NAME_MAX + 1], struct stat *st)
{
    bool last = false;
    int r = walk_from(w);
    while (r == 0 && walk_name(w, name, &last, &r)) {
        _cleanup_close_ int fd = openat(w->dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        *st = (struct stat){.st_mode = 0};
        if (fd < 0 || fstat(fd, st) < 0)
            return errno == ENOENT && last ? 0 : -errno;
        if (S_ISLNK(st->st_mode) && is_magic(w->dir) && last)
            return 0;
        if (S_ISLNK(st->st_mode) && geteuid() == 0 && !link_is_roots(w->dir, st))
            return -EPERM;
        if (S_ISLNK(st->st_mode)) {
            r = walk_link(w, fd);
            r = r < 0 ? r : walk_from(w);
        } else if (last && !S_ISDIR(st->st_mode)) {
            return 0;
        } else if (!S_ISDIR(st->st_mode)) {
            return -ENOTDIR;
        } else {
            close(w->dir);
            w->dir = TAKE_FD(fd);
        }
    }
    return r < 0 ? r : -EISDIR;
}

/* ---- the file ---- */

static int temporary_make(struct out_file *o)
{
    for (unsigned i = 0; i < NAMES_MAX; i++) {
        snprintf(o->temporary, sizeof(o->temporary), ".cede-%x", (unsigned)(monotonic_ns() >> 4));
        o->fd = openat(o->dir, o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                       0666);
        if (o->fd >= 0 || errno != EEXIST)
            break;
    }
    return o->fd < 0 ? -errno : 0;
}

/* Opens what the walk found, and nothing that another user has put in its place since; a link is
 * one of /proc. A pipe without a reader is waited for with a time limit. */
static int open_in_place(struct out_file *o, int dir, const char *name, const struct stat *found)
{
    const bool link = S_ISLNK(found->st_mode);
    const int how = O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC | (link ? 0 : O_NOFOLLOW);
    struct stat is = {.st_ino = 0};
    const bool pipe = S_ISFIFO(found->st_mode);
    int ms = pipe ? READER_MS : 0;
    while ((o->fd = openat(dir, name, how)) < 0 && errno == ENXIO && ms-- > 0)
        usleep(1000);
    if (o->fd >= 0)
        fcntl(o->fd, F_SETFL, 0);
    int r = o->fd < 0 || fstat(o->fd, &is) < 0 ? -errno : 0;
    if (r == -ENXIO && pipe)
        r = -EPIPE;
    if (r == 0 && !link && (is.st_dev != found->st_dev || is.st_ino != found->st_ino))
        r = -EPERM;
    if (r < 0)
        close_p(&o->fd);
    return r;
}

static int out_file_find(struct out_file *o, const char *path, mode_t mode)
{
    struct walk w = {.dir = -1};
    struct stat st = {.st_mode = 0};
    char name[NAME_MAX + 1] = "";
    const size_t n = strlen(path);
    snprintf(w.rest, sizeof(w.rest), "%s", path);
    int r = n == 0               ? -ENOENT
            : n >= PATH_MAX      ? -ENAMETOOLONG
            : path[n - 1] == '/' ? -EISDIR
                                 : walk_to(&w, name, &st);
    if (r == 0 && st.st_mode && !S_ISREG(st.st_mode)) {
        r = open_in_place(o, w.dir, name, &st);
    } else if (r == 0) {
        o->dir = TAKE_FD(w.dir);
        snprintf(o->name, sizeof(o->name), "%s", name);
        r = temporary_make(o);
        if (r == 0 && st.st_mode && geteuid() == 0 && fchown(o->fd, st.st_uid, st.st_gid) < 0)
            r = -errno;
        mode = mode ? mode : st.st_mode & 0777;
        if (r == 0 && mode && fchmod(o->fd, mode) < 0)
            r = -errno;
    }
    close_p(&w.dir);
    return r;
}

bool out_file_is_output(const char *path)
{
    return strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0;
}

int out_file_open(struct out_file *o, const char *path, mode_t mode, struct error *err)
{
    *o = (struct out_file){.fd = -1, .dir = -1};
    snprintf(o->path, sizeof(o->path), "%s", path);
    int r = 0;
    if (out_file_is_output(path))
        o->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    else
        r = out_file_find(o, path, mode);
    if (r == 0 && o->fd < 0)
        r = -errno;
    if (r == 0)
        return 0;
    out_file_drop(o);
    if (r == -EPERM)
        return error_set(err, r,
                         "not writing %s as root: it leads through a link that another user could "
                         "have put there; name the file itself",
                         path);
    if (r == -EPIPE)
        return error_set(err, r, "cannot write %s: no process reads from this pipe", path);
    return error_set(err, r, "cannot write %s: %s", path[0] ? path : "to an empty name",
                     strerror(-r));
}

int out_file_show(struct out_file *o, struct error *err)
{
    int r = 0;
    if (o->dir >= 0 && renameat(o->dir, o->temporary, o->dir, o->name) < 0) {
        r = error_set(err, -errno, "cannot write %s: %s", o->path, strerror(errno));
        out_file_drop(o);
    }
    o->temporary[0] = '\0';
    return r;
}

void out_file_drop(struct out_file *o)
{
    if (o->fd >= 0 && o->dir >= 0 && o->temporary[0])
        unlinkat(o->dir, o->temporary, 0);
    close_p(&o->fd);
    close_p(&o->dir);
    o->fd = o->dir = -1;
}

int out_file_put(const char *path, mode_t mode, const void *data, size_t n, struct error *err)
{
    struct out_file o;
    int r = out_file_open(&o, path, mode, err);
    if (r < 0)
        return r;
    r = write_full(o.fd, data, n);
    if (r < 0)
        error_set(err, r, "cannot write %s: %s", path, strerror(-r));
    else
        r = out_file_show(&o, err);
    out_file_drop(&o);
    return r;
}
