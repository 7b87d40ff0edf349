/* AMD GPUs behind the upstream compute driver: queues are suspended and resumed from outside
 * through KFD's debug trap. Timeslices are the firmware's and cannot be set.
 *
 * This has never run on AMD hardware (docs/amd.md). It relies on these facts, all read in the
 * kernel's source:
 *  - Suspending puts a process into debug mode, which lasts until it is disabled. The kernel keeps
 *    who enabled it; when that process dies, the kernel disables the mode and so resumes all
 *    queues. Suspension therefore ends with this driver instance's process, whatever kills it, and
 *    a second instance (a restorer) has nothing to undo.
 *  - For ENABLE, SUSPEND and RESUME the caller has to trace the target at that moment (struct
 *    kfd_io, traced); for DISABLE it need not.
 *  - A process that a debugger traces is refused before KFD is called, because a second ENABLE
 *    would disconnect the debugger from the target.
 *  - Debug mode is costly for the target (some chips mask compute units, some debug one process at
 *    a time), so it ends as soon as nothing of the process is suspended.
 *
 * A group is all queues of a process on one GPU, because a program's streams are spread over
 * several queues that wait for each other. A suspension covers the queues that exist then; queues
 * that come later are suspended by the next scan. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "gpu/amd/kfd.h"

struct kfd_hold { /* a process in debug mode through us */
    struct kfd_hold *next;
    struct proc_id proc;
    uint32_t gpus; /* bits: suspended there */
    struct kfd_queues held;
};

struct kfd_driver {
    struct device_driver base;
    const struct kfd_io *io;
    int fd, event_fd;
    struct kfd_version version;
    struct kfd_gpus gpus;
    struct kfd_hold *holds;
};

static struct kfd_driver *kfd(struct device_driver *d)
{
    return (struct kfd_driver *)d;
}

/* ---- the trap ---- */

static int trap(struct kfd_driver *d, pid_t pid, enum kfd_trap_op op, struct kfd_trap *t)
{
    t->pid = (uint32_t)pid;
    t->op = op;
    int r;
    do
        r = d->io->ioctl(d->fd, KFD_IOC_TRAP, t);
    while (r == -EINTR || r == -EAGAIN);
    return r;
}

static int trap_disable(struct kfd_driver *d, pid_t pid)
{
    struct kfd_trap t = {0};
    return trap(d, pid, KFD_TRAP_DISABLE, &t);
}

/* In debug mode a new queue has a mark, and cannot be suspended before a snapshot clears it. */
static void trap_clear_new(struct kfd_driver *d, pid_t pid)
{
    struct kfd_queue_entry *entries = calloc(KFD_QUEUES_MAX, sizeof(*entries));
    struct kfd_trap t = {.snapshot = {.clear = KFD_EXCEPTION_NEW,
                                      .entries = (uintptr_t)entries,
                                      .count = KFD_QUEUES_MAX,
                                      .entry_size = sizeof(*entries)}};
    if (entries)
        trap(d, pid, KFD_TRAP_QUEUE_SNAPSHOT, &t);
    free(entries);
}

/* ---- holds ---- */

static struct kfd_hold *hold_find(struct kfd_driver *d, struct proc_id proc)
{
    struct kfd_hold *h = d->holds;
    while (h && !proc_same(h->proc, proc))
        h = h->next;
    return h;
}

static void hold_drop(struct kfd_driver *d, struct kfd_hold *h)
{
    struct kfd_hold **at = &d->holds;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    free(h);
}

/* Resumes all queues. A process that has reused the pid is not touched: it cannot be in debug mode
 * through us. */
static int hold_release(struct kfd_driver *d, struct kfd_hold *h)
{
    int r = d->io->alive(h->proc) ? trap_disable(d, h->proc.pid) : 0;
    if (r < 0 && r != -ESRCH && r != -EINVAL) /* EINVAL: not in debug mode any more */
        return r;
    hold_drop(d, h);
    return 0;
}

static struct kfd_hold *hold_add(struct kfd_driver *d, struct proc_id proc)
{
    struct kfd_hold *h = calloc(1, sizeof(*h));
    if (h) {
        h->proc = proc;
        h->next = d->holds;
        d->holds = h;
    }
    return h;
}

/* The index of a queue in `held`; held.n if it is not there. */
static uint32_t hold_index(const struct kfd_hold *h, uint32_t queue)
{
    uint32_t i = 0;
    while (i < h->held.n && h->held.v[i].number != queue)
        i++;
    return i;
}

/* Whether the queue should be suspended and is not, because it is new. */
static bool hold_lacks(const struct kfd_hold *h, uint32_t gpus, const struct kfd_queue *q)
{
    return (gpus >> q->gpu & 1) && hold_index(h, q->number) == h->held.n;
}

/* ---- open, close, info ---- */

static bool can_suspend(const struct kfd_driver *d)
{
    return d->version.major == 1 && d->version.minor >= KFD_DEBUG_MINOR;
}

int kfd_driver_open(const struct kfd_io *io, struct device_driver **out, struct error *err)
{
    struct kfd_driver *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "out of memory");
    d->base.ops = &device_amd;
    d->io = io;
    d->event_fd = -1;
    d->fd = io->open();
    int r = d->fd;
    if (r == -EACCES || r == -EPERM)
        r = error_set(err, -EPERM,
                      "no right to open " KFD_PATH ": run as root or join the group render");
    else if (r < 0)
        r = error_set(err, -ENODEV, "no AMD compute driver: " KFD_PATH ": %s", strerror(-r));
    if (r >= 0) {
        r = io->ioctl(d->fd, KFD_IOC_VERSION, &d->version);
        if (r < 0)
            error_set(err, r, "asking " KFD_PATH " for its version: %s", strerror(-r));
    }
    if (r >= 0) {
        kfd_gpus_read(io->sysfs, &d->gpus);
        if (d->gpus.n == 0)
            r = error_set(err, -ENODEV, "%s shows no GPU in %s/topology", KFD_PATH, io->sysfs);
    }
    /* The kernel needs a file for events, although none is requested. */
    if (r >= 0 && (d->event_fd = open("/dev/null", O_WRONLY | O_CLOEXEC)) < 0)
        r = error_set(err, -errno, "opening /dev/null: %s", strerror(errno));
    if (r < 0) {
        device_amd.close(&d->base);
        return r; // cppcheck-suppress memleak ; close() has freed it
    }
    *out = &d->base;
    return 0;
}

static int amd_open(const char *where, struct device_driver **out, struct error *err)
{
    return kfd_driver_open(&kfd_io_system, out, err);
}

static void amd_close(struct device_driver *base)
{
    struct kfd_driver *d = kfd(base);
    while (d->holds) {
        struct kfd_hold *h = d->holds;
        if (hold_release(d, h) < 0)
            hold_drop(d, h);
    }
    if (d->event_fd >= 0)
        close(d->event_fd);
    if (d->fd >= 0)
        d->io->close(d->fd);
    free(d);
}

static unsigned amd_gpus(struct device_driver *base)
{
    return kfd(base)->gpus.n;
}

static int amd_info(struct device_driver *base, unsigned gpu, struct gpu_info *out)
{
    struct kfd_driver *d = kfd(base);
    if (gpu >= d->gpus.n)
        return -EINVAL;
    *out = d->gpus.v[gpu].info;
    if (!can_suspend(d))
        out->caps = 0;
    return 0;
}

/* ---- processes ---- */

static int amd_processes(struct device_driver *base, struct pid_list *out, struct error *err)
{
    int r = kfd_processes(kfd(base)->io->sysfs, out);
    return r < 0 ? error_set(err, r, "listing %s/proc: %s", kfd(base)->io->sysfs, strerror(-r)) : 0;
}

static int kfd_gone(struct proc_id proc, struct error *err)
{
    return error_set(err, -ESRCH, "process %d is gone", (int)proc.pid);
}

static int list_queues(struct kfd_driver *d, struct proc_id proc, struct kfd_queues *queues,
                       struct error *err)
{
    int r = kfd_queues(d->io->sysfs, &d->gpus, proc.pid, queues);
    if (r == 0 && !d->io->alive(proc)) /* the queues may belong to a later process */
        return kfd_gone(proc, err);
    return r < 0 ? error_set(err, r, "listing the queues of process %d in %s: %s", (int)proc.pid,
                             d->io->sysfs, strerror(-r))
                 : 0;
}

static int suspend_on(struct kfd_driver *d, struct proc_id proc, uint32_t gpus, struct error *err);

/* Adds the process's group on this GPU, unless it has no compute queue there. */
static int add_group(const struct kfd_driver *d, struct proc_id proc,
                     const struct kfd_queues *queues, uint32_t gpu, struct group_list *out)
{
    uint32_t id = d->gpus.v[gpu].gpu_id;
    struct device_group g = {.key = (uint64_t)(uint32_t)proc.pid << 32 | id,
                             .proc = proc,
                             .gpu = gpu,
                             .kind = GROUP_COPY,
                             .level = LEVEL_QUEUE,
                             .handles = {id}};
    for (uint32_t i = 0; i < queues->n; i++) {
        if (queues->v[i].gpu != gpu)
            continue;
        g.kind = queues->v[i].copies ? g.kind : GROUP_COMPUTE;
        if (g.nchannels < GROUP_CHANNELS_MAX) /* only for display */
            g.channels[g.nchannels++] = queues->v[i].number;
    }
    return g.kind == GROUP_COMPUTE ? group_list_push(out, &g) : 0;
}

static int amd_scan(struct device_driver *base, struct proc_id proc, struct group_list *out,
                    struct error *err)
{
    struct kfd_driver *d = kfd(base);
    struct kfd_queues queues;
    const struct kfd_hold *h = hold_find(d, proc);
    bool more = false;
    int r = list_queues(d, proc, &queues, err);
    for (uint32_t gpu = 0; gpu < d->gpus.n && r == 0; gpu++)
        r = add_group(d, proc, &queues, gpu, out);
    for (uint32_t i = 0; h && i < queues.n; i++)
        more |= hold_lacks(h, h->gpus, &queues.v[i]);
    if (r == 0 && more)
        suspend_on(d, proc, h->gpus, NULL); /* the next scan tries again */
    return r;
}

static void amd_forget(struct device_driver *base, pid_t pid)
{
    struct kfd_driver *d = kfd(base);
    for (struct kfd_hold *h = d->holds, *next; h; h = next) {
        next = h->next;
        if (h->proc.pid == pid)
            hold_release(d, h);
    }
}

static int amd_usage(struct device_driver *base, struct usage_list *out, struct error *err)
{
    struct kfd_driver *d = kfd(base);
    _cleanup_(pid_list_free) struct pid_list pids = {0};
    int r = kfd_processes(d->io->sysfs, &pids);
    for (size_t i = 0; i < pids.n; i++) {
        for (unsigned gpu = 0; gpu < d->gpus.n && r == 0; gpu++) {
            struct gpu_usage u = {.pid = pids.v[i], .gpu = gpu, .busy = -1};
            u.memory_bytes = kfd_memory(d->io->sysfs, pids.v[i], d->gpus.v[gpu].gpu_id);
            r = u.memory_bytes ? usage_list_push(out, &u) : 0;
        }
    }
    return r < 0 ? error_set(err, r, "listing %s/proc: %s", d->io->sysfs, strerror(-r)) : 0;
}

/* ---- controls ---- */

static int amd_set_timeslice(struct device_driver *base, const struct device_group *g, uint64_t us,
                             struct error *err)
{
    return error_set(err, -ENOTSUP,
                     "AMD's compute driver has no control for timeslices: the firmware sets them");
}

/* One call to suspend or resume queues of one process, for the thread that traces it. */
struct call {
    struct kfd_driver *d;
    struct kfd_hold *hold;
    bool suspend, enabled; /* enabled: this call put the process into debug mode */
    struct kfd_queues on;  /* the queues */
    struct error err;
};

static int enable(struct call *c)
{
    struct kfd_runtime runtime = {0};
    pid_t pid = c->hold->proc.pid;
    struct kfd_trap t = {.enable = {.runtime = (uintptr_t)&runtime,
                                    .runtime_size = sizeof(runtime),
                                    .event_fd = (uint32_t)c->d->event_fd}};
    int r = trap(c->d, pid, KFD_TRAP_ENABLE, &t);
    if (r == -EALREADY)
        return error_set(&c->err, -EPERM,
                         "a debugger holds the GPU work of process %d: end it to schedule the "
                         "process",
                         (int)pid);
    if (r == -ESRCH)
        return kfd_gone(c->hold->proc, &c->err);
    if (r < 0)
        return error_set(&c->err, r == -EPERM ? -EPERM : -EIO,
                         "process %d: KFD debug trap, enable: %s", (int)pid, strerror(-r));
    c->enabled = true;
    if (runtime.state == KFD_RUNTIME_ENABLED)
        return 0;
    static const char *const reasons[] = {
        [KFD_RUNTIME_DISABLED] = "its ROCm runtime has not announced itself to the kernel (it is "
                                 "too old, or only starting)",
        [KFD_RUNTIME_BUSY] = "this GPU debugs one process at a time, and does already",
        [KFD_RUNTIME_ERROR] = "the GPU's debug mode could not be set up",
    };
    return error_set(&c->err, -EPERM, "process %d cannot be suspended: %s", (int)pid,
                     runtime.state < ARRAY_SIZE(reasons) ? reasons[runtime.state]
                                                         : "unknown state");
}

static int issue(struct call *c, uint32_t *queues)
{
    struct kfd_trap t = {0};
    for (uint32_t i = 0; i < c->on.n; i++)
        queues[i] = c->on.v[i].number;
    if (c->suspend) {
        t.suspend.queues = (uintptr_t)queues;
        t.suspend.count = c->on.n;
    } else {
        t.resume.queues = (uintptr_t)queues;
        t.resume.count = c->on.n;
    }
    return trap(c->d, c->hold->proc.pid,
                c->suspend ? KFD_TRAP_SUSPEND_QUEUES : KFD_TRAP_RESUME_QUEUES, &t);
}

/* Notes in `held` what the kernel did; -ENOENT or -EIO if it left out a queue. */
static int suspend_check(struct call *c, const uint32_t *queues)
{
    int result = 0;
    for (uint32_t i = 0; i < c->on.n; i++) {
        uint32_t number = queues[i] & KFD_QUEUE_NUMBER, flags = queues[i] & ~KFD_QUEUE_NUMBER;
        struct kfd_hold *h = c->hold;
        uint32_t index = hold_index(h, number);
        bool known = index < h->held.n;
        if (!c->suspend && !(flags & KFD_QUEUE_ERROR) && known)
            h->held.v[index] = h->held.v[--h->held.n];
        else if (c->suspend && !flags && !known && h->held.n < KFD_QUEUES_MAX)
            h->held.v[h->held.n++] = c->on.v[i];
        if (!flags || result < 0 || (!c->suspend && !(flags & KFD_QUEUE_ERROR)))
            continue;
        bool hardware = flags & KFD_QUEUE_ERROR;
        result = error_set(&c->err, hardware ? -EIO : -ENOENT, "process %d, queue %u: %s",
                           (int)c->hold->proc.pid, number,
                           hardware ? "the GPU did not take it off or on" : "it is gone");
    }
    return result;
}

static int call_traced(void *arg)
{
    struct call *c = arg;
    uint32_t queues[KFD_QUEUES_MAX];
    bool fresh = c->hold->held.n == 0;
    int r = fresh ? enable(c) : 0;
    if (r < 0)
        return r;
    r = issue(c, queues);
    if (r == -EINVAL && !fresh && c->suspend) { /* exec ended debug mode, and the queues with it */
        c->hold->held.n = 0;
        r = enable(c);
        if (r < 0)
            return r;
        r = issue(c, queues);
    }
    bool invalid = false;
    for (uint32_t i = 0; i < c->on.n; i++)
        invalid |= queues[i] & KFD_QUEUE_INVALID;
    if (r >= 0 && c->suspend && invalid) {
        trap_clear_new(c->d, c->hold->proc.pid);
        r = issue(c, queues);
    }
    if (r == -ESRCH)
        return kfd_gone(c->hold->proc, &c->err);
    if (r < 0)
        return error_set(&c->err, r == -EPERM ? -EPERM : -EIO,
                         "process %d: KFD debug trap, %s queues: %s", (int)c->hold->proc.pid,
                         c->suspend ? "suspend" : "resume", strerror(-r));
    return suspend_check(c, queues);
}

static int not_traced(struct kfd_driver *d, struct proc_id proc, int r, struct error *err)
{
    if (r == -ESRCH || !d->io->alive(proc))
        return kfd_gone(proc, err);
    pid_t tracer = kfd_tracer(proc.pid);
    if (tracer)
        return error_set(err, -EPERM,
                         "process %d is traced by process %d: end that debugger to suspend it",
                         (int)proc.pid, (int)tracer);
    return error_set(err, r == -EPERM ? -EPERM : -EIO,
                     "cannot trace process %d (%s): its owner's ceded, or root's, is needed",
                     (int)proc.pid, strerror(-r));
}

static int perform(struct call *c, struct error *err)
{
    struct kfd_driver *d = c->d;
    struct proc_id proc = c->hold->proc;
    int r = d->io->traced(proc, call_traced, c);
    if (r < 0 && !c->err.text[0])
        return not_traced(d, proc, r, err);
    return r < 0 ? error_set(err, r, "%s", c->err.text) : 0;
}

/* Suspends the queues that the process has on these GPUs now, whether or not they are suspended
 * already. -ENOENT: a queue was destroyed meanwhile. */
static int suspend_queues(struct kfd_driver *d, struct kfd_hold *h, uint32_t gpus, bool first,
                          bool *more, struct error *err)
{
    struct call c = {.d = d, .suspend = true, .hold = h};
    struct kfd_queues queues;
    int r = list_queues(d, h->proc, &queues, err);
    *more = false;
    for (uint32_t i = 0; i < queues.n; i++) {
        *more |= hold_lacks(h, gpus, &queues.v[i]);
        if (gpus >> queues.v[i].gpu & 1)
            c.on.v[c.on.n++] = queues.v[i];
    }
    if (r == 0 && c.on.n && (first || *more)) /* each call rebuilds the run list */
        r = perform(&c, err);
    if (c.enabled && h->held.n == 0) /* debug mode is not kept for nothing */
        trap_disable(d, h->proc.pid);
    return r;
}

static int suspend_on(struct kfd_driver *d, struct proc_id proc, uint32_t gpus, struct error *err)
{
    enum { TRIES = 8 }; /* later scans suspend the queues of a program that makes more */
    struct kfd_hold *h = hold_find(d, proc);
    if (!h && !(h = hold_add(d, proc)))
        return error_set(err, -ENOMEM, "out of memory");
    struct error e = {""};
    bool more = true;
    int r = 0;
    for (int i = 0; i < TRIES && more && (r == 0 || r == -ENOENT); i++)
        r = suspend_queues(d, h, gpus, i == 0, &more, &e);
    if (r == 0 && h->held.n == 0)
        r = error_set(&e, -ENOENT, "process %d has no queues left", (int)proc.pid);
    r = device_refused(r, h->held.n > 0);
    h->gpus |= gpus;
    if (h->held.n == 0)
        hold_drop(d, h);
    return r < 0 ? error_set(err, r, "%s", e.text) : 0;
}

static int amd_suspend(struct kfd_driver *d, struct proc_id proc, uint32_t gpus, struct error *err)
{
    if (!can_suspend(d))
        return error_set(err, -ENOTSUP,
                         "this kernel's KFD (interface %u.%u) cannot suspend queues: 1.%u is "
                         "needed (Linux 6.5)",
                         d->version.major, d->version.minor, KFD_DEBUG_MINOR);
    return suspend_on(d, proc, gpus, err);
}

/* A process that this process has not suspended is not suspended, because the kernel resumed it
 * when the process that had suspended it died. */
static int amd_resume(struct kfd_driver *d, struct proc_id proc, uint32_t gpus, struct error *err)
{
    struct call c = {.d = d, .hold = hold_find(d, proc)};
    if (!c.hold)
        return 0;
    c.hold->gpus &= ~gpus;
    for (uint32_t i = 0; i < c.hold->held.n; i++) {
        if (!(c.hold->gpus >> c.hold->held.v[i].gpu & 1))
            c.on.v[c.on.n++] = c.hold->held.v[i];
    }
    if (c.on.n == 0)
        return 0;
    /* All queues are resumed with DISABLE if all should be, or if another process traces this one
     * by now, because DISABLE needs no tracing. Resuming too many is better than too few. */
    if (c.on.n < c.hold->held.n && perform(&c, NULL) == 0)
        return 0;
    int r = hold_release(d, c.hold);
    return r < 0 ? error_set(err, -EIO, "process %d: KFD debug trap, disable: %s", (int)proc.pid,
                             strerror(-r))
                 : 0;
}

/* KFD suspends the queues of one process at a time. */
static int amd_set_running(struct device_driver *base, const struct device_group *const *g,
                           size_t n, bool on, struct error *err)
{
    struct kfd_driver *d = kfd(base);
    int result = 0;
    bool some_done = false;
    for (size_t i = 0; i < n; i++) {
        struct error e = {""};
        uint32_t gpus = 0;
        size_t first = 0;
        while (!proc_same(g[first]->proc, g[i]->proc))
            first++;
        if (first < i)
            continue;
        for (size_t k = i; k < n; k++) {
            if (proc_same(g[k]->proc, g[i]->proc) && g[k]->gpu < d->gpus.n)
                gpus |= 1U << g[k]->gpu;
        }
        int r = on ? amd_resume(d, g[i]->proc, gpus, &e) : amd_suspend(d, g[i]->proc, gpus, &e);
        some_done |= r != -EPERM;
        if (r < 0 && result == 0)
            result = error_set(err, r, "%s", e.text);
    }
    return device_refused(result, some_done);
}

const struct device_ops device_amd = {
    .name = "amd",
    .summary = "AMD GPUs, upstream compute driver (never tried on hardware)",
    .open = amd_open,
    .close = amd_close,
    .gpus = amd_gpus,
    .info = amd_info,
    .processes = amd_processes,
    .scan = amd_scan,
    .forget = amd_forget,
    .set_timeslice = amd_set_timeslice,
    .set_running = amd_set_running,
    .usage = amd_usage,
    .memory_used = amd_usage, /* which has no window */
};
