/* cede-load on the software GPU. All times are the device's own, so what is measured does not
 * depend on when this process was scheduled. Must not model the GPU: that is the engine's. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>

#include "bench/load/ops.h"
#include "gpu/soft/client.h"

struct soft {
    struct load_gpu base;
    struct soft_client **clients; /* one a context; the last is used */
    uint64_t nclients;
    struct soft_kernel kernel;
    char where[128];     /* for error texts */
    uint64_t submitted;  /* kernels; also the next cookie */
    uint64_t completed;  /* kernels */
    uint64_t first_ns;   /* submission of the oldest piece in flight, once its first kernel ended */
    uint64_t last_ns;    /* end of the newest completion */
    char fault[160];     /* first completion that was not as it has to be, or "" */
    uint64_t head, tail; /* pieces in flight, as counters into the ring */
    uint32_t pieces[LOAD_DEPTH_MAX]; /* kernels of each that have not ended */
    pid_t ranks[LOAD_GPUS_MAX];      /* the others of its gang */
    unsigned nranks;
};

static void soft_close(struct load_gpu *base)
{
    struct soft *s = (struct soft *)base;
    for (unsigned i = 0; i < s->nranks; i++) {
        kill(s->ranks[i], SIGKILL);
        waitpid(s->ranks[i], NULL, 0);
    }
    for (uint64_t i = 0; i < s->nclients; i++)
        soft_client_close(s->clients[i]);
    free(s->clients);
    free(s);
}

static struct soft_client *client(struct soft *s)
{
    return s->clients[s->nclients - 1];
}

static int lost(const struct soft *s, int code, const char *what, struct error *err)
{
    return error_set(err, code, "cannot %s the software GPU at %s: %s", what, s->where,
                     code == -EPIPE ? "its server has gone" : strerror(-code));
}

static int soft_submit(struct load_gpu *base, const struct load_piece *p, struct error *err)
{
    struct soft *s = (struct soft *)base;
    if (s->submitted - s->completed + p->kernels > LOAD_DEPTH_MAX)
        return error_set(err, -EAGAIN, "more than %u kernels in flight", LOAD_DEPTH_MAX);
    for (uint32_t i = 0; i < p->kernels; i++) {
        s->kernel.cookie = s->submitted;
        s->kernel.launch_ns = p->launch_ns ? p->from_ns + (i + 1) * p->launch_ns : 0;
        int r = soft_client_submit(client(s), &s->kernel);
        if (r)
            return lost(s, r, "launch on", err);
        s->submitted++;
    }
    s->pieces[s->tail++ % LOAD_DEPTH_MAX] = p->kernels;
    return 0;
}

/* A software kernel computes nothing; unharmed means that each ran once, in order, to its end. */
static void check(struct soft *s, const struct soft_completion *c)
{
    if (s->fault[0])
        return;
    const char *what = NULL;
    if (c->cookie != s->completed)
        what = "came out of order, twice or not at all";
    else if (c->start_ns < c->submit_ns || c->start_ns < s->last_ns)
        what = "started before its turn";
    else if (c->end_ns < c->start_ns + s->kernel.duration_ns)
        what = "ended before its work was done";
    if (what)
        snprintf(s->fault, sizeof(s->fault), "kernel %llu %s", (unsigned long long)s->completed,
                 what);
}

/* Without one of them the collectives of the others never end. */
static int ranks_alive(const struct soft *s, struct error *err)
{
    for (unsigned i = 0; i < s->nranks; i++) {
        siginfo_t end = {.si_pid = 0};
        if (waitid(P_PID, (id_t)s->ranks[i], &end, WEXITED | WNOHANG | WNOWAIT) < 0 || end.si_pid)
            return error_set(err, -ECHILD, "process %d, another rank of this gang, has ended",
                             (int)s->ranks[i]);
    }
    return 0;
}

static int soft_wait(struct load_gpu *base, uint64_t timeout_ns, struct load_done *out,
                     struct error *err)
{
    struct soft *s = (struct soft *)base;
    uint32_t *left = &s->pieces[s->head % LOAD_DEPTH_MAX];
    while (*left) {
        struct soft_completion c;
        int r = soft_client_wait(client(s), timeout_ns, &c);
        if (r == -ETIMEDOUT)
            return ranks_alive(s, err) < 0 ? -ECHILD : r;
        if (r)
            return lost(s, r, "wait for", err);
        check(s, &c);
        s->completed++;
        s->last_ns = c.end_ns;
        if (!s->first_ns)
            s->first_ns = c.submit_ns;
        --*left;
    }
    out->submit_ns = s->first_ns;
    out->end_ns = s->last_ns;
    s->first_ns = 0;
    s->head++;
    return 0;
}

/* The median over some kernels: the device's times hold what launching and synchronising cost. */
static int measure_overhead(struct soft *s, struct error *err)
{
    int64_t v[21];
    for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
        struct load_done done = {0, 0};
        int r = soft_submit(&s->base, &(struct load_piece){.kernels = 1}, err);
        if (!r)
            r = soft_wait(&s->base, 30 * NSEC_PER_SEC, &done, err);
        if (r == -ETIMEDOUT)
            return error_set(err, r, "a kernel did not end in 30 s: is this program suspended?");
        if (r)
            return r;
        v[i] = (int64_t)(done.end_ns - done.submit_ns);
    }
    qsort(v, ARRAY_SIZE(v), sizeof(*v), load_compare);
    s->base.host_overhead_us = load_us(v[ARRAY_SIZE(v) / 2] - (int64_t)s->kernel.duration_ns);
    return 0;
}

static int soft_verify(struct load_gpu *base, struct error *err)
{
    struct soft *s = (struct soft *)base;
    if (s->fault[0])
        return error_set(err, -EBADMSG, "%s", s->fault);
    if (s->completed != s->submitted)
        return error_set(err, -EBADMSG, "%llu of %llu kernels never completed",
                         (unsigned long long)(s->submitted - s->completed),
                         (unsigned long long)s->submitted);
    return 0;
}

static int open_contexts(struct soft *s, const struct load_options *o, unsigned gpu,
                         const struct soft_gang *gang, struct error *err)
{
    for (; s->nclients < o->contexts; s->nclients++) {
        bool used = s->nclients + 1 == o->contexts;
        int r = soft_client_open(o->socket, gpu, used ? gang : NULL, &s->clients[s->nclients]);
        if (r == -ENOENT || r == -ECONNREFUSED)
            return error_set(err, r, "no software GPU answers at %s: start one with cede-softgpu",
                             s->where);
        if (r == -ENODEV)
            return error_set(err, r,
                             "there is no GPU %u at %s, or CUDA_VISIBLE_DEVICES leaves it out", gpu,
                             s->where);
        if (r)
            return error_set(err, r,
                             "cannot open a context on GPU %u of the software GPU at %s: %s", gpu,
                             s->where, strerror(-r));
    }
    int r = o->uses.given ? soft_client_uses(client(s), o->uses.v) : 0;
    if (r)
        return lost(s, r, "say what is used of the parts of", err);
    r = o->memory ? soft_client_alloc(client(s), (int64_t)o->memory) : 0;
    if (r == -ENOMEM)
        return error_set(err, r,
                         "the software GPU has no room for --memory: leave it out, or take less");
    return r ? lost(s, r, "take memory of", err) : 0;
}

/* A process of the gang that reports nothing. It works until the one that does ends: no stop
 * request may leave the others in the middle of a collective. */
static _Noreturn void run_rank(struct soft *s, const struct load_options *o, unsigned gpu,
                               const struct soft_gang *gang, pid_t first)
{
    struct error err = {""};
    struct soft_completion c;
    s->nranks = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int r = getppid() == first ? open_contexts(s, o, gpu, gang, &err) : -ECHILD;
    if (r)
        fprintf(stderr, "cede-load: %s\n", err.text);
    while (!r) {
        while (!(r = soft_client_submit(client(s), &s->kernel)))
            ;
        if (r == -EAGAIN)
            r = soft_client_wait(client(s), NSEC_PER_SEC, &c);
        if (r == -ETIMEDOUT)
            r = 0;
    }
    _exit(1);
}

/* This process is the rank on the first GPU, and starts the others. */
static int open_gang(struct soft *s, const struct load_options *o, struct error *err)
{
    struct soft_gang gang = {.ranks = (uint32_t)__builtin_popcountll(o->gpus)};
    pid_t first = getpid();
    if (getrandom(&gang.id, sizeof(gang.id), 0) != sizeof(gang.id))
        return error_set(err, -EIO, "cannot make a number for a gang: %s", strerror(errno));
    gang.id |= 1;
    for (uint64_t m = o->gpus & (o->gpus - 1); m; m &= m - 1) {
        pid_t pid = fork();
        if (pid < 0)
            return error_set(err, -errno, "cannot start a rank: %s", strerror(errno));
        if (pid == 0)
            run_rank(s, o, (unsigned)__builtin_ctzll(m), &gang, first);
        s->ranks[s->nranks++] = pid;
    }
    return open_contexts(s, o, (unsigned)__builtin_ctzll(o->gpus), &gang, err);
}

static int soft_open(const struct load_options *o, struct load_gpu **out, struct error *err)
{
    if (o->copy_bytes)
        return error_set(err, -ENOTSUP,
                         "the software GPU does not model copies: leave out --copy-bytes");
    struct soft *s = calloc(1, sizeof(*s));
    struct soft_client **clients = calloc(o->contexts, sizeof(struct soft_client *));
    if (!s || !clients) {
        free(s);
        free(clients);
        return error_set(err, -ENOMEM, "no memory for %llu contexts",
                         (unsigned long long)o->contexts);
    }
    s->clients = clients;
    s->base.ops = &load_soft;
    s->base.iterations_per_us = 1000; /* its kernels are given in ns */
    s->base.host_overhead_us = -1;
    /* Deep enough that the queue stays filled while this process or the server waits for a CPU. */
    s->base.depth = clamp_u64((uint64_t)ceil(32000 / o->kernel_us), 2, LOAD_DEPTH_MAX);
    s->kernel.duration_ns = (uint32_t)llround(o->kernel_us * (double)NSEC_PER_USEC);
    s->kernel.sm_fraction = (float)o->sm_fraction;
    if (o->socket)
        snprintf(s->where, sizeof(s->where), "%s", o->socket);
    else if (soft_default_path(s->where, sizeof(s->where)))
        snprintf(s->where, sizeof(s->where), "the default socket");

    int r = o->gpus ? open_gang(s, o, err) : open_contexts(s, o, (unsigned)o->gpu, NULL, err);
    if (r == 0 && o->role == LOAD_CALIBRATE)
        r = measure_overhead(s, err);
    if (r)
        soft_close(&s->base);
    else
        *out = &s->base;
    return r;
}

const struct load_ops load_soft = {
    .name = "soft",
    .open = soft_open,
    .close = soft_close,
    .submit = soft_submit,
    .wait = soft_wait,
    .verify = soft_verify,
};
