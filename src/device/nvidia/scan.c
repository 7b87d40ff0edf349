/* See scan.h. How groups are found:
 *
 * 1. A client answers only on the open file that allocated it, so asking a descriptor about a
 * client handle tells whose it is. Client handles count up for the whole machine; the range to ask
 * is bounded by the counter now and by its value before the process started.
 * 2. RM itself hangs a graphics context (or two context shares) under every channel group, and
 * names them from a counter of the client that grows by about ten per context. Their parents are
 * the groups. The names that the compute library gives are no way in: it spends one per memory
 *    allocation and does not reuse them.
 * 3. The channels, and what runs on them, are named right after their group.
 * Asking costs about 2 us a handle (H200, 580.159.04), there or not, so the number of questions is
 * what to save: a known process is asked whether its groups are still there and whether RM named
 * anything new; everything else waits for a change in its descriptors (each context maps its
 * channels through about 16 of /dev/nvidiaN) or for a slow timer. */
#include "device/nvidia/scan.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define RELIST_NS        (10 * NSEC_PER_SEC) /* descriptors listed although their number is the same */
#define REDISCOVER_NS    (60 * NSEC_PER_SEC)
#define NEIGHBOURS       64U    /* clients of one process lie close together */
#define DENSE_MISSES     64U    /* RM's names: asked one by one until so many are missing, */
#define STRIDE           8U     /* then every eighth (a context takes ten in a row) */
#define STRIDE_MISSES    128U   /* until so many more are missing; */
#define DEEP_LIMIT       65536U /* or up to here if there must be more */
#define AHEAD            3U     /* strides beyond the last known one, asked at every scan */
#define REGION_GAP       96U    /* handles without a channel or an engine that end a context */
#define REGION_MAX       8192U
#define FALLBACK_MAX     2048U /* library names asked where RM named nothing */
#define FDS_A_CONTEXT    16U   /* descriptors of /dev/nvidiaN a context keeps, and about */
#define FDS_BASE         10U   /* those of a process without one */
#define DEFAULT_SLICE_US 2048U

int nv_gpu_index(struct nv_gpus *gpus, const char *uuid, const char *bus_id)
{
    for (unsigned i = 0; uuid[0] && i < gpus->n; i++) {
        if (strcasecmp(gpus->v[i].uuid, uuid) == 0)
            return (int)i;
    }
    for (unsigned i = 0; bus_id[0] && i < gpus->n; i++) {
        if (strcasecmp(gpus->v[i].bus_id, bus_id) == 0)
            return (int)i;
    }
    if ((!uuid[0] && !bus_id[0]) || gpus->n == DEVICE_GPUS_MAX)
        return -ENOENT;
    struct gpu_info *g = &gpus->v[gpus->n];
    *g = (struct gpu_info){.name = "NVIDIA GPU"};
    snprintf(g->uuid, sizeof(g->uuid), "%s", uuid);
    snprintf(g->bus_id, sizeof(g->bus_id), "%s", bus_id);
    return (int)gpus->n++;
}

/* ---- the clients' counter ---- */

static int counter_update(struct nv_scanner *s, struct error *err)
{
    uint32_t index;
    int r = rm_client_counter(&s->io, s->ctl_fd, &index, err);
    if (r < 0)
        return r;
    /* Starts one range up, so that positions before the first look exist. */
    if (s->position == 0)
        s->position = RM_CLIENT_RANGE + index;
    else
        s->position += (index - (uint32_t)(s->position % RM_CLIENT_RANGE)) % RM_CLIENT_RANGE;

    uint64_t now = s->io.now_ns(s->io.ctx);
    if (s->nmarks && now - s->marks[s->nmarks - 1].ns < NSEC_PER_SEC)
        return 0;
    if (s->nmarks == NV_MARKS) { /* thin out: old processes need no exact bound */
        for (unsigned i = 0; i < NV_MARKS / 2; i++)
            s->marks[i] = s->marks[2 * i];
        s->nmarks = NV_MARKS / 2;
    }
    s->marks[s->nmarks].ns = now;
    s->marks[s->nmarks++].position = s->position;
    return 0;
}

/* A position that no client of this process can be below. */
static uint64_t counter_before(const struct nv_scanner *s, struct proc_id proc)
{
    uint64_t oldest = s->position - RM_CLIENT_RANGE + 1;
    /* Start times are whole ticks, rounded down. */
    uint64_t start = proc.start_ticks * (NSEC_PER_SEC / s->ticks_per_s);
    for (unsigned i = s->nmarks; i-- > 0;) {
        if (s->marks[i].ns < start)
            return max_u64(s->marks[i].position, oldest);
    }
    return oldest;
}

static uint32_t client_handle(uint64_t position)
{
    return RM_CLIENT_BASE + (uint32_t)(position % RM_CLIENT_RANGE);
}

/* ---- memory of processes ---- */

static void client_free(struct nv_client *c)
{
    group_list_free(&c->groups);
}

static void process_clear(struct nv_process *p)
{
    for (size_t i = 0; i < p->nclients; i++)
        client_free(&p->clients[i]);
    free(p->clients);
    *p = (struct nv_process){.id = p->id};
}

static struct nv_process *process_find(struct nv_scanner *s, pid_t pid)
{
    for (size_t i = 0; i < s->nprocs; i++) {
        if (s->procs[i].id.pid == pid)
            return &s->procs[i];
    }
    return NULL;
}

static struct nv_process *process_get(struct nv_scanner *s, struct proc_id id)
{
    struct nv_process *p = process_find(s, id.pid);
    if (p && p->id.start_ticks == id.start_ticks)
        return p;
    nv_forget(s, id.pid);
    if (s->nprocs == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 16;
        p = reallocarray(s->procs, cap, sizeof(*p));
        if (!p)
            return NULL;
        s->procs = p;
        s->cap = cap;
    }
    p = &s->procs[s->nprocs++];
    *p = (struct nv_process){.id = id};
    return p;
}

void nv_distrust(struct nv_scanner *s, pid_t pid)
{
    struct nv_process *p = process_find(s, pid);
    if (p)
        p->dirty = true;
}

void nv_forget(struct nv_scanner *s, pid_t pid)
{
    struct nv_process *p = process_find(s, pid);
    if (!p)
        return;
    /* Whoever inherited its clients has them from now on. */
    for (size_t i = 0; i < s->nprocs; i++) {
        for (size_t k = 0; &s->procs[i] != p && k < s->procs[i].nclients; k++)
            s->procs[i].dirty |= s->procs[i].clients[k].elsewhere;
    }
    process_clear(p);
    *p = s->procs[--s->nprocs];
}

/* True if another living process was seen with this client first. */
static bool owned_elsewhere(const struct nv_scanner *s, const struct nv_process *p, uint32_t client)
{
    for (size_t i = 0; i < s->nprocs; i++) {
        const struct nv_process *q = &s->procs[i];
        for (size_t k = 0; q != p && k < q->nclients; k++) {
            if (q->clients[k].handle == client && !q->clients[k].elsewhere)
                return s->io.alive(s->io.ctx, q->id);
        }
    }
    return false;
}

static struct nv_fd *fd_state(struct nv_process *p, int32_t number)
{
    for (uint32_t i = 0; i < p->nfd; i++) {
        if (p->fd[i].number == number)
            return &p->fd[i];
    }
    return NULL;
}

/* After the descriptors were listed: forgets those that went, adds those that came. */
static void fds_reconcile(struct nv_process *p)
{
    struct nv_fd old[RM_CTL_FDS_MAX];
    uint32_t nold = p->nfd;
    memcpy(old, p->fd, sizeof(old));
    p->nfd = p->fds.nctl;
    for (uint32_t i = 0; i < p->nfd; i++) {
        p->fd[i] = (struct nv_fd){.number = p->fds.ctl[i]};
        for (uint32_t k = 0; k < nold; k++) {
            if (old[k].number == p->fd[i].number)
                p->fd[i] = old[k];
        }
    }
    size_t n = 0;
    for (size_t i = 0; i < p->nclients; i++) {
        if (fd_state(p, p->clients[i].fd))
            p->clients[n++] = p->clients[i];
        else
            client_free(&p->clients[i]);
    }
    p->nclients = n;
}

/* ---- clients of a descriptor ---- */

static bool client_answers(const struct nv_scanner *s, int fd, uint32_t client)
{
    uint32_t class;
    return rm_info(&s->io, fd, client, client, RM_INFO_CLASS, &class) == 0;
}

static int client_add(struct nv_scanner *s, struct nv_process *p, int32_t number, uint32_t handle)
{
    for (size_t i = 0; i < p->nclients; i++) {
        if (p->clients[i].handle == handle)
            return 0; /* one open file under two numbers (dup) */
    }
    struct nv_client *c = reallocarray(p->clients, p->nclients + 1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    p->clients = c;
    p->clients[p->nclients++] = (struct nv_client){.handle = handle, .fd = number};
    return 0;
}

/* Asks for the clients at positions low..high, from the top. With `enough`, ends that many misses
 * after a hit. Returns the number found or -errno. */
static int clients_probe(struct nv_scanner *s, struct nv_process *p, int fd, int32_t number,
                         uint64_t low, uint64_t high, uint64_t enough)
{
    int found = 0;
    uint64_t misses = 0;
    for (uint64_t i = high; i >= low && i > 0; i--) {
        if (!client_answers(s, fd, client_handle(i))) {
            if (found && enough && ++misses >= enough)
                break;
            continue;
        }
        misses = 0;
        found++;
        int r = client_add(s, p, number, client_handle(i));
        if (r < 0)
            return r;
    }
    return found;
}

/* Finds the clients of one borrowed descriptor that are not known yet. */
static int clients_find(struct nv_scanner *s, struct nv_process *p, int fd, struct nv_fd *state)
{
    uint64_t top = s->position, low = counter_before(s, p->id);
    if (state->resolved) { /* only those that came since */
        int r = clients_probe(s, p, fd, state->number, max_u64(state->searched + 1, low), top, 0);
        state->searched = top;
        return r < 0 ? r : 0;
    }
    state->resolved = true;
    state->searched = top;

    /* Inherited: one that is known already. */
    int r = 0, found = 0;
    for (size_t i = 0; i < s->nprocs; i++) {
        for (size_t k = 0; &s->procs[i] != p && k < s->procs[i].nclients; k++) {
            uint32_t handle = s->procs[i].clients[k].handle;
            if (client_answers(s, fd, handle)) {
                if ((r = client_add(s, p, state->number, handle)) < 0)
                    return r;
                found++;
            }
        }
    }
    /* Near the process's other clients, which saves the long way on a machine that is long up. */
    for (size_t i = 0; i < p->nclients && !found; i++) {
        uint64_t at = top - (top - p->clients[i].handle + RM_CLIENT_BASE) % RM_CLIENT_RANGE;
        r = clients_probe(s, p, fd, state->number, max_u64(at - NEIGHBOURS, low),
                          min_u64(at + NEIGHBOURS, top), 0);
        if (r < 0)
            return r;
        found += r;
    }
    if (found)
        return 0;
    /* From now back to the process's start; where that is unknown, to the counter's zero, and
     * beyond it (a counter that has wrapped) only for a process that certainly uses a GPU. */
    uint64_t wrap = top - top % RM_CLIENT_RANGE;
    bool bounded = low > s->position - RM_CLIENT_RANGE + 1;
    r = clients_probe(s, p, fd, state->number, bounded ? low : max_u64(low, wrap), top, NEIGHBOURS);
    if (r == 0 && p->fds.ngpu) {
        uint64_t oldest = s->position - RM_CLIENT_RANGE + 1;
        if (bounded && wrap < low)
            r = clients_probe(s, p, fd, state->number, wrap, low - 1, NEIGHBOURS);
        if (r == 0)
            r = clients_probe(s, p, fd, state->number, oldest, min_u64(wrap, low) - 1, NEIGHBOURS);
    }
    return r < 0 ? r : 0;
}

/* ---- objects of a client ---- */

struct handles {
    uint32_t *v;
    size_t n, cap;
};

static int handles_add(struct handles *h, uint32_t x)
{
    for (size_t i = 0; i < h->n; i++) {
        if (h->v[i] == x)
            return 0;
    }
    if (h->n == h->cap) {
        size_t cap = h->cap ? h->cap * 2 : 16;
        uint32_t *v = reallocarray(h->v, cap, sizeof(*v));
        if (!v)
            return -ENOMEM;
        h->v = v;
        h->cap = cap;
    }
    h->v[h->n++] = x;
    return 0;
}

static void handles_free(struct handles *h)
{
    free(h->v);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

struct look { /* one borrowed descriptor, one client */
    struct nv_scanner *s;
    struct nv_process *p;
    struct nv_client *c;
    int fd;
};

static uint32_t class_of(const struct look *l, uint32_t object)
{
    uint32_t class;
    return rm_info(&l->s->io, l->fd, l->c->handle, object, RM_INFO_CLASS, &class) == 0 ? class : 0;
}

static uint32_t parent_of(const struct look *l, uint32_t object)
{
    uint32_t parent;
    rm_info(&l->s->io, l->fd, l->c->handle, object, RM_INFO_PARENT, &parent);
    return parent;
}

/* Groups above the objects that RM named. Continues from *next to the limit of misses. */
static int groups_from_contexts(const struct look *l, uint32_t *next, uint32_t limit,
                                struct handles *groups)
{
    uint32_t misses = 0;
    for (uint32_t i = *next; i < RM_OWN_RANGE;) {
        uint32_t class = class_of(l, RM_OWN_BASE + i);
        if (class == 0) {
            bool dense = ++misses <= DENSE_MISSES;
            if (misses > DENSE_MISSES + STRIDE_MISSES && i >= limit)
                break;
            i += dense ? 1 : STRIDE;
            continue;
        }
        if (misses > DENSE_MISSES) { /* the strides skipped its elder siblings */
            i -= (uint32_t)min_u64(STRIDE - 1, i - *next);
            misses = 0;
            continue;
        }
        misses = 0;
        *next = ++i;
        if (class != RM_CLASS_CONTEXT && class != RM_CLASS_CONTEXT_SHARE)
            continue;
        uint32_t parent = parent_of(l, RM_OWN_BASE + i - 1);
        if (parent && class_of(l, parent) == RM_CLASS_GROUP) {
            int r = handles_add(groups, parent);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* A machine whose RM names things differently: look through the library's first names. */
static int groups_from_library(const struct look *l, struct handles *groups)
{
    bool any = false;
    for (uint32_t i = 1; i < FALLBACK_MAX && (any || i <= 8); i++) {
        uint32_t class = class_of(l, RM_LIBRARY_BASE + i);
        any |= class != 0;
        int r = class == RM_CLASS_GROUP ? handles_add(groups, RM_LIBRARY_BASE + i) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static struct device_group *group_of(struct group_list *groups, uint32_t handle)
{
    for (size_t i = 0; i < groups->n; i++) {
        if (groups->v[i].handles[3] == handle)
            return &groups->v[i];
    }
    return NULL;
}

static struct device_group *group_with_channel(struct group_list *groups, uint32_t channel)
{
    for (size_t i = 0; i < groups->n; i++) {
        for (uint32_t k = 0; k < groups->v[i].nchannels; k++) {
            if (groups->v[i].channels[k] == channel)
                return &groups->v[i];
        }
    }
    return NULL;
}

/* The subdevice of a device is named soon after it. */
static const struct nv_device *device_get(const struct look *l, uint32_t device)
{
    struct nv_client *c = l->c;
    for (uint32_t i = 0; i < c->ndevices; i++) {
        if (c->devices[i].device == device)
            return &c->devices[i];
    }
    if (c->ndevices == ARRAY_SIZE(c->devices) || class_of(l, device) != RM_CLASS_DEVICE)
        return NULL;
    struct nv_device *d = &c->devices[c->ndevices];
    *d = (struct nv_device){.device = device, .gpu = -ENOENT};
    for (uint32_t h = device + 1; h <= device + 256 && !d->subdevice; h++) {
        if (class_of(l, h) == RM_CLASS_SUBDEVICE && parent_of(l, h) == device)
            d->subdevice = h;
    }
    const struct rm_io *io = &l->s->io;
    struct rm_gid_info gid = {0};
    struct rm_gpu_id id = {0};
    char uuid[48] = "", bus[20] = "";
    if (rm_control(io, l->fd, c->handle, d->subdevice, RM_GPU_UUID, &gid, NULL) == 0)
        snprintf(uuid, sizeof(uuid), "%.*s", (int)min_u64(gid.length, sizeof(gid.data)),
                 (const char *)gid.data);
    if (rm_control(io, l->fd, c->handle, d->subdevice, RM_GPU_ID, &id, NULL) == 0) {
        struct rm_pci_info pci = {.id = id.id};
        if (rm_control(io, l->fd, c->handle, c->handle, RM_GPU_PCI, &pci, NULL) == 0)
            snprintf(bus, sizeof(bus), "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.slot);
    }
    d->gpu = nv_gpu_index(l->s->gpus, uuid, bus);
    c->ndevices++;
    return d;
}

static int group_add(const struct look *l, uint32_t handle, const struct group_list *before)
{
    const struct nv_device *d = device_get(l, parent_of(l, handle));
    if (!d || (d->gpu < 0 && l->s->gpus->n != 1))
        return 0; /* one we could not say the GPU of */
    struct device_group g = {
        .key = (uint64_t)l->c->handle << 32 | handle,
        .proc = l->p->id,
        .gpu = d->gpu < 0 ? 0 : (uint32_t)d->gpu,
        .kind = GROUP_OTHER,
        .timeslice_us = DEFAULT_SLICE_US,
        .handles = {l->c->handle, d->device, d->subdevice, handle},
        .source = l->c->fd,
    };
    const struct device_group *known = NULL;
    for (size_t i = 0; i < before->n; i++) {
        if (before->v[i].key == g.key)
            known = &before->v[i];
    }
    struct rm_timeslice t = {0};
    if (known) /* by now it may be ours that is set */
        g.timeslice_us = known->timeslice_us;
    else if (rm_control(&l->s->io, l->fd, l->c->handle, handle, RM_GET_TIMESLICE, &t, NULL) == 0 &&
             t.us)
        g.timeslice_us = t.us;
    return group_list_push(&l->c->groups, &g);
}

/* Everything that is named from a group on: its channels, their engines, and further groups. */
static int region_scan(const struct look *l, uint32_t from, const struct group_list *before,
                       uint32_t *end)
{
    struct group_list *groups = &l->c->groups;
    uint32_t gap = 0, h = from;
    for (; gap < REGION_GAP && h - from < REGION_MAX; h++) {
        uint32_t class = class_of(l, h);
        struct device_group *g;
        gap++;
        if (class == RM_CLASS_GROUP) {
            int r = group_of(groups, h) ? 0 : group_add(l, h, before);
            if (r < 0)
                return r;
            gap = 0;
        } else if (RM_IS_CHANNEL(class)) {
            gap = 0;
            g = group_of(groups, parent_of(l, h));
            if (g && g->nchannels < GROUP_CHANNELS_MAX)
                g->channels[g->nchannels++] = h;
        } else if (RM_IS_COMPUTE(class) || RM_IS_COPY(class)) {
            gap = 0;
            g = group_with_channel(groups, parent_of(l, h));
            /* A compute group's channels carry copy objects too. */
            if (g && (RM_IS_COMPUTE(class) || g->kind == GROUP_OTHER))
                g->kind = RM_IS_COMPUTE(class) ? GROUP_COMPUTE : GROUP_COPY;
        }
    }
    *end = h;
    return 0;
}

static uint32_t compute_groups(const struct nv_process *p)
{
    uint32_t n = 0;
    for (size_t i = 0; i < p->nclients; i++) {
        for (size_t k = 0; k < p->clients[i].groups.n; k++)
            n += p->clients[i].groups.v[k].kind == GROUP_COMPUTE;
    }
    return n;
}

/* Finds all groups of a client anew. `deep`: its process's use of GPUs changed. */
static int client_discover(const struct look *l, bool deep)
{
    struct nv_client *c = l->c;
    _cleanup_(handles_free) struct handles found = {0};
    struct group_list before = c->groups;
    c->groups = (struct group_list){0};
    c->ndevices = 0;
    c->own_next = 0;
    c->discovered_ns = l->s->io.now_ns(l->s->io.ctx);

    int r = 0;
    for (uint32_t limit = 0;; limit = DEEP_LIMIT) {
        r = groups_from_contexts(l, &c->own_next, limit, &found);
        if (r == 0 && found.n == 0 && c->own_next == 0 && deep)
            r = groups_from_library(l, &found);
        if (found.n)
            qsort(found.v, found.n, sizeof(found.v[0]), by_value);
        uint32_t end = 0;
        for (size_t i = 0; i < found.n && r == 0; i++) {
            if (found.v[i] >= end && !group_of(&c->groups, found.v[i]))
                r = region_scan(l, found.v[i], &before, &end);
        }
        /* Many contexts came and went before the ones that are there now. */
        bool more = l->p->fds.ngpu > FDS_BASE + FDS_A_CONTEXT * compute_groups(l->p);
        if (r < 0 || limit || !deep || !more || class_of(l, RM_LIBRARY_BASE + 1) == 0)
            break;
    }
    group_list_free(&before);
    return r;
}

/* True if all known groups of a client are there and RM named nothing new. */
static bool client_unchanged(const struct look *l)
{
    for (size_t i = 0; i < l->c->groups.n; i++) {
        if (class_of(l, l->c->groups.v[i].handles[3]) != RM_CLASS_GROUP)
            return false;
    }
    for (uint32_t i = 0; i < AHEAD; i++) {
        if (class_of(l, RM_OWN_BASE + l->c->own_next + i * STRIDE))
            return false;
    }
    return true;
}

/* ---- a process ---- */

/* What to do at this scan. */
struct plan {
    bool relist;     /* list the descriptors and look for new clients */
    bool rediscover; /* look at all objects */
    bool deep;
};

static int scan_fd(struct nv_scanner *s, struct nv_process *p, int fd, struct nv_fd *state,
                   const struct plan *plan)
{
    /* A descriptor whose client does not answer is another file by now. */
    for (size_t i = 0; i < p->nclients && plan->relist;) {
        struct nv_client *c = &p->clients[i];
        if (c->fd != state->number || client_answers(s, fd, c->handle)) {
            i++;
            continue;
        }
        client_free(c);
        *c = p->clients[--p->nclients];
        state->resolved = false;
    }
    int r = plan->relist ? clients_find(s, p, fd, state) : 0;
    for (size_t i = 0; i < p->nclients && r == 0; i++) {
        struct look l = {.s = s, .p = p, .c = &p->clients[i], .fd = fd};
        if (l.c->fd != state->number)
            continue;
        if (plan->relist) {
            bool was = l.c->elsewhere;
            l.c->elsewhere = owned_elsewhere(s, p, l.c->handle);
            if (was && !l.c->elsewhere)
                l.c->discovered_ns = 0;
        }
        if (l.c->elsewhere) {
            group_list_free(&l.c->groups);
            continue;
        }
        uint64_t age = s->io.now_ns(s->io.ctx) - l.c->discovered_ns;
        if (plan->rediscover || l.c->discovered_ns == 0 || age > REDISCOVER_NS)
            r = client_discover(&l, plan->deep || l.c->discovered_ns == 0);
        else if (!client_unchanged(&l))
            r = client_answers(s, fd, l.c->handle) ? client_discover(&l, false) : -ESTALE;
    }
    return r;
}

/* True if this descriptor need not be borrowed now: nothing is known on it that could change. */
static bool fd_idle(const struct nv_process *p, const struct nv_fd *state)
{
    for (size_t i = 0; i < p->nclients; i++) {
        const struct nv_client *c = &p->clients[i];
        if (c->fd == state->number && !c->elsewhere && (c->groups.n || c->own_next))
            return false;
    }
    return true;
}

static int scan_process(struct nv_scanner *s, struct nv_process *p, int pidfd, bool force,
                        struct error *err)
{
    const struct rm_io *io = &s->io;
    uint64_t now = io->now_ns(io->ctx), count = 0;
    struct plan plan = {.relist = force || p->dirty || p->listed_ns == 0 ||
                                  now - p->listed_ns > RELIST_NS,
                        .rediscover = force || p->dirty};
    if (!plan.relist) {
        int r = io->fd_count(io->ctx, p->id.pid, &count);
        if (r < 0)
            return rm_borrow_error(err, r, p->id.pid);
        plan.relist = count == 0 || count != p->fds.fd_count;
    }
    if (plan.relist) {
        struct rm_fds old = p->fds;
        int r = io->fds(io->ctx, p->id.pid, &p->fds);
        if (r < 0)
            return rm_borrow_error(err, r, p->id.pid);
        bool changed = old.ngpu != p->fds.ngpu || old.nctl != p->fds.nctl ||
                       memcmp(old.ctl, p->fds.ctl, sizeof(old.ctl)) != 0;
        /* Descriptors that have nothing to do with a GPU may come and go all the time. */
        plan.deep = changed;
        plan.rediscover |= changed;
        plan.relist =
            changed || force || p->dirty || p->listed_ns == 0 || now - p->listed_ns > RELIST_NS;
        fds_reconcile(p);
    }
    if (plan.relist) {
        if (p->nfd) {
            int r = counter_update(s, err);
            if (r < 0)
                return r;
        }
        p->listed_ns = now;
        p->dirty = false;
    }
    for (uint32_t i = 0; i < p->nfd; i++) {
        if (!plan.relist && fd_idle(p, &p->fd[i]))
            continue;
        int fd = io->getfd(io->ctx, pidfd, p->fd[i].number);
        int r = fd;
        if (fd >= 0) {
            r = scan_fd(s, p, fd, &p->fd[i], &plan);
            io->close(io->ctx, fd);
        } else if (fd == -EBADF) {
            r = -ESTALE;
        }
        if (r == -ESTALE && !force)
            return -ESTALE;
        if (r == -ENOMEM)
            return error_set(err, r, "out of memory");
        if (r < 0 && r != -ESTALE)
            return rm_borrow_error(err, r, p->id.pid);
    }
    return 0;
}

int nv_scan(struct nv_scanner *s, struct proc_id proc, struct group_list *out, struct error *err)
{
    int pidfd = s->io.pidfd(s->io.ctx, proc);
    if (pidfd < 0) {
        if (pidfd == -ESRCH)
            nv_forget(s, proc.pid);
        return rm_borrow_error(err, pidfd, proc.pid);
    }
    struct nv_process *p = process_get(s, proc);
    int r = p ? scan_process(s, p, pidfd, false, err) : error_set(err, -ENOMEM, "out of memory");
    if (r == -ESTALE) /* what we knew is no longer so: once more, from the start */
        r = scan_process(s, p, pidfd, true, err);
    s->io.close(s->io.ctx, pidfd);
    for (size_t i = 0; r == 0 && i < p->nclients; i++) {
        for (size_t k = 0; r == 0 && k < p->clients[i].groups.n; k++)
            r = group_list_push(out, &p->clients[i].groups.v[k]);
    }
    if (r == -ESRCH)
        nv_forget(s, proc.pid);
    else if (r < 0 && p)
        p->dirty = true;
    return r;
}

int nv_scanner_init(struct nv_scanner *s, const struct rm_io *io, int ctl_fd, struct nv_gpus *gpus,
                    struct error *err)
{
    *s = (struct nv_scanner){.io = *io, .ctl_fd = ctl_fd, .gpus = gpus};
    s->ticks_per_s = (uint64_t)sysconf(_SC_CLK_TCK);
    return counter_update(s, err);
}

void nv_scanner_free(struct nv_scanner *s)
{
    for (size_t i = 0; i < s->nprocs; i++)
        process_clear(&s->procs[i]);
    free(s->procs);
    *s = (struct nv_scanner){.ctl_fd = -1};
}
