/* A library to preload: what libc does for a program fails now and then, as on a machine that has
 * run out of descriptors, memory or room, or is interrupted all the time. See faults.h. Which call
 * fails follows from the seed and from how many there were, in whichever process. */
#include "faults.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct faults *page;

__attribute__((constructor)) static void map_page(void)
{
    const char *path = getenv(FAULTS_ENV);
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    long at = syscall(SYS_mmap, NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    page = at < 0 && at > -4096 ? NULL : (struct faults *)at;
}

/* As setproctitle: the arguments and the environment that the kernel shows are overwritten. */
__attribute__((constructor)) static void set_title(int argc, char **argv, char **envp)
{
    const char *title = getenv(TITLE_ENV);
    char *begin = argv[0], *end = begin + strlen(begin) + 1;
    if (!title)
        return;
    for (int i = 1; i < argc; i++)
        end = argv[i] + strlen(argv[i]) + 1;
    for (int i = 0; i < argc; i++)
        argv[i] = strdup(argv[i]);
    for (char **e = envp; *e; e++) {
        end = *e + strlen(*e) + 1;
        *e = strdup(*e);
    }
    title = getenv(TITLE_ENV);
    memset(begin, 0, (size_t)(end - begin));
    snprintf(begin, (size_t)(end - begin), "%s", title);
}

/* splitmix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators". */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* 0: the call is made; else a number by which to choose how it fails. */
static uint64_t chance(enum fault_kind kind)
{
    uint32_t often = page ? atomic_load(&page->per_million) : 0;
    if (!often || !(atomic_load(&page->kinds) & 1U << kind))
        return 0;
    uint64_t n = atomic_fetch_add(&page->calls[kind], 1);
    uint64_t r = mix(atomic_load(&page->seed) ^ mix(n * FAULT_COUNT + kind));
    if (r % 1000000 >= often)
        return 0;
    atomic_fetch_add(&page->failed[kind], 1);
    return r / 1000000 + 1;
}

static int fails(enum fault_kind kind, const int *errors, size_t n)
{
    uint64_t r = chance(kind);
    if (r)
        errno = errors[r % n];
    return r != 0;
}
#define FAILS(kind, ...)                                                                           \
    ({                                                                                             \
        static const int errors_[] = {__VA_ARGS__};                                                \
        fails(kind, errors_, sizeof(errors_) / sizeof(*errors_));                                  \
    })

/* The function that this one stands before. */
#define NEXT(name)                                                                                 \
    ({                                                                                             \
        static __typeof__(&name) next_;                                                            \
        if (!next_)                                                                                \
            next_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                    \
        next_;                                                                                     \
    })

/* TYPE NAME PARAMETERS answers BAD with one of the errors now and then. */
#define CALL(kind, type, name, parameters, arguments, bad, ...)                                    \
    type name parameters                                                                           \
    {                                                                                              \
        return FAILS(kind, __VA_ARGS__) ? (bad) : NEXT(name) arguments;                            \
    }

/* ---- what makes descriptors ---- */

#define FULL EMFILE, ENFILE, ENOMEM

static mode_t mode_of(int flags, va_list ap)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}
#define OPEN(name, parameters, ...)                                                                \
    int name parameters                                                                            \
    {                                                                                              \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        mode_t mode = mode_of(flags, ap);                                                          \
        va_end(ap);                                                                                \
        return FAILS(FAULT_OPEN, FULL, EINTR) ? -1 : NEXT(name)(__VA_ARGS__, mode);                \
    }
OPEN(open, (const char *path, int flags, ...), path, flags)
OPEN(open64, (const char *path, int flags, ...), path, flags)
OPEN(openat, (int dir, const char *path, int flags, ...), dir, path, flags)
OPEN(openat64, (int dir, const char *path, int flags, ...), dir, path, flags)

CALL(FAULT_OPEN, FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL, FULL)
CALL(FAULT_OPEN, FILE *, fopen64, (const char *path, const char *mode), (path, mode), NULL, FULL)
CALL(FAULT_OPEN, FILE *, fdopen, (int fd, const char *mode), (fd, mode), NULL, ENOMEM)
CALL(FAULT_OPEN, DIR *, opendir, (const char *path), (path), NULL, FULL)
CALL(FAULT_OPEN, int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1,
     FULL, ENOBUFS)
CALL(FAULT_OPEN, int, pipe2, (int fds[2], int flags), (fds, flags), -1, EMFILE, ENFILE)
CALL(FAULT_OPEN, int, dup, (int fd), (fd), -1, EMFILE)
CALL(FAULT_OPEN, int, epoll_create1, (int flags), (flags), -1, FULL)

/* ---- bytes ---- */

/* Pipes and the like give and take small messages whole; they are only interrupted. */
static int is_file(int fd)
{
    struct stat st;
    return syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode);
}

/* As on a disk that is full: what is in a file may be written over. */
static int no_room(int fd, off64_t end)
{
    struct stat st;
    if (!page || !atomic_load(&page->full) || syscall(SYS_fstat, fd, &st) < 0 ||
        !S_ISREG(st.st_mode) || (end >= 0 && end <= st.st_size))
        return 0;
    errno = ENOSPC;
    return 1;
}

/* Fewer than asked for; at least one. What the kernel makes up, whose size is 0, comes whole, and a
 * page is written whole or not at all. */
static size_t fewer(enum fault_kind kind, int fd, off64_t end, size_t n)
{
    if (kind == FAULT_WRITE && end >= 0 && (end - (off64_t)n) / 4096 == (end - 1) / 4096)
        return n;
    struct stat st;
    const int cut = n > 1 && syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) &&
                    (st.st_size > 0 || kind == FAULT_WRITE);
    uint64_t r = cut ? chance(kind) : 0;
    return r ? 1 + r % (n - 1) : n;
}

#define BYTES(kind, end, name, parameters, arguments, ...)                                         \
    ssize_t name parameters                                                                        \
    {                                                                                              \
        if ((kind) == FAULT_WRITE && no_room(fd, end))                                             \
            return -1;                                                                             \
        if (is_file(fd) ? FAILS(kind, __VA_ARGS__) : FAILS(kind, EINTR))                           \
            return -1;                                                                             \
        n = fewer(kind, fd, end, n);                                                               \
        return NEXT(name) arguments;                                                               \
    }
BYTES(FAULT_READ, 0, read, (int fd, void *to, size_t n), (fd, to, n), EINTR, EIO, ENOMEM)
BYTES(FAULT_READ, 0, pread, (int fd, void *to, size_t n, off_t at), (fd, to, n, at), EINTR, EIO)
BYTES(FAULT_READ, 0, pread64, (int fd, void *to, size_t n, off64_t at), (fd, to, n, at), EINTR, EIO)
BYTES(FAULT_WRITE, -1, write, (int fd, const void *from, size_t n), (fd, from, n), EINTR, ENOSPC,
      EIO)
BYTES(FAULT_WRITE, (off64_t)(at + (off64_t)n), pwrite,
      (int fd, const void *from, size_t n, off_t at), (fd, from, n, at), EINTR, ENOSPC)
BYTES(FAULT_WRITE, (off64_t)(at + (off64_t)n), pwrite64,
      (int fd, const void *from, size_t n, off64_t at), (fd, from, n, at), EINTR, ENOSPC)
CALL(FAULT_READ, ssize_t, recv, (int fd, void *to, size_t n, int flags), (fd, to, n, flags), -1,
     EINTR, ENOMEM)
CALL(FAULT_READ, ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags), -1, EINTR,
     ENOMEM)
CALL(FAULT_WRITE, ssize_t, send, (int fd, const void *from, size_t n, int flags),
     (fd, from, n, flags), -1, EINTR, ENOBUFS)
CALL(FAULT_WRITE, ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags), -1,
     EINTR, ENOBUFS)
CALL(FAULT_WRITE, int, ftruncate, (int fd, off_t size), (fd, size), -1, ENOSPC, EINTR)
CALL(FAULT_WRITE, int, ftruncate64, (int fd, off64_t size), (fd, size), -1, ENOSPC, EINTR)

#define FALLOCATE(name)                                                                            \
    int name(int fd, off_t at, off_t size)                                                         \
    {                                                                                              \
        return no_room(fd, at + size) || FAILS(FAULT_WRITE, ENOSPC) ? ENOSPC                       \
                                                                    : NEXT(name)(fd, at, size);    \
    }
FALLOCATE(posix_fallocate)
FALLOCATE(posix_fallocate64)

/* ---- waiting ---- */

CALL(FAULT_WAIT, int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int flags),
     (fd, a, n, flags), -1, FULL, EINTR, ECONNABORTED)
CALL(FAULT_WAIT, int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), -1,
     EINTR, EAGAIN)

pid_t waitpid(pid_t pid, int *status, int flags)
{
    return !(flags & WNOHANG) && FAILS(FAULT_WAIT, EINTR) ? -1 : NEXT(waitpid)(pid, status, flags);
}

CALL(FAULT_WAIT, int, epoll_wait, (int fd, struct epoll_event *v, int n, int ms), (fd, v, n, ms),
     -1, EINTR)
CALL(FAULT_WAIT, int, epoll_pwait,
     (int fd, struct epoll_event *v, int n, int ms, const sigset_t *s), (fd, v, n, ms, s), -1,
     EINTR)
CALL(FAULT_WAIT, int, flock, (int fd, int operation), (fd, operation), -1, EINTR, ENOLCK)

/* ---- the wall clock ---- */

static int64_t ahead_s(void)
{
    return page ? atomic_load(&page->clock_ahead_s) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    const int r = NEXT(clock_gettime)(clock, t);
    t->tv_sec += clock == CLOCK_REALTIME ? ahead_s() : 0;
    return r;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    const int r = NEXT(gettimeofday)(t, zone);
    t->tv_sec += ahead_s();
    return r;
}

time_t time(time_t *to)
{
    const time_t t = NEXT(time)(NULL) + ahead_s();
    if (to)
        *to = t;
    return t;
}

/* ---- controls ---- */

CALL(FAULT_CONTROL, int, fstat, (int fd, struct stat *st), (fd, st), -1, ENOMEM)
CALL(FAULT_CONTROL, int, stat, (const char *path, struct stat *st), (path, st), -1, ENOMEM)
CALL(FAULT_CONTROL, int, lstat, (const char *path, struct stat *st), (path, st), -1, ENOMEM)
CALL(FAULT_CONTROL, int, rename, (const char *from, const char *to), (from, to), -1, ENOSPC, EIO)
CALL(FAULT_CONTROL, int, unlink, (const char *path), (path), -1, EIO)
CALL(FAULT_CONTROL, int, mkdir, (const char *path, mode_t mode), (path, mode), -1, ENOSPC)
CALL(FAULT_CONTROL, int, chmod, (const char *path, mode_t mode), (path, mode), -1, EIO)
CALL(FAULT_CONTROL, int, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), -1,
     ENOMEM, EADDRINUSE)
CALL(FAULT_CONTROL, int, listen, (int fd, int n), (fd, n), -1, EADDRINUSE)
CALL(FAULT_CONTROL, ssize_t, readlink, (const char *path, char *to, size_t n), (path, to, n), -1,
     ENOMEM)
CALL(FAULT_CONTROL, struct dirent *, readdir, (DIR * d), (d), NULL, EIO)

/* What glibc has no function for, or has had none for long: pidfds, among others. */
long syscall(long number, ...)
{
    long a[6];
    va_list ap;
    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    return FAILS(FAULT_OPEN, EMFILE, ENFILE)
               ? -1
               : NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- processes and memory ---- */

CALL(FAULT_PROCESS, pid_t, fork, (void), (), -1, EAGAIN, ENOMEM)
CALL(FAULT_MEMORY, void *, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t offset),
     (at, n, prot, flags, fd, offset), MAP_FAILED, ENOMEM)
CALL(FAULT_MEMORY, void *, mmap64,
     (void *at, size_t n, int prot, int flags, int fd, off64_t offset),
     (at, n, prot, flags, fd, offset), MAP_FAILED, ENOMEM)

/* dlsym() allocates, so these go by the names under which glibc keeps its own. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
    return FAILS(FAULT_MEMORY, ENOMEM) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return FAILS(FAULT_MEMORY, ENOMEM) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return FAILS(FAULT_MEMORY, ENOMEM) ? NULL : __libc_realloc(p, n);
}
