/* An OpenCL program that launches kernels at random: sizes, local sizes, offsets and dimensions
 * that fit and that do not, kernels with and without a required size, waits for commands and host
 * events that complete or fail, missing arguments, queues of both orders. It prints what each call
 * returned, how each command ended, and a sum of what all of them wrote: a layer between may change
 * none of it.
 *
 * usage: launches SEED COUNT    exit status 77: there is no OpenCL device */
#include "program.h"

#define ITEMS    4096 /* of a launch at most */
#define LAUNCHES 3    /* of a round */
#define BYTES    (LAUNCHES * ITEMS * sizeof(cl_uint))
#define QUEUES   4
#define KERNELS  6
#define ANY(v)   ((v)[rnd(sizeof(v) / sizeof(*(v)))])

#define AT                                                                                         \
    "v[at + get_global_id(0) - from.x + (get_global_id(1) - from.y) * row.x"                       \
    " + (get_global_id(2) - from.z) * row.y]"
#define ARGS "(__global uint *v, ulong at, ulong4 from, ulong2 row) {"
static const char *const sources[] = {
    "__kernel void plain" ARGS AT " += 1; }\n",
    "__attribute__((reqd_work_group_size(8, 1, 1))) __kernel void eight" ARGS AT " += 1; }\n",
    "__kernel void local_id" ARGS AT " += 1 + get_local_id(0); }\n",
    "__kernel void global_size" ARGS AT " += get_global_size(0); }\n",
    "__kernel void no_args" ARGS AT " += 1; }\n",
    "__kernel void not_uniform" ARGS AT " += 1; }\n",
};
static const char *const names[] = {"plain",       "eight",   "local_id",
                                    "global_size", "no_args", "not_uniform"};
enum { NO_ARGS = 4, NOT_UNIFORM = 5 };

static cl_context other;
static cl_command_queue queues[QUEUES];
static cl_kernel kernels[KERNELS], other_kernel;
static cl_event other_event;
static cl_mem buffer;

static cl_kernel kernel_of(cl_context c, unsigned i)
{
    cl_int r;
    cl_program p = build(c, sources[i], i == NOT_UNIFORM ? "-cl-std=CL3.0" : "");
    cl_kernel k = clCreateKernel(p, names[i], &r);
    OK(r);
    return k;
}

static void begin(void)
{
    cl_int r;
    open_device();
    other = clCreateContext(NULL, 1, &device, NULL, NULL, &r);
    OK(r);
    other_event = clCreateUserEvent(other, &r);
    OK(r);
    OK(clSetUserEventStatus(other_event, CL_COMPLETE));
    for (unsigned i = 0; i < QUEUES; i++) {
        queues[i] = clCreateCommandQueue(context, device,
                                         (i & 1 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0) |
                                             (i & 2 ? CL_QUEUE_PROFILING_ENABLE : 0),
                                         &r);
        OK(r);
    }
    buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, BYTES, NULL, &r);
    OK(r);
    for (unsigned i = 0; i < KERNELS; i++) {
        kernels[i] = kernel_of(context, i);
        if (i != NO_ARGS)
            OK(clSetKernelArg(kernels[i], 0, sizeof(buffer), &buffer));
    }
    other_kernel = kernel_of(other, 0);
}

struct launch {
    cl_uint dims;
    size_t offset[3], size[3], local[3];
    bool offset_given, local_given;
    cl_uint nwait;
    cl_event wait[3];
};

/* A range that the buffer has room for, which fits its work-groups or not. Few sizes of these, and
 * few ranges without: PoCL compiles a kernel for each that it runs. */
static void range(struct launch *l)
{
    static const size_t offsets[] = {0, 1, 64, 1000}, most[] = {ITEMS, 64, 16};
    static const size_t locals[][3] = {{8, 1, 1}, {16, 1, 1}, {4, 2, 1}};
    static const size_t wholes[] = {1024, 32, 8};
    size_t kind = rnd(3);
    l->dims = 1 + (cl_uint)rnd(3);
    l->local_given = rnd(3) > 0;
    l->offset_given = rnd(2);
    bool fits = rnd(3) > 0;
    for (unsigned d = 0; d < l->dims; d++) {
        size_t max = most[l->dims - 1];
        l->local[d] = locals[kind][d];
        l->size[d] = 1 + rnd(max);
        if (!l->local_given)
            l->size[d] = rnd(2) ? wholes[l->dims - 1] : max;
        else if (fits)
            l->size[d] += l->local[d] - 1 - (l->size[d] - 1) % l->local[d];
        l->offset[d] = ANY(offsets);
    }
}

/* What an OpenCL may refuse, or take for nothing to do. */
static void spoil(struct launch *l)
{
    unsigned d = (unsigned)rnd(3);
    switch (rnd(7)) {
    case 0:
        l->dims = rnd(2) ? 0 : 4 + (cl_uint)rnd(2);
        break;
    case 1:
        l->size[d] = 0;
        break;
    case 2:
        l->local[d]++;
        break;
    case 3:
        l->local[d] = 8192; /* more than a device takes */
        l->size[d] = rnd(2) ? 2 * 8192 : l->size[d];
        l->local_given = true; /* for it is larger than the buffer */
        break;
    case 4:
        l->offset[d] = SIZE_MAX - rnd(ITEMS);
        l->offset_given = true;
        break;
    case 5:
        l->nwait = rnd(2) ? 1 : 0; /* and the list the other way */
        l->wait[0] = NULL;
        break;
    default:
        l->wait[l->nwait++] = other_event;
    }
}

static cl_int launch(struct launch *l, unsigned slot, cl_event *event)
{
    unsigned i = (unsigned)rnd(KERNELS);
    cl_command_queue q = queues[rnd(QUEUES)];
    cl_kernel k = kernels[i];
    bool spoilt = rnd(4) == 0, list = l->nwait > 0;
    range(l);
    if (spoilt) {
        spoil(l);
        list = l->wait[0] == NULL ? true : l->nwait > 0;
    }
    bool sizes = rnd(100) > 0;
    if (rnd(100) == 0)
        q = NULL;
    if (rnd(100) == 0)
        k = other_kernel;
    cl_ulong at = slot * ITEMS, from[4] = {0}, row[2] = {l->size[0], l->size[0] * l->size[1]};
    for (unsigned d = 0; d < l->dims && d < 3; d++)
        from[d] = l->offset_given ? l->offset[d] : 0;
    if (i != NO_ARGS) {
        OK(clSetKernelArg(kernels[i], 1, sizeof(at), &at));
        OK(clSetKernelArg(kernels[i], 2, sizeof(from), from));
        OK(clSetKernelArg(kernels[i], 3, sizeof(row), row));
    }
    return clEnqueueNDRangeKernel(q, k, l->dims, l->offset_given ? l->offset : NULL,
                                  sizes ? l->size : NULL, l->local_given ? l->local : NULL,
                                  l->nwait, list ? l->wait : NULL, event);
}

static unsigned sum_of(cl_command_queue q)
{
    cl_int r;
    unsigned sum = 0;
    cl_uint *v = clEnqueueMapBuffer(q, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, BYTES, 0,
                                    NULL, NULL, &r);
    OK(r);
    for (size_t i = 0; i < BYTES / sizeof(*v); i++)
        sum = sum * 31 + v[i];
    memset(v, 0, BYTES);
    OK(clEnqueueUnmapMemObject(q, buffer, v, 0, NULL, NULL));
    OK(clFinish(q));
    return sum;
}

/* A few launches that may depend on each other and on a host event. Returns how many. */
static unsigned round_of(uint64_t number)
{
    cl_event events[LAUNCHES + 1] = {NULL}, host = NULL;
    cl_int r;
    unsigned n = 1 + (unsigned)rnd(LAUNCHES), nevents = 0;
    bool late = rnd(2);
    if (rnd(4) == 0) {
        host = events[nevents++] = clCreateUserEvent(context, &r);
        OK(r);
        if (!late)
            OK(clSetUserEventStatus(host, CL_COMPLETE));
    }
    printf("%llu:", (unsigned long long)number);
    for (unsigned i = 0; i < n; i++) {
        struct launch l = {.nwait = 0, .wait = {NULL}};
        while (nevents && l.nwait < 2 && rnd(2))
            l.wait[l.nwait++] = events[rnd(nevents)];
        cl_event e = NULL;
        bool wanted = rnd(2);
        r = launch(&l, i, wanted ? &e : NULL);
        printf(" %d", r);
        if (r == CL_SUCCESS && wanted)
            events[nevents++] = e;
    }
    if (host && late)
        OK(clSetUserEventStatus(host, CL_COMPLETE));
    for (unsigned i = 0; i < QUEUES; i++)
        OK(clFinish(queues[i]));
    for (unsigned i = 0; i < nevents; i++) {
        OK(clGetEventInfo(events[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(r), &r, NULL));
        printf(" e%d", r);
        OK(clReleaseEvent(events[i]));
    }
    printf(" %08x\n", sum_of(queues[0]));
    return n;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    uint64_t seed = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10), n = 0;
    begin();
    sum_of(queues[0]);
    for (uint64_t i = 0; n < count; i++) {
        state = seed * 1000003 + i * 7919;
        n += round_of(n);
        fflush(stdout);
    }
    return 0;
}
