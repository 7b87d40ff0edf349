/* The software GPU end to end: server, client library and driver over a real socket. Asserts on
 * results, orders and the GPU's own (virtual) times, never on how long anything took here. */
#include "fixture.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/soft/proto.h"
#include "softgpu/engine.h"
#include "softgpu/server.h"

END_TO_END(kernels)
{
    _cleanup_client_ struct soft_client *c = client(f, 0);
    struct soft_completion a, b;
    submit(c, 300 * US, 2);
    a = wait_for(c);
    b = wait_for(c);
    assert_true(a.submit_ns < a.start_ns);
    assert_int_equal(a.end_ns, a.start_ns + 300 * US);
    assert_true(b.start_ns >= a.end_ns);
    assert_int_equal(b.end_ns, b.start_ns + 300 * US);
    has_none(c);
}

END_TO_END(client_limits)
{
    _cleanup_client_ struct soft_client *c = client(f, 0);
    struct soft_client *none;
    static const struct soft_kernel bad[] = {
        {SOFTGPU_STREAMS, 1, 1, 0, 0},    {0, 0, 1, 0, 0}, {0, 1, 0, 0, 0}, {0, 1, 1.5f, 0, 0},
        {0, 1, __builtin_nanf(""), 0, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(soft_client_submit(c, &bad[i]), -EINVAL);
    submit(c, 2 * US, SOFT_OUTSTANDING_MAX);
    struct soft_kernel k = {.duration_ns = US, .sm_fraction = 1, .cookie = 42};
    assert_int_equal(soft_client_submit(c, &k), -EAGAIN);
    wait_for(c);
    assert_int_equal(soft_client_submit(c, &k), 0);
    wait_for_all(c, SOFT_OUTSTANDING_MAX);
    has_none(c);
    assert_int_equal(soft_client_open(f->path, 2, NULL, &none), -ENODEV);
}

END_TO_END(no_server)
{
    struct soft_client *c;
    struct device_driver *d;
    struct error err = {""};
    char path[96];
    snprintf(path, sizeof(path), "%s/none", f->dir);
    assert_int_equal(soft_client_open(path, 0, NULL, &c), -ENOENT);
    assert_int_equal(device_soft.open(path, &d, &err), -ENODEV);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "cede-softgpu"));
}

/* Programs count the GPUs that CUDA_VISIBLE_DEVICES lists; of the two there are. */
END_TO_END(visible)
{
    static const struct {
        const char *list;
        unsigned gpu;
        int code;
    } rows[] = {
        {"1", 0, 0},         {"1", 1, -ENODEV},    {"SOFT-1,0", 1, 0},
        {"0,7", 1, -ENODEV}, {"0,-1", 1, -ENODEV}, {"GPU-8932f937", 1, 0}, /* about others */
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_client_ struct soft_client *c = NULL;
        setenv("CUDA_VISIBLE_DEVICES", rows[i].list, 1);
        assert_int_equal(soft_client_open(f->path, rows[i].gpu, NULL, &c), rows[i].code);
        unsetenv("CUDA_VISIBLE_DEVICES");
    }
}

END_TO_END(many_clients)
{
    enum { N = 100 };
    struct soft_client *c[N];
    _cleanup_driver_ struct device_driver *d = driver(f);
    for (unsigned i = 0; i < N; i++) {
        c[i] = client(f, i % 2);
        submit(c[i], 50 * US, 3);
    }
    struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, N * SOFT_CONTEXT_GROUPS);
    for (size_t i = 1; i < l.n; i++)
        assert_true(l.v[i].key > l.v[i - 1].key);
    group_list_free(&l);
    for (unsigned i = 0; i < N; i++) {
        wait_for_all(c[i], 3);
        soft_client_close(c[i]);
    }
}

static struct soft_client *rank_of(const struct fixture *f, const struct soft_gang *g, unsigned gpu)
{
    struct soft_client *c = NULL;
    assert_int_equal(soft_client_open(f->path, gpu, g, &c), 0);
    return c;
}

/* A collective waits for all ranks, and for ever after one has gone; that GPU's other contexts do
 * not. */
END_TO_END(gang)
{
    const struct soft_gang g = {7, 2}, same = {7, 3}, one = {8, 1}, many = {9, 3}, none = {0, 2};
    struct soft_client *a = rank_of(f, &g, 0), *no = NULL;
    _cleanup_client_ struct soft_client *other = client(f, 0), *b = NULL;
    const struct soft_gang *bad[] = {&g, &same, &one, &many, &none};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) /* the first: there is one on that GPU */
        assert_int_equal(soft_client_open(f->path, 0, bad[i], &no), -EINVAL);
    submit(a, 300 * US, 2);
    run(other, 3 * MS, 1);
    has_none(a);
    b = rank_of(f, &g, 1);
    assert_int_equal(soft_client_open(f->path, 1, &g, &no), -EINVAL);
    submit(b, 300 * US, 2);
    for (int i = 0; i < 2; i++) {
        const struct soft_completion cb = wait_for(b);
        assert_int_equal(wait_for(a).end_ns, cb.end_ns);
        assert_true(cb.end_ns - cb.submit_ns >= 300 * US);
    }

    /* One rank is off its GPU: neither gets on. */
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
    assert_int_equal(l.v[0].gpu, 0);
    assert_int_equal(switch_groups(d, &l, 1, true), 0);
    submit(a, 300 * US, 1);
    submit(b, 300 * US, 1);
    run(other, 3 * MS, 1);
    has_none(b);
    assert_int_equal(switch_groups(d, &l, 1, false), 0);
    assert_int_equal(wait_for(a).end_ns, wait_for(b).end_ns);

    submit(b, 300 * US, 2);
    soft_client_close(a);
    _cleanup_client_ struct soft_client *new_a = rank_of(f, &g, 0), *new_b = rank_of(f, &g, 1);
    submit(new_a, 300 * US, 3);
    submit(new_b, 300 * US, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(wait_for(new_a).end_ns, wait_for(new_b).end_ns);
    has_none(b);
}

/* ---- driver ---- */

END_TO_END(test_scan)
{
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *a = client(f, 0), *b = client(f, 1);
    struct gpu_info info;
    _cleanup_(pid_list_free) struct pid_list pids = {0};
    assert_int_equal(d->ops->gpus(d), 2);
    assert_int_equal(d->ops->info(d, 1, &info), 0);
    assert_string_equal(info.uuid, "SOFT-1");
    assert_int_equal(info.timeslice_default_us, 2048);
    assert_int_equal(d->ops->info(d, 2, &info), -ENODEV);
    assert_int_equal(d->ops->processes(d, &pids, NULL), 0);
    assert_int_equal(pids.n, 1); /* once, for two contexts */
    assert_int_equal(pids.v[0], getpid());

    _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, 8);
    for (size_t i = 0; i < l.n; i++) {
        assert_int_equal(l.v[i].kind, i % 4 == 0 ? GROUP_COMPUTE : GROUP_COPY);
        assert_int_equal(l.v[i].gpu, i / 4);
        assert_int_equal(l.v[i].timeslice_us, 2048);
        assert_int_equal(l.v[i].nchannels, i % 4 == 0 ? 8 : 4);
        assert_int_equal(l.v[i].proc.pid, getpid());
    }

    /* A process without a context: nothing, and no error. A pid that is another process by now. */
    struct proc_id parent = id_of(getppid()), reused = id_of(getpid());
    assert_int_equal(d->ops->scan(d, parent, &l, NULL), 0);
    assert_int_equal(l.n, 8);
    reused.start_ticks++;
    assert_int_equal(d->ops->scan(d, reused, &l, NULL), -ESRCH);
}

/* The first two groups of this process, as this driver shows them: what their timeslices were. */
static void shows(struct device_driver *d, uint64_t first_us, uint64_t second_us)
{
    _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
    assert_int_equal(l.v[0].timeslice_us, first_us);
    assert_int_equal(l.v[1].timeslice_us, second_us);
}

END_TO_END(test_set_timeslice)
{
    _cleanup_client_ struct soft_client *c = client(f, 0);
    struct device_driver *d = driver(f);
    struct error err = {""};
    _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, 4);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 7, &err), 0);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 0, &err), -EINVAL);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 1ULL << 40, &err), -EINVAL);

    /* Who saw it before still knows what to restore; who comes later finds what was set, also when
     * the connection it was set through is closed. */
    shows(d, 2048, 2048);
    device_close(d);
    _cleanup_driver_ struct device_driver *other = driver(f);
    shows(other, 7, 2048);

    /* Forgetting is per process. */
    assert_int_equal(other->ops->set_timeslice(other, &l.v[0], 9, NULL), 0);
    other->ops->forget(other, getpid());
    shows(other, 9, 2048);

    l.v[0].key += 1000000;
    assert_int_equal(other->ops->set_timeslice(other, &l.v[0], 7, &err), -ESRCH);
    assert_true(err.text[0] != '\0');
}

END_TO_END(test_suspend)
{
    _cleanup_client_ struct soft_client *a = client(f, 0), *b = client(f, 0);
    struct device_driver *d = driver(f);
    _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
    submit(a, 10 * MS, 1000);
    assert_int_equal(switch_groups(d, &l, 4, true), 0);
    /* What had ended by then is here; while it is suspended there is no more, though the GPU does
     * far more for the other than all of that is. */
    drain(a);
    run(b, 4 * MS, 50);
    has_none(a);
    assert_int_equal(switch_groups(d, &l, 4, true), 0); /* again: counted */
    assert_int_equal(switch_groups(d, &l, 4, false), 0);
    /* It stays so when nobody is connected for controls. */
    device_close(d);
    const struct soft_completion last = run(b, 1 * MS, 1);
    has_none(a);

    d = driver(f);
    assert_int_equal(switch_groups(d, &l, 4, false), 0);
    assert_true(wait_for(a).end_ns > last.end_ns);

    /* One unknown group: an error, and the others are done all the same. */
    uint64_t key = l.v[3].key;
    l.v[3].key = 1;
    assert_int_equal(switch_groups(d, &l, 4, true), -ESRCH);
    drain(a);
    run(b, 4 * MS, 2);
    has_none(a);
    l.v[3].key = key;
    assert_int_equal(switch_groups(d, &l, 4, false), 0);
    wait_for(a);
    device_close(d);
}

static uint64_t suspend_takes(struct device_driver *d, const struct group_list *l, size_t n)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 20; i++) {
        uint64_t begin = monotonic_ns();
        assert_int_equal(switch_groups(d, l, n, true), 0);
        best = min_u64(best, monotonic_ns() - begin);
        assert_int_equal(switch_groups(d, l, n, false), 0);
    }
    return best;
}

/* A call for two programs takes as long as one for one of them. */
END_TO_END(suspend_two)
{
    _cleanup_client_ struct soft_client *a = client(f, 0), *b = client(f, 0);
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
    struct softgpu_params p;
    softgpu_params_h200(&p);
    assert_int_equal(l.n, 8);
    assert_in_range(suspend_takes(d, &l, 4), p.suspend_call_ns, 2 * p.suspend_call_ns - 1);
    assert_in_range(suspend_takes(d, &l, 8), p.suspend_call_ns, 2 * p.suspend_call_ns - 1);
}

/* The point of it all: a batch program's timeslice, set from outside, decides on the latency. */
END_TO_END(test_latency)
{
    _cleanup_client_ struct soft_client *lat = client(f, 0), *batch = client(f, 0);
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, 8);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[4], 1, NULL), 0);
    submit(batch, 10 * MS, 1000);
    for (int i = 0; i < 30; i++) {
        usleep(2000); /* until the GPU has gone back to the batch program for sure */
        struct soft_completion c = run(lat, 100 * US, 1);
        /* alone 125-134, switch in 175, slice 1 */
        assert_in_range(c.end_ns - c.submit_ns, 280 * US, 311 * US);
    }
}

END_TO_END(test_usage)
{
    _cleanup_client_ struct soft_client *a = client(f, 0), *b = client(f, 1), *c = client(f, 1);
    _cleanup_driver_ struct device_driver *d = driver(f);
    struct soft_client *works[] = {a, c};
    /* Since the last call. Two contexts of one process are one entry. */
    for (unsigned i = 0; i < 2; i++) {
        _cleanup_(usage_list_free) struct usage_list u = {0};
        run(works[i], 5 * MS, 1);
        assert_int_equal(d->ops->usage(d, &u, NULL), 0);
        assert_int_equal(u.n, 2);
        for (unsigned gpu = 0; gpu < 2; gpu++) {
            assert_int_equal(u.v[gpu].pid, getpid());
            assert_int_equal(u.v[gpu].gpu, gpu);
            assert_true(gpu == i ? u.v[gpu].busy > 0 && u.v[gpu].busy <= 1 : u.v[gpu].busy == 0);
        }
    }
}

/* Controls that a server was told to ignore are accepted, and nothing changes. */
END_TO_END(test_inert)
{
    static const struct {
        const char *inert;
        uint64_t timeslice_us;
        bool stops, resumes;
    } rows[] = {{NULL, 77, true, true},
                {"timeslice", 2048, true, true},
                {"suspend", 77, false, true},
                {"resume,timeslice", 2048, true, false}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct soft_completion done;
        struct gpu_info info;
        stop_server(f->server);
        inert = rows[i].inert;
        f->server = start_server(f->path, geteuid(), NULL);
        _cleanup_client_ struct soft_client *c = client(f, 0);
        _cleanup_driver_ struct device_driver *d = driver(f);
        assert_int_equal(d->ops->info(d, 0, &info), 0);
        assert_string_equal(info.driver, "999.1");
        _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
        assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 77, NULL), 0);
        group_list_free(&l);
        l = scan(d, getpid());
        assert_int_equal(l.v[0].timeslice_now_us, rows[i].timeslice_us);
        assert_int_equal(switch_groups(d, &l, 1, true), 0);
        submit(c, US, 1);
        int r = soft_client_wait(c, rows[i].stops ? 50 * MS : 10000ULL * MS, &done);
        assert_int_equal(r, rows[i].stops ? -ETIMEDOUT : 0);
        assert_int_equal(switch_groups(d, &l, 1, false), 0);
        if (rows[i].stops && rows[i].resumes)
            wait_for(c);
        else if (rows[i].stops)
            assert_int_equal(soft_client_wait(c, 50 * MS, &done), -ETIMEDOUT);
    }
    inert = NULL;
}
