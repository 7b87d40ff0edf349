/* What the parts of the software GPU do: the engine's sums in virtual time, and the driver's shares
 * end to end. Shares are fractions of a power of two: nothing below is rounded. */
#include "fixture.h"

#include <math.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/soft/proto.h"
#include "softgpu/engine.h"

/* ---- the engine ---- */

/* Numbers: two owners of one group, and one with a group of its own. */
enum { A, B, OTHER, NUMBERS };

/* No overhead but a switch. */
static const struct softgpu_params engine_plain = {.switch_ns = 100 * US, .timeslice_us = 1000};

static void uses_of(struct softgpu *e, uint32_t owner, float dram, float fp32)
{
    float v[GPU_PARTS] = {[PART_DRAM] = dram, [PART_FP32] = fp32};
    assert_int_equal(softgpu_uses(e, owner, v, softgpu_now_ns(e)), 0);
}

static struct softgpu *pool_that_uses(float dram_a, float dram_b)
{
    struct softgpu *e = NULL;
    uint32_t n;
    assert_int_equal(softgpu_new(&engine_plain, NUMBERS, 64, &e), 0);
    assert_int_equal(softgpu_group_add(e, 0, &n), 0);
    assert_int_equal(softgpu_group_join(e, A, 0, &n), 0);
    assert_int_equal(softgpu_group_add(e, 0, &n), 0);
    assert_int_equal(n, OTHER);
    uses_of(e, A, dram_a, 0.25F);
    uses_of(e, B, dram_b, 0);
    return e;
}

static void put(struct softgpu *e, uint32_t owner, uint64_t duration_ns, float fraction)
{
    struct softgpu_kernel k = {.duration_ns = duration_ns, .sm_fraction = fraction};
    assert_int_equal(softgpu_submit(e, owner, &k, softgpu_now_ns(e)), 0);
}

static void expect_end(struct softgpu *e, uint32_t owner, uint64_t end_ns)
{
    struct softgpu_completion c;
    softgpu_advance(e, end_ns);
    assert_true(softgpu_pop_completion(e, &c));
    assert_int_equal(c.group, owner);
    assert_int_equal(c.end_ns, end_ns);
}

static uint64_t used(const struct softgpu *e, enum gpu_part part)
{
    uint64_t v[GPU_PARTS];
    softgpu_counters(e, v);
    return v[part];
}

static uint64_t busy(const struct softgpu *e, uint32_t owner)
{
    struct softgpu_group_info i;
    assert_int_equal(softgpu_group_info(e, owner, &i), 0);
    return i.busy_ns;
}

TEST(engine_alone)
{
    _cleanup_engine_ struct softgpu *e = pool_that_uses(0.5F, 0);
    put(e, A, 4 * MS, 0.125F);
    softgpu_advance(e, 3 * MS); /* in mid-kernel */
    assert_int_equal(used(e, PART_DRAM), 1500 * US);
    expect_end(e, A, 4 * MS);
    assert_int_equal(used(e, PART_DRAM), 2 * MS);
    softgpu_advance(e, 10 * MS);
    assert_int_equal(used(e, PART_DRAM), 2 * MS);
    assert_int_equal(used(e, PART_FP32), 1 * MS);
    assert_int_equal(used(e, PART_FP64), 0);
    /* In turns with one of its own: no switch is counted, and nobody slows anybody down. */
    uses_of(e, OTHER, 1, 0);
    put(e, A, 5 * MS, 1);
    put(e, OTHER, 3 * MS, 1);
    softgpu_advance(e, 100 * MS);
    assert_int_equal(busy(e, A), 9 * MS);
    assert_int_equal(busy(e, OTHER), 3 * MS);
    assert_int_equal(used(e, PART_DRAM), 4500 * US + 3 * MS);
}

TEST(engine_together)
{
    _cleanup_engine_ struct softgpu *e = pool_that_uses(0.5F, 0.5F);
    put(e, A, 2 * MS, 0.5F);
    put(e, B, 3 * MS, 0.5F);
    expect_end(e, A, 2 * MS);
    assert_int_equal(used(e, PART_DRAM), 2 * MS);
    assert_int_equal(used(e, PART_FP32), 500 * US);
    expect_end(e, B, 3 * MS);
    assert_int_equal(used(e, PART_DRAM), 2500 * US);
    /* One after the other, as both need all SMs: each gets half, and adds half. */
    for (int i = 0; i < 4; i++) {
        put(e, A, 1 * MS, 1);
        put(e, B, 1 * MS, 1);
    }
    softgpu_advance(e, 3 * MS + 8 * MS);
    assert_int_equal(busy(e, A), 2 * MS + 4 * MS);
    assert_int_equal(used(e, PART_DRAM), 2500 * US + 4 * MS);
    assert_int_equal(used(e, PART_FP32), 500 * US + 1 * MS);
}

/* Together they want twice the memory's bandwidth: both go half as fast. */
TEST(engine_too_much)
{
    _cleanup_engine_ struct softgpu *e = pool_that_uses(1, 1);
    put(e, A, 2 * MS, 0.5F);
    put(e, B, 1 * MS, 0.5F);
    expect_end(e, B, 2 * MS);
    assert_int_equal(used(e, PART_DRAM), 2 * MS);
    assert_int_equal(used(e, PART_FP32), 250 * US);
    assert_int_equal(busy(e, A), 2 * MS);
    expect_end(e, A, 3 * MS);
    assert_int_equal(used(e, PART_DRAM), 3 * MS);
    /* From then on it uses something else. */
    put(e, A, 2 * MS, 0.5F);
    put(e, B, 2 * MS, 0.5F);
    softgpu_advance(e, 5 * MS);
    uses_of(e, A, 0, 1);
    expect_end(e, A, 6 * MS);
    expect_end(e, B, 6 * MS);
    assert_int_equal(used(e, PART_DRAM), 6 * MS);
    assert_int_equal(used(e, PART_FP32), 250 * US + 250 * US + 250 * US + 1 * MS);
}

/* Three quarters as fast, in no whole numbers of ns: never more than there is, never early. */
TEST(engine_rounding)
{
    _cleanup_engine_ struct softgpu *e = pool_that_uses(1, 0.5F);
    struct softgpu_completion c;
    for (int i = 0; i < 8; i++) {
        put(e, A, 1 * MS + 7, 0.5F);
        put(e, B, 1 * MS + 3, 0.5F);
    }
    softgpu_advance(e, 0); /* all have arrived */
    for (int i = 0; i < 16; i++) {
        while (!softgpu_pop_completion(e, &c)) {
            assert_true(softgpu_next_event_ns(e) > softgpu_now_ns(e));
            softgpu_advance(e, softgpu_next_event_ns(e));
            assert_true(used(e, PART_DRAM) <= softgpu_now_ns(e));
        }
        assert_true(c.end_ns - c.start_ns > 1 * MS);
    }
    assert_in_range(softgpu_now_ns(e), 12 * MS, 12 * MS + 2 * US);
    assert_in_range(used(e, PART_DRAM), 12 * MS - 1 * US, 12 * MS + 1 * US);
}

TEST(engine_one_goes)
{
    _cleanup_engine_ struct softgpu *e = pool_that_uses(1, 1);
    put(e, A, 2 * MS, 0.5F);
    put(e, B, 2 * MS, 0.5F);
    assert_int_equal(softgpu_group_remove(e, B, 2 * MS), 0); /* in mid-kernel */
    assert_int_equal(used(e, PART_DRAM), 2 * MS);
    expect_end(e, A, 3 * MS);
    assert_int_equal(used(e, PART_DRAM), 3 * MS);
    /* Who comes in its place has said nothing. */
    uint32_t n;
    assert_int_equal(softgpu_group_join(e, A, 3 * MS, &n), 0);
    assert_int_equal(n, B);
    put(e, B, 1 * MS, 0.5F);
    expect_end(e, B, 4 * MS);
    assert_int_equal(used(e, PART_DRAM), 3 * MS);
}

/* A slower rank would be left behind by its peers, and never end. */
TEST(engine_collective)
{
    _cleanup_engine_ struct softgpu *e = pool_that_uses(1, 1), *peer = pool_that_uses(0, 0);
    struct fabric f = {.engines = {e, peer}, .n = 2};
    struct softgpu_kernel k = {
        .duration_ns = 2 * MS, .sm_fraction = 0.5F, .ranks = 2, .collective = 7};
    assert_int_equal(softgpu_submit(e, A, &k, 0), 0);
    assert_int_equal(softgpu_submit(peer, A, &k, 0), 0);
    put(e, B, 3 * MS, 0.5F);
    put(e, B, 1 * MS, 0.5F);
    fabric_advance(&f, 10 * MS);
    expect_end(e, A, 2 * MS);
    struct softgpu_completion c;
    assert_true(softgpu_pop_completion(peer, &c));
    assert_int_equal(c.end_ns, 2 * MS);
    assert_true(softgpu_pop_completion(e, &c));
    assert_int_equal(c.end_ns, 3 * MS);
}

TEST(engine_refuses)
{
    _cleanup_engine_ struct softgpu *e = pool_that_uses(0.5F, 0);
    const float bad[] = {-0.001F, 1.001F, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        float v[GPU_PARTS] = {[PART_DRAM] = bad[i]};
        assert_int_equal(softgpu_uses(e, A, v, 0), -EINVAL);
    }
    assert_int_equal(softgpu_uses(e, NUMBERS, (float[GPU_PARTS]){0}, 0), -EINVAL);
    put(e, A, 1 * MS, 1);
    expect_end(e, A, 1 * MS);
    assert_int_equal(used(e, PART_DRAM), 500 * US); /* as before */
}

/* ---- end to end ---- */

static struct soft_client *open_that_uses(const struct fixture *f, float dram, float fp32)
{
    struct soft_client *c = client(f, 0);
    assert_int_equal(
        soft_client_uses(c, (float[GPU_PARTS]){[PART_DRAM] = dram, [PART_FP32] = fp32}), 0);
    return c;
}

/* How long each of two parts worked since the last call, however long ago that is. */
static void expect_used(struct device_driver *d, uint64_t dram_ns, uint64_t fp32_ns)
{
    struct gpu_counters c;
    int r;
    while ((r = d->ops->counters(d, 0, &c, NULL)) == -EAGAIN)
        ;
    assert_int_equal(r, 0);
    assert_true(c.window_ns > 0);
    for (unsigned p = 0; p < GPU_PARTS; p++) {
        uint64_t ns = p == PART_DRAM ? dram_ns : p == PART_FP32 ? fp32_ns : 0;
        assert_true(c.parts[p] >= 0 && c.parts[p] <= 1);
        assert_int_equal(llround(c.parts[p] * (double)c.window_ns), ns);
    }
}

END_TO_END(test_shares)
{
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *a = open_that_uses(f, 0.5F, 0.25F);
    struct gpu_counters c;
    struct gpu_info info;
    assert_int_equal(d->ops->info(d, 0, &info), 0);
    assert_true(info.caps & GPU_CAP_COUNTERS);
    assert_int_equal(d->ops->counters(d, 0, &c, NULL), -EAGAIN);
    assert_int_equal(d->ops->counters(d, 2, &c, NULL), -ENODEV);
    run(a, 1 * MS, 20);
    expect_used(d, 10 * MS, 5 * MS);
    expect_used(d, 0, 0);
    /* Two with contexts of their own, in turns. */
    _cleanup_client_ struct soft_client *b = open_that_uses(f, 0.75F, 0);
    submit(a, 1 * MS, 8);
    submit(b, 1 * MS, 8);
    wait_for_all(a, 8);
    wait_for_all(b, 8);
    expect_used(d, 4 * MS + 6 * MS, 2 * MS);
    /* The other GPU has its own. */
    assert_int_equal(d->ops->counters(d, 1, &c, NULL), -EAGAIN);
    usleep(1000);
    assert_int_equal(d->ops->counters(d, 1, &c, NULL), 0);
    for (unsigned p = 0; p < GPU_PARTS; p++)
        assert_true(c.parts[p] == 0);
    /* A new server's begin at nothing. */
    kill(f->server, SIGKILL);
    waitpid(f->server, NULL, 0);
    assert_int_equal(d->ops->counters(d, 0, &c, NULL), -ENODEV);
    f->server = start_server(f->path, geteuid(), NULL);
    assert_int_equal(d->ops->counters(d, 0, &c, NULL), -EAGAIN);
    expect_used(d, 0, 0);
}

END_TO_END(refused)
{
    _cleanup_client_ struct soft_client *c = client(f, 0);
    const float bad[] = {-0.5F, 1.5F, NAN, INFINITY};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct soft_msg m = {.type = SOFT_OPEN_CONTEXT};
        int fd = -1;
        assert_int_equal(soft_connect(f->path, &m, &fd, NULL), 0);
        m = (struct soft_msg){.type = SOFT_USES, .u.uses.parts[PART_FP16] = bad[i]};
        assert_int_equal(soft_client_uses(c, m.u.uses.parts), -EINVAL);
        assert_int_equal(soft_transact(fd, &m, SOFT_REPLY), -EPIPE);
        close(fd);
    }
    submit(c, 1 * MS, 1);
    assert_int_equal(soft_client_uses(c, (float[GPU_PARTS]){0}), -EBUSY);
    wait_for(c);
    assert_int_equal(soft_client_uses(c, (float[GPU_PARTS]){1, 1, 1, 1, 1, 1, 1, 1}), 0);
}
