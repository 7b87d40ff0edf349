/* The driver for the software GPU: the device_ops on a control connection to its server.
 *
 * One request at a time, each waited for. If the server goes, calls fail with -ENODEV, and each
 * later call tries once to reach a new one. Must not be used from several threads. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/soft/client.h"
#include "device/soft/driver.h"
#include "device/soft/engine.h"
#include "device/soft/link.h"
#include "device/soft/swap.h"

#define ACTIVITY_STALE_NS (5 * NSEC_PER_SEC) /* an older sample counts as none */
#define COMPUTE_CHANNELS  8                  /* as libcuda makes them */
#define COPY_CHANNELS     4

static struct soft_driver *soft(struct device_driver *d)
{
    return (struct soft_driver *)d;
}

/* All groups, or those of one process (pid 0: all). *v is malloc'd; *now_ns is the last page's. */
static int soft_list_groups(struct soft_driver *d, struct proc_id proc, bool compute_only,
                            struct soft_group **out, size_t *n, uint64_t *now_ns, struct error *err)
{
    _cleanup_free_ struct soft_group *v = NULL;
    uint64_t after = 0;
    struct soft_msg m;
    *out = NULL;
    *n = 0;
    *now_ns = 0;
    do {
        m = (struct soft_msg){.type = SOFT_LIST,
                              .u.list = {after, proc.start_ticks, proc.pid, compute_only}};
        int r = soft_link_transact(d, &m, SOFT_GROUPS, err);
        if (r < 0)
            return r;
        size_t more = min_u64(m.u.groups.n, ARRAY_SIZE(m.u.groups.v));
        struct soft_group *p = reallocarray(v, *n + more + 1, sizeof(*v));
        if (!p) {
            error_set(err, -ENOMEM, "no memory for the list of groups");
            return -ENOMEM;
        }
        v = p;
        memcpy(v + *n, m.u.groups.v, more * sizeof(*v));
        *n += more;
        if (more)
            after = v[*n - 1].key;
    } while (m.u.groups.more && m.u.groups.n);
    *now_ns = m.u.groups.now_ns;
    *out = v;
    v = NULL;
    return 0;
}

static void sample_free(struct soft_sample *s)
{
    free(s->v);
}

/* Takes the measure that the next call counts from; *before is the caller's to free. */
static int sample(struct soft_driver *d, struct soft_sample *last, struct soft_sample *before,
                  struct error *err)
{
    struct soft_sample now;
    int r = soft_list_groups(d, (struct proc_id){0, 0}, true, &now.v, &now.n, &now.ns, err);
    if (r < 0)
        return r;
    *before = *last;
    *last = now;
    return 0;
}

static void soft_close(struct device_driver *base)
{
    struct soft_driver *d = soft(base);
    if (d->fd >= 0)
        close(d->fd);
    free(d->seen);
    sample_free(&d->usage);
    sample_free(&d->activity);
    free(d);
}

static int soft_open(const char *where, struct device_driver **out, struct error *err)
{
    struct soft_driver *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "no memory for the software GPU's driver");
    d->base.ops = &device_soft;
    d->fd = -1;
    int n = where ? snprintf(d->path, sizeof(d->path), "%s", where) : 0, r = 0;
    if (!where)
        r = soft_default_path(d->path, sizeof(d->path));
    else if (n < 0 || (size_t)n >= sizeof(d->path))
        r = -ENAMETOOLONG;
    if (r < 0) {
        error_set(err, r, "the software GPU's socket path is too long: %s", where ? where : "");
    } else {
        struct soft_sample none;
        r = sample(d, &d->usage, &none, err);
    }
    if (r < 0)
        soft_close(&d->base);
    else
        *out = &d->base;
    return r;
}

static unsigned soft_gpus(struct device_driver *base)
{
    return soft(base)->gpus;
}

static int soft_info(struct device_driver *base, unsigned gpu, struct gpu_info *out)
{
    struct softgpu_params p;
    if (gpu >= soft(base)->gpus)
        return -ENODEV;
    softgpu_params_h200(&p);
    *out = (struct gpu_info){
        .name = "cede software GPU (H200 timing)",
        .caps =
            GPU_CAP_TIMESLICE | GPU_CAP_SUSPEND | GPU_CAP_USAGE | GPU_CAP_SWAP | GPU_CAP_ACTIVITY,
        .timeslice_min_us = SOFTGPU_TIMESLICE_MIN_US,
        .timeslice_max_us = SOFTGPU_TIMESLICE_MAX_US,
        .timeslice_default_us = p.timeslice_us,
    };
    snprintf(out->uuid, sizeof(out->uuid), "SOFT-%u", gpu);
    struct soft_msg m = {.type = SOFT_MEMORY, .u.memory.gpu = gpu};
    if (soft_link_transact(soft(base), &m, SOFT_MEMORY, NULL) == 0)
        out->memory_bytes = m.u.memory.total_bytes;
    return 0;
}

static int soft_processes(struct device_driver *base, struct pid_list *out, struct error *err)
{
    struct soft_group *v;
    size_t n;
    uint64_t now_ns;
    int r = soft_list_groups(soft(base), (struct proc_id){0, 0}, true, &v, &n, &now_ns, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n && r == 0; i++)
        r = pid_list_push(out, v[i].pid);
    free(v);
    return r;
}

/* What it had when it was first seen; `us`, and remembered, if that is now. */
static int first_timeslice(struct soft_driver *d, const struct soft_group *g, uint32_t *us)
{
    for (size_t i = 0; i < d->seen_n; i++) {
        if (d->seen[i].key == g->key) {
            *us = d->seen[i].timeslice_us;
            return 0;
        }
    }
    if (list_grow(&d->seen, d->seen_n, &d->seen_cap, sizeof(d->seen[0])) < 0)
        return -ENOMEM;
    d->seen[d->seen_n++] = (struct soft_seen){g->key, g->timeslice_us, g->pid};
    *us = g->timeslice_us;
    return 0;
}

static int soft_scan(struct device_driver *base, struct proc_id proc, struct group_list *out,
                     struct error *err)
{
    struct soft_group *v = NULL;
    size_t n;
    uint64_t now_ns;
    int r = soft_list_groups(soft(base), proc, false, &v, &n, &now_ns, err);
    if (r < 0)
        return r;
    if (n == 0 && !proc_alive(proc))
        r = error_set(err, -ESRCH, "process %d has ended", proc.pid);
    for (size_t i = 0; i < n && r == 0; i++) {
        uint32_t us;
        r = first_timeslice(soft(base), &v[i], &us);
        if (r < 0)
            break;
        struct device_group g = {
            .key = v[i].key,
            .proc = proc,
            .gpu = v[i].gpu,
            .kind = v[i].copy ? GROUP_COPY : GROUP_COMPUTE,
            .level = LEVEL_QUEUE,
            .timeslice_us = us,
            .timeslice_now_us = v[i].timeslice_us,
            .source = -1,
            .nchannels = v[i].copy ? COPY_CHANNELS : COMPUTE_CHANNELS,
        };
        for (uint32_t c = 0; c < g.nchannels; c++)
            g.channels[c] = (uint32_t)v[i].key * COMPUTE_CHANNELS + c;
        r = group_list_push(out, &g);
    }
    free(v);
    return r;
}

static void soft_forget(struct device_driver *base, pid_t pid)
{
    struct soft_driver *d = soft(base);
    size_t n = 0;
    for (size_t i = 0; i < d->seen_n; i++) {
        if (d->seen[i].pid != pid)
            d->seen[n++] = d->seen[i];
    }
    d->seen_n = n;
}

static int soft_call(struct soft_driver *d, struct soft_msg *m, const char *what, int32_t pid,
                     struct error *err)
{
    int r = soft_link_transact(d, m, SOFT_REPLY, err);
    if (r < 0)
        return r;
    switch (m->u.reply.result) {
    case 0:
        return 0;
    case -ESRCH:
        return error_set(err, -ESRCH, "cannot %s of process %d: they are gone", what, pid);
    case -EPERM:
        return error_set(err, -EPERM, "cannot %s of process %d: it is another user's; try as root",
                         what, pid);
    case -EINVAL:
        return error_set(err, -EINVAL, "cannot %s of process %d: timeslices are %u to %u us", what,
                         pid, SOFTGPU_TIMESLICE_MIN_US, SOFTGPU_TIMESLICE_MAX_US);
    default:
        return error_set(err, -EIO, "cannot %s of process %d: the software GPU answered: %s", what,
                         pid, strerror(-m->u.reply.result));
    }
}

static int soft_set_timeslice(struct device_driver *base, const struct device_group *g, uint64_t us,
                              struct error *err)
{
    struct soft_msg m = {
        .type = SOFT_TIMESLICE,
        .u.control = {.n = 1, .timeslice_us = (uint32_t)min_u64(us, UINT32_MAX), .keys = {g->key}}};
    return soft_call(soft(base), &m, "set the timeslice of groups", g->proc.pid, err);
}

static int soft_set_running(struct device_driver *base, const struct device_group *const *g,
                            size_t n, bool on, struct error *err)
{
    int first = 0;
    bool some_done = false;
    for (size_t i = 0; i < n;) {
        struct soft_msg m = {.type = on ? SOFT_RESUME : SOFT_SUSPEND};
        int32_t pid = g[i]->proc.pid;
        while (i < n && m.u.control.n < ARRAY_SIZE(m.u.control.keys))
            m.u.control.keys[m.u.control.n++] = g[i++]->key;
        int r = soft_call(soft(base), &m, on ? "resume the groups" : "suspend the groups", pid,
                          first == 0 ? err : NULL);
        some_done |= r == 0;
        if (r < 0 && first == 0)
            first = r;
    }
    return device_refused(first, some_done);
}

/* What a compute group did since: all of it if it did not exist. Both samples are in the order of
 * the keys. */
static void done_since(const struct soft_sample *before, size_t *at, const struct soft_group *g,
                       uint64_t *busy_ns, uint64_t *bursts)
{
    while (*at < before->n && before->v[*at].key < g->key)
        ++*at;
    bool known = *at < before->n && before->v[*at].key == g->key;
    *busy_ns = g->busy_ns - (known ? before->v[*at].busy_ns : 0);
    *bursts = g->bursts - (known ? before->v[*at].bursts : 0);
}

static int soft_usage(struct device_driver *base, struct usage_list *out, struct error *err)
{
    struct soft_driver *d = soft(base);
    _cleanup_(sample_free) struct soft_sample before = {0};
    size_t at = 0, first = out->n;
    int r = sample(d, &d->usage, &before, err);
    if (r < 0)
        return r;
    double span = (double)(d->usage.ns - before.ns);
    for (size_t i = 0; i < d->usage.n && r == 0; i++) {
        const struct soft_group *g = &d->usage.v[i];
        uint64_t ns, bursts;
        done_since(&before, &at, g, &ns, &bursts);
        /* After a reconnection nothing is known of the time before. */
        double busy = before.ns == 0 ? -1 : span > 0 ? (double)ns / span : 0;
        size_t j = first;
        while (j < out->n && (out->v[j].pid != g->pid || out->v[j].gpu != g->gpu))
            j++;
        if (j < out->n) {
            out->v[j].busy = busy < 0 ? -1 : out->v[j].busy + busy;
            out->v[j].memory_bytes += g->memory_bytes;
        } else {
            r = usage_list_push(out, &(struct gpu_usage){g->pid, g->gpu, busy, g->memory_bytes});
        }
    }
    return r;
}

static int soft_memory_free(struct device_driver *base, unsigned gpu, uint64_t *bytes,
                            struct error *err)
{
    if (gpu >= soft(base)->gpus)
        return error_set(err, -ENODEV, "there is no GPU %u", gpu);
    struct soft_msg m = {.type = SOFT_MEMORY, .u.memory.gpu = gpu};
    int r = soft_link_transact(soft(base), &m, SOFT_MEMORY, err);
    *bytes = r == 0 ? m.u.memory.free_bytes : 0;
    return r;
}

static int soft_activity(struct device_driver *base, struct activity_list *out, struct error *err)
{
    struct soft_driver *d = soft(base);
    _cleanup_(sample_free) struct soft_sample before = {0};
    size_t at = 0, first = out->n;
    int r = sample(d, &d->activity, &before, err);
    bool known = before.ns && d->activity.ns - before.ns < ACTIVITY_STALE_NS;
    if (r == 0 && !known)
        out->incomplete = UINT32_MAX;
    for (size_t i = 0; r == 0 && known && i < d->activity.n; i++) {
        const struct soft_group *g = &d->activity.v[i];
        uint64_t ns, bursts;
        done_since(&before, &at, g, &ns, &bursts);
        size_t j = first;
        while (j < out->n && (out->v[j].pid != g->pid || out->v[j].gpu != g->gpu))
            j++;
        if (j == out->n && (ns || bursts))
            r = activity_list_push(out, &(struct gpu_activity){.pid = g->pid, .gpu = g->gpu});
        if (j < out->n) {
            out->v[j].busy_ns += ns;
            out->v[j].bursts += (uint32_t)bursts;
        }
    }
    return r;
}

const struct device_ops device_soft = {
    .name = "soft",
    .summary = "a software GPU with an H200's timing, for demonstrations and tests",
    .open = soft_open,
    .close = soft_close,
    .gpus = soft_gpus,
    .info = soft_info,
    .processes = soft_processes,
    .scan = soft_scan,
    .forget = soft_forget,
    .set_timeslice = soft_set_timeslice,
    .set_running = soft_set_running,
    .usage = soft_usage,
    .memory_free = soft_memory_free,
    .swap_out = soft_swap_out,
    .swap_in = soft_swap_in,
    .swap_state = soft_swap_state,
    .activity = soft_activity,
};
