/* cede-load on OpenCL devices: an ordinary program on the OpenCL 1.2 API, opened at run time. It is
 * what the gate schedules: it must not know of cede. Its kernel is one that may be cut along its
 * global size: every work item has its own word, and its result depends on nothing else, so
 * that it is bit-identical whatever the slices and their order.
 *
 * Ends are reported by event callbacks: the device may be this machine's own CPUs, which polling
 * would take from it. Those come on threads of the OpenCL implementation; the lock guards what they
 * write.
 */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/symbols.h"
#include "load/kernels.h"
#include "load/load.h"
#include "load/opencl.h"
#include "load/spin.h"

/* Small groups, many of them, for cutting; few items in all, so that a kernel of 10 us on two CPUs
 * is some iterations long (0.6 us each). */
#define LOCAL_SIZE    8U
#define GROUPS_MIN    128U
#define GROUPS_PER_CU 32U
/* Longer kernels have more of them, as programs' kernels do, not longer ones. */
#define GROUP_US       50.0
#define FOLD_MAX       32.0
#define WARM_UP        3    /* the first launches compile */
#define WARM_UP_STEPS  1000 /* iterations of each */
#define NAME_BYTES     256
#define DEVICES_MAX    64U
#define SETUP_LIMIT_NS (60 * NSEC_PER_SEC)

struct opencl;

struct slot {
    struct opencl *g;
    uint64_t submit_ns, end_ns;
    cl_code status; /* negative: the command failed */
    bool done;
};

struct opencl {
    struct load_gpu base;
    struct opencl_calls cl;
    cl_ctx_handle *contexts; /* the last is used */
    uint64_t ncontexts;
    cl_device device;
    cl_queue queue;
    cl_program_handle program;
    cl_kernel_handle kernel;
    cl_buffer state; /* a word a work item */
    uint32_t groups, iterations, iterations_set;
    uint32_t fold;  /* times the groups of a short kernel; the iterations are a short kernel's */
    uint64_t steps; /* of the generator that the state must have made */

    cl_buffer copy;
    unsigned char *copy_in, *copy_out;
    size_t copy_bytes;
    unsigned char pattern;
    bool verify, copying_out, copy_wrong;

    struct slot *slots; /* a ring of pieces in flight */
    uint64_t head, tail, nslots;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    uint64_t callbacks_due; /* under the lock, as are done, status and end_ns */
};

static const struct {
    cl_code code;
    const char *name, *advice;
} codes[] = {
    {-1, "CL_DEVICE_NOT_FOUND", "check clinfo -l"},
    {-2, "CL_DEVICE_NOT_AVAILABLE", "another program may hold it"},
    {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE", "the device's memory is taken"},
    {-5, "CL_OUT_OF_RESOURCES", "the device or its memory is taken, or a kernel died: see dmesg"},
    {-6, "CL_OUT_OF_HOST_MEMORY", "free memory on this machine"},
    {-11, "CL_BUILD_PROGRAM_FAILURE", "the device's compiler is broken: try clpeak"},
    {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", "a command before it failed"},
    {-54, "CL_INVALID_WORK_GROUP_SIZE", "the device takes no groups of 8"},
    {-61, "CL_INVALID_BUFFER_SIZE", "ask for less with --copy-bytes"},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR",
     "install an OpenCL driver (Debian: pocl-opencl-icd runs on any CPU)"},
};

static int check(cl_code code, const char *what, struct error *err)
{
    if (code == 0)
        return 0;
    const char *name = "unknown error", *advice = "see clinfo, and the driver's documentation";
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        if (codes[i].code == code) {
            name = codes[i].name;
            advice = codes[i].advice;
        }
    }
    int r = code == -1 || code == -1001 ? -ENODEV : code == -4 || code == -6 ? -ENOMEM : -EIO;
    return error_set(err, r, "cannot %s: %s, %d: %s", what, name, code, advice);
}

static int load_library(struct opencl *g, struct error *err)
{
    /* Never closed: drivers leave threads and exit handlers behind. */
    void *lib = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return error_set(err, -ENODEV,
                         "cannot open the OpenCL loader: %s: install it (Debian: "
                         "ocl-icd-libopencl1) and a driver (pocl-opencl-icd runs on any CPU)",
                         dlerror());
    static const struct symbol calls[] = {
#define X(type, field, symbol, args) {symbol, offsetof(struct opencl_calls, field)},
        OPENCL_CALLS(X)
#undef X
    };
    const char *missing = symbols_find(lib, calls, ARRAY_SIZE(calls), &g->cl);
    return missing ? error_set(err, -ENOTSUP,
                               "libOpenCL.so.1 has no %s: it is older than OpenCL 1.2", missing)
                   : 0;
}

static bool fits(const struct opencl *g, cl_platform p, cl_device d, const char *wanted)
{
    char name[NAME_BYTES] = "", platform[NAME_BYTES] = "";
    if (!wanted || !*wanted)
        return true;
    g->cl.device_info(d, CL_DEVICE_NAME, sizeof(name) - 1, name, NULL);
    g->cl.platform_info(p, CL_PLATFORM_NAME, sizeof(platform) - 1, platform, NULL);
    return strcasestr(name, wanted) || strcasestr(platform, wanted);
}

/* Counts the devices of all platforms, or those whose name holds CEDE_OPENCL_DEVICE, from 0. */
static int find_device(struct opencl *g, uint64_t number, struct error *err)
{
    cl_platform platforms[DEVICES_MAX];
    uint32_t nplatforms = 0;
    uint64_t seen = 0;
    const char *wanted = getenv("CEDE_OPENCL_DEVICE");
    int r =
        check(g->cl.platforms(DEVICES_MAX, platforms, &nplatforms), "find an OpenCL platform", err);
    if (r)
        return r;
    for (uint32_t i = 0; i < nplatforms && i < DEVICES_MAX; i++) {
        cl_device devices[DEVICES_MAX];
        uint32_t n = 0;
        if (g->cl.devices(platforms[i], CL_DEVICE_TYPE_ALL, DEVICES_MAX, devices, &n))
            continue; /* a driver without its device */
        for (uint32_t k = 0; k < n && k < DEVICES_MAX; k++) {
            if (fits(g, platforms[i], devices[k], wanted) && seen++ == number) {
                g->device = devices[k];
                return 0;
            }
        }
    }
    return error_set(err, -ENODEV,
                     "no OpenCL device %llu%s%s: %llu found; clinfo -l lists them, --gpu counts "
                     "from 0 those whose name or platform holds CEDE_OPENCL_DEVICE",
                     (unsigned long long)number, wanted && *wanted ? " of " : "",
                     wanted && *wanted ? wanted : "", (unsigned long long)seen);
}

int load_opencl_name(char *device, size_t size, char *version, size_t version_size,
                     struct error *err)
{
    struct opencl g = {.ncontexts = 0};
    int r = load_library(&g, err);
    if (!r)
        r = find_device(&g, 0, err);
    if (r)
        return r;
    char text[NAME_BYTES] = "unknown";
    g.cl.device_info(g.device, CL_DEVICE_NAME, sizeof(text) - 1, text, NULL);
    snprintf(device, size, "%s", text);
    g.cl.device_info(g.device, CL_DRIVER_VERSION, sizeof(text) - 1, text, NULL);
    snprintf(version, version_size, "%s", text);
    return 0;
}

static void on_end(cl_event_handle e, cl_code status, void *arg)
{
    struct slot *s = arg;
    struct opencl *g = s->g;
    uint64_t now = monotonic_ns();
    pthread_mutex_lock(&g->lock);
    s->end_ns = now;
    s->status = status;
    s->done = true;
    g->callbacks_due--;
    pthread_cond_signal(&g->ended);
    pthread_mutex_unlock(&g->lock);
}

static int launch(struct opencl *g, uint32_t iterations, cl_event_handle *e, struct error *err)
{
    const size_t local = LOCAL_SIZE, global = (size_t)g->groups * LOCAL_SIZE;
    int r = 0;
    iterations = iterations > g->fold ? iterations / g->fold : 1;
    if (g->iterations_set != iterations)
        r = check(g->cl.kernel_arg(g->kernel, 1, sizeof(iterations), &iterations),
                  "set a kernel's argument", err);
    if (!r)
        r = check(g->cl.launch(g->queue, g->kernel, 1, NULL, &global, &local, 0, NULL, e),
                  "launch a kernel", err);
    if (r)
        return r;
    g->iterations_set = iterations;
    g->steps += iterations;
    return 0;
}

static int send(struct opencl *g, const struct load_piece *p, uint32_t iterations,
                struct error *err)
{
    cl_event_handle event = NULL;
    int r = 0;
    if (g->tail - g->head >= g->nslots)
        return error_set(err, -EAGAIN, "%llu pieces are in flight already",
                         (unsigned long long)g->nslots);
    if (p->copy_in && g->verify) /* other bytes each time, before the clock starts */
        memset(g->copy_in, ++g->pattern, g->copy_bytes);
    g->copying_out = p->copy_out;

    struct slot *s = &g->slots[g->tail % g->nslots];
    *s = (struct slot){.g = g, .submit_ns = monotonic_ns()};
    if (p->copy_in)
        r = check(g->cl.write(g->queue, g->copy, 0, 0, g->copy_bytes, g->copy_in, 0, NULL, NULL),
                  "copy to the device", err);
    for (uint32_t i = 0; !r && i < p->kernels; i++)
        r = launch(g, iterations, i + 1 == p->kernels && !p->copy_out ? &event : NULL, err);
    if (!r && p->copy_out)
        r = check(g->cl.read(g->queue, g->copy, 0, 0, g->copy_bytes, g->copy_out, 0, NULL, &event),
                  "copy from the device", err);
    if (r)
        return r;
    pthread_mutex_lock(&g->lock);
    g->callbacks_due++;
    pthread_mutex_unlock(&g->lock);
    r = check(g->cl.event_notify(event, CL_COMPLETE, on_end, s), "ask for a callback at the end",
              err);
    if (r) {
        pthread_mutex_lock(&g->lock);
        g->callbacks_due--;
        pthread_mutex_unlock(&g->lock);
    }
    g->cl.event_free(event);
    if (!r)
        r = check(g->cl.flush(g->queue), "flush the queue", err);
    g->tail += !r;
    return r;
}

static int opencl_submit(struct load_gpu *base, const struct load_piece *p, struct error *err)
{
    struct opencl *g = (struct opencl *)base;
    return send(g, p, g->iterations, err);
}

static int opencl_wait(struct load_gpu *base, uint64_t timeout_ns, struct load_done *out,
                       struct error *err)
{
    struct opencl *g = (struct opencl *)base;
    struct slot *s = &g->slots[g->head % g->nslots];
    uint64_t until = monotonic_ns() + timeout_ns;
    struct timespec ts = {(time_t)(until / NSEC_PER_SEC), (long)(until % NSEC_PER_SEC)};
    int r = 0;
    pthread_mutex_lock(&g->lock);
    while (!s->done && r != ETIMEDOUT)
        r = pthread_cond_clockwait(&g->ended, &g->lock, CLOCK_MONOTONIC, &ts);
    bool done = s->done;
    pthread_mutex_unlock(&g->lock);
    if (!done)
        return -ETIMEDOUT;
    out->submit_ns = s->submit_ns;
    out->end_ns = s->end_ns;
    g->head++;
    if (s->status < 0)
        return check(s->status, "run a kernel", err);
    if (g->copying_out && g->verify)
        g->copy_wrong |= memcmp(g->copy_in, g->copy_out, g->copy_bytes) != 0;
    return 0;
}

/* One kernel from launch to end, for the host. */
static int timed(void *arg, uint32_t iterations, double *us, struct error *err)
{
    struct opencl *g = arg;
    struct load_done done;
    int r = send(g, &(struct load_piece){.kernels = 1}, iterations, err);
    if (!r)
        r = opencl_wait(&g->base, SETUP_LIMIT_NS, &done, err);
    if (r == -ETIMEDOUT)
        return error_set(err, r, "a kernel of some ms did not end in 60 s: is this program held?");
    if (!r)
        *us = (double)(done.end_ns - done.submit_ns) / (double)NSEC_PER_USEC;
    return r;
}

static int set_up_kernel(struct opencl *g, double kernel_us, struct error *err)
{
    const char *text = spin_cl;
    cl_code code = 0;
    cl_ctx_handle context = g->contexts[g->ncontexts - 1];
    g->queue = g->cl.queue(context, g->device, 0, &code);
    int r = check(code, "create a queue", err);
    if (!r) {
        g->program = g->cl.program(context, 1, &text, NULL, &code);
        r = check(code, "load the kernel", err);
    }
    if (!r)
        r = check(g->cl.build(g->program, 1, &g->device, "", NULL, NULL), "compile the kernel",
                  err);
    if (r && g->program) {
        char log[NAME_BYTES] = "";
        g->cl.build_info(g->program, g->device, CL_PROGRAM_BUILD_LOG, sizeof(log) - 1, log, NULL);
        log[strcspn(log, "\n")] = '\0';
        if (log[0])
            error_prefix(err, r, "%s", log);
    }
    if (!r) {
        g->kernel = g->cl.kernel(g->program, "cede_spin", &code);
        r = check(code, "find the kernel", err);
    }
    uint32_t units = 0;
    if (!r)
        r = check(
            g->cl.device_info(g->device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units, NULL),
            "ask for the number of compute units", err);
    if (r)
        return r;
    g->groups = (uint32_t)clamp_u64((uint64_t)units * GROUPS_PER_CU, GROUPS_MIN, 1 << 20);
    g->fold = (uint32_t)fmin(FOLD_MAX, fmax(1, kernel_us * units / g->groups / GROUP_US));
    g->groups *= g->fold;

    uint32_t threads = g->groups * LOCAL_SIZE;
    size_t bytes = threads * sizeof(uint32_t);
    uint32_t *seeds = malloc(bytes);
    if (!seeds)
        return error_set(err, -ENOMEM, "no memory for %u work items' state", threads);
    for (uint32_t i = 0; i < threads; i++)
        seeds[i] = spin_seed(i);
    g->state = g->cl.buffer(context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    r = check(code, "allocate the state", err);
    if (!r)
        r = check(g->cl.write(g->queue, g->state, 1, 0, bytes, seeds, 0, NULL, NULL),
                  "copy the state in", err);
    if (!r)
        r = check(g->cl.kernel_arg(g->kernel, 0, sizeof(cl_buffer), &g->state),
                  "set a kernel's argument", err);
    free(seeds);
    return r;
}

static int set_up_copies(struct opencl *g, size_t bytes, struct error *err)
{
    cl_code code = 0;
    g->copy = g->cl.buffer(g->contexts[g->ncontexts - 1], CL_MEM_READ_WRITE, bytes, NULL, &code);
    int r = check(code, "allocate memory for --copy-bytes", err);
    g->copy_in = calloc(1, bytes);
    g->copy_out = calloc(1, bytes);
    g->copy_bytes = bytes;
    return r || (g->copy_in && g->copy_out) ? r
                                            : error_set(err, -ENOMEM, "no memory for --copy-bytes");
}

/* Every callback has come, too: they use what is freed. */
static void opencl_close(struct load_gpu *base)
{
    struct opencl *g = (struct opencl *)base;
    if (g->queue)
        g->cl.finish(g->queue);
    pthread_mutex_lock(&g->lock);
    while (g->callbacks_due)
        pthread_cond_wait(&g->ended, &g->lock);
    pthread_mutex_unlock(&g->lock);
    if (g->copy)
        g->cl.buffer_free(g->copy);
    if (g->state)
        g->cl.buffer_free(g->state);
    if (g->kernel)
        g->cl.kernel_free(g->kernel);
    if (g->program)
        g->cl.program_free(g->program);
    if (g->queue)
        g->cl.queue_free(g->queue);
    while (g->ncontexts)
        g->cl.context_free(g->contexts[--g->ncontexts]);
    pthread_cond_destroy(&g->ended);
    pthread_mutex_destroy(&g->lock);
    free(g->contexts);
    free(g->slots);
    free(g->copy_in);
    free(g->copy_out);
    free(g);
}

static int set_up(struct opencl *g, const struct load_options *o, struct error *err)
{
    cl_code code = 0;
    int r = load_library(g, err);
    if (!r)
        r = find_device(g, o->gpu, err);
    if (r)
        return r;
    /* 20 ms of work bridge the delays of a host whose CPUs may be the device. */
    g->base.depth = clamp_u64((uint64_t)ceil(20000 / o->kernel_us), 4, 256);
    g->nslots = o->role == LOAD_LATENCY ? LOAD_QUEUE_MAX : o->depth ? o->depth : g->base.depth;
    g->slots = calloc(g->nslots, sizeof(*g->slots));
    g->contexts = calloc(o->contexts, sizeof(cl_ctx_handle));
    if (!g->contexts || !g->slots)
        return error_set(err, -ENOMEM, "no memory for the contexts and %llu kernels in flight",
                         (unsigned long long)g->nslots);
    for (; !r && g->ncontexts < o->contexts; g->ncontexts += !r) {
        g->contexts[g->ncontexts] = g->cl.context(NULL, 1, &g->device, NULL, NULL, &code);
        r = check(code, "create a context", err);
    }
    if (!r)
        r = set_up_kernel(g, o->kernel_us, err);
    if (!r && o->copy_bytes)
        r = set_up_copies(g, o->copy_bytes, err);

    double us;
    for (int i = 0; !r && i < WARM_UP; i++)
        r = timed(g, WARM_UP_STEPS, &us, err);
    g->base.iterations_per_us = o->iterations_per_us;
    g->base.host_overhead_us = -1;
    if (!r && o->iterations_per_us <= 0)
        r = spin_calibrate(&g->base, timed, g, 1, err); /* other programs may use its CPUs */
    return r ? r : spin_iterations(&g->base, o->kernel_us, &g->iterations, err);
}

static int opencl_open(const struct load_options *o, struct load_gpu **out, struct error *err)
{
    const char *no = o->memory             ? "--memory"
                     : o->work             ? "--work"
                     : o->sm_fraction != 1 ? "--sm-fraction"
                                           : NULL;
    if (no)
        return error_set(err, -ENOTSUP, "there is no %s on OpenCL devices: leave it out", no);
    struct opencl *g = calloc(1, sizeof(*g));
    if (!g)
        return error_set(err, -ENOMEM, "no memory");
    g->base.ops = &load_opencl;
    g->verify = o->verify;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->ended, NULL);
    int r = set_up(g, o, err);
    if (r)
        opencl_close(&g->base);
    else
        *out = &g->base;
    return r;
}

static int read_state(struct opencl *g, uint32_t **out, struct error *err)
{
    size_t bytes = (size_t)g->groups * LOCAL_SIZE * sizeof(uint32_t);
    *out = malloc(bytes);
    if (!*out)
        return error_set(err, -ENOMEM, "no memory for the state");
    return check(g->cl.read(g->queue, g->state, 1, 0, bytes, *out, 0, NULL, NULL),
                 "copy the state out", err);
}

static int opencl_verify(struct load_gpu *base, struct error *err)
{
    struct opencl *g = (struct opencl *)base;
    _cleanup_free_ uint32_t *state = NULL;
    int r = read_state(g, &state, err);
    if (!r)
        r = spin_check(state, g->groups * LOCAL_SIZE, g->steps, err);
    if (!r && g->copy_wrong)
        r = error_set(err, -EBADMSG, "a copy came back with other bytes than went in");
    return r;
}

static int opencl_digest(struct load_gpu *base, uint64_t *out, struct error *err)
{
    struct opencl *g = (struct opencl *)base;
    _cleanup_free_ uint32_t *state = NULL;
    int r = read_state(g, &state, err);
    if (r)
        return r;
    *out = 0xcbf29ce484222325ULL; /* FNV-1a, by words */
    for (uint32_t i = 0; i < g->groups * LOCAL_SIZE; i++)
        *out = (*out ^ state[i]) * 0x100000001b3ULL;
    return 0;
}

const struct load_ops load_opencl = {
    .name = "opencl",
    .open = opencl_open,
    .close = opencl_close,
    .submit = opencl_submit,
    .wait = opencl_wait,
    .verify = opencl_verify,
    .digest = opencl_digest,
};
