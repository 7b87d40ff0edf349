/* How fast the clients of an MPS server go, told from counters, and that nobody stays held for it:
 * observe/speeds.h. The driver's counters are those of programs that are not stopped. */
#include <errno.h>
#include <math.h>

#include "clients.h"
#include "engine/observe/experience.h"
#include "sched/speeds.h"

#define EACH_MS 5

struct program {
    enum job_class class;
    enum gpu_part part; /* that it uses most */
    double together;    /* speed beside others */
    bool client;
};

static void begin(struct fixture *f, pid_t *p, uint32_t *job, const struct program *v, int n)
{
    f->d.has_counters = true;
    programs(f, p, n, 2);
    for (int i = 0; i < n; i++) {
        struct mock_group *g = mock_compute(&f->d, p[i], 0);
        if (v[i].client)
            client_of(f, p[i], SERVER);
        g->uses[v[i].part] = 0.5;
        g->uses[PART_DRAM] += 0.1;
        g->together = v[i].together;
    }
    start(f, "priority", NULL);
    for (int i = 0; i < n; i++)
        job[i] = add(f, p[i], v[i].class);
}

/* For so long; how long each was held meanwhile. */
static void watch(struct fixture *f, const uint32_t *job, unsigned n, unsigned ms, unsigned *held)
{
    for (unsigned t = 0; t < ms; t += EACH_MS) {
        ticks(f, EACH_MS);
        for (unsigned i = 0; i < n; i++)
            held[i] += view(f, job[i]).signalled ? EACH_MS : 0;
    }
}

static void assert_told(struct fixture *f, uint32_t job, double speed)
{
    struct job_view v = view(f, job);
    assert_true(v.speed_told);
    assert_false(v.speed_profiling);
    assert_true(fabs(v.speed - speed) < 0.02);
    assert_true(v.speed_error < SPEED_ERROR_MAX);
}

static void assert_nobody_held(struct fixture *f, const pid_t *p, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        assert_true(reaches(p[i], false));
}

static const struct program three[] = {{CLASS_BATCH, PART_FP32, 0.7, true},
                                       {CLASS_BATCH, PART_TENSOR_FP16, 0.4, true},
                                       {CLASS_LATENCY, PART_FP64, 1, false}};

static void test_told(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    unsigned held[3] = {0};
    begin(f, p, job, three, 3);
    watch(f, job, 3, 4000, held);
    assert_in_range(held[0], 500, 2000);
    assert_in_range(held[1], 500, 2000);
    assert_int_equal(held[2], 0);
    watch(f, job, 3, 5000, held);
    assert_in_range(held[0], 500, 2000);
    assert_told(f, job[0], 0.7);
    assert_told(f, job[1], 0.4);
    assert_false(view(f, job[2]).speed_told);
    assert_nobody_held(f, p, 3);
}

/* Only what is not known is measured. */
static void test_one_joins(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    unsigned held[3] = {0};
    static const struct program v[] = {{CLASS_BATCH, PART_FP32, 0.7, true},
                                       {CLASS_BATCH, PART_TENSOR_FP16, 0.4, true},
                                       {CLASS_BATCH, PART_FP64, 0.3, true}};
    begin(f, p, job, v, 3);
    pause_job(f, job[2], true);
    watch(f, job, 2, 6000, held);
    memset(held, 0, sizeof(held));
    pause_job(f, job[2], false);
    watch(f, job, 3, 6000, held);
    assert_in_range(held[0], 500, 2000);
    assert_in_range(held[1], 500, 2000);
    assert_in_range(held[2], 0, 700);
    for (int i = 0; i < 3; i++)
        assert_told(f, job[i], v[i].together);
}

static void test_paused_meanwhile(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    unsigned held[3] = {0};
    begin(f, p, job, three, 3);
    while (!view(f, job[0]).speed_profiling)
        ticks(f, EACH_MS);
    pause_job(f, job[0], true);
    watch(f, job, 3, 3000, held);
    assert_true(reaches(p[0], true));
    assert_true(reaches(p[1], false));
    assert_false(view(f, job[1]).speed_profiling);
    pause_job(f, job[0], false);
    watch(f, job, 3, 8000, held);
    assert_told(f, job[0], 0.7);
    assert_nobody_held(f, p, 3);
}

static void test_crash(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    begin(f, p, job, three, 3);
    while (!view(f, job[0]).signalled || !view(f, job[1]).signalled)
        ticks(f, EACH_MS);
    assert_true(reaches(p[0], true));
    crash_and_undo(f);
    assert_nobody_held(f, p, 3);
}

static void test_ended_in_order(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    begin(f, p, job, three, 3);
    while (!view(f, job[0]).signalled)
        ticks(f, EACH_MS);
    stop(f, true);
    assert_nobody_held(f, p, 3);
}

static void test_one_ends_meanwhile(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    begin(f, p, job, three, 3);
    while (!view(f, job[0]).signalled)
        ticks(f, EACH_MS);
    end(f, p[1]);
    ticks(f, 1000);
    assert_true(reaches(p[0], false));
    assert_false(view(f, job[0]).speed_profiling);
}

/* Where others have turns, where a client is no batch job, and where one is on two GPUs. */
static void test_nobody_is_held(void **state)
{
    static const struct program v[][3] = {
        {{CLASS_BATCH, PART_FP32, 0.7, true},
         {CLASS_BATCH, PART_FP64, 0.4, true},
         {CLASS_BATCH, PART_FP16, 1, false}},
        {{CLASS_NORMAL, PART_FP32, 0.7, true},
         {CLASS_BATCH, PART_FP64, 0.4, true},
         {CLASS_LATENCY, PART_FP16, 1, false}},
        {{CLASS_LATENCY, PART_FP32, 0.7, true},
         {CLASS_BATCH, PART_FP64, 0.4, true},
         {CLASS_BATCH, PART_FP16, 1, true}},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
        pid_t p[3];
        uint32_t job[3];
        unsigned held[3] = {0};
        begin(f, p, job, v[i], 3);
        watch(f, job, 3, 5000, held);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(held[k], 0);
            assert_false(view(f, job[k]).speed_told);
        }
        stop(f, true);
        for (int k = 0; k < 3; k++)
            end(f, p[k]);
    }
}

/* Nobody waits for another user's job to be measured. */
static void test_two_users(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    unsigned held[3] = {0};
    begin(f, p, job, three, 3);
    engine_release(f->m, job[1]);
    job[1] = add_as(f, p[1], CLASS_BATCH, 1000);
    watch(f, job, 3, 5000, held);
    assert_int_equal(held[0] + held[1], 0);
    assert_false(view(f, job[0]).speed_told);
    engine_release(f->m, job[1]);
    job[1] = add(f, p[1], CLASS_BATCH);
    watch(f, job, 3, 8000, held);
    assert_told(f, job[0], 0.7);
}

/* Together these do less than in turns: one of them at a time runs, and a killed daemon leaves none
 * held. */
static void test_turns(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    unsigned held[3] = {0};
    static const struct program v[] = {{CLASS_BATCH, PART_FP32, 0.4, true},
                                       {CLASS_BATCH, PART_TENSOR_FP16, 0.3, true},
                                       {CLASS_LATENCY, PART_FP64, 1, false}};
    begin(f, p, job, v, 3);
    watch(f, job, 3, 12000, held);
    assert_true(view(f, job[0]).speed_turns && view(f, job[1]).speed_turns);
    memset(held, 0, sizeof(held));
    watch(f, job, 3, 20000, held);
    assert_in_range(held[0], 9000, 11000);
    assert_in_range(held[1], 9000, 11000);
    assert_true(fabs(view(f, job[0]).speed - 0.5) < 0.01);
    watch(f, job, 3, 39000, held); /* tried again, for five windows */
    assert_false(view(f, job[0]).speed_turns);
    assert_false(view(f, job[0]).signalled || view(f, job[1]).signalled);
    watch(f, job, 3, 12000, held);
    assert_true(view(f, job[0]).speed_turns);
    assert_true(view(f, job[0]).signalled || view(f, job[1]).signalled);
    crash_and_undo(f);
    assert_nobody_held(f, p, 3);
}

static bool take_turns_within(struct fixture *f, uint32_t job, unsigned ms)
{
    for (unsigned t = 0; t < ms && !view(f, job).speed_turns; t += EACH_MS)
        ticks(f, EACH_MS);
    return view(f, job).speed_turns;
}

/* One like the second is to stay out while the first is there alone. */
static void stays_out(struct fixture *f, const uint32_t job[2])
{
    pid_t p;
    programs(f, &p, 1, 2);
    mock_compute(&f->d, p, 0);
    uint32_t like = add(f, p, CLASS_BATCH);
    assert_false(engine_loses_in_space(f->m, like)); /* three of them are not two */
    pause_job(f, job[1], true);
    assert_true(engine_loses_in_space(f->m, like));
    pause_job(f, job[0], true);
    assert_false(engine_loses_in_space(f->m, like));
    pause_job(f, job[0], false);
    pause_job(f, job[1], false);
    end(f, p);
    ticks(f, 100);
}

/* What a killed daemon has learned the next one knows, until they gain. */
static void test_experience(void **state)
{
    static const struct program v[] = {{CLASS_BATCH, PART_FP32, 0.4, true},
                                       {CLASS_BATCH, PART_TENSOR_FP16, 0.3, true}};
    struct fixture *f = *state;
    char path[96];
    pid_t p[2];
    uint32_t job[2];
    snprintf(path, sizeof(path), "%s/experience", f->dir);
    f->experience = f->dir;
    begin(f, p, job, v, 2);
    assert_false(take_turns_within(f, job[0], 5000)); /* two profiles, and five windows */
    assert_true(take_turns_within(f, job[0], 5000));
    stays_out(f, job);
    crash_and_undo(f);
    for (int known = 1; known >= 0; known--) {
        start(f, "priority", NULL);
        ticks(f, 10);
        job[0] = engine_job_with(f->m, p[0]);
        assert_int_equal(take_turns_within(f, job[0], 5000), known);
        for (int i = 0; i < 2; i++)
            mock_compute(&f->d, p[i], 0)->together = 0.9;
        ticks(f, 70000); /* tried again, they gain */
        assert_false(view(f, job[0]).speed_turns);
        for (int i = 0; i < 2; i++)
            mock_compute(&f->d, p[i], 0)->together = v[i].together;
        crash_and_undo(f);
    }
    f->experience = NULL;
    unlink(path);
}

/* One keeps nine tenths of its speed, and the other has what that leaves. */
static void test_min_speed(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    unsigned held[3] = {0};
    static const struct program v[] = {{CLASS_BATCH, PART_FP32, 0.7, true},
                                       {CLASS_BATCH, PART_TENSOR_FP16, 0.6, true},
                                       {CLASS_LATENCY, PART_FP64, 1, false}};
    begin(f, p, job, v, 3);
    struct job_terms t = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT, .min_speed = 90};
    assert_int_equal(engine_change(f->m, job[0], &t, NULL), 0);
    watch(f, job, 3, 20000, held);
    memset(held, 0, sizeof(held));
    watch(f, job, 3, 20000, held);
    assert_int_equal(held[0], 0);
    assert_in_range(held[1], 13000, 15000); /* 0.3 is lost in 0.3 of the time */
    t.min_speed = 0;
    assert_int_equal(engine_change(f->m, job[0], &t, NULL), 0);
    watch(f, job, 3, 2000, held);
    memset(held, 0, sizeof(held));
    watch(f, job, 3, 10000, held);
    assert_int_equal(held[1], 0);
    stop(f, true);
    assert_nobody_held(f, p, 3);
}

/* Counters that fail, or are no numbers, before anything is measured, meanwhile and afterwards: in
 * two minutes the jobs wait for a few seconds, and nothing false is told. */
static void test_counters_fail(void **state)
{
    static const struct {
        int err;
        double says;
    } how[] = {{EIO, 0}, {0, NAN}, {0, INFINITY}, {0, -1}, {0, 1e9}};
    static const unsigned after_ms[] = {0, 2200, 6000};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(how) / sizeof(how[0]) * 3; i++) {
        pid_t p[3];
        uint32_t job[3];
        unsigned held[3] = {0};
        begin(f, p, job, three, 3);
        watch(f, job, 3, after_ms[i % 3], held);
        memset(held, 0, sizeof(held));
        f->d.fail_counters = how[i / 3].err;
        f->d.nonsense = how[i / 3].says;
        watch(f, job, 3, 120000, held);
        assert_in_range(held[0] + held[1], 0, 6000);
        assert_true(!view(f, job[0]).speed_told || fabs(view(f, job[0]).speed - 0.7) < 0.02);
        f->d.fail_counters = 0;
        f->d.nonsense = 0;
        watch(f, job, 3, 8000, held);
        assert_told(f, job[0], 0.7);
        assert_told(f, job[1], 0.4);
        stop(f, true);
        assert_nobody_held(f, p, 3);
        for (int k = 0; k < 3; k++)
            end(f, p[k]);
    }
}

/* Nor is anybody held for the sake of a speed that cannot be told any more. */
static void test_counters_fail_later(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    unsigned held[3] = {0};
    begin(f, p, job, three, 3);
    struct job_terms t = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT, .min_speed = 99};
    assert_int_equal(engine_change(f->m, job[0], &t, NULL), 0);
    watch(f, job, 3, 30000, held);
    assert_in_range(held[1], 10000, 30000);
    f->d.fail_counters = EIO;
    watch(f, job, 3, 10000, held);
    memset(held, 0, sizeof(held));
    watch(f, job, 3, 60000, held);
    assert_int_equal(held[1], 0);
}

/* For a week, whatever the daemon's clock says, which begins anew with the machine. */
static void test_experience_ends(void **state)
{
    const uint64_t day = 24 * 3600, today = (uint64_t)time(NULL), now = 5 * NSEC_PER_SEC;
    struct fixture *f = *state;
    struct experience x;
    char path[96];
    snprintf(path, sizeof(path), "%s/experience", f->dir);
    FILE *file = fopen(path, "we");
    for (unsigned k = 0; k <= 8; k++) /* ended, ends in 1 to 7 days, cannot be */
        fprintf(file, "%x %llu\n", k, (unsigned long long)(today + k * day - (k < 8)));
    fclose(file);
    experience_load(&x, f->dir, now);
    for (unsigned k = 0; k <= 8; k++)
        assert_int_equal(experience_has(&x, k, now), k >= 1 && k <= 7);
    assert_false(experience_has(&x, 1, now + day * NSEC_PER_SEC));
    experience_learn(&x, 9, true, now);
    experience_load(&x, f->dir, 2 * now); /* another boot */
    assert_true(experience_has(&x, 9, 2 * now) && experience_has(&x, 7, 2 * now));
    unlink(path);
}

static void test_full_experience(void **state)
{
    (void)state;
    struct experience x = {.dir = NULL};
    for (uint64_t k = 1; k <= EXPERIENCE_MAX + 10; k++)
        experience_learn(&x, k, true, k);
    assert_int_equal(x.n, EXPERIENCE_MAX);
    for (uint64_t k = 1; k <= EXPERIENCE_MAX + 10; k++)
        assert_int_equal(experience_has(&x, k, k), k > 10);
}

/* One that waits for data has no turns, and one that keeps its speed keeps nobody, while it does
 * nothing. */
static void test_idle(void **state)
{
    static const struct program v[] = {{CLASS_BATCH, PART_FP32, 0.4, true},
                                       {CLASS_BATCH, PART_TENSOR_FP16, 0.3, true}};
    struct fixture *f = *state;
    for (uint32_t keeps = 0; keeps <= 90; keeps += 90) {
        pid_t p[2];
        uint32_t job[2];
        unsigned held[2] = {0};
        begin(f, p, job, v, 2);
        struct job_terms t = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT, .min_speed = keeps};
        assert_int_equal(engine_change(f->m, job[0], &t, NULL), 0);
        struct mock_group *g = mock_compute(&f->d, p[0], 0), had = *g;
        watch(f, job, 2, 20000, held);
        assert_in_range(held[1], 500, 20000);
        memset(g->uses, 0, sizeof(g->uses));
        watch(f, job, 2, 5000, held);
        memset(held, 0, sizeof(held));
        watch(f, job, 2, 60000, held);
        assert_int_equal(held[1], 0);
        memcpy(g->uses, had.uses, sizeof(g->uses));
        watch(f, job, 2, 20000, held);
        assert_in_range(held[1], 500, 20000);
        stop(f, true);
        for (int k = 0; k < 2; k++)
            end(f, p[k]);
    }
}

/* One that does nothing while it is measured, beside one that is paused and goes on all the time:
 * the others are held for a twentieth of the time, and their speeds are told. When it begins to
 * work, its is, too. */
static void test_joins_idle(void **state)
{
    static const struct program v[] = {{CLASS_BATCH, PART_FP32, 0.7, true},
                                       {CLASS_BATCH, PART_TENSOR_FP16, 0.6, true},
                                       {CLASS_BATCH, PART_FP64, 0.5, true}};
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    unsigned held[3] = {0};
    begin(f, p, job, v, 3);
    struct mock_group *g = mock_compute(&f->d, p[1], 0), had = *g;
    memset(g->uses, 0, sizeof(g->uses));
    for (int i = 0; i < 40; i++) {
        pause_job(f, job[2], true);
        watch(f, job, 3, 300, held);
        pause_job(f, job[2], false);
        watch(f, job, 3, 2700, held);
    }
    assert_in_range(held[0], 500, 18000);
    watch(f, job, 3, 4000, held);
    assert_told(f, job[0], 0.7);
    assert_false(view(f, job[1]).speed_told);
    memcpy(g->uses, had.uses, sizeof(g->uses));
    watch(f, job, 3, 30000, held);
    for (int i = 0; i < 3; i++)
        assert_told(f, job[i], v[i].together);
}

/* Two programs of which the second does nothing for 8 s; returns its group and, in had, what it is
 * to do then. */
static struct mock_group *begin_late(struct fixture *f, pid_t p[2], uint32_t job[2],
                                     const struct program v[2], struct mock_group *had)
{
    unsigned held[2] = {0};
    begin(f, p, job, v, 2);
    struct mock_group *g = mock_compute(&f->d, p[1], 0);
    *had = *g;
    memset(g->uses, 0, sizeof(g->uses));
    watch(f, job, 2, 8000, held);
    return g;
}

/* One that was still starting when it was measured is told soon after it begins to work. */
static void test_starts_late(void **state)
{
    struct fixture *f = *state;
    pid_t p[2];
    uint32_t job[2];
    unsigned held[2] = {0};
    static const struct program v[] = {{CLASS_BATCH, PART_FP32, 0.7, true},
                                       {CLASS_BATCH, PART_TENSOR_FP16, 0.6, true}};
    struct mock_group had, *g = begin_late(f, p, job, v, &had);
    assert_false(view(f, job[1]).speed_told);
    memcpy(g->uses, had.uses, sizeof(g->uses));
    watch(f, job, 2, 9000, held);
    for (int i = 0; i < 2; i++)
        assert_told(f, job[i], v[i].together);
}

/* What it does then looks like more of what the other does. */
static void test_starts_unseen(void **state)
{
    struct fixture *f = *state;
    pid_t p[2];
    uint32_t job[2];
    unsigned held[2] = {0};
    static const struct program v[] = {{CLASS_BATCH, PART_FP32, 0.5, true},
                                       {CLASS_BATCH, PART_FP32, 0.5, true}};
    struct mock_group had, *g = begin_late(f, p, job, v, &had);
    memcpy(g->uses, had.uses, sizeof(g->uses));
    watch(f, job, 2, 12000, held);
    for (int i = 0; i < 2; i++)
        assert_true(view(f, job[i]).speed_told && view(f, job[i]).speed_error > SPEED_ERROR_MAX);
}

/* The looks at one that does nothing for long cost the other little. */
static void test_idle_for_long(void **state)
{
    struct fixture *f = *state;
    pid_t p[2];
    uint32_t job[2];
    unsigned held[2] = {0};
    static const struct program v[] = {{CLASS_BATCH, PART_FP32, 0.7, true},
                                       {CLASS_BATCH, PART_TENSOR_FP16, 0.6, true}};
    begin(f, p, job, v, 2);
    memset(mock_compute(&f->d, p[1], 0)->uses, 0, sizeof(double) * GPU_PARTS);
    watch(f, job, 2, 300000, held);
    memset(held, 0, sizeof(held));
    watch(f, job, 2, 600000, held);
    assert_in_range(held[0], 1000, 6000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(test_told),
                                       T(test_one_joins),
                                       T(test_paused_meanwhile),
                                       T(test_crash),
                                       T(test_ended_in_order),
                                       T(test_one_ends_meanwhile),
                                       T(test_nobody_is_held),
                                       T(test_two_users),
                                       T(test_turns),
                                       T(test_experience),
                                       T(test_min_speed),
                                       T(test_counters_fail),
                                       T(test_counters_fail_later),
                                       T(test_full_experience),
                                       T(test_experience_ends),
                                       T(test_idle),
                                       T(test_joins_idle),
                                       T(test_starts_late),
                                       T(test_starts_unseen),
                                       T(test_idle_for_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
