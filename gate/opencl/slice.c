/* Kernels: submitted whole, or cut along their outermost dimension into pieces that are submitted
 * one after another, each held like a separate command. So a job that has to make room does so
 * after one piece.
 *
 * Only kernels that cannot see the difference are cut (proof.h), in queues that keep order, and
 * never where the program could see it: where it takes times from the kernel's event, or where the
 * kernel may wait for the thread that submits it; nor where the device may refuse the whole and
 * take pieces of it, or the other way. The program's event is that of the last piece. */
#include <stdlib.h>

#include "base/util.h"
#include "gate/estimate.h"
#include "gate/gate.h"
#include "gate/opencl/layer.h"

#define PIECE_MIN_NS  500000ULL /* a piece costs some 20 us on its way */
#define PIECES_MAX    4096U
#define PIECES_UNSEEN 16U                /* of a kernel whose length is not known */
#define LIMIT_NS      (500 * 1000000ULL) /* a job with so large a limit has to make way for none */
#define ROWS          64U /* work items, where the implementation chooses the groups */

struct range {
    cl_uint dims;
    const size_t *offset, *size, *local;
};

/* Whether the device takes each piece of this range if it takes the first: no check of the whole
 * (OpenCL 3.0, 5.8: sizes of zero, offsets that overflow, groups that leave a remainder, ranges too
 * large for it) can fail. Groups may leave a remainder where the program was built for that, which
 * is not looked at. What else is refused, such as arguments that are not set, or another size of
 * groups than the kernel requires, is refused of the first piece as of the whole. */
static bool range_is_plain(const struct range *r)
{
    uint64_t items = 1;
    if (!r->size || !r->dims || r->dims > 3)
        return false;
    for (cl_uint d = 0; d < r->dims; d++) {
        size_t offset = r->offset ? r->offset[d] : 0, size = r->size[d];
        if (!size || size > INT32_MAX || offset > INT32_MAX - size)
            return false;
        if (r->local && (!r->local[d] || size % r->local[d]))
            return false;
        items *= size;
        if (items > INT32_MAX)
            return false;
    }
    return true;
}

/* Work items along the outermost dimension that is more than one unit long, in units of which
 * pieces may consist; 0: cannot be cut. */
static size_t unit_of(const struct range *r, cl_uint *dim)
{
    for (cl_uint d = r->dims; d-- > 0;) {
        size_t unit = r->local ? r->local[d] : d ? 1 : ROWS;
        if (r->size[d] >= 2 * unit) {
            *dim = d;
            return unit;
        }
    }
    return 0;
}

/* Work-groups in one unit, as far as they are known. */
static uint64_t row_groups(const struct range *r, cl_uint dim)
{
    uint64_t n = 1;
    for (cl_uint d = 0; d < dim && r->local; d++)
        n *= r->size[d] / r->local[d];
    return n;
}

static uint64_t greatest_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t remainder = a % b;
        a = b;
        b = remainder;
    }
    return a;
}

/* In how many pieces others want this kernel; below 2: whole. est_ns 0: its length is not known. */
static uint64_t pieces_wanted(const struct command *c, uint64_t est_ns)
{
    uint64_t limit = gate_limit_ns(c->q.device);
    uint64_t pieces = est_ns ? est_ns / max_u64(limit, PIECE_MIN_NS) : PIECES_UNSEEN;
    return limit < LIMIT_NS ? min_u64(pieces, PIECES_MAX) : 0;
}

/* How many units each of so many pieces has; 0: cannot be cut. */
static size_t piece_of(const struct command *c, cl_kernel kernel, const struct range *r,
                       bool event_wanted, uint64_t pieces, cl_uint *dim)
{
    if (!kernels_may_be_cut() || !range_is_plain(r) || !c->q.in_order || !c->q.offsets ||
        gate_callback(0) || (event_wanted && c->q.profiled) || gate_host_waits(0))
        return 0;
    size_t unit = unit_of(r, dim), units = unit ? r->size[*dim] / unit : 0;
    bool needs_local_size;
    if (units < 2 || !kernel_sliceable(kernel, &needs_local_size) ||
        (needs_local_size && !r->local))
        return 0;
    /* As many as there are compute units at once, or a piece ends with some of them idle. */
    uint64_t row = row_groups(r, *dim), step = pieces < units ? units / pieces : 1;
    uint64_t shared = greatest_divisor(row, c->q.compute_units);
    uint64_t even = shared ? c->q.compute_units / shared : 0;
    if (even > 1)
        step = (step + even - 1) / even * even;
    return step < units ? step : 0;
}

/* Each waits for what the whole would wait for: where that fails, none may run. A piece that is
 * refused (the first because the whole would be, a later one for want of memory) is tried once more
 * with all that is left. */
static cl_int enqueue_pieces(const struct command *whole, cl_kernel kernel, const struct range *r,
                             cl_uint dim, size_t step, cl_uint nwait, const cl_event *wait,
                             cl_event *event)
{
    size_t offset[3] = {0}, size[3] = {1, 1, 1};
    for (cl_uint d = 0; d < r->dims; d++) {
        offset[d] = r->offset ? r->offset[d] : 0;
        size[d] = r->size[d];
    }
    cl_int result = CL_SUCCESS;
    unsigned refused = 0;
    for (size_t left = r->size[dim]; left && refused < 2;) {
        bool all = refused || left < 2 * step; /* no crumbs */
        size[dim] = all ? left : step;
        struct command c = *whole;
        c.part = (double)size[dim] / (double)r->size[dim];
        cl_event *e = all ? event : NULL;
        command_begin(&c, &e);
        result = command_end(&c, e,
                             next->clEnqueueNDRangeKernel(c.queue, kernel, r->dims,
                                                          left < r->size[dim] ? offset : r->offset,
                                                          size, r->local, nwait, wait, e));
        if (result != CL_SUCCESS) {
            refused++;
            continue;
        }
        left -= size[dim];
        offset[dim] += size[dim];
    }
    return result;
}

cl_int CL_API_CALL my_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel kernel, cl_uint dims,
                                             const size_t *offset, const size_t *size,
                                             const size_t *local, cl_uint nwait,
                                             const cl_event *wait, cl_event *event)
{
    if (!gate_active())
        return next->clEnqueueNDRangeKernel(q, kernel, dims, offset, size, local, nwait, wait,
                                            event);
    struct range r = {dims, offset, size, local};
    uint64_t items = 1;
    for (cl_uint d = 0; d < dims && dims <= 3 && size; d++)
        items *= size[d];
    struct command c = {.queue = q,
                        .key = estimate_key(kernel_hash(kernel), items, 5),
                        .est_ns = GUESS_NS,
                        .part = 1};
    cl_uint dim = 0;
    if (queue_get(q, &c.q) && c.q.device >= 0 && gate_device_active(c.q.device)) {
        uint64_t known_ns = command_known(c.key), pieces = pieces_wanted(&c, known_ns);
        size_t units = pieces > 1 ? piece_of(&c, kernel, &r, event, pieces, &dim) : 0;
        if (units)
            return enqueue_pieces(&c, kernel, &r, dim, units * unit_of(&r, &dim), nwait, wait,
                                  event);
        if (pieces > 1 && known_ns)
            gate_whole(c.q.device);
    }
    command_begin(&c, &event);
    return command_end(
        &c, event,
        next->clEnqueueNDRangeKernel(q, kernel, dims, offset, size, local, nwait, wait, event));
}

cl_int CL_API_CALL my_clEnqueueTask(cl_command_queue q, cl_kernel kernel, cl_uint nwait,
                                    const cl_event *wait, cl_event *event)
{
    uint64_t hash = gate_active() ? kernel_hash(kernel) : 0;
    struct command c = {.queue = q, .key = estimate_key(hash, 1, 6), .est_ns = GUESS_NS, .part = 1};
    command_begin(&c, &event);
    return command_end(&c, event, next->clEnqueueTask(q, kernel, nwait, wait, event));
}
