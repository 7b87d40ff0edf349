/* Estimates, learned run times, and when a batch starts, as a table; under generated loads that is
 * in test_requests_batch.c. */
#include "../fixture.h"
#include "libcede/pure/request_plan.h"

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
                                never = {.deadline_ns = TIME_NEVER},
                                later = {.arrival_ns = 500, .deadline_ns = 5000};
    const struct request *const older[] = {&later, &never};
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
    assert_int_equal(cede_batch_decide(&p, older, 2, 600).wake_ns, 1000); /* for any of them */
}
