/* Who had the software GPU: as on hardware, a group keeps it until another one wants it, and what
 * switching adds counts as its own. Through the driver the record begins and ends as it is asked
 * for. */
#include "fixture.h"

#include <poll.h>
#include <unistd.h>

#include "gpu/mux.h"
#include "softgpu/engine.h"

/* ---- the engine ---- */

#define RING 4096U

static struct softgpu_switch ring[RING];

/* What each of `n` owners with the tags 1.. had, by the record up to now. */
static void sum_record(const struct softgpu *e, uint64_t end, uint64_t *had_ns, unsigned n)
{
    assert_true(end <= RING);
    memset(had_ns, 0, n * sizeof(*had_ns));
    for (uint64_t i = 0; i < end; i++) {
        uint64_t until = i + 1 < end ? ring[i + 1].ns : softgpu_now_ns(e);
        assert_true(until > ring[i].ns || i + 1 == end);
        assert_true(ring[i].who <= n);
        assert_true(i == 0 || ring[i].who != ring[i - 1].who);
        if (ring[i].who)
            had_ns[ring[i].who - 1] += until - ring[i].ns;
    }
}

static void submit_many(struct softgpu *e, uint32_t group, uint64_t duration_ns, unsigned times)
{
    const struct softgpu_kernel k = {.duration_ns = duration_ns, .sm_fraction = 1};
    while (times-- > 0)
        assert_int_equal(softgpu_submit(e, group, &k, softgpu_now_ns(e)), 0);
}

/* Two that take turns, with suspensions and gaps: each has the engine for all that it runs, and for
 * no more than there is. */
TEST(test_turns)
{
    struct softgpu_params p;
    _cleanup_engine_ struct softgpu *e = NULL;
    uint32_t a, b;
    uint64_t end = 0, had_ns[2], done;
    softgpu_params_h200(&p);
    assert_int_equal(softgpu_new(&p, 2, 256, &e), 0);
    assert_int_equal(softgpu_group_add(e, 0, &a), 0);
    assert_int_equal(softgpu_group_add(e, 0, &b), 0);
    assert_int_equal(softgpu_tag(e, a, 1), 0);
    assert_int_equal(softgpu_tag(e, b, 2), 0);
    assert_int_equal(softgpu_tag(e, 77, 2), -22);
    softgpu_record(e, ring, RING, &end);
    for (unsigned round = 0; round < 40; round++) {
        submit_many(e, a, 900 * US, 3);
        submit_many(e, b, 70 * US, round % 5);
        softgpu_advance(e, softgpu_now_ns(e) + 1 * MS);
        if (round % 7 == 3)
            softgpu_control(e, a, SOFTGPU_SUSPEND, 0, softgpu_now_ns(e), &done);
        if (round % 7 == 4)
            softgpu_control(e, a, SOFTGPU_RESUME, 0, softgpu_now_ns(e), &done);
        softgpu_advance(e, softgpu_now_ns(e) + 2 * MS);
        sum_record(e, end, had_ns, 2);
        for (unsigned i = 0; i < 2; i++) {
            struct softgpu_group_info info;
            assert_int_equal(softgpu_group_info(e, i ? b : a, &info), 0);
            assert_true(had_ns[i] >= info.busy_ns);
        }
        assert_true(had_ns[0] + had_ns[1] <= softgpu_now_ns(e));
    }
    assert_true(end > 40 && had_ns[0] > 0 && had_ns[1] > 0);
    uint64_t ended = end;
    softgpu_record(e, NULL, 0, NULL);
    submit_many(e, b, 70 * US, 3);
    softgpu_advance(e, softgpu_now_ns(e) + 100 * MS);
    assert_int_equal(end, ended);
}

/* Of several owners at once one is named; the last keeps the engine when none has work. */
TEST(test_owners)
{
    static const struct softgpu_params plain = {.switch_ns = 100 * US, .timeslice_us = 1000};
    _cleanup_engine_ struct softgpu *e = NULL;
    uint32_t a, b;
    uint64_t end = 0;
    assert_int_equal(softgpu_new(&plain, 2, 64, &e), 0);
    assert_int_equal(softgpu_group_add(e, 0, &a), 0);
    assert_int_equal(softgpu_group_join(e, a, 0, &b), 0);
    softgpu_tag(e, a, 1);
    softgpu_tag(e, b, 2);
    softgpu_record(e, ring, RING, &end);
    const struct softgpu_kernel half = {.duration_ns = 5 * MS, .sm_fraction = 0.5F};
    assert_int_equal(softgpu_submit(e, b, &half, 1 * MS), 0);
    assert_int_equal(softgpu_submit(e, a, &half, 2 * MS), 0);
    softgpu_advance(e, 100 * MS);
    assert_int_equal(end, 2);
    assert_int_equal(ring[0].who, 2);
    assert_int_equal(ring[0].ns, 1 * MS);
    assert_int_equal(ring[1].who, 1);
}

/* ---- through the driver ---- */

static void take(struct device_driver *d, struct switch_list *l)
{
    assert_int_equal(d->ops->switches(d, l, NULL), 0);
}

/* Time of this process on a GPU, by the list; times ascend. */
static uint64_t had(const struct switch_list *l, unsigned gpu)
{
    const struct gpu_switch *last = NULL;
    uint64_t ns = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].gpu != gpu)
            continue;
        assert_true(l->v[i].pid == getpid() || l->v[i].pid == GPU_NOBODY);
        assert_true(!last || l->v[i].ns > last->ns);
        if (last && last->pid == getpid())
            ns += l->v[i].ns - last->ns;
        last = &l->v[i];
    }
    return ns;
}

/* A program that comes, runs so many kernels and leaves, which takes the engine from it. */
static void come_and_leave(const struct fixture *f, unsigned kernels)
{
    _cleanup_client_ struct soft_client *c = client(f, 1);
    run(c, 1 * MS, kernels);
    usleep(2000);
}

END_TO_END(test_driver)
{
    _cleanup_driver_ struct device_driver *d = driver(f), *other = driver(f);
    _cleanup_(switch_list_free) struct switch_list l = {0};
    come_and_leave(f, 5); /* nobody looks */
    take(d, &l);
    assert_int_equal(l.n, 0);
    come_and_leave(f, 10);
    come_and_leave(f, 10);
    take(d, &l);
    assert_true(l.n >= 4 && had(&l, 1) >= 20 * MS);
    assert_int_equal(had(&l, 0), 0);
    /* More than one message, and another reader, which has what is from its beginning on. */
    _cleanup_(switch_list_free) struct switch_list theirs = {0};
    take(other, &theirs);
    for (int i = 0; i < 100; i++)
        come_and_leave(f, 1);
    take(other, &theirs);
    assert_true(theirs.n >= 199 && had(&theirs, 1) >= 100 * MS);
    take(d, &l);
    assert_true(had(&l, 1) >= 120 * MS);
    /* It ends for both: the other one is told of the gap. */
    assert_int_equal(d->ops->switches(d, NULL, NULL), 0);
    come_and_leave(f, 3);
    theirs.n = 0;
    take(other, &theirs);
    come_and_leave(f, 3);
    take(other, &theirs);
    assert_true(theirs.n > 0);
    assert_int_equal(theirs.v[0].pid, GPU_UNKNOWN);
    l.n = 0;
    take(d, &l);
    assert_int_equal(l.n, 0);
}

/* The same server twice, as two drivers: each GPU has two numbers. */
END_TO_END(several_drivers)
{
    struct mux_part parts[2] = {{.ops = &device_soft, .gpus = 2}, {.ops = &device_soft, .gpus = 2}};
    _cleanup_driver_ struct device_driver *d = NULL;
    _cleanup_(switch_list_free) struct switch_list l = {0};
    for (int i = 0; i < 2; i++)
        snprintf(parts[i].where, sizeof(parts[i].where), "%s", f->path);
    assert_int_equal(mux_new(parts, 2, &d, NULL), 0);
    take(d, &l);
    come_and_leave(f, 10);
    take(d, &l);
    for (unsigned gpu = 0; gpu < 4; gpu++)
        assert_true(gpu % 2 ? had(&l, gpu) >= 10 * MS : had(&l, gpu) == 0);
    assert_int_equal(d->ops->switches(d, NULL, NULL), 0);
    come_and_leave(f, 3);
    l.n = 0;
    take(d, &l);
    assert_int_equal(l.n, 0);
}

/* ---- contexts that are opened ---- */

static void watched(void *arg, int fd)
{
    *(int *)arg = fd;
}

static void unwatched(void *arg, int fd)
{
    assert_int_equal(*(int *)arg, fd);
    *(int *)arg = -1;
}

/* The driver reports who opens a context, to a caller that watches for it; also by a server that
 * has come since. */
END_TO_END(test_opened)
{
    struct device_driver *d = driver(f);
    int fd = -1, status;
    const struct device_watcher w = {watched, unwatched, &fd};
    struct demand_list l = {0};
    _cleanup_(pid_list_free) struct pid_list pids = {0};
    d->ops->watch(d, &w);
    assert_true(fd >= 0);
    for (int i = 0; i < 2; i++) {
        struct soft_client *c = client(f, 1);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, PATIENCE), 1);
        d->ops->ready(d, fd);
        assert_int_equal(d->ops->demand(d, &l, NULL), 0);
        assert_int_equal(l.n, 1);
        assert_int_equal(l.v[0].pid, getpid());
        assert_int_equal(l.v[0].gpu, 1);
        demand_list_free(&l);
        assert_int_equal(d->ops->demand(d, &l, NULL), 0);
        assert_int_equal(l.n, 0);
        soft_client_close(c);
        if (i)
            break;
        stop_server(f->server);
        assert_int_equal(poll(&p, 1, PATIENCE), 1);
        d->ops->ready(d, fd);
        assert_int_equal(fd, -1);
        f->server = start_server(f->path, geteuid(), &status);
        assert_int_equal(d->ops->processes(d, &pids, NULL), -ENODEV);
        assert_int_equal(d->ops->processes(d, &pids, NULL), 0);
        assert_true(fd >= 0);
    }
    d->ops->watch(d, NULL);
    assert_int_equal(fd, -1);
    d->ops->close(d);
}
