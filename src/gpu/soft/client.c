/* See client.h and proto.h: a program's connection to the software GPU's server, and the functions
 * that the driver uses too. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/socket_path.h"
#include "base/util.h"
#include "gpu/ops.h"
#include "gpu/soft/proto.h"

#define ERRNO_MOST 4095
#define PATIENCE_S 60 /* time limit of an answer, for which a busy server takes seconds */

struct soft_client {
    int fd;
    unsigned outstanding;
    uint64_t memory_bytes;
    uint64_t submitted, fault_at; /* kernels */
};

int soft_default_path(char *buf, unsigned long size)
{
    const char *path = getenv("CEDE_SOFT_SOCKET"), *dir = getenv("XDG_RUNTIME_DIR");
    int n;
    if (path && *path)
        n = snprintf(buf, size, "%s", path);
    else if (dir && *dir)
        n = snprintf(buf, size, "%s/cede-softgpu", dir);
    else
        n = snprintf(buf, size, "/tmp/cede-softgpu-%u/socket", (unsigned)geteuid());
    return n >= 0 && (unsigned long)n < size ? 0 : -ENAMETOOLONG;
}

/* A server that has gone is reported as EPIPE, whichever error the kernel returned. */
static int connection_error(int e)
{
    return e == EAGAIN ? -ETIMEDOUT : e == ECONNRESET || e == ENOTCONN ? -EPIPE : -e;
}

static int send_msg(int fd, struct soft_msg *m)
{
    m->version = SOFT_VERSION;
    while (send(fd, m, soft_msg_size(m->type), MSG_NOSIGNAL) < 0) {
        if (errno != EINTR)
            return connection_error(errno);
    }
    return 0;
}

/* Whether a server's result is in range, because callers negate it for strerror(). */
static bool result_ok(int32_t result)
{
    return result >= -ERRNO_MOST && result <= SWAP_FAILED;
}

static int recv_msg(int fd, struct soft_msg *m, uint32_t want)
{
    ssize_t n;
    while ((n = recv(fd, m, sizeof(*m), 0)) < 0 && errno == EINTR)
        ;
    if (n < 0)
        return connection_error(errno);
    if (n == 0)
        return -EPIPE;
    if ((size_t)n < offsetof(struct soft_msg, u) || m->version != SOFT_VERSION || m->type != want ||
        (size_t)n != soft_msg_size(want))
        return -EPROTO;
    return want == SOFT_REPLY && !result_ok(m->u.reply.result) ? -EPROTO : 0;
}

int soft_transact(int fd, struct soft_msg *m, uint32_t want)
{
    int r = send_msg(fd, m);
    return r < 0 ? r : recv_msg(fd, m, want);
}

int soft_connect(const char *path, struct soft_msg *m, int *out, pid_t *server)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const bool given = path || getenv("CEDE_SOFT_SOCKET");
    char buf[sizeof(addr.sun_path)];
    int r;
    if (!path) {
        r = soft_default_path(buf, sizeof(buf));
        if (r < 0)
            return r;
        path = buf;
    }
    if (strlen(path) >= sizeof(addr.sun_path))
        return -ENAMETOOLONG;
    memcpy(addr.sun_path, path, strlen(path));
    if (!cede_socket_trusted(path, given)) /* another user's server could answer anything */
        return -EPERM;

    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct timeval tv = {.tv_sec = PATIENCE_S};
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) < 0)
        return -errno;
    while (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        if (errno != EINTR)
            return errno == EAGAIN ? -ETIMEDOUT : -errno;
    }
    struct ucred peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &(socklen_t){sizeof(peer)}) < 0)
        return -errno;
    if (!cede_peer_trusted(peer.uid, given))
        return -EPERM;
    if (server)
        *server = peer.pid;
    r = soft_transact(fd, m, SOFT_REPLY);
    if (r == 0)
        r = m->u.reply.result <= 0 ? m->u.reply.result : -EPROTO;
    if (r == 0)
        *out = TAKE_FD(fd);
    return r;
}

/* Makes the context a client of an MPS server if the environment names its directory. */
static void find_mps(struct soft_msg *m)
{
    const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
    struct stat st;
    double percent;
    uint64_t priority;
    if (!dir || stat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
        return;
    m->u.open.mps_device = st.st_dev;
    m->u.open.mps_inode = st.st_ino;
    if (parse_double(getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), 1, 100, &percent) == 0)
        m->u.open.sm_percent = (uint16_t)percent;
    if (parse_u64(getenv("CUDA_MPS_CLIENT_PRIORITY"), 0, 1, &priority) == 0)
        m->u.open.priority = (uint16_t)priority;
}

/* Reads the first entry of a list, N or SOFT-N, and sets *end behind it. -EINVAL: it is no such
 * entry. */
static int entry_number(const char *list, const char **end, uint64_t *out)
{
    char number[12];
    const char *digits = strncmp(list, "SOFT-", 5) == 0 ? list + 5 : list;
    size_t n = strcspn(digits, ",");
    *end = digits + n;
    snprintf(number, sizeof(number), "%.*s", (int)min_u64(n, sizeof(number)), digits);
    return parse_u64(number, 0, UINT32_MAX, out);
}

/* Translates a program's GPU number by CUDA_VISIBLE_DEVICES as the vendor's library does: it is an
 * index of that list, which ends at the first entry that is no number or name of a software GPU. A
 * list that begins with such an entry is about other GPUs, and ignored. */
static int visible_gpu(unsigned *gpu)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES"), *end;
    uint64_t number;
    if (!list || entry_number(list, &end, &number) < 0)
        return 0;
    for (unsigned i = 0; i < *gpu; i++) {
        if (!*end || entry_number(end + 1, &end, &number) < 0)
            return -ENODEV;
    }
    *gpu = (unsigned)number;
    return 0;
}

/* For tests, the environment may give the context memory that the driver cannot move. */
static void find_memory(struct soft_msg *m)
{
    const char *kind = getenv("CEDE_SOFT_MEMORY");
    if (kind && strcmp(kind, "managed") == 0)
        m->u.open.memory = SOFT_MEMORY_MANAGED;
    if (kind && strcmp(kind, "shared") == 0)
        m->u.open.memory = SOFT_MEMORY_SHARED;
}

int soft_client_open(const char *path, unsigned gpu, const struct soft_gang *gang,
                     struct soft_client **out)
{
    int r = visible_gpu(&gpu);
    if (r < 0)
        return r;
    struct soft_client *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    struct soft_msg m = {.type = SOFT_OPEN_CONTEXT, .u.open.gpu = gpu};
    if (gang) {
        m.u.open.gang = gang->id;
        m.u.open.ranks = gang->ranks;
    }
    find_mps(&m);
    find_memory(&m);
    const char *fault = getenv("CEDE_SOFT_FAULT");
    if (fault && parse_u64(fault, 1, UINT64_MAX, &c->fault_at) < 0)
        c->fault_at = 0;
    r = soft_connect(path, &m, &c->fd, NULL);
    if (r < 0)
        free(c);
    else
        *out = c;
    return r;
}

void soft_client_close(struct soft_client *c)
{
    if (!c)
        return;
    close(c->fd);
    free(c);
}

int soft_client_submit(struct soft_client *c, const struct soft_kernel *k)
{
    /* The server would close the connection on invalid values, so they are refused here. */
    if (k->stream >= SOFTGPU_STREAMS || k->duration_ns == 0 || !(k->sm_fraction > 0) ||
        !(k->sm_fraction <= 1))
        return -EINVAL;
    if (c->outstanding >= SOFT_OUTSTANDING_MAX)
        return -EAGAIN;
    struct soft_msg m = {.type = SOFT_SUBMIT,
                         .u.submit = {.cookie = k->cookie,
                                      .stream = k->stream,
                                      .duration_ns = k->duration_ns,
                                      .sm_fraction = k->sm_fraction,
                                      .launch_ns = k->launch_ns,
                                      .fault = ++c->submitted == c->fault_at}};
    int r = send_msg(c->fd, &m);
    if (r == 0)
        c->outstanding++;
    return r;
}

int soft_client_wait(struct soft_client *c, uint64_t timeout_ns, struct soft_completion *out)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    struct timespec t = {.tv_sec = (time_t)(timeout_ns / NSEC_PER_SEC),
                         .tv_nsec = (long)(timeout_ns % NSEC_PER_SEC)};
    struct soft_msg m;
    int n = ppoll(&p, 1, &t, NULL);
    if (n <= 0)
        return n == 0 ? -ETIMEDOUT : -errno;
    int r = recv_msg(c->fd, &m, SOFT_COMPLETION);
    if (r < 0)
        return r;
    c->outstanding--;
    *out = m.u.completion;
    return 0;
}

int soft_client_alloc(struct soft_client *c, int64_t bytes)
{
    if (c->outstanding)
        return -EBUSY;
    if (bytes < 0 && (uint64_t) - (bytes + 1) + 1 > c->memory_bytes)
        return -EINVAL;
    for (;;) {
        struct soft_msg m = {.type = SOFT_ALLOC, .u.alloc.bytes = bytes};
        int r = soft_transact(c->fd, &m, SOFT_REPLY);
        r = r == 0 ? m.u.reply.result : r;
        if (r == 0)
            c->memory_bytes += (uint64_t)bytes;
        if (r != -EAGAIN)
            return r;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

int soft_client_uses(struct soft_client *c, const float uses[GPU_PARTS])
{
    struct soft_msg m = {.type = SOFT_USES};
    if (c->outstanding)
        return -EBUSY;
    for (unsigned p = 0; p < GPU_PARTS; p++) {
        m.u.uses.parts[p] = uses[p];
        if (!(uses[p] >= 0 && uses[p] <= 1))
            return -EINVAL;
    }
    int r = soft_transact(c->fd, &m, SOFT_REPLY);
    return r == 0 ? m.u.reply.result : r;
}
