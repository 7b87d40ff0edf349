/* What programs tell of their deadlines, and what is set from outside, as it reaches the groups on
 * the device: who is suspended, and with what timeslice. */
#include "fixture.h"

enum { FRAMES, SPEECH, TRAINING };

static void pair(struct fixture *f, pid_t p[3])
{
    f->d.has_usage = f->d.has_activity = true;
    three_jobs(f, p);
    assert_int_equal(engine_set_policy(f->m, "laxity"), 0);
    for (int i = 0; i < 3; i++) {
        on(f, p[i])->bursts = 20;
        on(f, p[i])->busy = 0.3;
        on(f, p[i])->busy_ns = 30 * NSEC_PER_MSEC;
    }
    ticks(f, 1000);
}

static uint32_t slot_of(struct fixture *f, pid_t pid)
{
    return engine_job_of(f->m, pid);
}

/* Tells the same for so long; how many ms each could run. */
static void say(struct fixture *f, const pid_t p[3], struct report t, unsigned ms, unsigned ran[3])
{
    memset(ran, 0, 3 * sizeof(ran[0]));
    for (unsigned i = 0; i < ms; i += 20) {
        t.now_ns = f->now;
        engine_report(f->m, slot_of(f, p[SPEECH]), &t);
        ticks(f, 20);
        for (int k = 0; k < 3; k++)
            ran[k] += on(f, p[k])->suspended ? 0 : 20;
    }
}

static void test_told(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    unsigned ran[3];
    pair(f, p);
    /* Nobody knows what it takes, so it is boosted at once, and to its end. */
    struct report t = {.deadline_ns = f->now + 3 * NSEC_PER_SEC};
    say(f, p, t, 1000, ran);
    assert_true(ran[FRAMES] == 1000 && ran[SPEECH] == 1000 && ran[TRAINING] <= 20);
    t = (struct report){.ended = 1};
    on(f, p[SPEECH])->bursts = 0;
    on(f, p[SPEECH])->busy_ns = 0;
    say(f, p, t, 1000, ran);
    assert_true(ran[TRAINING] >= 980); /* and it is watched meanwhile */
    assert_true(ran[SPEECH] >= 980);
    /* Now its 0.3 s are known: it takes turns until the last second. */
    on(f, p[SPEECH])->bursts = 20;
    on(f, p[SPEECH])->busy_ns = NSEC_PER_MSEC;
    t.deadline_ns = f->now + 3 * NSEC_PER_SEC;
    say(f, p, t, 1500, ran);
    assert_true(ran[TRAINING] > 600);
    on(f, p[SPEECH])->busy_ns = 30 * NSEC_PER_MSEC;
    say(f, p, t, 800, ran);
    say(f, p, t, 600, ran);
    assert_true(ran[SPEECH] == 600 && ran[TRAINING] == 0);
    uint32_t cursor = slot_of(f, p[SPEECH]);
    struct job_view v;
    assert_true(engine_next_job(f->m, &cursor, &v));
    assert_true(v.due && v.due_first && !v.due_promoted && v.due_needs_ns < NSEC_PER_SEC);
    assert_in_range(v.due_in_ns, 0, 500 * NSEC_PER_MSEC);
    /* Late, it has 5 s more, and then it is over, be it done or not. */
    say(f, p, t, 5200, ran);
    say(f, p, t, 4000, ran);
    assert_true(ran[TRAINING] > 800);
}

static void test_silence(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    unsigned ran[3];
    pair(f, p);
    struct report t = {.deadline_ns = f->now + 60 * NSEC_PER_SEC, .need_ns = 60 * NSEC_PER_SEC};
    say(f, p, t, 500, ran);
    assert_true(ran[SPEECH] == 500);
    ticks(f, 1100); /* its program was killed, or hangs */
    memset(ran, 0, sizeof(ran));
    for (int i = 0; i < 200; i++) {
        ticks(f, 10);
        ran[TRAINING] += !on(f, p[TRAINING])->suspended;
    }
    assert_true(ran[TRAINING] > 80);
}

static void test_who_may_promote(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    unsigned ran[3];
    pair(f, p);
    for (int root = 0; root < 2; root++) {
        struct report t = {.deadline_ns = f->now + NSEC_PER_SEC,
                           .need_ns = 950 * NSEC_PER_MSEC,
                           .ended = (uint64_t)root,
                           .root = root};
        say(f, p, t, 300, ran);
        assert_int_equal(on(f, p[SPEECH])->timeslice_us, root ? 4000 : 1);
        assert_int_equal(on(f, p[FRAMES])->timeslice_us, root ? 4000 : 1000000);
        assert_true(on(f, p[TRAINING])->suspended);
        ticks(f, 3000);
        assert_int_equal(on(f, p[FRAMES])->timeslice_us, 1000000);
    }
}

/* That an administrator's deadline may does not go for those that the program tells itself. */
static void test_who_may_promote_by_whom(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    unsigned ran[3];
    pair(f, p);
    assert_int_equal(engine_set_deadline(f->m, slot_of(f, p[SPEECH]), 60000000, 0, true), 0);
    struct report t = {.deadline_ns = f->now + NSEC_PER_SEC, .need_ns = 950 * NSEC_PER_MSEC};
    say(f, p, t, 300, ran);
    assert_int_equal(on(f, p[SPEECH])->timeslice_us, 1);
    assert_int_equal(on(f, p[FRAMES])->timeslice_us, 1000000);
}

static void test_nonsense(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    unsigned ran[3];
    static const uint64_t evil[] = {0, 1, UINT64_MAX, INT64_MAX, 1ULL << 53, 1ULL << 62};
    pair(f, p);
    uint64_t seed = 3;
    for (int i = 0; i < 500; i++) {
        uint64_t v[3];
        for (int k = 0; k < 3; k++) {
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
            v[k] = evil[(seed >> 33) % ARRAY_SIZE(evil)] + (k == 1 ? f->now * (seed >> 40 & 1) : 0);
        }
        struct report t = {.ended = v[0], .deadline_ns = v[1], .need_ns = v[2]};
        say(f, p, t, 40, ran);
        assert_true(!on(f, p[FRAMES])->suspended);
        assert_int_equal(on(f, p[FRAMES])->timeslice_us, 1000000);
    }
}

static void test_set_stays(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    pair(f, p);
    assert_int_equal(engine_set_deadline(f->m, slot_of(f, p[SPEECH]), 3000000, 1000000, true), 0);
    ticks(f, 100);
    crash(f);
    start(f, "laxity", NULL);
    ticks(f, 100);
    uint32_t cursor = slot_of(f, p[SPEECH]);
    struct job_view v;
    assert_true(engine_next_job(f->m, &cursor, &v));
    assert_int_equal(v.job.deadline_us, 3000000);
    assert_int_equal(v.job.laxity_us, 1000000);
    assert_true(v.job.may_promote);
    /* It works: due 3 s after, and it was said that it needs 2 s of the GPU, of which there are
     * 0.7. */
    unsigned training = 0;
    for (int i = 0; i < 100; i++) {
        ticks(f, 10);
        training += !on(f, p[TRAINING])->suspended;
    }
    assert_true(training < 50);
}

/* A job with a deadline that has nothing to do is not suspended, so that it is seen to begin: in
 * whichever of its contexts that is. */
static void test_watched_in_every_context(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    pair(f, p);
    struct mock_group *second = &f->d.g[mock_context(&f->d, p[SPEECH], 0, 0)];
    on(f, p[SPEECH])->bursts = 0;
    on(f, p[SPEECH])->busy_ns = 0;
    on(f, p[SPEECH])->busy = second->busy = 0;
    assert_int_equal(engine_set_deadline(f->m, slot_of(f, p[SPEECH]), 3000000, 0, false), 0);
    ticks(f, 5000);
    unsigned ran = 0;
    for (int i = 0; i < 100; i++) {
        ticks(f, 10);
        ran += !on(f, p[SPEECH])->suspended && !second->suspended && !on(f, p[TRAINING])->suspended;
    }
    assert_true(ran >= 95);
    second->bursts = 20; /* it begins there */
    second->busy_ns = 30 * NSEC_PER_MSEC;
    ran = 0;
    for (int i = 0; i < 600; i++) {
        ticks(f, 10);
        ran += !second->suspended;
    }
    assert_true(ran > 100);
}

/* A request of each of the first two that reports: due after so long; 0: it has none. When the next
 * look is wanted. */
static uint64_t begin(struct fixture *f, const pid_t p[3], const uint64_t due_ms[2],
                      const uint64_t *served)
{
    uint64_t again = 0;
    for (int k = 0; k < 2; k++) {
        struct report t = {
            .now_ns = f->now, .ended = *served, .deadline_ns = f->now + due_ms[k] * NSEC_PER_MSEC};
        if (due_ms[k])
            again = engine_report(f->m, slot_of(f, p[k]), &t);
    }
    ticks(f, 20);
    return again;
}

/* One every 90 ms. */
static void serve(struct fixture *f, const pid_t p[3], unsigned n, const uint64_t due_ms[2],
                  uint64_t *served)
{
    for (unsigned i = 0; i < n; i++) {
        begin(f, p, due_ms, served);
        ++*served;
        for (int k = 0; k < 2; k++) {
            struct report t = {.now_ns = f->now, .ended = *served};
            if (due_ms[k])
                engine_report(f->m, slot_of(f, p[k]), &t);
        }
        ticks(f, 70);
    }
}

static void make_latency(struct fixture *f, pid_t pid)
{
    struct error err = {""};
    assert_int_equal(engine_change(f->m, slot_of(f, pid),
                                   &(struct job_terms){.class = CLASS_LATENCY, .weight = 100},
                                   &err),
                     0);
}

/* Each takes 27 ms of the GPU, as activity() shows: the one that has less time leads. */
static void test_latency_jobs(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint64_t served = 1;
    struct job_view v;
    pair(f, p);
    make_latency(f, p[SPEECH]);
    end(f, p[TRAINING]); /* with it there would be another reason to look */
    ticks(f, 3000);
    /* One alone: no look at who works is wanted for it, nor any order. */
    const uint64_t alone[] = {40, 0}, first[] = {40, 80}, second[] = {80, 40},
                   enough[] = {200, 200};
    unsigned calls = f->d.activity_calls;
    serve(f, p, 30, alone, &served);
    assert_int_equal(begin(f, p, alone, &served), 20 * NSEC_PER_MSEC);
    assert_true(f->d.activity_calls <= calls + 4);
    assert_int_equal(on(f, p[FRAMES])->timeslice_us, 4000);

    serve(f, p, 60, first, &served);
    assert_int_equal(begin(f, p, first, &served), 2 * NSEC_PER_MSEC);
    uint32_t cursor = slot_of(f, p[FRAMES]);
    assert_true(engine_next_job(f->m, &cursor, &v));
    assert_true(v.due && v.due_first && !v.due_promoted);
    assert_in_range(v.due_needs_ns, 24 * NSEC_PER_MSEC, 31 * NSEC_PER_MSEC);
    assert_int_equal(on(f, p[FRAMES])->timeslice_us, 1000000);
    assert_int_equal(on(f, p[SPEECH])->timeslice_us, 1);
    ++served;
    begin(f, p, second, &served);
    assert_int_equal(on(f, p[FRAMES])->timeslice_us, 1);
    assert_int_equal(on(f, p[SPEECH])->timeslice_us, 1000000);
    calls = f->d.timeslice_calls;
    serve(f, p, 10, second, &served);
    assert_int_equal(f->d.timeslice_calls, calls);
    /* Both have time for both, by weight as well. */
    serve(f, p, 2, enough, &served);
    assert_int_equal(on(f, p[FRAMES])->timeslice_us, 4000);
    assert_int_equal(on(f, p[SPEECH])->timeslice_us, 4000);
    begin(f, p, second, &served);
    assert_int_equal(on(f, p[SPEECH])->timeslice_us, 1000000);
    ++served;
    assert_int_equal(engine_set_policy(f->m, "priority"), 0);
    ticks(f, 20);
    assert_int_equal(begin(f, p, second, &served), 20 * NSEC_PER_MSEC);
    assert_int_equal(on(f, p[SPEECH])->timeslice_us, 4000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(test_told),
                                       T(test_silence),
                                       T(test_who_may_promote),
                                       T(test_who_may_promote_by_whom),
                                       T(test_latency_jobs),
                                       T(test_nonsense),
                                       T(test_set_stays),
                                       T(test_watched_in_every_context)};
    return cmocka_run_group_tests_name("manager_deadlines", tests, NULL, NULL);
}
