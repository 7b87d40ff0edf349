/* The driver for devices whose work only the programs themselves can delay. Its processes are those
 * that report on a socket (base/gate_proto.h), and a closed gate suspends a program.
 *
 * A program whose connection ends (because it, or this driver, does) runs unscheduled. So nothing
 * has to be undone, and an instance that never listens, such as the restorer's, does nothing. The
 * driver listens from the first processes() on. What programs may do to each other through this
 * driver is bounded in programs.c, devices.c and wants.c. */
#include "gpu/gate/gate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/unasked_fds.h"

#define TIMESLICE_MAX_US 10000000

static struct gate_driver *gate(struct device_driver *d)
{
    return (struct gate_driver *)d;
}

static int gate_open(const char *where, struct device_driver **out, struct error *err)
{
    struct gate_driver *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "out of memory");
    d->base.ops = &device_gate;
    d->acceptor = (struct acceptor){.fd = -1, .spare = -1};
    d->now_ns = monotonic_ns;
    for (unsigned i = 0; i < GATE_PROGRAMS; i++)
        d->programs[i].fd = -1;
    if (where && (size_t)snprintf(d->path, sizeof(d->path), "%s", where) >= sizeof(d->path)) {
        device_close(&d->base);
        return error_set(err, -ENAMETOOLONG,
                         "cannot listen at %s: the path is longer than %zu bytes", where,
                         sizeof(d->path) - 1);
    }
    *out = &d->base;
    return 0;
}

void gate_leave_out(struct device_driver *base, const char *id)
{
    gate(base)->left_out = id;
}

static void gate_close(struct device_driver *base)
{
    struct gate_driver *d = gate(base);
    for (unsigned i = 0; i < d->end; i++) {
        if (d->programs[i].fd >= 0)
            gate_drop(d, &d->programs[i]);
    }
    gate_watch(base, NULL);
    acceptor_close(&d->acceptor);
    principals_free(&d->principals);
    if (d->acceptor.fd >= 0) {
        unlink(d->path);
        unasked_close_listener(d->acceptor.fd);
    }
    free(d);
}

static unsigned gate_gpus(struct device_driver *base)
{
    return GATE_GPUS;
}

static int gate_info(struct device_driver *base, unsigned gpu, struct gpu_info *out)
{
    if (gpu >= GATE_GPUS)
        return -EINVAL;
    *out = (struct gpu_info){
        .caps = GPU_CAP_TIMESLICE | GPU_CAP_SUSPEND | GPU_CAP_USAGE | GPU_CAP_GATE,
        .timeslice_min_us = 1,
        .timeslice_max_us = TIMESLICE_MAX_US,
    };
    snprintf(out->name, sizeof(out->name), "%s", gate(base)->gpus[gpu].name);
    snprintf(out->uuid, sizeof(out->uuid), "%.47s", gate(base)->gpus[gpu].id);
    return 0;
}

static int gate_processes(struct device_driver *base, struct pid_list *out, struct error *err)
{
    struct gate_driver *d = gate(base);
    int r = gate_listen(d, err);
    if (r < 0)
        return r;
    gate_poll(d); /* also with a watcher, which may have had no memory for a descriptor */
    uint64_t now = d->now_ns();
    for (unsigned i = 0; i < d->end && r == 0; i++) {
        struct gate_program *p = &d->programs[i];
        if (p->fd < 0 || !p->welcomed)
            continue;
        atomic_fetch_add(&p->control->beat, 1);
        for (unsigned k = 0; k < GATE_DEVICES; k++) {
            if (p->v[k].used && p->v[k].first_until && now > p->v[k].first_until) {
                p->v[k].first_until = 0; /* the scheduler has not decided: it is in no job */
                gate_set_state(p, k, 0);
            }
        }
        r = pid_list_push(out, p->proc.pid);
    }
    for (unsigned i = 0; i < GATE_REFUSED && r == 0; i++) {
        struct proc_id *p = &d->refused[i];
        if (p->pid && (!proc_alive(*p) || !gate_refused(d, *p)))
            *p = (struct proc_id){0};
        r = p->pid ? pid_list_push(out, p->pid) : 0;
    }
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

static int gate_scan(struct device_driver *base, struct proc_id proc, struct group_list *out,
                     struct error *err)
{
    struct gate_driver *d = gate(base);
    int r = 0;
    for (unsigned i = 0; i < d->end; i++) {
        struct gate_program *p = &d->programs[i];
        if (p->fd < 0 || !proc_same(p->proc, proc))
            continue;
        for (unsigned k = 0; k < GATE_DEVICES && r == 0; k++) {
            struct gate_entry *e = &p->v[k];
            e->reported = false; /* the caller may learn of the group only now */
            struct device_group g = {
                .key = e->key,
                .proc = proc,
                .gpu = e->gpu,
                .kind = GROUP_COMPUTE,
                .level = e->used && atomic_load(&p->slot->device[k].whole) ? LEVEL_GATE : e->level,
                .handles = {i, k},
                .source = -1,
                .nchannels = 1,
                .channels = {(uint32_t)e->key},
            };
            r = e->used ? group_list_push(out, &g) : 0;
        }
    }
    if (gate_refused(d, proc))
        return error_set(err, -EUSERS,
                         "it runs unscheduled: a user may have %d programs with a gate, and all "
                         "users together %u",
                         GATE_PROGRAMS_OF_USER, USERS_PART(GATE_PROGRAMS));
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

static void gate_forget(struct device_driver *base, pid_t pid)
{
}

/* The group's program, if it still uses the device. */
static struct gate_program *gate_program_of(struct gate_driver *d, const struct device_group *g)
{
    if (g->handles[0] >= d->end || g->handles[1] >= GATE_DEVICES)
        return NULL;
    struct gate_program *p = &d->programs[g->handles[0]];
    const struct gate_entry *e = &p->v[g->handles[1]];
    return p->fd >= 0 && e->used && e->key == g->key ? p : NULL;
}

static int gate_gone(const struct gate_driver *d, const struct device_group *g, struct error *err)
{
    if (d->acceptor.fd < 0)
        return 0; /* controls of an earlier instance ended with it */
    return error_set(err, -ENOENT, "process %d does not hold its work for cede any more",
                     g->proc.pid);
}

static void gate_set(struct gate_driver *d, struct gate_program *p, unsigned k, uint32_t limit_us,
                     bool closed)
{
    uint32_t was = atomic_load(&p->control->device[k].state);
    if (!(was & GATE_ACTIVE) || p->v[k].first_until)
        p->v[k].reported = false; /* only now its wants count */
    p->v[k].first_until = 0;
    gate_entry_update(d, p, k);
    atomic_store(&p->control->device[k].limit_us, limit_us);
    gate_set_state(p, k, closed ? GATE_ACTIVE | GATE_CLOSED : limit_us ? GATE_ACTIVE : 0);
    gate_entry_update(d, p, k);
}

static int gate_set_timeslice(struct device_driver *base, const struct device_group *g, uint64_t us,
                              struct error *err)
{
    struct gate_program *p = gate_program_of(gate(base), g);
    if (!p)
        return gate_gone(gate(base), g, err);
    unsigned k = g->handles[1];
    gate_set(gate(base), p, k, (uint32_t)min_u64(us, TIMESLICE_MAX_US),
             atomic_load(&p->control->device[k].state) & GATE_CLOSED);
    return 0;
}

static int gate_set_running(struct device_driver *base, const struct device_group *const *g,
                            size_t n, bool on, struct error *err)
{
    int first = 0;
    for (size_t i = 0; i < n; i++) {
        struct gate_program *p = gate_program_of(gate(base), g[i]);
        unsigned k = g[i]->handles[1];
        int r = p ? 0 : gate_gone(gate(base), g[i], first ? NULL : err);
        if (p)
            gate_set(gate(base), p, k, atomic_load(&p->control->device[k].limit_us), !on);
        first = first ? first : r;
    }
    return first;
}

static int gate_usage(struct device_driver *base, struct usage_list *out, struct error *err)
{
    struct gate_driver *d = gate(base);
    uint64_t now = d->now_ns(), window = d->usage_ns ? now - d->usage_ns : 0;
    int r = 0;
    d->usage_ns = now;
    for_each (p, d->programs, d->end) {
        for (unsigned k = 0; k < GATE_DEVICES && p->fd >= 0 && r == 0; k++) {
            struct gate_entry *e = &p->v[k];
            if (!e->used)
                continue;
            uint64_t busy = atomic_load(&p->slot->device[k].busy_ns);
            struct gpu_usage u = {.pid = p->proc.pid, .gpu = e->gpu, .busy = -1};
            /* The program counts its work only while the gate is active. */
            if (window && atomic_load(&p->control->device[k].state))
                u.busy = (double)min_u64(busy - e->busy_ns, window) / (double)window;
            e->busy_ns = busy;
            r = usage_list_push(out, &u);
        }
    }
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

static int gate_demand(struct device_driver *base, struct demand_list *out, struct error *err)
{
    struct gate_driver *d = gate(base);
    int r = 0;
    if (d->watcher.add)
        gate_unmute(d);
    else
        gate_poll(d);
    gate_wants_update(d);
    for_each (p, d->programs, d->end) {
        for (unsigned k = 0; k < GATE_DEVICES && p->fd >= 0 && r == 0; k++) {
            struct gate_entry *e = &p->v[k];
            if (!e->used)
                continue;
            bool wants = gate_believed(d, p, k);
            if (e->reported && e->wants == wants)
                continue;
            e->reported = true;
            e->wants = wants;
            struct gpu_demand x = {p->proc.pid, e->gpu, wants};
            r = demand_list_push(out, &x);
        }
    }
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

const struct device_ops device_gate = {
    .name = "gate",
    .summary = "programs that hold their own work back (OpenCL, HIP)",
    .open = gate_open,
    .close = gate_close,
    .gpus = gate_gpus,
    .info = gate_info,
    .processes = gate_processes,
    .scan = gate_scan,
    .forget = gate_forget,
    .set_timeslice = gate_set_timeslice,
    .set_running = gate_set_running,
    .usage = gate_usage,
    .demand = gate_demand,
    .watch = gate_watch,
    .ready = gate_ready,
    .due_ns = gate_due_ns,
};
