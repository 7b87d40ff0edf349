/* For whom jobs leave the GPU's memory, and when they come back. */
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

static void need(struct fixture *f, uint32_t job, unsigned gib)
{
    struct error err = {""};
    if (engine_need(f->m, job, gib * GIB, 0, &err) < 0)
        fail_msg("%s", err.text);
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
    assert_false(view(f, j[3]).needs);
    need(f, j[3], 10);
    ticks(f, 1);
    assert_true(view(f, j[3]).needs && view(f, j[3]).room); /* there already */
    need(f, j[3], 45);
    ticks(f, 1);
    assert_false(view(f, j[3]).room);
    /* Batch before normal, the largest first, and no more than it takes. */
    moves(f, "out", p[1], 20);
    assert_true(EVENTUALLY(is(f, j[1], "swapped")));
    assert_false(view(f, j[1]).swap_by_user);
    assert_false(view(f, j[3]).room);
    moves(f, "out", p[2], 30);
    assert_true(EVENTUALLY(view(f, j[3]).room));
    assert_true(is(f, j[0], ""));

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
    assert_true(EVENTUALLY(view(f, j[3]).room));
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
    assert_false(view(f, j[3]).room);
    f->d.free_bytes += 20 * GIB; /* it may be had all the same */
    ticks(f, 2000);
    assert_true(view(f, j[3]).room);
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
    assert_true(view(f, j[3]).room);
    stop(f, true);
}

int main(int argc, char **argv)
{
    if (strcmp(argv[0], "cede-swap") == 0)
        return fake_swapper();
    const struct CMUnitTest tests[] = {
        T(test_room_for_a_latency_job),
        T(test_refused_is_left_alone),
        T(test_reserve),
        T(test_switched_off),
    };
    (void)argc;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
