/* Leases of libcede over several GPUs with a skewed load: threads that want the first GPU in 9 of
 * 10 requests, kernels of which one in ten is ten times as long. Prints how long each GPU had work,
 * as JSON. cede's daemon has no part in it.
 *
 * usage: bench_balance [--soft GPUS] [--threads N] [--seconds S] [--kernel-us U] [--share F]
 *                      [--streams N] [--bound] [--within RATIO]
 *   --soft     GPUs that are not there: kernels are sleeps
 *   --share    of a GPU that a kernel takes; 0.25: three at once by the limit of occupancy, 0.9
 *   --streams  max_concurrent_streams
 *   --bound    each request on the GPU that it wants or nowhere: what it is like without leases
 *   --within   exit status 1 if a GPU had work for longer than another by more than this factor */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bench/cost.h"
#include "bench/load/cuda.h"
#include "bench/load/kernels.h"
#include "cede/lease.h"

#define GPUS_MAX    64U
#define THREADS_MAX 256U

static struct {
    uint64_t soft, threads, streams;
    double seconds, kernel_us, share, within;
    bool bound;
} o = {.threads = 48, .streams = 16, .seconds = 10, .kernel_us = 500, .share = 0.25};

struct gpu {
    struct cuda cuda; /* calls, kernel, blocks, speed */
    void *context;
    _Atomic uint64_t work_ns, leases; /* work: sum of the times that leases were out */
};

struct thread {
    pthread_t id;
    uint64_t random;
    cu_pointer state[GPUS_MAX];
    uint64_t steps[GPUS_MAX];
    struct error err;
    int result;
};

static struct gpu gpus[GPUS_MAX];
static struct thread threads[THREADS_MAX];
static struct cede_pool *pool;
static unsigned ngpus;
static _Atomic uint64_t end_ns; /* 0: not all threads have begun */
static cu_result (*retain)(void **context, cu_device d);
static cu_result (*set_current)(void *context);

static uint64_t rnd(struct thread *t, uint64_t below)
{
    uint64_t z = t->random += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (z ^ (z >> 31)) % below;
}

/* The primary context, which is the one that leases' streams are in. */
static int set_up_gpu(struct gpu *p, unsigned index, struct error *err)
{
    const struct load_options how = {
        .role = LOAD_CALIBRATE, .sm_fraction = o.share, .kernel_us = o.kernel_us};
    struct cuda *g = &p->cuda;
    cu_device device = 0;
    g->s.err = err;
    g->spin = true;
    if (CUDA(g, "find a GPU", device_get, &device, (int)index) ||
        cuda_check(g, retain(&p->context, device), "retain a primary context") ||
        cuda_check(g, set_current(p->context), "make a context current") ||
        cuda_set_up(g, &how, device))
        return g->s.failed;
    for (unsigned i = 0; i < o.threads; i++)
        threads[i].state[index] = cuda_make_state(g);
    if (!g->s.failed && index == 0)
        return cede_pool_kernel(pool, "spin", g->function);
    return g->s.failed;
}

static int set_up_gpus(struct error *err)
{
    struct cuda g = {.s.err = err, .kind = &cuda_nvidia};
    int r = cuda_nvidia.load_library(&g);
    if (r)
        return r;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&retain = lib ? dlsym(lib, "cuDevicePrimaryCtxRetain") : NULL;
    *(void **)&set_current = lib ? dlsym(lib, "cuCtxSetCurrent") : NULL;
    if (!retain || !set_current)
        return error_set(err, -ENOTSUP, "libcuda.so.1 has no primary contexts");
    for (unsigned i = 0; !r && i < ngpus; i++) {
        gpus[i].cuda = g;
        r = set_up_gpu(&gpus[i], i, err);
    }
    return r;
}

/* On a copy of the GPU's description: errors are the thread's own. */
static int run_kernel(struct thread *t, const struct cede_lease *l, double us)
{
    if (o.soft) {
        cost_nap(us);
        return 0;
    }
    struct cuda g = gpus[l->device].cuda;
    uint32_t iterations = (uint32_t)fmin(UINT32_MAX, us * g.s.base.iterations_per_us);
    void *params[] = {&t->state[l->device], &iterations};
    cu_result q = CU_NOT_READY;
    g.s.err = &t->err;
    g.stream = l->stream;
    cuda_check(&g, set_current(gpus[l->device].context), "make a context current");
    cuda_launch(&g, g.function, g.blocks, SPIN_THREADS, params);
    while (!g.s.failed && (q = g.cu.stream_query(g.stream)) == CU_NOT_READY)
        cost_nap(20);
    t->steps[l->device] += g.s.failed ? 0 : iterations;
    return cuda_check(&g, q, "wait for a kernel");
}

static void *run(void *arg)
{
    struct thread *t = arg;
    struct cede_shape shape = {.threads = SPIN_THREADS, .blocks = gpus[0].cuda.blocks};
    while (!end_ns) /* the first few threads alone have nothing to balance */
        cost_nap(100);
    while (!t->result && monotonic_ns() < end_ns) {
        int want = rnd(t, 10) || ngpus < 2 ? 0 : 1 + (int)rnd(t, ngpus - 1);
        double us = rnd(t, 10) ? o.kernel_us : 10 * o.kernel_us;
        struct cede_lease l;
        int r = cede_acquire(pool, o.bound ? CEDE_ONLY_DEVICE(want) : want, "spin", &shape,
                             CEDE_TIMEOUT_FOREVER, &l);
        if (r) {
            t->result = error_set(&t->err, r, "cannot acquire a lease: %s", strerror(-r));
            break;
        }
        uint64_t from = monotonic_ns();
        t->result = run_kernel(t, &l, us);
        gpus[l.device].work_ns += monotonic_ns() - from;
        gpus[l.device].leases++;
        r = cede_release(&l);
        if (r && !t->result)
            t->result = error_set(&t->err, r, "cannot release a lease: %s", strerror(-r));
    }
    return NULL;
}

/* Every kernel did all of its work, once, on the GPU of its lease. */
static int verify(struct error *err)
{
    for (unsigned d = 0; !o.soft && d < ngpus; d++) {
        struct cuda *g = &gpus[d].cuda;
        size_t bytes = g->s.threads * sizeof(uint32_t);
        _cleanup_free_ uint32_t *state = malloc(bytes);
        if (!state)
            return error_set(err, -ENOMEM, "no memory for the state");
        int r = cuda_check(g, set_current(gpus[d].context), "make a context current");
        for (unsigned i = 0; !r && i < o.threads; i++) {
            r = CUDA(g, "copy the state out", copy_out, state, threads[i].state[d], bytes);
            if (!r)
                r = spin_check(state, g->s.threads, threads[i].steps[d], err);
        }
        if (r) // NOLINT(clang-analyzer-unix.Malloc): _cleanup_
            return r;
    }
    return 0;
}

static double ratio(const double *v)
{
    double most = v[0], least = v[0];
    for (unsigned i = 1; i < ngpus; i++) {
        most = fmax(most, v[i]);
        least = fmin(least, v[i]);
    }
    return least > 0 ? most / least : 1e9;
}

/* Exit status. before: busy times when the threads began; the pool is still in use. */
static int report(const double *busy, const uint64_t *stolen)
{
    double work[GPUS_MAX] = {0};
    printf("{\"gpus\":[");
    for (unsigned d = 0; d < ngpus; d++) {
        work[d] = (double)gpus[d].work_ns / 1e9;
        printf("%s{\"leases\":%llu,\"busy_s\":%.4f,\"work_s\":%.4f,\"stolen\":%llu}", d ? "," : "",
               (unsigned long long)gpus[d].leases, busy[d], work[d], (unsigned long long)stolen[d]);
    }
    printf("],\"soft\":%s,\"bound\":%s,\"threads\":%llu,\"seconds\":%g,\"kernel_us\":%g,"
           "\"share\":%g,\"streams\":%llu,\"busy_ratio\":%.4f,\"work_ratio\":%.4f}\n",
           o.soft ? "true" : "false", o.bound ? "true" : "false", (unsigned long long)o.threads,
           o.seconds, o.kernel_us, o.share, (unsigned long long)o.streams, ratio(busy),
           ratio(work));
    return o.within > 0 && ratio(busy) > o.within ? 1 : 0;
}

static int measure(struct error *err)
{
    double busy[GPUS_MAX] = {0};
    uint64_t stolen[GPUS_MAX] = {0};
    struct cede_pool_statistics s;
    unsigned n = 0;
    for (; n < o.threads; n++) {
        threads[n].random = n + 1;
        if (pthread_create(&threads[n].id, NULL, run, &threads[n]))
            break;
    }
    bool all = n == o.threads;
    end_ns = monotonic_ns() + (uint64_t)(all ? o.seconds * 1e9 : 0);
    /* Looked at before the threads run dry, when each waits for its last kernel. */
    while (monotonic_ns() < end_ns)
        cost_nap(1000);
    for (unsigned d = 0; d < ngpus; d++) {
        cede_pool_get_statistics(pool, (int)d, &s, sizeof(s));
        busy[d] = (double)s.busy_us / 1e6;
        stolen[d] = s.stolen;
    }
    int r =
        all ? 0
            : error_set(err, -EAGAIN, "cannot start %llu threads", (unsigned long long)o.threads);
    while (n-- > 0) {
        pthread_join(threads[n].id, NULL);
        if (threads[n].result && !r) {
            *err = threads[n].err;
            r = threads[n].result;
        }
    }
    if (!r)
        r = verify(err);
    return r ? r : report(busy, stolen);
}

int main(int argc, char **argv)
{
    struct error err = {{0}};
    struct cede_pool_config c;
    struct cede_pool_statistics s;
    static const struct command_line line = {
        .program = "bench_balance",
        .help = "usage: bench_balance [--soft GPUS] [--threads N] [--seconds S] [--kernel-us U] "
                "[--share F] [--streams N] [--bound] [--within RATIO]\n"};
    const struct option_row options[] = {{"soft", COST_WHOLE(&o.soft, 1, GPUS_MAX)},
                                         {"threads", COST_WHOLE(&o.threads, 1, THREADS_MAX)},
                                         {"seconds", COST_REAL(&o.seconds, 0.01, 3600)},
                                         {"kernel-us", COST_REAL(&o.kernel_us, 1, 1e6)},
                                         {"share", COST_REAL(&o.share, 0.001, 1)},
                                         {"streams", COST_WHOLE(&o.streams, 1, 1024)},
                                         {"within", COST_REAL(&o.within, 1, 1e6)},
                                         {"bound", .flag = &o.bound}};
    int status = cost_options(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    cede_pool_defaults(&c);
    c.flags = o.soft ? CEDE_POOL_NO_GPU : 0;
    c.devices = (unsigned)o.soft;
    c.max_concurrent_streams = (unsigned)o.streams;
    /* NVML counts a GPU as busy if anything runs: the gate would leave one lease on each. */
    c.target_utilization_percent = 100;
    int r = cede_pool_open(&c, &pool);
    if (!r)
        r = cede_pool_get_statistics(pool, 0, &s, sizeof(s));
    if (r) {
        fprintf(stderr, "bench_balance: cannot open a pool: %s\n", strerror(-r));
        return 1;
    }
    ngpus = s.devices < GPUS_MAX ? s.devices : GPUS_MAX;
    if (!o.soft && !s.has_gpu)
        r = error_set(&err, -ENODEV, "no GPU: %s: try --soft 2", s.error);
    else if (o.soft)
        r = cede_pool_occupancy(pool, "spin", o.share);
    else
        r = set_up_gpus(&err);
    if (!r)
        r = measure(&err);
    if (r < 0)
        fprintf(stderr, "bench_balance: %s\n", err.text[0] ? err.text : strerror(-r));
    cede_pool_close(pool);
    return r < 0 ? 1 : r;
}
