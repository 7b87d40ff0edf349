/* The driver for devices that only the programs themselves can hold work back from: what they say
 * on a socket (lib/gate_proto.h) are its processes, and closing a program's gate suspends it.
 *
 * The programs are not trusted: a program is what SO_PEERCRED says, its messages change nothing but
 * its own entry, their number is bounded for each user, and nothing waits for them. A program whose
 * connection ends (because it, or this driver, does) runs as if nobody scheduled it: so nothing has
 * to be undone, and an instance that never listens (the restorer's) undoes by doing nothing.
 *
 * Listens from the first processes() on. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "device/gate/driver.h"
#include "lib/gate_proto.h"
#include "lib/share.h"

#define DEVICES          4 /* kinds of them at once: more share the last */
#define PROGRAMS         512
#define PROGRAMS_OF_USER 128
#define MESSAGES_AT_ONCE 64 /* of one program, before the others are heard */
/* All programs of a user are heard so often in so long; then not until it is over. What they want
 * is in their pages, and looked at whenever anybody is heard. */
#define HEARD_MAX        128
#define HEARD_NS         (10 * NSEC_PER_MSEC)
#define ACCEPTS_AT_ONCE  64
#define TIMESLICE_MAX_US 10000000
/* A program that has just come may queue so much until it is decided about. */
#define FIRST_LIMIT_US 10000
#define FIRST_NS       NSEC_PER_SEC

struct entry {
    bool used, wants, told; /* told: wants was handed out by demand() */
    uint32_t gpu, level;
    uint64_t key;
    uint64_t first_until; /* 0: it was decided about */
    uint64_t busy_ns;     /* at the last usage() */
};

struct program {
    int fd; /* -1: free */
    bool welcomed, unheard;
    unsigned heard; /* messages since heard_ns */
    struct proc_id proc;
    uid_t uid;
    struct gate_control *control;
    struct gate_slot *slot;
    struct entry v[GATE_DEVICES];
};

struct gate_driver {
    struct device_driver base;
    char path[108];
    int listen_fd;
    struct device_watcher watcher; /* .add NULL: none */
    bool any_unheard;
    uint64_t next_key, usage_ns, heard_ns;
    struct gate_name {
        char name[64], id[64];
    } devices[DEVICES];
    struct program programs[PROGRAMS];
    unsigned end; /* slots below may be in use */
};

static struct gate_driver *gate(struct device_driver *d)
{
    return (struct gate_driver *)d;
}

/* ---- what a program is told ------------------------------------------------------------------ */

/* The word that submissions look at, and whoever waits for a device. */
static void tell(struct program *p, unsigned i, uint32_t state)
{
    uint32_t any = 0;
    atomic_store(&p->control->device[i].state, state);
    for (unsigned k = 0; k < GATE_DEVICES; k++)
        any |= atomic_load(&p->control->device[k].state);
    atomic_store(&p->control->any, any);
    if (!(state & GATE_CLOSED))
        syscall(SYS_futex, &p->control->device[i].state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void beat(struct program *p)
{
    atomic_fetch_add(&p->control->beat, 1);
}

static int welcome(struct program *p)
{
    _cleanup_close_ int control_fd = -1, slot_fd = -1;
    p->control = shared_page("cede-gate-control", GATE_PAGE, true, &control_fd);
    p->slot = shared_page("cede-gate-slot", GATE_PAGE, false, &slot_fd);
    if (!p->control || !p->slot)
        return -ENOMEM;
    struct gate_msg m = {.type = GATE_WELCOME, .magic = GATE_MAGIC, .version = GATE_VERSION};
    p->welcomed = true;
    return send_with_fds(p->fd, &m, sizeof(m), (int[]){control_fd, slot_fd}, 2);
}

/* ---- what a program says --------------------------------------------------------------------- */

static void gate_watch_fd(const struct gate_driver *d, int fd)
{
    if (d->watcher.add)
        d->watcher.add(d->watcher.arg, fd);
}

static void gate_unwatch_fd(const struct gate_driver *d, int fd)
{
    if (d->watcher.remove)
        d->watcher.remove(d->watcher.arg, fd);
}

static void dismiss(const struct gate_driver *d, struct program *p)
{
    if (!p->unheard)
        gate_unwatch_fd(d, p->fd);
    close(p->fd); /* it sees that, and goes on by itself */
    if (p->control)
        munmap(p->control, GATE_PAGE);
    if (p->slot)
        munmap(p->slot, GATE_PAGE);
    memset(p, 0, sizeof(*p));
    p->fd = -1;
}

/* Letters for people, whatever was sent. */
static void take_text(char out[static 64], const char in[static 64])
{
    unsigned n = 0;
    for (; n < 63 && in[n]; n++)
        out[n] = in[n] >= ' ' && in[n] <= '~' ? in[n] : '?';
    out[n] = '\0';
}

/* An unknown device gets a place, also one that nobody uses any more. */
static uint32_t device_of(struct gate_driver *d, const struct gate_msg *m)
{
    struct gate_name n;
    uint32_t spare = DEVICES;
    take_text(n.name, m->name);
    take_text(n.id, m->id);
    for (uint32_t i = 0; i < DEVICES; i++) {
        bool used = false;
        if (d->devices[i].name[0] && strcmp(d->devices[i].name, n.name) == 0 &&
            strcmp(d->devices[i].id, n.id) == 0)
            return i;
        for (unsigned p = 0; p < d->end; p++) {
            for (unsigned k = 0; k < GATE_DEVICES && d->programs[p].fd >= 0; k++)
                used |= d->programs[p].v[k].used && d->programs[p].v[k].gpu == i;
        }
        spare = spare == DEVICES && !used ? i : spare;
    }
    if (spare == DEVICES)
        return DEVICES - 1;
    d->devices[spare] = n;
    return spare;
}

static int hear_device(struct gate_driver *d, struct program *p, const struct gate_msg *m)
{
    if (m->device >= GATE_DEVICES || p->v[m->device].used || !m->name[0])
        return -EPROTO;
    p->v[m->device] = (struct entry){
        .used = true,
        .gpu = device_of(d, m),
        .level = m->level == LEVEL_SLICE ? LEVEL_SLICE : LEVEL_GATE,
        .key = ++d->next_key,
        .first_until = monotonic_ns() + FIRST_NS,
    };
    atomic_store(&p->control->device[m->device].limit_us, FIRST_LIMIT_US);
    tell(p, m->device, GATE_ACTIVE);
    return 0;
}

static bool said_too_much(const struct gate_driver *d, uid_t uid)
{
    unsigned n = 0;
    for (unsigned i = 0; i < d->end; i++)
        n += d->programs[i].fd >= 0 && d->programs[i].uid == uid ? d->programs[i].heard : 0;
    return n > HEARD_MAX;
}

/* Not before all are heard again. */
static void hear_later(struct gate_driver *d, struct program *p)
{
    gate_unwatch_fd(d, p->fd);
    p->unheard = d->any_unheard = true;
}

static void hear_all_again(struct gate_driver *d)
{
    uint64_t now = monotonic_ns();
    if (now - d->heard_ns < HEARD_NS)
        return;
    d->heard_ns = now;
    d->any_unheard = false;
    for (unsigned i = 0; i < d->end; i++) {
        struct program *p = &d->programs[i];
        if (p->fd >= 0 && p->unheard)
            gate_watch_fd(d, p->fd);
        p->heard = 0;
        p->unheard = false;
    }
}

static int hear(struct gate_driver *d, struct program *p)
{
    struct gate_msg m;
    for (unsigned i = 0; i < MESSAGES_AT_ONCE; i++) {
        ssize_t n = recv(p->fd, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        p->heard++;
        if (n != (ssize_t)sizeof(m) && (n < 8 || m.type != GATE_DEMAND))
            return -EPROTO; /* also its end: 0 bytes */
        bool first = m.type == GATE_HELLO;
        if (first == p->welcomed)
            return -EPROTO;
        int r = 0;
        if (first)
            r = m.magic == GATE_MAGIC && m.version == GATE_VERSION ? welcome(p) : -EPROTO;
        else if (m.type == GATE_DEVICE)
            r = hear_device(d, p, &m);
        else if (m.type != GATE_DEMAND)
            r = -EPROTO;
        if (r < 0)
            return r;
    }
    return 0; /* level-triggered: the rest later */
}

static void accept_one(struct gate_driver *d, int fd)
{
    struct ucred c;
    socklen_t size = sizeof(c);
    struct proc_stat st;
    unsigned slot = 0, theirs = 0;
    uid_t owner;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &size) < 0 || proc_stat_read(c.pid, &st) < 0 ||
        proc_owner(c.pid, &owner) < 0 ||
        (c.uid != 0 && owner != c.uid)) /* its pid is another's now */
        return;
    for (unsigned i = 0; i < d->end; i++)
        theirs += d->programs[i].fd >= 0 && d->programs[i].uid == c.uid;
    while (slot < d->end && d->programs[slot].fd >= 0)
        slot++;
    if (slot == PROGRAMS || theirs >= PROGRAMS_OF_USER)
        return;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0)
        return;
    d->programs[slot] = (struct program){.fd = own, .proc = st.id, .uid = c.uid};
    d->end = slot >= d->end ? slot + 1 : d->end;
    gate_watch_fd(d, own);
}

static void accept_some(struct gate_driver *d)
{
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        _cleanup_close_ int fd = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            break;
        accept_one(d, fd);
    }
}

static void listen_now(struct gate_driver *d, struct error *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", d->path);
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(d->path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || chmod(d->path, 0666) < 0 ||
        listen(fd, 64) < 0) {
        error_set(err, -errno, "cannot listen at %s: %s", d->path, strerror(errno));
        return;
    }
    d->listen_fd = TAKE_FD(fd);
    gate_watch_fd(d, d->listen_fd);
}

static void gate_hear(struct gate_driver *d, struct program *p)
{
    if (hear(d, p) < 0)
        dismiss(d, p);
    else if (said_too_much(d, p->uid))
        hear_later(d, p);
}

/* What a loop would have reported as readable. */
static void gate_poll(struct gate_driver *d)
{
    struct pollfd v[PROGRAMS + 1] = {{.fd = d->listen_fd, .events = POLLIN}};
    unsigned end = d->end;
    hear_all_again(d);
    for (unsigned i = 0; i < end; i++)
        v[i + 1] = (struct pollfd){.fd = d->programs[i].unheard ? -1 : d->programs[i].fd,
                                   .events = POLLIN};
    if (poll(v, end + 1, 0) <= 0)
        return;
    for (unsigned i = 0; i < end; i++) {
        if (v[i + 1].revents && d->programs[i].fd == v[i + 1].fd)
            gate_hear(d, &d->programs[i]);
    }
    if (v[0].revents)
        accept_some(d);
}

/* ---- device_ops ------------------------------------------------------------------------------ */

static int gate_open(const char *where, struct device_driver **out, struct error *err)
{
    struct gate_driver *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "out of memory");
    d->base.ops = &device_gate;
    d->listen_fd = -1;
    for (unsigned i = 0; i < PROGRAMS; i++)
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

static void gate_close(struct device_driver *base)
{
    struct gate_driver *d = gate(base);
    for (unsigned i = 0; i < d->end; i++) {
        if (d->programs[i].fd >= 0)
            dismiss(d, &d->programs[i]);
    }
    if (d->listen_fd >= 0) {
        gate_unwatch_fd(d, d->listen_fd);
        unlink(d->path);
        close(d->listen_fd);
    }
    free(d);
}

static unsigned gate_gpus(struct device_driver *base)
{
    return DEVICES;
}

static int gate_info(struct device_driver *base, unsigned gpu, struct gpu_info *out)
{
    if (gpu >= DEVICES)
        return -EINVAL;
    *out = (struct gpu_info){
        .caps =
            GPU_CAP_TIMESLICE | GPU_CAP_SUSPEND | GPU_CAP_USAGE | GPU_CAP_GATE | GPU_CAP_FLEETING,
        .timeslice_min_us = 1,
        .timeslice_max_us = TIMESLICE_MAX_US,
    };
    snprintf(out->name, sizeof(out->name), "%s", gate(base)->devices[gpu].name);
    snprintf(out->uuid, sizeof(out->uuid), "%.47s", gate(base)->devices[gpu].id);
    return 0;
}

static int gate_processes(struct device_driver *base, struct pid_list *out, struct error *err)
{
    struct gate_driver *d = gate(base);
    struct error e = {""};
    if (d->listen_fd < 0 && d->path[0])
        listen_now(d, &e);
    if (d->listen_fd < 0)
        return error_set(err, -EIO, "%s", e.text);
    gate_poll(d); /* also beside a watcher, which may have had no memory for one of them */
    uint64_t now = monotonic_ns();
    int r = 0;
    for (unsigned i = 0; i < d->end && r == 0; i++) {
        struct program *p = &d->programs[i];
        if (p->fd < 0 || !p->welcomed)
            continue;
        beat(p);
        for (unsigned k = 0; k < GATE_DEVICES; k++) {
            if (p->v[k].used && p->v[k].first_until && now > p->v[k].first_until) {
                p->v[k].first_until = 0; /* nobody schedules it */
                tell(p, k, 0);
            }
        }
        r = pid_list_push(out, p->proc.pid);
    }
    return r;
}

static int gate_scan(struct device_driver *base, struct proc_id proc, struct group_list *out,
                     struct error *err)
{
    struct gate_driver *d = gate(base);
    int r = 0;
    for (unsigned i = 0; i < d->end; i++) {
        struct program *p = &d->programs[i];
        if (p->fd < 0 || p->proc.pid != proc.pid || p->proc.start_ticks != proc.start_ticks)
            continue;
        for (unsigned k = 0; k < GATE_DEVICES && r == 0; k++) {
            struct entry *e = &p->v[k];
            e->told = false; /* to whoever has just learnt of it */
            struct device_group g = {
                .key = e->key,
                .proc = proc,
                .gpu = e->gpu,
                .kind = GROUP_COMPUTE,
                .level = e->level,
                .handles = {i, k},
                .source = -1,
                .nchannels = 1,
                .channels = {(uint32_t)e->key},
            };
            r = e->used ? group_list_push(out, &g) : 0;
        }
    }
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

static void gate_forget(struct device_driver *base, pid_t pid)
{
}

/* A program's entry, if it is still that one. */
static struct program *program_of(struct gate_driver *d, const struct device_group *g)
{
    if (g->handles[0] >= d->end || g->handles[1] >= GATE_DEVICES)
        return NULL;
    struct program *p = &d->programs[g->handles[0]];
    return p->fd >= 0 && p->v[g->handles[1]].used && p->v[g->handles[1]].key == g->key ? p : NULL;
}

static int gone(const struct gate_driver *d, const struct device_group *g, struct error *err)
{
    if (d->listen_fd < 0)
        return 0; /* what an earlier instance did ended with it */
    return error_set(err, -ENOENT, "process %d does not hold its work for cede any more",
                     g->proc.pid);
}

static void set(struct program *p, unsigned k, uint32_t limit_us, bool closed)
{
    uint32_t was = atomic_load(&p->control->device[k].state);
    if (!(was & GATE_ACTIVE) || p->v[k].first_until)
        p->v[k].told = false; /* it begins to tell */
    p->v[k].first_until = 0;
    atomic_store(&p->control->device[k].limit_us, limit_us);
    tell(p, k, closed ? GATE_ACTIVE | GATE_CLOSED : limit_us ? GATE_ACTIVE : 0);
}

static int gate_set_timeslice(struct device_driver *base, const struct device_group *g, uint64_t us,
                              struct error *err)
{
    struct program *p = program_of(gate(base), g);
    if (!p)
        return gone(gate(base), g, err);
    unsigned k = g->handles[1];
    set(p, k, (uint32_t)min_u64(us, TIMESLICE_MAX_US),
        atomic_load(&p->control->device[k].state) & GATE_CLOSED);
    return 0;
}

static int turn(struct device_driver *base, const struct device_group *const *g, size_t n,
                bool closed, struct error *err)
{
    int first = 0;
    for (size_t i = 0; i < n; i++) {
        struct program *p = program_of(gate(base), g[i]);
        unsigned k = g[i]->handles[1];
        int r = p ? 0 : gone(gate(base), g[i], first ? NULL : err);
        if (p)
            set(p, k, atomic_load(&p->control->device[k].limit_us), closed);
        first = first ? first : r;
    }
    return first;
}

static int gate_suspend(struct device_driver *d, const struct device_group *const *g, size_t n,
                        struct error *err)
{
    return turn(d, g, n, true, err);
}

static int gate_resume(struct device_driver *d, const struct device_group *const *g, size_t n,
                       struct error *err)
{
    return turn(d, g, n, false, err);
}

static int gate_usage(struct device_driver *base, struct usage_list *out, struct error *err)
{
    struct gate_driver *d = gate(base);
    uint64_t now = monotonic_ns(), window = d->usage_ns ? now - d->usage_ns : 0;
    int r = 0;
    d->usage_ns = now;
    for (unsigned i = 0; i < d->end; i++) {
        struct program *p = &d->programs[i];
        for (unsigned k = 0; k < GATE_DEVICES && p->fd >= 0 && r == 0; k++) {
            struct entry *e = &p->v[k];
            if (!e->used)
                continue;
            uint64_t busy = atomic_load(&p->slot->device[k].busy_ns);
            struct gpu_usage u = {.pid = p->proc.pid, .gpu = e->gpu, .busy = -1};
            /* Nothing is counted while the gate is not active. */
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
        hear_all_again(d);
    else
        gate_poll(d);
    for (unsigned i = 0; i < d->end; i++) {
        struct program *p = &d->programs[i];
        for (unsigned k = 0; k < GATE_DEVICES && p->fd >= 0 && r == 0; k++) {
            struct entry *e = &p->v[k];
            if (!e->used)
                continue;
            bool wants = atomic_load(&p->slot->device[k].wants);
            if (e->told && e->wants == wants)
                continue;
            e->told = true;
            e->wants = wants;
            struct gpu_demand x = {p->proc.pid, e->gpu, wants};
            r = demand_list_push(out, &x);
        }
    }
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

static void gate_watch(struct device_driver *base, const struct device_watcher *w)
{
    struct gate_driver *d = gate(base);
    void (*change)(const struct gate_driver *, int) = w ? gate_watch_fd : gate_unwatch_fd;
    if (w)
        d->watcher = *w;
    if (d->listen_fd >= 0)
        change(d, d->listen_fd);
    for (unsigned i = 0; i < d->end; i++) {
        if (d->programs[i].fd >= 0 && !d->programs[i].unheard)
            change(d, d->programs[i].fd);
    }
    if (!w)
        d->watcher = (struct device_watcher){.add = NULL};
}

static void gate_ready(struct device_driver *base, int fd)
{
    struct gate_driver *d = gate(base);
    hear_all_again(d);
    if (fd >= 0 && fd == d->listen_fd) {
        accept_some(d);
        return;
    }
    for (unsigned i = 0; i < d->end && fd >= 0; i++) {
        if (d->programs[i].fd == fd && !d->programs[i].unheard) {
            gate_hear(d, &d->programs[i]);
            return;
        }
    }
}

static uint64_t gate_due_ns(struct device_driver *base)
{
    const struct gate_driver *d = gate(base);
    return d->any_unheard ? d->heard_ns + HEARD_NS : UINT64_MAX;
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
    .suspend = gate_suspend,
    .resume = gate_resume,
    .usage = gate_usage,
    .demand = gate_demand,
    .watch = gate_watch,
    .ready = gate_ready,
    .due_ns = gate_due_ns,
};
