/* What is known of a program's queues, programs, kernels and host events, and the calls that make
 * and end them.
 *
 * Queues get profiling, so that commands can be timed; the program sees what it asked for. A queue
 * that the device refuses because of a priority or throttle hint is made without: cede sets
 * priorities. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate/estimate.h"
#include "gate/gate.h"
#include "gate/opencl/layer.h"
#include "gate/opencl/proof.h"
#include "gate/opencl/table.h"

#define LEVEL_SLICES 2 /* device_level */

struct program {
    char *source; /* NULL: not known */
    char *options;
};

static struct table queues = TABLE(struct queue);
static struct table programs = TABLE(struct program);
static struct table kernels = TABLE(struct kernel);
static struct table host_events = TABLE(char);
static __thread unsigned callbacks;

bool in_callback(void)
{
    return callbacks > 0;
}

bool queue_get(cl_command_queue q, struct queue *out)
{
    return table_get(&queues, q, out);
}

bool kernel_get(cl_kernel k, struct kernel *out)
{
    return table_get(&kernels, k, out);
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

/* Names it the same in every program: by its place on the bus, else by its place in the platform.
 */
static int device_number(cl_device_id device)
{
    enum { PCI_BUS_INFO = 0x410F, NVIDIA = 0x10DE }; /* CL_DEVICE_PCI_BUS_INFO_KHR; a vendor */
    cl_device_id d = root_of(device), all[64];
    cl_platform_id platform = NULL;
    cl_uint n = 0, place = 0, bus[4], maker_id = 0;
    char name[64] = "OpenCL device", maker[24] = "", id[64];
    next->clGetDeviceInfo(d, CL_DEVICE_VENDOR_ID, sizeof(maker_id), &maker_id, NULL);
    if (maker_id == NVIDIA)
        return -1;
    /* A name that does not fit is an error: then the device's kind has to do. */
    next->clGetDeviceInfo(d, CL_DEVICE_NAME, sizeof(name) - 1, name, NULL);
    next->clGetDeviceInfo(d, CL_DEVICE_PLATFORM, sizeof(cl_platform_id), &platform, NULL);
    char text[256] = "";
    if (next->clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(text) - 1, text, NULL) ==
        CL_SUCCESS)
        snprintf(maker, sizeof(maker), "%s", text);
    next->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 64, all, &n);
    while (place < n && place < 64 && all[place] != d)
        place++;
    if (next->clGetDeviceInfo(d, PCI_BUS_INFO, sizeof(bus), bus, NULL) == CL_SUCCESS)
        snprintf(id, sizeof(id), "pci %04x:%02x:%02x.%x", bus[0], bus[1], bus[2], bus[3]);
    else
        snprintf(id, sizeof(id), "%s %u", maker, place);
    return gate_device_add(name, id, LEVEL_SLICES);
}

/* ---- queues ---------------------------------------------------------------------------------- */

static bool is_hint(cl_queue_properties p)
{
    return p == 0x1096 || p == 0x1097; /* CL_QUEUE_PRIORITY_KHR, CL_QUEUE_THROTTLE_KHR */
}

/* The list as the device shall get it: with profiling; without hints if so. The caller's to free.
 */
static cl_queue_properties *properties(const cl_queue_properties *asked, bool profile, bool hints)
{
    size_t n = 0, k = 0;
    while (asked && asked[n])
        n += 2;
    cl_queue_properties *v = calloc(n + 3, sizeof(*v));
    bool had = false;
    for (size_t i = 0; i < n && v; i += 2) {
        if (!hints && is_hint(asked[i]))
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
        .device = flags & CL_QUEUE_ON_DEVICE ? -1 : device_number(device),
        .in_order = !(flags & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE),
        .profiled = flags & CL_QUEUE_PROFILING_ENABLE,
        .timed = timed,
        .asked = asked ? properties(asked, false, true) : NULL,
    };
    struct queue old; /* one whose end was not seen */
    if (table_remove(&queues, q, &old))
        free(old.asked);
    if (!table_put(&queues, q, &x))
        free(x.asked);
}

static cl_command_queue CL_API_CALL my_clCreateCommandQueue(cl_context context, cl_device_id device,
                                                            cl_command_queue_properties flags,
                                                            cl_int *ret)
{
    bool timed = true;
    cl_command_queue q =
        next->clCreateCommandQueue(context, device, flags | CL_QUEUE_PROFILING_ENABLE, ret);
    if (!q) {
        q = next->clCreateCommandQueue(context, device, flags, ret);
        timed = flags & CL_QUEUE_PROFILING_ENABLE;
    }
    if (q)
        queue_add(q, device, flags, NULL, timed);
    return q;
}

static cl_command_queue CL_API_CALL my_clCreateCommandQueueWithProperties(
    cl_context context, cl_device_id device, const cl_queue_properties *asked, cl_int *ret)
{
    cl_command_queue_properties flags = 0;
    for (const cl_queue_properties *p = asked; p && *p; p += 2)
        flags = *p == CL_QUEUE_PROPERTIES ? p[1] : flags;
    /* As much of it as the device takes; last what was asked for, for its error. */
    static const struct {
        bool profile, hints;
    } tries[] = {{true, true}, {true, false}, {false, false}};
    cl_command_queue q = NULL;
    bool timed = false;
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]) && !q; i++) {
        if (flags & CL_QUEUE_ON_DEVICE)
            break;
        cl_queue_properties *v = properties(asked, tries[i].profile, tries[i].hints);
        cl_int r;
        q = v ? next->clCreateCommandQueueWithProperties(context, device, v, &r) : NULL;
        timed = tries[i].profile || (flags & CL_QUEUE_PROFILING_ENABLE);
        free(v);
    }
    if (!q)
        q = next->clCreateCommandQueueWithProperties(context, device, asked, ret);
    else if (ret)
        *ret = CL_SUCCESS;
    if (q)
        queue_add(q, device, flags, asked, timed);
    return q;
}

static cl_int CL_API_CALL my_clReleaseCommandQueue(cl_command_queue q)
{
    cl_uint count = 0;
    struct queue x;
    /* Commands that still run hold the queue too (PoCL), so the last release of the program's is
     * not told by a count of 1. Releasing flushes, whichever it is. */
    enqueue_forget(q);
    if (next->clGetCommandQueueInfo(q, CL_QUEUE_REFERENCE_COUNT, sizeof(count), &count, NULL) ==
            CL_SUCCESS &&
        count == 1 && table_remove(&queues, q, &x))
        free(x.asked);
    return next->clReleaseCommandQueue(q);
}

static cl_int CL_API_CALL my_clGetCommandQueueInfo(cl_command_queue q, cl_command_queue_info what,
                                                   size_t size, void *value, size_t *size_ret)
{
    struct queue x;
    bool ours =
        (what == CL_QUEUE_PROPERTIES || what == CL_QUEUE_PROPERTIES_ARRAY) && queue_get(q, &x);
    if (ours && what == CL_QUEUE_PROPERTIES) {
        cl_int r = next->clGetCommandQueueInfo(q, what, size, value, size_ret);
        if (r == CL_SUCCESS && value && !x.profiled)
            *(cl_command_queue_properties *)value &=
                ~(cl_command_queue_properties)CL_QUEUE_PROFILING_ENABLE;
        return r;
    }
    if (!ours)
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
static cl_int CL_API_CALL my_clGetEventProfilingInfo(cl_event e, cl_profiling_info what,
                                                     size_t size, void *value, size_t *size_ret)
{
    cl_command_queue q = NULL;
    struct queue x;
    if (next->clGetEventInfo(e, CL_EVENT_COMMAND_QUEUE, sizeof(cl_command_queue), &q, NULL) ==
            CL_SUCCESS &&
        q && queue_get(q, &x) && !x.profiled)
        return CL_PROFILING_INFO_NOT_AVAILABLE;
    return next->clGetEventProfilingInfo(e, what, size, value, size_ret);
}

/* ---- host events and callbacks --------------------------------------------------------------- */

static cl_event CL_API_CALL my_clCreateUserEvent(cl_context context, cl_int *ret)
{
    cl_event e = next->clCreateUserEvent(context, ret);
    if (e && table_put(&host_events, e, &(char){0}))
        gate_host_waits(1);
    return e;
}

static void host_event_over(cl_event e)
{
    if (table_remove(&host_events, e, NULL))
        gate_host_waits(-1);
}

static cl_int CL_API_CALL my_clSetUserEventStatus(cl_event e, cl_int status)
{
    if (gate_active() && !in_callback())
        gate_pass_all();
    host_event_over(e);
    return next->clSetUserEventStatus(e, status);
}

static cl_int CL_API_CALL my_clReleaseEvent(cl_event e)
{
    cl_uint count = 0;
    if (host_events.n && table_get(&host_events, e, &(char){0}) &&
        next->clGetEventInfo(e, CL_EVENT_REFERENCE_COUNT, sizeof(count), &count, NULL) ==
            CL_SUCCESS &&
        count == 1)
        host_event_over(e);
    return next->clReleaseEvent(e);
}

struct callback {
    void(CL_CALLBACK *f)(cl_event, cl_int, void *);
    void *arg;
};

static void CL_CALLBACK called_back(cl_event e, cl_int status, void *arg)
{
    struct callback c = *(struct callback *)arg;
    free(arg);
    callbacks++;
    c.f(e, status, c.arg);
    callbacks--;
}

static cl_int CL_API_CALL my_clSetEventCallback(cl_event e, cl_int type,
                                                void(CL_CALLBACK *f)(cl_event, cl_int, void *),
                                                void *arg)
{
    struct callback *c = f ? malloc(sizeof(*c)) : NULL;
    if (!c)
        return next->clSetEventCallback(e, type, f, arg);
    *c = (struct callback){f, arg};
    cl_int r = next->clSetEventCallback(e, type, called_back, c);
    if (r != CL_SUCCESS)
        free(c);
    return r;
}

/* ---- programs and kernels -------------------------------------------------------------------- */

/* A new program may have the handle of one whose end was not seen (kernels keep programs). */
static void program_forget(cl_program p)
{
    struct program old;
    if (table_remove(&programs, p, &old))
        free(old.source), free(old.options);
}

static cl_program CL_API_CALL my_clCreateProgramWithBinary(cl_context context, cl_uint n,
                                                           const cl_device_id *devices,
                                                           const size_t *sizes,
                                                           const unsigned char **binaries,
                                                           cl_int *status, cl_int *ret)
{
    cl_program p =
        next->clCreateProgramWithBinary(context, n, devices, sizes, binaries, status, ret);
    program_forget(p);
    return p;
}

static cl_program CL_API_CALL my_clCreateProgramWithBuiltInKernels(cl_context context, cl_uint n,
                                                                   const cl_device_id *devices,
                                                                   const char *names, cl_int *ret)
{
    cl_program p = next->clCreateProgramWithBuiltInKernels(context, n, devices, names, ret);
    program_forget(p);
    return p;
}

static cl_program CL_API_CALL my_clCreateProgramWithIL(cl_context context, const void *il,
                                                       size_t size, cl_int *ret)
{
    cl_program p = next->clCreateProgramWithIL(context, il, size, ret);
    program_forget(p);
    return p;
}

static cl_program CL_API_CALL my_clLinkProgram(cl_context context, cl_uint n,
                                               const cl_device_id *devices, const char *options,
                                               cl_uint ninput, const cl_program *input,
                                               void(CL_CALLBACK *f)(cl_program, void *), void *arg,
                                               cl_int *ret)
{
    cl_program p = next->clLinkProgram(context, n, devices, options, ninput, input, f, arg, ret);
    program_forget(p);
    return p;
}

static cl_program CL_API_CALL my_clCreateProgramWithSource(cl_context context, cl_uint n,
                                                           const char **texts, const size_t *sizes,
                                                           cl_int *ret)
{
    cl_program p = next->clCreateProgramWithSource(context, n, texts, sizes, ret);
    size_t total = 1;
    for (cl_uint i = 0; p && i < n; i++)
        total += sizes && sizes[i] ? sizes[i] : strlen(texts[i]);
    program_forget(p);
    struct program x = {.source = p ? malloc(total) : NULL};
    if (!x.source)
        return p;
    char *to = x.source;
    for (cl_uint i = 0; i < n; i++) {
        size_t k = sizes && sizes[i] ? sizes[i] : strlen(texts[i]);
        memcpy(to, texts[i], k);
        to += k;
    }
    *to = '\0';
    if (strlen(x.source) != total - 1 || !table_put(&programs, p, &x))
        free(x.source);
    return p;
}

static cl_int CL_API_CALL my_clBuildProgram(cl_program p, cl_uint n, const cl_device_id *devices,
                                            const char *options,
                                            void(CL_CALLBACK *f)(cl_program, void *), void *arg)
{
    struct program x;
    if (table_remove(&programs, p, &x)) {
        free(x.options);
        x.options = strdup(options ? options : "");
        if (!x.options || !table_put(&programs, p, &x))
            free(x.source), free(x.options);
    }
    return next->clBuildProgram(p, n, devices, options, f, arg);
}

static cl_int CL_API_CALL my_clReleaseProgram(cl_program p)
{
    cl_uint count = 0;
    struct program x;
    if (next->clGetProgramInfo(p, CL_PROGRAM_REFERENCE_COUNT, sizeof(count), &count, NULL) ==
            CL_SUCCESS &&
        count == 1 && table_remove(&programs, p, &x))
        free(x.source), free(x.options);
    return next->clReleaseProgram(p);
}

static void kernel_add(cl_kernel k)
{
    char name[256] = "";
    cl_program p = NULL;
    struct kernel x = {0};
    struct program of;
    table_remove(&kernels, k, NULL);
    if (!k || next->clGetKernelInfo(k, CL_KERNEL_FUNCTION_NAME, sizeof(name) - 1, name, NULL) !=
                  CL_SUCCESS)
        return;
    for (const char *c = name; *c; c++)
        x.name = estimate_key(x.name, (uint64_t)*c, 3);
    next->clGetKernelInfo(k, CL_KERNEL_PROGRAM, sizeof(cl_program), &p, NULL);
    /* Programs of one source and other options have kernels of other lengths. */
    x.name = estimate_key(x.name, (uintptr_t)p, 4);
    if (table_get(&programs, p, &of) && of.options) {
        struct proof proof;
        proof_of(of.source, of.options, name, &proof);
        x.sliceable = proof.sliceable;
        x.needs_local_size = proof.needs_local_size;
    }
    table_put(&kernels, k, &x);
}

static cl_kernel CL_API_CALL my_clCreateKernel(cl_program p, const char *name, cl_int *ret)
{
    cl_kernel k = next->clCreateKernel(p, name, ret);
    kernel_add(k);
    return k;
}

static cl_int CL_API_CALL my_clCreateKernelsInProgram(cl_program p, cl_uint n, cl_kernel *v,
                                                      cl_uint *n_ret)
{
    cl_uint made = 0;
    cl_int r = next->clCreateKernelsInProgram(p, n, v, &made);
    for (cl_uint i = 0; r == CL_SUCCESS && v && i < made && i < n; i++)
        kernel_add(v[i]);
    if (n_ret)
        *n_ret = made;
    return r;
}

static cl_kernel CL_API_CALL my_clCloneKernel(cl_kernel from, cl_int *ret)
{
    cl_kernel k = next->clCloneKernel(from, ret);
    kernel_add(k);
    return k;
}

static cl_int CL_API_CALL my_clReleaseKernel(cl_kernel k)
{
    cl_uint count = 0;
    if (next->clGetKernelInfo(k, CL_KERNEL_REFERENCE_COUNT, sizeof(count), &count, NULL) ==
            CL_SUCCESS &&
        count == 1)
        table_remove(&kernels, k, NULL);
    return next->clReleaseKernel(k);
}

/* ---- extensions ------------------------------------------------------------------------------ */

static void *extension(const char *name, void *real)
{
    if (real && name && strcmp(name, "clCreateCommandQueueWithPropertiesKHR") == 0 &&
        next->clCreateCommandQueueWithProperties)
        return (void *)my_clCreateCommandQueueWithProperties;
    return enqueue_extension(name, real);
}

static void *CL_API_CALL my_clGetExtensionFunctionAddressForPlatform(cl_platform_id platform,
                                                                     const char *name)
{
    void *real = next->clGetExtensionFunctionAddressForPlatform(platform, name);
    void *ours = extension(name, real);
    return ours ? ours : real;
}

static void *CL_API_CALL my_clGetExtensionFunctionAddress(const char *name)
{
    void *real = next->clGetExtensionFunctionAddress(name);
    void *ours = extension(name, real);
    return ours ? ours : real;
}

#define TAKE(name) d->name = d->name ? my_##name : NULL
void objects_fill(cl_icd_dispatch *d)
{
    TAKE(clCreateCommandQueue);
    TAKE(clCreateCommandQueueWithProperties);
    TAKE(clReleaseCommandQueue);
    TAKE(clGetCommandQueueInfo);
    TAKE(clGetEventProfilingInfo);
    TAKE(clCreateUserEvent);
    TAKE(clSetUserEventStatus);
    TAKE(clReleaseEvent);
    TAKE(clSetEventCallback);
    TAKE(clCreateProgramWithSource);
    TAKE(clCreateProgramWithBinary);
    TAKE(clCreateProgramWithBuiltInKernels);
    TAKE(clCreateProgramWithIL);
    TAKE(clLinkProgram);
    TAKE(clBuildProgram);
    TAKE(clReleaseProgram);
    TAKE(clCreateKernel);
    TAKE(clCreateKernelsInProgram);
    TAKE(clCloneKernel);
    TAKE(clReleaseKernel);
    TAKE(clGetExtensionFunctionAddressForPlatform);
    TAKE(clGetExtensionFunctionAddress);
}
