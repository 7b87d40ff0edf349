/* For whom jobs leave the GPU's memory, when they come back, and who waits before it starts. */
#include "swapping.h"

/* A latency job that says what it needs, beside a small batch, a large batch and a normal job, of
 * 4, 20 and 30 GiB. */
static void crowd(struct fixture *f, pid_t p[4], uint32_t jobs[4])
{
    static const enum job_class classes[] = {CLASS_BATCH, CLASS_BATCH, CLASS_NORMAL, CLASS_LATENCY};
    static const unsigned gib[] = {4, 20, 30, 0};
    f->d.free_bytes = 10 * GIB;
    swap_start(f);
    for (int i = 0; i < 4; i++) {
        p[i] = child(f);
        if (gib[i]) {
            mock_context(&f->d, p[i], 0, 3);
            on(f, p[i])->memory_bytes = gib[i] * GIB;
        }
        jobs[i] = add(f, p[i], classes[i]);
    }
    ticks(f, 100);
}

static bool has_room(struct fixture *f, uint32_t job)
{
    struct job_view v = view(f, job);
    return v.job.memory_bytes && !v.queued;
}

/* The swapper is to move this one, and does. */
static void moves(struct fixture *f, const char *what, pid_t pid, unsigned gib)
{
    assert_true(EVENTUALLY(ordered(f, what, pid)));
    if (what[0] == 'o') {
        mock_exit(&f->d, pid);
        f->d.free_bytes += gib * GIB;
    } else {
        mock_context(&f->d, pid, 0, 3);
        on(f, pid)->memory_bytes = gib * GIB;
        f->d.free_bytes -= gib * GIB;
    }
    write_answer(f, 0);
}

static void test_room_for_a_latency_job(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    uint32_t j[4];
    crowd(f, p, j);
    assert_false(view(f, j[3]).queued);
    need(f, j[3], 10);
    ticks(f, 1);
    assert_true(has_room(f, j[3])); /* there already */
    need(f, j[3], 45);
    ticks(f, 1);
    assert_false(has_room(f, j[3]));
    /* Who has memory there is wanted, unless of its own class or above. */
    struct room_wanted w = engine_room_wanted(f->m);
    assert_int_equal(w.class[0], CLASS_LATENCY);
    assert_int_equal(w.class[1], CLASS_COUNT);
    for (int i = 0; i < 4; i++)
        assert_int_equal(engine_job_wanted(f->m, j[i], &w), i < 3);
    assert_false(engine_job_wanted(f->m, SLOT_NONE, &w));
    /* Batch before normal, the largest first, and no more than it takes. */
    moves(f, "out", p[1], 20);
    assert_true(EVENTUALLY(is(f, j[1], "swapped")));
    assert_false(view(f, j[1]).swap_by_user);
    assert_false(has_room(f, j[3]));
    moves(f, "out", p[2], 30);
    assert_true(EVENTUALLY(has_room(f, j[3])));
    assert_true(is(f, j[0], ""));
    w = engine_room_wanted(f->m);
    assert_false(engine_job_wanted(f->m, j[0], &w));

    /* Nobody comes back into what it has not taken yet; nor into what it has. */
    ticks(f, 30000);
    assert_true(is(f, j[1], "swapped") && is(f, j[2], "swapped"));
    mock_context(&f->d, p[3], 0, 3);
    on(f, p[3])->memory_bytes = 45 * GIB;
    f->d.free_bytes -= 45 * GIB;
    ticks(f, 30000);
    assert_true(is(f, j[1], "swapped") && is(f, j[2], "swapped"));

    /* It ends: normal first, then batch. */
    end(f, p[3]);
    f->d.free_bytes += 45 * GIB;
    moves(f, "in", p[2], 30);
    moves(f, "in", p[1], 20);
    assert_true(EVENTUALLY(is(f, j[1], "")));
    assert_null(record(f));
    stop(f, true);
}

/* A latency job that runs lacks memory: others leave for as long as it says so, and come back. */
static void test_room_while_it_runs(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    uint32_t j[4];
    crowd(f, p, j);
    mock_context(&f->d, p[3], 0, 3);
    on(f, p[3])->memory_bytes = GIB;
    ticks(f, 100);
    engine_room(f->m, j[3], 0, 10 * GIB, f->now + NSEC_PER_SEC);
    ticks(f, 3000); /* so much is free */
    assert_true(is(f, j[1], ""));
    engine_room(f->m, j[3], 7, GIB, f->now + NSEC_PER_SEC);           /* no such GPU */
    engine_room(f->m, j[2], 0, 25 * GIB, f->now + 60 * NSEC_PER_SEC); /* not of class latency */
    ticks(f, 3000);
    assert_true(is(f, j[1], ""));
    engine_room(f->m, j[3], 0, 25 * GIB, f->now + 600 * NSEC_PER_SEC);
    moves(f, "out", p[1], 20);
    assert_true(EVENTUALLY(is(f, j[1], "swapped")));
    ticks(f, 30000);
    assert_true(is(f, j[1], "swapped") && is(f, j[0], "") && is(f, j[2], ""));
    engine_room(f->m, j[3], 0, 25 * GIB, f->now); /* it has not said so again */
    moves(f, "in", p[1], 20);
    assert_true(EVENTUALLY(is(f, j[1], "")));
    assert_null(record(f));
    stop(f, true);
}

static void test_refused_is_left_alone(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    uint32_t j[4];
    crowd(f, p, j);
    need(f, j[3], 30);
    assert_true(EVENTUALLY(ordered(f, "out", p[1])));
    write_answer(f, ENOTSUP);
    brought_in(f, p[1], 0);
    moves(f, "out", p[2], 30); /* another one instead */
    assert_true(EVENTUALLY(has_room(f, j[3])));
    assert_true(is(f, j[1], ""));
    write_answer(f, 0);
    stop(f, true);
}

/* The reserve is for the first minute of a latency job that did not say what it needs. */
static void test_reserve(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    uint32_t j[4];
    f->swap.reserve_bytes = 25 * GIB;
    f->d.ngpus = 1;
    crowd(f, p, j);
    moves(f, "out", p[1], 20);
    assert_true(EVENTUALLY(is(f, j[1], "swapped")));
    ticks(f, 40000);
    assert_true(is(f, j[1], "swapped"));
    ticks(f, 20000);
    moves(f, "in", p[1], 20); /* it took nothing */
    assert_true(EVENTUALLY(is(f, j[1], "")));
    stop(f, true);
}

static void test_switched_off(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    uint32_t j[4];
    struct error err = {""};
    f->swap.mode = SWAP_MANUAL;
    crowd(f, p, j);
    need(f, j[3], 30);
    ticks(f, 10000);
    assert_null(record(f));
    assert_false(has_room(f, j[3]));
    f->d.free_bytes += 20 * GIB; /* it may be had all the same */
    ticks(f, 2000);
    assert_true(has_room(f, j[3]));
    f->d.free_bytes -= 20 * GIB;
    assert_int_equal(engine_need(f->m, j[3], 65 * GIB, 0, &err), -EINVAL);
    assert_int_equal(engine_need(f->m, j[3], 1, 2, &err), -EINVAL);

    /* Who is out when it is switched off comes back. */
    engine_set_swap(f->m, &(struct swap_options){.mode = SWAP_AUTO});
    moves(f, "out", p[1], 20);
    assert_true(EVENTUALLY(is(f, j[1], "swapped")));
    engine_set_swap(f->m, &(struct swap_options){.mode = SWAP_OFF});
    moves(f, "in", p[1], 20);
    assert_true(EVENTUALLY(is(f, j[1], "")));
    assert_int_equal(engine_swap_out(f->m, j[0], 0, &err), -EPERM);

    /* Where nobody can tell, nobody waits. */
    f->d.free_unknown = true;
    need(f, j[3], 30);
    ticks(f, 1);
    assert_true(has_room(f, j[3]));
    stop(f, true);
}

/* ---- waiting for room ---- */

/* Programs that have not opened the GPU, as jobs that say how much they will take of it; 20 GiB are
 * free. */
static void waiters(struct fixture *f, int n, const enum job_class *classes, const unsigned *gib,
                    pid_t *p, uint32_t *jobs)
{
    f->d.free_bytes = 20 * GIB;
    for (int i = 0; i < n; i++)
        p[i] = child(f); /* before the journal's lock, which they would inherit */
    swap_start(f);
    for (int i = 0; i < n; i++) {
        jobs[i] = add(f, p[i], classes[i]);
        if (gib[i])
            need(f, jobs[i], gib[i]);
    }
    ticks(f, 1);
}

static void takes(struct fixture *f, pid_t pid, unsigned gib)
{
    mock_context(&f->d, pid, 0, 3);
    on(f, pid)->memory_bytes = gib * GIB;
    f->d.free_bytes -= gib * GIB;
}

static void ends(struct fixture *f, pid_t pid, unsigned gib)
{
    end(f, pid);
    f->d.free_bytes += gib * GIB;
}

/* By class, then first come; what has been said and not been taken is taken. Nobody is swapped out
 * for them. */
static void test_waits_in_line(void **state)
{
    struct fixture *f = *state;
    static const enum job_class classes[] = {CLASS_BATCH, CLASS_BATCH, CLASS_BATCH, CLASS_NORMAL};
    static const unsigned gib[] = {15, 10, 1, 12};
    pid_t p[4];
    uint32_t j[4];
    f->d.ngpus = 1;
    waiters(f, 4, classes, gib, p, j);
    /* All came in one tick: the normal job is first, and leaves 8. */
    assert_true(has_room(f, j[3]));
    for (int i = 0; i < 3; i++)
        assert_true(view(f, j[i]).queued && view(f, j[i]).place == (uint32_t)i);
    ticks(f, 5000);
    assert_true(view(f, j[0]).queued && view(f, j[2]).queued); /* the last would fit */
    takes(f, p[3], 12);
    ticks(f, 5000);
    assert_true(view(f, j[0]).queued);
    assert_null(record(f));
    ends(f, p[3], 12);
    ticks(f, 2000);
    assert_true(has_room(f, j[0]) && view(f, j[1]).queued && view(f, j[2]).queued);
    /* More than it said: what is free is what counts. */
    takes(f, p[0], 17);
    ticks(f, 2000);
    assert_int_equal(view(f, j[0]).memory_held, 17 * GIB);
    assert_int_equal(view(f, j[0]).job.memory_bytes, 15 * GIB);
    assert_true(view(f, j[1]).queued);
    /* A waiter that ends leaves the line. */
    end(f, p[1]);
    ticks(f, 2000);
    assert_true(has_room(f, j[2]));
    stop(f, true);
}

/* What a job holds and what is free are seen at the same time: one that frees memory which it said
 * it takes gets it again. */
static void test_same_moment(void **state)
{
    struct fixture *f = *state;
    static const enum job_class classes[] = {CLASS_BATCH, CLASS_BATCH};
    static const unsigned gib[] = {10, 12};
    pid_t p[2];
    uint32_t j[2];
    f->d.ngpus = 1;
    waiters(f, 2, classes, gib, p, j);
    takes(f, p[0], 10);
    ticks(f, 3000);
    assert_true(view(f, j[1]).queued && view(f, j[0]).memory_held == 10 * GIB);
    on(f, p[0])->memory_bytes = 5 * GIB;
    f->d.free_bytes = 15 * GIB;
    engine_set_swap(f->m, &(struct swap_options){.mode = SWAP_AUTO}); /* a look out of turn */
    ticks(f, 1);
    assert_true(view(f, j[1]).queued);
    ends(f, p[0], 5);
    ticks(f, 2000);
    assert_true(has_room(f, j[1]));
    stop(f, true);
}

/* A latency job is first in line, and has others swapped out, but not for those that wait. */
static void test_latency_is_first_in_line(void **state)
{
    struct fixture *f = *state;
    static const enum job_class classes[] = {CLASS_BATCH, CLASS_BATCH, CLASS_LATENCY};
    static const unsigned gib[] = {0, 15, 0};
    pid_t p[3];
    uint32_t j[3];
    f->d.ngpus = 1;
    waiters(f, 3, classes, gib, p, j);
    assert_true(has_room(f, j[1]));
    takes(f, p[0], 3); /* it said nothing */
    ticks(f, 2000);
    need(f, j[2], 4);
    ticks(f, 1);
    assert_true(view(f, j[2]).queued); /* 17 free, 15 of them reserved */
    moves(f, "out", p[0], 3);
    assert_true(EVENTUALLY(has_room(f, j[2])));
    assert_true(is(f, j[0], "swapped"));
    /* Who is out comes before one of its class that waits. */
    pid_t last = child(f);
    uint32_t next = add(f, last, CLASS_BATCH);
    need(f, next, 2);
    ends(f, p[2], 0);
    ticks(f, 5000);
    assert_true(view(f, next).queued);
    ends(f, p[1], 0);
    moves(f, "in", p[0], 3);
    assert_true(EVENTUALLY(is(f, j[0], "")));
    assert_true(EVENTUALLY(has_room(f, next)));
    stop(f, true);
}

/* One that is out keeps its place before those that wait if it can come back at all: on a GPU of
 * others' programs or of this size it cannot, and does not hold them up. */
static void test_out_for_ever_holds_up_nobody(void **state)
{
    struct fixture *f = *state;
    static const enum job_class classes[] = {CLASS_BATCH, CLASS_LATENCY, CLASS_BATCH};
    static const unsigned gib[] = {0, 0, 0};
    for (unsigned held = 17; held <= 19; held += 2) {
        pid_t p[3];
        uint32_t j[3];
        f->d.ngpus = 1;
        waiters(f, 3, classes, gib, p, j);
        takes(f, p[0], held);
        ticks(f, 2000);
        need(f, j[1], 10);
        moves(f, "out", p[0], held);
        assert_true(EVENTUALLY(has_room(f, j[1])));
        takes(f, p[1], 10);
        need(f, j[2], 5);
        ticks(f, 5000);
        assert_int_equal(has_room(f, j[2]), held == 19); /* with the margin, 20.7 of 20 */
        for (int i = 0; i < 3; i++)
            end(f, p[i]);
        stop(f, true);
    }
}

/* What a job said that is out counts when it comes back, without a margin. */
static void test_comes_back_to_what_it_said(void **state)
{
    struct fixture *f = *state;
    static const enum job_class classes[] = {CLASS_BATCH, CLASS_LATENCY};
    static const unsigned gib[] = {20, 0};
    pid_t p[2];
    uint32_t j[2];
    f->d.ngpus = 1;
    waiters(f, 2, classes, gib, p, j);
    takes(f, p[0], 5);
    ticks(f, 2000);
    need(f, j[1], 10);
    moves(f, "out", p[0], 5);
    assert_true(EVENTUALLY(has_room(f, j[1])));
    takes(f, p[1], 10);
    ticks(f, 20000);
    assert_true(is(f, j[0], "swapped")); /* 5 would fit, 20 not */
    ends(f, p[1], 10);
    moves(f, "in", p[0], 5);
    assert_true(EVENTUALLY(is(f, j[0], "")));
    stop(f, true);
}

/* Whoever starts without room has nothing kept for it; and another daemon knows who waits, in which
 * order, and what was promised. */
/* Who says much and takes nothing keeps it from others for ten minutes. */
static void test_kept_for_a_while(void **state)
{
    struct fixture *f = *state;
    static const enum job_class classes[] = {CLASS_BATCH, CLASS_BATCH};
    static const unsigned gib[] = {15, 10};
    pid_t p[2];
    uint32_t j[2];
    f->d.ngpus = 1;
    waiters(f, 2, classes, gib, p, j);
    ticks(f, 590000);
    assert_true(has_room(f, j[0]) && view(f, j[1]).queued);
    ticks(f, 20000);
    assert_true(has_room(f, j[0]) && has_room(f, j[1]));
    stop(f, true);
}

static void test_line_outlives_the_engine(void **state)
{
    struct fixture *f = *state;
    static const enum job_class classes[] = {CLASS_BATCH, CLASS_BATCH, CLASS_BATCH, CLASS_NORMAL};
    static const unsigned gib[] = {15, 10, 5, 0};
    pid_t p[4];
    uint32_t j[4];
    f->d.ngpus = 1;
    waiters(f, 4, classes, gib, p, j);
    assert_true(has_room(f, j[0]) && view(f, j[1]).queued);
    need(f, j[3], 12); /* of a higher class, but what is promised is promised */
    ticks(f, 1);
    stop(f, false);
    start(f, "priority", NULL);
    ticks(f, 2000);
    assert_true(has_room(f, j[0]) && view(f, j[1]).queued && view(f, j[2]).queued);
    assert_true(view(f, j[3]).place == 0 && view(f, j[1]).place == 1 && view(f, j[2]).place == 2);
    end(f, p[3]);
    engine_started(f->m, j[1]);
    ticks(f, 2000);
    assert_true(!view(f, j[1]).queued && view(f, j[1]).job.room == ROOM_NONE);
    assert_true(has_room(f, j[2]));
    stop(f, true);
}

/* Programs of no job have what it waits for: after a while it holds up nobody, and it has its turn
 * when they end. */
static void test_too_little_if_all_end(void **state)
{
    struct fixture *f = *state;
    static const enum job_class classes[] = {CLASS_BATCH, CLASS_BATCH};
    static const unsigned gib[] = {30, 5};
    pid_t p[2];
    uint32_t j[2];
    f->d.ngpus = 1;
    waiters(f, 2, classes, gib, p, j);
    ticks(f, 5000);
    assert_true(view(f, j[0]).queued && view(f, j[1]).queued && !view(f, j[0]).infeasible);
    ticks(f, 10000);
    assert_true(view(f, j[0]).queued && view(f, j[0]).infeasible && has_room(f, j[1]));
    takes(f, p[1], 5);
    f->d.free_bytes += 14 * GIB; /* 34 if all end */
    ticks(f, 2000);
    assert_true(view(f, j[0]).queued && !view(f, j[0]).infeasible);
    f->d.free_bytes += 1 * GIB;
    ticks(f, 2000);
    assert_true(has_room(f, j[0]));
    stop(f, true);
}

/* One that waits for a job that does not end is not overtaken at first, and later it is. */
static void test_others_start_past_the_first(void **state)
{
    struct fixture *f = *state;
    static const enum job_class classes[] = {CLASS_BATCH, CLASS_BATCH, CLASS_BATCH};
    static const unsigned gib[] = {10, 15, 5};
    pid_t p[3];
    uint32_t j[3];
    f->d.ngpus = 1;
    waiters(f, 3, classes, gib, p, j);
    takes(f, p[0], 10);
    ticks(f, 590000);
    assert_true(view(f, j[1]).queued && view(f, j[2]).queued);
    ticks(f, 20000);
    assert_true(view(f, j[1]).queued && has_room(f, j[2]));
    stop(f, true);
}

/* Users have turns, however many jobs they have in line. */
static void test_users_in_turn(void **state)
{
    struct fixture *f = *state;
    static const uid_t users[] = {5, 5, 6};
    pid_t p[3];
    uint32_t j[3];
    struct error err = {""};
    f->d.ngpus = 1;
    f->d.free_bytes = 20 * GIB;
    for (int i = 0; i < 3; i++)
        p[i] = child(f);
    swap_start(f);
    for (int i = 0; i < 3; i++) {
        struct proc_stat st;
        const struct job_spec spec = {.terms = {.class = CLASS_BATCH, .weight = 100},
                                      .source = JOB_RUN,
                                      .uid = users[i],
                                      .account_uid = users[i]};
        assert_int_equal(proc_stat_read(p[i], &st), 0);
        assert_int_equal(engine_add(f->m, st.id, &spec, &j[i], &err), 0);
        need(f, j[i], 15);
    }
    ticks(f, 1);
    assert_true(has_room(f, j[0]));
    ends(f, p[0], 0);
    ticks(f, 2000);
    assert_true(view(f, j[1]).queued && has_room(f, j[2]));
    ends(f, p[2], 0);
    ticks(f, 2000);
    assert_true(has_room(f, j[1]));
    stop(f, true);
}

/* A program that does nothing is restarted every 8 s, each time as a job of its own: it holds up a
 * latency job's room for its first spell, and not for ever. */
static void test_restarts_hold_up_for_a_while(void **state)
{
    struct fixture *f = *state;
    pid_t large = child(f), latency = child(f);
    f->d.ngpus = 1;
    f->d.free_bytes = 10 * GIB;
    f->swap.start_us = 300000000;
    mock_context(&f->d, large, 0, 0);
    on(f, large)->memory_bytes = 100 * GIB;
    swap_start(f);
    uint32_t from = add_as(f, large, CLASS_BATCH, 5);
    ticks(f, 100000);
    need(f, add(f, latency, CLASS_LATENCY), 50);
    unsigned restarts = 0;
    for (; restarts < 20 && is(f, from, ""); restarts++) {
        pid_t idle = child(f);
        mock_context(&f->d, idle, 0, 0);
        add_as(f, idle, CLASS_BATCH, 6);
        ticks(f, 8000);
        end(f, idle);
    }
    assert_in_range(restarts, 3, 6); /* 24 s to 48 s */
    assert_true(EVENTUALLY(ordered(f, "out", large)));
    write_answer(f, 0);
    stop(f, false);
}

/* A process that began since processes were last looked for leaves with the others of its job. */
static void test_all_of_it(void **state)
{
    struct fixture *f = *state;
    pid_t both[2];
    parent_and_child(f, both);
    mock_context(&f->d, both[0], 0, 3);
    on(f, both[0])->memory_bytes = 20 * GIB;
    f->d.free_bytes = 10 * GIB;
    swap_start(f);
    add(f, both[0], CLASS_BATCH);
    uint32_t lat = add(f, child(f), CLASS_LATENCY);
    ticks(f, 100);
    mock_context(&f->d, both[1], 0, 3);
    on(f, both[1])->memory_bytes = 1 * GIB;
    need(f, lat, 25);
    ticks(f, 1);
    assert_true(EVENTUALLY(ordered(f, "out", -1)));
    stop(f, false);
}

int main(int argc, char **argv)
{
    if (strcmp(argv[0], "cede-swap") == 0)
        return fake_swapper();
    const struct CMUnitTest tests[] = {
        T(test_all_of_it),
        T(test_room_for_a_latency_job),
        T(test_room_while_it_runs),
        T(test_refused_is_left_alone),
        T(test_reserve),
        T(test_switched_off),
        T(test_waits_in_line),
        T(test_same_moment),
        T(test_latency_is_first_in_line),
        T(test_out_for_ever_holds_up_nobody),
        T(test_comes_back_to_what_it_said),
        T(test_kept_for_a_while),
        T(test_line_outlives_the_engine),
        T(test_too_little_if_all_end),
        T(test_others_start_past_the_first),
        T(test_restarts_hold_up_for_a_while),
        T(test_users_in_turn),
    };
    (void)argc;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
