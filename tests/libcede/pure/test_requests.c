/* Scheduling of requests in virtual time. Sets are generated from seeds; what an optimal schedule
 * could do is known because each set is made from a schedule that meets every deadline. */
#include <math.h>

#include "../../random.h"
#include "../fixture.h"
#include "sets.h"

#define MS   1000000U
#define SETS 300U
#define MAX  SET_MAX

static double normal(void)
{
    double u = ((double)rnd(1U << 30) + 1) / (1U << 30), v = (double)rnd(1U << 30) / (1U << 30);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* One by one. */
static struct outcome run(struct cede_queue_config p, uint32_t n)
{
    return simulate(p, REQUESTS_PREFER_NS, n, 1);
}

/* A set that a schedule without preemption meets: requests one after the other, each released some
 * time before its start and due some time after its end, less than 90 % of the time in use. */
static uint32_t feasible(uint64_t *longest)
{
    uint32_t n = 20 + (uint32_t)rnd(80);
    uint64_t t = 200 * MS, sum = 0;
    *longest = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t c = MS / 10 + rnd(rnd(8) ? MS : 10 * MS), early = rnd(20) * rnd(MS),
                 spare = rnd(20) * rnd(MS);
        t += c / 8 + rnd(c / 8 + 1); /* at least 1/9 of the time is idle */
        set[i] = REQUEST(.arrival_ns = t - early, .deadline_ns = t + c + spare, .run_ns = c);
        t += c;
        sum += c;
        *longest = c > *longest ? c : *longest;
    }
    assert_true(sum * 10 < (t - 200 * MS) * 9);
    return n;
}

/* Requests released earlier have earlier deadlines: then the order of deadlines is an optimal one
 * even without preemption (exchange two neighbours), and EDF has to meet all. Releasing earlier and
 * being due later keeps a set feasible. */
TEST(edf_meets_what_is_feasible_in_order)
{
    uint32_t others = 0;
    for (state = 1000; state < 1000 + SETS; state++) {
        uint64_t seed = state, longest;
        uint32_t n = feasible(&longest);
        for (uint32_t i = n - 1; i-- > 0;)
            set[i].arrival_ns = min_u64(set[i].arrival_ns, set[i + 1].arrival_ns);
        for (uint32_t i = 1; i < n; i++)
            set[i].deadline_ns = max_u64(set[i].deadline_ns, set[i - 1].deadline_ns);
        sort_set(n);
        assert_int_equal(run(QUEUE(.policy = CEDE_QUEUE_EDF), n).late, 0);
        others += run(QUEUE(.policy = CEDE_QUEUE_LAXITY), n).late;
        state = seed;
    }
    assert_true(others > 0); /* the sets are hard enough that an order of another kind fails */
}

/* Any feasible set: EDF that cannot preempt is late by less than the longest request. */
TEST(edf_is_late_by_less_than_one_request)
{
    uint32_t fifo = 0;
    for (state = 5000; state < 5000 + SETS; state++) {
        uint64_t seed = state, longest;
        uint32_t n = feasible(&longest);
        sort_set(n);
        run(QUEUE(.policy = CEDE_QUEUE_EDF), n);
        for (uint32_t i = 0; i < n; i++)
            assert_true(late[i] < (int64_t)longest);
        run(QUEUE(.policy = CEDE_QUEUE_FIFO), n);
        for (uint32_t i = 0; i < n; i++)
            fifo += late[i] >= (int64_t)longest;
        for (uint32_t i = 0; i < n; i++)
            set[i].deadline_ns += longest;
        /* So with that much more slack it meets all. */
        assert_int_equal(run(QUEUE(.policy = CEDE_QUEUE_EDF), n).late, 0);
        state = seed;
    }
    assert_true(fifo > 0);
}

/* due_ns: after its arrival; 0: no deadline. */
static struct request of(enum job_class class, uint64_t at, uint64_t due_ns, uint64_t run_ns)
{
    return REQUEST(.arrival_ns = at, .deadline_ns = due_ns ? at + due_ns : TIME_NEVER,
                   .run_ns = run_ns, .class = class);
}

/* Frames every 40 ms, 10 ms each; 700 ms of transcription in pieces of 5 ms, due in 3 s; a client
 * without deadlines, of a class between, that takes whatever it gets. */
static uint32_t conference(enum cede_queue_policy policy, uint32_t *frames_late)
{
    /* frames will take a quarter of what is left to it */
    struct requests *r = REQUESTS(.policy = policy, .urgent_us = 300 * MS / 1000);
    uint64_t left = 700 * MS, frame = 0, now = 0;
    bool piece = false, filler = false;
    uint32_t transcription_late = 0;
    *frames_late = 0;
    while (now < 3000 * (uint64_t)MS) {
        for (; frame <= now; frame += 40 * MS)
            submit(r, of(CLASS_LATENCY, frame, 40 * MS, 10 * MS), now);
        if (!filler)
            submit(r, of(CLASS_NORMAL, now, 0, 5 * MS), now);
        if (!piece && left) {
            struct request q = of(CLASS_BATCH, now, 3000 * (uint64_t)MS - now, 5 * MS);
            q.after_ns = left - 5 * MS;
            submit(r, q, now);
        }
        filler = piece = true;
        struct request q;
        assert_int_equal(next_one(r, 0, now, &q), 0);
        now += q.run_ns;
        end_batch(r, 0);
        *frames_late += q.class == CLASS_LATENCY && now > q.deadline_ns;
        filler = q.class != CLASS_NORMAL;
        if (q.class == CLASS_BATCH) {
            left -= q.run_ns;
            piece = false;
            transcription_late = now > q.deadline_ns;
        }
    }
    cede_requests_free(r);
    return transcription_late || left > 0;
}

TEST(laxity_meets_both_deadlines)
{
    uint32_t frames = 0;
    assert_false(conference(CEDE_QUEUE_LAXITY, &frames));
    assert_int_equal(frames, 0);
    assert_true(conference(CEDE_QUEUE_PRIORITY, &frames)); /* the transcription never gets a turn */
    assert_int_equal(frames, 0);
}

static int by_value(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Four models; log-normal times between arrivals, sigma 2.0; due after ten times the run. */
static void bursts(uint64_t seed, unsigned load, uint32_t n)
{
    static const uint64_t runs[] = {MS / 2, MS, 2 * MS, 4 * MS};
    double t = 0, gap = 7.5 * MS / 4 * 100 / load / exp(2.0);
    state = seed;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m = (uint32_t)rnd(4);
        t += gap * exp(2.0 * normal());
        set[i] = REQUEST(.arrival_ns = (uint64_t)t, .deadline_ns = (uint64_t)t + 10 * runs[m],
                         .run_ns = runs[m], .class = (enum job_class)(m % CLASS_COUNT));
    }
}

/* Each policy with k 1, and after them edf with k 16. */
static struct cede_queue_config nth(unsigned policy)
{
    return QUEUE(.policy = policy < POLICIES ? (enum cede_queue_policy)policy : CEDE_QUEUE_EDF,
                 .k = policy < POLICIES ? 1 : 16);
}

/* The k requests with the earliest deadlines run at once and share the device evenly, as those of k
 * streams do: K-EDF as others mean it. Returns how many were late. */
static uint32_t at_once(uint32_t k, uint32_t n)
{
    static uint32_t waiting[MAX]; /* by deadline */
    static double left[MAX];
    uint32_t nwaiting = 0, next = 0, missed = 0;
    double now = 0;
    while (next < n || nwaiting) {
        const uint32_t running = nwaiting < k ? nwaiting : k;
        uint32_t first = 0; /* to end */
        for (uint32_t i = 1; i < running; i++)
            first = left[waiting[i]] < left[waiting[first]] ? i : first;
        double end = running ? now + left[waiting[first]] * running : INFINITY;
        bool arrives = next < n && (double)set[next].arrival_ns <= end;
        double until = arrives ? (double)set[next].arrival_ns : end;
        for (uint32_t i = 0; i < running; i++)
            left[waiting[i]] -= (until - now) / running;
        now = until;
        uint32_t at = arrives ? nwaiting++ : first;
        if (arrives) {
            left[next] = (double)set[next].run_ns;
            for (; at && set[waiting[at - 1]].deadline_ns > set[next].deadline_ns; at--)
                waiting[at] = waiting[at - 1];
            waiting[at] = next++;
            continue;
        }
        late[waiting[at]] = (int64_t)(now - (double)set[waiting[at]].deadline_ns);
        missed += late[waiting[at]] > 0;
        for (nwaiting--; at < nwaiting; at++)
            waiting[at] = waiting[at + 1];
    }
    return missed;
}

TEST(edf_has_the_best_p99_lateness_and_k_edf_the_same_with_fewer_late)
{
    for (unsigned load = 50; load <= 90; load += 10) {
        int64_t p99[POLICIES + 1];
        unsigned misses[POLICIES + 1];
        bursts(77 + load, load, MAX); /* the same for each */
        for (unsigned policy = 0; policy <= POLICIES; policy++) {
            misses[policy] = run(nth(policy), MAX).late;
            qsort(late, MAX, sizeof(late[0]), by_value);
            p99[policy] = late[MAX / 100 * 99];
            print_message("load %u %% policy %u: p99 lateness %.2f ms, %u late\n", load, policy,
                          (double)p99[policy] / MS, misses[policy]);
        }
        unsigned together = at_once(16, MAX);
        qsort(late, MAX, sizeof(late[0]), by_value);
        print_message("load %u %% 16 at once: p99 lateness %.2f ms, %u late\n", load,
                      (double)late[MAX / 100 * 99] / MS, together);
        assert_true(misses[POLICIES] < together && p99[POLICIES] <= late[MAX / 100 * 99]);
        for (unsigned policy = 0; policy < POLICIES; policy++)
            assert_true(p99[CEDE_QUEUE_EDF] <= p99[policy] &&
                        p99[POLICIES] <= p99[policy] + p99[policy] / 100);
        assert_true(misses[POLICIES] * 10 < misses[CEDE_QUEUE_EDF] * 9);
        assert_true(misses[POLICIES] < misses[CEDE_QUEUE_FIFO]);
    }
}

/* The p99 of latency, over many short loads: against the best of the others at each of them. */
TEST(k_edf_has_about_the_best_p99_latency)
{
    enum { SEEDS = 40, N = 5000 };
    for (unsigned load = 50; load <= 90; load += 10) {
        double sum = 0, most = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            double best = INFINITY, p99 = 0;
            bursts(1000 * load + seed, load, N);
            for (unsigned policy = 0; policy <= POLICIES; policy++) {
                run(nth(policy), N);
                for (uint32_t i = 0; i < N; i++)
                    late[i] += (int64_t)(set[i].deadline_ns - set[i].arrival_ns);
                qsort(late, N, sizeof(late[0]), by_value);
                p99 = (double)late[N / 100 * 99];
                best = policy < POLICIES && p99 < best ? p99 : best;
            }
            sum += p99 / best;
            most = p99 / best > most ? p99 / best : most;
        }
        print_message("load %u %%: k 16 against the best: %.4f on average, %.4f at most\n", load,
                      sum / SEEDS, most);
        assert_true(sum / SEEDS <= 1.03);
    }
}

/* Nine of ten prefer device 0, so strongly that only stealing can help. */
TEST(stealing_evens_a_skewed_load)
{
    uint64_t t = 0;
    state = 3;
    for (uint32_t i = 0; i < MAX; i++) {
        t += rnd(MS);
        set[i] = REQUEST(.arrival_ns = t, .deadline_ns = t + 50 * MS, .run_ns = MS / 2 + rnd(MS),
                         .preferred = rnd(10) == 0);
    }
    const struct outcome o = simulate(QUEUE(.devices = 2), TIME_NEVER, MAX, 1);
    uint64_t more = max_u64(o.busy_ns[0], o.busy_ns[1]), less = o.busy_ns[0] + o.busy_ns[1] - more;
    print_message("busy: %.1f and %.1f ms\n", (double)more / MS, (double)less / MS);
    assert_true(less * 100 >= more * 95);
}

TEST(answers)
{
    struct requests *r = REQUESTS(.devices = 2, .capacity = 3, .admit = 1);
    struct request q = {.deadline_ns = 10 * MS, .run_ns = 4 * MS, .preferred = 1}, out;
    assert_int_equal(next_one(r, 0, 0, &out), -EAGAIN);
    assert_int_equal(end_batch(r, 0), 0);
    assert_false(cede_requests_reclaim(r, &out));
    struct cede_queue_ticket t = submit(r, q, 0);
    /* the preferred one, as it is no more loaded than the other */
    HAS(t, (answer, CEDE_QUEUE_RUNS), (device, 1), (urgent, 0));
    assert_int_equal(next_one(r, 1, 0, &out), 0);
    assert_true(out.id == t.id);
    assert_int_equal(next_one(r, 1, 0, &out), -EBUSY);
    assert_int_equal(cede_requests_cancel(r, t.id), -EBUSY);
    t = submit(r, q, 0);
    assert_int_equal(t.device, 0); /* the least loaded, as the preferred one has too much to do */
    OK(cede_requests_cancel(r, t.id));
    assert_int_equal(cede_requests_cancel(r, t.id), -ENOENT);
    q.deadline_ns = 4 * MS - 1;
    t = submit(r, q, 0); /* its estimate may be wrong, and costs nobody anything */
    HAS(t, (answer, CEDE_QUEUE_RUNS), (device, 0), (urgent, 1));
    assert_int_equal(submit(r, q, 0).answer, CEDE_QUEUE_ALONE); /* the device is not idle now */
    OK(cede_requests_cancel(r, t.id));
    q.deadline_ns = 0;
    assert_int_equal(submit(r, q, 0).answer, CEDE_QUEUE_ALONE); /* it is late already */
    q.deadline_ns = 4 * MS;
    assert_int_equal(submit(r, q, 0).answer, CEDE_QUEUE_RUNS);
    assert_int_equal(next_one(r, 0, 0, &out), 0);
    static const uint64_t deadlines_ms[] = {7, 9, 9, 8};
    static const enum cede_queue_answer answers[] = {CEDE_QUEUE_BEHIND, CEDE_QUEUE_WAITS,
                                                     CEDE_QUEUE_WAITS, CEDE_QUEUE_OTHERS};
    for (unsigned i = 0; i < 4; i++) {
        q.deadline_ns = deadlines_ms[i] * MS;
        assert_int_equal(submit(r, q, 0).answer, answers[i]);
    }
    q.preferred = 2;
    assert_int_equal(cede_requests_submit(r, &q, 0, &t), -EINVAL);
    q = of(CLASS_LATENCY, 0, 0, MS);
    assert_int_equal(submit(r, q, 0).answer, CEDE_QUEUE_WAITS);
    assert_int_equal(submit(r, q, 0).answer, CEDE_QUEUE_FULL);
    assert_true(cede_requests_backlog_ns(r, 0, 0) + cede_requests_backlog_ns(r, 1, 0) == 17 * MS);
    for (unsigned i = 0; i < 3; i++)
        assert_true(cede_requests_reclaim(r, &out));
    assert_false(cede_requests_reclaim(r, &out));
    cede_requests_free(r);
}
