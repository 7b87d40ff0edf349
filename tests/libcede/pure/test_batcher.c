/* Estimates, learned run times, and the batcher in virtual time under generated loads. */
#include "../fixture.h"
#include "libcede/pure/request_plan.h"

#include <math.h>

#include "../../random.h"
#include "base/estimate.h"
#include "base/job_terms.h"
#include "libcede/pure/run_times.h"

#define MS 1000000U

TEST(quantile_is_conservative_and_close)
{
    static const double qs[] = {0.5, 0.9, 0.99};
    for (unsigned k = 0; k < 3; k++) {
        struct estimate e = {0};
        state = k;
        assert_true(cede_estimate_get(&e, qs[k], 7) == 7);
        for (unsigned i = 0; i < 100000; i++)
            cede_estimate_add(&e, MS + rnd(MS)); /* evenly from 1 to 2 ms */
        double exact = MS * (1 + qs[k]), got = (double)cede_estimate_get(&e, qs[k], 7);
        assert_true(got >= exact * 0.95 && got <= exact * 1.2);
    }
    struct estimate e = {0};
    for (uint64_t v = 1; v && v < UINT64_MAX / 3; v = v * 3 + 1) {
        memset(&e, 0, sizeof(e));
        cede_estimate_add(&e, v);
        assert_true(cede_estimate_get(&e, 0.5, 0) >= v &&
                    cede_estimate_get(&e, 0.5, 0) <= v + v / 8);
    }
    cede_estimate_add(&e, UINT64_MAX);
    assert_true(cede_estimate_get(&e, 0.99, 0) == UINT64_MAX);
}

TEST(estimate_forgets)
{
    struct estimate e = {0};
    for (unsigned i = 0; i < 5000; i++)
        cede_estimate_add(&e, 100 * MS);
    for (unsigned i = 0; i < 12 * EST_KEEP; i++)
        cede_estimate_add(&e, MS);
    assert_true(cede_estimate_get(&e, 0.99, 0) < 2 * MS);
}

TEST(keys_are_apart_and_bounded)
{
    struct estimates *e = NULL;
    assert_true(cede_estimates_new(0, &e) < 0);
    OK(cede_estimates_new(64, &e));
    cede_estimates_add(e, 1, MS);
    cede_estimates_add(e, 2, 50 * MS);
    assert_true(cede_estimates_get(e, 1, 0.99, 0) < 2 * MS);
    assert_true(cede_estimates_get(e, 2, 0.99, 0) >= 50 * MS);
    assert_true(cede_estimates_get(e, 3, 0.99, 5) == 5);
    for (uint64_t k = 10; k < 10000; k++) {
        cede_estimates_add(e, k, k);
        assert_true(cede_estimates_get(e, k, 0.99, 0) >= k);
    }
    assert_true(cede_estimates_get(e, 1, 0.99, 5) == 5); /* its place is another's now */
    cede_estimates_free(e);
}

#define N 300U

/* The waiting requests in order of deadline. */
struct line {
    const struct request *wait[N];
    uint32_t index[N], n;
    bool due[N]; /* by index: it waits by choice, so it has to be met */
};

/* A request that is overtaken may become late. */
static void line_insert(struct line *l, const struct request *r, uint32_t index)
{
    uint32_t at = l->n++;
    for (; at && l->wait[at - 1]->deadline_ns > r->deadline_ns; at--) {
        l->wait[at] = l->wait[at - 1];
        l->index[at] = l->index[at - 1];
    }
    for (uint32_t b = at + 1; b < l->n; b++)
        l->due[l->index[b]] = false;
    l->wait[at] = r;
    l->index[at] = index;
}

/* Takes out a batch that ends at end_ns; how many of it are late. */
static uint32_t line_remove(struct line *l, struct batch_choice c, uint64_t end_ns)
{
    bool gone[N] = {false};
    uint32_t late = 0, kept = 0;
    for (uint32_t i = 0; i < c.n; i++) {
        uint32_t at = (c.first + i) % l->n;
        gone[at] = true;
        late += end_ns > l->wait[at]->deadline_ns;
        assert_false(l->due[l->index[at]] && end_ns > l->wait[at]->deadline_ns);
    }
    for (uint32_t i = 0; i < l->n; i++) {
        if (!gone[i]) {
            l->wait[kept] = l->wait[i];
            l->index[kept++] = l->index[i];
        }
    }
    l->n = kept;
    return late;
}

static struct batch_params random_load(struct request *all)
{
    struct batch_params p = {.max = 1 + (uint32_t)rnd(16), .wait_ns = 10 * (uint64_t)MS};
    p.run_ns = 1 + rnd(5 * MS);
    p.run_ns += p.each_ns = 1 + rnd(MS);
    uint64_t t = 0, gap = 1 + rnd(3 * MS), slack = 1 + rnd(60 * MS);
    for (uint32_t i = 0; i < N; i++) {
        t += rnd(8) ? rnd(2 * gap) : 0;
        all[i] = (struct request){.arrival_ns = t, .deadline_ns = t + rnd(2 * slack)};
    }
    return p;
}

/* One device, one model. The most urgent request that a batch of one would meet now has to be met,
 * whatever it waits for, unless a more urgent one arrives. */
TEST(never_late_when_a_smaller_batch_was_possible)
{
    uint32_t full = 0, partial = 0, guaranteed = 0, lost = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        state = seed;
        struct request all[N];
        struct batch_params p = random_load(all);
        struct line l = {.n = 0};
        uint32_t next = 0, done = 0;
        uint64_t now = 0;
        while (done < N) {
            for (; next < N && all[next].arrival_ns <= now; next++)
                line_insert(&l, &all[next], next);
            uint32_t first = 0;
            while (first < l.n && now + p.run_ns > l.wait[first]->deadline_ns)
                assert_false(l.due[l.index[first++]]); /* none that could be met became late */
            struct batch_choice c = cede_batch_decide(&p, l.wait, l.n, now);
            if (!c.n) {
                uint64_t then = next < N ? all[next].arrival_ns : TIME_NEVER;
                assert_true(c.wake_ns > now);
                now = c.wake_ns < then ? c.wake_ns : then;
                if (first < l.n)
                    l.due[l.index[first]] = true;
                continue;
            }
            full += c.n == p.max;
            partial += c.n < p.max;
            now += cede_batch_run_ns(p.run_ns, p.each_ns, c.n);
            if (first < l.n) { /* the one that could be met runs, and in time */
                assert_int_equal(c.first, first);
                assert_true(now <= l.wait[first]->deadline_ns);
                guaranteed++;
            }
            lost += line_remove(&l, c, now);
            done += c.n;
        }
    }
    assert_true(full > 0 && partial > 0 && guaranteed > 0 && lost > 0);
}

/* Learned times: by model, shape and size of the batch, never below what was seen. */
TEST(run_times_fit_what_was_seen)
{
    struct run_times *t = cede_run_times_new(0.99);
    uint64_t key = cede_run_times_key(1, 7), other = cede_run_times_key(1, 8);
    assert_non_null(t);
    struct run_time r = cede_run_times_get(t, key, 5 * MS);
    assert_true(r.run_ns == 5 * MS && r.each_ns == 5 * MS); /* batches are taken to gain nothing */
    for (unsigned i = 0; i < 100; i++) {
        cede_run_times_learn(t, key, 1, 2 * MS, 0);
        cede_run_times_learn(t, key, 8, 3 * MS, 0);
    }
    r = cede_run_times_get(t, key, 5 * MS);
    assert_true(r.run_ns >= 2 * MS && r.run_ns <= 2 * MS + MS / 4);
    assert_true(r.each_ns > 0 && r.each_ns < MS);
    assert_true(r.run_ns + 7 * r.each_ns >= 3 * MS);
    assert_true(cede_run_times_get(t, other, 5 * MS).run_ns == 5 * MS);
    for (uint32_t m = 0; m < 10000; m++) { /* others take its places */
        uint64_t k = cede_run_times_key(m, 9);
        cede_run_times_learn(t, k, 1, MS, 0);
        assert_true(cede_run_times_get(t, k, 5 * MS).run_ns >= MS);
    }
    free(t);
}

/* One run, or one in sixteen, that took far longer says nothing of the next; more of them do. */
TEST(run_times_forget_what_held_up_one)
{
    for (unsigned stalls = 0; stalls < 12; stalls++) {
        struct run_times *t = cede_run_times_new(0.99);
        uint64_t key = cede_run_times_key(1, 7);
        assert_non_null(t);
        for (unsigned i = 0; i < 40 + stalls; i++)
            cede_run_times_learn(t, key, 1, i < 40 ? MS / 2 : 60 * MS, 0);
        struct run_time r = cede_run_times_get(t, key, 5 * MS);
        assert_true(r.run_ns >= MS / 2 && r.run_ns < MS);
        assert_true(stalls <= 3 ? r.margin < 150 : r.margin > 50000);
        free(t);
    }
}

/* Of the margin only so much counts as keeps requests in time. */
TEST(margins_ease_while_nothing_is_late)
{
    struct run_times *t = cede_run_times_new(0.9);
    uint64_t key = cede_run_times_key(1, 7);
    uint32_t margin[3];
    for (unsigned phase = 0, i = 0; phase < 3; phase++) {
        for (unsigned end = i + (phase == 1 ? 400 : 20); i < end; i++)
            cede_run_times_learn(t, key, 1, i % 5 ? MS : 3 * MS, phase == 2);
        margin[phase] = cede_run_times_get(t, key, MS).margin;
    }
    assert_true(margin[1] * 3 < margin[0]);
    assert_true(margin[2] > margin[1] * 3 && margin[2] >= margin[0]);
    free(t);
}

/* One slow batch does not refuse all later requests for ever. */
TEST(run_times_that_refuse_are_forgotten)
{
    struct run_times *t = cede_run_times_new(0.99);
    uint64_t key = cede_run_times_key(1, 7);
    assert_non_null(t);
    for (unsigned round = 0; round < 2; round++) {
        cede_run_times_learn(t, key, 1, 50 * MS, 0);
        for (unsigned i = 1; i < CEDE_RUN_TIMES_REFUSED; i++)
            cede_run_times_refused(t, key, 5 * MS);
        assert_true(cede_run_times_get(t, key, 5 * MS).run_ns >= 50 * MS);
        if (round == 0)
            cede_run_times_learn(t, key, 1, 50 * MS, 0); /* it does run: the count begins again */
        else
            cede_run_times_refused(t, key, 5 * MS);
    }
    assert_true(cede_run_times_get(t, key, 5 * MS).run_ns == 5 * MS);
    free(t);
}

TEST(decisions)
{
    struct batch_params p = {.max = 3, .run_ns = 15, .each_ns = 5, .wait_ns = 1000};
    static const struct request a = {.deadline_ns = 100}, b = {.deadline_ns = 200},
                                never = {.deadline_ns = TIME_NEVER};
    const struct request *const q[] = {&a, &b, &never, &never};
    struct batch_choice c = cede_batch_decide(&p, q, 0, 0);
    assert_true(c.n == 0 && c.wake_ns == TIME_NEVER);
    c = cede_batch_decide(&p, q, 2, 0);
    assert_true(c.n == 0 && c.wake_ns == 80); /* 100 less a batch of two */
    assert_int_equal(cede_batch_decide(&p, q, 2, 80).n, 2);
    assert_int_equal(cede_batch_decide(&p, q, 2, 81).n, 1); /* two would be too late */
    assert_int_equal(cede_batch_decide(&p, q, 4, 0).n, 3);  /* full */
    c = cede_batch_decide(&p, q, 2, 90); /* the first is lost: it rides along, last */
    assert_true(c.n == 0 && c.wake_ns == 180);
    c = cede_batch_decide(&p, q, 2, 180);
    assert_true(c.n == 2 && c.first == 1);
    c = cede_batch_decide(&p, q + 2, 1, 0); /* no deadline: not for ever */
    assert_true(c.n == 0 && c.wake_ns == 1000);
    assert_int_equal(cede_batch_decide(&p, q + 2, 1, 1000).n, 1);
}
