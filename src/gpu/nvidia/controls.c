/* Controls of programs: set_timeslice, set_preempt and set_running. The program's descriptor is
 * borrowed for each control (nvidia.c has the reason). */
#include "gpu/nvidia/nvidia.h"

#include <errno.h>

#include "who/schedulers.h"

/* Descriptors that are searched for one that has got another number since the scan. */
#define BORROW_MAX 16384U

/* Borrows the owner's descriptor for this group, whatever number it has now. */
static int borrow_any(struct nv_driver *d, int pidfd, const struct device_group *g,
                      struct error *err)
{
    struct rm_fds fds = {.next = 0};
    uint32_t left = BORROW_MAX, client = g->handles[0], class;
    int r = d->io->fds(g->proc.pid, &fds, &left);
    for (uint32_t i = 0; i < fds.nctl; i++) {
        int fd = d->io->getfd(g->proc.pid, pidfd, fds.ctl[i]);
        r = fd < 0 && fd != -EBADF ? fd : r;
        if (fd >= 0 && rm_info(d->io, fd, client, client, RM_INFO_CLASS, &class) == 0)
            return fd;
        if (fd >= 0)
            d->io->close(fd);
    }
    nv_distrust(&d->scanner, g->proc.pid);
    if (r < 0) /* the descriptor may be one that could not be looked at */
        return rm_borrow_error(err, r, g->proc.pid);
    return error_set(err, -ENOENT,
                     "process %d no longer has the GPU context that was found in it (client 0x%x)",
                     (int)g->proc.pid, client);
}

bool nv_is_mps_server(pid_t pid)
{
    struct proc_stat st;
    uid_t uid;
    return proc_stat_read(pid, &st) == 0 && proc_owner(pid, &uid) == 0 && proc_serves_mps(&st, uid);
}

/* Adds the process and the usual cause to the error of a failed control. */
static int control_failed(struct nv_driver *d, struct proc_id proc, int code, struct error *err)
{
    nv_distrust(&d->scanner, proc.pid);
    if (!d->io->alive(proc))
        return error_set(err, -ESRCH, "process %d is gone", (int)proc.pid);
    if (nv_is_mps_server(proc.pid))
        error_prefix(err, code,
                     "process %d is an MPS server, which runs the work of several "
                     "programs in one group: stop MPS to schedule them one by one",
                     (int)proc.pid);
    else
        error_prefix(err, code, "process %d", (int)proc.pid);
    return code;
}

/* Issues a control through the owner's descriptor. A descriptor answers only for its clients, so
 * that the number seen by the scan can be used without a check. */
static int nv_control(struct nv_driver *d, const struct device_group *g, uint32_t object,
                      enum rm_control_id id, void *params, struct error *err)
{
    const struct rm_io *io = d->io;
    uint32_t client = g->handles[0];
    int pidfd = io->pidfd(g->proc);
    if (pidfd < 0)
        return rm_borrow_error(err, pidfd, g->proc.pid);
    int fd = io->getfd(g->proc.pid, pidfd, g->source), r = fd;
    if (fd >= 0)
        r = rm_control(io, fd, client, object, id, params, err);
    else if (fd != -EBADF)
        r = rm_borrow_error(err, fd, g->proc.pid);
    /* RM may have carried out a part of a list before it refused it. */
    bool list = id == RM_DISABLE_CHANNELS && ((struct rm_disable_channels *)params)->count > 1;
    if (r == -EBADF || (r == -ENOENT && !list)) {
        int moved = borrow_any(d, pidfd, g, err);
        if (fd >= 0)
            io->close(fd);
        fd = moved;
        r = fd < 0 ? fd : rm_control(io, fd, client, object, id, params, err);
    }
    if (fd >= 0 && r < 0)
        r = control_failed(d, g->proc, r, err);
    if (fd >= 0)
        io->close(fd);
    io->close(pidfd);
    return r;
}

int nv_set_timeslice(struct device_driver *base, const struct device_group *g, uint64_t us,
                     struct error *err)
{
    struct rm_timeslice t = {.us = us};
    if (us < NV_TIMESLICE_MIN_US || us > NV_TIMESLICE_MAX_US)
        return error_set(err, -EINVAL, "timeslice of %llu us: must be %u..%u us",
                         (unsigned long long)us, NV_TIMESLICE_MIN_US, NV_TIMESLICE_MAX_US);
    return nv_control((struct nv_driver *)base, g, g->handles[3], RM_SET_TIMESLICE, &t, err);
}

/* Any channel identifies its group; if one is gone, the next is tried. */
int nv_set_preempt(struct device_driver *base, const struct device_group *g, bool block_ends,
                   struct error *err)
{
    if (g->handles[2] == 0 || g->nchannels == 0)
        return error_set(err, -ENOTSUP, "process %d: no %s was found for its GPU context",
                         (int)g->proc.pid, g->handles[2] ? "channel" : "subdevice");
    int r = -ENOENT;
    for (uint32_t i = 0; r == -ENOENT && i < min_u64(g->nchannels, GROUP_CHANNELS_MAX); i++) {
        struct rm_preemption_mode p = {.flags = RM_PREEMPT_COMPUTE,
                                       .channel = g->channels[i],
                                       .compute = block_ends ? RM_PREEMPT_BLOCK_ENDS
                                                             : RM_PREEMPT_INSTRUCTION};
        r = nv_control((struct nv_driver *)base, g, g->handles[2], RM_SET_PREEMPTION_MODE, &p, err);
    }
    return r;
}

/* Issues the control for a list of up to 64 channels, of one client or of several. RM refuses a
 * list, perhaps in its middle, if one channel is gone. Then each channel is tried alone, and
 * enabled first, because RM counts; -ENOENT means that all are gone. For a refused list of several
 * clients the caller has to do that (ops.h). *some_done: some channel was, or may have been,
 * changed. */
static int disable_channels(struct nv_driver *d, const struct device_group *g,
                            struct rm_disable_channels *list, bool *some_done, struct error *err)
{
    uint32_t n = list->count;
    bool mixed = false;
    for (uint32_t i = 1; i < n; i++)
        mixed |= list->client[i] != list->client[0];
    int r = nv_control(d, g, g->handles[2], RM_DISABLE_CHANNELS, list, err);
    d->refuses_mixed |= mixed && r == -EPERM;
    *some_done |= r == 0 || mixed || (r == -ENOENT && n > 1);
    for (uint32_t i = 0, alone = r == -ENOENT && n > 1 && !mixed; alone && i < n; i++) {
        struct rm_disable_channels one = {.disable = list->disable,
                                          .count = 1,
                                          .client = {list->client[i]},
                                          .channel = {list->channel[i]}};
        struct rm_disable_channels enable = one;
        enable.disable = false;
        if (list->disable)
            nv_control(d, g, g->handles[2], RM_DISABLE_CHANNELS, &enable, err);
        int r1 = disable_channels(d, g, &one, some_done, err);
        if (r1 == 0 ? r == -ENOENT : r1 != -ENOENT)
            r = r1;
    }
    return r;
}

/* The lists that one call of set_running() issues. */
struct nv_lists {
    struct nv_driver *d;
    bool mixed; /* lists have clients of several processes */
    struct rm_disable_channels list;
    const struct device_group *by; /* its first channel's group, whose process issues the list */
    bool some_done;
    int result, gone; /* the first error, and the first of a client that is gone */
    struct error *err;
};

static void lists_error(struct nv_lists *l, int *first, int r, const struct error *e)
{
    if (r < 0 && l->result == 0 && *first == 0)
        *first = error_set(l->err, r, "%s", e->text);
}

static void lists_issue(struct nv_lists *l)
{
    struct error e = {""};
    if (l->list.count)
        lists_error(l, &l->result, disable_channels(l->d, l->by, &l->list, &l->some_done, &e), &e);
    l->list.count = 0;
}

static bool same_list(const struct nv_lists *l, const struct device_group *a,
                      const struct device_group *b)
{
    return (a->handles[0] == b->handles[0] && a->handles[2] == b->handles[2]) ||
           (l->mixed && a->gpu == b->gpu && a->handles[2] && b->handles[2]);
}

/* Whether the process still has the client. RM takes clients of other processes by number, and
 * another program may have the number now, so this is asked before a client gets into a list of
 * several processes. */
static bool has_client(struct nv_lists *l, const struct device_group *g)
{
    struct error e = {""};
    struct rm_handle_info info = {.object = g->handles[0], .index = RM_INFO_CLASS};
    int r = nv_control(l->d, g, g->handles[0], RM_HANDLE_INFO, &info, &e);
    lists_error(l, r == -ESRCH || r == -ENOENT ? &l->gone : &l->result, r, &e);
    return r == 0;
}

/* Issues the lists of all groups that can be in one list with g[0]. */
static void lists_of(struct nv_lists *l, const struct device_group *const *g, size_t n)
{
    bool there = true;
    uint32_t client = 0;
    for (size_t k = 0; k < n; k++) {
        if (!same_list(l, g[k], g[0]))
            continue;
        if (l->mixed && g[k]->handles[0] != client)
            there = has_client(l, g[k]);
        client = g[k]->handles[0];
        for (uint32_t c = 0; there && c < min_u64(g[k]->nchannels, GROUP_CHANNELS_MAX); c++) {
            if (l->list.count == RM_DISABLE_MAX)
                lists_issue(l);
            if (l->list.count == 0)
                l->by = g[k];
            l->list.client[l->list.count] = client;
            l->list.channel[l->list.count++] = g[k]->channels[c];
        }
    }
    lists_issue(l);
}

int nv_set_running(struct device_driver *base, const struct device_group *const *g, size_t n,
                   bool on, struct error *err)
{
    struct nv_driver *d = (struct nv_driver *)base;
    struct nv_lists l = {.d = d, .list = {.disable = !on}, .err = err};
    for (size_t i = 1; i < n; i++)
        l.mixed |= !d->refuses_mixed && !proc_same(g[i]->proc, g[0]->proc);
    for (size_t i = 0; i < n; i++) {
        size_t first = 0;
        while (!same_list(&l, g[first], g[i]))
            first++;
        if (first == i && g[i]->handles[2]) {
            lists_of(&l, g + i, n - i);
        } else if (first == i) {
            struct error e;
            int r = error_set(&e, -ENOTSUP,
                              "process %d: no subdevice was found for its GPU context, so it "
                              "cannot be suspended",
                              (int)g[i]->proc.pid);
            lists_error(&l, &l.result, r, &e);
        }
    }
    /* A client that is gone is an error only if nothing else was done. */
    return device_refused(l.result || l.some_done ? l.result : l.gone, l.some_done);
}
