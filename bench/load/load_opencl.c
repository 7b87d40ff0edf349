/* cede-load on OpenCL devices: an ordinary program on the OpenCL 1.2 API, opened at run time. It is
 * what the gate schedules: it must not know of cede. Its kernel is one that may be cut along its
 * global size: every work item has its own word, and its result depends on nothing else, so
 * that it is bit-identical whatever the slices and their order.
 *
 * A thread waits for the ends, since clWaitForEvents() has no time-out. Event callbacks would do
 * without, but come up to 10 ms late on NVIDIA GPUs.
 */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/symbols.h"
#include "bench/load/kernels.h"
#include "bench/load/load.h"
#include "bench/load/opencl.h"
#include "bench/load/spin.h"

/* Small groups, many of them, for cutting; few items in all, so that a kernel of 10 us on two CPUs
 * is some iterations long (0.6 us each). */
#define LOCAL_SIZE    8U
#define GROUPS_MIN    128U
#define GROUPS_PER_CU 32U
/* Longer kernels have more of them, as programs' kernels do, not longer ones. */
#define GROUP_US    50.0
#define FOLD_MAX    32.0
#define NAME_BYTES  256
#define DEVICES_MAX 64U

struct slot {
    cl_event_handle event;
    uint64_t end_ns;
    cl_code status; /* negative: the command failed */
    bool done;
};

struct opencl {
    struct spin s;
    struct opencl_calls cl;
    cl_ctx_handle *contexts; /* the last is used */
    uint64_t ncontexts;
    cl_device device;
    cl_queue queue;
    cl_program_handle program;
    cl_kernel_handle kernel;
    cl_buffer state, copy; /* state: a word a work item */
    cl_event_handle last;  /* of the piece that is being submitted */
    uint32_t iterations_set;
    uint32_t fold; /* times the groups of a short kernel; the iterations are a short kernel's */

    pthread_t waiter;
    bool waits; /* the thread is there */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    struct slot *slots; /* of the pieces in flight, in order */
    uint64_t marked;
    bool closing;
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
    {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", "it died, or one before it: see dmesg"},
    {-54, "CL_INVALID_WORK_GROUP_SIZE", "the device takes no groups of 8"},
    {-61, "CL_INVALID_BUFFER_SIZE", "ask for less with --copy-bytes"},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR",
     "install an OpenCL driver (Debian: pocl-opencl-icd runs on any CPU)"},
};

static int opencl_check(struct opencl *g, cl_code code, const char *what)
{
    if (code == 0 || g->s.failed)
        return g->s.failed;
    const char *name = "unknown error", *advice = "see clinfo, and the driver's documentation";
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        if (codes[i].code == code) {
            name = codes[i].name;
            advice = codes[i].advice;
        }
    }
    int r = code == -1 || code == -1001 ? -ENODEV : code == -4 || code == -6 ? -ENOMEM : -EIO;
    return g->s.failed = error_set(g->s.err, r, "cannot %s: %s, %d: %s", what, name, code, advice);
}

/* A call of OpenCL; left out after an error. 0, or -errno with "cannot WHAT: NAME, CODE: advice".
 */
#define CL(g, what, call, ...) opencl_check(g, (g)->s.failed ? 0 : (g)->cl.call(__VA_ARGS__), what)
/* The same for one that makes something, which is put at *out, and has its code as last parameter.
 */
#define CL_NEW(g, what, out, call, ...)                                                            \
    ({                                                                                             \
        cl_code code_ = 0;                                                                         \
        if (!(g)->s.failed)                                                                        \
            *(out) = (g)->cl.call(__VA_ARGS__, &code_);                                            \
        opencl_check(g, code_, what);                                                              \
    })

/* ---- the device ---- */

static int opencl_load_library(struct opencl *g)
{
    /* Never closed: drivers leave threads and exit handlers behind. */
    void *lib = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    static const struct symbol calls[] = {
#define X(type, field, symbol, args) {symbol, offsetof(struct opencl_calls, field)},
        OPENCL_CALLS(X)
#undef X
    };
    const char *missing = lib ? symbols_find(lib, calls, ARRAY_SIZE(calls), &g->cl) : NULL;
    if (!lib)
        g->s.failed = error_set(g->s.err, -ENODEV,
                                "cannot open the OpenCL loader: %s: install it (Debian: "
                                "ocl-icd-libopencl1) and a driver (pocl-opencl-icd runs on any "
                                "CPU)",
                                dlerror());
    else if (missing)
        g->s.failed = error_set(g->s.err, -ENOTSUP,
                                "libOpenCL.so.1 has no %s: it is older than OpenCL 1.2", missing);
    return g->s.failed;
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
static int opencl_find_device(struct opencl *g, uint64_t number)
{
    cl_platform platforms[DEVICES_MAX];
    uint32_t nplatforms = 0;
    uint64_t seen = 0;
    const char *wanted = getenv("CEDE_OPENCL_DEVICE");
    if (CL(g, "find an OpenCL platform", platforms, DEVICES_MAX, platforms, &nplatforms))
        return g->s.failed;
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
    return g->s.failed = error_set(
               g->s.err, -ENODEV,
               "no OpenCL device %llu%s%s: %llu found; clinfo -l lists them, --gpu counts "
               "from 0 those whose name or platform holds CEDE_OPENCL_DEVICE",
               (unsigned long long)number, wanted && *wanted ? " of " : "",
               wanted && *wanted ? wanted : "", (unsigned long long)seen);
}

int load_opencl_name(char *device, size_t size, char *version, size_t version_size,
                     struct error *err)
{
    struct opencl g = {.s.err = err};
    if (opencl_load_library(&g) || opencl_find_device(&g, 0))
        return g.s.failed;
    char text[NAME_BYTES] = "unknown";
    g.cl.device_info(g.device, CL_DEVICE_NAME, sizeof(text) - 1, text, NULL);
    snprintf(device, size, "%s", text);
    g.cl.device_info(g.device, CL_DRIVER_VERSION, sizeof(text) - 1, text, NULL);
    snprintf(version, version_size, "%s", text);
    return 0;
}

/* ---- pieces ---- */

static int opencl_copy_to(struct spin *s)
{
    struct opencl *g = (struct opencl *)s;
    return CL(g, "copy to the device", write, g->queue, g->copy, 0, 0, s->copy_bytes, s->copy_in, 0,
              NULL, NULL);
}

static int opencl_copy_from(struct spin *s)
{
    struct opencl *g = (struct opencl *)s;
    return CL(g, "copy from the device", read, g->queue, g->copy, 0, 0, s->copy_bytes, s->copy_out,
              0, NULL, &g->last);
}

static int opencl_launch(struct spin *s, bool last)
{
    struct opencl *g = (struct opencl *)s;
    const size_t local = LOCAL_SIZE, global = s->threads;
    uint32_t iterations = s->iterations > g->fold ? s->iterations / g->fold : 1;
    if (g->iterations_set != iterations)
        CL(g, "set a kernel's argument", kernel_arg, g->kernel, 1, sizeof(iterations), &iterations);
    CL(g, "launch a kernel", launch, g->queue, g->kernel, 1, NULL, &global, &local, 0, NULL,
       last ? &g->last : NULL);
    g->iterations_set = iterations;
    s->steps += iterations;
    return s->failed;
}

/* Takes the ends of the pieces, in their order, until there are no more and the program closes. */
static void *wait_for_ends(void *arg)
{
    struct opencl *g = arg;
    pthread_mutex_lock(&g->lock);
    for (uint64_t i = 0;; i++) {
        while (i == g->marked && !g->closing)
            pthread_cond_wait(&g->changed, &g->lock);
        if (i == g->marked)
            break;
        struct slot *slot = &g->slots[i % g->s.slots];
        pthread_mutex_unlock(&g->lock);
        const cl_code status = g->cl.events_wait(1, &slot->event);
        const uint64_t now = monotonic_ns();
        g->cl.event_free(slot->event);
        pthread_mutex_lock(&g->lock);
        slot->end_ns = now;
        slot->status = status;
        slot->done = true;
        pthread_cond_broadcast(&g->changed);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static int opencl_mark(struct spin *s, uint64_t number)
{
    struct opencl *g = (struct opencl *)s;
    CL(g, "flush the queue", flush, g->queue);
    pthread_mutex_lock(&g->lock);
    g->slots[number] = (struct slot){.event = g->last};
    g->marked++;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return s->failed;
}

static int opencl_wait(struct spin *s, uint64_t number, uint64_t timeout_ns, uint64_t *end_ns)
{
    struct opencl *g = (struct opencl *)s;
    struct slot *slot = &g->slots[number];
    uint64_t until = monotonic_ns() + timeout_ns;
    struct timespec ts = {(time_t)(until / NSEC_PER_SEC), (long)(until % NSEC_PER_SEC)};
    int r = 0;
    pthread_mutex_lock(&g->lock);
    while (!slot->done && r != ETIMEDOUT)
        r = pthread_cond_clockwait(&g->changed, &g->lock, CLOCK_MONOTONIC, &ts);
    const struct slot now = *slot;
    pthread_mutex_unlock(&g->lock);
    if (!now.done)
        return -ETIMEDOUT;
    *end_ns = now.end_ns;
    return opencl_check(g, now.status < 0 ? now.status : 0, "run a kernel");
}

static int opencl_read_state(struct spin *s, uint32_t *out)
{
    struct opencl *g = (struct opencl *)s;
    return CL(g, "copy the state out", read, g->queue, g->state, 1, 0, s->threads * sizeof(*out),
              out, 0, NULL, NULL);
}

static const struct spin_calls opencl_spin_calls = {
    .copy_to = opencl_copy_to,
    .copy_from = opencl_copy_from,
    .launch = opencl_launch,
    .mark = opencl_mark,
    .wait = opencl_wait,
    .read_state = opencl_read_state,
};

/* ---- set-up ---- */

static void opencl_set_up_contexts(struct opencl *g, uint64_t n)
{
    g->contexts = calloc(n, sizeof(cl_ctx_handle));
    g->slots = g->s.failed ? NULL : calloc(g->s.slots, sizeof(*g->slots));
    if (!g->s.failed && (!g->contexts || !g->slots))
        g->s.failed = error_set(g->s.err, -ENOMEM, "no memory for the contexts");
    while (!g->s.failed && g->ncontexts < n)
        g->ncontexts += !CL_NEW(g, "create a context", &g->contexts[g->ncontexts], context, NULL, 1,
                                &g->device, NULL, NULL);
}

static void opencl_compile(struct opencl *g, cl_ctx_handle context)
{
    const char *text = spin_cl;
    char log[NAME_BYTES] = "";
    CL_NEW(g, "load the kernel", &g->program, program, context, 1, &text, NULL);
    if (CL(g, "compile the kernel", build, g->program, 1, &g->device, "", NULL, NULL) &&
        g->program) {
        g->cl.build_info(g->program, g->device, CL_PROGRAM_BUILD_LOG, sizeof(log) - 1, log, NULL);
        log[strcspn(log, "\n")] = '\0';
        if (log[0])
            error_prefix(g->s.err, g->s.failed, "%s", log);
    }
    CL_NEW(g, "find the kernel", &g->kernel, kernel, g->program, "cede_spin");
}

static void opencl_set_up_kernel(struct opencl *g, cl_ctx_handle context, double kernel_us)
{
    uint32_t units = 0;
    CL_NEW(g, "create a queue", &g->queue, queue, context, g->device, 0);
    opencl_compile(g, context);
    if (CL(g, "ask for the number of compute units", device_info, g->device,
           CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units, NULL))
        return;
    uint32_t groups = (uint32_t)clamp_u64((uint64_t)units * GROUPS_PER_CU, GROUPS_MIN, 1 << 20);
    g->fold = (uint32_t)fmin(FOLD_MAX, fmax(1, kernel_us * units / groups / GROUP_US));
    g->s.threads = groups * g->fold * LOCAL_SIZE;

    _cleanup_free_ uint32_t *seeds = spin_seeds(&g->s);
    size_t bytes = g->s.threads * sizeof(*seeds);
    CL_NEW(g, "allocate the state", &g->state, buffer, context, CL_MEM_READ_WRITE, bytes, NULL);
    CL(g, "copy the state in", write, g->queue, g->state, 1, 0, bytes, seeds, 0, NULL, NULL);
    CL(g, "set a kernel's argument", kernel_arg, g->kernel, 0, sizeof(cl_buffer), &g->state);
}

static void opencl_set_up_copies(struct opencl *g, cl_ctx_handle context, size_t bytes)
{
    CL_NEW(g, "allocate memory for --copy-bytes", &g->copy, buffer, context, CL_MEM_READ_WRITE,
           bytes, NULL);
    g->s.copy_in = calloc(1, bytes);
    g->s.copy_out = calloc(1, bytes);
    g->s.copy_bytes = bytes;
    if (!g->s.failed && (!g->s.copy_in || !g->s.copy_out))
        g->s.failed = error_set(g->s.err, -ENOMEM, "no memory for --copy-bytes");
}

static void opencl_close(struct load_gpu *base)
{
    struct opencl *g = (struct opencl *)base;
    if (g->queue)
        g->cl.finish(g->queue);
    pthread_mutex_lock(&g->lock);
    g->closing = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    if (g->waits)
        pthread_join(g->waiter, NULL);
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
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g->contexts);
    free(g->slots);
    free(g->s.submit_ns);
    free(g->s.copy_in);
    free(g->s.copy_out);
    free(g);
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
    g->s = (struct spin){
        .base.ops = &load_opencl, .calls = &opencl_spin_calls, .err = err, .verify = o->verify};
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    /* 20 ms of work bridge the delays of a host whose CPUs may be the device. */
    if (!opencl_load_library(g) && !opencl_find_device(g, o->gpu))
        spin_ring(&g->s, o, 20000, 4);
    opencl_set_up_contexts(g, o->contexts);
    cl_ctx_handle context = g->ncontexts ? g->contexts[g->ncontexts - 1] : NULL;
    opencl_set_up_kernel(g, context, o->kernel_us);
    if (o->copy_bytes)
        opencl_set_up_copies(g, context, o->copy_bytes);
    g->waits = !g->s.failed && pthread_create(&g->waiter, NULL, wait_for_ends, g) == 0;
    if (!g->s.failed && !g->waits)
        g->s.failed = error_set(err, -EAGAIN, "cannot start a thread: is a limit of threads met?");
    spin_start(&g->s, o, 1); /* other programs may use its CPUs */
    int r = g->s.failed;
    if (r)
        opencl_close(&g->s.base);
    else
        *out = &g->s.base;
    return r;
}

static int opencl_digest(struct load_gpu *base, uint64_t *out, struct error *err)
{
    struct opencl *g = (struct opencl *)base;
    _cleanup_free_ uint32_t *state = spin_state(&g->s);
    *out = 0xcbf29ce484222325ULL; /* FNV-1a, by words */
    for (uint32_t i = 0; state && i < g->s.threads; i++)
        *out = (*out ^ state[i]) * 0x100000001b3ULL;
    return g->s.failed;
}

const struct load_ops load_opencl = {
    .name = "opencl",
    .open = opencl_open,
    .close = opencl_close,
    .submit = spin_submit,
    .wait = spin_wait,
    .verify = spin_verify,
    .digest = opencl_digest,
};
