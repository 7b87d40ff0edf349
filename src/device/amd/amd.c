/* AMD GPUs behind the upstream compute driver: queues are suspended and resumed from outside
 * through KFD's debug trap. Timeslices are the firmware's and cannot be set.
 *
 * This has never run on AMD hardware (docs/amd.md). What it relies on, all read in the kernel's
 * source:
 *  - Suspending puts a process into debug mode, which lasts until it is disabled. The kernel keeps
 *    who enabled it; when that process dies, it disables the mode and so resumes all queues.
 *    Suspension therefore ends with this driver instance's process, whatever kills it, and a
 *    second instance (a restorer) finds nothing left to undo.
 *  - ENABLE, SUSPEND and RESUME want the caller to trace the target at that moment (struct kfd_io,
 *    traced); DISABLE does not.
 *  - A process that a debugger traces is refused before anything is asked of KFD, because a second
 *    ENABLE would take the debugger's name off the target.
 *  - Debug mode costs the target something (some chips mask compute units, some debug one process
 *    at a time), so it is left as soon as nothing of the process is suspended.
 *
 * A group is all queues of a process on one GPU: a program's streams are spread over several queues
 * that wait for each other. Suspending one means the queues it has then; those it makes while it is
 * suspended are found by the next scan, which suspends them too. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "device/amd/kfd.h"

#define HOLD_QUEUES_MAX 1024 /* of one process; the kernel's limit is 1024 */

struct kfd_queue {
    uint32_t number, gpu;
};

struct kfd_hold { /* a process in debug mode through us */
    struct kfd_hold *next;
    struct proc_id proc;
    uint32_t gpus; /* bits: suspended there */
    uint32_t n;
    struct kfd_queue v[HOLD_QUEUES_MAX]; /* suspended */
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

/* In debug mode a new queue is marked, and is not suspended until the mark was read. */
static void trap_clear_new(struct kfd_driver *d, pid_t pid)
{
    struct kfd_queue_entry *entries = calloc(HOLD_QUEUES_MAX, sizeof(*entries));
    struct kfd_trap t = {.snapshot = {.clear = KFD_EXCEPTION_NEW,
                                      .entries = (uintptr_t)entries,
                                      .count = HOLD_QUEUES_MAX,
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

/* Resumes all. A reused pid cannot be in debug mode through us: it is not touched. */
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

/* The place of a queue; h->n if it is not there. */
static uint32_t hold_place(const struct kfd_hold *h, uint32_t queue)
{
    uint32_t i = 0;
    while (i < h->n && h->v[i].number != queue)
        i++;
    return i;
}

static bool hold_has(const struct kfd_hold *h, uint32_t queue)
{
    return hold_place(h, queue) < h->n;
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
    /* The kernel wants a file to write events to, though none is asked for. */
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

static int list_queues(struct kfd_driver *d, struct proc_id proc, struct group_list *queues,
                       struct error *err)
{
    int r = kfd_queues(d->io->sysfs, &d->gpus, proc, queues);
    if (r == 0 && !d->io->alive(proc)) /* they may be a later process's */
        return kfd_gone(proc, err);
    return r < 0 ? error_set(err, r, "listing the queues of process %d in %s: %s", (int)proc.pid,
                             d->io->sysfs, strerror(-r))
                 : 0;
}

static int suspend_on(struct kfd_driver *d, struct proc_id proc, uint32_t gpus, struct error *err);

/* A process without compute queues on a GPU has nothing to schedule there yet. */
static int add_group(const struct kfd_driver *d, const struct group_list *queues, uint32_t gpu,
                     struct group_list *out)
{
    struct device_group g = {.kind = GROUP_COPY, .level = LEVEL_QUEUE};
    for (size_t i = 0; i < queues->n; i++) {
        const struct device_group *q = &queues->v[i];
        if (q->gpu != gpu)
            continue;
        g.proc = q->proc;
        g.kind = q->kind == GROUP_COMPUTE ? GROUP_COMPUTE : g.kind;
        if (g.nchannels < GROUP_CHANNELS_MAX) /* for people, not relied on */
            g.channels[g.nchannels++] = q->channels[0];
    }
    if (g.kind != GROUP_COMPUTE)
        return 0;
    g.gpu = gpu;
    g.handles[0] = d->gpus.v[gpu].gpu_id;
    g.key = (uint64_t)(uint32_t)g.proc.pid << 32 | g.handles[0];
    return group_list_push(out, &g);
}

static int amd_scan(struct device_driver *base, struct proc_id proc, struct group_list *out,
                    struct error *err)
{
    struct kfd_driver *d = kfd(base);
    struct group_list queues = {0};
    const struct kfd_hold *h = hold_find(d, proc);
    bool more = false;
    int r = list_queues(d, proc, &queues, err);
    for (uint32_t gpu = 0; gpu < d->gpus.n && r == 0; gpu++)
        r = add_group(d, &queues, gpu, out);
    for (size_t i = 0; h && i < queues.n; i++)
        more |= (h->gpus >> queues.v[i].gpu & 1) && !hold_has(h, queues.v[i].channels[0]);
    group_list_free(&queues);
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
    struct pid_list pids = {0};
    int r = kfd_processes(d->io->sysfs, &pids);
    for (size_t i = 0; i < pids.n; i++) {
        for (unsigned gpu = 0; gpu < d->gpus.n && r == 0; gpu++) {
            struct gpu_usage u = {.pid = pids.v[i], .gpu = gpu, .busy = -1};
            u.memory_bytes = kfd_memory(d->io->sysfs, pids.v[i], d->gpus.v[gpu].gpu_id);
            r = u.memory_bytes ? usage_list_push(out, &u) : 0;
        }
    }
    pid_list_free(&pids);
    return r < 0 ? error_set(err, r, "listing %s/proc: %s", d->io->sysfs, strerror(-r)) : 0;
}

/* ---- controls ---- */

static int amd_set_timeslice(struct device_driver *base, const struct device_group *g, uint64_t us,
                             struct error *err)
{
    return error_set(err, -ENOTSUP,
                     "AMD's compute driver has no control for timeslices: the firmware sets them");
}

/* One suspend or resume of queues of one process, for the thread that traces it. */
struct call {
    struct kfd_driver *d;
    struct kfd_hold *hold;
    bool suspend, enabled; /* enabled: into debug mode by this call */
    uint32_t n;
    struct kfd_queue v[HOLD_QUEUES_MAX];
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
    for (uint32_t i = 0; i < c->n; i++)
        queues[i] = c->v[i].number;
    if (c->suspend) {
        t.suspend.queues = (uintptr_t)queues;
        t.suspend.count = c->n;
    } else {
        t.resume.queues = (uintptr_t)queues;
        t.resume.count = c->n;
    }
    return trap(c->d, c->hold->proc.pid,
                c->suspend ? KFD_TRAP_SUSPEND_QUEUES : KFD_TRAP_RESUME_QUEUES, &t);
}

/* Takes note of what the kernel did; -ENOENT or -EIO if it left some queue out. */
static int suspend_check(struct call *c, const uint32_t *queues)
{
    int result = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t number = queues[i] & KFD_QUEUE_NUMBER, flags = queues[i] & ~KFD_QUEUE_NUMBER;
        struct kfd_hold *h = c->hold;
        uint32_t place = hold_place(h, number);
        bool known = place < h->n;
        if (!c->suspend && !(flags & KFD_QUEUE_ERROR) && known)
            h->v[place] = h->v[--h->n];
        else if (c->suspend && !flags && !known && h->n < HOLD_QUEUES_MAX)
            h->v[h->n++] = c->v[i];
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
    uint32_t queues[HOLD_QUEUES_MAX];
    bool fresh = c->hold->n == 0;
    int r = fresh ? enable(c) : 0;
    if (r < 0)
        return r;
    r = issue(c, queues);
    if (r == -EINVAL && !fresh && c->suspend) { /* exec ended debug mode, and the queues with it */
        c->hold->n = 0;
        r = enable(c);
        if (r < 0)
            return r;
        r = issue(c, queues);
    }
    bool invalid = false;
    for (uint32_t i = 0; i < c->n; i++)
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

/* The queues that the process has on these GPUs now, new ones and those held already alike.
 * -ENOENT: one went meanwhile. */
static int suspend_queues(struct kfd_driver *d, struct kfd_hold *h, uint32_t gpus, bool first,
                          bool *more, struct error *err)
{
    struct call c = {.d = d, .suspend = true, .hold = h};
    struct group_list queues = {0};
    int r = list_queues(d, h->proc, &queues, err);
    for (size_t i = 0; i < queues.n && c.n < HOLD_QUEUES_MAX; i++) {
        if (!(gpus >> queues.v[i].gpu & 1))
            continue;
        c.v[c.n++] = (struct kfd_queue){queues.v[i].channels[0], queues.v[i].gpu};
    }
    *more = false;
    for (uint32_t i = 0; i < c.n; i++)
        *more |= !hold_has(h, c.v[i].number);
    group_list_free(&queues);
    if (r == 0 && c.n && (first || *more)) /* each call rebuilds the run list */
        r = perform(&c, err);
    if (c.enabled && h->n == 0) /* leave no debug mode behind that holds nothing */
        trap_disable(d, h->proc.pid);
    return r;
}

static int suspend_on(struct kfd_driver *d, struct proc_id proc, uint32_t gpus, struct error *err)
{
    enum { TRIES = 8 }; /* a program that makes queues all the time is caught by later scans */
    struct kfd_hold *h = hold_find(d, proc);
    if (!h && !(h = hold_add(d, proc)))
        return error_set(err, -ENOMEM, "out of memory");
    struct error e = {""};
    bool more = true;
    int r = 0;
    for (int i = 0; i < TRIES && more && (r == 0 || r == -ENOENT); i++)
        r = suspend_queues(d, h, gpus, i == 0, &more, &e);
    if (r == 0 && h->n == 0)
        r = error_set(&e, -ENOENT, "process %d has no queues left", (int)proc.pid);
    r = device_refused(r, h->n > 0);
    h->gpus |= gpus;
    if (h->n == 0)
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

/* What no instance in this process suspended is not suspended: the kernel saw to it. */
static int amd_resume(struct kfd_driver *d, struct proc_id proc, uint32_t gpus, struct error *err)
{
    struct call c = {.d = d, .hold = hold_find(d, proc)};
    if (!c.hold)
        return 0;
    c.hold->gpus &= ~gpus;
    for (uint32_t i = 0; i < c.hold->n; i++) {
        if (!(c.hold->gpus >> c.hold->v[i].gpu & 1))
            c.v[c.n++] = c.hold->v[i];
    }
    if (c.n == 0)
        return 0;
    /* All of them, or somebody traces the process by now: DISABLE needs no tracing. Letting more
     * run than was asked is better than letting less. */
    if (c.n < c.hold->n && perform(&c, NULL) == 0)
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
};
