/* The loop that runs slices, in virtual time: a clock that only the program's functions, sleeps and
 * waits move, and a GPU that is a row of timers in place of libcuda. */
#include "../random.h"
#include "base/util.h"
#include "cede/slice.h"
#include "fixture.h"
#include "libcede/owner.h"
#include "timers.h"

/* ---- the clock, the GPU, the daemon and the scope -------------------------------------------- */

struct span {
    uint64_t from, to; /* ns */
};
static struct {
    uint64_t worked_ns;
    bool cancelled;
    struct span wanted, displaced;
} gpu;

static bool now_in(struct span s)
{
    return timers.now_ns >= s.from && timers.now_ns < s.to;
}

void cede_clock_sleep_ns(uint64_t ns)
{
    timers.now_ns += ns;
}

static int scope_stopped(const struct lease_owner *o)
{
    return gpu.cancelled ? -ETIMEDOUT : 0;
}

int cede_wanted(struct cede *c)
{
    return c && now_in(gpu.wanted);
}

int cede_lease_wanted(const struct cede_lease *l)
{
    return l && now_in(gpu.displaced);
}

int __wrap_cede_cuda_opencl(struct cuda *cu);
int __wrap_cede_cuda_opencl(struct cuda *cu)
{
    return __wrap_cede_cuda_here(cu, 0, NULL);
}

/* ---- a program ------------------------------------------------------------------------------- */

struct program {
    uint64_t next;      /* element, of the whole work */
    double each_ns;     /* on the GPU */
    uint64_t launch_ns; /* on the CPU */
    uint64_t slices, largest, launched_at_ns;
    uint64_t saves, saved, save_ns;
    int fail_launch, fail_save; /* the n-th from now; 0: none */
    int no_gpu;
};

static int launch(void *arg, uint64_t first, uint64_t count, void *stream)
{
    struct program *p = arg;
    if (p->fail_launch && --p->fail_launch == 0)
        return -EAGAIN;               /* as if a job of a higher class waited */
    assert_int_equal(first, p->next); /* each once, in order */
    assert_true(count > 0);
    assert_true(p->no_gpu ? stream == NULL : stream == &timers);
    p->next += count;
    p->slices++;
    p->largest = max_u64(p->largest, count);
    uint64_t ns = (uint64_t)((double)count * p->each_ns);
    timers.now_ns += p->launch_ns;
    p->launched_at_ns = timers.now_ns;
    timers.busy_until_ns = max_u64(timers.now_ns, timers.busy_until_ns) + ns;
    if (p->no_gpu)
        timers.now_ns = timers.busy_until_ns;
    gpu.worked_ns += ns;
    return 0;
}

static int save(void *arg, uint64_t done)
{
    struct program *p = arg;
    assert_true(timers.busy_until_ns <= timers.now_ns); /* nothing runs */
    assert_int_equal(done, p->next);
    if (p->fail_save && --p->fail_save == 0)
        return -ENOSPC;
    timers.now_ns += p->save_ns;
    p->saves++;
    p->saved = done;
    return 0;
}

/* Those of a test, from its beginning. */
static struct cede_slice_config c;
static struct cede_slice_progress at;

static void begin(struct program *p, uint64_t count)
{
    memset(&gpu, 0, sizeof(gpu));
    memset(&timers, 0, sizeof(timers));
    memset(&at, 0, sizeof(at));
    timers.now_ns = NSEC_PER_SEC;
    c = CONFIG(slice, .count = count, .arg = p, .launch = launch, .save = save);
}

static void run(int result)
{
    assert_int_equal(cede_slice_run(&c, &at), result);
    assert_int_equal(timers.open, 0);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* 20 s of work: slices of 0.5 ms, the GPU idles for next to nothing, and is never without work when
 * two are queued. */
TEST(runs)
{
    for (unsigned depth = 1; depth <= CEDE_SLICE_DEPTH_MAX; depth++) {
        struct program p = {.each_ns = 100, .launch_ns = 5000};
        begin(&p, 200000000);
        uint64_t began = timers.now_ns;
        c.depth = depth;
        c.checkpoint_us = 0;
        run(0);
        HAS(at, (done, 200000000), (saved, 200000000));
        assert_int_equal(p.saves, 1);
        assert_int_equal(at.slices, p.slices);
        assert_in_range(p.slices, 40000, 40500);
        assert_in_range(p.largest, depth == 1 ? 4900 : 5000, 5000);
        double lost = (double)(timers.now_ns - began) / (double)gpu.worked_ns - 1;
        assert_true(depth == 1 ? lost > 0.009 : lost < 0.001);
        assert_in_range(at.gpu_us, 20000000, depth == 1 ? 20300000 : 20001000);
        assert_true(at.idle_us < 1000);
        assert_string_equal(at.error, "");
    }
}

/* Each reason to stop: at once but for what is queued, saved, and it goes on from there. */
TEST(stops)
{
    enum { DEADLINE, SCOPE, WANTED, LAUNCH, SAVE, REASONS };
    static const struct {
        int result;
        const char *text;
    } rows[REASONS] = {{-ETIMEDOUT, "time-out"},
                       {-ECANCELED, "the scope's time-out has passed: "},
                       {-EAGAIN, "higher class"},
                       {-EIO, "`launch` returned -11 for "},
                       {-ENOSPC, "`save` returned "}};
    for (unsigned i = 0; i < REASONS; i++) {
        struct program p = {.each_ns = 100, .launch_ns = 5000};
        begin(&p, 200000000);
        const uint64_t began = timers.now_ns;
        c.client = (struct cede *)&p;
        c.scope = (struct cede_scope *)&(struct lease_owner){.stopped = scope_stopped};
        c.patience_us = 3000;
        gpu.wanted = (struct span){i == WANTED ? began + NSEC_PER_SEC : UINT64_MAX, UINT64_MAX};
        c.timeout_us = i == DEADLINE ? 1000000 : CEDE_TIMEOUT_FOREVER;
        p.fail_launch = i == LAUNCH ? 2000 : 0;
        p.fail_save = i == SAVE;
        c.checkpoint_us = i == SAVE ? 1000000 : 0;
        gpu.cancelled = i == SCOPE;
        run(rows[i].result);
        assert_non_null(strstr(at.error, rows[i].text));
        HAS(at, (done, p.next), (saved, i == SAVE ? 0 : p.next));
        assert_int_equal(p.saved, at.saved);
        if (i == DEADLINE || i == WANTED) {
            /* 0.5 ms for each of two slices, 3 ms of patience, a look each ms */
            assert_in_range(p.launched_at_ns - began, NSEC_PER_SEC / 2, NSEC_PER_SEC + 10000);
            assert_true(timers.now_ns - began < NSEC_PER_SEC + (i ? 5100000 : 1100000));
        }
        uint64_t done = at.done, slices = p.slices;
        c.timeout_us = CEDE_TIMEOUT_FOREVER;
        gpu.cancelled = false;
        gpu.wanted.from = UINT64_MAX;
        run(0);
        assert_int_equal(at.done, 200000000);
        assert_int_equal(p.saved, 200000000);
        assert_string_equal(at.error, "");
        if (done) /* what was learnt of the kernel is still known */
            assert_true(p.slices - slices < 2 + (200000000 - done) / 4990);
    }
}

/* A higher class, or a lease that displaces the run's, for less than the patience: no slice begins
 * meanwhile but one per patience for a lease, nothing is saved for it, and the run goes on by
 * itself, at once. What displaces another's lease does not matter. */
TEST(gives_way)
{
    static const struct {
        bool lease, mine;
        int64_t patience_us;
        uint64_t ms, least_ms; /* that it lasts; that the run waits */
    } rows[] = {{false, true, 50000, 40, 38},
                {false, true, CEDE_TIMEOUT_FOREVER, 100000, 99998},
                {true, true, 10000, 100, 89},
                {true, true, CEDE_TIMEOUT_FOREVER, 100, 98},
                {true, false, 10000, 100000, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct cede_lease mine = {.device = 0};
        struct program p = {.each_ns = 100};
        begin(&p, 20000000);
        const uint64_t began = timers.now_ns, from = began + NSEC_PER_SEC;
        const struct span span = {from, from + rows[i].ms * NSEC_PER_MSEC};
        c.checkpoint_us = 0;
        c.patience_us = rows[i].patience_us;
        c.lease = rows[i].lease && rows[i].mine ? &mine : NULL;
        c.client = rows[i].lease ? NULL : (struct cede *)&p;
        *(rows[i].lease ? &gpu.displaced : &gpu.wanted) = span;
        run(0);
        assert_int_equal(p.saves, 1);
        assert_int_equal(at.done, 20000000);
        assert_in_range(timers.now_ns - began - gpu.worked_ns, rows[i].least_ms * NSEC_PER_MSEC,
                        (rows[i].mine ? rows[i].ms + 1 : 1) * NSEC_PER_MSEC);
    }
}

/* Every 10 s unless said otherwise; as often as it wants without standing still. */
TEST(checkpoints)
{
    static const struct {
        uint64_t us, saves;
    } rows[] = {{10000000, 3}, {1000000, 20}, {0, 1}, {1, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct program p = {.each_ns = 100, .launch_ns = 5000, .save_ns = 20 * NSEC_PER_MSEC};
        begin(&p, 210000000);
        c.checkpoint_us = rows[i].us;
        run(0);
        if (rows[i].saves)
            assert_in_range(p.saves, rows[i].saves, rows[i].saves + 1);
        else
            assert_in_range(p.saves, 2, p.slices);
        assert_int_equal(p.saved, 210000000);
        assert_true(at.idle_us + 5000 >= (p.saves - 1) * 20000);
    }
    /* It begins with a checkpoint that was read, and has one that was complete. */
    struct program p = {.each_ns = 100, .next = 123456};
    begin(&p, 1000000);
    at.done = 123456;
    run(0);
    assert_int_equal(p.next, 1000000);
    p.slices = 0;
    run(0);
    assert_int_equal(p.saves, 1);
    at = (struct cede_slice_progress){.done = 1000000};
    run(0);
    assert_int_equal(p.slices, 0);
}

/* 2^63 elements, steps larger than the work, kernels that take no time at all or
 * far too much. */
TEST(extremes)
{
    static const struct {
        uint64_t count, multiple;
        double each_ns;
    } rows[] = {{1, 1, 0},
                {1ULL << 63, 1, 0},
                {UINT64_MAX, 1, 0},
                {UINT64_MAX, 1ULL << 63, 0},
                {UINT64_MAX, UINT64_MAX, 0},
                {1000, 300, 1},
                {10, 256, 1e15}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        for (int no_gpu = 0; no_gpu < 2; no_gpu++) {
            struct program p = {.each_ns = rows[i].each_ns, .no_gpu = no_gpu};
            begin(&p, rows[i].count);
            c.flags = no_gpu ? CEDE_SLICE_NO_GPU : 0;
            c.multiple = rows[i].multiple;
            run(0);
            assert_true(at.done == rows[i].count && p.next == rows[i].count);
            assert_true(p.slices <= 140); /* twice as many elements every two slices */
            assert_int_equal(p.saves, 1);
        }
    }
    struct program p = {.each_ns = 1}; /* 292 years: it stops */
    begin(&p, 1ULL << 63);
    c.timeout_us = 1000000;
    run(-ETIMEDOUT);
    assert_in_range(at.done, 900000000, 1100000000);
    c.timeout_us = 0;
    at = (struct cede_slice_progress){.done = 0};
    run(-ETIMEDOUT);
    assert_int_equal(at.done, 0);
}

static int jumping(void *arg, uint64_t first, uint64_t count, void *stream)
{
    struct program *p = arg;
    int r = launch(arg, first, count, stream);
    uint64_t by = rnd(2) ? rnd(NSEC_PER_SEC) : rnd(1ULL << 61);
    if (p->slices % 4 == 0) /* backwards, too */
        timers.now_ns = rnd(2) ? timers.now_ns + by : saturating_sub(timers.now_ns, by);
    timers.busy_until_ns = timers.now_ns;
    return r;
}

/* A clock that jumps in every fourth slice: all work is done, and slices are what they were. */
TEST(clock_jumps)
{
    for (unsigned round = 0; round < 50; round++) {
        state = round;
        struct program p = {.each_ns = 100, .no_gpu = 1};
        begin(&p, 5000000);
        c.flags = CEDE_SLICE_NO_GPU;
        c.launch = jumping;
        c.save = NULL;
        run(0);
        assert_int_equal(at.done, 5000000);
        assert_true(p.largest <= 20000);
        assert_in_range(p.slices, 500, 4000);
    }
}

/* The driver fails: nothing is saved, since what is on the GPU is lost. */
TEST(driver_fails)
{
    for (int i = 0; i < 3; i++) {
        struct program p = {.each_ns = 100};
        begin(&p, 1000000);
        timers.fail_open = i == 0 ? 3 : 0;
        timers.fail_mark = i == 1 ? 40 : 0;
        timers.fail_wait = i == 2 ? 40 : 0;
        run(-EIO);
        assert_non_null(strstr(at.error, "made up"));
        assert_true(i == 0 || strstr(at.error, "checkpoint"));
        assert_int_equal(p.saves, 0);
    }
    struct program p = {.each_ns = 100};
    begin(&p, 1000000);
    timers.missing = true;
    run(-ENOSYS);
    assert_non_null(strstr(at.error, "CEDE_SLICE_NO_GPU"));
}
