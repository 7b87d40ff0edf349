/* The layer on an OpenCL that the test makes up (fake.h). The other side is the daemon's driver, in
 * this process: so each test says exactly what may be queued when. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "../test.h"
#include "gpu/ops.h"
#include "strict.h"

#define US 1000ULL

/* ---- both sides ------------------------------------------------------------------------------ */

static cl_icd_dispatch below;
static const cl_icd_dispatch *cl; /* as the program sees it */
static struct device_driver *driver;
static struct device_group group;
static cl_command_queue queue;
static void *library;

static void open_layer(void)
{
    fake_begin(&below);
    library = dlopen(getenv("OPENCL_LAYER"), RTLD_NOW);
    assert_non_null(library);
    pfn_clInitLayer init = (pfn_clInitLayer)dlsym(library, "clInitLayer");
    cl_uint n;
    assert_non_null(init);
    assert_int_equal(init(10, &below, &n, &cl), CL_INVALID_VALUE);
    assert_int_equal(init(sizeof(below) / sizeof(void *), &below, &n, &cl), CL_SUCCESS);
}

/* As the driver finds it now. */
static void find_group(void)
{
    struct pid_list pids = {0};
    struct group_list l = {0};
    struct proc_stat st;
    proc_stat_read(getpid(), &st);
    for (int i = 0; i < 5000 && !l.n; i++) {
        usleep(i ? 1000 : 0);
        pids.n = 0;
        assert_int_equal(driver->ops->processes(driver, &pids, NULL), 0);
        assert_int_equal(driver->ops->scan(driver, st.id, &l, NULL), 0);
    }
    assert_int_equal(l.n, 1);
    group = l.v[0];
    group_list_free(&l);
    pid_list_free(&pids);
}

static void *answer(void *unused)
{
    find_group(); /* while the layer waits for the daemon */
    return NULL;
}

static void slice(uint64_t us)
{
    assert_int_equal(driver->ops->set_timeslice(driver, &group, us, NULL), 0);
}

static void runs(bool yes)
{
    const struct device_group *g = &group;
    assert_int_equal(driver->ops->set_running(driver, &g, 1, yes, NULL), 0);
}

static bool wants(void)
{
    static bool last;
    struct demand_list l = {0};
    assert_int_equal(driver->ops->demand(driver, &l, NULL), 0);
    for (size_t i = 0; i < l.n; i++)
        last = l.v[i].wants;
    demand_list_free(&l);
    return last;
}

static bool soon(bool (*f)(void), bool value)
{
    for (int i = 0; i < 2000 && f() != value; i++)
        usleep(1000);
    return f() == value;
}

static void reset(uint64_t ns, uint64_t items)
{
    cl->clFinish(queue);
    pthread_mutex_lock(&fake.lock);
    fake.ns = ns;
    fake.items = items;
    fake.most = fake.kernels = 0;
    fake.submitted = fake.ended = 0;
    memset(fake.covered, 0, sizeof(fake.covered));
    pthread_mutex_unlock(&fake.lock);
}

static int lift_limit(void **state)
{
    slice(0);
    return 0;
}

/* A test that sets a limit, which ends with it. */
#define LIMITED_TEST(name) TEST_WITH(name, NULL, lift_limit)

static cl_kernel kernel(unsigned source)
{
    const char *text = fake_sources[source];
    cl_program p = cl->clCreateProgramWithSource(NULL, 1, &text, NULL, NULL);
    assert_int_equal(cl->clBuildProgram(p, 0, NULL, "", NULL, NULL), CL_SUCCESS);
    return cl->clCreateKernel(p, "f", NULL);
}

static void one(cl_command_queue q, cl_kernel k, size_t items, cl_event *e)
{
    assert_int_equal(cl->clEnqueueNDRangeKernel(q, k, 1, NULL, &items, NULL, 0, NULL, e), 0);
}

static void many(cl_kernel k, size_t items, unsigned n)
{
    while (n-- > 0)
        one(queue, k, items, NULL);
}

/* A kernel of this time whose time the layer knows. */
static cl_kernel known_kernel(uint64_t ns)
{
    cl_kernel k = kernel(1);
    reset(ns, 0);
    many(k, 16, 3);
    cl->clFinish(queue);
    return k;
}

static void *submit_one(void *arg)
{
    many(arg, 16, 1);
    return NULL;
}

static unsigned long submitted(void)
{
    return __atomic_load_n(&fake.submitted, __ATOMIC_SEQ_CST);
}

/* ---- tests ----------------------------------------------------------------------------------- */

TEST(begin)
{
    struct error err;
    char path[64];
    snprintf(path, sizeof(path), "/tmp/cede-layer-%d", getpid());
    setenv("CEDE_GATE", path, 1);
    assert_int_equal(device_gate.open(path, &driver, &err), 0);
    struct pid_list pids = {0};
    assert_int_equal(driver->ops->processes(driver, &pids, &err), 0); /* it listens */
    pid_list_free(&pids);
    open_layer();
    pthread_t a;
    pthread_create(&a, NULL, answer, NULL);
    queue = cl->clCreateCommandQueueWithProperties(NULL, NULL, NULL, NULL);
    assert_non_null(queue);
    pthread_join(a, NULL);
}

TEST(profiling_is_hidden)
{
    cl_queue_properties asked[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0}, got[8];
    cl_command_queue_properties flags;
    cl_ulong t;
    size_t n = 99;
    cl_event e;
    /* The queue of begin() was not to measure: the device was asked to, and nobody sees it. */
    assert_true(fake.made[0] == CL_QUEUE_PROPERTIES && fake.made[1] & CL_QUEUE_PROFILING_ENABLE);
    assert_int_equal(
        cl->clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof(flags), &flags, NULL), 0);
    assert_int_equal(flags, 0);
    assert_int_equal(cl->clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES_ARRAY, 0, NULL, &n), 0);
    assert_int_equal(n, 0);
    assert_int_equal(cl->clEnqueueWriteBuffer(queue, NULL, 0, 0, 0, NULL, 0, NULL, &e), 0);
    assert_int_equal(cl->clGetEventProfilingInfo(e, CL_PROFILING_COMMAND_END, sizeof(t), &t, NULL),
                     CL_PROFILING_INFO_NOT_AVAILABLE);
    cl->clFinish(queue);
    /* One that was. */
    cl->clReleaseCommandQueue(queue);
    queue = cl->clCreateCommandQueueWithProperties(NULL, NULL, asked, NULL);
    assert_int_equal(
        cl->clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES_ARRAY, sizeof(got), got, &n), 0);
    assert_int_equal(n, sizeof(asked));
    assert_memory_equal(got, asked, sizeof(asked));
    assert_int_equal(cl->clGetEventProfilingInfo(e, CL_PROFILING_COMMAND_END, sizeof(t), &t, NULL),
                     0);
}

TEST(hints_are_left_out)
{
    cl_queue_properties asked[] = {0x1096, 1, 0}; /* CL_QUEUE_PRIORITY_KHR */
    cl_int r = 1;
    fake.refuses_hints = true;
    cl->clReleaseCommandQueue(queue);
    queue = cl->clCreateCommandQueueWithProperties(NULL, NULL, asked, &r);
    assert_non_null(queue);
    assert_int_equal(r, CL_SUCCESS);
    assert_int_not_equal(fake.made[0], 0x1096);
    fake.refuses_hints = false;
}

/* What is long and cannot be cut makes the program's level less. */
LIMITED_TEST(kernels_are_cut)
{
    slice(1);
    for (unsigned source = 0; source < 2; source++) {
        cl_kernel k = kernel(source);
        size_t items = 256, offset = 0, local = 8;
        cl_event e = NULL;
        reset(16000 * US, 256);
        for (int i = 0; i < 3; i++) { /* unknown, then known */
            cl->clFinish(queue);
            memset(fake.covered, 0, sizeof(fake.covered));
            fake.kernels = 0;
            assert_int_equal(cl->clEnqueueNDRangeKernel(queue, k, 1, &offset, &items, &local, 0,
                                                        NULL, i == 2 ? &e : NULL),
                             0);
            for (unsigned x = 0; x < 256; x++)
                assert_int_equal(fake.covered[x], 1); /* each once, whatever the cuts */
            if (source == 0)
                assert_in_range(fake.kernels, 8, 32);
            else
                assert_int_equal(fake.kernels, 1); /* it would see it */
            find_group();
            assert_int_equal(group.level, source && i ? LEVEL_GATE : LEVEL_PIECE);
        }
        assert_non_null(e);
        cl->clFinish(queue);
        assert_true(((struct fake_event *)e)->done);
    }
}

LIMITED_TEST(open_device_takes_all)
{
    cl_kernel k = kernel(1);
    slice(0);
    reset(200 * US, 0);
    many(k, 16, 100);
    assert_true(fake.most >= 50); /* it keeps up with 200 us only in part */
    cl->clFinish(queue);
    assert_false(wants()); /* nothing is counted */
}

LIMITED_TEST(queue_is_kept_short)
{
    static const struct {
        uint64_t us, limit_us;
        unsigned least, most;
    } cases[] = {
        {2000, 1, 1, 2}, /* the next is there just before the device runs dry */
        {2000, 5000, 2, 3},
        {2000, 20000, 7, 10},
        {500, 1, 1, 2},
    };
    cl_kernel k = kernel(1);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        slice(cases[i].limit_us);
        reset(cases[i].us * US, 0);
        many(k, 17 + i, 10); /* learn */
        cl->clFinish(queue);
        reset(cases[i].us * US, 0);
        many(k, 17 + i, 40);
        assert_in_range(fake.most, cases[i].least, cases[i].most + 1); /* estimates waver */
        cl->clFinish(queue);
        assert_int_equal(fake.ended, 40);
    }
}

LIMITED_TEST(closed_device_holds)
{
    cl_kernel k = kernel(1);
    pthread_t t;
    slice(1000000);
    reset(100 * US, 0);
    runs(false);
    pthread_create(&t, NULL, submit_one, k);
    assert_true(soon(wants, true));
    usleep(100000);
    assert_int_equal(submitted(), 0);
    runs(true);
    pthread_join(t, NULL);
    assert_int_equal(submitted(), 1);
    cl->clFinish(queue);
    assert_true(soon(wants, false));
}

static atomic_int called;
static void CL_CALLBACK submits(cl_event e, cl_int status, void *k)
{
    many(k, 16, 1);
    atomic_store(&called, 1);
}
static bool was_called(void)
{
    return atomic_load(&called);
}

/* The device waits for its callbacks: they are not held. */
LIMITED_TEST(callbacks_are_not_held)
{
    cl_kernel k = kernel(1);
    cl_event e;
    slice(1000000);
    reset(20000 * US, 0);
    one(queue, k, 16, &e);
    assert_int_equal(cl->clSetEventCallback(e, CL_COMPLETE, submits, k), 0);
    runs(false);
    assert_true(soon(was_called, true));
    assert_int_equal(submitted(), 2);
    runs(true);
}

/* What is queued waits for the program: it has to come to where it sets the event. */
LIMITED_TEST(host_events_lift_the_limit)
{
    cl_kernel k = kernel(1);
    slice(1);
    reset(5000 * US, 0);
    cl_event e = cl->clCreateUserEvent(NULL, NULL);
    many(k, 16, 6);
    assert_in_range(fake.most, 5, 6);
    assert_int_equal(cl->clSetUserEventStatus(e, CL_COMPLETE), 0);
    cl->clFinish(queue);
}

/* Commands keep their queue: that there are more references does not mean that it lives. */
LIMITED_TEST(released_queues_are_let_be)
{
    cl_kernel k = kernel(1);
    slice(1);
    reset(20000 * US, 0);
    fake.next_queue = 0x1800;
    cl_command_queue other = cl->clCreateCommandQueueWithProperties(NULL, NULL, NULL, NULL);
    fake.next_queue = 0;
    one(other, k, 16, NULL);
    fake.queue_references = 2;
    assert_int_equal(cl->clReleaseCommandQueue(other), 0);
    fake.queue_references = 0;
    fake.flushed = NULL;
    many(k, 16, 2); /* waits for room, and flushes before */
    assert_ptr_not_equal(fake.flushed, other);
    many(k, 16, 1);
    assert_ptr_equal(fake.flushed, queue);
    cl->clFinish(queue);
}

static cl_int launch(const cl_icd_dispatch *through, const struct strict_launch *l, bool *failed)
{
    cl_event e = NULL;
    memset(strict.count, 0, sizeof(strict.count));
    strict.items = strict.calls = 0;
    cl_int r = through->clEnqueueNDRangeKernel(
        l->q, l->k, l->dims, l->offset_given ? l->offset : NULL, l->size_given ? l->size : NULL,
        l->local_given ? l->local : NULL, l->n, l->list_given ? l->wait : NULL,
        l->event_wanted ? &e : NULL);
    *failed = e && ((struct strict_event *)e)->failed;
    return r;
}

/* The device refuses and does the same, with the layer and without. */
LIMITED_TEST(launches_are_the_same)
{
    static unsigned char count[sizeof(strict.count)];
    const cl_kernel kernels[] = {kernel(0), kernel(1), kernel(2)};
    const char *seed = getenv("CEDE_LAUNCHES_SEED");
    unsigned cut = 0, refused = 0;
    struct strict_launch l;
    print_message("CEDE_LAUNCHES_SEED=%s\n", seed ? seed : "1");
    strict_seed(strtoull(seed ? seed : "1", NULL, 10));
    fake.old = true;
    fake.next_queue = 0x1900;
    const cl_command_queue queues[] = {
        queue, cl->clCreateCommandQueueWithProperties(NULL, NULL, NULL, NULL)};
    fake.old = false;
    fake.next_queue = 0;
    slice(1);
    reset(0, 0);
    __typeof__(below.clEnqueueNDRangeKernel) before = below.clEnqueueNDRangeKernel;
    below.clEnqueueNDRangeKernel = strict_nd;
    strict.four = kernels[2];
    for (int i = 0; i < 10000; i++) {
        bool failed[2];
        strict_choose(&l, kernels, queues);
        cl_int r = launch(&below, &l, &failed[0]);
        uint64_t items = strict.items;
        memcpy(count, strict.count, sizeof(count));
        strict.refuses = r == CL_SUCCESS ? l.refuses : 0;
        assert_int_equal(launch(cl, &l, &failed[1]), r);
        strict.refuses = 0;
        assert_int_equal(failed[1], failed[0]);
        assert_int_equal(strict.items, items);
        assert_memory_equal(strict.count, count, sizeof(count));
        cut += r == CL_SUCCESS && strict.calls > 1;
        refused += r != CL_SUCCESS;
    }
    assert_true(cut > 500 && refused > 2000);
    below.clEnqueueNDRangeKernel = before;
    cl->clReleaseCommandQueue(queues[1]);
}

static atomic_int flushes;
static void flushes_too(void)
{
    atomic_fetch_add(&flushes, 1);
    fake.in_flush = NULL;
    cl->clFlush((cl_command_queue)0x7000);
}

/* An implementation may run what is queued, and the program's callbacks, in its clFlush(): when the
 * layer flushes before it waits, it holds nothing that those need. */
LIMITED_TEST(callbacks_within_a_flush_flush)
{
    slice(1);
    cl_kernel k = known_kernel(2000 * US);
    int before = atomic_load(&fake.retained);
    fake.in_flush = flushes_too;
    many(k, 16, 5);
    cl->clFinish(queue);
    assert_int_equal(atomic_load(&flushes), 1);
    assert_int_equal(atomic_load(&fake.retained), before);
}

static void forks(void)
{
    fake.in_retain = NULL;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(5);
        cl->clFlush(queue);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* A thread may fork while another is in the middle of the layer: the child is not kept by that. */
LIMITED_TEST(forks_while_it_flushes)
{
    slice(1);
    cl_kernel k = known_kernel(2000 * US);
    fake.in_retain = forks;
    many(k, 16, 5);
    assert_null(fake.in_retain);
}

TEST(end)
{
    cl->clFinish(queue);
    device_close(driver);
    /* Without a daemon nothing is held. */
    reset(100 * US, 0);
    many(kernel(1), 16, 5);
    assert_int_equal(submitted(), 5);
    cl->clFinish(queue);
}

/* A loader may close its layers at exit; the thread that looks after the daemon goes on. */
TEST(stays_when_closed)
{
    assert_int_equal(dlclose(library), 0);
    library = dlopen(getenv("OPENCL_LAYER"), RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
}
