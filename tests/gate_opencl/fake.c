/* See fake.h. */
#include "fake.h"

#include <unistd.h>

#include "../test.h"
#include "base/util.h"

struct fake fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *device_thread(void *unused)
{
    pthread_mutex_lock(&fake.lock);
    for (;;) {
        while (!fake.n)
            pthread_cond_wait(&fake.changed, &fake.lock);
        struct fake_command c = fake.v[fake.first];
        pthread_mutex_unlock(&fake.lock);
        uint64_t from = monotonic_ns();
        while (monotonic_ns() - from < c.ns)
            usleep(50);
        pthread_mutex_lock(&fake.lock);
        fake.ended++;
        c.e->done = true;
        c.e->from = from;
        c.e->to = monotonic_ns();
        unsigned n = c.e->nf;
        pthread_mutex_unlock(&fake.lock);
        for (unsigned i = 0; i < n; i++)
            c.e->f[i]((cl_event)c.e, CL_COMPLETE, c.e->arg[i]);
        pthread_mutex_lock(&fake.lock);
        fake.first = (fake.first + 1) % 4096;
        fake.n--; /* last: who finishes then knows what the callbacks learnt */
        pthread_cond_broadcast(&fake.changed);
    }
    return NULL;
}

/* Few enough never to be used again. */
static struct fake_event *new_event(void)
{
    static struct fake_event all[4096];
    static atomic_uint n;
    unsigned i = atomic_fetch_add(&n, 1);
    assert_true(i < ARRAY_SIZE(all));
    return &all[i];
}

static cl_int submit(uint64_t ns, cl_event *event)
{
    struct fake_event *e = new_event();
    pthread_mutex_lock(&fake.lock);
    assert_true(fake.n < 4096);
    fake.v[(fake.first + fake.n++) % 4096] = (struct fake_command){e, ns};
    fake.most = fake.n > fake.most ? fake.n : fake.most;
    fake.submitted++;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
    if (event)
        *event = (cl_event)e;
    return CL_SUCCESS;
}

/* A call of one expression. */
#define RETURNS(value, type, name, ...)                                                            \
    static type CL_API_CALL name(__VA_ARGS__)                                                      \
    {                                                                                              \
        return value;                                                                              \
    }

static cl_int CL_API_CALL fake_nd(cl_command_queue q, cl_kernel k, cl_uint dims,
                                  const size_t *offset, const size_t *size, const size_t *local,
                                  cl_uint n, const cl_event *wait, cl_event *event)
{
    size_t from = offset ? offset[0] : 0;
    for (size_t i = from; i < from + size[0] && i < 256; i++)
        fake.covered[i]++;
    fake.kernels++;
    return submit(fake.items ? fake.ns * size[0] / fake.items : fake.ns, event);
}
RETURNS(submit(fake.ns, event), cl_int, fake_write, cl_command_queue q, cl_mem b, cl_bool block,
        size_t at, size_t n, const void *p, cl_uint nw, const cl_event *wait, cl_event *event)
static cl_int CL_API_CALL fake_finish(cl_command_queue q)
{
    pthread_mutex_lock(&fake.lock);
    while (fake.n)
        pthread_cond_wait(&fake.changed, &fake.lock);
    pthread_mutex_unlock(&fake.lock);
    return CL_SUCCESS;
}
static cl_int CL_API_CALL fake_flush(cl_command_queue q)
{
    fake.flushed = q;
    if (fake.in_flush)
        fake.in_flush();
    return CL_SUCCESS;
}
static cl_int CL_API_CALL fake_retain_queue(cl_command_queue q)
{
    atomic_fetch_add(&fake.retained, 1);
    if (fake.in_retain)
        fake.in_retain();
    return CL_SUCCESS;
}
static cl_int CL_API_CALL fake_callback(cl_event event, cl_int type,
                                        void(CL_CALLBACK *f)(cl_event, cl_int, void *), void *arg)
{
    struct fake_event *e = (struct fake_event *)event;
    pthread_mutex_lock(&fake.lock);
    bool done = e->done;
    if (!done) {
        assert_true(e->nf < 4);
        e->arg[e->nf] = arg;
        e->f[e->nf++] = f;
    }
    pthread_mutex_unlock(&fake.lock);
    if (done)
        f(event, CL_COMPLETE, arg);
    return CL_SUCCESS;
}
static cl_int CL_API_CALL fake_profiling(cl_event event, cl_profiling_info what, size_t size,
                                         void *value, size_t *ret)
{
    const struct fake_event *e = (struct fake_event *)event;
    *(cl_ulong *)value = what == CL_PROFILING_COMMAND_START ? e->from : e->to;
    return CL_SUCCESS;
}
static cl_int CL_API_CALL fake_event_info(cl_event event, cl_event_info what, size_t size,
                                          void *value, size_t *ret)
{
    *(cl_command_queue *)value = (cl_command_queue)0x1000;
    return CL_SUCCESS;
}
RETURNS(CL_SUCCESS, cl_int, fake_release_event, cl_event event)
static cl_int CL_API_CALL fake_release_queue(cl_command_queue q)
{
    atomic_fetch_sub(&fake.retained, 1);
    return CL_SUCCESS;
}
RETURNS((cl_event)new_event(), cl_event, fake_user_event, cl_context c, cl_int *ret)
RETURNS(CL_SUCCESS, cl_int, fake_set_user, cl_event e, cl_int status)
static cl_command_queue CL_API_CALL fake_queue(cl_context c, cl_device_id d,
                                               const cl_queue_properties *v, cl_int *ret)
{
    memset(fake.made, 0, sizeof(fake.made));
    bool refused = false;
    for (unsigned i = 0; v && v[i]; i += 2) {
        fake.made[i] = v[i];
        fake.made[i + 1] = v[i + 1];
        refused |= v[i] == 0x1096 && fake.refuses_hints;
    }
    if (ret)
        *ret = refused ? CL_INVALID_VALUE : CL_SUCCESS;
    return refused ? NULL : (cl_command_queue)(fake.next_queue ? fake.next_queue : 0x1000);
}
static cl_int CL_API_CALL fake_queue_info(cl_command_queue q, cl_command_queue_info what,
                                          size_t size, void *value, size_t *ret)
{
    if (what == CL_QUEUE_REFERENCE_COUNT)
        *(cl_uint *)value = fake.queue_references ? fake.queue_references : 1;
    else
        *(cl_command_queue_properties *)value = CL_QUEUE_PROFILING_ENABLE;
    return CL_SUCCESS;
}
static cl_int CL_API_CALL fake_device_info(cl_device_id d, cl_device_info what, size_t size,
                                           void *value, size_t *ret)
{
    if (what == CL_DEVICE_VENDOR_ID && d == FAKE_NVIDIA) {
        *(cl_uint *)value = 0x10DE;
        return CL_SUCCESS;
    }
    if (what == CL_DEVICE_TYPE && d == FAKE_PROCESSOR) {
        *(cl_device_type *)value = CL_DEVICE_TYPE_CPU;
        return CL_SUCCESS;
    }
    if (what == CL_DEVICE_VERSION) {
        strcpy(value, fake.old ? "OpenCL 1.0 made up" : "OpenCL 1.1 made up");
        return CL_SUCCESS;
    }
    if (what != CL_DEVICE_NAME)
        return CL_INVALID_VALUE;
    strcpy(value, "made up");
    return CL_SUCCESS;
}
RETURNS(CL_INVALID_VALUE, cl_int, fake_platform_info, cl_platform_id p, cl_platform_info what,
        size_t size, void *value, size_t *ret)
RETURNS(CL_INVALID_VALUE, cl_int, fake_devices, cl_platform_id p, cl_device_type t, cl_uint n,
        cl_device_id *v, cl_uint *ret)
const char *const fake_sources[3] = {
    "kernel void f(global uint *v) { v[get_global_id(0)] = 1; }",
    "kernel void f(global uint *v) { v[get_global_id(0)] = get_global_size(0); }",
    "kernel __attribute__((reqd_work_group_size(4, 1, 1))) void f(global uint *v) { v[0] = 1; }",
};
static cl_program CL_API_CALL fake_program(cl_context c, cl_uint n, const char **texts,
                                           const size_t *sizes, cl_int *ret)
{
    uintptr_t i = 0;
    while (i + 1 < ARRAY_SIZE(fake_sources) && texts[0] != fake_sources[i])
        i++;
    return (cl_program)(0x2000 + 8 * i);
}
RETURNS(CL_SUCCESS, cl_int, fake_build, cl_program p, cl_uint n, const cl_device_id *v,
        const char *o, void(CL_CALLBACK *f)(cl_program, void *), void *arg)
RETURNS((cl_kernel)((char *)p + 0x1000), cl_kernel, fake_kernel, cl_program p, const char *name,
        cl_int *ret)
static cl_int CL_API_CALL fake_kernel_info(cl_kernel k, cl_kernel_info what, size_t size,
                                           void *value, size_t *ret)
{
    if (what == CL_KERNEL_FUNCTION_NAME)
        strcpy(value, "f");
    else
        *(cl_program *)value = (cl_program)((char *)k - 0x1000);
    return CL_SUCCESS;
}

/* Each platform has its own function. */
RETURNS(1, cl_int, fake_buffer_1, cl_uint n, cl_command_queue *queues, void *buffer, cl_uint nwait,
        const cl_event *wait, cl_event *event)
RETURNS(2, cl_int, fake_buffer_2, cl_uint n, cl_command_queue *queues, void *buffer, cl_uint nwait,
        const cl_event *wait, cl_event *event)
static void *CL_API_CALL fake_extension(cl_platform_id p, const char *name)
{
    if (strcmp(name, "clEnqueueCommandBufferKHR") != 0)
        return NULL;
    return p == FAKE_PLATFORM(1) ? (void *)fake_buffer_1 : (void *)fake_buffer_2;
}

void fake_begin(cl_icd_dispatch *d)
{
    pthread_t t;
    d->clEnqueueNDRangeKernel = fake_nd;
    d->clEnqueueWriteBuffer = fake_write;
    d->clFinish = fake_finish;
    d->clFlush = fake_flush;
    d->clSetEventCallback = fake_callback;
    d->clGetEventProfilingInfo = fake_profiling;
    d->clGetEventInfo = fake_event_info;
    d->clReleaseEvent = fake_release_event;
    d->clCreateUserEvent = fake_user_event;
    d->clSetUserEventStatus = fake_set_user;
    d->clCreateCommandQueueWithProperties = fake_queue;
    d->clReleaseCommandQueue = fake_release_queue;
    d->clRetainCommandQueue = fake_retain_queue;
    d->clGetCommandQueueInfo = fake_queue_info;
    d->clGetDeviceInfo = fake_device_info;
    d->clGetPlatformInfo = fake_platform_info;
    d->clGetDeviceIDs = fake_devices;
    d->clCreateProgramWithSource = fake_program;
    d->clBuildProgram = fake_build;
    d->clCreateKernel = fake_kernel;
    d->clGetKernelInfo = fake_kernel_info;
    d->clGetExtensionFunctionAddressForPlatform = fake_extension;
    pthread_create(&t, NULL, device_thread, NULL);
}
