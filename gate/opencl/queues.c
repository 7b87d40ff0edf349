/* Queues: which device each is of, which may have commands that the device has not got yet, and the
 * calls that make, flush and end them.
 *
 * A queue measures times, so that commands can be timed; the program sees what it asked for. One
 * that the device refuses because of a priority or throttle hint is made without: cede sets
 * priorities. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate/gate.h"
#include "gate/opencl/layer.h"
#include "gate/opencl/table.h"

/* device_level */
#define LEVEL_GATE  1
#define LEVEL_PIECE 2

static struct table queues = TABLE(struct queue);
static struct table unflushed = TABLE(char);

bool queue_get(cl_command_queue q, struct queue *out)
{
    return table_get(&queues, q, out);
}

static void queue_forget(cl_command_queue q)
{
    struct queue old;
    if (table_remove(&queues, q, &old))
        free(old.asked);
}

/* A child of fork() knows none: another thread may have been in the middle of a table. */
void queues_in_child(void)
{
    table_reset(&queues);
    table_reset(&unflushed);
}

/* ---- devices --------------------------------------------------------------------------------- */

static cl_device_id root_of(cl_device_id d)
{
    cl_device_id parent;
    while (next->clGetDeviceInfo(d, CL_DEVICE_PARENT_DEVICE, sizeof(cl_device_id), &parent, NULL) ==
               CL_SUCCESS &&
           parent)
        d = parent;
    return d;
}

static bool is_set(const char *name)
{
    const char *asked = secure_getenv(name);
    return asked && asked[0] == '1';
}

bool kernels_may_be_cut(void)
{
    static int allowed = -1;
    int a = __atomic_load_n(&allowed, __ATOMIC_RELAXED);
    if (a < 0) {
        const char *no = secure_getenv("CEDE_GATE_SLICE");
        a = !(no && no[0] == '0');
        __atomic_store_n(&allowed, a, __ATOMIC_RELAXED);
    }
    return a;
}

/* Scheduled from outside the program, so nothing of its queues is changed unless it asks for that.
 * NVIDIA's GPUs are cede's, which does it better. Processors are Linux's to share out, which stops
 * a kernel in its middle: there the gate makes requests of some milliseconds faster and shorter
 * ones slower, and costs every command time (docs/gate.md). */
static bool is_steered(cl_device_id d)
{
    enum { NVIDIA = 0x10DE };
    cl_uint vendor = 0;
    cl_device_type type = 0;
    if (next->clGetDeviceInfo(d, CL_DEVICE_TYPE, sizeof(type), &type, NULL) == CL_SUCCESS &&
        type & CL_DEVICE_TYPE_CPU)
        return !is_set("CEDE_GATE_CPU");
    return next->clGetDeviceInfo(d, CL_DEVICE_VENDOR_ID, sizeof(vendor), &vendor, NULL) ==
               CL_SUCCESS &&
           vendor == NVIDIA && !is_set("CEDE_GATE_NVIDIA");
}

/* Names it the same in every program: by its PCI address, else by its index in the platform.
 */
static int queue_device_number(cl_device_id device)
{
    enum { PCI_BUS_INFO = 0x410F }; /* CL_DEVICE_PCI_BUS_INFO_KHR */
    cl_device_id d = root_of(device), all[64];
    cl_platform_id platform = NULL;
    cl_uint n = 0, index = 0, bus[4];
    char name[64] = "OpenCL device", maker[24] = "", id[64];
    /* A name that does not fit is an error: then the device's kind has to do. */
    next->clGetDeviceInfo(d, CL_DEVICE_NAME, sizeof(name) - 1, name, NULL);
    next->clGetDeviceInfo(d, CL_DEVICE_PLATFORM, sizeof(cl_platform_id), &platform, NULL);
    char text[256] = "";
    if (next->clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(text) - 1, text, NULL) ==
        CL_SUCCESS)
        snprintf(maker, sizeof(maker), "%s", text);
    next->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 64, all, &n);
    while (index < n && index < 64 && all[index] != d)
        index++;
    if (next->clGetDeviceInfo(d, PCI_BUS_INFO, sizeof(bus), bus, NULL) == CL_SUCCESS)
        snprintf(id, sizeof(id), "pci %04x:%02x:%02x.%x", bus[0], bus[1], bus[2], bus[3]);
    else
        snprintf(id, sizeof(id), "%s %u", maker, index);
    return gate_device_add(name, id, kernels_may_be_cut() ? LEVEL_PIECE : LEVEL_GATE);
}

/* Since OpenCL 1.1. */
static bool takes_offsets(cl_device_id d)
{
    char version[128] = "";
    return next->clGetDeviceInfo(d, CL_DEVICE_VERSION, sizeof(version) - 1, version, NULL) !=
               CL_SUCCESS ||
           strncmp(version, "OpenCL 1.0 ", 11) != 0;
}

/* ---- queues ---------------------------------------------------------------------------------- */

static bool queue_is_hint(cl_queue_properties p)
{
    return p == 0x1096 || p == 0x1097; /* CL_QUEUE_PRIORITY_KHR, CL_QUEUE_THROTTLE_KHR */
}

/* The list as the device shall get it: with profiling; without hints if so. The caller's to free.
 */
static cl_queue_properties *queue_properties(const cl_queue_properties *asked, bool profile,
                                             bool hints)
{
    size_t n = 0, k = 0;
    while (asked && asked[n])
        n += 2;
    cl_queue_properties *v = calloc(n + 3, sizeof(*v));
    bool had = false;
    for (size_t i = 0; i < n && v; i += 2) {
        if (!hints && queue_is_hint(asked[i]))
            continue;
        bool flags = asked[i] == CL_QUEUE_PROPERTIES;
        had |= flags;
        v[k++] = asked[i];
        v[k++] = asked[i + 1] | (flags && profile ? CL_QUEUE_PROFILING_ENABLE : 0);
    }
    if (v && profile && !had) {
        v[k++] = CL_QUEUE_PROPERTIES;
        v[k++] = CL_QUEUE_PROFILING_ENABLE;
    }
    return v;
}

static void queue_add(cl_command_queue q, cl_device_id device, cl_command_queue_properties flags,
                      const cl_queue_properties *asked, bool timed)
{
    cl_uint units = 0;
    next->clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units, NULL);
    struct queue x = {
        .compute_units = units ? units : 1,
        .device = flags & CL_QUEUE_ON_DEVICE ? -1 : queue_device_number(device),
        .offsets = takes_offsets(device),
        .in_order = !(flags & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE),
        .profiled = flags & CL_QUEUE_PROFILING_ENABLE,
        .timed = timed,
        .asked = asked ? queue_properties(asked, false, true) : NULL,
    };
    if (!table_put(&queues, q, &x))
        free(x.asked);
}

cl_command_queue CL_API_CALL my_clCreateCommandQueue(cl_context context, cl_device_id device,
                                                     cl_command_queue_properties flags, cl_int *ret)
{
    bool timed = true, steered = is_steered(device);
    cl_command_queue q =
        steered
            ? NULL
            : next->clCreateCommandQueue(context, device, flags | CL_QUEUE_PROFILING_ENABLE, ret);
    if (!q) {
        q = next->clCreateCommandQueue(context, device, flags, ret);
        timed = flags & CL_QUEUE_PROFILING_ENABLE;
    }
    queue_forget(q); /* one of this handle whose end was not seen */
    if (q && !steered)
        queue_add(q, device, flags, NULL, timed);
    return q;
}

cl_command_queue CL_API_CALL my_clCreateCommandQueueWithProperties(cl_context context,
                                                                   cl_device_id device,
                                                                   const cl_queue_properties *asked,
                                                                   cl_int *ret)
{
    cl_command_queue_properties flags = 0;
    for (const cl_queue_properties *p = asked; p && *p; p += 2)
        flags = *p == CL_QUEUE_PROPERTIES ? p[1] : flags;
    /* As much of it as the device takes; last what was asked for, for its error. */
    static const struct {
        bool profile, hints;
    } tries[] = {{true, true}, {true, false}, {false, false}};
    cl_command_queue q = NULL;
    bool timed = false, steered = is_steered(device);
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]) && !q; i++) {
        if (steered || flags & CL_QUEUE_ON_DEVICE)
            break;
        cl_queue_properties *v = queue_properties(asked, tries[i].profile, tries[i].hints);
        cl_int r;
        q = v ? next->clCreateCommandQueueWithProperties(context, device, v, &r) : NULL;
        timed = tries[i].profile || (flags & CL_QUEUE_PROFILING_ENABLE);
        free(v);
    }
    if (!q)
        q = next->clCreateCommandQueueWithProperties(context, device, asked, ret);
    else if (ret)
        *ret = CL_SUCCESS;
    queue_forget(q);
    if (q && !steered)
        queue_add(q, device, flags, asked, timed);
    return q;
}

cl_int CL_API_CALL my_clReleaseCommandQueue(cl_command_queue q)
{
    cl_uint count = 0;
    /* Commands that still run hold the queue too (PoCL), so the program's last release need not see
     * a count of 1. Every release flushes. */
    table_remove(&unflushed, q, NULL);
    if (next->clGetCommandQueueInfo(q, CL_QUEUE_REFERENCE_COUNT, sizeof(count), &count, NULL) ==
            CL_SUCCESS &&
        count == 1)
        queue_forget(q);
    return next->clReleaseCommandQueue(q);
}

cl_int CL_API_CALL my_clGetCommandQueueInfo(cl_command_queue q, cl_command_queue_info what,
                                            size_t size, void *value, size_t *size_ret)
{
    struct queue x;
    bool known =
        (what == CL_QUEUE_PROPERTIES || what == CL_QUEUE_PROPERTIES_ARRAY) && queue_get(q, &x);
    if (known && what == CL_QUEUE_PROPERTIES) {
        cl_int r = next->clGetCommandQueueInfo(q, what, size, value, size_ret);
        if (r == CL_SUCCESS && value && !x.profiled)
            *(cl_command_queue_properties *)value &=
                ~(cl_command_queue_properties)CL_QUEUE_PROFILING_ENABLE;
        return r;
    }
    if (!known)
        return next->clGetCommandQueueInfo(q, what, size, value, size_ret);
    size_t n = 0;
    while (x.asked && x.asked[n])
        n += 2;
    n = x.asked ? (n + 1) * sizeof(*x.asked) : 0;
    if (value && size < n)
        return CL_INVALID_VALUE;
    if (value && n)
        memcpy(value, x.asked, n);
    if (size_ret)
        *size_ret = n;
    return CL_SUCCESS;
}

/* Times of commands in a queue that was not to measure any. */
cl_int CL_API_CALL my_clGetEventProfilingInfo(cl_event e, cl_profiling_info what, size_t size,
                                              void *value, size_t *size_ret)
{
    cl_command_queue q = NULL;
    struct queue x;
    if (next->clGetEventInfo(e, CL_EVENT_COMMAND_QUEUE, sizeof(cl_command_queue), &q, NULL) ==
            CL_SUCCESS &&
        q && queue_get(q, &x) && !x.profiled)
        return CL_PROFILING_INFO_NOT_AVAILABLE;
    return next->clGetEventProfilingInfo(e, what, size, value, size_ret);
}

/* ---- flushing -------------------------------------------------------------------------------- */

cl_int CL_API_CALL my_clFlush(cl_command_queue q)
{
    table_remove(&unflushed, q, NULL);
    return next->clFlush(q);
}

cl_int CL_API_CALL my_clFinish(cl_command_queue q)
{
    table_remove(&unflushed, q, NULL);
    return next->clFinish(q);
}

void queue_submitted(cl_command_queue q)
{
    table_put(&unflushed, q, &(char){0});
}

static void keep_queue(const void *handle)
{
    next->clRetainCommandQueue((cl_command_queue)handle);
}

/* What is queued elsewhere has to move too, or waiting for room would be in vain. Without a lock:
 * an implementation may run commands and callbacks of the program in its clFlush(). */
void queues_flush(void *unused)
{
    const void *v[32];
    size_t n;
    do {
        n = table_take(&unflushed, v, sizeof(v) / sizeof(v[0]), keep_queue);
        for (size_t i = 0; i < n; i++) {
            next->clFlush((cl_command_queue)v[i]);
            next->clReleaseCommandQueue((cl_command_queue)v[i]);
        }
    } while (n == sizeof(v) / sizeof(v[0]));
}
