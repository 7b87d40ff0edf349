/* See pool.h: a program joins its pool. */
#include "memory/pool/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/fnv.h"
#include "base/paths.h"
#include "memory/pool/files.h"
#include "who/procfs.h"

#define POOL_GPUS 16U

/* Gets the user's own directory, even if CEDE_DIR is another user's. */
static int pool_base(char *dir, size_t size, struct error *err)
{
    struct stat st;
    int r = cede_dir(dir, size, NULL);
    if (r == 0 && stat(dir, &st) == 0 && st.st_uid != geteuid())
        r = cede_user_dir(dir, size);
    if (r < 0)
        return error_set(err, r,
                         "%.64s... is too long for a pool's sockets: set CEDE_DIR to a directory "
                         "of at most %zu bytes",
                         dir, size - 1);
    return cede_dir_make(dir, err);
}

/* A key for each setting of CUDA_VISIBLE_DEVICES: "all", "0", "0,1"; of a long one its hash. */
static void pool_key(char *key, size_t size)
{
    const char *gpus = getenv("CUDA_VISIBLE_DEVICES");
    const uint64_t sum = gpus ? fnv(FNV_START, gpus, strlen(gpus)) : 0;
    if (!gpus)
        snprintf(key, size, "all");
    else if (strlen(gpus) < 12 && strspn(gpus, "0123456789,") == strlen(gpus) && *gpus)
        snprintf(key, size, "%s", gpus);
    else
        snprintf(key, size, "%08x", (unsigned)(sum ^ sum >> 32));
}

/* The pids in a pool's files are those of one pid namespace, so each namespace has its own pools.
 */
static void pool_name(char *name, size_t size)
{
    struct stat ns;
    char key[16];
    pool_key(key, sizeof(key));
    if (!proc_sees_all() && stat("/proc/self/ns/pid", &ns) == 0)
        snprintf(name, size, "pool-%s-%x", key, (unsigned)ns.st_ino);
    else
        snprintf(name, size, "pool-%s", key);
}

/* Makes a directory, or refuses one that is a link or another user's. */
static int make(const char *dir, const char *name, struct error *err)
{
    char path[POOL_PATH];
    snprintf(path, sizeof(path), "%s%s", dir, name);
    int r = cede_dir_make(path, err);
    if (r == 0 && chmod(path, 0700) < 0)
        r = error_set(err, -errno, "cannot set the rights of %s: %s", path, strerror(errno));
    return r;
}

static int pool_make(struct pool *p, struct error *err)
{
    char name[32], base[sizeof(p->dir) - sizeof(name)], self[16] = "";
    if (readlink("/proc/self", self, sizeof(self) - 1) < 0 || atoi(self) != getpid())
        return error_set(err, -ENOTSUP, "/proc is not of this pid namespace");
    int r = pool_base(base, sizeof(base), err);
    if (r < 0)
        return r;
    pool_name(name, sizeof(name));
    snprintf(p->dir, sizeof(p->dir), "%s/%s", base, name);
    r = make(p->dir, "", err);
    r = r < 0 ? r : make(p->dir, "/mps", err);
    return r < 0 ? r : make(p->dir, "/log", err);
}

static int lock_until(int fd, int how, uint64_t until_ns)
{
    while (flock(fd, how | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (monotonic_ns() > until_ns)
            return -ETIMEDOUT;
        nanosleep(&(struct timespec){.tv_nsec = POOL_LOOK_NS}, NULL);
    }
    return 0;
}

/* Starts the keeper. 0: the control daemon answers; else the keeper's error. */
static int start_keeper(const char *dir, const char *cede, int keeper, uint64_t until_ns,
                        struct error *err)
{
    char text[300];
    /* Detached, because it must not belong to a job whose root is this process. */
    const struct child_spec spec = {.file = cede,
                                    .argv = (const char *const[]){"cede-pool", dir, NULL},
                                    .fds = {{-1, STDIN_FILENO},
                                            {-1, STDOUT_FILENO},
                                            {-1, STDERR_FILENO},
                                            {keeper, POOL_LOCK_FD}},
                                    .detached = true,
                                    .fresh = true};
    _cleanup_close_ int ready = child_start_linked(&spec, CHILD_WRITES, POOL_READY_FD, NULL);
    if (ready < 0)
        return error_set(err, ready, "cannot start the pool's keeper: %s", strerror(-ready));
    struct pollfd p = {.fd = ready, .events = POLLIN};
    uint64_t now = monotonic_ns();
    int r = poll(&p, 1, until_ns > now ? (int)((until_ns - now) / NSEC_PER_MSEC) : 0);
    if (r <= 0)
        return error_set(err, -ETIMEDOUT, "the MPS control daemon does not start within %d s",
                         POOL_WAIT_S);
    ssize_t n = read(ready, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    if (strcmp(text, POOL_READY) == 0)
        return 0;
    return error_set(err, -EIO, "%s", n > 0 ? text : "the pool's keeper ended");
}

/* Waits until there is a keeper with a living control daemon. */
static int pool_start(struct pool *p, const char *cede, uint64_t until_ns, struct error *err)
{
    for (;;) {
        struct proc_id control;
        bool ending;
        _cleanup_close_ int keeper = pool_open(p->dir, "keeper", O_RDWR | O_CREAT | O_CLOEXEC);
        if (keeper < 0)
            return error_set(err, keeper, "cannot open %s/keeper: %s", p->dir, strerror(-keeper));
        if (flock(keeper, LOCK_EX | LOCK_NB) == 0)
            return start_keeper(p->dir, cede, keeper, until_ns, err);
        if (pool_control(p->dir, &control, &ending) && !ending && pool_answers(p->dir))
            return 0;
        /* The keeper will notice that its control daemon has ended. */
        if (monotonic_ns() > until_ns)
            return error_set(err, -ETIMEDOUT, "the pool's keeper does not answer");
        nanosleep(&(struct timespec){.tv_nsec = POOL_LOOK_NS}, NULL);
    }
}

static bool is_locked(const char *dir, const char *name)
{
    _cleanup_close_ int fd = pool_open(dir, name, O_RDWR | O_CREAT | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;
}

/* Limits the SMs, unless the environment has a smaller percentage already. */
static int pool_limit(unsigned said, unsigned most)
{
    char percent[8];
    double set;
    const unsigned sm = said && said < most ? said : most;
    if (!said && (most == 100 || parse_double(getenv(POOL_SM), 0, most, &set) == 0))
        return 0;
    snprintf(percent, sizeof(percent), "%u", sm);
    return setenv(POOL_SM, percent, 1) < 0 ? -ENOMEM : 0;
}

/* The number of GPUs that CUDA shows to the program, at least 1. */
static unsigned pool_gpus(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char path[32] = "/dev/nvidia0";
    unsigned n = 1;
    for (const char *c = visible; c && *c; c++)
        n += *c == ',';
    while (!visible && n < POOL_GPUS) {
        snprintf(path, sizeof(path), "/dev/nvidia%u", n);
        if (access(path, F_OK) < 0)
            break;
        n++;
    }
    return n < POOL_GPUS ? n : POOL_GPUS;
}

/* Has the server refuse allocations above the limit; without one the environment's stays. */
static int pool_memory(uint32_t mib)
{
    char text[POOL_GPUS * 24] = "";
    for (unsigned i = 0; i < pool_gpus() && mib; i++) {
        const size_t n = strlen(text);
        snprintf(text + n, sizeof(text) - n, "%s%u=%uM", i ? "," : "", i, mib);
    }
    return mib && setenv(POOL_MEMORY, text, 1) < 0 ? -ENOMEM : 0;
}

/* Locks the file that shows this kind of program to others, and sets the environment. `start` is
 * locked, so that no other program does this at the same time. */
static int pool_client(struct pool *p, const struct pool_terms *t)
{
    const bool limited = !t->latency && (t->may_join || is_locked(p->dir, "latency"));
    _cleanup_close_ int kind = -1;
    p->unlimited = t->latency && is_locked(p->dir, "batch");
    if (!limited) {
        kind = pool_open(p->dir, t->latency ? "latency" : "batch", O_RDWR | O_CREAT | O_CLOEXEC);
        if (kind < 0 || flock(kind, LOCK_SH | LOCK_NB) < 0)
            return kind < 0 ? kind : -errno;
    }
    if (pool_environment(p->dir) < 0 ||
        pool_limit(t->sm_percent, limited ? t->latency_sm : 100) < 0 ||
        pool_memory(t->memory_mib) < 0 ||
        ((limited || t->latency) && setenv(POOL_PRIORITY, limited ? "1" : "0", 1) < 0))
        return -ENOMEM;
    p->kind = TAKE_FD(kind);
    return 0;
}

int pool_join(struct pool *p, const struct pool_terms *t, const char *cede, struct error *err)
{
    char control[POOL_PROGRAM];
    const char *other = getenv("CUDA_MPS_PIPE_DIRECTORY");
    const uint64_t until_ns = monotonic_ns() + POOL_WAIT_S * NSEC_PER_SEC;
    *p = (struct pool){.users = -1, .kind = -1};
    if (other && *other)
        return error_set(err, -EEXIST, "CUDA_MPS_PIPE_DIRECTORY is set: that MPS is used");
    if (!pool_find_control(control, sizeof(control)))
        return error_set(err, -ENOENT,
                         "there is no " POOL_CONTROL " in an absolute directory of $PATH");
    int r = pool_make(p, err);
    if (r < 0)
        return r;
    _cleanup_close_ int start = pool_open(p->dir, "start", O_RDWR | O_CREAT | O_CLOEXEC);
    _cleanup_close_ int users = pool_open(p->dir, "users", O_RDWR | O_CREAT | O_CLOEXEC);
    if (start < 0 || users < 0)
        return error_set(err, start < 0 ? start : users, "cannot write to %s", p->dir);
    r = lock_until(start, LOCK_EX, until_ns);
    r = r < 0 ? r : lock_until(users, LOCK_SH, until_ns);
    if (r < 0)
        return error_set(err, r, "%s is being ended: %s", p->dir, strerror(-r));
    r = pool_start(p, cede ? cede : CHILD_SELF, until_ns, err);
    if (r < 0)
        return r;
    p->faults_end = pool_size(p->dir, "faults");
    r = pool_client(p, t);
    if (r < 0)
        return error_set(err, r, "cannot join %s: %s", p->dir, strerror(-r));
    p->users = TAKE_FD(users);
    return 0;
}

void pool_enter(const struct pool *p)
{
    if (p->users >= 0)
        fcntl(p->users, F_SETFD, 0);
    if (p->kind >= 0)
        fcntl(p->kind, F_SETFD, 0);
}

/* Waits until the keeper has begun and ended a turn, so that earlier faults are in the file. */
static void await_turn(const struct pool *p)
{
    const uint64_t until_ns = monotonic_ns() + POOL_NOTICE_S * NSEC_PER_SEC;
    char path[POOL_PATH];
    struct stat now, before = {.st_size = 0};
    snprintf(path, sizeof(path), "%s/keeper", p->dir);
    for (int seen = 0; seen <= 2 && monotonic_ns() < until_ns && stat(path, &now) == 0;) {
        if (memcmp(&now.st_mtim, &before.st_mtim, sizeof(now.st_mtim)) != 0)
            seen++;
        before = now;
        nanosleep(&(struct timespec){.tv_nsec = POOL_LOOK_NS}, NULL);
    }
}

const char *pool_fault(const struct pool *p, char buf[static 160])
{
    char path[POOL_PATH], *found = NULL;
    if (pool_size(p->dir, "faults") <= p->faults_end)
        await_turn(p);
    snprintf(path, sizeof(path), "%s/faults", p->dir);
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    if (!f || fseeko(f, p->faults_end, SEEK_SET) < 0)
        return NULL;
    while (fgets(buf, 160, f))
        found = buf;
    if (found)
        found[strcspn(found, "\n")] = '\0';
    return found;
}
