/* An OpenCL program that makes random use of one: queues of both orders, events across them, host
 * events set by this and by another thread and in callbacks, blocking reads, maps, markers,
 * barriers, kernels that can be cut and that cannot. Each buffer has its model on the host, and all
 * that is read is compared with it.
 *
 * usage: mix FIRST_SEED COUNT    prints a line for each seed; exit status 1: a result is wrong */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "program.h"

#define BUFFERS 3
#define QUEUES  3
#define OPS     40

static const char source[] =
    "__kernel void scale(__global uint *v, uint a, uint b, uint n) {\n"
    "    uint i = get_global_id(0), x = v[i];\n"
    "    for (uint k = 0; k < n; k++) x = x * a + b;\n"
    "    v[i] = x;\n"
    "}\n"
    "__kernel void blend(__global uint *v, __global const uint *w) {\n"
    "    uint i = get_global_id(0);\n"
    "    v[i] = (v[i] ^ w[i]) + i;\n"
    "}\n"
    "__kernel void whole(__global uint *v) {\n" /* knows its groups: cannot be cut */
    "    __local uint t[16];\n"
    "    t[get_local_id(0)] = v[get_global_id(0)];\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    v[get_global_id(0)] = t[15 - get_local_id(0)] + get_group_id(0) + get_global_size(0);\n"
    "}\n";

static cl_program program;

struct run {
    size_t n; /* items of every buffer */
    unsigned nq;
    cl_command_queue q[QUEUES];
    cl_mem b[BUFFERS];
    cl_event last[BUFFERS]; /* the command that touched it last */
    uint32_t *model[BUFFERS], *host[OPS + BUFFERS];
    unsigned nhost;
    cl_event waiting[OPS]; /* host events that are not set */
    unsigned nwaiting;
    atomic_uint called;
    unsigned expected;
    pthread_t setter;
    bool setting;
};

static uint32_t below(uint32_t n)
{
    return (uint32_t)rnd(n);
}

static void CL_CALLBACK count(cl_event e, cl_int status, void *arg)
{
    atomic_fetch_add((atomic_uint *)arg, status == CL_COMPLETE);
}

static void CL_CALLBACK set_event(cl_event e, cl_int status, void *arg)
{
    OK(clSetUserEventStatus(arg, CL_COMPLETE));
    OK(clReleaseEvent(arg));
}

/* Takes over the new event of buffer i. */
static void touched(struct run *r, unsigned i, cl_event e)
{
    OK(clRetainEvent(e));
    if (r->last[i])
        OK(clReleaseEvent(r->last[i]));
    r->last[i] = e;
}

static void *set_later(void *arg)
{
    usleep(300);
    set_event(NULL, 0, arg);
    return NULL;
}

/* No host event is left that the program has to set. */
static void set_all(struct run *r)
{
    while (r->nwaiting)
        set_event(NULL, 0, r->waiting[--r->nwaiting]);
    if (r->setting)
        pthread_join(r->setter, NULL);
    r->setting = false;
}

static void check(struct run *r, unsigned i, const uint32_t *got)
{
    for (size_t k = 0; k < r->n; k++) {
        if (got[k] != r->model[i][k]) {
            printf("buffer %u item %zu: %u instead of %u\n", i, k, got[k], r->model[i][k]);
            exit(1);
        }
    }
}

static void kernel_op(struct run *r, cl_command_queue q, unsigned kind, unsigned i, unsigned j,
                      cl_uint nwait, const cl_event *wait, cl_event *e)
{
    static const char *const names[] = {"scale", "blend", "whole"};
    cl_int ret;
    cl_kernel k = clCreateKernel(program, names[kind], &ret);
    OK(ret);
    OK(clSetKernelArg(k, 0, sizeof(cl_mem), &r->b[i]));
    uint32_t *v = r->model[i];
    if (kind == 0) {
        cl_uint a = below(1000) * 2 + 1, b = below(1000), n = below(8) ? 3 : 200;
        OK(clSetKernelArg(k, 1, sizeof(a), &a));
        OK(clSetKernelArg(k, 2, sizeof(b), &b));
        OK(clSetKernelArg(k, 3, sizeof(n), &n));
        for (size_t x = 0; x < r->n; x++) {
            for (cl_uint y = 0; y < n; y++)
                v[x] = v[x] * a + b;
        }
    } else if (kind == 1) {
        OK(clSetKernelArg(k, 1, sizeof(cl_mem), &r->b[j]));
        for (size_t x = 0; x < r->n; x++)
            v[x] = (v[x] ^ r->model[j][x]) + (uint32_t)x;
    } else {
        for (size_t g = 0; g < r->n / 16; g++) {
            uint32_t t[16];
            memcpy(t, v + g * 16, sizeof(t));
            for (size_t x = 0; x < 16; x++)
                v[g * 16 + x] = t[15 - x] + (uint32_t)g + (uint32_t)r->n;
        }
    }
    size_t local = 16;
    OK(clEnqueueNDRangeKernel(q, k, 1, NULL, &r->n, kind == 2 || below(2) ? &local : NULL, nwait,
                              wait, e));
    OK(clReleaseKernel(k)); /* the command keeps it */
}

static void transfer(struct run *r, cl_command_queue q, unsigned i, unsigned j, cl_uint nwait,
                     const cl_event *wait, cl_event *e)
{
    size_t bytes = r->n * 4;
    uint32_t *h, x;
    switch (below(4)) {
    case 0:
        OK(clEnqueueCopyBuffer(q, r->b[j], r->b[i], 0, 0, bytes, nwait, wait, e));
        memcpy(r->model[i], r->model[j], bytes);
        break;
    case 1:
        x = below(1000);
        OK(clEnqueueFillBuffer(q, r->b[i], &x, 4, 0, bytes, nwait, wait, e));
        for (size_t k = 0; k < r->n; k++)
            r->model[i][k] = x;
        break;
    case 2:
        h = r->host[r->nhost++] = malloc(bytes);
        for (size_t k = 0; k < r->n; k++)
            r->model[i][k] = h[k] = below(1000000);
        OK(clEnqueueWriteBuffer(q, r->b[i], CL_FALSE, 0, bytes, h, nwait, wait, e));
        break;
    default: {
        cl_int ret;
        cl_event mapped;
        set_all(r);
        h = clEnqueueMapBuffer(q, r->b[i], CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, nwait,
                               wait, &mapped, &ret);
        OK(ret);
        check(r, i, h);
        for (size_t k = 0; k < r->n; k++)
            r->model[i][k] = h[k] = h[k] * 3 + 1;
        OK(clEnqueueUnmapMemObject(q, r->b[i], h, 1, &mapped, e));
        OK(clReleaseEvent(mapped));
    }
    }
}

static void op(struct run *r)
{
    unsigned i = below(BUFFERS), j = (i + 1 + below(BUFFERS - 1)) % BUFFERS;
    cl_command_queue q = r->q[below(r->nq)];
    cl_event list[3], *wait = list, e = NULL, host = NULL;
    cl_uint nwait = 0;
    cl_int ret;
    if (r->last[i])
        wait[nwait++] = r->last[i];
    if (r->last[j])
        wait[nwait++] = r->last[j];
    unsigned what = below(20);
    if (what < 3) {
        host = clCreateUserEvent(context, &ret);
        OK(ret);
        wait[nwait++] = host;
    }
    wait = nwait ? list : NULL;
    if (what < 12) {
        kernel_op(r, q, below(3), i, j, nwait, wait, &e);
    } else if (what < 16) {
        transfer(r, q, i, j, nwait, wait, &e);
    } else if (what == 16) {
        OK(clEnqueueMarkerWithWaitList(q, nwait, wait, &e));
    } else if (what == 17) {
        OK(clEnqueueBarrierWithWaitList(q, nwait, wait, &e));
    } else if (what == 18) {
        uint32_t *h = malloc(r->n * 4);
        set_all(r);
        for (unsigned k = 0; k < r->nq; k++)
            OK(clFlush(r->q[k]));
        OK(clEnqueueReadBuffer(q, r->b[i], CL_TRUE, 0, r->n * 4, h, nwait, wait, &e));
        check(r, i, h);
        free(h);
    } else {
        set_all(r);
        OK(clFinish(q));
        OK(clFlush(r->q[below(r->nq)]));
        return;
    }
    cl_ulong t;
    if (clGetEventProfilingInfo(e, CL_PROFILING_COMMAND_QUEUED, sizeof(t), &t, NULL) !=
        CL_PROFILING_INFO_NOT_AVAILABLE) {
        printf("times that nobody asked for\n");
        exit(1);
    }
    if (host && below(3) == 0 && nwait > 1) { /* set when another command has ended */
        OK(clSetEventCallback(wait[0], CL_COMPLETE, set_event, host));
    } else if (host && !r->setting && below(2)) {
        r->setting = pthread_create(&r->setter, NULL, set_later, host) == 0;
    } else if (host) {
        r->waiting[r->nwaiting++] = host;
    }
    touched(r, i, e);
    touched(r, j, e);
    if (below(3) == 0) {
        OK(clSetEventCallback(e, CL_COMPLETE, count, &r->called));
        r->expected++;
    }
    OK(clReleaseEvent(e));
}

static void one(uint64_t seed)
{
    struct run r = {.n = 0};
    cl_int ret;
    state = seed;
    r.n = 512U << below(4); /* few sizes: PoCL compiles kernels for each */
    r.nq = 1 + below(QUEUES);
    for (unsigned i = 0; i < r.nq; i++) {
        r.q[i] = clCreateCommandQueue(context, device,
                                      below(2) ? 0 : CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &ret);
        OK(ret);
    }
    for (unsigned i = 0; i < BUFFERS; i++) {
        r.model[i] = malloc(r.n * 4);
        for (size_t k = 0; k < r.n; k++)
            r.model[i][k] = below(1000000);
        r.b[i] = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, r.n * 4,
                                r.model[i], &ret);
        OK(ret);
    }
    for (unsigned i = 0; i < OPS; i++)
        op(&r);
    set_all(&r);
    for (unsigned i = 0; i < r.nq; i++)
        OK(clFlush(r.q[i]));
    uint32_t sum = 0, *h = malloc(r.n * 4);
    for (unsigned i = 0; i < BUFFERS; i++) {
        OK(clEnqueueReadBuffer(r.q[0], r.b[i], CL_TRUE, 0, r.n * 4, h, r.last[i] ? 1 : 0,
                               r.last[i] ? &r.last[i] : NULL, NULL));
        check(&r, i, h);
        for (size_t k = 0; k < r.n; k++)
            sum = sum * 31 + h[k];
    }
    for (unsigned i = 0; i < r.nq; i++)
        OK(clFinish(r.q[i]));
    for (int i = 0; i < 5000 && atomic_load(&r.called) < r.expected; i++)
        usleep(1000);
    if (atomic_load(&r.called) != r.expected) {
        printf("%u callbacks instead of %u\n", atomic_load(&r.called), r.expected);
        exit(1);
    }
    printf("%llu %08x\n", (unsigned long long)seed, sum);
    for (unsigned i = 0; i < BUFFERS; i++) {
        OK(clReleaseMemObject(r.b[i]));
        if (r.last[i])
            OK(clReleaseEvent(r.last[i]));
        free(r.model[i]);
    }
    for (unsigned i = 0; i < r.nq; i++)
        OK(clReleaseCommandQueue(r.q[i]));
    while (r.nhost)
        free(r.host[--r.nhost]);
    free(h);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_device();
    program = build(context, source, "");
    uint64_t first = strtoull(argv[1], NULL, 10), n = strtoull(argv[2], NULL, 10);
    for (uint64_t s = first; s < first + n; s++)
        one(s);
    OK(clReleaseProgram(program));
    OK(clReleaseContext(context));
    return 0;
}
