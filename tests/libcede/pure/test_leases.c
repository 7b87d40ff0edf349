/* Leases in virtual time: random asks from seeds against a model of the limits, order, timeouts,
 * balance of several GPUs, and the limit that follows the GPU. */
#include "lease_asks.h"

#include "../../random.h"

#define SETS  200U
#define ASKS  300U
#define SLOTS LEASE_SLOTS

/* ---- random asks against a model of the limits ----------------------------------------------- */

enum fate { UNASKED, WAITING, RUNNING, DONE, LATE, REFUSED };

struct one {
    struct lease_ask ask;
    uint64_t id, at_ns, run_ns, end_ns;
    enum fate fate;
    uint32_t device;
};

static struct one ones[ASKS];
static uint32_t by_slot[SLOTS];

static void check_limits(const struct cede_pool_config *p, uint64_t memory, uint64_t now)
{
    for (uint32_t d = 0; d < p->devices; d++) {
        uint64_t n = 0, with_memory = 0, waiting = 0, occupancy = 0, bytes = 0;
        for (uint32_t i = 0; i < ASKS; i++) {
            waiting += ones[i].fate == WAITING && ones[i].device == d;
            if (ones[i].fate != RUNNING || ones[i].device != d)
                continue;
            n++;
            occupancy += ones[i].ask.occupancy;
            bytes += ones[i].ask.memory_bytes;
            with_memory += ones[i].ask.memory_bytes != 0;
        }
        assert_true(n <= p->max_concurrent_streams && n <= p->streams);
        assert_true(n <= 1 || (double)occupancy <= p->max_total_occupancy * LEASE_WHOLE + 0.5);
        assert_true(with_memory <= 1 || /* one that has all of it lets leases without any in */
                    (double)bytes <= (double)memory * (1 - p->memory_reserve_fraction) + 1);
        HAS(cede_leases_view(leases, d, now), (active, n), (waiting, waiting),
            (occupancy, occupancy), (memory_bytes, bytes));
    }
}

static void run_ones(const struct cede_pool_config *p, uint64_t memory)
{
    for (uint64_t now = 0, left = ASKS; left;) {
        uint64_t next = cede_leases_next_ns(leases);
        for (uint32_t i = 0; i < ASKS; i++) {
            uint64_t t = ones[i].fate == UNASKED   ? ones[i].at_ns
                         : ones[i].fate == RUNNING ? ones[i].end_ns
                                                   : TIME_NEVER;
            next = t < next ? t : next;
        }
        assert_true(next != TIME_NEVER); /* else one waits that no event will start */
        assert_true(next >= now);
        now = next;
        struct lease_event e;
        for (uint32_t i = 0; i < ASKS; i++) {
            struct one *o = &ones[i];
            if (o->fate == RUNNING && o->end_ns == now) {
                released(o->id, now);
                assert_int_equal(cede_leases_release(leases, o->id, now), -ENOENT);
                o->fate = DONE;
                left--;
            }
            if (o->fate != UNASKED || o->at_ns != now)
                continue;
            int r = cede_leases_ask(leases, &o->ask, now, &e);
            o->id = e.id;
            o->device = e.device;
            o->end_ns = now + o->run_ns;
            o->fate = !r ? RUNNING : r == -EINPROGRESS ? WAITING : REFUSED;
            if (o->fate == REFUSED) {
                assert_true(r == -ENOSPC || (r == -EAGAIN && o->ask.until_ns <= now));
                left--;
            } else {
                by_slot[lease_slot(e.id)] = i;
            }
        }
        while (cede_leases_step(leases, now, &e)) {
            struct one *o = &ones[by_slot[lease_slot(e.id)]];
            assert_true(o->id == e.id && o->fate == WAITING);
            assert_int_equal(cede_leases_cancel(leases, o->id, now, &e), -ENOENT);
            assert_true(now <= o->ask.until_ns);
            o->fate = e.wait == WAIT_NONE ? RUNNING : LATE;
            o->device = e.device;
            o->end_ns = now + o->run_ns;
            assert_true(!o->ask.only || e.wait != WAIT_NONE || e.device == o->ask.preferred);
            if (o->fate == LATE) {
                assert_true(o->ask.until_ns == now ||
                            (e.wait == WAIT_STREAM &&
                             now >= o->at_ns + (uint64_t)p->stream_timeout_us * 1000));
                left--;
            }
            check_limits(p, memory, now);
        }
        check_limits(p, memory, now);
    }
}

TEST_LEASES(limits_hold_and_nothing_is_lost)
{
    uint32_t fates[REFUSED + 1] = {0};
    for (uint64_t seed = 1; seed <= SETS; seed++) {
        state = seed * 7919;
        struct cede_pool_config p = params();
        p.devices = 1 + (uint32_t)rnd(4);
        p.max_concurrent_streams = 1 + (uint32_t)rnd(8);
        p.streams = 1 + (uint32_t)rnd(8);
        p.max_total_occupancy = (double)rnd(LEASE_WHOLE + 1) / LEASE_WHOLE;
        p.stream_timeout_us = (cede_timeout)rnd(100) * 1000;
        p.age_us = rnd(50) * 1000;
        make(p);
        uint64_t memory = rnd(2) ? 1000 : 0, t = 0;
        for (uint32_t d = 0; d < p.devices; d++)
            cede_leases_set_memory(leases, d, memory, memory);
        for (uint32_t i = 0; i < ASKS; i++) {
            t += rnd(3 * MS);
            struct lease_ask a =
                ASK((uint32_t)rnd(101), .preferred = rnd(2) ? (uint32_t)rnd(p.devices) : SLOT_NONE,
                    .priority = (int32_t)rnd(4) - 1, .key = rnd(4),
                    .memory_bytes = memory ? rnd(1200) : 0,
                    .deadline_ns = rnd(3) ? TIME_NEVER : t + rnd(30 * MS),
                    .until_ns = t + (rnd(8) ? rnd(60 * MS) : 0));
            a.only = a.preferred != SLOT_NONE && !rnd(4);
            ones[i] = (struct one){.ask = a, .at_ns = t, .run_ns = 1 + rnd(6 * MS)};
        }
        run_ones(&p, memory ? memory : UINT64_MAX);
        for (uint32_t i = 0; i < ASKS; i++)
            fates[ones[i].fate]++;
        const struct lease_ask forever = ask(0);
        struct lease_event e; /* every slot is free again */
        for (uint32_t i = 0; i < SLOTS; i++)
            assert_true(cede_leases_ask(leases, &forever, t, &e) != -ENOSPC);
        assert_int_equal(cede_leases_ask(leases, &forever, t, &e), -ENOSPC);
    }
    assert_true(fates[DONE] > 1000 && fates[LATE] > 100 && fates[REFUSED] > 100);
    assert_int_equal(fates[DONE] + fates[LATE] + fates[REFUSED], SETS * ASKS);
}

/* ---- one by one ------------------------------------------------------------------------------ */

TEST_LEASES(timeouts_are_exact)
{
    MAKE(.max_concurrent_streams = 1);
    uint64_t a = started(ask(10), 0, 0);
    struct lease_ask second = ASK(10, .until_ns = 5 * MS), third = ASK(10, .until_ns = 9 * MS);
    uint64_t b = waits(second, 1, WAIT_COUNT), c = waits(third, 2, WAIT_COUNT);
    nothing_happens(5 * MS - 1);
    assert_int_equal(cede_leases_next_ns(leases), 5 * MS);
    assert_int_equal(happens(5 * MS, b, WAIT_COUNT).waited_us, 4999);
    nothing_happens(9 * MS - 1);
    assert_int_equal(cede_leases_next_ns(leases), 9 * MS);
    released(a, 9 * MS);
    happens(9 * MS, c, WAIT_NONE); /* at the last moment */
    assert_int_equal(cede_leases_next_ns(leases), TIME_NEVER);
    uint64_t d = waits(second = third, 9 * MS - 1, WAIT_COUNT); /* no step in time */
    released(c, 10 * MS);
    happens(10 * MS, d, WAIT_CLASS);
    struct lease_event e;
    third.until_ns = 10 * MS;
    uint64_t f = started(ask(10), 10 * MS, 0);
    assert_int_equal(cede_leases_ask(leases, &third, 10 * MS, &e), -EAGAIN);
    assert_int_equal(e.wait, WAIT_COUNT);
    assert_int_equal(view(0).timed_out, 2);
    released(f, 10 * MS);
    uint64_t g = started(ask(10), 10 * MS, 0); /* in the same slot */
    assert_int_equal(lease_slot(f), lease_slot(g));
    assert_int_equal(cede_leases_release(leases, f, 10 * MS), -ENOENT);
}

TEST_LEASES(a_missing_stream_has_a_timeout_of_its_own)
{
    MAKE(.streams = 1, .max_concurrent_streams = 2, .stream_timeout_us = 10000);
    uint64_t a = started(ask(80), 0, 0);
    uint64_t big = waits(ask(20), 0, WAIT_OCCUPANCY), small = waits(ask(10), 0, WAIT_OCCUPANCY);
    nothing_happens(50 * MS); /* that is not for want of a stream */
    OK(cede_leases_cancel(leases, big, 0, &(struct lease_event){0}));
    nothing_happens(60 * MS);
    assert_int_equal(cede_leases_next_ns(leases), 70 * MS);
    nothing_happens(70 * MS - 1);
    happens(70 * MS, small, WAIT_STREAM);
    released(a, 70 * MS);
}

TEST_LEASES(larger_than_the_limit_runs_alone)
{
    MAKE();
    uint64_t whole = started(ask(100), 0, 0);
    uint64_t small = waits(ask(1), 1, WAIT_OCCUPANCY), next = waits(ask(100), 2, WAIT_OCCUPANCY);
    assert_int_equal(cede_leases_release(leases, small, 5), -ENOENT);
    released(whole, 5);
    happens(5, small, WAIT_NONE);
    nothing_happens(6);
    waits(ask(1), 7, WAIT_OCCUPANCY); /* does not pass the large one */
    nothing_happens(7);
    released(small, 8);
    happens(8, next, WAIT_NONE);
    nothing_happens(8);
}

TEST_LEASES(first_is_by_urgency_priority_and_arrival)
{
    MAKE(.max_concurrent_streams = 1);
    const struct lease_ask known = ASK(10, .key = 7), high = ASK(10, .priority = 3);
    uint64_t a = started(known, 0, 0);
    released(a, 20 * MS); /* such a one takes 20 ms */
    a = started(ask(10), 20 * MS, 0);
    const struct lease_ask due = ASK(10, .key = 7, .deadline_ns = 60 * MS);
    uint64_t n1 = waits(ask(10), 21 * MS, WAIT_COUNT), n2 = waits(ask(10), 21 * MS, WAIT_COUNT),
             d = waits(due, 22 * MS, WAIT_COUNT), h1 = waits(high, 23 * MS, WAIT_COUNT),
             h2 = waits(high, 24 * MS, WAIT_COUNT);
    released(a, 30 * MS);
    happens(30 * MS, h1, WAIT_NONE); /* the one with a deadline has time yet */
    released(h1, 45 * MS);
    assert_true(happens(45 * MS, d, WAIT_NONE).urgent);
    const uint64_t order[] = {d, h2, n1, n2};
    for (int i = 0; i < 3; i++) {
        released(order[i], 46 * MS);
        happens(46 * MS, order[i + 1], WAIT_NONE);
    }
}

/* Why a lease had to wait, and for how long: in its event and in the sums of its GPU. Another lease
 * is active, and one of priority `before` waits before it (-1: none). */
TEST_LEASES(what_a_lease_waited_for)
{
    static const struct {
        uint32_t limit, streams, percent, utilization;
        uint64_t bytes;
        int32_t before;
        enum lease_wait why;
    } rows[] = {
        {3, 3, 10, 80, 800, -1, WAIT_NONE},  {1, 3, 10, 0, 0, -1, WAIT_COUNT},
        {3, 1, 10, 0, 0, -1, WAIT_STREAM},   {3, 3, 81, 0, 0, -1, WAIT_OCCUPANCY},
        {3, 3, 10, 0, 801, -1, WAIT_MEMORY}, {3, 3, 10, 81, 0, -1, WAIT_UTILIZATION},
        {1, 3, 10, 0, 0, 1, WAIT_CLASS},     {1, 3, 10, 0, 0, 0, WAIT_COUNT},
        {3, 3, 10, 0, 0, 1, WAIT_CLASS},     {3, 3, 10, 0, 0, 0, WAIT_OCCUPANCY},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct lease_ask a = ASK(rows[i].percent, .memory_bytes = rows[i].bytes);
        struct lease_event e, gone;
        MAKE(.max_concurrent_streams = rows[i].limit, .streams = rows[i].streams);
        cede_leases_set_memory(leases, 0, 1000, 1000);
        cede_leases_set_utilization(leases, 0, rows[i].utilization);
        const uint64_t held = started(ASK(10, .memory_bytes = 100), 0, 0);
        uint64_t id = rows[i].before < 0 ? 0
                                         : waits(ASK(81, .priority = rows[i].before), 0,
                                                 rows[i].limit == 1 ? WAIT_COUNT : WAIT_OCCUPANCY);
        int r = cede_leases_ask(leases, &a, MS, &e);
        assert_int_equal(r, rows[i].why ? -EINPROGRESS : 0);
        assert_int_equal(e.wait, rows[i].why);
        if (id)
            OK(cede_leases_cancel(leases, id, 2 * MS, &gone));
        released(held, 5 * MS);
        if (r)
            e = happens(5 * MS, e.id, WAIT_NONE);
        HAS(e, (waited_for, rows[i].why), (waited_us, r ? 4000 : 0), (occupancy, a.occupancy));
        const bool both = id && gone.waited_for == rows[i].why;
        HAS(view(0).waits[rows[i].why], (leases, r && !both ? 1 : 2),
            (total_us, (r ? 4000 : 0) + (both ? 2000 : 0)), (max_us, r ? 4000 : 0));
    }
}

/* The higher ones never leave the GPU idle; a lower one, too large to start while any of them runs,
 * starts once it is old and those that run have ended. */
TEST_LEASES(no_lease_starves)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        state = seed;
        MAKE(.age_us = 200000, .max_concurrent_streams = 4);
        uint64_t id[6], end[6], low = 0, from = 50 * MS, now = 0;
        const struct lease_ask high = ASK(20, .priority = 5), big = ask(95);
        struct lease_event e;
        for (uint32_t i = 0; i < 6; i++) {
            int r = cede_leases_ask(leases, &high, 0, &e);
            id[i] = e.id;
            end[i] = r ? TIME_NEVER : 1 + rnd(10 * MS);
        }
        bool in = false;
        while (!in) {
            uint32_t k = 0;
            for (uint32_t i = 1; i < 6; i++)
                k = end[i] < end[k] ? i : k;
            now = end[k];
            released(id[k], now);
            end[k] = TIME_NEVER;
            id[k] = 0;
            if (!low && now >= from)
                low = waits(big, from = now, WAIT_CLASS);
            while (cede_leases_step(leases, now, &e)) {
                in |= e.id == low;
                for (uint32_t i = 0; i < 6; i++)
                    end[i] = id[i] == e.id ? now + 1 + rnd(10 * MS) : end[i];
            }
            if (!in) { /* at once the next of its kind */
                end[k] =
                    cede_leases_ask(leases, &high, now, &e) ? TIME_NEVER : now + 1 + rnd(10 * MS);
                id[k] = e.id;
            }
        }
        assert_in_range(now - from, 190 * MS, 220 * MS);
    }
}

TEST_LEASES(a_busy_gpu_starts_no_further_lease)
{
    MAKE();
    cede_leases_set_utilization(leases, 0, 81);
    uint64_t a = started(ask(1), 0, 0), b = waits(ask(1), 1, WAIT_UTILIZATION);
    nothing_happens(2);
    cede_leases_set_utilization(leases, 0, 80);
    happens(3, b, WAIT_NONE);
    cede_leases_set_utilization(leases, 0, 100);
    uint64_t c = waits(ask(1), 4, WAIT_UTILIZATION);
    cede_leases_set_utilization(leases, 0, SLOT_NONE); /* not known */
    happens(5, c, WAIT_NONE);
    released(a, 6);
}

TEST_LEASES(bad_asks_are_refused)
{
    const struct lease_ask bad[] = {ASK(0, .occupancy = LEASE_WHOLE + 1), ASK(1, .preferred = 1),
                                    ASK(1, .only = true)};
    struct lease_event e;
    MAKE();
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(cede_leases_ask(leases, &bad[i], 0, &e), -EINVAL);
    assert_int_equal(cede_leases_release(leases, 0, 0), -ENOENT);
    assert_int_equal(cede_leases_release(leases, UINT64_MAX, 0), -ENOENT);
}

/* ---- several GPUs ---------------------------------------------------------------------------- */

/* Threads that each ask again when they are done; 9 of 10 prefer GPU 0, and times are skewed. The
 * longest busy time of a GPU by the shortest. */
static double skewed(uint32_t devices, uint32_t streams, bool only, uint64_t *stolen)
{
    enum { THREADS = 48 };
    uint64_t id[THREADS] = {0}, end[THREADS] = {0}, now = 0, most = 0, least = UINT64_MAX;
    MAKE(.devices = devices, .max_concurrent_streams = streams);
    struct lease_event e;
    for (uint32_t n = 0; n < 8000; n++) {
        uint32_t k = 0;
        for (uint32_t i = 1; i < THREADS; i++)
            k = end[i] < end[k] ? i : k;
        now = end[k];
        if (id[k])
            released(id[k], now);
        const struct lease_ask a =
            ASK(1, .preferred = rnd(10) ? 0 : 1 + (uint32_t)rnd(devices - 1), .only = only);
        id[k] = 0;
        while (cede_leases_step(leases, now, &e)) {
            for (uint32_t i = 0; i < THREADS; i++)
                end[i] = id[i] == e.id ? now + 1 + rnd(rnd(10) ? MS : 20 * MS) : end[i];
        }
        end[k] = cede_leases_ask(leases, &a, now, &e) ? TIME_NEVER
                                                      : now + 1 + rnd(rnd(10) ? MS : 20 * MS);
        id[k] = e.id;
    }
    *stolen = 0;
    for (uint32_t d = 0; d < devices; d++) {
        struct lease_view v = cede_leases_view(leases, d, now);
        most = v.busy_ns > most ? v.busy_ns : most;
        least = v.busy_ns < least ? v.busy_ns : least;
        *stolen += v.stolen;
    }
    return (double)most / (double)least;
}

TEST_LEASES(skewed_load_is_balanced)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t stolen;
        state = seed;
        for (uint32_t devices = 2; devices <= 4; devices += 2) {
            assert_true(skewed(devices, 1, false, &stolen) < 1.05);
            assert_true(skewed(devices, 4, false, &stolen) < 1.05);
            assert_true(skewed(devices, 1, true, &stolen) > 2); /* what it is without */
            assert_int_equal(stolen, 0);
        }
    }
}

TEST_LEASES(preferred_then_least_loaded_then_stolen)
{
    MAKE(.devices = 3, .max_concurrent_streams = 2);
    const struct lease_ask one = ASK(1, .preferred = 1),
                           bound = ASK(1, .preferred = 1, .only = true);
    uint64_t a[6];
    const uint32_t at[6] = {1, 1, 0, 2, 0, 2};
    for (int i = 0; i < 6; i++)
        a[i] = started(one, 0, at[i]);
    uint64_t b = waits(bound, 1, WAIT_COUNT), c = waits(one, 2, WAIT_COUNT);
    released(a[5], 3); /* GPU 2 has room, and c waits for GPU 0 */
    assert_int_equal(happens(3, c, WAIT_NONE).device, 2);
    assert_int_equal(view(2).stolen, 1);
    released(c, 4);
    nothing_happens(4); /* b may run on GPU 1 alone */
    released(a[0], 5);
    happens(5, b, WAIT_NONE);
}

/* ---- the limit that follows ------------------------------------------------------------------ */

/* A GPU that bears `bears` leases at their best times, `then` in the second half; more share it.
 * The limit, on average over the last quarter. */
static double limit_for(uint32_t bears, uint32_t then, double max_slowdown)
{
    enum { THREADS = 32 };
    uint64_t id[THREADS] = {0}, now = 0, sum = 0, n = 0;
    double left[THREADS] = {0};
    MAKE(.max_slowdown = max_slowdown, .target_utilization_percent = 100);
    struct lease_event e;
    const struct lease_ask a = ASK(1, .key = 1, .until_ns = 0);
    now = 2 * MS; /* once alone, so that the best time is known */
    released(started(a, 0, 0), now);
    for (uint32_t tick = 0; tick < 40000; tick++, now += MS / 10) {
        uint32_t active = cede_leases_view(leases, 0, now).active;
        bears = tick >= 20000 ? then : bears;
        for (uint32_t i = 0; i < THREADS; i++) {
            left[i] -= active > bears ? (double)bears / active : 1;
            if (id[i] && left[i] <= 0) {
                released(id[i], now);
                id[i] = 0;
            }
        }
        for (uint32_t k = 0; k < THREADS; k++) {
            uint32_t i = (uint32_t)rnd(THREADS);
            if (!id[i] && cede_leases_ask(leases, &a, now, &e) == 0) {
                id[i] = e.id;
                left[i] = 20;
            }
        }
        if (tick >= 30000) {
            sum += cede_leases_view(leases, 0, now).limit;
            n++;
        }
    }
    return (double)sum / (double)n;
}

TEST_LEASES(the_limit_follows_what_the_gpu_bears)
{
    state = 5;
    double two = limit_for(2, 2, 1.5), six = limit_for(6, 6, 1.5), all = limit_for(16, 16, 1.5);
    assert_true(two >= 1 && two < 5 && two < six && six < all);
    assert_true(six >= 4 && six < 11 && all > 15);
    assert_true(limit_for(2, 16, 1.5) > 15);
    assert_true(limit_for(16, 2, 1.5) < 5);
    assert_true(limit_for(2, 2, 0) == 16); /* switched off */
}
