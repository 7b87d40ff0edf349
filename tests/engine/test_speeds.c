/* How fast the clients of an MPS server go, told from counters, and that nobody stays held for it:
 * observe/speeds.h. The driver's counters are those of programs that are not stopped. */
#include <math.h>

#include "core/observe/experience.h"
#include "counted.h"

static void keep_speed(struct fixture *f, uint32_t job, uint32_t percent)
{
    change(
        f, job,
        (struct job_terms){.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT, .min_speed = percent});
}

ENGINE_TEST(test_told)
{
    begin_three(f);
    watch(f, 4000);
    const unsigned first = held[0];
    assert_in_range(first, 500, 2000);
    assert_in_range(held[1], 500, 2000);
    assert_int_equal(held[2], 0);
    watch(f, 5000);
    assert_in_range(first + held[0], 500, 2000);
    assert_told(f, j[0], 0.7);
    assert_told(f, j[1], 0.4);
    assert_false(view(f, j[2]).speed_told);
    assert_nobody_held(f);
}

/* Only what is not known is measured. */
ENGINE_TEST(test_one_joins)
{
    begin(f, "B* B* B*", 0.7, 0.4, 0.3);
    pause_job(f, j[2], true);
    watch(f, 6000);
    pause_job(f, j[2], false);
    watch(f, 6000);
    assert_in_range(held[0], 500, 2000);
    assert_in_range(held[1], 500, 2000);
    assert_in_range(held[2], 0, 700);
    assert_all_told(f);
}

ENGINE_TEST(test_paused_meanwhile)
{
    begin_three(f);
    while (!view(f, j[0]).speed_profiling)
        ticks(f, EACH_MS);
    pause_job(f, j[0], true);
    watch(f, 3000);
    assert_true(reaches(p[0], true));
    assert_true(reaches(p[1], false));
    assert_false(view(f, j[1]).speed_profiling);
    pause_job(f, j[0], false);
    watch(f, 8000);
    assert_told(f, j[0], 0.7);
    assert_nobody_held(f);
}

ENGINE_TEST(test_crash)
{
    begin_three(f);
    while (!view(f, j[0]).signalled || !view(f, j[1]).signalled)
        ticks(f, EACH_MS);
    assert_true(reaches(p[0], true));
    crash_and_undo(f);
    assert_nobody_held(f);
}

ENGINE_TEST(test_ended_in_order)
{
    begin_three(f);
    until_held(f, j[0]);
    finish(f);
}

ENGINE_TEST(test_one_ends_meanwhile)
{
    begin_three(f);
    until_held(f, j[0]);
    end(f, p[1]);
    ticks(f, 1000);
    assert_true(reaches(p[0], false));
    assert_false(view(f, j[0]).speed_profiling);
}

/* Where others have turns, where a client is no batch job, and where one is on two GPUs. */
ENGINE_TEST(test_nobody_is_held)
{
    static const char *const letters[] = {"B* B* B", "N* B* L", "L* B* B*"};
    for (size_t i = 0; i < ARRAY_SIZE(letters); i++) {
        begin(f, letters[i], 0.7, 0.4, 1);
        watch(f, 5000);
        for (int k = 0; k < 3; k++) {
            if (held[k] || view(f, j[k]).speed_told)
                fail_msg("%s: the job number %d is held for %u ms", letters[i], k, held[k]);
        }
        finish(f);
    }
}

/* Nobody waits for another user's job to be measured. */
ENGINE_TEST(test_two_users)
{
    begin_three(f);
    engine_release(f->m, j[1]);
    j[1] = add_as(f, p[1], CLASS_BATCH, 1000);
    watch(f, 5000);
    assert_int_equal(held[0] + held[1], 0);
    assert_false(view(f, j[0]).speed_told);
    engine_release(f->m, j[1]);
    j[1] = add(f, p[1], CLASS_BATCH);
    watch(f, 8000);
    assert_told(f, j[0], 0.7);
}

/* Together these do less than in turns: one of them at a time runs, and a killed daemon leaves none
 * held. */
ENGINE_TEST(test_turns)
{
    begin(f, "B* B* L", 0.4, 0.3, 1);
    watch(f, 12000);
    assert_true(view(f, j[0]).speed_turns && view(f, j[1]).speed_turns);
    watch(f, 20000);
    assert_in_range(held[0], 9000, 11000);
    assert_in_range(held[1], 9000, 11000);
    assert_float_equal(view(f, j[0]).speed, 0.5, 0.01);
    watch(f, 39000); /* tried again, for five windows */
    assert_false(view(f, j[0]).speed_turns);
    assert_false(view(f, j[0]).signalled || view(f, j[1]).signalled);
    watch(f, 12000);
    assert_true(view(f, j[0]).speed_turns);
    assert_true(view(f, j[0]).signalled || view(f, j[1]).signalled);
    crash_and_undo(f);
    assert_nobody_held(f);
}

/* One like the second is to stay out while the first is there alone. */
static void stays_out(struct fixture *f)
{
    pid_t p;
    programs(f, &p, 1, 2);
    uint32_t like = add(f, p, CLASS_BATCH);
    assert_false(engine_loses_in_space(f->m, like)); /* three of them are not two */
    pause_job(f, f->job[1], true);
    assert_true(engine_loses_in_space(f->m, like));
    pause_job(f, f->job[0], true);
    assert_false(engine_loses_in_space(f->m, like));
    pause_job(f, f->job[0], false);
    pause_job(f, f->job[1], false);
    end(f, p);
    ticks(f, 100);
}

/* What a killed daemon has learned the next one knows, until they gain. */
ENGINE_TEST(test_experience)
{
    f->experience = f->dir;
    begin(f, "B* B*", 0.4, 0.3, 0);
    assert_false(take_turns_within(f, 5000)); /* two profiles, and five windows */
    assert_true(take_turns_within(f, 5000));
    stays_out(f);
    crash_and_undo(f);
    for (int known = 1; known >= 0; known--) {
        start(f, "priority", NULL);
        ticks(f, 10);
        j[0] = job_with(f, p[0]);
        assert_int_equal(take_turns_within(f, 5000), known);
        on(f, p[0])->together = on(f, p[1])->together = 0.9;
        ticks(f, 70000); /* tried again, they gain */
        assert_false(view(f, j[0]).speed_turns);
        on(f, p[0])->together = 0.4;
        on(f, p[1])->together = 0.3;
        crash_and_undo(f);
    }
}

/* One keeps nine tenths of its speed, and the other has what that leaves. */
ENGINE_TEST(test_min_speed)
{
    begin(f, "B* B* L", 0.7, 0.6, 1);
    keep_speed(f, j[0], 90);
    watch(f, 20000);
    watch(f, 20000);
    assert_int_equal(held[0], 0);
    assert_in_range(held[1], 13000, 15000); /* 0.3 is lost in 0.3 of the time */
    keep_speed(f, j[0], 0);
    watch(f, 2000);
    watch(f, 10000);
    assert_int_equal(held[1], 0);
    finish(f);
}

/* Counters that fail, or are no numbers, before anything is measured, meanwhile and afterwards: in
 * two minutes the jobs wait for a few seconds, and nothing false is told. */
ENGINE_TEST(test_counters_fail)
{
    static const struct {
        int err;
        double says;
    } how[] = {{EIO, 0}, {0, NAN}, {0, INFINITY}, {0, -1}, {0, 1e9}};
    static const unsigned after_ms[] = {0, 2200, 6000};
    for (size_t i = 0; i < ARRAY_SIZE(how) * 3; i++) {
        begin_three(f);
        watch(f, after_ms[i % 3]);
        f->d.fail_counters = how[i / 3].err;
        f->d.nonsense = how[i / 3].says;
        watch(f, 120000);
        assert_in_range(held[0] + held[1], 0, 6000);
        assert_true(!view(f, j[0]).speed_told || fabs(view(f, j[0]).speed - 0.7) < 0.02);
        f->d.fail_counters = 0;
        f->d.nonsense = 0;
        watch(f, 8000);
        assert_told(f, j[0], 0.7);
        assert_told(f, j[1], 0.4);
        finish(f);
    }
}

/* Nor is anybody held for the sake of a speed that cannot be told any more. */
ENGINE_TEST(test_counters_fail_later)
{
    begin_three(f);
    keep_speed(f, j[0], 99);
    watch(f, 30000);
    assert_in_range(held[1], 10000, 30000);
    f->d.fail_counters = EIO;
    watch(f, 10000);
    watch(f, 60000);
    assert_int_equal(held[1], 0);
}

/* For a week, whatever the daemon's clock says, which begins anew with the machine. */
ENGINE_TEST(test_experience_ends)
{
    const uint64_t day = 24 * 3600, today = (uint64_t)time(NULL), now = 5 * NSEC_PER_SEC;
    struct experience x;
    char path[96];
    snprintf(path, sizeof(path), "%s/experience", f->dir);
    FILE *file = fopen(path, "we");
    for (unsigned k = 0; k <= 8; k++) /* ended, ends in 1 to 7 days, cannot be */
        fprintf(file, "%x %llu\n", k, (unsigned long long)(today + k * day - (k < 8)));
    fprintf(file, "a %llu 970\n", (unsigned long long)(today + day));
    fclose(file);
    experience_load(&x, f->dir, now);
    for (unsigned k = 0; k <= 8; k++)
        assert_int_equal(experience_lost(&x, k, now), k >= 1 && k <= 7);
    assert_false(experience_lost(&x, 1, now + day * NSEC_PER_SEC));
    experience_learn(&x, 9, 1, now);
    experience_load(&x, f->dir, 2 * now); /* another boot */
    assert_true(experience_lost(&x, 9, 2 * now) && experience_lost(&x, 7, 2 * now));
    assert_int_equal(experience_of(&x, 10, 2 * now), 970);
    assert_false(experience_lost(&x, 10, 2 * now));
    assert_int_equal(experience_of(&x, 10, 2 * now + day * NSEC_PER_SEC), 0);
    experience_learn(&x, 9, 1500, 2 * now);
    experience_load(&x, f->dir, 2 * now);
    assert_int_equal(experience_of(&x, 9, 2 * now), 1500);
    assert_int_equal(experience_of(&x, 9, 3 * now + 7 * day * NSEC_PER_SEC), 0);
}

TEST(test_full_experience)
{
    struct experience x = {.dir = NULL};
    for (uint64_t k = 1; k <= EXPERIENCE_MAX + 10; k++)
        experience_learn(&x, k, 1, k);
    assert_int_equal(x.n, EXPERIENCE_MAX);
    for (uint64_t k = 1; k <= EXPERIENCE_MAX + 10; k++)
        assert_int_equal(experience_lost(&x, k, k), k > 10);
}

/* Does nothing from now on; returns what it did, for works_as(). */
static struct mock_group idles(struct fixture *f, pid_t pid)
{
    const struct mock_group had = *on(f, pid);
    memset(on(f, pid)->uses, 0, sizeof(had.uses));
    return had;
}

static void works_as(struct fixture *f, pid_t pid, const struct mock_group *had)
{
    memcpy(on(f, pid)->uses, had->uses, sizeof(had->uses));
}

/* One that waits for data has no turns, and one that keeps its speed keeps nobody, while it does
 * nothing. */
ENGINE_TEST(test_idle)
{
    for (uint32_t keeps = 0; keeps <= 90; keeps += 90) {
        begin(f, "B* B*", 0.4, 0.3, 0);
        keep_speed(f, j[0], keeps);
        watch(f, 20000);
        assert_in_range(held[1], 500, 20000);
        const struct mock_group had = idles(f, p[0]);
        watch(f, 5000);
        watch(f, 60000);
        assert_int_equal(held[1], 0);
        works_as(f, p[0], &had);
        watch(f, 20000);
        assert_in_range(held[1], 500, 20000);
        finish(f);
    }
}

/* One that does nothing while it is measured, beside one that is paused and goes on all the time:
 * the others are held for a twentieth of the time, and their speeds are told. When it begins to
 * work, its is, too. */
ENGINE_TEST(test_joins_idle)
{
    unsigned first = 0;
    begin(f, "B* B* B*", 0.7, 0.6, 0.5);
    const struct mock_group had = idles(f, p[1]);
    for (int i = 0; i < 40; i++) {
        pause_job(f, j[2], true);
        watch(f, 300);
        first += held[0];
        pause_job(f, j[2], false);
        watch(f, 2700);
        first += held[0];
    }
    assert_in_range(first, 500, 18000);
    watch(f, 4000);
    assert_told(f, j[0], 0.7);
    assert_false(view(f, j[1]).speed_told);
    works_as(f, p[1], &had);
    watch(f, 30000);
    assert_all_told(f);
}

/* One that was still starting when it was measured is told soon after it begins to work. */
ENGINE_TEST(test_starts_late)
{
    begin(f, "B* B*", 0.7, 0.6, 0);
    const struct mock_group had = idles(f, p[1]);
    watch(f, 8000);
    assert_false(view(f, j[1]).speed_told);
    works_as(f, p[1], &had);
    watch(f, 9000);
    assert_all_told(f);
}

/* What it does then looks like more of what the other does. */
ENGINE_TEST(test_starts_unseen)
{
    begin(f, "B* B*", 0.5, 0.5, 0);
    idles(f, p[1]);
    watch(f, 8000);
    works_as(f, p[1], on(f, p[0]));
    watch(f, 12000);
    for (int i = 0; i < 2; i++)
        assert_true(view(f, j[i]).speed_told && view(f, j[i]).speed_error > SPEED_ERROR_MAX);
}

/* The looks at one that does nothing for long cost the other little. */
ENGINE_TEST(test_idle_for_long)
{
    begin(f, "B* B*", 0.7, 0.6, 0);
    idles(f, p[1]);
    watch(f, 300000);
    watch(f, 600000);
    assert_in_range(held[0], 1000, 6000);
}
