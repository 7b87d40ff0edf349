/* See trace.h. The kernel may write to the buffer at any time, so every number in it is checked
 * before it is used, and an invalid record counts as lost. */
#include "gpu/nvidia/nvidia.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define HEADER_BYTES  4096U
#define DEVICES_TRIED 32U
#define USERS_MAX     4096U

/* ---- what the records mean ---- */

static struct gpu_activity *user(struct nv_engine *e, uint32_t pid)
{
    struct activity_list *l = &e->had;
    const struct gpu_activity fresh = {.pid = (int32_t)pid};
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].pid == fresh.pid)
            return &l->v[i];
    }
    return l->n == USERS_MAX || activity_list_push(l, &fresh) < 0 ? NULL : &l->v[l->n - 1];
}

static int engine_charge(struct nv_engine *e, uint64_t ns)
{
    struct gpu_activity *u = e->resident ? user(e, e->resident) : NULL;
    if (u)
        u->busy_ns += ns;
    return u || !e->resident ? 0 : -ENOMEM;
}

/* Ends the burst of the engine's owner. */
static int engine_leave(struct nv_engine *e, uint64_t ns)
{
    uint64_t had = ns > e->since_ns ? ns - e->since_ns : 0;
    int r = engine_charge(e, had > e->told_ns ? had - e->told_ns : 0);
    e->resident = 0;
    return r;
}

static void lose(struct nv_engine *e)
{
    e->losses++;
    e->incomplete = true;
    e->known = false;
    e->resident = 0;
}

int nv_engine_take(struct nv_engine *e, const struct rm_switch_record *r)
{
    if (r->type != RM_RECORD_SWITCH) {
        lose(e);
        return 0;
    }
    if (e->started && r->seqno != e->next_seqno)
        lose(e);
    e->started = true;
    e->next_seqno = (uint16_t)(r->seqno + 1);
    /* A record without a pid, of another user or the kernel, ends the owner's burst too. */
    bool named = r->pid && r->pid <= INT32_MAX;
    if (r->tag != RM_SWITCH_START && r->tag != RM_SWITCH_END)
        return 0;
    e->incomplete |= !e->known;
    e->known = true;
    if (r->tag == RM_SWITCH_END)
        return e->resident == r->pid ? engine_leave(e, r->ns) : 0;
    int status = engine_leave(e, r->ns); /* there was no record of the last burst's end */
    if (!named)
        return status;
    struct gpu_activity *u = user(e, r->pid);
    if (!u)
        return -ENOMEM;
    u->bursts++;
    e->resident = r->pid;
    e->since_ns = r->ns;
    e->told_ns = 0;
    return status;
}

int nv_engine_quiet(struct nv_engine *e, uint64_t ns)
{
    e->told_ns += ns;
    return engine_charge(e, ns);
}

int nv_engine_report(struct nv_engine *e, unsigned gpu, struct activity_list *out)
{
    int r = 0;
    for (size_t i = 0; i < e->had.n && r == 0; i++) {
        e->had.v[i].gpu = gpu;
        r = activity_list_push(out, &e->had.v[i]);
    }
    if (e->incomplete || !e->known)
        out->incomplete |= 1U << gpu;
    e->had.n = 0;
    e->incomplete = false;
    return r;
}

void nv_engine_free(struct nv_engine *e)
{
    activity_list_free(&e->had);
    *e = (struct nv_engine){0};
}

/* ---- the buffer ---- */

enum { DEVICE = 0xCEDE0001, SUBDEVICE, HEADER, RECORDS, BUFFER }; /* handles in our client */

static int alloc(const struct nv_trace *t, struct nv_trace_gpu *g, uint32_t parent, uint32_t object,
                 uint32_t class, void *params, uint32_t size, struct error *err)
{
    return rm_alloc(t->io, t->ctl_fd, &g->client, parent, object, class, params, size, err);
}

static int trace_control(const struct nv_trace *t, const struct nv_trace_gpu *g, uint32_t object,
                         enum rm_control_id id, void *params, struct error *err)
{
    return rm_control(t->io, t->ctl_fd, g->client, object, id, params, err);
}

/* The order of device instances is not known, so the device is found by its UUID. */
static int trace_find_device(const struct nv_trace *t, struct nv_trace_gpu *g, const char *uuid,
                             struct error *err)
{
    for (uint32_t i = 0; i < DEVICES_TRIED; i++) {
        struct rm_device_params p = {.instance = i};
        uint32_t sub = 0;
        struct rm_gid_info gid = {0};
        if (alloc(t, g, g->client, DEVICE, RM_CLASS_DEVICE, &p, sizeof(p), NULL) < 0)
            continue;
        if (alloc(t, g, DEVICE, SUBDEVICE, RM_CLASS_SUBDEVICE, &sub, sizeof(sub), NULL) == 0 &&
            trace_control(t, g, SUBDEVICE, RM_GPU_UUID, &gid, NULL) == 0 &&
            strncasecmp((const char *)gid.data, uuid, sizeof(gid.data)) == 0)
            return 0;
        rm_free(t->io, t->ctl_fd, g->client, DEVICE);
    }
    return error_set(err, -ENODEV, "the driver has no device with the UUID \"%s\"", uuid);
}

/* Allocates and maps memory that user space can only read: the driver accepts no other. */
static int memory(const struct nv_trace *t, struct nv_trace_gpu *g, uint32_t object, size_t size,
                  const void **out, struct error *err)
{
    const struct rm_io *io = t->io;
    struct rm_memory_params p = {
        .attr = RM_MEMORY_CACHED, .attr2 = RM_MEMORY_USER_READ_ONLY, .size = size};
    int r = alloc(t, g, g->client, object, RM_CLASS_MEMORY_DEVICELESS, &p, sizeof(p), err);
    if (r < 0)
        return r;
    int fd = io->open_ctl();
    if (fd < 0)
        return error_set(err, fd, "opening " RM_CTL_PATH ": %s", strerror(-fd));
    struct rm_ioctl_map m = {
        .client = g->client,
        .device = g->client,
        .memory = object,
        .length = size,
        .status = UINT32_MAX,
        .flags = RM_MAP_READ_ONLY,
        .fd = fd,
    };
    r = io->ioctl(t->ctl_fd, RM_IOCTL_MAP, &m);
    if (r == 0)
        r = m.status ? -EIO : io->map(fd, size, out);
    io->close(fd);
    return r < 0 ? error_set(err, r, "mapping the trace's memory: %s (status 0x%x)", strerror(-r),
                             m.status)
                 : 0;
}

#define RECORD_BYTES (NV_TRACE_RECORDS * sizeof(struct rm_switch_record))

static int trace_start(const struct nv_trace *t, struct nv_trace_gpu *g, const struct gpu_info *gpu,
                       struct error *err)
{
    const struct rm_io *io = t->io;
    /* The GPU is kept open, because the driver shuts down a GPU that no process has open. */
    g->gpu_fd = io->open_gpu(gpu->bus_id);
    if (g->gpu_fd < 0)
        return error_set(err, g->gpu_fd, "opening the device file of GPU %s: %s", gpu->bus_id,
                         strerror(-g->gpu_fd));
    const void *header = NULL, *records = NULL;
    int r = alloc(t, g, 0, 0, RM_CLASS_ROOT, NULL, 0, err);
    if (r == 0)
        r = trace_find_device(t, g, gpu->uuid, err);
    if (r == 0 && (r = memory(t, g, HEADER, HEADER_BYTES, &header, err)) == 0)
        g->header = header;
    if (r == 0 && (r = memory(t, g, RECORDS, RECORD_BYTES, &records, err)) == 0)
        g->records = records;
    struct rm_event_buffer_params b = {
        .record_size = sizeof(struct rm_switch_record),
        .record_count = NV_TRACE_RECORDS,
        .subdevice = SUBDEVICE,
        .header_memory = HEADER,
        .record_memory = RECORDS,
    };
    if (r == 0)
        r = alloc(t, g, g->client, BUFFER, RM_CLASS_EVENT_BUFFER, &b, sizeof(b), err);
    struct rm_bind_switches bind = {
        .buffer = BUFFER,
        .record_size = sizeof(struct rm_switch_record) - offsetof(struct rm_switch_record, tag),
        .all_users = 1,
    };
    if (r == 0)
        r = trace_control(t, g, SUBDEVICE, RM_BIND_SWITCHES, &bind, err);
    struct rm_enable_events enable = {.enable = 1, .flags = RM_EVENTS_KEEP_OLDEST};
    if (r == 0)
        r = trace_control(t, g, BUFFER, RM_ENABLE_EVENTS, &enable, err);
    g->read_ns = g->asked_ns = g->asked_activity_ns = io->now_ns();
    return r;
}

static void trace_stop(const struct nv_trace *t, struct nv_trace_gpu *g)
{
    const struct rm_io *io = t->io;
    if (g->records)
        io->unmap((const void *)(uintptr_t)g->records, RECORD_BYTES);
    if (g->header)
        io->unmap((const void *)(uintptr_t)g->header, HEADER_BYTES);
    if (g->client)
        rm_free(io, t->ctl_fd, g->client, g->client);
    if (g->gpu_fd >= 0)
        io->close(g->gpu_fd);
    nv_engine_free(&g->engine);
    *g = (struct nv_trace_gpu){.retry_at = io->now_ns() + NV_TRACE_RETRY_NS};
}

/* Starts this GPU's trace if it is not running; after a failure, not before retry_at. */
static int trace_start_once(struct nv_trace *t, const struct gpu_info *info, unsigned gpu,
                            struct error *err)
{
    struct nv_trace_gpu *g = &t->gpu[gpu];
    if (g->client)
        return 0;
    if (t->io->now_ns() < g->retry_at)
        return error_set(err, -EAGAIN, "tracing GPU %u failed and is tried again later", gpu);
    int r = trace_start(t, g, info, err);
    if (r < 0)
        trace_stop(t, g);
    return r;
}

/* ---- switches ---- */

/* The number to add to a time of the GPU. */
static int64_t clock_offset_ns(const struct nv_clock *c)
{
    int64_t late = (int64_t)((uint64_t)c->arrived_ns - (uint64_t)c->read_ns);
    bool fits = c->call_ns && late >= -(int64_t)c->call_ns && late < (int64_t)NV_CLOCK_ARRIVES_NS;
    return fits ? c->read_ns : c->arrived_ns;
}

static int switch_keep(struct nv_trace *t, struct nv_trace_gpu *g, uint64_t ns, int32_t pid)
{
    if (pid == g->switched_pid)
        return 0;
    struct gpu_switch s = {max_u64(ns, g->switched_ns), pid, (uint32_t)(g - t->gpu)};
    g->switched_ns = s.ns;
    g->switched_pid = pid;
    return switch_list_push(&t->switches, &s);
}

/* Keeps the switch of a record that the engine has taken. */
static int switch_take(struct nv_trace *t, struct nv_trace_gpu *g, const struct rm_switch_record *r)
{
    int32_t pid = g->engine.resident                           ? (int32_t)g->engine.resident
                  : g->engine.known && r->tag == RM_SWITCH_END ? GPU_NOBODY
                                                               : GPU_UNKNOWN;
    if (!t->keeps_switches)
        return 0;
    uint64_t ns =
        r->type == RM_RECORD_SWITCH ? r->ns + (uint64_t)clock_offset_ns(&g->clock) : g->switched_ns;
    if (t->switches.n >= NV_SWITCHES_MAX) { /* the reader is seconds late, and all are lost */
        t->switches.n = 0;
        for (unsigned i = 0; i < DEVICE_GPUS_MAX; i++)
            t->gpu[i].switched_pid = GPU_UNKNOWN - 1;
        return switch_keep(t, g, ns, GPU_UNKNOWN);
    }
    int lost = g->losses != g->engine.losses ? switch_keep(t, g, 0, GPU_UNKNOWN) : 0;
    g->losses = g->engine.losses;
    return lost < 0 ? lost : switch_keep(t, g, ns, pid);
}

/* The shortest of three calls counts, because longer ones were interrupted at an unknown time. */
static void clock_read(const struct nv_trace *t, struct nv_trace_gpu *g)
{
    struct nv_clock *c = &g->clock;
    uint64_t begin = t->io->now_ns();
    if (c->asked_ns && begin < c->asked_ns + NV_CLOCK_EACH_NS)
        return;
    c->asked_ns = begin;
    c->call_ns = 0;
    for (int i = 0; i < 3; i++) {
        struct rm_gpu_time gpu = {0};
        if (trace_control(t, g, SUBDEVICE, RM_GPU_TIME, &gpu, NULL) < 0 || !gpu.ns)
            return;
        uint64_t end = t->io->now_ns(), took = max_u64(end - begin, 1);
        if (!c->call_ns || took < c->call_ns) {
            c->call_ns = took;
            c->read_ns = (int64_t)(begin + took / 2 - gpu.ns);
        }
        begin = end;
    }
}

static void clock_arrival(struct nv_trace_gpu *g, uint32_t put, uint64_t now)
{
    const volatile struct rm_switch_record *last =
        &g->records[(put + NV_TRACE_RECORDS - 1) % NV_TRACE_RECORDS];
    int64_t offset = (int64_t)(now - last->ns);
    if (last->type != RM_RECORD_SWITCH || (g->clock.arrived && offset >= g->clock.arrived_ns))
        return;
    g->clock.arrived = true;
    g->clock.arrived_ns = offset;
}

/* 0; -EIO: the driver no longer knows the buffer (the GPU was reset); -ENOMEM. */
static int take_new(struct nv_trace *t, struct nv_trace_gpu *g)
{
    uint32_t put = __atomic_load_n(&g->header->put, __ATOMIC_ACQUIRE);
    uint64_t now = t->io->now_ns();
    int r = 0;
    if (put >= NV_TRACE_RECORDS)
        return -EIO;
    if (put == g->get) {
        /* Switches of the last ACTIVITY_LAG_NS may not have arrived yet. */
        if (now > g->read_ns + ACTIVITY_LAG_NS) {
            r = nv_engine_quiet(&g->engine, now - ACTIVITY_LAG_NS - g->read_ns);
            g->read_ns = now - ACTIVITY_LAG_NS;
        }
        return r;
    }
    clock_arrival(g, put, now);
    if (t->keeps_switches)
        clock_read(t, g);
    for (; g->get != put && r == 0; g->get = (g->get + 1) % NV_TRACE_RECORDS) {
        struct rm_switch_record record;
        memcpy(&record, (const void *)(uintptr_t)&g->records[g->get], sizeof(record));
        r = nv_engine_take(&g->engine, &record);
        r = r == 0 ? switch_take(t, g, &record) : r;
    }
    g->read_ns = now;
    struct rm_update_get update = {.records = put};
    if (r == 0)
        r = trace_control(t, g, BUFFER, RM_UPDATE_GET, &update, NULL);
    return r;
}

static int trace_take(struct nv_trace *t, struct nv_trace_gpu *g)
{
    int r = g->client ? take_new(t, g) : 0;
    if (r < 0 && t->keeps_switches)
        (void)switch_keep(t, g, 0, GPU_UNKNOWN);
    if (r < 0)
        trace_stop(t, g);
    g->asked_ns = g->read_ns;
    return r;
}

void nv_trace_stop(struct nv_trace *t, uint64_t idle_ns)
{
    uint64_t now = t->io->now_ns();
    for_each (g, t->gpu, DEVICE_GPUS_MAX) {
        if (!g->client || now < g->asked_ns + idle_ns)
            continue;
        trace_stop(t, g);
        g->retry_at = 0;
    }
}

/* ---- device_ops.activity and switches ---- */

/* Starts the traces of GPUs on which groups were found; the others may be switched off. It fails
 * only if no GPU can be traced; those that cannot have gaps in the record. So have instances, which
 * the driver traces for profilers that subscribe to them; cede has never tried that. */
static int traces_start(struct nv_driver *d, struct error *err)
{
    int result = 0;
    bool any = false, used[DEVICE_GPUS_MAX] = {false};
    if (!d->io->same_pids())
        return error_set(err, -ENOTSUP,
                         "the driver's trace of context switches has the process numbers of the "
                         "first pid namespace, and this is another");
    for_each (p, d->scanner.procs, d->scanner.nprocs) {
        for (size_t k = 0; k < p->nclients; k++) {
            for (size_t g = 0; g < p->clients[k].groups.n; g++)
                used[p->clients[k].groups.v[g].gpu % DEVICE_GPUS_MAX] = true;
        }
    }
    for (unsigned i = 0; i < d->gpus.n; i++) {
        int r = used[i] && !d->gpus.part[i].gpu[0]
                    ? trace_start_once(&d->trace, &d->gpus.v[i], i, result ? NULL : err)
                    : 0;
        result = result < 0 ? result : r;
        any |= used[i] && r == 0;
    }
    return any ? 0 : result;
}

/* started: the result of traces_start(), after which running traces were read anyway. */
static int traces_answer(int started, int read, struct error *err)
{
    return read < 0 ? error_set(err, read, "reading the driver's trace of context switches: %s",
                                strerror(-read))
                    : started;
}

int nv_activity(struct device_driver *base, struct activity_list *out, struct error *err)
{
    struct nv_driver *d = (struct nv_driver *)(void *)base;
    struct nv_trace *t = &d->trace;
    int started = traces_start(d, err), result = 0;
    if (started == -ENOTSUP)
        return started;
    for (unsigned i = 0; i < DEVICE_GPUS_MAX; i++) {
        struct nv_trace_gpu *g = &t->gpu[i];
        int r = trace_take(t, g);
        /* switches() has read the trace meanwhile, and the activity is too old. */
        if (g->client && g->read_ns > g->asked_activity_ns + NV_TRACE_IDLE_NS) {
            g->engine.had.n = 0;
            g->engine.incomplete = true;
        }
        g->asked_activity_ns = g->read_ns;
        if (r == 0)
            r = nv_engine_report(&g->engine, i, out);
        if (!g->client)
            out->incomplete |= 1U << i;
        result = result < 0 ? result : r;
    }
    return traces_answer(started, result, err);
}

/* Ends the traces that activity() does not need. */
static void switches_end(struct nv_trace *t)
{
    uint64_t now = t->io->now_ns();
    t->keeps_switches = false;
    switch_list_free(&t->switches);
    for_each (g, t->gpu, DEVICE_GPUS_MAX) {
        if (g->client && now > g->asked_activity_ns + NV_TRACE_IDLE_NS) {
            trace_stop(t, g);
            g->retry_at = 0;
        }
    }
}

int nv_switches(struct device_driver *base, struct switch_list *out, struct error *err)
{
    struct nv_driver *d = (struct nv_driver *)(void *)base;
    struct nv_trace *t = &d->trace;
    if (!out) {
        switches_end(t);
        return 0;
    }
    int started = traces_start(d, err), result = 0;
    if (started == -ENOTSUP)
        return started;
    t->keeps_switches = true;
    for (unsigned i = 0; i < DEVICE_GPUS_MAX; i++) {
        int r = trace_take(t, &t->gpu[i]);
        result = result < 0 ? result : r;
    }
    for (size_t i = 0; i < t->switches.n && result == 0; i++)
        result = switch_list_push(out, &t->switches.v[i]);
    t->switches.n = 0;
    return traces_answer(started, result, err);
}
