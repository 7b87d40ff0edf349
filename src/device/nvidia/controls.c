/* Controls of programs: set_timeslice, set_preempt and set_running. The descriptor of the program
 * is borrowed for each control (nvidia.c says why). */
#include "device/nvidia/nvidia.h"

#include <errno.h>
#include <string.h>

#include "lib/schedulers.h"

/* Descriptors that are looked through for one that has moved since it was scanned. */
#define BORROW_MAX 16384U

/* The owner's descriptor for this group, wherever it is now. */
static int borrow_any(struct nv_driver *d, int pidfd, const struct device_group *g,
                      struct error *err)
{
    struct rm_fds fds = {.next = 0};
    uint32_t left = BORROW_MAX, client = g->handles[0], class;
    int r = d->io->fds(g->proc.pid, &fds, &left);
    for (uint32_t i = 0; i < fds.nctl; i++) {
        int fd = d->io->getfd(pidfd, fds.ctl[i]);
        r = fd < 0 && fd != -EBADF ? fd : r;
        if (fd >= 0 && rm_info(d->io, fd, client, client, RM_INFO_CLASS, &class) == 0)
            return fd;
        if (fd >= 0)
            d->io->close(fd);
    }
    nv_distrust(&d->scanner, g->proc.pid);
    if (r < 0) /* not all could be looked at: it may be there */
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

/* The error of a failed control: whose group it was, and the usual cause. */
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

/* A control through the owner's descriptor. Descriptors answer for their own clients alone, so
 * where this client was seen is tried without asking first. */
static int nv_control(struct nv_driver *d, const struct device_group *g, uint32_t object,
                      enum rm_control_id id, void *params, struct error *err)
{
    const struct rm_io *io = d->io;
    uint32_t client = g->handles[0];
    int pidfd = io->pidfd(g->proc);
    if (pidfd < 0)
        return rm_borrow_error(err, pidfd, g->proc.pid);
    int fd = io->getfd(pidfd, g->source), r = fd;
    if (fd >= 0)
        r = rm_control(io, fd, client, object, id, params, err);
    else if (fd != -EBADF)
        r = rm_borrow_error(err, fd, g->proc.pid);
    /* What RM refuses it may have done in part, if it is a list. */
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

/* Any channel of the group names it; one that is gone says nothing about the others. */
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

/* The control takes 64 channels, of one client or of several. One channel that is gone makes RM
 * refuse the list, perhaps in its middle: then each goes alone, enabled first, since RM counts, and
 * -ENOENT means that all are gone. A refused list of several clients is left to the caller (ops.h).
 * *some_done: some channel was taken, or may have been. */
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

/* What one call of set_running() issues, list by list. */
struct nv_lists {
    struct nv_driver *d;
    bool mixed; /* lists have clients of several processes */
    struct rm_disable_channels list;
    const struct device_group *by; /* of its first channel: it is issued through that process */
    bool some_done;
    int result, gone; /* the first error; and of a client that is gone */
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

/* RM takes clients of other processes by their numbers alone, and a number may be another program's
 * by now: so a process is asked for its client before that goes in a list with others. */
static bool has_client(struct nv_lists *l, const struct device_group *g)
{
    struct error e = {""};
    struct rm_handle_info info = {.object = g->handles[0], .index = RM_INFO_CLASS};
    int r = nv_control(l->d, g, g->handles[0], RM_HANDLE_INFO, &info, &e);
    lists_error(l, r == -ESRCH || r == -ENOENT ? &l->gone : &l->result, r, &e);
    return r == 0;
}

/* The groups from g[0] on that share its lists. */
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
    /* A client that is gone fails no other. */
    return device_refused(l.result || l.some_done ? l.result : l.gone, l.some_done);
}
