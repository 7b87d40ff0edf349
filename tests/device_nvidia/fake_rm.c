/* See fake_rm.h. */
#include "fake_trace.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct fake_rm *fake_machine;

static void grow(void *v, size_t n, size_t *cap, size_t size)
{
    int r = list_grow(v, n, cap, size);
    assert(r == 0);
}

struct fake_client *fake_client_at(struct fake_rm *rm, uint32_t handle)
{
    for (size_t i = 0; i < rm->nclients; i++) {
        if (rm->clients[i].handle == handle)
            return &rm->clients[i];
    }
    return NULL;
}

static uint32_t *hint(struct fake_client *c, uint32_t handle)
{
    return &c->hints[handle * 0x9E3779B1U >> 16];
}

struct fake_object *fake_object_at(struct fake_rm *rm, uint32_t client, uint32_t handle)
{
    struct fake_client *c = fake_client_at(rm, client);
    const uint32_t at = c ? *hint(c, handle) : 0;
    if (at && at <= c->nobjects && c->objects[at - 1].handle == handle)
        return &c->objects[at - 1];
    for (size_t i = 0; at && i < c->nobjects; i++) {
        if (c->objects[i].handle != handle)
            continue;
        *hint(c, handle) = (uint32_t)i + 1;
        return &c->objects[i];
    }
    return NULL;
}

static uint32_t object_new(struct fake_client *c, uint32_t handle, uint32_t class, uint32_t parent)
{
    grow(&c->objects, c->nobjects, &c->cap, sizeof(c->objects[0]));
    c->objects[c->nobjects++] =
        (struct fake_object){.handle = handle, .class = class, .parent = parent};
    *hint(c, handle) = (uint32_t)c->nobjects;
    return handle;
}

static uint32_t library_new(struct fake_client *c, uint32_t class, uint32_t parent)
{
    return object_new(c, RM_LIBRARY_BASE + c->next_library++, class, parent);
}

static uint32_t own_new(struct fake_rm *rm, struct fake_client *c, uint32_t class, uint32_t parent)
{
    uint32_t handle = RM_OWN_BASE + c->next_own++;
    return rm->no_own_names ? handle : object_new(c, handle, class, parent);
}

/* ---- what the driver calls ---- */

static int open_add(struct fake_rm *rm, int file)
{
    assert(rm->nopen < ARRAY_SIZE(rm->open));
    rm->open[rm->nopen++] = (struct fake_open){rm->next_fd, file};
    return rm->next_fd++;
}

int fake_file_of(struct fake_rm *rm, int fd)
{
    for (size_t i = 0; i < rm->nopen; i++) {
        if (rm->open[i].fd == fd)
            return rm->open[i].file;
    }
    assert(0 && "the descriptor is open");
    return 0;
}

static int io_open_ctl(void)
{
    struct fake_rm *rm = fake_machine;
    return rm->unloaded ? -ENOENT : open_add(rm, rm->next_file++);
}

static void io_close(int fd)
{
    struct fake_rm *rm = fake_machine;
    fake_file_of(rm, fd);
    for (size_t i = 0; i < rm->nopen; i++) {
        if (rm->open[i].fd == fd)
            rm->open[i] = rm->open[--rm->nopen];
    }
}

static struct fake_process *process_at(struct fake_rm *rm, pid_t pid)
{
    for (size_t i = 0; i < rm->nprocs; i++) {
        if (rm->procs[i].id.pid == pid && rm->procs[i].alive)
            return &rm->procs[i];
    }
    return NULL;
}

static int io_pidfd(struct proc_id id)
{
    struct fake_rm *rm = fake_machine;
    struct fake_process *p = process_at(rm, id.pid);
    if (!p || p->id.start_ticks != id.start_ticks)
        return -ESRCH;
    return open_add(rm, -1 - (int)(p - rm->procs));
}

static int io_getfd(pid_t pid, int pidfd, int number)
{
    struct fake_rm *rm = fake_machine;
    struct fake_process *p = &rm->procs[-fake_file_of(rm, pidfd) - 1];
    if (!p->alive)
        return -ESRCH;
    if (p->forbidden)
        return -EPERM;
    for (size_t i = 0; i < p->nfds; i++) {
        if (number && number == p->full_at)
            return -EMFILE;
        if (p->fds[i].number == number)
            return p->fds[i].file < 0 ? -EBADF : open_add(rm, p->fds[i].file);
    }
    return -EBADF;
}

/* The plain ones come first, which is where they cost most. */
static int io_fds(pid_t pid, struct rm_fds *io, uint32_t *left)
{
    struct fake_rm *rm = fake_machine;
    struct fake_process *p = process_at(rm, pid);
    if (!p || p->forbidden)
        return p ? -EACCES : -ESRCH;
    if (*left == 0)
        return -EAGAIN;
    if (io->next == 0) {
        memset(io, 0, sizeof(*io));
        io->fd_count = rm->old_kernel ? 0 : p->plain + p->nfds + p->ngpu;
    }
    uint64_t at = (uint64_t)io->next, end = p->plain + p->nfds;
    for (; *left && at < end; at++, --*left) {
        rm->listed++;
        if (at >= p->plain && p->fds[at - p->plain].file >= 0)
            io->ctl[io->nctl++] = p->fds[at - p->plain].number;
    }
    io->next = at < end ? (int64_t)at : 0;
    io->ngpu = p->ngpu;
    return io->next ? -EAGAIN : 0;
}

static int io_fd_count(pid_t pid, uint64_t *out)
{
    struct fake_rm *rm = fake_machine;
    struct rm_fds fds = {.next = 0};
    uint32_t one = 1;
    int r = io_fds(pid, &fds, &one);
    rm->listed -= 1 - one;
    rm->counted++;
    *out = fds.fd_count;
    return r == -EAGAIN ? 0 : r;
}

static bool io_alive(struct proc_id id)
{
    struct fake_process *p = process_at(fake_machine, id.pid);
    return p && p->id.start_ticks == id.start_ticks;
}

static int io_pids(pid_t **pids, size_t *n)
{
    struct fake_rm *rm = fake_machine;
    *pids = calloc(rm->nprocs + 1, sizeof(**pids));
    *n = 0;
    for (size_t i = rm->nprocs; i-- > 0;) {
        if (rm->procs[i].alive)
            (*pids)[(*n)++] = rm->procs[i].id.pid;
    }
    return *pids ? 0 : -ENOMEM;
}

static uint64_t io_now(void)
{
    return fake_machine->now_ns;
}

static uint32_t disable_channels(struct fake_rm *rm, uint32_t client, const struct fake_object *sub,
                                 const struct rm_disable_channels *p)
{
    rm->disables++;
    rm->max_disabled = (unsigned)max_u64(rm->max_disabled, p->count);
    if (!sub || sub->class != RM_CLASS_SUBDEVICE || p->count > RM_DISABLE_MAX || p->preempt_event)
        return 0x1F;
    if (rm->disables_max && rm->disables > rm->disables_max)
        return RM_STATUS_INSUFFICIENT_PERMISSIONS;
    for (uint32_t i = 0; i < p->count; i++) {
        if (rm->own_lists && p->client[i] != client)
            return RM_STATUS_INSUFFICIENT_PERMISSIONS;
        struct fake_object *channel = fake_object_at(rm, p->client[i], p->channel[i]);
        if (!channel || !RM_IS_CHANNEL(channel->class))
            return RM_STATUS_INVALID_CHANNEL;
        struct fake_object *group = fake_object_at(rm, p->client[i], channel->parent);
        /* A channel of another GPU is not this subdevice's. */
        if (fake_object_at(rm, p->client[i], group->parent)->gpu != sub->gpu)
            return RM_STATUS_INVALID_CHANNEL;
        channel->disabled += p->disable ? 1U : channel->disabled ? -1U : 0;
    }
    return 0;
}

static uint32_t set_preemption(struct fake_rm *rm, uint32_t client, const struct fake_object *sub,
                               const struct rm_preemption_mode *p)
{
    struct fake_object *channel = fake_object_at(rm, client, p->channel);
    rm->preempts++;
    if (!sub || sub->class != RM_CLASS_SUBDEVICE || p->flags != 1 || p->graphics || p->route ||
        p->route_flags || p->compute > 2)
        return 0x1F;
    if (!channel || !RM_IS_CHANNEL(channel->class))
        return RM_STATUS_INVALID_CHANNEL;
    fake_object_at(rm, client, channel->parent)->block_ends = p->compute == 1;
    return 0;
}

static int io_open_gpu(const char *bus_id)
{
    struct fake_rm *rm = fake_machine;
    rm->gpus_open++;
    return open_add(rm, rm->next_file++);
}

static bool io_same_pids(void)
{
    return !fake_machine->other_pids;
}

static uint32_t alloc(struct fake_rm *rm, struct rm_ioctl_alloc *a)
{
    rm->allocs++;
    if (a->class == rm->fail_class)
        return 0x51;
    if (a->class != RM_CLASS_ROOT) {
        struct fake_trace *t = a->root ? fake_trace_at(rm, a->root) : NULL;
        return t ? fake_trace_alloc(rm, t, a) : RM_STATUS_INVALID_CLIENT;
    }
    a->object = RM_CLIENT_BASE + rm->counter++ % RM_CLIENT_RANGE;
    struct fake_trace *fresh = fake_trace_at(rm, 0);
    if (fresh)
        fresh->client = a->object;
    return 0;
}

static uint32_t release(struct fake_rm *rm, const struct rm_ioctl_free *f)
{
    struct fake_trace *t = f->root ? fake_trace_at(rm, f->root) : NULL;
    if (t && f->object == t->client)
        fake_trace_free(t);
    else if (t && f->object == t->device)
        t->device = t->subdevice = 0;
    return 0;
}

static uint32_t control(struct fake_rm *rm, int file, const struct rm_ioctl_control *a)
{
    void *params;
    memcpy(&params, &a->params, sizeof(params));
    struct fake_trace *own = a->client ? fake_trace_at(rm, a->client) : NULL;
    if (own)
        return a->cmd == rm->fail_cmd ? rm->fail_status : fake_trace_control(own, a, params);
    struct fake_client *c = fake_client_at(rm, a->client);
    if (!c || c->file != file)
        return RM_STATUS_INVALID_CLIENT;
    struct fake_object *o = fake_object_at(rm, a->client, a->object);
    if (!o && a->object != a->client)
        return RM_STATUS_INVALID_OBJECT_HANDLE;
    if (a->cmd == rm->fail_cmd)
        return rm->fail_status;
    if (a->cmd == 0xD02) {
        struct rm_handle_info *h = params;
        struct fake_object *x = fake_object_at(rm, a->client, h->object);
        if (!x && h->object != a->client)
            return RM_STATUS_OBJECT_NOT_FOUND;
        if (h->index == RM_INFO_CLASS)
            h->result = x ? x->class : RM_CLASS_ROOT;
        else
            h->result = x ? x->parent : 0;
        return 0;
    }
    if (a->cmd >> 16 == 0xA06C && (!o || o->class != RM_CLASS_GROUP))
        return RM_STATUS_INVALID_OBJECT;
    if (a->cmd == 0xA06C0103) {
        o->timeslice_us = ((struct rm_timeslice *)params)->us;
        return 0;
    }
    if (a->cmd == 0xA06C0104) {
        ((struct rm_timeslice *)params)->us = o->timeslice_us;
        return 0;
    }
    if (a->cmd == 0xA06C0106) {
        rm->numbers++;
        ((struct rm_group_info *)params)->number = o->number;
        return 0;
    }
    if (a->cmd == 0xC6380101) {
        struct rm_instance_uuid *u = params;
        if (!o || o->class != RM_CLASS_COMPUTE_INSTANCE)
            return RM_STATUS_INVALID_OBJECT;
        memset(u, 0xFF, sizeof(*u));
        memcpy(u->text, o->uuid, strlen(o->uuid) + 1);
        return 0;
    }
    if (a->cmd == 0x2080110B)
        return disable_channels(rm, a->client, o, params);
    if (a->cmd == 0x20801210)
        return set_preemption(rm, a->client, o, params);
    if (a->cmd == 0x2080014A && o) {
        struct rm_gid_info *g = params;
        g->length = 1 + (uint32_t)snprintf((char *)g->data, sizeof(g->data), "GPU-%08u", o->gpu);
        return 0;
    }
    return 0x56;
}

static int io_ioctl(int fd, unsigned long request, void *arg)
{
    struct fake_rm *rm = fake_machine;
    int file = fake_file_of(rm, fd);
    rm->ioctls++;
    if (rm->die_after > 0 && --rm->die_after == 0)
        fake_exit(rm, &rm->procs[rm->die_who]);
    if (request == RM_IOCTL_ALLOC) {
        struct rm_ioctl_alloc *a = arg;
        a->status = alloc(rm, a);
    } else if (request == RM_IOCTL_FREE) {
        ((struct rm_ioctl_free *)arg)->status = release(rm, arg);
    } else if (request == RM_IOCTL_MAP) {
        ((struct rm_ioctl_map *)arg)->status = fake_trace_map(rm, arg);
    } else {
        assert(request == RM_IOCTL_CONTROL);
        struct rm_ioctl_control *a = arg;
        a->status = control(rm, file, a);
    }
    return 0;
}

static void io_release(char *buf, size_t size)
{
    snprintf(buf, size, "%s", fake_machine->release ? fake_machine->release : "");
}

static const struct rm_io fake_io = {
    .open_ctl = io_open_ctl,
    .close = io_close,
    .ioctl = io_ioctl,
    .pidfd = io_pidfd,
    .getfd = io_getfd,
    .fds = io_fds,
    .fd_count = io_fd_count,
    .open_gpu = io_open_gpu,
    .release = io_release,
    .map = fake_trace_io_map,
    .unmap = fake_trace_io_unmap,
    .same_pids = io_same_pids,
    .alive = io_alive,
    .pids = io_pids,
    .now_ns = io_now,
};

/* ---- what the programs do ---- */

void fake_init(struct fake_rm *rm, unsigned gpus)
{
    fake_machine = rm;
    *rm = (struct fake_rm){.now_ns = 1000 * NSEC_PER_SEC, .gpus = gpus, .next_fd = 1000};
}

void fake_free(struct fake_rm *rm)
{
    for (size_t i = 0; i < rm->nclients; i++)
        free(rm->clients[i].objects);
    free(rm->clients);
}

struct device_driver *fake_driver(struct fake_rm *rm, unsigned known)
{
    struct nv_gpus gpus = {.n = known, .instances = rm->instances};
    for (unsigned i = 0; i < known; i++)
        snprintf(gpus.v[i].uuid, sizeof(gpus.v[i].uuid), "GPU-%08u", i);
    struct device_driver *d = NULL;
    struct error err;
    int r = nv_driver_open(&fake_io, &gpus, rm->nvml, &d, &err);
    assert(r == 0);
    return d;
}

struct fake_process *fake_process(struct fake_rm *rm)
{
    assert(rm->nprocs < ARRAY_SIZE(rm->procs));
    struct fake_process *p = &rm->procs[rm->nprocs++];
    *p = (struct fake_process){
        .id = {.pid = 1000000 + (int32_t)rm->nprocs, .start_ticks = rm->now_ns / 10000000},
        .alive = true,
    };
    return p;
}

void fake_fd(struct fake_process *p, int number, int file)
{
    assert(p->nfds < ARRAY_SIZE(p->fds));
    p->fds[p->nfds++] = (struct fake_fd){number, file};
}

uint32_t fake_client(struct fake_rm *rm, struct fake_process *p)
{
    grow(&rm->clients, rm->nclients, &rm->cap, sizeof(rm->clients[0]));
    struct fake_client *c = &rm->clients[rm->nclients++];
    *c = (struct fake_client){
        .handle = RM_CLIENT_BASE + rm->counter++ % RM_CLIENT_RANGE,
        .file = rm->next_file++,
        .next_library = 1,
    };
    fake_fd(p, 3 + (int)p->nfds, c->file);
    return c->handle;
}

uint32_t fake_device(struct fake_rm *rm, uint32_t client, unsigned gpu)
{
    struct fake_client *c = fake_client_at(rm, client);
    library_new(c, 0xCB33, client);
    uint32_t device = library_new(c, RM_CLASS_DEVICE, client);
    c->objects[c->nobjects - 1].gpu = gpu;
    library_new(c, RM_CLASS_SUBDEVICE, device);
    c->objects[c->nobjects - 1].gpu = gpu;
    library_new(c, 0x2081, device);
    return device;
}

void fake_subscribe(struct fake_rm *rm, uint32_t client, uint32_t device, const char *uuid,
                    bool own)
{
    struct fake_client *c = fake_client_at(rm, client);
    static const uint32_t classes[] = {RM_CLASS_GPU_INSTANCE, RM_CLASS_COMPUTE_INSTANCE};
    uint32_t parent = device + 1; /* the subdevice */
    for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
        parent = own ? own_new(rm, c, classes[i], parent) : library_new(c, classes[i], parent);
    c->objects[c->nobjects - 1].uuid = uuid;
}

static uint32_t group_new(struct fake_rm *rm, struct fake_client *c, uint32_t device, bool compute)
{
    uint32_t group = library_new(c, RM_CLASS_GROUP, device);
    c->objects[c->nobjects - 1].timeslice_us = compute ? 2048 : 1024;
    c->objects[c->nobjects - 1].number = rm->groups++;
    own_new(rm, c, RM_CLASS_CONTEXT, group);
    for (int i = 0; i < (compute ? 0 : 2); i++)
        own_new(rm, c, RM_CLASS_CONTEXT_SHARE, group);
    for (int i = 0; i < (compute ? 8 : 4); i++) {
        library_new(c, 0x3E, device);
        uint32_t channel = library_new(c, 0xC86F, group);
        if (compute)
            library_new(c, 0xCBC0, channel);
        library_new(c, 0xC8B5, channel);
    }
    return group;
}

uint32_t fake_context(struct fake_rm *rm, struct fake_process *p, uint32_t client, uint32_t device)
{
    struct fake_client *c = fake_client_at(rm, client);
    for (int i = 0; i < 40; i++)
        library_new(c, 0x40, device);
    uint32_t group = group_new(rm, c, device, true);
    for (int i = 0; i < 3; i++)
        group_new(rm, c, device, false);
    p->ngpu += p->ngpu ? 16 : 20;
    return group;
}

void fake_context_free(struct fake_rm *rm, struct fake_process *p, uint32_t client, uint32_t group)
{
    struct fake_client *c = fake_client_at(rm, client);
    const uint32_t first = group;
    uint32_t last = group;
    /* The context's names end with its third copy group's last engine. */
    unsigned groups = 0;
    for (size_t i = 0; i < c->nobjects; i++) {
        const struct fake_object *o = &c->objects[i];
        if (o->handle < first || o->handle >= RM_OWN_BASE || o->class == 0x40)
            continue;
        groups += o->class == RM_CLASS_GROUP;
        if (groups > 4)
            break;
        last = o->handle;
    }
    size_t n = c->nobjects;
    c->nobjects = 0;
    memset(c->hints, 0, sizeof(c->hints));
    for (size_t i = 0; i < n; i++) {
        const struct fake_object o = c->objects[i];
        if ((o.handle >= first && o.handle <= last) ||
            (o.handle >= RM_OWN_BASE && o.parent >= first && o.parent <= last))
            continue;
        c->objects[c->nobjects++] = o;
        *hint(c, o.handle) = (uint32_t)c->nobjects;
    }
    p->ngpu -= 16;
}

void fake_malloc(struct fake_rm *rm, uint32_t client, uint32_t device, unsigned n, unsigned keep)
{
    struct fake_client *c = fake_client_at(rm, client);
    c->next_library += n - keep;
    for (unsigned i = 0; i < keep; i++)
        library_new(c, 0x40, device);
}

struct fake_process *fake_fork(struct fake_rm *rm, const struct fake_process *parent)
{
    struct fake_process *p = fake_process(rm), child = *parent;
    child.id = p->id;
    *p = child;
    return p;
}

static void file_put(struct fake_rm *rm, int file)
{
    for (size_t i = 0; i < rm->nprocs; i++) {
        for (size_t k = 0; rm->procs[i].alive && k < rm->procs[i].nfds; k++) {
            if (rm->procs[i].fds[k].file == file)
                return;
        }
    }
    for (size_t i = 0; i < rm->nclients; i++) {
        if (rm->clients[i].file == file) {
            free(rm->clients[i].objects);
            rm->clients[i] = (struct fake_client){.file = -1};
        }
    }
}

void fake_close(struct fake_rm *rm, struct fake_process *p, int number)
{
    for (size_t i = 0; i < p->nfds; i++) {
        if (p->fds[i].number != number)
            continue;
        int file = p->fds[i].file;
        p->fds[i] = p->fds[--p->nfds];
        file_put(rm, file);
        return;
    }
}

void fake_exit(struct fake_rm *rm, struct fake_process *p)
{
    p->alive = false;
    for (size_t i = 0; i < p->nfds; i++)
        file_put(rm, p->fds[i].file);
}
