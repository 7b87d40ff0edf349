/* The driver for the software GPU, which sends requests to its server, one at a time. If the server
 * goes, calls fail with -ENODEV, and each later call tries once to reach a new one. Must not be
 * used from several threads. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "gpu/soft/driver.h"

#define GROUPS_MAX        (1U << 17)         /* of one list; a server has fewer descriptors */
#define ACTIVITY_STALE_NS (5 * NSEC_PER_SEC) /* an older sample counts as none */
#define COMPUTE_CHANNELS  8                  /* as with libcuda */
#define COPY_CHANNELS     4

/* Lists the groups of one process (pid 0: of all). The caller frees `out`. The keys have to rise,
 * because a list in which they do not might never end. */
static int soft_list(struct soft_driver *d, struct proc_id proc, bool compute_only,
                     struct soft_sample *out, struct error *err)
{
    _cleanup_(sample_free) struct soft_sample l = {.v = NULL};
    struct soft_msg m;
    uint64_t last = 0;
    do {
        m = (struct soft_msg){.type = SOFT_LIST,
                              .u.list = {last, proc.start_ticks, proc.pid, compute_only}};
        int r = soft_ask(d, &m, SOFT_GROUPS, err);
        if (r < 0)
            return r;
        for (uint32_t i = 0; i < min_u64(m.u.groups.n, ARRAY_SIZE(m.u.groups.v)); i++) {
            if (l.n == GROUPS_MAX || m.u.groups.v[i].key <= last)
                return soft_no_server(d, -EPROTO, err);
            if (list_grow(&l.v, l.n, &l.room, sizeof(*l.v)) < 0)
                return error_set(err, -ENOMEM, "no memory for the list of groups");
            l.v[l.n++] = m.u.groups.v[i];
            last = m.u.groups.v[i].key;
        }
    } while (m.u.groups.more && m.u.groups.n);
    l.ns = m.u.groups.now_ns;
    *out = l;
    l.v = NULL;
    return 0;
}

static int soft_list_compute(struct soft_driver *d, struct soft_sample *out, struct error *err)
{
    return soft_list(d, (struct proc_id){0, 0}, true, out, err);
}

/* ---- the device ---- */

static void soft_driver_close(struct device_driver *base)
{
    struct soft_driver *d = soft(base);
    if (d->fd >= 0)
        close(d->fd);
    soft_unwatch_opens(d);
    demand_list_free(&d->opened);
    free(d->seen);
    sample_free(&d->usage);
    sample_free(&d->activity);
    free(d);
}

static int soft_driver_open(const char *where, struct device_driver **out, struct error *err)
{
    struct soft_driver *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "no memory for the software GPU's driver");
    d->base.ops = &device_soft;
    d->fd = d->opens = -1;
    int n = where ? snprintf(d->path, sizeof(d->path), "%s", where) : 0;
    int r = !where                         ? soft_default_path(d->path, sizeof(d->path))
            : (size_t)n >= sizeof(d->path) ? -ENAMETOOLONG
                                           : 0;
    if (r < 0)
        error_set(err, r, "the software GPU's socket path is too long: %s", where ? where : "");
    else
        r = soft_list_compute(d, &d->usage, err);
    if (r < 0)
        soft_driver_close(&d->base);
    else
        *out = &d->base;
    return r;
}

static unsigned soft_gpus(struct device_driver *base)
{
    return soft(base)->gpus;
}

static int soft_memory(struct device_driver *base, unsigned gpu, struct soft_msg *m,
                       struct error *err)
{
    *m = (struct soft_msg){.type = SOFT_MEMORY, .u.memory.gpu = gpu};
    if (gpu >= soft(base)->gpus)
        return error_set(err, -ENODEV, "there is no GPU %u", gpu);
    return soft_ask(soft(base), m, SOFT_MEMORY, err);
}

static int soft_info(struct device_driver *base, unsigned gpu, struct gpu_info *out)
{
    struct soft_msg m;
    if (gpu >= soft(base)->gpus)
        return -ENODEV;
    *out = (struct gpu_info){
        .name = "cede software GPU (H200 timing)",
        .caps = GPU_CAP_TIMESLICE | GPU_CAP_SUSPEND | GPU_CAP_USAGE | GPU_CAP_SWAP |
                GPU_CAP_ACTIVITY | GPU_CAP_POOL | GPU_CAP_PREEMPT | GPU_CAP_COUNTERS |
                GPU_CAP_PLACE,
        .timeslice_min_us = SOFTGPU_TIMESLICE_MIN_US,
        .timeslice_max_us = SOFTGPU_TIMESLICE_MAX_US,
        .timeslice_default_us = SOFTGPU_TIMESLICE_US,
        .timeslice_back_us = SOFT_TIMESLICE_BACK_US,
    };
    snprintf(out->uuid, sizeof(out->uuid), "SOFT-%u", gpu);
    if (soft_memory(base, gpu, &m, NULL) == 0) {
        out->memory_bytes = m.u.memory.total_bytes;
        snprintf(out->driver, sizeof(out->driver), "%.*s", (int)sizeof(out->driver) - 1,
                 m.u.memory.driver);
    }
    return 0;
}

static int soft_memory_free(struct device_driver *base, unsigned gpu, uint64_t *bytes,
                            struct error *err)
{
    struct soft_msg m;
    int r = soft_memory(base, gpu, &m, err);
    *bytes = r == 0 ? m.u.memory.free_bytes : 0;
    return r;
}

/* ---- groups ---- */

static int soft_processes(struct device_driver *base, struct pid_list *out, struct error *err)
{
    _cleanup_(sample_free) struct soft_sample l = {.v = NULL};
    int r = soft_list_compute(soft(base), &l, err);
    for (size_t i = 0; i < l.n && r == 0; i++)
        r = pid_list_push(out, l.v[i].pid);
    return r;
}

static int soft_clients(struct device_driver *base, struct pid_list *out, struct error *err)
{
    _cleanup_(sample_free) struct soft_sample l = {.v = NULL};
    int r = soft_list_compute(soft(base), &l, err);
    for (size_t i = 0; i < l.n && r == 0; i++)
        r = l.v[i].shared ? pid_list_push(out, l.v[i].pid) : 0;
    return r;
}

/* The timeslice that the group had when it was first seen, which is remembered; 0: no memory. A
 * later client of an MPS server has a timeslice that was set through others, so theirs counts. */
static uint32_t first_timeslice(struct soft_driver *d, const struct soft_group *g)
{
    uint32_t first_us = g->timeslice_us;
    for (size_t i = 0; i < d->seen_n; i++) {
        if (d->seen[i].key == g->key)
            return d->seen[i].timeslice_us;
        if (g->shared && d->seen[i].shared == g->shared)
            first_us = d->seen[i].timeslice_us;
    }
    if (list_grow(&d->seen, d->seen_n, &d->seen_cap, sizeof(d->seen[0])) < 0)
        return 0;
    d->seen[d->seen_n++] = (struct soft_seen){g->key, g->shared, first_us, g->pid};
    return first_us;
}

static int soft_scan(struct device_driver *base, struct proc_id proc, struct group_list *out,
                     struct error *err)
{
    _cleanup_(sample_free) struct soft_sample l = {.v = NULL};
    int r = soft_list(soft(base), proc, false, &l, err);
    if (r == 0 && l.n == 0 && !proc_alive(proc))
        r = error_set(err, -ESRCH, "process %d has ended", proc.pid);
    for (size_t i = 0; r == 0 && i < l.n; i++) {
        const struct soft_group *v = &l.v[i];
        struct device_group g = {
            .key = v->key,
            .proc = proc,
            .gpu = v->gpu,
            .shared = v->shared,
            .kind = v->copy ? GROUP_COPY : GROUP_COMPUTE,
            .level = LEVEL_QUEUE,
            .timeslice_us = first_timeslice(soft(base), v),
            .timeslice_now_us = v->timeslice_us,
            .source = -1,
            .nchannels = v->copy ? COPY_CHANNELS : COMPUTE_CHANNELS,
        };
        for (uint32_t c = 0; c < g.nchannels; c++)
            g.channels[c] = (uint32_t)v->key * COMPUTE_CHANNELS + c;
        r = g.timeslice_us ? group_list_push(out, &g) : -ENOMEM;
    }
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
    int r = soft_ask(d, m, SOFT_REPLY, err);
    if (r < 0)
        return r;
    switch (r = m->u.reply.result) {
    case 0:
        return 0;
    case -ESRCH:
        return error_set(err, r, "cannot %s of process %d: they are gone", what, pid);
    case -EPERM:
        return error_set(err, r, "cannot %s of process %d: it is another user's; try as root", what,
                         pid);
    case -EINVAL:
        return error_set(err, r, "cannot %s of process %d: timeslices are %u to %u us", what, pid,
                         SOFTGPU_TIMESLICE_MIN_US, SOFTGPU_TIMESLICE_MAX_US);
    default:
        return error_set(err, -EIO, "cannot %s of process %d: the software GPU answered: %s", what,
                         pid, strerror(-r));
    }
}

static int for_groups(struct device_driver *base, enum softgpu_call call, uint64_t value,
                      const struct device_group *const *g, size_t n, struct error *err)
{
    static const char *const names[] = {[SOFTGPU_SUSPEND] = "suspend the groups",
                                        [SOFTGPU_TIMESLICE] = "set the timeslice of groups",
                                        [SOFTGPU_RESUME] = "resume the groups",
                                        [SOFTGPU_PREEMPT] = "set the preemption mode of groups"};
    int first = 0;
    bool some_done = false;
    for (size_t i = 0; i < n;) {
        struct soft_msg m = {
            .type = SOFT_CONTROL,
            .u.control = {.what = call, .value = (uint32_t)min_u64(value, UINT32_MAX)}};
        int32_t pid = g[i]->proc.pid;
        while (i < n && m.u.control.n < ARRAY_SIZE(m.u.control.keys))
            m.u.control.keys[m.u.control.n++] = g[i++]->key;
        int r = soft_call(soft(base), &m, names[call], pid, first == 0 ? err : NULL);
        some_done |= r != -EPERM;
        if (r < 0 && first == 0)
            first = r;
    }
    return device_refused(first, some_done);
}

static int soft_set_timeslice(struct device_driver *base, const struct device_group *g, uint64_t us,
                              struct error *err)
{
    return for_groups(base, SOFTGPU_TIMESLICE, us, &g, 1, err);
}

static int soft_set_preempt(struct device_driver *base, const struct device_group *g,
                            bool block_ends, struct error *err)
{
    return for_groups(base, SOFTGPU_PREEMPT, block_ends, &g, 1, err);
}

static int soft_set_running(struct device_driver *base, const struct device_group *const *g,
                            size_t n, bool on, struct error *err)
{
    return for_groups(base, on ? SOFTGPU_RESUME : SOFTGPU_SUSPEND, 0, g, n, err);
}

/* ---- usage ---- */

/* Compares groups by process and GPU. */
static int soft_by_owner(const void *x, const void *y)
{
    const struct soft_group *a = x, *b = y;
    if (a->pid != b->pid)
        return a->pid < b->pid ? -1 : 1;
    return a->gpu < b->gpu ? -1 : a->gpu > b->gpu;
}

/* Gets what processes did on each GPU since `last`, which is read again. *span_ns is the time
 * between, 0 if it was never read before. */
static int done_since(struct soft_driver *d, struct soft_sample *last, struct soft_sample *out,
                      uint64_t *span_ns, struct error *err)
{
    _cleanup_(sample_free) struct soft_sample now = {.v = NULL}, before = {.v = NULL};
    int r = soft_list_compute(d, &now, err);
    if (r < 0)
        return r;
    out->v = calloc(now.n + 1, sizeof(*out->v));
    if (!out->v)
        return error_set(err, -ENOMEM, "no memory for the list of groups");
    before = *last;
    *last = now;
    now.v = NULL;
    size_t at = 0;
    for_each (g, last->v, last->n) {
        while (at < before.n && before.v[at].key < g->key)
            at++;
        /* A group that did not exist before has done all of its work since. */
        bool known = at < before.n && before.v[at].key == g->key;
        struct soft_group *done = &out->v[out->n++];
        *done = *g;
        done->busy_ns -= known ? before.v[at].busy_ns : 0;
        done->bursts -= known ? before.v[at].bursts : 0;
    }
    if (out->n)
        qsort(out->v, out->n, sizeof(*out->v), soft_by_owner);
    size_t n = 0;
    for (size_t i = 0; i < out->n; i++) {
        struct soft_group *sum = n ? &out->v[n - 1] : NULL;
        if (!sum || soft_by_owner(sum, &out->v[i]) != 0) {
            out->v[n++] = out->v[i];
            continue;
        }
        sum->memory_bytes += out->v[i].memory_bytes;
        sum->busy_ns += out->v[i].busy_ns;
        sum->bursts += out->v[i].bursts;
    }
    out->n = n;
    *span_ns = before.ns ? last->ns - before.ns : 0;
    return 0;
}

static int soft_usage(struct device_driver *base, struct usage_list *out, struct error *err)
{
    _cleanup_(sample_free) struct soft_sample done = {.v = NULL};
    uint64_t span_ns;
    int r = done_since(soft(base), &soft(base)->usage, &done, &span_ns, err);
    for (size_t i = 0; i < done.n && r == 0; i++) {
        const struct soft_group *g = &done.v[i];
        double busy = span_ns ? (double)g->busy_ns / (double)span_ns : -1;
        r = usage_list_push(out, &(struct gpu_usage){g->pid, g->gpu, busy, g->memory_bytes});
    }
    return r;
}

static int soft_memory_used(struct device_driver *base, struct usage_list *out, struct error *err)
{
    _cleanup_(sample_free) struct soft_sample l = {.v = NULL};
    int r = soft_list_compute(soft(base), &l, err);
    for (size_t i = 0; i < l.n && r == 0; i++) {
        const struct soft_group *g = &l.v[i];
        r = usage_list_push(out, &(struct gpu_usage){g->pid, g->gpu, -1, g->memory_bytes});
    }
    return r;
}

static int soft_activity(struct device_driver *base, struct activity_list *out, struct error *err)
{
    _cleanup_(sample_free) struct soft_sample done = {.v = NULL};
    uint64_t span_ns;
    int r = done_since(soft(base), &soft(base)->activity, &done, &span_ns, err);
    bool stale = r == 0 && (span_ns == 0 || span_ns >= ACTIVITY_STALE_NS);
    if (stale)
        out->incomplete = UINT32_MAX;
    for (size_t i = 0; i < done.n && r == 0 && !stale; i++) {
        const struct soft_group *g = &done.v[i];
        if (g->busy_ns || g->bursts)
            r = activity_list_push(
                out, &(struct gpu_activity){g->pid, g->gpu, (uint32_t)g->bursts, g->busy_ns});
    }
    return r; // NOLINT(clang-analyzer-unix.Malloc): _cleanup_
}

static int soft_counters(struct device_driver *base, unsigned gpu, struct gpu_counters *out,
                         struct error *err)
{
    struct soft_msg m = {.type = SOFT_COUNTERS, .u.counters.gpu = gpu};
    if (gpu >= soft(base)->gpus)
        return error_set(err, -ENODEV, "there is no GPU %u", gpu);
    int r = soft_ask(soft(base), &m, SOFT_COUNTERS, err);
    if (r < 0)
        return r;
    struct soft_gpu *last = &soft(base)->gpu[gpu], before = *last;
    last->ns = m.u.counters.now_ns;
    memcpy(last->parts_ns, m.u.counters.parts_ns, sizeof(last->parts_ns));
    if (!out)
        return 0;
    if (!before.ns || last->ns <= before.ns)
        return error_set(err, -EAGAIN, "the GPU's counters: nothing to compare with yet");
    *out = (struct gpu_counters){.window_ns = last->ns - before.ns};
    for (unsigned p = 0; p < GPU_PARTS; p++) {
        double share = (double)(last->parts_ns[p] - before.parts_ns[p]) / (double)out->window_ns;
        out->parts[p] = share < 1 ? share : 1;
    }
    return 0;
}

/* ---- switches ---- */

#define SWITCH_ASKS 512U /* messages of one call and GPU: twice what the server keeps */

/* Reads one GPU's switches. Those before the record began are not reported. */
static int soft_switches_of(struct soft_driver *d, unsigned gpu, struct switch_list *out,
                            struct error *err)
{
    struct soft_gpu *g = &d->gpu[gpu];
    for (unsigned i = 0; i < SWITCH_ASKS; i++) {
        struct soft_msg m = {
            .type = SOFT_SWITCHES,
            .u.switches = {.gpu = gpu, .on = out != NULL, .first = g->switch_next}};
        int r = soft_ask(d, &m, SOFT_SWITCHES, err);
        if (r < 0 || !out)
            return r;
        uint32_t n = m.u.switches.n;
        if (n > ARRAY_SIZE(m.u.switches.v))
            return soft_no_server(d, -EPROTO, err);
        bool begins = !g->recording, lost = m.u.switches.first != g->switch_next;
        g->recording = true;
        if (begins) { /* older switches were recorded for another reader */
            g->switch_next = m.u.switches.end;
            g->switch_ns = 0;
            return 0;
        }
        for (uint32_t k = 0; k < n && r == 0; k++) {
            const struct soft_switch *v = &m.u.switches.v[k];
            if (lost) /* the owner is unknown since the last known switch */
                r = switch_list_push(out, &(struct gpu_switch){g->switch_ns ? g->switch_ns : v->ns,
                                                               GPU_UNKNOWN, gpu});
            lost = false;
            if (r == 0)
                r = switch_list_push(out, &(struct gpu_switch){v->ns, v->pid, gpu});
            g->switch_ns = v->ns;
        }
        if (n) /* without one the same number is asked for again, so that losses are noticed */
            g->switch_next = m.u.switches.first + n;
        if (r < 0 || n < ARRAY_SIZE(m.u.switches.v))
            return r;
    }
    return 0;
}

static int soft_switches(struct device_driver *base, struct switch_list *out, struct error *err)
{
    struct soft_driver *d = soft(base);
    int r = 0;
    for (unsigned i = 0; i < d->gpus && r == 0; i++) {
        if (out || d->gpu[i].recording)
            r = soft_switches_of(d, i, out, err);
        d->gpu[i].recording &= out != NULL;
    }
    return r;
}

/* ---- swapping ----
 * The steps and their order are those of the NVIDIA driver's checkpoint.c, so that a swapper that
 * is killed between two of them leaves the same states. */

/* Returns the answer's result, or an error. Waits for the end of a step that a killed swapper
 * began.
 */
static int swap_call(struct device_driver *base, struct proc_id proc, enum soft_swap what,
                     unsigned lock_ms, struct error *err)
{
    static const char *const names[] = {[SOFT_SWAP_STATE] = "ask for the state of",
                                        [SOFT_LOCK] = "stop",
                                        [SOFT_MOVE_OUT] = "move to host memory",
                                        [SOFT_MOVE_IN] = "bring back",
                                        [SOFT_UNLOCK] = "continue",
                                        [SOFT_SHARES] = "ask for shared memory of"};
    struct soft_driver *d = soft(base);
    struct soft_msg m;
    int r;
    for (;;) {
        m = (struct soft_msg){.type = SOFT_SWAP,
                              .u.swap = {proc.start_ticks, proc.pid, what, lock_ms, 0}};
        r = soft_reach(d, err);
        /* Moving memory takes seconds; a server that goes ends the wait. */
        if (r == 0 && setsockopt(d->fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0},
                                 sizeof(struct timeval)) < 0)
            r = -errno;
        if (r == 0)
            r = soft_ask(d, &m, SOFT_REPLY, err);
        if (r < 0 || (r = m.u.reply.result) >= 0)
            return r;
        if (r != -EBUSY)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    if (r == -ESRCH)
        return error_set(err, r, "process %d is gone, or uses no GPU", (int)proc.pid);
    if (r == -ENOTSUP)
        return error_set(err, r, "process %d %s: its GPU memory cannot be moved", (int)proc.pid,
                         what == SOFT_LOCK ? "is a client of an MPS server" : "has managed memory");
    if (r == -ETIMEDOUT)
        return error_set(err, r, "process %d did not become idle within %u ms; it runs on",
                         (int)proc.pid, lock_ms);
    return error_set(err, r, "cannot %s process %d: %s%s", names[what], (int)proc.pid, strerror(-r),
                     r == -ENOMEM ? " on the GPU" : "");
}

static int soft_swap_step(struct device_driver *d, struct proc_id proc, enum swap_step step,
                          unsigned lock_ms, struct error *err)
{
    static const enum soft_swap steps[] = {SOFT_LOCK, SOFT_MOVE_OUT, SOFT_MOVE_IN, SOFT_UNLOCK};
    int s = swap_call(d, proc, SOFT_SWAP_STATE, 0, err);
    if (s < 0 || s != (int)swap_step_from(step))
        return s < 0 ? s : 0;
    return swap_call(d, proc, steps[step], lock_ms, err);
}

static int soft_swap_shares(struct device_driver *d, struct proc_id proc, bool several,
                            struct error *err)
{
    int r = swap_call(d, proc, SOFT_SHARES, 0, err);
    return r > 0 ? error_set(err, -ENOTSUP,
                             "process %d has GPU memory of another process open, and could not be "
                             "brought back",
                             (int)proc.pid)
                 : r;
}

static int soft_swap_state(struct device_driver *d, struct proc_id proc, enum swap_state *state,
                           struct error *err)
{
    int r;
    /* As hardware seems to do, it gives no answer about a program that is stopped. */
    while ((r = swap_call(d, proc, SOFT_SWAP_STATE, 0, err)) >= 0 && proc_stopped(proc))
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    if (r >= 0)
        *state = (enum swap_state)r;
    return r < 0 ? r : 0;
}

const struct device_ops device_soft = {
    .name = "soft",
    .summary = "a software GPU with an H200's timing, for demonstrations and tests",
    .open = soft_driver_open,
    .close = soft_driver_close,
    .gpus = soft_gpus,
    .info = soft_info,
    .processes = soft_processes,
    .clients = soft_clients,
    .scan = soft_scan,
    .forget = soft_forget,
    .set_timeslice = soft_set_timeslice,
    .set_preempt = soft_set_preempt,
    .set_running = soft_set_running,
    .usage = soft_usage,
    .memory_used = soft_memory_used,
    .demand = soft_demand,
    .watch = soft_watch,
    .ready = soft_ready,
    .memory_free = soft_memory_free,
    .swap_shares = soft_swap_shares,
    .swap_step = soft_swap_step,
    .swap_state = soft_swap_state,
    .activity = soft_activity,
    .counters = soft_counters,
    .switches = soft_switches,
};
