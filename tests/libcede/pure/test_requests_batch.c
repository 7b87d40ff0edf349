/* Batches of requests in virtual time: admitted requests are met, none is held too long. */
#include "../../random.h"
#include "../fixture.h"
#include "libcede/pure/run_times.h"
#include "sets.h"

#define MS   1000000ULL
#define MAX  400U
#define LONG 2000U /* requests of the longest set */
#define SETS 150U

static struct outcome run(const struct cede_queue_config *p, uint32_t n)
{
    return simulate(*p, REQUESTS_PREFER_NS, n, CEDE_QUEUE_BATCH_MAX);
}

/* Three kinds of different cost; about three times what can be met one by one. */
static void overload(uint32_t batch_max)
{
    static const uint64_t runs[] = {MS, 2 * MS, 5 * MS}, each[] = {MS / 10, MS, 5 * MS};
    for (uint32_t i = 0; i < MAX; i++) {
        uint64_t g = rnd(3), t = rnd(MAX * 2 * MS / 3);
        set[i] = REQUEST(.arrival_ns = t, .deadline_ns = t + runs[g] + rnd(30 * MS),
                         .run_ns = runs[g], .each_ns = each[g], .shape = g, .batch_max = batch_max,
                         .wait_ns = 5 * MS, .class = (enum job_class)rnd(CLASS_COUNT));
        set[i].deadline_ns = rnd(10) ? set[i].deadline_ns : TIME_NEVER;
    }
    sort_set(MAX);
}

/* Held or not, in batches or not, under each policy and on one device or two: admitted
 * requests are met; and batches admit more. */
TEST(admitted_requests_are_met)
{
    static const enum cede_queue_policy policies[] = {CEDE_QUEUE_FIFO, CEDE_QUEUE_PRIORITY,
                                                      CEDE_QUEUE_EDF};
    for (unsigned k = 0; k < 6; k++) {
        uint64_t ran = 0, singly = 0, batches = 0, refused = 0;
        for (uint64_t seed = 0; seed < SETS; seed++) {
            const struct cede_queue_config p =
                QUEUE(.policy = policies[k % 3], .admit = true, .devices = 1 + k / 3);
            state = 1000 * k + seed;
            overload(1);
            struct outcome one = run(&p, MAX);
            state = 1000 * k + seed;
            overload(8);
            struct outcome o = run(&p, MAX);
            if (one.late || o.late)
                fail_msg("policy %u seed %llu: %u and %u late", k, (unsigned long long)seed,
                         one.late, o.late);
            assert_int_equal(o.ran + o.refused, MAX);
            ran += o.ran;
            singly += one.ran;
            batches += o.batches;
            refused += o.refused;
        }
        print_message("policy %u, %u devices: %llu run in %llu batches, %llu one by one\n", k % 3,
                      1 + k / 3, (unsigned long long)ran, (unsigned long long)batches,
                      (unsigned long long)singly);
        assert_true(refused > 0 && ran > singly && batches < ran);
    }
}

/* Without admission every request runs, however late, and batches work the overload off sooner. */
TEST(overload_is_worked_off_in_batches)
{
    for (unsigned policy = 0; policy < POLICIES; policy++) {
        const struct cede_queue_config p =
            QUEUE(.policy = (enum cede_queue_policy)policy, .k = policy == CEDE_QUEUE_EDF ? 16 : 1);
        state = 7;
        overload(1);
        struct outcome one = run(&p, MAX);
        state = 7;
        overload(32);
        struct outcome o = run(&p, MAX);
        assert_int_equal(o.ran, MAX);
        assert_true(o.batches < MAX && o.end_ns < one.end_ns && o.late < one.late);
    }
}

/* A burst, then 80 % of what full batches can do: the backlog is worked off, and what comes later
 * is met. Batches that each meet the first deadline alone would be too small for that. */
TEST(a_backlog_does_not_last)
{
    const struct cede_queue_config p = QUEUE(.capacity = LONG);
    uint64_t at = 0;
    for (uint32_t i = 0; i < LONG; i++) {
        bool soon = rnd(4) == 0;
        at += i < 250 ? 0 : 155 * MS / 1000 + rnd(400 * MS / 1000);
        set[i] = REQUEST(.arrival_ns = at, .deadline_ns = at + (soon ? 14 : 46) * MS,
                         .run_ns = 23 * MS / 10, .each_ns = 15 * MS / 100, .batch_max = 16,
                         .wait_ns = 5 * MS);
    }
    struct outcome o = run(&p, LONG);
    printf("%u of %u late\n", o.late, o.ran);
    assert_int_equal(o.ran, LONG);
    assert_true(o.late < 800);
}

static struct request of(uint64_t kind, uint64_t at, uint64_t due, uint64_t run_ns)
{
    return REQUEST(.arrival_ns = at, .deadline_ns = due, .run_ns = run_ns, .each_ns = run_ns / 4,
                   .shape = kind, .batch_max = 4, .wait_ns = 10 * MS);
}

static void add(struct requests *r, struct request q)
{
    assert_true(submit(r, q, q.arrival_ns).device == 0);
}

struct next {
    struct request out[8];
    uint32_t n;
    uint64_t wake;
};

static int next_batch(struct requests *r, uint64_t now, struct next *b)
{
    uint32_t slot;
    b->n = 8;
    return cede_requests_next_batch(r, 0, now, b->out, &b->n, &slot, &b->wake);
}

TEST(one_is_held_until_its_slack_is_gone)
{
    struct next b;
    struct requests *r = REQUESTS(.urgent_us = MS / 1000);
    assert_int_equal(next_batch(r, 0, &b), -EAGAIN);
    assert_true(b.wake == TIME_NEVER);
    add(r, of(1, 0, 8 * MS, 2 * MS));
    assert_int_equal(next_batch(r, 0, &b), -EAGAIN);
    assert_true(b.wake == 5 * MS); /* due - run - urgent */
    assert_int_equal(next_batch(r, b.wake, &b), 0);
    assert_int_equal(b.n, 1);
    assert_int_equal(next_batch(r, 6 * MS, &b), -EBUSY);
    end_batch(r, 0);
    add(r, of(1, 10 * MS, TIME_NEVER, 2 * MS)); /* no deadline: as long as it may */
    assert_int_equal(next_batch(r, 11 * MS, &b), -EAGAIN);
    assert_true(b.wake == 20 * MS);
    for (uint64_t i = 1; i < 5; i++) /* full: at once; the fifth stays */
        add(r, of(1, 11 * MS + i, TIME_NEVER, 2 * MS));
    assert_int_equal(next_batch(r, 12 * MS, &b), 0);
    assert_int_equal(b.n, 4);
    assert_true(b.out[0].arrival_ns == 10 * MS);
    cede_requests_free(r);
}

/* Two kinds that are held: what both need together counts, not what each needs. */
TEST(held_groups_leave_each_other_time)
{
    struct next b;
    struct requests *r = REQUESTS(.urgent_us = 0);
    add(r, of(1, 0, 9 * MS, 3 * MS));
    add(r, of(2, 1, 9 * MS, 3 * MS));
    assert_int_equal(next_batch(r, 1, &b), -EAGAIN);
    assert_true(b.wake <= 3 * MS);
    uint64_t t = b.wake;
    assert_int_equal(next_batch(r, t, &b), 0);
    t += b.out[0].run_ns;
    end_batch(r, 0);
    int e = next_batch(r, t, &b);
    t = e ? b.wake : t;
    assert_int_equal(e ? next_batch(r, t, &b) : 0, 0);
    assert_true(t + b.out[0].run_ns <= 9 * MS);
    cede_requests_free(r);
}

/* While one kind is held another runs, if that leaves the first its time; else none runs. */
TEST(a_free_device_takes_what_does_no_harm)
{
    for (int harm = 0; harm < 2; harm++) {
        struct next b;
        struct request single = of(2, 1, TIME_NEVER, harm ? 7 * MS : 2 * MS);
        struct requests *r = REQUESTS(.urgent_us = 0);
        single.batch_max = 1;
        add(r, of(1, 0, 8 * MS, 2 * MS));
        add(r, single);
        assert_int_equal(next_batch(r, 1, &b), harm ? -EAGAIN : 0);
        if (harm)
            assert_true(b.wake == 6 * MS);
        else
            assert_true(b.n == 1 && b.out[0].shape == 2);
        cede_requests_free(r);
    }
}

/* The batch that would make the other kind's request late is made smaller. */
TEST(a_batch_leaves_others_their_time)
{
    struct next b;
    struct requests *r = REQUESTS(.urgent_us = 0);
    for (uint64_t i = 0; i < 4; i++)
        add(r, of(1, i, i ? 40 * MS : 5 * MS, 4 * MS)); /* 4, 5, 6 or 7 ms */
    add(r, of(2, 4, 6 * MS, MS));
    assert_int_equal(next_batch(r, 4, &b), 0);
    assert_int_equal(b.n, 1);
    cede_requests_free(r);
}

/* Two batches at a time: a request that is late behind one is in time on a second lane, as soon as
 * two have run together, and until the device had no room for the second. */
TEST(lanes)
{
    struct request out, q = REQUEST(.deadline_ns = 40 * MS, .run_ns = 10 * MS);
    uint32_t slot[3], n = 1;
    uint64_t wake;
    struct requests *r = REQUESTS(.admit = 1, .batches = 2);
    for (unsigned i = 0; i < 2; i++) {
        submit(r, q, 0);
        OK(cede_requests_next_batch(r, 0, 0, &out, &n, &slot[i], &wake));
    }
    assert_true(slot[0] == 0 && slot[1] == 1);
    assert_int_equal(cede_requests_next_batch(r, 0, 0, &out, &n, &slot[2], &wake), -EBUSY);
    n = 1;
    /* Both lanes are free at 10, again at 20, at 30: two more are in time by 20, a third is not. */
    q.deadline_ns = 20 * MS;
    assert_int_equal(submit(r, q, 0).answer, CEDE_QUEUE_WAITS);
    assert_int_equal(submit(r, q, 0).answer, CEDE_QUEUE_WAITS);
    assert_int_equal(submit(r, q, 0).answer, CEDE_QUEUE_BEHIND);
    assert_true(cede_requests_backlog_ns(r, 0, 0) == 20 * MS);
    assert_int_equal(end_batch(r, 1), 1);
    cede_requests_no_room(r, 0);
    q.deadline_ns = 39 * MS; /* one lane: 10, 20, 30, 40 */
    assert_int_equal(submit(r, q, 0).answer, CEDE_QUEUE_BEHIND);
    q.deadline_ns = 40 * MS;
    assert_int_equal(submit(r, q, 0).answer, CEDE_QUEUE_WAITS);
    cede_requests_free(r);
}

/* A queue that filled up while a batch was out is full when that comes back. */
TEST(put_back_into_a_full_queue)
{
    struct requests *r = REQUESTS(.policy = CEDE_QUEUE_FIFO, .capacity = 4);
    struct next a;
    for (unsigned i = 0; i < 4; i++)
        add(r, of(1, 0, TIME_NEVER, MS));
    assert_int_equal(next_batch(r, MS, &a), 0);
    assert_int_equal(a.n, 4);
    for (unsigned i = 0; i < 4; i++)
        add(r, of(1, 0, TIME_NEVER, MS));
    cede_requests_put_back(r, 0);
    for (unsigned i = 0; i < cede_requests_slots(r); i++)
        assert_int_equal(submit(r, of(1, 0, TIME_NEVER, MS), 0).answer, CEDE_QUEUE_FULL);
    cede_requests_free(r);
}

/* A batch that gets no lease waits as before: in its order, and as part of what is to do. */
TEST(put_back)
{
    struct requests *r = REQUESTS(.urgent_us = MS / 1000);
    struct next a, b;
    for (uint64_t i = 0; i < 4; i++) /* by deadline: 2, 3, 0, 1 */
        add(r, of(1, i, (i < 2 ? 30 : 20) * MS, MS));
    uint64_t backlog = cede_requests_backlog_ns(r, 0, 3);
    assert_int_equal(next_batch(r, 20 * MS, &a), 0);
    assert_true(a.n > 1);
    cede_requests_put_back(r, 0);
    assert_true(cede_requests_backlog_ns(r, 0, 3) == backlog);
    assert_int_equal(next_batch(r, 20 * MS, &b), 0);
    assert_int_equal(a.n, b.n);
    for (uint32_t i = 0; i < a.n; i++)
        assert_true(a.out[i].id == b.out[i].id);
    cede_requests_put_back(r, 0);
    OK(cede_requests_cancel(r, a.out[0].id));
    assert_false(cede_requests_end(r, 0, &a.out[0]));
    cede_requests_free(r);
}

/* One request after the other on one device, whose run times waver, with a stall now and then. How
 * many of LONG are in time, and how many late. */
static struct outcome waver(int admit, unsigned load_percent)
{
    struct run_times *times = cede_run_times_new(0.99);
    const uint64_t key = cede_run_times_key(1, 0);
    struct outcome o = {0};
    struct request out;
    static uint64_t runs[LONG], arrivals[LONG];
    uint64_t now = 0, ends = TIME_NEVER, wake;
    uint32_t slot, n = 0;
    state = 7;
    for (uint32_t i = 0; i < LONG; i++) { /* 1 ms on average, and as much between them at 100 % */
        runs[i] = rnd(100) == 0 ? 20 * MS : rnd(10) == 0 ? 2 * MS : MS / 2 + rnd(2 * MS / 5);
        arrivals[i] = (i ? arrivals[i - 1] : 0) + rnd(2 * MS * 100 / load_percent);
    }
    struct requests *r = REQUESTS(.capacity = LONG, .admit = admit);
    while (n < LONG || ends != TIME_NEVER) {
        now = n < LONG ? min_u64(arrivals[n], ends) : ends;
        if (now == ends) {
            o.ran += now <= out.deadline_ns;
            o.late += now > out.deadline_ns;
            cede_run_times_learn(times, key, 1, *(uint64_t *)out.user, now > out.deadline_ns);
            assert_int_equal(end_batch(r, 0), 1);
            ends = TIME_NEVER;
        } else {
            struct run_time t = cede_run_times_get(times, key, MS);
            struct request q = REQUEST(.arrival_ns = now, .deadline_ns = now + 10 * MS,
                                       .run_ns = t.run_ns, .margin = t.margin, .user = &runs[n++]);
            o.refused += submit(r, q, now).device == CEDE_ANY_DEVICE;
        }
        uint32_t room = 1;
        if (ends == TIME_NEVER &&
            cede_requests_next_batch(r, 0, now, &out, &room, &slot, &wake) == 0)
            ends = now + *(uint64_t *)out.user;
    }
    cede_requests_free(r);
    free(times);
    return o;
}

/* Admission answers no fewer requests in time than taking all of them, and more when it counts. */
TEST(admission_when_run_times_waver)
{
    static const unsigned loads[] = {50, 80, 120};
    for (unsigned i = 0; i < 3; i++) {
        struct outcome all = waver(0, loads[i]), some = waver(1, loads[i]);
        print_message("load %u %%: in time %u of all, %u of admitted (%u late, %u refused)\n",
                      loads[i], all.ran, some.ran, some.late, some.refused);
        assert_true(some.ran >= all.ran);
        assert_true(some.late <= all.late);
    }
}

/* Other programs take half of the GPU: what is in time alone is refused, as it would be late. */
TEST(a_smaller_share)
{
    const struct run_time solo = {10 * MS, 2 * MS, 0};
    struct requests *r = REQUESTS(.admit = 1);
    for (double share = 1; share >= 0.25; share /= 2) {
        struct run_time t = cede_run_time_shared(solo, share);
        assert_true(t.run_ns == (uint64_t)((double)solo.run_ns / share));
        assert_true(t.each_ns == (uint64_t)((double)solo.each_ns / share));
        struct request q =
            REQUEST(.deadline_ns = 20 * MS, .run_ns = t.run_ns, .each_ns = t.each_ns);
        enum cede_queue_answer a = submit(r, q, 0).answer;
        assert_int_equal(a, share == 1     ? CEDE_QUEUE_RUNS
                            : share == 0.5 ? CEDE_QUEUE_BEHIND
                                           : CEDE_QUEUE_ALONE);
    }
    assert_true(cede_run_time_shared(solo, 0).run_ns >= 1000 * solo.run_ns);
    cede_requests_free(r);
}
