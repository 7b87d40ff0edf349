/* Trials (core/trial.h): jobs that are held, or have another class, for a moment; that nothing of
 * this stays; and what is remembered of jobs that were tried together. */
#include "counted.h"

#define ME    7 /* connections */
#define OTHER 8

static const struct job_trial nothing, hold = {.held = true},
                                       first = {.ranked = true, .class = CLASS_LATENCY},
                                       last = {.ranked = true, .class = CLASS_BATCH};

static int try_as(struct fixture *f, uint64_t connection, uint32_t job, struct job_trial what,
                  unsigned ms, uint32_t together)
{
    what.connection = connection;
    return engine_try(f->m, job, &what, ms * NSEC_PER_MSEC, together, &f->err);
}

static void try_it(struct fixture *f, uint32_t job, struct job_trial what, unsigned ms)
{
    worked(f, try_as(f, ME, job, what, ms, 0));
    tick(f);
}

static void close_connection(struct fixture *f, uint64_t connection)
{
    engine_try_no_more(f->m, connection);
    tick(f);
}

static bool runs(struct fixture *f, int i)
{
    return suspended_of(f, f->p[i]) == 0;
}

/* ---- held ---- */

/* Until its time, and no shorter for what others do; with the connection; and as soon as nothing is
 * tried any more. */
ENGINE_TEST(test_held)
{
    jobs_of(f, "priority", 2, "B B");
    ticks(f, 100);
    try_it(f, j[0], hold, 1000);
    count_turns(f, 2, 980);
    assert_int_equal(f->ran[0], 0);
    assert_int_equal(f->ran[1], 98);
    ticks(f, 20);
    assert_true(runs(f, 0) && runs(f, 1));

    try_it(f, j[0], hold, 1000);
    try_it(f, j[1], hold, 1000);
    ticks(f, 900);
    assert_false(runs(f, 0) || runs(f, 1));
    try_it(f, j[0], hold, 1000); /* once more */
    ticks(f, 300);
    assert_true(!runs(f, 0) && runs(f, 1));
    close_connection(f, OTHER);
    assert_false(runs(f, 0));
    try_it(f, j[1], hold, 1000);
    engine_try_no_more(f->m, ME);
    assert_true(engine_pending(f->m));
    tick(f);
    assert_true(runs(f, 0) && runs(f, 1));

    try_it(f, j[0], hold, 1000);
    assert_false(runs(f, 0));
    try_it(f, j[0], nothing, 1000);
    assert_true(runs(f, 0));
}

/* A tick is due when it ends. */
ENGINE_TEST(test_ends_in_time)
{
    clients_of(f, "B*");
    const uint64_t until = f->now + 77 * NSEC_PER_MSEC;
    try_it(f, j[0], hold, 77);
    assert_true(reaches(p[0], true));
    while (f->now < until)
        f->now = max_u64(tick(f), f->now + 1);
    assert_int_equal(f->now, until);
    tick(f);
    assert_true(reaches(p[0], false));
}

ENGINE_TEST(test_held_client)
{
    clients_of(f, "B* B*");
    for (int by_close = 0; by_close < 2; by_close++) {
        try_it(f, j[0], hold, 1000);
        assert_true(reaches(p[0], true));
        assert_true(view(f, j[0]).signalled && !view(f, j[1]).signalled);
        assert_int_equal(suspended_groups(f), 0);
        ticks(f, 900);
        assert_true(reaches(p[1], false));
        assert_true(reaches(p[0], true));
        if (by_close)
            close_connection(f, ME);
        else
            ticks(f, 110);
        assert_true(reaches(p[0], false));
    }
}

/* A job that its user has paused meanwhile stays so, one that is resumed runs when the trial is
 * over. */
ENGINE_TEST(test_paused_meanwhile)
{
    jobs_of(f, "priority", 2, "B B* B*");
    for (int i = 0; i < 2; i++) {
        try_it(f, j[i], hold, 500);
        pause_job(f, j[i], true);
        ticks(f, 1000);
        assert_true(i ? reaches(p[1], true) : !runs(f, 0));
        try_it(f, j[i], hold, 500);
        pause_job(f, j[i], false);
        ticks(f, 400);
        assert_true(i ? reaches(p[1], true) : !runs(f, 0));
        ticks(f, 200);
        pause_job(f, j[2], true);
        assert_true(i ? reaches(p[1], false) : true);
        count_turns(f, 1, 1000);
        assert_in_range(f->ran[0], 40, 100);
        pause_job(f, j[2], false);
    }
}

/* Another job in the same place is not tried. */
ENGINE_TEST(test_ends_meanwhile)
{
    jobs_of(f, "priority", 2, "B B");
    try_it(f, j[0], hold, 5000);
    end(f, p[0]);
    ticks(f, 100);
    programs(f, p, 1, 2);
    assert_int_equal(add(f, p[0], CLASS_BATCH), j[0]);
    ticks(f, 100);
    assert_true(runs(f, 0));
    worked(f, try_as(f, OTHER, j[0], hold, 1000, 0));
}

/* ---- classes ---- */

/* Which of three programs run all the time ('1'), never ('0'), or in turns ('t'). */
static void assert_ran(struct fixture *f, const char *want, const char *when, const char *letters)
{
    char got[4] = "";
    ticks(f, 200);
    count_turns(f, 3, 2000);
    for (int i = 0; i < 3; i++)
        got[i] = f->ran[i] > 195 ? '1' : f->ran[i] < 5 ? '0' : 't';
    if (strcmp(got, want) != 0)
        fail_msg("%s, %s: %s, not %s", letters, when, got, want);
}

ENGINE_TEST(test_classes)
{
    static const struct {
        const char *letters;
        int tried;
        const struct job_trial *what;
        const char *usual, *tries;
    } rows[] = {
        {"B B B", 0, &first, "111", "1tt"},
        {"N B B", 0, &last, "1tt", "111"},
        {"L B B", 0, &last, "1tt", "111"},
        {"N B B", 1, &first, "1tt", "110"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        jobs_of(f, "priority", 2, rows[i].letters);
        const enum job_class class = view(f, j[rows[i].tried]).job.class;
        assert_ran(f, rows[i].usual, "before", rows[i].letters);
        for (int by_close = 0; by_close < 2; by_close++) {
            try_it(f, j[rows[i].tried], *rows[i].what, 5000);
            assert_ran(f, rows[i].tries, "tried", rows[i].letters);
            const struct job_view v = view(f, j[rows[i].tried]);
            assert_int_equal(v.unit_class, rows[i].what->class);
            assert_int_equal(v.job.class, class); /* on record */
            if (by_close)
                close_connection(f, ME);
            else
                ticks(f, 3000);
            assert_ran(f, rows[i].usual, "afterwards", rows[i].letters);
        }
        stop(f, true);
        for (int k = 0; k < 3; k++)
            end(f, p[k]);
    }
}

ENGINE_TEST(test_refused)
{
    jobs_of(f, "priority", 2, "B* B* B");
    ticks(f, 100);
    FAILS(-EINVAL, "have one class together", try_as(f, ME, j[0], first, 1000, 0));
    FAILS(-EINVAL, "have one class together", try_as(f, ME, j[1], last, 1000, 0));
    for (int by_close = 0; by_close < 2; by_close++) {
        try_it(f, j[2], hold, 1000);
        FAILS(-EBUSY, "wait for some seconds", try_as(f, OTHER, j[2], nothing, 1000, 0));
        ticks(f, 500);
        assert_false(runs(f, 2));
        if (by_close)
            close_connection(f, ME);
        else
            ticks(f, 510);
        worked(f, try_as(f, OTHER, j[2], hold, 1000, 0));
        close_connection(f, ME);
        ticks(f, 500);
        assert_false(runs(f, 2));
        close_connection(f, OTHER);
    }
}

/* ---- a killed daemon ---- */

ENGINE_TEST(test_crash)
{
    jobs_of(f, "priority", 2, "B B* B*");
    ticks(f, 100);
    try_it(f, j[0], hold, 5000);
    try_it(f, j[1], hold, 5000);
    assert_true(reaches(p[1], true));
    assert_false(runs(f, 0));
    crash_and_undo(f);
    assert_true(runs(f, 0));
    assert_true(reaches(p[1], false));
    start(f, "priority", NULL);
    ticks(f, 100);
    pause_job(f, job_with(f, p[2]), true);
    pause_job(f, job_with(f, p[1]), true);
    count_turns(f, 1, 1000);
    assert_in_range(f->ran[0], 95, 100);
    worked(f, try_as(f, OTHER, job_with(f, p[0]), hold, 1000, 0));
}

/* ---- speeds ---- */

/* Profiles are not measured of what somebody tries, and those that were begun end. */
ENGINE_TEST(test_no_profiles)
{
    begin(f, "B* B*", 0.7, 0.4, 0);
    until_held(f, j[1]);
    for (int i = 0; i < 10; i++) {
        try_it(f, j[0], nothing, 2500);
        watch(f, 1000);
        assert_true(held[0] + held[1] <= (i ? 0 : EACH_MS));
        assert_false(view(f, j[0]).speed_profiling || view(f, j[0]).speed_told);
    }
    close_connection(f, ME);
    watch(f, 5000);
    assert_in_range(held[0], 500, 2000);
    assert_in_range(held[1], 500, 2000);
    watch(f, 5000);
    assert_all_told(f);
}

/* Nor do those wait that take turns. */
ENGINE_TEST(test_no_turns)
{
    begin(f, "B* B*", 0.4, 0.3, 0);
    assert_true(take_turns_within(f, 20000));
    for (int i = 0; i < 5; i++) {
        try_it(f, j[1], nothing, 2500);
        watch(f, 1000);
        assert_true(held[0] + held[1] <= (i ? 0 : EACH_MS));
    }
    close_connection(f, ME);
    assert_true(take_turns_within(f, 1000)); /* which was remembered */
}

/* ---- what is remembered ---- */

static void jobs_again(struct fixture *f)
{
    start(f, "priority", NULL);
    ticks(f, 10);
    for (int i = 0; i < count; i++)
        f->job[i] = job_with(f, f->p[i]);
}

/* Tries all, and that they do so much together, in thousandths. */
static void remember(struct fixture *f, uint32_t together)
{
    for (int i = 0; i < count; i++)
        try_it(f, f->job[i], nothing, 1000);
    worked(f, try_as(f, ME, f->job[0], nothing, 1000, together));
    close_connection(f, ME);
}

/* Until their own trial after 60 s shows that they gain. */
ENGINE_TEST(test_remembers_a_loss)
{
    f->experience = f->dir;
    begin(f, "B* B*", 0.9, 0.8, 0);
    ticks(f, 12000);
    assert_false(take_turns_within(f, 1000));
    remember(f, 969);
    assert_true(take_turns_within(f, 1000));
    crash_and_undo(f);
    jobs_again(f);
    assert_true(take_turns_within(f, 5000)); /* two profiles, and no trial of five windows */
    ticks(f, 75000);
    assert_false(view(f, j[0]).speed_turns);
    crash_and_undo(f);
    jobs_again(f);
    assert_false(take_turns_within(f, 5000));
}

/* Until their own trial shows that they lose. */
ENGINE_TEST(test_remembers_a_gain)
{
    f->experience = f->dir;
    begin(f, "B* B*", 0.4, 0.3, 0);
    remember(f, 969);
    assert_true(take_turns_within(f, 5000));
    remember(f, 970);
    assert_false(take_turns_within(f, 4000));
    assert_true(take_turns_within(f, 15000));
    crash_and_undo(f);
    jobs_again(f);
    assert_true(take_turns_within(f, 5000)); /* two profiles, and no trial of five windows */
}

/* Only of jobs that this connection tries, and of one user. */
ENGINE_TEST(test_remembers_its_own)
{
    begin(f, "B* B* B*", 0.9, 0.8, 0.7);
    engine_release(f->m, j[2]);
    j[2] = add_as(f, p[2], CLASS_BATCH, 1000);
    ticks(f, 100);
    worked(f, try_as(f, ME, j[0], nothing, 1000, 500)); /* one job alone */
    FAILS(-EBUSY, "wait for some seconds", try_as(f, OTHER, j[1], nothing, 1000, 500));
    close_connection(f, ME);
    close_connection(f, OTHER);
    pause_job(f, j[2], true);
    remember(f, 500); /* of two users */
    assert_false(take_turns_within(f, 5000));
    count = 2;
    remember(f, 500);
    assert_true(take_turns_within(f, 5000));
}
