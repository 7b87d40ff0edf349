/* Gangs at single decisions: when they take turns, and what boosts, throttling, idle times and
 * changes of their groups do to all their halves at once. What they get in the long run: tests/sim.
 */
#include "fixture.h"

enum { DEVICES = 3, JOBS = 8 };

static struct sched *c;
static struct sched_plan plan;

static uint32_t group_of(uint32_t job, uint32_t device)
{
    return job * DEVICES + device;
}

/* A job with one compute group on each device of the bit map. */
static void add_of(uint32_t account, uint32_t job, enum job_class class, uint32_t devices)
{
    EVENT(c, JOB_ADD, .job = job, .account = account, .class = class, .weight = 100);
    for (uint32_t d = 0; d < DEVICES; d++) {
        if (devices >> d & 1)
            EVENT(c, GROUP_ADD, .job = job, .device = d, .group = group_of(job, d),
                  .computes = true);
    }
}

static void add(uint32_t job, enum job_class class, uint32_t devices)
{
    add_of(0, job, class, devices);
}

static void demand(uint32_t job, uint32_t device, bool on)
{
    EVENT(c, DEMAND, .job = job, .device = device, .on = on);
}

/* Where it runs: bit map. */
static uint32_t runs(uint32_t job)
{
    uint32_t map = 0;
    for (size_t i = 0; i < plan.n; i++)
        map |= plan.settings[i].group / DEVICES == job && plan.settings[i].runnable
                   ? 1U << plan.settings[i].group % DEVICES
                   : 0;
    return map;
}

static void decide(uint64_t ms)
{
    sched_decide(c, ms * MS, &plan);
    assert_true(plan.wake_ns > ms * MS);
}

static int begin(void **state)
{
    c = scheduler(DEVICES, JOBS, JOBS * DEVICES);
    return 0;
}

static int end(void **state)
{
    sched_free(c);
    return 0;
}

TEST_WITH(when_gangs_take_turns, begin, end)
{
    add(0, N, 3);
    decide(0);
    assert_int_equal(runs(0), 3);
    assert_int_equal(plan.wake_ns, TIME_NEVER);
    add(1, N, 1); /* a peer on one device: slices do */
    decide(1);
    assert_int_equal(runs(0), 3);
    assert_int_equal(runs(1), 1);
    add(2, N, 2); /* on two of them: they would be out of step */
    decide(2);
    assert_true(runs(0) == 3 ? !runs(1) && !runs(2) : runs(1) == 1 && runs(2) == 2);
    assert_int_equal(plan.wake_ns, 202 * MS);
    bool first = runs(0) == 3;
    decide(202);
    assert_int_equal(runs(0), first ? 0 : 3);
    EVENT(c, JOB_REMOVE, .job = 2);
    decide(203);
    assert_int_equal(runs(0), 3);
    add(3, L, 1); /* below the top on one: in turns on both, and its peer waits for it */
    decide(204);
    assert_int_equal(runs(3), 1);
    assert_true((runs(0) == 3) != (runs(1) == 1));
    add(4, L, 7); /* a latency gang never waits */
    for (uint64_t ms = 205; ms < 2000; ms += 50) {
        decide(ms);
        assert_int_equal(runs(4), 7);
        assert_true((runs(0) == 3) != (runs(1) == 1));
    }
}

/* Halves start next to each other, after all that has to stop, on whatever device. */
TEST_WITH(order, begin, end)
{
    add(0, L, 7);
    add(1, B, 3);
    add(2, B, 6);
    add(3, B, 5);
    add(4, B, 7);
    for (uint64_t ms = 0; ms < 3000; ms += 200) {
        decide(ms);
        size_t i = 0;
        while (i < plan.n && !plan.settings[i].runnable)
            i++;
        uint32_t last = SLOT_NONE, seen = 0;
        for (; i < plan.n; i++) {
            uint32_t job = plan.settings[i].group / DEVICES;
            assert_true(plan.settings[i].runnable);
            assert_true(job == last || !(seen >> job & 1));
            seen |= 1U << job;
            last = job;
        }
    }
}

/* A boosted gang runs on all its devices at once, in mid-turn, and others that fit beside it. */
TEST_WITH(boost, begin, end)
{
    add(0, L, 3);
    add(1, B, 3);
    add(2, B, 1);
    add(3, B, 4);
    for (uint64_t ms = 0; ms < 1000; ms += 10) {
        decide(ms);
        if (runs(2) && ms % 200 == 50)
            break;
    }
    assert_int_equal(runs(2), 1);
    EVENT(c, DEADLINE, .job = 1, .deadline_ns = 1500 * MS, .left_ns = 1400 * MS,
          .may_promote = true, .on = true);
    decide(1000);
    bool promoted;
    assert_int_equal(runs(1), 3);
    assert_int_equal(runs(2), 0);
    assert_int_equal(runs(3), 4);
    for (uint32_t d = 0; d < 2; d++)
        assert_true(sched_member_boosted(c, 1, d, &promoted));
    EVENT(c, DEADLINE, .job = 1, .deadline_ns = 1500 * MS, .left_ns = 400 * MS, .may_promote = true,
          .on = true);
    decide(1050); /* beside latency jobs of unknown load it would be late: it joins their class */
    for (uint32_t d = 0; d < 2; d++)
        assert_true(sched_member_boosted(c, 1, d, &promoted) && promoted);
    assert_int_equal(runs(1), 3);
    /* One that another job is before on one device is boosted on none, and leaves the other. */
    EVENT(c, DEADLINE, .job = 2, .deadline_ns = 1400 * MS, .left_ns = 100 * MS, .on = true);
    decide(1060);
    assert_true(sched_member_boosted(c, 2, 0, &promoted));
    for (uint32_t d = 0; d < 2; d++)
        assert_false(sched_member_boosted(c, 1, d, &promoted));
    assert_int_equal(runs(1), 0);
}

/* It is idle only if it is so on all its devices, and then gets short turns only. A device on which
 * it alone does nothing is not one of its gang. */
TEST_WITH(test_idle, begin, end)
{
    add(0, L, 3);
    add(1, B, 3);
    add(2, B, 1);
    demand(1, 0, false);
    uint64_t had[2] = {0};
    for (int idle = 0; idle < 2; idle++) {
        for (uint64_t ms = 10000 * (uint64_t)idle; ms < 10000 * (uint64_t)(idle + 1); ms += 10) {
            decide(ms);
            had[idle] += runs(1) == 3 ? 10 : 0;
            assert_true(runs(1) == 0 || runs(1) == 3);
        }
        demand(1, 1, false);
    }
    assert_int_equal(had[0], 10000); /* on device 1, and may begin on device 0 */
    assert_in_range(had[1], 20, 500);
    demand(1, 1, true);
    demand(1, 0, true);
    had[0] = 0;
    for (uint64_t ms = 20000; ms < 30000; ms += 10) {
        decide(ms);
        had[0] += runs(1) == 3 ? 10 : 0;
    }
    assert_in_range(had[0], 3000, 3900); /* a third: its GPU time counts twice */
}

/* A context without work on a third device: nobody has to wait for it there, and nothing has to
 * wait that it begins to work, until it does. */
TEST_WITH(test_stray, begin, end)
{
    add(0, L, 7);
    add(1, B, 7);
    add(2, B, 4);
    add(3, B, 3);
    unsigned ran[2] = {0};
    for (uint64_t ms = 0; ms < 30000; ms += 10) {
        if (ms == 1000)
            demand(1, 2, false);
        if (ms == 20000)
            demand(1, 2, true);
        bool stray = ms >= 1000 && ms < 20000;
        decide(ms);
        assert_true(stray ? runs(1) >= 4 && runs(2) == 4 : runs(1) == 0 || runs(1) == 7);
        assert_true(stray || runs(1) == 7 || runs(2) == 4);
        assert_true((runs(1) & 3) == 0 || (runs(1) & 3) == 3);
        assert_true(((runs(1) & 3) == 3) != (runs(3) == 3));
        if (ms >= 2000)
            ran[ms >= 20000] += (runs(1) & 3) == 3;
    }
    assert_in_range(ran[0], 850, 950); /* of 1800: two equal gangs */
    assert_in_range(ran[1], 230, 270); /* of 1000: GPU time of job 2, no credit from before */
    EVENT(c, JOB_PAUSE, .job = 1, .on = true);
    decide(30000);
    assert_int_equal(runs(1), 0);
}

static uint32_t slice_of(uint32_t group)
{
    for (size_t i = 0; i < plan.n; i++) {
        if (plan.settings[i].group == group)
            return plan.settings[i].timeslice_us;
    }
    return 0;
}

static uint64_t give(uint32_t group, uint64_t at_ns, uint64_t us)
{
    EVENT(c, SWITCH, .group = group, .at_ns = at_ns);
    return at_ns + us * 1000;
}

/* What the record of device 0 shows from one time to another of a latency job that works 1.2 ms and
 * leaves a gap in which a lower job gets the engine, if it may run. Returns the time reached. */
static uint64_t short_gaps(uint32_t latency, uint32_t lower, uint64_t at_ns, uint64_t to_ns)
{
    while (at_ns < to_ns) {
        at_ns = give(group_of(latency, 0), at_ns, 1200);
        if (!(runs(lower) & 1))
            continue;
        at_ns = give(SLOT_NONE, at_ns, 84);
        at_ns = give(group_of(lower, 0), at_ns, slice_of(group_of(lower, 0)) + 80);
        at_ns = give(SLOT_NONE, at_ns, 84);
    }
    return at_ns;
}

/* Lower jobs are throttled on one device: a gang that is on it waits on the others too, and these
 * are not idle meanwhile. */
TEST_WITH(throttle, begin, end)
{
    add(0, L, 1);
    add(1, B, 3);
    add(2, B, 2);
    uint64_t ms = 0, throttled = 0, at = 0;
    decide(0);
    for (; ms < 20000; ms += 10) {
        at = short_gaps(0, 1, at, ms * MS);
        decide(ms);
        assert_int_equal(runs(0), 1);
        assert_true(runs(1) == 0 || runs(1) == 3);
        assert_true((runs(1) == 3) != (runs(2) == 2));
        throttled += sched_throttled(c, 0);
        assert_false(sched_throttled(c, 0) && runs(1));
    }
    assert_true(throttled > 100 && throttled < 1990);
}

/* A gang that gains a half in mid-turn, loses it, or whose half turns out to compute. */
TEST_WITH(groups_change, begin, end)
{
    add(0, L, 7);
    add(1, B, 1);
    add(2, B, 3);
    for (uint64_t ms = 0; ms < 4000; ms += 10) {
        if (ms == 1010)
            EVENT(c, GROUP_ADD, .job = 1, .device = 1, .group = group_of(1, 1));
        if (ms == 1520)
            EVENT(c, GROUP_CHANGE, .group = group_of(1, 1), .computes = true);
        if (ms == 2030)
            EVENT(c, GROUP_REMOVE, .group = group_of(2, 0));
        if (ms == 3040)
            EVENT(c, JOB_PAUSE, .job = 1, .on = true);
        decide(ms);
        uint32_t both = ms >= 1520 ? 3 : 1, second = ms >= 2030 ? 2 : 3;
        assert_true((runs(1) & both) == 0 || (runs(1) & both) == both);
        assert_true(runs(2) == 0 || runs(2) == second);
        assert_true(__builtin_popcount(runs(1) & runs(2)) == 0);
        assert_true(ms < 3040 ? runs(1) || runs(2) : !runs(1) && runs(2) == 2);
    }
}

/* One gang of one user has half beside three of another, however these come and go, and whatever
 * is due for them. */
TEST_WITH(accounts, begin, end)
{
    enum { PLAIN, CHURN, DUE, PHASES, PHASE_MS = 60000 };
    uint64_t had[PHASES] = {0};
    add(0, L, 3);
    add_of(1, 1, B, 3);
    for (uint32_t j = 2; j < 5; j++)
        add_of(2, j, B, 3);
    for (uint64_t ms = 0; ms < (uint64_t)PHASES * PHASE_MS; ms += 10) {
        uint32_t other = 2 + (uint32_t)(ms / 300 % 3);
        if (ms / PHASE_MS == CHURN && ms % 300 == 0) {
            EVENT(c, JOB_REMOVE, .job = other);
            add_of(2, other, B, 3);
        }
        if (ms / PHASE_MS == DUE && ms % 300 == 0)
            EVENT(c, DEADLINE, .job = 2, .deadline_ns = (ms + 300) * MS, .left_ns = 300 * MS,
                  .on = true);
        decide(ms);
        had[ms / PHASE_MS] += runs(1) == 3 ? 10 : 0;
    }
    /* The other one loses by leaving in mid-turn. */
    assert_in_range(had[PLAIN], PHASE_MS * 49 / 100, PHASE_MS * 51 / 100);
    assert_in_range(had[CHURN], PHASE_MS * 49 / 100, PHASE_MS * 64 / 100);
    assert_in_range(had[DUE], PHASE_MS * 49 / 100, PHASE_MS * 64 / 100);
}
