/* See strict.h. */
#include "strict.h"

#include <stdlib.h>

#include "../random.h"
#include "base/util.h"

struct strict strict;

static cl_int refused_range(cl_kernel k, cl_uint dims, const size_t *offset, const size_t *size,
                            const size_t *local)
{
    uint64_t items = 1, group = 1;
    if (!k)
        return CL_INVALID_KERNEL;
    if (dims < 1 || dims > 3)
        return CL_INVALID_WORK_DIMENSION;
    if (!size || (offset && strict.no_offsets))
        return size ? CL_INVALID_GLOBAL_OFFSET : CL_INVALID_GLOBAL_WORK_SIZE;
    for (cl_uint d = 0; d < dims; d++) {
        if (!size[d] && !strict.zero_is_fine)
            return CL_INVALID_GLOBAL_WORK_SIZE;
        if (offset && offset[d] > SIZE_MAX - size[d])
            return CL_INVALID_GLOBAL_OFFSET;
        if (size[d] > UINT32_MAX || (items *= size[d]) > UINT32_MAX)
            return CL_INVALID_GLOBAL_WORK_SIZE;
        if (k == strict.four && (local ? local[d] : size[d]) % (d ? 1 : 4))
            return CL_INVALID_WORK_GROUP_SIZE;
        if (!local)
            continue;
        if (!local[d] || (size[d] % local[d] && !strict.remainders) ||
            (k == strict.four && local[d] != (d ? 1 : 4)))
            return CL_INVALID_WORK_GROUP_SIZE;
        if (local[d] > STRICT_MAX)
            return CL_INVALID_WORK_ITEM_SIZE;
        group *= local[d];
    }
    return group > STRICT_MAX ? CL_INVALID_WORK_GROUP_SIZE : CL_SUCCESS;
}

static void do_range(cl_uint dims, const size_t *offset, const size_t *size)
{
    static const size_t room[3] = {STRICT_X, STRICT_Y, STRICT_Z};
    size_t from[3] = {0}, to[3] = {1, 1, 1};
    uint64_t items = 1;
    for (cl_uint d = 0; d < dims; d++) {
        from[d] = offset ? offset[d] : 0;
        to[d] = min_u64(from[d] + size[d], room[d]);
        items *= size[d];
    }
    strict.items += items;
    for (size_t z = from[2]; z < to[2]; z++) {
        for (size_t y = from[1]; y < to[1]; y++) {
            for (size_t x = from[0]; x < to[0]; x++)
                strict.count[z][y][x]++;
        }
    }
}

cl_int CL_API_CALL strict_nd(cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *offset,
                             const size_t *size, const size_t *local, cl_uint n,
                             const cl_event *wait, cl_event *event)
{
    static struct strict_event all[64];
    static unsigned next_event;
    static uint64_t now;
    now = now ? now : monotonic_ns();
    bool failed = false;
    if (++strict.calls == strict.refuses)
        return CL_MEM_OBJECT_ALLOCATION_FAILURE;
    if (!q)
        return CL_INVALID_COMMAND_QUEUE;
    cl_int r = refused_range(k, dims, offset, size, local);
    if (r == CL_SUCCESS && !n != !wait)
        r = CL_INVALID_EVENT_WAIT_LIST;
    for (cl_uint i = 0; i < n && r == CL_SUCCESS; i++) {
        r = wait[i] ? CL_SUCCESS : CL_INVALID_EVENT_WAIT_LIST;
        failed |= wait[i] && ((struct strict_event *)wait[i])->failed;
    }
    if (r != CL_SUCCESS)
        return r;
    if (!failed)
        do_range(dims, offset, size);
    if (event) {
        struct strict_event *e = &all[next_event++ % ARRAY_SIZE(all)];
        uint64_t from = now;
        now += NSEC_PER_SEC; /* long enough to be worth cutting */
        *e = (struct strict_event){{.done = true, .from = from, .to = now}, failed};
        *event = (cl_event)e;
    }
    return CL_SUCCESS;
}

void strict_seed(uint64_t seed)
{
    state = seed;
}

void strict_choose(struct strict_launch *l, const cl_kernel kernels[3],
                   const cl_command_queue queues[2])
{
    static const size_t offsets[] = {0, 0, 1, 100, SIZE_MAX - 100, SIZE_MAX},
                        locals[] = {1, 1, 4, 4, 4, 8, 16, 0, 3, 5000},
                        sizes[] = {1, 2, 16, 64, 256, 1024, 0, 3, 1000, 1U << 31, 1ULL << 33};
    static struct strict_event events[] = {{{.done = true}, false}, {{.done = true}, true}};
    bool fits = rnd(2);
    strict.no_offsets = rnd(8) == 0;
    strict.zero_is_fine = rnd(2);
    strict.remainders = rnd(2);
    *l = (struct strict_launch){
        .q = rnd(100) ? queues[strict.no_offsets] : NULL,
        .k = rnd(100) ? kernels[rnd(3)] : NULL,
        .dims = rnd(20) ? 1 + (cl_uint)rnd(3) : (cl_uint)rnd(6),
        .n = rnd(4) ? 0 : 1 + (cl_uint)rnd(2),
        .offset_given = rnd(2),
        .size_given = rnd(100),
        .local_given = rnd(2),
        .event_wanted = rnd(2),
        .refuses = rnd(4) ? 0 : 2 + (unsigned)rnd(8),
    };
    l->list_given = rnd(20) ? l->n > 0 : rnd(2);
    for (unsigned i = 0; i < 2; i++)
        l->wait[i] = rnd(20) ? (cl_event)&events[rnd(4) == 0] : NULL;
    for (unsigned d = 0; d < 5; d++) {
        l->local[d] = fits ? (d ? 1 : 4) : locals[rnd(ARRAY_SIZE(locals))];
        l->size[d] = fits ? l->local[d] * (1 + rnd(d ? 4 : 100)) : sizes[rnd(ARRAY_SIZE(sizes))];
        l->offset[d] = offsets[rnd(fits ? 4 : ARRAY_SIZE(offsets))];
    }
}
