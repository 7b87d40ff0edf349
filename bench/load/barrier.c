/* See barrier.h. A file in shared memory has the state and, as locks on its bytes, who is there: a
 * lock goes with its process, however that ends, so that no rank waits for one that was killed.
 * Whoever sees a rank gone, or leaves, removes the file's name: the next ranks begin anew. */
#include "bench/load/barrier.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct shared {
    uint32_t ranks, joined; /* under the lock on byte 0 */
    _Atomic uint32_t arrived, round, over;
};

struct barrier {
    char name[80];
    int fd;
    struct shared *s;
    uint32_t rank, round; /* round: in which this rank arrived */
};

/* Byte 0: the ranks' number and the file's name. Byte 1 + i: rank i is there. */
static int lock_byte(int fd, int command, short type, uint64_t byte, struct flock *out)
{
    *out = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
    int r;
    while ((r = fcntl(fd, command, out)) < 0 && errno == EINTR)
        ;
    return r < 0 ? -errno : 0;
}

static int barrier_lock(const struct barrier *b, short type)
{
    struct flock l;
    return lock_byte(b->fd, F_OFD_SETLKW, type, 0, &l);
}

/* A rank that joined is there no more. */
static bool rank_gone(const struct barrier *b)
{
    struct flock l;
    for (uint32_t i = 0; i < b->s->joined; i++) {
        if (i != b->rank &&
            (lock_byte(b->fd, F_OFD_GETLK, F_WRLCK, 1 + i, &l) < 0 || l.l_type == F_UNLCK))
            return true;
    }
    return false;
}

/* With the lock held: as long as the file has its name, that is the barrier's. */
static void unlink_own(const struct barrier *b)
{
    struct stat st;
    if (fstat(b->fd, &st) == 0 && st.st_nlink)
        shm_unlink(b->name);
}

static void end_for_all(struct barrier *b)
{
    barrier_lock(b, F_WRLCK);
    unlink_own(b);
    barrier_lock(b, F_UNLCK);
    atomic_store(&b->s->over, 1);
    atomic_fetch_add(&b->s->round, 1);
    syscall(SYS_futex, &b->s->round, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void barrier_free(struct barrier *b)
{
    if (b->s)
        munmap(b->s, sizeof(*b->s));
    close_p(&b->fd);
    free(b);
}

/* Opens the file and locks byte 0. 0; 1: that file has lost its name, or is of ranks that end, so
 * try again; -errno. */
static int barrier_file(struct barrier *b)
{
    struct stat st;
    b->fd = shm_open(b->name, O_RDWR | O_CREAT, 0600);
    if (b->fd < 0 || fstat(b->fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid())
        return -EPERM;
    int r = barrier_lock(b, F_WRLCK);
    if (r < 0)
        return r;
    if (fstat(b->fd, &st) < 0 || (st.st_nlink && ftruncate(b->fd, sizeof(*b->s)) < 0))
        return -errno;
    if (!st.st_nlink)
        return 1;
    b->s = mmap(NULL, sizeof(*b->s), PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
    if (b->s == MAP_FAILED) {
        b->s = NULL;
        return -errno;
    }
    if (!atomic_load(&b->s->over) && !rank_gone(b))
        return 0;
    unlink_own(b);
    return 1;
}

static int barrier_join(struct barrier *b, uint32_t ranks, struct error *err)
{
    struct flock l;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): an errno is not 0 */
    if (b->s->joined && b->s->ranks != ranks)
        return error_set(err, -EINVAL, "--ranks %u: the others of --barrier say %u", ranks,
                         b->s->ranks);
    if (b->s->joined == ranks)
        return error_set(err, -EBUSY,
                         "--barrier: its %u ranks are there already: take another name", ranks);
    b->rank = b->s->joined;
    int r = lock_byte(b->fd, F_OFD_SETLK, F_WRLCK, 1 + b->rank, &l);
    if (r < 0)
        return error_set(err, r, "--barrier: cannot join: %s", strerror(-r));
    b->s->ranks = ranks;
    b->s->joined++;
    return 0;
}

int barrier_open(const char *name, uint64_t ranks, struct barrier **out, struct error *err)
{
    for (;;) {
        struct barrier *b = calloc(1, sizeof(*b));
        if (!b)
            return error_set(err, -ENOMEM, "no memory for a barrier");
        b->rank = UINT32_MAX;
        snprintf(b->name, sizeof(b->name), "/cede-load-%s", name);
        int r = barrier_file(b);
        if (r < 0)
            error_set(err, r, "cannot open shared memory for --barrier %s: %s", name, strerror(-r));
        if (r == 0)
            r = barrier_join(b, (uint32_t)ranks, err);
        if (r == 0)
            r = barrier_lock(b, F_UNLCK);
        if (r == 0) {
            *out = b;
            return 0;
        }
        barrier_free(b); /* and its locks */
        if (r < 0)
            return r;
    }
}

void barrier_close(struct barrier *b)
{
    if (!b)
        return;
    end_for_all(b);
    barrier_free(b);
}

void barrier_arrive(struct barrier *b)
{
    b->round = atomic_load(&b->s->round);
    if (atomic_fetch_add(&b->s->arrived, 1) + 1 < b->s->ranks)
        return;
    atomic_store(&b->s->arrived, 0);
    atomic_fetch_add(&b->s->round, 1);
    syscall(SYS_futex, &b->s->round, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

int barrier_wait(struct barrier *b, uint64_t timeout_ns)
{
    struct timespec t = {(time_t)(timeout_ns / NSEC_PER_SEC), (long)(timeout_ns % NSEC_PER_SEC)};
    if (atomic_load(&b->s->round) == b->round)
        syscall(SYS_futex, &b->s->round, FUTEX_WAIT, b->round, &t, NULL, 0);
    bool waits = atomic_load(&b->s->round) == b->round;
    if (waits && rank_gone(b))
        end_for_all(b);
    return atomic_load(&b->s->over) ? -ECANCELED : waits ? -ETIMEDOUT : 0;
}
