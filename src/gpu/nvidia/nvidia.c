/* The driver for NVIDIA GPUs: steers the channel groups of running, unmodified programs with the
 * controls that the stock driver offers to a process that has the program's /dev/nvidiactl open.
 *
 * The descriptor is borrowed for each call (pidfd_getfd) and closed before it returns, because an
 * open one would keep a dead process's GPU memory and channels alive. Never issues a control that
 * is not in rm.h's table, and never changes clocks, power, MIG or compute modes. */
#include "gpu/nvidia/nvidia.h"

#include <errno.h>
#include <glob.h>
#include <string.h>
#include <strings.h>

#define PROC_GPUS      "/proc/driver/nvidia/gpus"
#define PROC_INSTANCES "/proc/driver/nvidia/capabilities/gpu*/mig/gi*"
#define RECHECK        16U /* rounds after which a process's descriptors are listed in any case */
/* Steps of one processes() without NVML, each about 2 us. One process gets only LIST_MAX of them,
 * so that those with very many descriptors do not delay the others. */
#define STEPS_MAX 20000U
#define LIST_MAX  2048U
/* Time after the last use, by programs or by a call that needs the driver, when it is closed. */
#define LET_GO_NS (2 * NSEC_PER_SEC)

static struct nv_driver *nv(struct device_driver *d)
{
    return (struct nv_driver *)d;
}

/* ---- GPUs ---- */

static int nv_by_bus_id(const void *a, const void *b)
{
    return strcasecmp(((const struct gpu_info *)a)->bus_id, ((const struct gpu_info *)b)->bus_id);
}

static void gpus_from_proc(struct nv_gpus *gpus)
{
    glob_t files = {.gl_pathc = 0};
    (void)glob(PROC_GPUS "/*/information", 0, NULL, &files);
    for (size_t i = 0; i < files.gl_pathc && gpus->n < DEVICE_GPUS_MAX; i++) {
        char line[256];
        _cleanup_fclose_ FILE *f = fopen(files.gl_pathv[i], "re");
        if (!f)
            continue;
        struct gpu_info *g = &gpus->v[gpus->n++];
        *g = (struct gpu_info){.name = "NVIDIA GPU"};
        while (fgets(line, sizeof(line), f)) {
            (void)sscanf(line, "Model: %63[^\n]", g->name); /* "Model: \t\t NVIDIA H200" */
            (void)sscanf(line, "GPU UUID: %47[^\n]", g->uuid);
            (void)sscanf(line, "Bus Location: %19[^\n]", g->bus_id);
        }
        if (strchr(g->uuid, '?')) /* the GPU is not initialised yet; the bus id identifies it */
            g->uuid[0] = '\0';
    }
    globfree(&files);
    qsort(gpus->v, gpus->n, sizeof(gpus->v[0]), nv_by_bus_id);
}

/* Opens the library when it is first needed, because it takes 14 ms to start. */
static struct nvml *nvml_get(struct nv_driver *d)
{
    if (!d->nvml_tried) {
        d->nvml_tried = true;
        if (nvml_open(&d->nvml) < 0)
            d->nvml = NULL;
        else if (d->numbered && !d->divided)
            nvml_divide(d->nvml, &d->gpus, false);
        d->divided |= d->nvml != NULL;
    }
    return d->nvml;
}

/* Completes the list of devices. Without NVML it is not known which GPUs have the instances that
 * the driver shows, so that all count as divided and no process is steered. */
static void gpus_complete(struct nv_driver *d)
{
    struct nv_gpus *g = &d->gpus;
    bool none = g->n == 0;
    if (none && nvml_get(d)) {
        nvml_gpus(d->nvml, g);
        qsort(g->v, g->n, sizeof(g->v[0]), nv_by_bus_id);
    }
    if ((none || g->instances) && nvml_get(d))
        nvml_divide(d->nvml, g, true);
    for (unsigned i = 0; g->instances && !d->nvml && i < g->n; i++)
        memcpy(g->divided[g->ndivided++], g->v[i].uuid, sizeof(g->v[i].uuid));
    d->numbered = true;
}

/* ---- open, close, info ---- */

/* Closes everything of the driver while no program uses it, because an open module cannot be
 * unloaded: the control device, the files of the library, and the library, which an upgrade
 * replaces. */
static void nv_let_go(struct nv_driver *d)
{
    nv_trace_stop(&d->trace, 0);
    nv_scanner_free(&d->scanner);
    nvml_close(d->nvml);
    if (d->ctl_fd >= 0)
        d->io->close(d->ctl_fd);
    d->nvml = NULL;
    d->nvml_tried = !d->uses_nvml;
    d->asked_ns = 0;
    d->ctl_fd = d->trace.ctl_fd = -1;
}

/* Opens the driver again, which may be another release now. */
static int nv_take(struct nv_driver *d, struct error *err)
{
    if (d->ctl_fd >= 0)
        return 0;
    d->used_ns = d->io->now_ns();
    int r = d->io->open_ctl();
    if (r == -EACCES || r == -EPERM)
        return error_set(err, -EPERM, "no right to open " RM_CTL_PATH ": run as root");
    if (r < 0)
        return error_set(err, -ENODEV, "no NVIDIA driver: " RM_CTL_PATH ": %s", strerror(-r));
    d->ctl_fd = d->trace.ctl_fd = r;
    d->nvml_told = d->refuses_mixed = false;
    d->io->release(d->release, sizeof(d->release));
    r = nv_scanner_init(&d->scanner, d->io, d->ctl_fd, &d->gpus, err);
    if (r < 0)
        nv_let_go(d);
    return r;
}

int nv_driver_open(const struct rm_io *io, const struct nv_gpus *gpus, bool nvml,
                   struct device_driver **out, struct error *err)
{
    struct nv_driver *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "out of memory");
    d->base.ops = &device_nvidia;
    d->io = io;
    d->gpus = *gpus;
    d->uses_nvml = nvml;
    d->nvml_tried = !nvml;
    d->ctl_fd = -1;
    d->trace = (struct nv_trace){.io = d->io, .ctl_fd = -1};
    int r = nv_take(d, err);
    if (r >= 0)
        gpus_complete(d);
    if (r >= 0 && d->gpus.n == 0)
        r = error_set(err, -ENODEV,
                      "the NVIDIA driver is loaded but shows no GPU in " PROC_GPUS
                      " and through libnvidia-ml.so.1");
    if (r < 0) {
        device_nvidia.close(&d->base);
        return r;
    }
    *out = &d->base;
    return 0;
}

static int nvidia_open(const char *where, struct device_driver **out, struct error *err)
{
    struct nv_gpus gpus = {.n = 0};
    glob_t instances;
    gpus_from_proc(&gpus);
    gpus.instances = glob(PROC_INSTANCES, GLOB_NOSORT, NULL, &instances) == 0;
    globfree(&instances);
    return nv_driver_open(&rm_io_system, &gpus, true, out, err);
}

static void nvidia_close(struct device_driver *base)
{
    struct nv_driver *d = nv(base);
    nv_let_go(d);
    switch_list_free(&d->trace.switches);
    free(d->users);
    free(d);
}

static unsigned nvidia_gpus(struct device_driver *base)
{
    return nv(base)->gpus.n;
}

static int nvidia_info(struct device_driver *base, unsigned gpu, struct gpu_info *out)
{
    struct nv_driver *d = nv(base);
    if (gpu >= d->gpus.n)
        return -EINVAL;
    if (d->ctl_fd >= 0 && !d->nvml_told && nvml_get(d))
        nvml_gpus(d->nvml, &d->gpus);
    d->nvml_told |= d->nvml != NULL;
    struct gpu_info *g = &d->gpus.v[gpu];
    bool part = d->gpus.part[gpu].gpu[0];
    /* Kept while the driver is let go. */
    if (!part && nv_has_counters(d, gpu))
        g->caps |= GPU_CAP_COUNTERS;
    *out = *g;
    if (nv_gpu_divided(&d->gpus, g->uuid)) {
        snprintf(out->name, sizeof(out->name), "%.30s (MIG mode, not scheduled)", g->name);
        out->caps &= ~(uint32_t)(GPU_CAP_POOL | GPU_CAP_COUNTERS);
        return 0;
    }
    out->caps |= GPU_CAP_TIMESLICE | GPU_CAP_SUSPEND;
    /* No driver is named for an instance, because the check cannot start programs in a certain
     * one. Libcuda's checkpoints fail in instances, preemption modes were not tried, and the trace
     * is for profilers. */
    if (!part) {
        snprintf(out->driver, sizeof(out->driver), "%s", d->release);
        out->caps |= GPU_CAP_SWAP | GPU_CAP_PREEMPT | (g->uuid[0] ? GPU_CAP_PLACE : 0) |
                     (d->io->same_pids() ? GPU_CAP_ACTIVITY : 0);
    }
    out->timeslice_min_us = NV_TIMESLICE_MIN_US;
    out->timeslice_max_us = NV_TIMESLICE_MAX_US;
    out->timeslice_default_us = NV_TIMESLICE_DEFAULT_US;
    out->timeslice_back_us = NV_TIMESLICE_BACK_US;
    return 0;
}

/* ---- processes ---- */

/* Looks at a process, with one step for its number of descriptors and, if that has changed, one for
 * each descriptor. False: the process is gone. */
static bool user_look(struct nv_driver *d, struct nv_user *h, uint32_t *steps)
{
    uint64_t count;
    bool again = ((unsigned)h->pid + d->rounds) % RECHECK == 0; /* pids are reused */
    --*steps;
    if (h->pid == getpid() || d->io->fd_count(h->pid, &count) < 0)
        return false;
    bool known = h->seen && h->fd_count == count && count && !again;
    if (known && !h->next)
        return true;
    uint32_t most = (uint32_t)min_u64(*steps, LIST_MAX), left = most;
    struct rm_fds fds = {.next = h->next};
    int r = d->io->fds(h->pid, &fds, &left);
    *steps -= most - left;
    h->seen = r == 0 || r == -EAGAIN;
    /* An unfinished listing shows what the process has open, but not what it has not. */
    h->found |= (fds.nctl ? OPENS_CTL : 0) | (fds.ngpu ? OPENS_GPU : 0);
    h->next = fds.next;
    h->fd_count = count;
    if (r == 0 || !h->seen) {
        h->open = h->seen ? h->found : 0;
        h->found = 0;
    } else {
        h->open |= h->found;
    }
    return true;
}

/* Lists the processes that have one of these open. Only the descriptors of new processes, and of
 * those whose number of descriptors has changed, are listed. A call takes STEPS_MAX steps, and the
 * next one goes on. */
static int processes_from_proc(struct nv_driver *d, unsigned what, struct pid_list *out)
{
    _cleanup_free_ pid_t *pids = NULL;
    size_t n = 0, first = 0, looked = 0;
    int r = d->io->pids(&pids, &n);
    if (r < 0)
        return r;
    qsort(pids, n, sizeof(pids[0]), compare_int32);
    struct nv_user *v = calloc(n ? n : 1, sizeof(*v));
    if (!v)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct nv_user *known =
            d->nusers ? bsearch(&pids[i], d->users, d->nusers, sizeof(*v), compare_int32) : NULL;
        v[i] = known ? *known : (struct nv_user){.pid = pids[i]};
    }
    free(d->users);
    d->users = v;
    d->nusers = n;
    while (first < n && v[first].pid < d->next_pid)
        first++;
    for (uint32_t steps = STEPS_MAX; looked < n && steps; looked++) {
        struct nv_user *h = &v[(first + looked) % n];
        if (!user_look(d, h, &steps))
            *h = (struct nv_user){.pid = h->pid};
        d->rounds += h == &v[n - 1];
    }
    d->next_pid = looked < n ? v[(first + looked) % n].pid : 0;
    for (size_t i = 0; i < n && r == 0; i++)
        r = v[i].open & what ? pid_list_push(out, v[i].pid) : 0;
    return r;
}

/* 1: another process has one of these open. 0: none does. -EAGAIN: not all were looked at yet; or
 * another error. */
static int nv_in_use(struct nv_driver *d, unsigned what)
{
    _cleanup_(pid_list_free) struct pid_list users = {0};
    int r = processes_from_proc(d, what, &users);
    r = r < 0 ? r : users.n ? 1 : d->next_pid ? -EAGAIN : 0;
    return r;
}

/* Opens the driver again when a program has a GPU open. Earlier the library would wait, with the
 * program, until the GPU is initialised, which may take seconds. 0: no program has a GPU open. */
static int nv_back(struct nv_driver *d, struct error *err)
{
    int used = nv_in_use(d, OPENS_GPU);
    int r = used > 0 ? nv_take(d, err) : 0;
    if (used < 0 && used != -EAGAIN)
        r = error_set(err, used, "listing GPU processes: %s", strerror(-used));
    return r < 0 ? r : used > 0;
}

static int nvidia_processes(struct device_driver *base, struct pid_list *out, struct error *err)
{
    struct nv_driver *d = nv(base);
    const size_t before = out->n;
    int r = d->ctl_fd < 0 ? nv_back(d, err) : 1;
    if (r <= 0)
        return r;
    r = -ENOTSUP;
    nv_trace_stop(&d->trace, NV_TRACE_IDLE_NS);
    if (nvml_get(d)) {
        struct usage_list running = {0};
        r = nvml_processes(d->nvml, &d->gpus, false, &running);
        for (size_t i = 0; i < running.n && r == 0; i++)
            r = running.v[i].pid == getpid() ? 0 : pid_list_push(out, running.v[i].pid);
        usage_list_free(&running);
    }
    if (r == -ENOTSUP)
        r = processes_from_proc(d, OPENS_CTL, out);
    const uint64_t now = d->io->now_ns();
    if (r == 0 && out->n == before && now - d->used_ns >= LET_GO_NS &&
        nv_in_use(d, OPENS_CTL | OPENS_GPU) == 0)
        nv_let_go(d);
    else if (r < 0 || out->n > before || now - d->used_ns >= LET_GO_NS)
        d->used_ns = now;
    return r < 0 ? error_set(err, r, "listing GPU processes: %s", strerror(-r)) : 0;
}

/* Asks NVML for the lists that scans need. After an error the last lists stay. */
static int scans_prepare(struct nv_driver *d)
{
    struct pid_list *known = &d->scanner.mps;
    struct usage_list clients = {0}, running = {0};
    if (d->ctl_fd < 0)
        return 0;
    d->asked_ns = d->io->now_ns();
    int r = nvml_get(d) ? nvml_processes(d->nvml, &d->gpus, true, &clients) : -ENOTSUP;
    if (r == 0)
        known->n = 0;
    for (size_t i = 0; i < clients.n && r == 0; i++)
        r = nv_is_mps_server(clients.v[i].pid) ? 0 : pid_list_push(known, clients.v[i].pid);
    usage_list_free(&clients);
    if (d->gpus.ndivided && nvml_get(d) &&
        nvml_processes(d->nvml, &d->gpus, false, &running) == 0) {
        usage_list_free(&d->scanner.located);
        d->scanner.located = running;
    } else {
        usage_list_free(&running);
    }
    return r == -ENOTSUP ? 0 : r;
}

static int nvidia_clients(struct device_driver *base, struct pid_list *out, struct error *err)
{
    struct nv_driver *d = nv(base);
    int r = scans_prepare(d);
    for (size_t i = 0; i < d->scanner.mps.n && r == 0; i++)
        r = pid_list_push(out, d->scanner.mps.v[i]);
    return r < 0 ? error_set(err, r, "listing clients of MPS servers: %s", strerror(-r)) : 0;
}

/* Whether the process may have a context, found without opening the driver. */
static bool nv_uses_gpu(const struct nv_driver *d, pid_t pid)
{
    struct rm_fds fds = {.next = 0};
    uint32_t left = LIST_MAX;
    return d->ctl_fd >= 0 || d->io->fds(pid, &fds, &left) == -EAGAIN || fds.ngpu;
}

static int nvidia_scan(struct device_driver *base, struct proc_id proc, struct group_list *out,
                       struct error *err)
{
    struct nv_driver *d = nv(base);
    if (!nv_uses_gpu(d, proc.pid))
        return 0;
    int r = nv_take(d, err);
    if (r < 0)
        return r;
    if (d->asked_ns == 0 || d->io->now_ns() - d->asked_ns >= NSEC_PER_SEC)
        scans_prepare(d); /* clients() reports its errors */
    /* An MPS server shows groups of its clients, which are shared as well. The list of clients has
     * the server until NVML is asked again. */
    if (d->scanner.mps.n && nv_is_mps_server(proc.pid))
        pid_list_push(&d->scanner.mps, proc.pid);
    return nv_scan(&d->scanner, proc, out, err);
}

static void nvidia_forget(struct device_driver *base, pid_t pid)
{
    nv_forget(&nv(base)->scanner, pid);
}

/* ---- usage and memory ---- */

static int nvidia_memory_used(struct device_driver *base, struct usage_list *out, struct error *err)
{
    struct nv_driver *d = nv(base);
    if (d->ctl_fd < 0)
        return 0;
    if (!nvml_get(d))
        return error_set(err, -ENOTSUP, "GPU time and memory per process need libnvidia-ml.so.1");
    int r = nvml_processes(d->nvml, &d->gpus, false, out);
    for (size_t i = 0; i < out->n;) {
        if (out->v[i].gpu < d->gpus.n)
            i++;
        else
            out->v[i] = out->v[--out->n];
    }
    return r < 0 ? error_set(err, r, "asking NVML for GPU processes: %s", strerror(-r)) : 0;
}

static int nvidia_usage(struct device_driver *base, struct usage_list *out, struct error *err)
{
    struct nv_driver *d = nv(base);
    const int r = nvidia_memory_used(base, out, err);
    if (r == 0 && d->ctl_fd >= 0)
        nvml_busy(d->nvml, &d->gpus, out); /* without it the memory is still reported */
    return r;
}

static int nvidia_memory_free(struct device_driver *base, unsigned gpu, uint64_t *bytes,
                              struct error *err)
{
    struct nv_driver *d = nv(base);
    int r = nv_take(d, err);
    if (r < 0)
        return r;
    d->used_ns = d->io->now_ns();
    r = nvml_get(d) ? nvml_memory_free(d->nvml, &d->gpus, gpu, bytes) : -ENOTSUP;
    return r < 0 ? error_set(err, r, "how much GPU memory is free takes libnvidia-ml.so.1") : 0;
}

const struct device_ops device_nvidia = {
    .name = "nvidia",
    .summary = "NVIDIA GPUs, stock driver",
    .open = nvidia_open,
    .close = nvidia_close,
    .gpus = nvidia_gpus,
    .info = nvidia_info,
    .processes = nvidia_processes,
    .clients = nvidia_clients,
    .scan = nvidia_scan,
    .forget = nvidia_forget,
    .set_timeslice = nv_set_timeslice,
    .set_preempt = nv_set_preempt,
    .set_running = nv_set_running,
    .usage = nvidia_usage,
    .memory_used = nvidia_memory_used,
    .activity = nv_activity,
    .switches = nv_switches,
    .counters = nv_counters,
    .memory_free = nvidia_memory_free,
    .swap_shares = nv_swap_shares,
    .swap_step = nv_swap_step,
    .swap_state = nv_swap_state,
};
