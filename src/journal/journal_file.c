/* See journal.h. Creates, opens, locks and mends the file, and reads it into memory. Trusts nothing
 * that another user may have put there. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "base/paths.h"
#include "base/shared_page.h"
#include "journal/journal_impl.h"
#include "journal/restorers.h"

#define MENDS_MAX     100 /* in a second */
#define MEND_PAUSE_NS 10000000L
#define MAGIC         0x4e524a4544454303ULL /* bytes: 03 C E D E J R N; 03: the layout's number */

/* Makes the header of a journal of this boot and version. */
static int header_now(struct header *out, struct error *err)
{
    *out = (struct header){
        .magic = MAGIC,
        .job_size = sizeof(struct journal_job),
        .group_size = sizeof(struct journal_group),
        .jobs = JOURNAL_JOBS,
        .groups = JOURNAL_GROUPS,
        .swap_size = sizeof(struct journal_swap),
        .swaps = JOURNAL_SWAPS,
        .member_size = sizeof(struct journal_member),
        .members = JOURNAL_MEMBERS,
        .shared.next_number = 1,
        .shared.incomplete = ALL_MISSING,
    };
    int r = proc_boot_id(out->boot_id);
    return r < 0 ? error_set(err, r, "cannot tell this boot: %s", strerror(-r)) : 0;
}

/* 1: the header is of this boot and version; 0: it is not. */
static int header_ok(const struct header *h, struct error *err)
{
    struct header now;
    int r = header_now(&now, err);
    return r < 0 ? r : memcmp(h, &now, offsetof(struct header, holder)) == 0;
}

/* Gets the number of groups that the file has room for. -EIO: it is cut short. */
static int room_of(int fd, uint32_t *groups)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if ((size_t)st.st_size < GROUPS_OFFSET)
        return -EIO;
    size_t room = ((size_t)st.st_size - GROUPS_OFFSET) / sizeof(struct journal_group);
    *groups = (uint32_t)min_u64(room, JOURNAL_GROUPS);
    return 0;
}

void journal_refresh(struct journal *j)
{
    uint32_t reserved = j->map->header.shared.reserved;
    j->groups_end = j->groups_reserved = (uint32_t)min_u64(reserved, JOURNAL_GROUPS);
    j->jobs_end = JOURNAL_JOBS;
}

/* Reads the file into memory, with zeros behind its end; pages of zeros are not allocated. */
static int take_in(struct journal *j)
{
    char block[HEADER_SIZE], *to = (char *)j->map;
    ssize_t n = 1;
    size_t at = 0;
    for (; at < sizeof(*j->map) && n > 0; at += n > 0 ? (size_t)n : 0) {
        n = pread(j->fd, block, min_u64(sizeof(block), sizeof(*j->map) - at), (off_t)at);
        if (n > 0 && memcmp(to + at, block, (size_t)n) != 0)
            memcpy(to + at, block, (size_t)n);
    }
    if (n < 0)
        return -errno;
    if (at < sizeof(*j->map))
        (void)fallocate(j->memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                        (off_t)(sizeof(*j->map) - at));
    int r = room_of(j->fd, &j->groups_reserved);
    j->map->header.stale = 0;
    j->groups_end = j->groups_reserved;
    j->jobs_end = JOURNAL_JOBS;
    return r;
}

int journal_from_fd(int fd, int memory_fd, int lock_fd, struct journal **out, struct error *err)
{
    struct journal *j = calloc(1, sizeof(*j));
    if (!j) {
        close(fd);
        close_p(&memory_fd);
        close_p(&lock_fd);
        return error_set(err, -ENOMEM, "out of memory");
    }
    *j = (struct journal){.fd = fd, .memory_fd = memory_fd, .lock_fd = lock_fd};
    const bool begun = memory_fd >= 0;
    int r = 0;
    if (begun) {
        void *map = mmap(NULL, sizeof(*j->map), PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
        j->map = map == MAP_FAILED ? NULL : map;
    } else {
        j->map = shared_page("cede-journal", sizeof(*j->map), SHARE_BOTH, &j->memory_fd);
    }
    if (!j->map)
        r = error_set(err, -errno, "cannot get memory for the journal: %s", strerror(errno));
    else if (!begun && (take_in(j) < 0 || (r = header_ok(&j->map->header, err)) == 0))
        r = error_set(err, -ENOENT, "the journal is from another boot or version, or cut short");
    if (r >= 0 && begun)
        journal_refresh(j);
    if (r < 0)
        journal_close(j);
    *out = r < 0 ? NULL : j;
    return r < 0 ? r : 0;
}

/* Begins a new file, as the holder of the lock. */
static int format_file(int fd, const char *path, struct error *err)
{
    struct header h;
    int r = header_now(&h, err);
    if (r < 0)
        return r;
    h.magic = 0; /* written last, so that a part of a header is none */
    r = ftruncate(fd, 0) < 0 ? -errno : -posix_fallocate(fd, 0, (off_t)GROUPS_OFFSET);
    r = r < 0 ? r : journal_write(fd, &h, sizeof(h), 0);
    r = r < 0 ? r : journal_write(fd, &(uint64_t){MAGIC}, 8, 0);
    return r < 0 ? error_set(err, r, "cannot write %s: %s%s", path, strerror(-r),
                             r == -ENOSPC ? " (make room there, or set CEDE_DIR)" : "")
                 : 0;
}

static int open_checked(const char *path, int flags, mode_t mode, struct error *err)
{
    /* O_NONBLOCK: another user may have a pipe there, or a lease on the file (fcntl(2)). */
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
    if (fd < 0)
        return error_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
    struct stat st;
    bool reads = (flags & O_ACCMODE) == O_RDONLY, plain = false, ours = false;
    if (fstat(fd, &st) == 0) {
        plain = S_ISREG(st.st_mode) && !(st.st_mode & 022);
        ours = reads ? cede_peer_trusted(st.st_uid, strncmp(path, "/tmp/", 5) != 0)
                     : st.st_uid == geteuid();
    }
    if (plain && ours)
        return fd;
    close(fd);
    return error_set(err, -EPERM,
                     "%s is not a plain file of %sthis user that others cannot write to; remove "
                     "it, or set CEDE_DIR",
                     path, reads ? "root or " : "");
}

#define CONTINUE_MS 100 /* between looks for stopped holders, each of which reads all of /proc */

static int lock(int fd, int wait_ms)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    for (int look_ms = 0;; look_ms -= 10) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (look_ms <= 0) {
            restorers_continue(st.st_dev, st.st_ino);
            look_ms = CONTINUE_MS;
        }
        if (wait_ms <= 0)
            return -EBUSY;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        wait_ms -= 10;
    }
}

static pid_t holder_by(const char *journal)
{
    _cleanup_close_ int fd = open(journal, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct header h = {0};
    return fd >= 0 && pread(fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h) ? h.holder : 0;
}

pid_t journal_holder(const char *dir)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/journal", dir);
    return holder_by(path);
}

/* Locks a separate file, because a user who may read a file may lock it, and all may read the
 * journal. */
static int lock_dir(const char *dir, const char *journal, int wait_ms, struct error *err)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/lock", dir);
    _cleanup_close_ int fd = open_checked(path, O_RDWR | O_CREAT, 0600, err);
    int r = fd < 0 ? fd : lock(fd, wait_ms);
    if (fd < 0 || r == 0)
        return fd < 0 ? r : TAKE_FD(fd);
    if (r != -EBUSY)
        return error_set(err, r, "cannot lock %s: %s", path, strerror(-r));
    return error_set(err, r,
                     "another cede (pid %d) is scheduling here and holds %s; use its socket, or "
                     "stop it",
                     (int)holder_by(journal), path);
}

int journal_open(const char *dir, int wait_ms, struct journal **out, struct error *err)
{
    int r = cede_dir_make(dir, err);
    if (r < 0)
        return r;
    char path[512], bad[520];
    snprintf(path, sizeof(path), "%s/journal", dir);
    snprintf(bad, sizeof(bad), "%s.bad", path);
    bool set_aside = false;
    _cleanup_close_ int lock_fd = lock_dir(dir, path, wait_ms, err);
    if (lock_fd < 0)
        return lock_fd;

    for (;;) {
        _cleanup_close_ int fd = open_checked(path, O_RDWR | O_CREAT, 0644, err);
        if (fd < 0)
            return fd;
        struct header h = {0};
        struct stat st;
        ssize_t n = fstat(fd, &st) < 0 ? -1 : pread(fd, &h, sizeof(h), 0);
        if (n < 0 || n < (ssize_t)min_u64((uint64_t)st.st_size, sizeof(h))) {
            r = n < 0 ? -errno : -EINTR;
            return error_set(err, r, "cannot read %s: %s (if that stays so, remove it)", path,
                             strerror(-r));
        }
        if ((r = header_ok(&h, err)) < 0)
            return r;
        if (n == (ssize_t)sizeof(h) && (!r || st.st_size < (off_t)GROUPS_OFFSET)) {
            if (set_aside || rename(path, bad) < 0)
                return error_set(err, -EIO, "cannot set %s aside; remove it", path);
            set_aside = true;
            continue;
        }
        if (n != (ssize_t)sizeof(h) && (r = format_file(fd, path, err)) < 0)
            return r;
        r = journal_from_fd(TAKE_FD(fd), -1, TAKE_FD(lock_fd), out, err);
        if (r < 0)
            return r;
        struct journal *j = *out;
        j->damaged = set_aside || (n > 0 && n < (ssize_t)sizeof(h));
        journal_tidy(j);
        j->map->header.holder = (int32_t)getpid();
        journal_store_shared(j);
        return 0;
    }
}

int journal_open_readonly(const char *dir, struct journal **out, struct error *err)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/journal", dir);
    int fd = open_checked(path, O_RDONLY, 0, err);
    if (fd < 0)
        return fd;
    return journal_from_fd(fd, -1, -1, out, err);
}

int journal_devices(int fd, char driver[16], char where[256])
{
    struct header h;
    if (pread(fd, &h, sizeof(h), 0) != sizeof(h) || header_ok(&h, NULL) <= 0)
        return -ENOENT;
    snprintf(driver, 16, "%.*s", (int)sizeof(h.shared.driver) - 1, h.shared.driver);
    snprintf(where, 256, "%.*s", (int)sizeof(h.shared.where) - 1, h.shared.where);
    return 0;
}

void journal_yield(struct journal *j)
{
    if (journal_stale(j) && journal_mend(j) < 0)
        return;
    j->yielded = true;
    flock(j->lock_fd, LOCK_UN);
}

/* Whether another process has held the journal meanwhile, so that the file is right. */
static bool was_held(const struct journal *j)
{
    struct header h = {0};
    return j->yielded && pread(j->fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h) &&
           header_ok(&h, NULL) > 0 && h.holder != getpid();
}

int journal_reclaim(struct journal *j)
{
    int r = lock(j->lock_fd, 0);
    if (r == 0 && was_held(j))
        r = take_in(j);
    if (r == 0) {
        j->yielded = false;
        j->map->header.holder = (int32_t)getpid();
        journal_store_shared(j);
    }
    return r;
}

bool journal_stale(const struct journal *j)
{
    return j->map->header.stale < 0;
}

/* Copies a record from memory to the file. The first word of a record says whether it is in use; of
 * one that may cross a page it is cleared first and set last. */
static int mend_record(const struct journal *j, const char *r, size_t size)
{
    const off_t at = r - (const char *)j->map;
    const uint32_t none = 0;
    if (HEADER_SIZE % size == 0)
        return journal_write(j->fd, r, size, at);
    int e = journal_write(j->fd, &none, sizeof(none), at);
    e = e < 0
            ? e
            : journal_write(j->fd, r + sizeof(none), size - sizeof(none), at + (off_t)sizeof(none));
    return e < 0 ? e : journal_write(j->fd, r, sizeof(none), at);
}

/* Copies the records that differ from the file's. */
static int mend_records(const struct journal *j, const void *records, size_t size, size_t n)
{
    char block[1 << 14];
    const size_t room = sizeof(block) / size;
    int e = 0;
    for (size_t i = 0; e == 0 && i < n; i += room) {
        const char *r = (const char *)records + i * size;
        const size_t count = min_u64(room, n - i);
        if (pread(j->fd, block, count * size, r - (const char *)j->map) != (ssize_t)(count * size))
            return -EIO;
        for (size_t k = 0; e == 0 && k < count; k++) {
            if (memcmp(r + k * size, block + k * size, size) != 0)
                e = mend_record(j, r + k * size, size);
        }
    }
    return e;
}

/* Until it is done the file's header says that changes may be missing, in case of a kill. */
int journal_mend(struct journal *j)
{
    struct layout *map = j->map;
    struct header h = {0};
    uint32_t room = 0;
    if (j->yielded)
        return -EBUSY;
    const bool counts = pread(j->fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h) &&
                        memcmp(&h, &map->header, offsetof(struct header, holder)) == 0 &&
                        room_of(j->fd, &room) == 0;
    if (!map->header.stale && counts && room >= j->groups_reserved)
        return 0;
    map->header.stale = -EIO; /* so that the other holder goes on if this one is killed */
    int r = -posix_fallocate(j->fd, 0,
                             (off_t)(GROUPS_OFFSET + j->groups_reserved * sizeof(*map->groups)));
    h.shared.incomplete = ALL_MISSING;
    if (r == 0 && counts)
        r = journal_write(j->fd, &h, sizeof(h), 0);
    r = r < 0 ? r : mend_records(j, map->jobs, sizeof(*map->jobs), JOURNAL_JOBS);
    r = r < 0 ? r : mend_records(j, map->swaps, sizeof(*map->swaps), JOURNAL_SWAPS);
    r = r < 0 ? r : mend_records(j, map->members, sizeof(*map->members), JOURNAL_MEMBERS);
    r = r < 0 ? r : mend_records(j, map->groups, sizeof(*map->groups), j->groups_reserved);
    r = r < 0 ? r : journal_write(j->fd, map, HEADER_SIZE, 0);
    map->header.stale = r;
    return r < 0 ? r : 1;
}

void journal_mend_soon(struct journal *j)
{
    int r = journal_mend(j);
    for (int i = 0; i < MENDS_MAX && r < 0 && r != -EBUSY; i++) {
        nanosleep(&(struct timespec){.tv_nsec = MEND_PAUSE_NS}, NULL);
        r = journal_mend(j);
    }
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    if (j->map)
        munmap(j->map, sizeof(*j->map));
    close(j->fd);
    close_p(&j->memory_fd);
    close_p(&j->lock_fd);
    free(j);
}

int journal_fd(const struct journal *j)
{
    return j->fd;
}

int journal_memory_fd(const struct journal *j)
{
    return j->memory_fd;
}

int journal_lock_fd(const struct journal *j)
{
    return j->lock_fd;
}

struct journal_lock_id journal_lock_id(const struct journal *j)
{
    struct stat st;
    return fstat(j->lock_fd, &st) < 0 ? (struct journal_lock_id){0, 0}
                                      : (struct journal_lock_id){st.st_dev, st.st_ino};
}
