/* For whom jobs leave the GPU's memory, when they come back, and who waits before it starts. */
#include "swapping.h"

static unsigned count; /* of jobs */

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

/* A latency job that says what it needs, beside a small batch, a large batch and a normal job, of
 * 4, 20 and 30 GiB; 10 are free. */
static void crowd(struct fixture *f)
{
    static const unsigned gib[] = {4, 20, 30, 0};
    f->d.free_bytes = 64 * GIB;
    swap_start(f);
    for (int i = 0; i < 4; i++) {
        f->p[i] = child(f);
        if (gib[i])
            takes(f, f->p[i], gib[i]);
        f->job[i] = add(f, f->p[i], class_of("BBNL"[i]));
    }
    ticks(f, 100);
}

static bool has_room(struct fixture *f, uint32_t job)
{
    struct job_view v = view(f, job);
    return v.job.memory_bytes && !v.queued;
}

/* Of each job: r, it has room, q, it waits for that, or -, it said nothing or has ended. */
static const char *line(struct fixture *f)
{
    static char text[8];
    struct job_view v;
    for (unsigned i = 0; i < count; i++)
        text[i] = !engine_view(f->m, f->job[i], &v) ? '-'
                  : v.queued                        ? 'q'
                  : v.job.memory_bytes              ? 'r'
                                                    : '-';
    text[count] = '\0';
    return text;
}

#define LINE_AFTER(ms, expected)                                                                   \
    do {                                                                                           \
        ticks(f, ms);                                                                              \
        assert_string_equal(line(f), expected);                                                    \
    } while (0)

/* The swapper is to move this job's program out, and does. */
static void moves_out(struct fixture *f, int i, unsigned gib)
{
    assert_true(EVENTUALLY(ordered(f, "out", f->p[i])));
    mock_exit(&f->d, f->p[i]);
    f->d.free_bytes += gib * GIB;
    answered(f, 0, f->job[i], "swapped");
}

static void moves_in(struct fixture *f, int i, unsigned gib)
{
    assert_true(EVENTUALLY(ordered(f, "in", f->p[i])));
    takes(f, f->p[i], gib);
    answered(f, 0, f->job[i], "");
}

ENGINE_TEST(test_room_for_a_latency_job)
{
    crowd(f);
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
    moves_out(f, 1, 20);
    assert_false(view(f, j[1]).swap_by_user);
    assert_false(has_room(f, j[3]));
    moves_out(f, 2, 30);
    assert_true(EVENTUALLY(has_room(f, j[3])));
    assert_true(is(f, j[0], ""));
    w = engine_room_wanted(f->m);
    assert_false(engine_job_wanted(f->m, j[0], &w));

    /* Nobody comes back into what it has not taken yet; nor into what it has. */
    ticks(f, 30000);
    assert_true(is(f, j[1], "swapped") && is(f, j[2], "swapped"));
    takes(f, p[3], 45);
    ticks(f, 30000);
    assert_true(is(f, j[1], "swapped") && is(f, j[2], "swapped"));

    /* It ends: normal first, then batch. */
    ends(f, p[3], 45);
    moves_in(f, 2, 30);
    moves_in(f, 1, 20);
    assert_null(record(f));
}

/* A latency job that runs lacks memory: others leave for as long as it says so, and come back. */
ENGINE_TEST(test_room_while_it_runs)
{
    crowd(f);
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
    moves_out(f, 1, 20);
    ticks(f, 30000);
    assert_true(is(f, j[1], "swapped") && is(f, j[0], "") && is(f, j[2], ""));
    engine_room(f->m, j[3], 0, 25 * GIB, f->now); /* it has not said so again */
    moves_in(f, 1, 20);
    assert_null(record(f));
}

ENGINE_TEST(test_refused_is_left_alone)
{
    crowd(f);
    need(f, j[3], 30);
    assert_true(EVENTUALLY(ordered(f, "out", p[1])));
    write_answer(f, ENOTSUP);
    brought_in(f, p[1], 0);
    moves_out(f, 2, 30); /* another one instead */
    assert_true(EVENTUALLY(has_room(f, j[3])));
    assert_true(is(f, j[1], ""));
    write_answer(f, 0);
}

/* The reserve is for the first minute of a latency job that did not say what it needs. */
ENGINE_TEST(test_reserve)
{
    f->swap.reserve_bytes = 25 * GIB;
    f->d.ngpus = 1;
    crowd(f);
    moves_out(f, 1, 20);
    ticks(f, 40000);
    assert_true(is(f, j[1], "swapped"));
    ticks(f, 20000);
    moves_in(f, 1, 20); /* it took nothing */
}

/* A rule says what a latency job needs, which may be more than the reserve, and more than there is;
 * of a normal job it has no effect. */
ENGINE_TEST(test_room_of_a_rule)
{
    static const struct job_spec latency = {
        .terms = {.class = CLASS_LATENCY, .weight = WEIGHT_DEFAULT}, .memory_bytes = 25 * GIB};
    struct job_spec normal = latency;
    f->d.ngpus = 1;
    crowd(f);
    normal.terms.class = CLASS_NORMAL;
    add_spec(f, child(f), &normal);
    ticks(f, 10000);
    assert_null(record(f));
    add_spec(f, child(f), &latency);
    moves_out(f, 1, 20);
    ticks(f, 40000);
    assert_true(is(f, j[1], "swapped"));
    ticks(f, 20000);
    moves_in(f, 1, 20);
}

ENGINE_TEST(test_switched_off)
{
    f->swap.mode = SWAP_MANUAL;
    crowd(f);
    need(f, j[3], 30);
    ticks(f, 10000);
    assert_null(record(f));
    assert_false(has_room(f, j[3]));
    f->d.free_bytes += 20 * GIB; /* it may be had all the same */
    ticks(f, 2000);
    assert_true(has_room(f, j[3]));
    f->d.free_bytes -= 20 * GIB;
    assert_int_equal(engine_need(f->m, j[3], 65 * GIB, 0, &f->err), -EINVAL);
    assert_int_equal(engine_need(f->m, j[3], 1, 2, &f->err), -EINVAL);

    /* Who is out when it is switched off comes back. */
    engine_set_swap(f->m, &(struct swap_options){.mode = SWAP_AUTO});
    moves_out(f, 1, 20);
    engine_set_swap(f->m, &(struct swap_options){.mode = SWAP_OFF});
    moves_in(f, 1, 20);
    assert_int_equal(engine_swap_out(f->m, j[0], 0, &f->err), -EPERM);

    /* Where nobody can tell, nobody waits. */
    f->d.free_unknown = true;
    need(f, j[3], 30);
    ticks(f, 1);
    assert_true(has_room(f, j[3]));
}

/* ---- waiting for room ---- */

/* Programs that have not opened the only GPU, as jobs of a class that say how many GiB they will
 * take of it, of 20 that are free, and of these users. */
static void waiters_of(struct fixture *f, const char *jobs, const uid_t *users)
{
    f->d.ngpus = 1;
    f->d.free_bytes = 20 * GIB;
    for (const char *c = jobs; c; c = strchr(c + 1, ' '))
        child(f); /* before the journal's lock, which they would inherit */
    memcpy(f->p, f->children, f->n * sizeof(f->p[0]));
    swap_start(f);
    for (count = 0; *jobs; count++) {
        char *end;
        const enum job_class class = class_of(*jobs);
        const unsigned gib = (unsigned)strtoul(jobs + 1, &end, 10);
        f->job[count] = add_as(f, f->p[count], class, users[count]);
        if (gib)
            need(f, f->job[count], gib);
        jobs = end + (*end == ' ');
    }
    ticks(f, 1);
}

static void waiters(struct fixture *f, const char *jobs)
{
    waiters_of(f, jobs, (const uid_t[4]){0});
}

/* By class, then first come; what has been said and not been taken is taken. Nobody is swapped out
 * for them. */
ENGINE_TEST(test_waits_in_line)
{
    waiters(f, "B15 B10 B1 N12");
    LINE_AFTER(0, "qqqr"); /* all came in one tick: the normal job is first, and leaves 8 */
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(view(f, j[i]).position, i);
    LINE_AFTER(5000, "qqqr"); /* the last would fit */
    takes(f, p[3], 12);
    LINE_AFTER(5000, "qqqr");
    assert_null(record(f));
    ends(f, p[3], 12);
    LINE_AFTER(2000, "rqq-");
    /* More than it said: what is free is what counts. */
    takes(f, p[0], 17);
    LINE_AFTER(2000, "rqq-");
    assert_int_equal(view(f, j[0]).memory_held, 17 * GIB);
    assert_int_equal(view(f, j[0]).job.memory_bytes, 15 * GIB);
    /* A waiter that ends leaves the line. */
    end(f, p[1]);
    LINE_AFTER(2000, "r-r-");
}

/* What a job holds and what is free are seen at the same time: one that frees memory which it said
 * it takes gets it again. */
ENGINE_TEST(test_same_moment)
{
    waiters(f, "B10 B12");
    takes(f, p[0], 10);
    LINE_AFTER(3000, "rq");
    assert_int_equal(view(f, j[0]).memory_held, 10 * GIB);
    on(f, p[0])->memory_bytes = 5 * GIB;
    f->d.free_bytes = 15 * GIB;
    engine_set_swap(f->m, &(struct swap_options){.mode = SWAP_AUTO}); /* a look out of turn */
    LINE_AFTER(1, "rq");
    ends(f, p[0], 5);
    LINE_AFTER(2000, "-r");
}

/* A latency job is first in line, and has others swapped out, but not for those that wait. */
ENGINE_TEST(test_latency_is_first_in_line)
{
    waiters(f, "B0 B15 L0");
    LINE_AFTER(0, "-r-");
    takes(f, p[0], 3); /* it said nothing */
    ticks(f, 2000);
    need(f, j[2], 4);
    LINE_AFTER(1, "-rq"); /* 17 free, 15 of them reserved */
    moves_out(f, 0, 3);
    assert_true(EVENTUALLY(has_room(f, j[2])));
    assert_true(is(f, j[0], "swapped"));
    /* Who is out comes before one of its class that waits. */
    j[count++] = add(f, child(f), CLASS_BATCH);
    need(f, j[3], 2);
    ends(f, p[2], 0);
    LINE_AFTER(5000, "-r-q");
    ends(f, p[1], 0);
    moves_in(f, 0, 3);
    assert_true(EVENTUALLY(has_room(f, j[3])));
}

/* One that is out keeps its place before those that wait if it can come back at all: on a GPU of
 * others' programs or of this size it cannot, and does not hold them up. */
ENGINE_TEST(test_out_for_ever_holds_up_nobody)
{
    for (unsigned held = 17; held <= 19; held += 2) {
        waiters(f, "B0 L0 B0");
        takes(f, p[0], held);
        ticks(f, 2000);
        need(f, j[1], 10);
        moves_out(f, 0, held);
        assert_true(EVENTUALLY(has_room(f, j[1])));
        takes(f, p[1], 10);
        need(f, j[2], 5);
        LINE_AFTER(5000, held == 19 ? "-rr" : "-rq"); /* with the margin, 20.7 of 20 */
        for (int i = 0; i < 3; i++)
            end(f, p[i]);
        stop(f, true);
    }
}

/* What a job said that is out counts when it comes back, without a margin. */
ENGINE_TEST(test_comes_back_to_what_it_said)
{
    waiters(f, "B20 L0");
    takes(f, p[0], 5);
    ticks(f, 2000);
    need(f, j[1], 10);
    moves_out(f, 0, 5);
    assert_true(EVENTUALLY(has_room(f, j[1])));
    takes(f, p[1], 10);
    ticks(f, 20000);
    assert_true(is(f, j[0], "swapped")); /* 5 would fit, 20 not */
    ends(f, p[1], 10);
    moves_in(f, 0, 5);
}

/* Who says much and takes nothing keeps it from others for ten minutes. */
ENGINE_TEST(test_kept_for_a_while)
{
    waiters(f, "B15 B10");
    LINE_AFTER(590000, "rq");
    LINE_AFTER(20000, "rr");
}

/* Whoever starts without room has nothing kept for it; and another daemon knows who waits, in which
 * order, and what was promised. */
ENGINE_TEST(test_line_outlives_the_engine)
{
    waiters(f, "B15 B10 B5 N0");
    LINE_AFTER(0, "rqq-");
    need(f, j[3], 12); /* of a higher class, but what is promised is promised */
    ticks(f, 1);
    stop(f, false);
    start(f, "priority", NULL);
    LINE_AFTER(2000, "rqqq");
    assert_true(view(f, j[3]).position == 0 && view(f, j[1]).position == 1 &&
                view(f, j[2]).position == 2);
    end(f, p[3]);
    autoswap_started(engine_model(f->m), j[1]);
    ticks(f, 2000);
    assert_true(!view(f, j[1]).queued && view(f, j[1]).job.room == ROOM_NONE);
    assert_true(has_room(f, j[2]));
}

/* Programs of no job have what it waits for: after a while it holds up nobody, and it has its turn
 * when they end. */
ENGINE_TEST(test_too_little_if_all_end)
{
    waiters(f, "B30 B5");
    LINE_AFTER(5000, "qq");
    assert_false(view(f, j[0]).infeasible);
    LINE_AFTER(10000, "qr");
    assert_true(view(f, j[0]).infeasible);
    takes(f, p[1], 5);
    f->d.free_bytes += 14 * GIB; /* 34 if all end */
    LINE_AFTER(2000, "qr");
    assert_false(view(f, j[0]).infeasible);
    f->d.free_bytes += 1 * GIB;
    LINE_AFTER(2000, "rr");
}

/* One that waits for a job that does not end is not overtaken at first, and later it is. */
ENGINE_TEST(test_others_start_past_the_first)
{
    waiters(f, "B10 B15 B5");
    takes(f, p[0], 10);
    LINE_AFTER(590000, "rqq");
    LINE_AFTER(20000, "rqr");
}

/* Users have turns, however many jobs they have in line. */
ENGINE_TEST(test_users_in_turn)
{
    waiters_of(f, "B15 B15 B15", (const uid_t[]){5, 5, 6});
    LINE_AFTER(0, "rqq");
    ends(f, p[0], 0);
    LINE_AFTER(2000, "-qr");
    ends(f, p[2], 0);
    LINE_AFTER(2000, "-r-");
}

/* A program that does nothing is restarted every 8 s, each time as a job of its own: it holds up a
 * latency job's room for its first spell, and not for ever. */
ENGINE_TEST(test_restarts_hold_up_for_a_while)
{
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
ENGINE_TEST(test_all_of_it)
{
    parent_and_child(f, p);
    f->d.free_bytes = 30 * GIB;
    takes(f, p[0], 20);
    swap_start(f);
    add(f, p[0], CLASS_BATCH);
    uint32_t lat = add(f, child(f), CLASS_LATENCY);
    ticks(f, 100);
    mock_context(&f->d, p[1], 0, 3);
    on(f, p[1])->memory_bytes = 1 * GIB;
    need(f, lat, 25);
    ticks(f, 1);
    assert_true(EVENTUALLY(ordered(f, "out", -1)));
    stop(f, false);
}
