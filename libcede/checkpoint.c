/* libcede: a checkpoint in a file; see cede/slice.h. Whenever this process or the machine stops,
 * the file is the former one or the new one, whole. PATH.new is locked while it is written, so that
 * of two processes that were given one path by mistake neither renames what the other has half
 * done. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "cede/slice.h"
#include "libcede/error.h"

#define CHECKPOINT_VERSION 1U

#define TRIES 100 /* to get PATH.new, while other processes rename it */

/* The beginning of a file, in the machine's byte order; the state follows. Magic and version stay
 * where they are in all releases. */
struct checkpoint_head {
    char magic[8];
    uint32_t version, head_bytes;
    uint64_t work, done, bytes;
    uint64_t state_sum, head_sum; /* head_sum: of all that stands in front of it */
};

PRINTF_LIKE(3, 4)
static int checkpoint_failed(struct cede_checkpoint *c, int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->error, sizeof(c->error), fmt, args);
    va_end(args);
    return cede_fail(code, "%s", c->error);
}

/* What errno says of one of its two paths. */
static int checkpoint_cannot(struct cede_checkpoint *c, const char *what, const char *path)
{
    return errno == ELOOP
               ? checkpoint_failed(
                     c, -ELOOP, "%s is a symbolic link: remove it, or give what it leads to", path)
               : checkpoint_failed(c, errno == ENOENT ? -ENOTDIR : -errno,
                                   "cannot %s %s (%s): see that its directory is there, and that "
                                   "this program may use it",
                                   what, path, strerror(errno));
}

/* FNV-1a over words (Fowler, Noll, Vo), with a shift, without which the high bits of a word reach
 * no low one. Each step is a bijection of the sum so far and of the word: so a change within one
 * word is always found. */
static uint64_t checkpoint_sum(const void *data, size_t bytes)
{
    const char *p = data;
    uint64_t h = 0xcbf29ce484222325ULL ^ bytes;
    for (size_t n; bytes > 0; p += n, bytes -= n) {
        uint64_t word = 0;
        n = bytes < sizeof(word) ? bytes : sizeof(word);
        memcpy(&word, p, n);
        h = (h ^ word) * 0x100000001b3ULL;
        h ^= h >> 32;
    }
    return h;
}

static struct checkpoint_head checkpoint_head(const struct cede_checkpoint *c, uint64_t done,
                                              const void *data, size_t bytes)
{
    struct checkpoint_head h = {.magic = "CEDEckpt",
                                .version = CHECKPOINT_VERSION,
                                .head_bytes = sizeof(h),
                                .work = c->work,
                                .done = done,
                                .bytes = bytes};
    h.state_sum = checkpoint_sum(data, bytes);
    h.head_sum = checkpoint_sum(&h, offsetof(struct checkpoint_head, head_sum));
    return h;
}

static int checkpoint_check(struct cede_checkpoint *c, const void *data, size_t bytes)
{
    c->error[0] = '\0';
    if (!c->path || !c->path[0])
        return checkpoint_failed(c, -EINVAL, "a checkpoint needs a path: set `path`");
    if (!data && bytes)
        return checkpoint_failed(c, -EINVAL, "data is NULL: give %zu bytes", bytes);
    if (strlen(c->path) + sizeof(".new") > PATH_MAX)
        return checkpoint_failed(c, -ENAMETOOLONG, "the path has %zu bytes: give a shorter one",
                                 strlen(c->path));
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* 0, or -1 and errno. */
static int checkpoint_put(int fd, const void *data, size_t bytes)
{
    const char *p = data;
    for (ssize_t n; bytes > 0; p += n, bytes -= (size_t)n) {
        errno = EIO; /* where nothing is written */
        while ((n = write(fd, p, bytes)) < 0 && errno == EINTR)
            ;
        if (n <= 0)
            return -1;
    }
    return 0;
}

/* What is at the path may be replaced: nothing, or a file. */
static int checkpoint_look(struct cede_checkpoint *c)
{
    struct stat st;
    if (lstat(c->path, &st) < 0)
        return errno == ENOENT ? 0 : checkpoint_cannot(c, "look at", c->path);
    errno = ELOOP;
    if (S_ISLNK(st.st_mode))
        return checkpoint_cannot(c, "replace", c->path);
    if (!S_ISREG(st.st_mode))
        return checkpoint_failed(c, -EEXIST, "%s is no file: give another path", c->path);
    return 0;
}

/* Opens and locks PATH.new. A descriptor or a negative errno. */
static int checkpoint_open_new(struct cede_checkpoint *c, const char *name)
{
    for (int tries = 0; tries < TRIES; tries++) {
        struct stat ours, there;
        _cleanup_close_ int fd =
            open(name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
        if (fd < 0)
            return checkpoint_cannot(c, "create", name);
        int locked = flock(fd, LOCK_EX | LOCK_NB);
        if (locked < 0 && errno == EWOULDBLOCK)
            break;
        if (locked < 0 || fstat(fd, &ours) < 0)
            return checkpoint_cannot(c, "lock", name);
        if (!S_ISREG(ours.st_mode) || ours.st_nlink > 1)
            return checkpoint_failed(c, -EEXIST, "%s is something else: remove it", name);
        if (lstat(name, &there) == 0 && there.st_ino == ours.st_ino && there.st_dev == ours.st_dev)
            return TAKE_FD(fd);
        /* The process that had the lock has renamed it meanwhile: it is no longer ours to write. */
    }
    return checkpoint_failed(
        c, -EBUSY, "another process writes %s: give each computation a path of its own", name);
}

static int checkpoint_sync_directory(const char *path)
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof(copy), "%s", path);
    _cleanup_close_ int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || (fsync(fd) < 0 && errno != EINVAL) ? -errno : 0; /* EINVAL: it needs none */
}

CEDE_API int cede_checkpoint_write(struct cede_checkpoint *c, uint64_t done, const void *data,
                                   size_t bytes)
{
    char name[PATH_MAX];
    LONG_CALL(GIVEN(c));
    int r = checkpoint_check(c, data, bytes);
    if (r < 0)
        return r;
    snprintf(name, sizeof(name), "%s.new", c->path);
    r = checkpoint_look(c);
    if (r < 0)
        return r;
    _cleanup_close_ int fd = checkpoint_open_new(c, name);
    if (fd < 0)
        return fd;
    const struct checkpoint_head h = checkpoint_head(c, done, data, bytes);
    if (ftruncate(fd, 0) < 0 || checkpoint_put(fd, &h, sizeof(h)) < 0 ||
        checkpoint_put(fd, data, bytes) < 0 || fsync(fd) < 0 || rename(name, c->path) < 0) {
        r = -errno;
        unlink(name); /* so that it takes no room on a full disk */
        return checkpoint_failed(c, r,
                                 "cannot write %s (%zu bytes, %s): %s, and save again; the former "
                                 "checkpoint is still there",
                                 name, bytes + sizeof(h), strerror(-r),
                                 r == -ENOSPC || r == -EDQUOT ? "make room" : "look at its disk");
    }
    r = checkpoint_sync_directory(c->path);
    return r < 0 ? checkpoint_failed(c, r,
                                     "cannot sync the directory of %s (%s): save again; after a "
                                     "loss of power the former checkpoint may be there",
                                     c->path, strerror(-r))
                 : 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Up to `bytes`; how many there were, or a negative errno. */
static ssize_t checkpoint_get(int fd, void *data, size_t bytes)
{
    size_t got = 0;
    while (got < bytes) {
        ssize_t n = read(fd, (char *)data + got, bytes - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

static int checkpoint_damaged(struct cede_checkpoint *c, const char *how)
{
    return checkpoint_failed(c, -EBADMSG,
                             "the checkpoint %s is damaged (%s): restore it from a copy, or remove "
                             "it to begin anew",
                             c->path, how);
}

/* got: bytes of the head that were read. */
static int checkpoint_accept(struct cede_checkpoint *c, const struct checkpoint_head *h, size_t got,
                             uint64_t size, size_t bytes)
{
    const struct checkpoint_head own = {.magic = "CEDEckpt"};
    if (got < sizeof(own.magic) || memcmp(h->magic, own.magic, sizeof(own.magic)) != 0)
        return checkpoint_failed(c, -EBADMSG,
                                 "%s is damaged at its beginning, or no checkpoint: give another "
                                 "path, or remove it to begin anew",
                                 c->path);
    if (got < offsetof(struct checkpoint_head, work))
        return checkpoint_damaged(c, "cut off");
    if (h->version != CHECKPOINT_VERSION)
        return checkpoint_failed(c, -EPROTO,
                                 "the checkpoint %s is of format %u, and this libcede reads format "
                                 "%u: go on with the release that wrote it, or remove it to begin "
                                 "anew",
                                 c->path, h->version, CHECKPOINT_VERSION);
    if (got < sizeof(*h))
        return checkpoint_damaged(c, "cut off");
    if (h->head_bytes != sizeof(*h) ||
        h->head_sum != checkpoint_sum(h, offsetof(struct checkpoint_head, head_sum)))
        return checkpoint_damaged(c, "its head has another checksum");
    if (h->work != c->work)
        return checkpoint_failed(c, -ESTALE,
                                 "the checkpoint %s is of other work (number %#llx, not %#llx): "
                                 "give another path, or remove it to begin anew",
                                 c->path, (unsigned long long)h->work, (unsigned long long)c->work);
    if (size - sizeof(*h) != h->bytes)
        return checkpoint_damaged(c, "not of its full length");
    if (h->bytes != bytes)
        return checkpoint_failed(c, -ESTALE,
                                 "the state in the checkpoint %s has %llu bytes, not %zu: give "
                                 "another path, or remove it to begin anew",
                                 c->path, (unsigned long long)h->bytes, bytes);
    return 0;
}

CEDE_API int cede_checkpoint_read(struct cede_checkpoint *c, uint64_t *done, void *data,
                                  size_t bytes)
{
    struct stat st;
    struct checkpoint_head h;
    char copy[PATH_MAX];
    LONG_CALL(GIVEN(c));
    int r = checkpoint_check(c, data, bytes);
    if (r < 0)
        return r;
    if (!done)
        return checkpoint_failed(c, -EINVAL, "done is NULL: it has to be given");
    snprintf(copy, sizeof(copy), "%s", c->path);
    _cleanup_close_ int fd = open(c->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT && access(dirname(copy), F_OK) == 0
                   ? checkpoint_failed(c, -ENOENT, "there is no checkpoint %s: begin at 0", c->path)
                   : checkpoint_cannot(c, "open", c->path);
    if (!S_ISREG(st.st_mode))
        return checkpoint_failed(c, -EBADMSG, "%s is no file: give another path", c->path);
    ssize_t got = checkpoint_get(fd, &h, sizeof(h));
    if (got >= 0 && (r = checkpoint_accept(c, &h, (size_t)got, (uint64_t)st.st_size, bytes)) < 0)
        return r;
    got = got < 0 ? got : checkpoint_get(fd, data, bytes);
    if (got < 0)
        return checkpoint_cannot(c, "read", c->path);
    if ((size_t)got != bytes)
        return checkpoint_damaged(c, "cut off");
    if (checkpoint_sum(data, bytes) != h.state_sum)
        return checkpoint_damaged(c, "its state has another checksum");
    *done = h.done;
    return 0;
}
