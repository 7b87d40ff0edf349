/* See scan.h. Finds the channel groups and channels of one client.
 *
 * RM puts a graphics context or two context shares under every channel group, and names them from a
 * counter of the client that grows by about ten per context. Their parents are the groups. The
 * compute library's names cannot be searched from their beginning, because memory allocations use
 * them up too and they are not reused. But the channels, and the engine objects on them, have the
 * names right after their group's. */
#include "gpu/nvidia/scan.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define DENSE_MISSES     64U    /* RM's names are asked one by one until this many are missing, */
#define STRIDE           8U     /* then every eighth (a context takes ten in a row) */
#define STRIDE_MISSES    128U   /* until this many more are missing, */
#define DEEP_LIMIT       65536U /* or up to this one if there must be more contexts */
#define AHEAD            3U     /* strides beyond the last known name, asked at every scan */
#define REGION_GAP       96U    /* names without a channel or an engine that end a context */
#define REGION_MAX       8192U
#define DEEP_MAX         32768U /* objects of one scan, after which no deep search begins */
#define FALLBACK_MAX     2048U  /* library names that are asked where RM named nothing */
#define FDS_A_CONTEXT    16U    /* descriptors of /dev/nvidiaN of a context, about */
#define FDS_BASE         10U    /* those of a process without a context */
#define DEBOUNCE_NS      (200 * NSEC_PER_MSEC)
#define DEFAULT_SLICE_US 2048U
#define CHILD_NAMES      256U /* names after an object's among which its child is searched */

int nv_device_by_uuid(const struct nv_gpus *gpus, const char *uuid)
{
    for (unsigned i = 0; uuid[0] && i < gpus->n; i++) {
        if (strcasecmp(gpus->v[i].uuid, uuid) == 0)
            return (int)i;
    }
    return -ENOENT;
}

bool nv_gpu_divided(const struct nv_gpus *gpus, const char *uuid)
{
    for (unsigned i = 0; uuid[0] && i < gpus->ndivided; i++) {
        if (strcasecmp(gpus->divided[i], uuid) == 0)
            return true;
    }
    return false;
}

int nv_gpu_index(struct nv_gpus *gpus, const char *uuid, const char *bus_id)
{
    int known = nv_device_by_uuid(gpus, uuid);
    if (known >= 0 || nv_gpu_divided(gpus, uuid))
        return known;
    for (unsigned i = 0; bus_id[0] && i < gpus->n; i++) {
        if (strcasecmp(gpus->v[i].bus_id, bus_id) == 0)
            return gpus->part[i].gpu[0] ? -ENOENT : (int)i;
    }
    if ((!uuid[0] && !bus_id[0]) || gpus->n == DEVICE_GPUS_MAX)
        return -ENOENT;
    struct gpu_info *g = &gpus->v[gpus->n];
    *g = (struct gpu_info){.name = "NVIDIA GPU"};
    snprintf(g->uuid, sizeof(g->uuid), "%s", uuid);
    snprintf(g->bus_id, sizeof(g->bus_id), "%s", bus_id);
    return (int)gpus->n++;
}

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
    if (list_grow(&h->v, h->n, &h->cap, sizeof(x)) < 0)
        return -ENOMEM;
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

static uint32_t object_class(const struct nv_look *l, uint32_t object)
{
    uint32_t class;
    l->s->looked++;
    return rm_info(l->s->io, l->fd, l->c->handle, object, RM_INFO_CLASS, &class) == 0 ? class : 0;
}

static uint32_t object_parent(const struct nv_look *l, uint32_t object)
{
    uint32_t parent;
    rm_info(l->s->io, l->fd, l->c->handle, object, RM_INFO_PARENT, &parent);
    return parent;
}

static int groups_add(const struct nv_look *l, uint32_t object, struct handles *groups)
{
    return object_class(l, object) == RM_CLASS_GROUP ? handles_add(groups, object) : 0;
}

/* Adds the parents of the objects that RM named, from *next to the limit of misses. */
static int groups_from_contexts(const struct nv_look *l, uint32_t *next, uint32_t limit,
                                struct handles *groups)
{
    uint32_t misses = 0;
    for (uint32_t i = *next; i < RM_OWN_RANGE;) {
        uint32_t class = object_class(l, RM_OWN_BASE + i);
        if (class == 0) {
            bool dense = ++misses <= DENSE_MISSES;
            if (misses > DENSE_MISSES + STRIDE_MISSES && i >= limit)
                break;
            i += dense ? 1 : STRIDE;
            continue;
        }
        if (misses > DENSE_MISSES) { /* the stride may have skipped names of the same context */
            i -= (uint32_t)min_u64(STRIDE - 1, i - *next);
            misses = 0;
            continue;
        }
        misses = 0;
        *next = ++i;
        if (class != RM_CLASS_CONTEXT && class != RM_CLASS_CONTEXT_SHARE)
            continue;
        uint32_t parent = object_parent(l, RM_OWN_BASE + i - 1);
        int r = parent ? groups_add(l, parent, groups) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static int groups_known(const struct nv_look *l, const struct group_list *known,
                        struct handles *groups)
{
    int r = 0;
    for (size_t i = 0; i < known->n && r == 0; i++)
        r = groups_add(l, known->v[i].handles[3], groups);
    return r;
}

/* For an RM that names objects differently: searches the library's first names. */
static int groups_from_library(const struct nv_look *l, struct handles *groups)
{
    bool any = false;
    for (uint32_t i = 1; i < FALLBACK_MAX && (any || i <= 8); i++) {
        uint32_t class = object_class(l, RM_LIBRARY_BASE + i);
        any |= class != 0;
        int r = class == RM_CLASS_GROUP ? handles_add(groups, RM_LIBRARY_BASE + i) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static struct device_group *group_by_handle(const struct group_list *groups, uint32_t handle)
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

/* The first of CHILD_NAMES names that is a child of this class; 0: none. */
static uint32_t child_find(const struct nv_look *l, uint32_t from, uint32_t class, uint32_t parent)
{
    for (uint32_t h = from; h < from + CHILD_NAMES; h++) {
        if (object_class(l, h) == class && object_parent(l, h) == parent)
            return h;
    }
    return 0;
}

/* The instance to which a subdevice subscribes, which it has to do before RM makes a group there;
 * else the instance in which NVML lists the process, if that is only one. -ENOENT: it is not known,
 * or not one of our devices. */
static int instance_of(const struct nv_look *l, uint32_t subdevice, const char *gpu)
{
    const struct nv_scanner *s = l->s;
    uint32_t outer = 0, inner = 0, names[] = {subdevice + 1, RM_OWN_BASE};
    for (size_t i = 0; i < ARRAY_SIZE(names) && !outer; i++)
        outer = child_find(l, names[i], RM_CLASS_GPU_INSTANCE, subdevice);
    for (size_t i = 0; i < ARRAY_SIZE(names) && outer && !inner; i++)
        inner = child_find(l, i ? names[i] : outer + 1, RM_CLASS_COMPUTE_INSTANCE, outer);
    struct rm_instance_uuid uuid = {.text = ""};
    if (inner &&
        rm_control(s->io, l->fd, l->c->handle, inner, RM_INSTANCE_UUID, &uuid, NULL) == 0) {
        uuid.text[sizeof(uuid.text) - 1] = '\0';
        return nv_device_by_uuid(s->gpus, uuid.text);
    }
    int found = -ENOENT;
    for_each (u, s->located.v, s->located.n) {
        bool here = u->pid == l->p->id.pid && u->gpu < s->gpus->n &&
                    strcasecmp(s->gpus->part[u->gpu].gpu, gpu) == 0;
        if (here && found >= 0 && (uint32_t)found != u->gpu)
            return -ENOENT;
        found = here ? (int)u->gpu : found;
    }
    return found;
}

/* Gets a device with its subdevice, whose name follows soon. */
static const struct nv_device *device_get(const struct nv_look *l, uint32_t device)
{
    struct nv_client *c = l->c;
    for (uint32_t i = 0; i < c->ndevices; i++) {
        if (c->devices[i].device == device)
            return &c->devices[i];
    }
    if (c->ndevices == ARRAY_SIZE(c->devices) || object_class(l, device) != RM_CLASS_DEVICE)
        return NULL;
    struct nv_device *d = &c->devices[c->ndevices];
    *d = (struct nv_device){.device = device, .gpu = -ENOENT};
    d->subdevice = child_find(l, device + 1, RM_CLASS_SUBDEVICE, device);
    const struct rm_io *io = l->s->io;
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
    if (nv_gpu_divided(l->s->gpus, uuid)) {
        d->gpu = instance_of(l, d->subdevice, uuid);
        c->unlocated |= d->gpu < 0;
    } else {
        d->gpu = nv_gpu_index(l->s->gpus, uuid, bus);
    }
    c->ndevices++;
    return d;
}

static int client_group_add(const struct nv_look *l, uint32_t handle,
                            const struct group_list *before)
{
    const struct nv_device *d = device_get(l, object_parent(l, handle));
    if (!d || (d->gpu < 0 && (l->s->gpus->n != 1 || l->s->gpus->ndivided)))
        return 0; /* its GPU is not known */
    struct device_group g = {
        .key = (uint64_t)l->c->handle << 32 | handle,
        .proc = l->p->id,
        .gpu = d->gpu < 0 ? 0 : (uint32_t)d->gpu,
        .kind = GROUP_OTHER,
        .level = LEVEL_QUEUE,
        .timeslice_us = DEFAULT_SLICE_US,
        .handles = {l->c->handle, d->device, d->subdevice, handle},
        .source = l->c->fd,
    };
    const struct device_group *known = group_by_handle(before, handle);
    struct rm_timeslice t = {0};
    if (rm_control(l->s->io, l->fd, l->c->handle, handle, RM_GET_TIMESLICE, &t, NULL) == 0 && t.us)
        g.timeslice_now_us = g.timeslice_us = t.us;
    if (known) /* the present timeslice may be one that cede set */
        g.timeslice_us = known->timeslice_us;
    return group_list_push(&l->c->groups, &g);
}

/* Reads the objects named after a group: its channels, their engines, and further groups. */
static int region_scan(const struct nv_look *l, uint32_t from, const struct group_list *before,
                       uint32_t *end)
{
    struct group_list *groups = &l->c->groups;
    uint32_t gap = 0, h = from;
    for (; gap < REGION_GAP && h - from < REGION_MAX; h++) {
        uint32_t class = object_class(l, h);
        struct device_group *g;
        gap++;
        if (class == RM_CLASS_GROUP) {
            int r = group_by_handle(groups, h) ? 0 : client_group_add(l, h, before);
            if (r < 0)
                return r;
            gap = 0;
        } else if (RM_IS_CHANNEL(class)) {
            gap = 0;
            g = group_by_handle(groups, object_parent(l, h));
            if (g && g->nchannels < GROUP_CHANNELS_MAX && !group_with_channel(groups, h))
                g->channels[g->nchannels++] = h;
        } else if (RM_IS_COMPUTE(class) || RM_IS_COPY(class)) {
            gap = 0;
            g = group_with_channel(groups, object_parent(l, h));
            /* Channels of a compute group have copy objects too. */
            if (g && (RM_IS_COMPUTE(class) || g->kind == GROUP_OTHER))
                g->kind = RM_IS_COMPUTE(class) ? GROUP_COMPUTE : GROUP_COPY;
        }
    }
    *end = h;
    return 0;
}

static uint32_t compute_groups(const struct group_list *l)
{
    uint32_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        n += l->v[i].kind == GROUP_COMPUTE;
    return n;
}

/* Whether the process has more descriptors of GPUs than the contexts that were found explain. */
static bool must_be_more(const struct nv_look *l)
{
    uint32_t n = 0;
    for_each (c, l->p->clients, l->p->nclients)
        n += compute_groups(&c->groups) + (c == l->c ? 0 : compute_groups(&c->fresh));
    return l->p->fds.ngpu > FDS_BASE + FDS_A_CONTEXT * n;
}

/* Making a context takes a tenth of a second, and the library sets its timeslices last. So new
 * groups are reported only when they have looked the same for a while: a timeslice that was read
 * earlier is not the one to restore, and one that was set earlier does not last. That is not always
 * enough: a PyTorch program set its timeslice later still, which timeslice_now_us shows. */
static int debounce(struct nv_client *c, const struct group_list *reported, uint64_t now)
{
    struct group_list all = c->groups, fresh = {0};
    c->groups = (struct group_list){0};
    int r = 0;
    for (size_t i = 0; i < all.n && r == 0; i++) {
        bool known = group_by_handle(reported, all.v[i].handles[3]);
        r = group_list_push(known ? &c->groups : &fresh, &all.v[i]);
    }
    bool same = fresh.n && fresh.n == c->fresh.n &&
                memcmp(fresh.v, c->fresh.v, fresh.n * sizeof(fresh.v[0])) == 0;
    if (!same)
        c->fresh_ns = now;
    group_list_free(&c->fresh);
    if (r == 0 && same && now - c->fresh_ns >= DEBOUNCE_NS) {
        group_list_free(&fresh);
        group_list_free(&c->groups);
        c->groups = all;
        return 0;
    }
    c->fresh = fresh;
    group_list_free(&all);
    return r;
}

int nv_client_discover(const struct nv_look *l, bool deep, bool wait)
{
    struct nv_client *c = l->c;
    _cleanup_(handles_free) struct handles found = {0};
    struct group_list before = c->groups;
    c->groups = (struct group_list){0};
    c->ndevices = 0;
    if (c->unlocated) /* groups without a known device were not kept */
        c->own_next = 0;
    c->unlocated = false;
    c->discovered_ns = l->s->io->now_ns();
    deep &= l->s->looked < DEEP_MAX;

    /* RM's names only rise, so known groups and new names are enough. */
    int r = groups_known(l, &before, &found);
    r = r < 0 ? r : groups_known(l, &c->fresh, &found);
    for (uint32_t limit = 0; r == 0; limit = DEEP_LIMIT) {
        r = groups_from_contexts(l, &c->own_next, limit, &found);
        if (r == 0 && c->own_next == 0 && deep)
            r = groups_from_library(l, &found);
        if (found.n)
            qsort(found.v, found.n, sizeof(found.v[0]), by_value);
        uint32_t end = 0;
        for (size_t i = 0; i < found.n && r == 0; i++) {
            if (found.v[i] >= end && !group_by_handle(&c->groups, found.v[i]))
                r = region_scan(l, found.v[i], &before, &end);
        }
        /* The process may have made and destroyed many contexts before its present ones. */
        if (r < 0 || limit || !deep || !must_be_more(l) ||
            object_class(l, RM_LIBRARY_BASE + 1) == 0)
            break;
    }
    if (r == 0 && wait)
        r = debounce(c, &before, c->discovered_ns);
    else
        group_list_free(&c->fresh);
    group_list_free(&before);
    return r;
}

bool nv_client_unchanged(const struct nv_look *l)
{
    for (size_t i = 0; i < l->c->groups.n; i++) {
        /* Only a channel group answers this. */
        struct device_group *g = &l->c->groups.v[i];
        struct rm_timeslice t = {0};
        if (rm_control(l->s->io, l->fd, l->c->handle, g->handles[3], RM_GET_TIMESLICE, &t, NULL))
            return false;
        g->timeslice_now_us = t.us;
    }
    for (uint32_t i = 0; i < AHEAD; i++) {
        if (object_class(l, RM_OWN_BASE + l->c->own_next + i * STRIDE))
            return false;
    }
    return true;
}

void nv_client_share(const struct nv_look *l)
{
    for_each (g, l->c->groups.v, l->c->groups.n) {
        struct rm_group_info info;
        if (g->kind == GROUP_COMPUTE && !g->shared &&
            rm_control(l->s->io, l->fd, l->c->handle, g->handles[3], RM_GROUP_INFO, &info, NULL) ==
                0)
            g->shared = info.number + 1;
    }
}
