/* What programs tell of their deadlines, and what is set from outside, as it reaches the groups on
 * the device: who is suspended, and with what timeslice. */
#include "fixture.h"

enum { FRAMES, SPEECH, TRAINING };

static void pair(struct fixture *f)
{
    f->d.has_usage = f->d.has_activity = true;
    three_jobs(f);
    assert_int_equal(engine_set_policy(f->m, "laxity"), 0);
    for (int i = 0; i < 3; i++)
        works(f, f->p[i], 20, 30, 0.3);
    ticks(f, 1000);
}

/* Tells the same for so long; f->ran: for how many ms each could run. */
static void say(struct fixture *f, struct report t, unsigned ms)
{
    memset(f->ran, 0, sizeof(f->ran));
    for (unsigned i = 0; i < ms; i += 20) {
        t.now_ns = f->now;
        deadlines_report(engine_model(f->m), f->job[SPEECH], &t);
        ticks(f, 20);
        for (int k = 0; k < 3; k++)
            f->ran[k] += on(f, f->p[k])->suspended ? 0 : 20;
    }
}

ENGINE_TEST(test_told)
{
    pair(f);
    /* Nobody knows what it takes, so it is boosted at once, and to its end. */
    struct report t = {.deadline_ns = f->now + 3 * NSEC_PER_SEC};
    say(f, t, 1000);
    assert_true(f->ran[FRAMES] == 1000 && f->ran[SPEECH] == 1000 && f->ran[TRAINING] <= 20);
    t = (struct report){.ended = 1};
    works(f, p[SPEECH], 0, 0, 0.3);
    say(f, t, 1000);
    assert_true(f->ran[TRAINING] >= 980); /* and it is watched meanwhile */
    assert_true(f->ran[SPEECH] >= 980);
    /* Now its 0.3 s are known: it takes turns until the last second. */
    works(f, p[SPEECH], 20, 1, 0.3);
    t.deadline_ns = f->now + 3 * NSEC_PER_SEC;
    say(f, t, 1500);
    assert_true(f->ran[TRAINING] > 600);
    on(f, p[SPEECH])->busy_ns = 30 * NSEC_PER_MSEC;
    say(f, t, 800);
    say(f, t, 600);
    assert_true(f->ran[SPEECH] == 600 && f->ran[TRAINING] == 0);
    struct job_view v = view(f, j[SPEECH]);
    assert_true(v.due && v.due_first && !v.due_promoted && v.due_needs_ns < NSEC_PER_SEC);
    assert_in_range(v.due_in_ns, 0, 500 * NSEC_PER_MSEC);
    /* Late, it has 5 s more, and then it is over, be it done or not. */
    say(f, t, 5200);
    say(f, t, 4000);
    assert_true(f->ran[TRAINING] > 800);
}

ENGINE_TEST(test_silence)
{
    pair(f);
    struct report t = {.deadline_ns = f->now + 60 * NSEC_PER_SEC, .need_ns = 60 * NSEC_PER_SEC};
    say(f, t, 500);
    assert_true(f->ran[SPEECH] == 500);
    ticks(f, 1100); /* its program was killed, or hangs */
    count_turns(f, 3, 2000);
    assert_true(f->ran[TRAINING] > 80);
}

static void assert_slices(struct fixture *f, uint64_t frames_us, uint64_t speech_us)
{
    assert_int_equal(on(f, f->p[FRAMES])->timeslice_us, frames_us);
    assert_int_equal(on(f, f->p[SPEECH])->timeslice_us, speech_us);
}

/* Of SPEECH. */
static void set_deadline(struct fixture *f, uint32_t deadline_us, uint32_t laxity_us,
                         bool may_promote)
{
    struct job_view v = view(f, f->job[SPEECH]);
    v.job.deadline_us = deadline_us;
    v.job.laxity_us = laxity_us;
    v.job.may_promote = may_promote;
    change(f, f->job[SPEECH], v.job.terms);
}

ENGINE_TEST(test_who_may_promote)
{
    pair(f);
    for (int root = 0; root < 2; root++) {
        struct report t = {.deadline_ns = f->now + NSEC_PER_SEC,
                           .need_ns = 950 * NSEC_PER_MSEC,
                           .ended = (uint64_t)root,
                           .root = root};
        say(f, t, 300);
        assert_slices(f, root ? 4000 : 1000000, root ? 4000 : 1);
        assert_true(on(f, p[TRAINING])->suspended);
        ticks(f, 3000);
        assert_int_equal(on(f, p[FRAMES])->timeslice_us, 1000000);
    }
}

/* That an administrator's deadline may does not go for those that the program tells itself. */
ENGINE_TEST(test_who_may_promote_by_whom)
{
    pair(f);
    set_deadline(f, 60000000, 0, true);
    struct report t = {.deadline_ns = f->now + NSEC_PER_SEC, .need_ns = 950 * NSEC_PER_MSEC};
    say(f, t, 300);
    assert_slices(f, 1000000, 1);
}

ENGINE_TEST(test_nonsense)
{
    static const uint64_t evil[] = {0, 1, UINT64_MAX, INT64_MAX, 1ULL << 53, 1ULL << 62};
    pair(f);
    uint64_t seed = 3;
    for (int i = 0; i < 500; i++) {
        uint64_t v[3];
        for (int k = 0; k < 3; k++) {
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
            v[k] = evil[(seed >> 33) % ARRAY_SIZE(evil)] + (k == 1 ? f->now * (seed >> 40 & 1) : 0);
        }
        struct report t = {.ended = v[0], .deadline_ns = v[1], .need_ns = v[2]};
        say(f, t, 40);
        assert_true(!on(f, p[FRAMES])->suspended);
        assert_int_equal(on(f, p[FRAMES])->timeslice_us, 1000000);
    }
}

ENGINE_TEST(test_set_stays)
{
    pair(f);
    set_deadline(f, 3000000, 1000000, true);
    ticks(f, 100);
    restart(f, "laxity");
    ticks(f, 100);
    struct job_view v = view(f, j[SPEECH]);
    assert_int_equal(v.job.deadline_us, 3000000);
    assert_int_equal(v.job.laxity_us, 1000000);
    assert_true(v.job.may_promote);
    /* It works: due 3 s after, and it was said that it needs 2 s of the GPU, of which there are
     * 0.7. */
    count_turns(f, 3, 1000);
    assert_true(f->ran[TRAINING] < 50);
}

/* A job with a deadline that has nothing to do is not suspended, so that it is seen to begin: in
 * whichever of its contexts that is. */
ENGINE_TEST(test_watched_in_every_context)
{
    pair(f);
    struct mock_group *second = &f->d.g[mock_context(&f->d, p[SPEECH], 0, 0)];
    works(f, p[SPEECH], 0, 0, 0);
    second->busy = 0;
    set_deadline(f, 3000000, 0, false);
    ticks(f, 5000);
    unsigned both = 0, there = 0;
    for (int i = 0; i < 100; i++) {
        ticks(f, 10);
        both +=
            !on(f, p[SPEECH])->suspended && !second->suspended && !on(f, p[TRAINING])->suspended;
    }
    assert_true(both >= 95);
    second->bursts = 20; /* it begins there */
    second->busy_ns = 30 * NSEC_PER_MSEC;
    for (int i = 0; i < 600; i++) {
        ticks(f, 10);
        there += !second->suspended;
    }
    assert_true(there > 100);
}

static uint64_t served; /* requests by each */

/* Each of the first two that has requests, due_ms not 0, reports one: that it begins, or that it
 * has ended. When the next look is wanted. */
static uint64_t report_both(struct fixture *f, const uint64_t due_ms[2], bool begins)
{
    uint64_t again = 0;
    for (int k = 0; k < 2; k++) {
        struct report t = {.now_ns = f->now,
                           .ended = served,
                           .deadline_ns = begins ? f->now + due_ms[k] * NSEC_PER_MSEC : 0};
        if (due_ms[k])
            again = deadlines_report(engine_model(f->m), f->job[k], &t);
    }
    return again;
}

static uint64_t begin(struct fixture *f, const uint64_t due_ms[2])
{
    const uint64_t again = report_both(f, due_ms, true);
    ticks(f, 20);
    return again;
}

/* One every 90 ms. */
static void serve(struct fixture *f, unsigned n, const uint64_t due_ms[2])
{
    for (unsigned i = 0; i < n; i++) {
        begin(f, due_ms);
        ++served;
        report_both(f, due_ms, false);
        ticks(f, 70);
    }
}

/* Each takes 27 ms of the GPU, as activity() shows: the one that has less time leads. */
ENGINE_TEST(test_latency_jobs)
{
    struct job_view v;
    served = 1;
    pair(f);
    change_class(f, j[SPEECH], CLASS_LATENCY);
    end(f, p[TRAINING]); /* with it there would be another reason to look */
    ticks(f, 3000);
    /* One alone: no look at who works is wanted for it, nor any order. */
    const uint64_t alone[] = {40, 0}, first[] = {40, 80}, second[] = {80, 40},
                   enough[] = {200, 200};
    unsigned calls = f->d.activity_calls;
    serve(f, 30, alone);
    assert_int_equal(begin(f, alone), 20 * NSEC_PER_MSEC);
    assert_true(f->d.activity_calls <= calls + 4);
    assert_int_equal(on(f, p[FRAMES])->timeslice_us, 4000);

    serve(f, 60, first);
    assert_int_equal(begin(f, first), 2 * NSEC_PER_MSEC);
    v = view(f, j[FRAMES]);
    assert_true(v.due && v.due_first && !v.due_promoted);
    assert_in_range(v.due_needs_ns, 24 * NSEC_PER_MSEC, 31 * NSEC_PER_MSEC);
    assert_slices(f, 1000000, 1);
    ++served;
    begin(f, second);
    assert_slices(f, 1, 1000000);
    calls = f->d.timeslice_calls;
    serve(f, 10, second);
    assert_int_equal(f->d.timeslice_calls, calls);
    /* Both have time for both, by weight as well. */
    serve(f, 2, enough);
    assert_slices(f, 4000, 4000);
    begin(f, second);
    assert_int_equal(on(f, p[SPEECH])->timeslice_us, 1000000);
    ++served;
    assert_int_equal(engine_set_policy(f->m, "priority"), 0);
    ticks(f, 20);
    assert_int_equal(begin(f, second), 20 * NSEC_PER_MSEC);
    assert_int_equal(on(f, p[SPEECH])->timeslice_us, 4000);
}
