/* See fake_trace.h. */
#include "fake_trace.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct fake_trace *fake_trace_at(struct fake_rm *rm, uint32_t client)
{
    for (size_t i = 0; i < ARRAY_SIZE(rm->traces); i++) {
        if (rm->traces[i].client == client)
            return &rm->traces[i];
    }
    return NULL;
}

void fake_trace_free(struct fake_trace *t)
{
    for (int i = 0; i < 2; i++) {
        assert(!t->mapped[i]);
        free(t->pages[i]);
    }
    *t = (struct fake_trace){0};
}

uint32_t fake_trace_alloc(struct fake_rm *rm, struct fake_trace *t, const struct rm_ioctl_alloc *a)
{
    void *params;
    memcpy(&params, &a->params, sizeof(params));
    if (a->class == RM_CLASS_DEVICE) {
        /* Instances in another order than the GPUs, with gaps. */
        uint32_t instance = ((struct rm_device_params *)params)->instance;
        if (t->device || instance % 2 || instance / 2 >= rm->gpus)
            return 0x1F;
        t->gpu = rm->gpus - 1 - instance / 2;
        t->device = a->object;
    } else if (a->class == RM_CLASS_SUBDEVICE) {
        if (a->parent != t->device)
            return 0x1F;
        t->subdevice = a->object;
    } else if (a->class == RM_CLASS_MEMORY_DEVICELESS) {
        const struct rm_memory_params *m = params;
        int i = t->memory[0] ? 1 : 0;
        if (t->memory[i] || m->attr2 != RM_MEMORY_USER_READ_ONLY || a->parent != a->root)
            return 0x1F;
        t->memory[i] = a->object;
        t->bytes[i] = m->size;
        t->pages[i] = calloc(1, m->size);
    } else if (a->class == RM_CLASS_EVENT_BUFFER) {
        const struct rm_event_buffer_params *b = params;
        if (b->header_memory != t->memory[0] || b->record_memory != t->memory[1] ||
            b->subdevice != t->subdevice || b->record_size != sizeof(struct rm_switch_record) ||
            (size_t)b->record_size * b->record_count > t->bytes[1] || b->notification)
            return 0x1F;
        t->buffer = a->object;
        t->count = b->record_count;
    } else {
        return 0x22; /* invalid class */
    }
    return 0;
}

uint32_t fake_trace_control(struct fake_trace *t, const struct rm_ioctl_control *a, void *params)
{
    if (a->cmd == 0x2080014A && a->object == t->subdevice) {
        struct rm_gid_info *g = params;
        g->length = 1 + (uint32_t)snprintf((char *)g->data, sizeof(g->data), "GPU-%08u", t->gpu);
    } else if (a->cmd == 0x20801238 && a->object == t->subdevice) {
        const struct rm_bind_switches *b = params;
        if (b->buffer != t->buffer || !b->all_users)
            return 0x1F;
        t->bound = true;
    } else if (a->cmd == 0x20800403 && a->object == t->subdevice && fake_machine->gpu_clock_ns) {
        ((struct rm_gpu_time *)params)->ns = fake_machine->now_ns + fake_machine->gpu_clock_ns;
    } else if (a->cmd == 0x90CD0101 && a->object == t->buffer) {
        const struct rm_enable_events *e = params;
        t->enabled = e->enable && e->flags == RM_EVENTS_KEEP_OLDEST;
    } else if (a->cmd == 0x90CD0102 && a->object == t->buffer) {
        const struct rm_update_get *u = params;
        struct rm_event_header *h = t->pages[0];
        if (u->records >= t->count)
            return 0x1F;
        h->get = u->records;
        h->dropped = 0;
    } else {
        return 0x33;
    }
    return 0;
}

uint32_t fake_trace_map(struct fake_rm *rm, const struct rm_ioctl_map *m)
{
    struct fake_trace *t = fake_trace_at(rm, m->client);
    for (int i = 0; t && i < 2; i++) {
        if (t->memory[i] != m->memory || m->length > t->bytes[i] || m->device != m->client)
            continue;
        for (size_t k = 0; k < ARRAY_SIZE(rm->maps); k++) {
            if (rm->maps[k].pages)
                continue;
            rm->maps[k].file = fake_file_of(rm, m->fd);
            rm->maps[k].pages = t->pages[i];
            return 0;
        }
    }
    return 0x1F;
}

int fake_trace_io_map(int fd, size_t size, const void **out)
{
    struct fake_rm *rm = fake_machine;
    for (size_t k = 0; k < ARRAY_SIZE(rm->maps); k++) {
        if (!rm->maps[k].pages || rm->maps[k].file != fake_file_of(rm, fd))
            continue;
        *out = rm->maps[k].pages;
        rm->maps[k].pages = NULL;
        for (size_t i = 0; i < ARRAY_SIZE(rm->traces) * 2; i++) {
            if (rm->traces[i / 2].pages[i % 2] == *out)
                rm->traces[i / 2].mapped[i % 2] = true;
        }
        return 0;
    }
    return -EINVAL;
}

void fake_trace_io_unmap(const void *p, size_t size)
{
    struct fake_rm *rm = fake_machine;
    for (size_t i = 0; i < ARRAY_SIZE(rm->traces) * 2; i++) {
        if (rm->traces[i / 2].pages[i % 2] == p)
            rm->traces[i / 2].mapped[i % 2] = false;
    }
}

void fake_switch(struct fake_rm *rm, unsigned gpu, uint8_t tag, uint32_t pid, uint64_t ns)
{
    for (size_t i = 0; i < ARRAY_SIZE(rm->traces); i++) {
        struct fake_trace *t = &rm->traces[i];
        if (!t->client || !t->bound || !t->enabled || t->gpu != gpu)
            continue;
        struct rm_event_header *h = t->pages[0];
        uint16_t seqno = t->seqno++;
        uint32_t next = (h->put + 1) % t->count;
        if (next == h->get) {
            h->dropped++;
            continue;
        }
        ((struct rm_switch_record *)t->pages[1])[h->put] =
            (struct rm_switch_record){.type = RM_RECORD_SWITCH,
                                      .tag = tag,
                                      .seqno = seqno,
                                      .context = 1,
                                      .pid = pid,
                                      .ns = ns};
        h->put = next;
    }
}

unsigned fake_traces(const struct fake_rm *rm)
{
    unsigned n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(rm->traces); i++)
        n += rm->traces[i].client && rm->traces[i].bound && rm->traces[i].enabled;
    return n;
}
