/* Jobs whose programs are clients of one MPS server: one for the scheduler, suspended as a whole or
 * not at all; one of them is paused by a signal; nothing of it outlives who set it. */
#include <errno.h>

#include "clients.h"

static void test_nobody_is_suspended(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    three_clients(f, p, job, (enum job_class[]){CLASS_LATENCY, CLASS_BATCH, CLASS_BATCH});
    for (int i = 0; i < 200; i++) {
        ticks(f, 10);
        assert_int_equal(suspended_groups(f), 0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(view(f, job[i]).unit, view(f, job[0]).number);
        assert_int_equal(view(f, job[i]).unit_class, CLASS_LATENCY);
        assert_int_equal(on(f, p[i])->timeslice_us, on(f, p[0])->timeslice_us);
    }
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

/* Two clients, a latency job and a batch job of their own. */
static void test_turns_as_one(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    unsigned on_turn = 0, waits = 0;
    programs(f, p, 4, 2);
    client_of(f, p[2], SERVER);
    client_of(f, p[3], SERVER);
    start(f, "priority", NULL);
    uint32_t latency = add(f, p[0], CLASS_LATENCY);
    add(f, p[1], CLASS_BATCH);
    add(f, p[2], CLASS_BATCH);
    uint32_t job = add(f, p[3], CLASS_BATCH);
    ticks(f, 500); /* a suspended group has its timeslice from its first turn on */
    const unsigned calls = f->d.timeslice_calls;
    for (int i = 0; i < 200; i++) {
        ticks(f, 10);
        unsigned n = suspended_of(f, p[2]);
        assert_int_equal(suspended_of(f, p[3]), n);
        assert_true(n == 0 || n == 3);
        assert_int_equal(suspended_of(f, p[1]), 3 - n);
        assert_int_equal(on(f, p[3])->timeslice_us, 1);
        *(n ? &waits : &on_turn) += 1;
    }
    assert_true(waits > 80 && on_turn > 80);
    assert_int_equal(f->d.timeslice_calls, calls);
    assert_false(view(f, latency).is_client);
    /* The class of the best of them. */
    struct job_terms t = {.class = CLASS_LATENCY, .weight = WEIGHT_DEFAULT};
    assert_int_equal(engine_change(f->m, job, &t, NULL), 0);
    ticks(f, 500);
    assert_int_equal(suspended_of(f, p[2]) + suspended_of(f, p[3]), 0);
    assert_true(on(f, p[2])->timeslice_us > 1);
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

static void test_pause_is_a_signal(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    three_clients(f, p, job, (enum job_class[]){CLASS_LATENCY, CLASS_BATCH, CLASS_BATCH});
    pause_job(f, job[1], true);
    assert_true(reaches(p[1], true));
    assert_int_equal(suspended_groups(f), 0);
    assert_true(view(f, job[1]).signalled);
    assert_false(view(f, job[2]).signalled);
    /* Somebody lets it go on: it is paused all the same. */
    kill(p[1], SIGCONT);
    assert_true(reaches(p[1], false));
    ticks(f, 1100);
    assert_true(reaches(p[1], true));
    /* The best of the others counts. */
    pause_job(f, job[0], true);
    assert_int_equal(view(f, job[2]).unit_class, CLASS_BATCH);
    pause_job(f, job[0], false);
    pause_job(f, job[1], false);
    for (int i = 0; i < 3; i++)
        assert_true(reaches(p[i], false));
    assert_false(view(f, job[1]).signalled);
}

/* What somebody else has stopped stays stopped. */
static void test_stopped_by_others(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    three_clients(f, p, job, (enum job_class[]){CLASS_BATCH, CLASS_BATCH, CLASS_BATCH});
    kill(p[1], SIGSTOP);
    assert_true(reaches(p[1], true));
    pause_job(f, job[1], true);
    pause_job(f, job[1], false);
    stop(f, true);
    assert_int_equal(state_of(p[1]), 'T');
}

static void test_kill_while_stopped(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    three_clients(f, p, job, (enum job_class[]){CLASS_LATENCY, CLASS_BATCH, CLASS_BATCH});
    pause_job(f, job[1], true);
    assert_true(reaches(p[1], true));
    crash(f);
    /* The next one takes it over as it is: not for a moment does it run, or does anybody wait. */
    start(f, "priority", NULL);
    for (int i = 0; i < 50; i++) {
        ticks(f, 10);
        assert_int_equal(suspended_groups(f), 0);
        assert_int_equal(state_of(p[1]), 'T');
    }
    assert_true(view(f, job[1]).signalled);
    crash_and_undo(f);
    assert_true(reaches(p[1], false));
    assert_int_equal(changed_groups(f), 0);
}

/* A program in no job is one of the clients: all is as it was, until it ends or joins. */
static void test_left_alone(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    programs(f, p, 4, 2);
    for (int i = 0; i < 3; i++)
        client_of(f, p[i], SERVER);
    start(f, "priority", NULL);
    uint32_t a = add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_BATCH);
    add(f, p[3], CLASS_LATENCY);
    ticks(f, 1500);
    assert_true(view(f, a).left_alone);
    for (int i = 0; i < 100; i++) {
        ticks(f, 10);
        assert_int_equal(suspended_groups(f), 0);
        assert_int_equal(on(f, p[0])->timeslice_us, 2048);
    }
    end(f, p[2]);
    ticks(f, 1500);
    assert_false(view(f, a).left_alone);
    assert_int_equal(on(f, p[0])->timeslice_us, 1);
    /* One leaves: it is in no job, and the rest is left alone again. */
    engine_release(f->m, a);
    ticks(f, 3500);
    assert_int_equal(on(f, p[0])->timeslice_us, 2048);
    assert_int_equal(suspended_of(f, p[0]) + suspended_of(f, p[1]), 0);
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

/* The server is one of the processes; it is nobody's program. */
static void test_server(void **state)
{
    struct fixture *f = *state;
    pid_t p[3], server = fork();
    struct proc_stat st = {.comm = ""};
    if (server == 0) {
        prctl(PR_SET_NAME, "nvidia-cuda-mps-server");
        wait_to_die();
    }
    f->children[f->n++] = server;
    while (strcmp(st.comm, "nvidia-cuda-mps") != 0)
        assert_int_equal(proc_stat_read(server, &st), 0);
    programs(f, p, 3, 2);
    mock_context(&f->d, server, 0, 0);
    client_of(f, server, SERVER);
    client_of(f, p[0], SERVER);
    client_of(f, p[1], SERVER);
    start(f, "priority", NULL);
    uint32_t a = add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_BATCH);
    add(f, p[2], CLASS_LATENCY);
    ticks(f, 1500);
    assert_false(view(f, a).left_alone);
    assert_int_equal(on(f, p[0])->timeslice_us, 1);
}

/* Who was first ends; who comes later sees a timeslice that is ours. What is given back in the end
 * is what the first had found. */
static void test_comes_and_goes(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    programs(f, p, 2, 2);
    client_of(f, p[0], SERVER);
    start(f, "priority", NULL);
    add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_LATENCY);
    ticks(f, 100);
    assert_int_equal(on(f, p[0])->timeslice_us, 1);
    p[2] = child(f);
    mock_context(&f->d, p[2], 0, 2);
    on(f, p[2])->timeslice_us = 1;
    client_of(f, p[2], SERVER);
    uint32_t c = add(f, p[2], CLASS_BATCH);
    ticks(f, 100);
    assert_int_not_equal(view(f, c).unit, 0);
    end(f, p[0]);
    ticks(f, 3000);
    assert_int_equal(view(f, c).unit, 0);
    assert_int_equal(on(f, p[2])->timeslice_us, 1);
    assert_int_equal(suspended_groups(f), 0);
    stop(f, true);
    assert_int_equal(on(f, p[2])->timeslice_us, 2048);
}

/* Also when nobody was there to see it, and the other way round: it was found to be a client when
 * its timeslice had been set by us already. */
static void test_found_late(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    programs(f, p, 3, 2);
    start(f, "priority", NULL);
    add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_LATENCY);
    ticks(f, 100);
    on(f, p[2])->timeslice_us = on(f, p[0])->timeslice_us;
    uint32_t c = add(f, p[2], CLASS_BATCH);
    ticks(f, 100);
    client_of(f, p[2], SERVER);
    ticks(f, 6000);
    client_of(f, p[0], SERVER);
    ticks(f, 6000);
    assert_int_not_equal(view(f, c).unit, 0);
    assert_int_equal(suspended_groups(f), 0);
    end(f, p[0]);
    ticks(f, 100);
    crash_and_undo(f);
    assert_int_equal(changed_groups(f), 0);
}

/* The one that was first ends when nobody is there to see it. */
static void test_first_ends_unseen(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    programs(f, p, 3, 2);
    client_of(f, p[0], SERVER);
    client_of(f, p[1], SERVER);
    start(f, "priority", NULL);
    add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_BATCH);
    add(f, p[2], CLASS_LATENCY);
    ticks(f, 100);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    crash(f);
    end(f, p[0]);
    undo(f);
    assert_int_equal(changed_groups(f), 0);
}

static void test_two_servers_and_gpus(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    uint32_t job[4];
    for (int i = 0; i < 4; i++) {
        p[i] = child(f);
        mock_context(&f->d, p[i], (unsigned)i / 2, 1);
        client_of(f, p[i], SERVER); /* numbers count on one GPU */
    }
    start(f, "priority", NULL);
    for (int i = 0; i < 4; i++)
        job[i] = add(f, p[i], CLASS_BATCH);
    ticks(f, 100);
    assert_int_equal(view(f, job[0]).unit, view(f, job[1]).unit);
    assert_int_equal(view(f, job[2]).unit, view(f, job[3]).unit);
    assert_int_not_equal(view(f, job[0]).unit, view(f, job[2]).unit);
}

static void test_not_swapped(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    struct error err = {""};
    three_clients(f, p, job, (enum job_class[]){CLASS_BATCH, CLASS_BATCH, CLASS_BATCH});
    f->d.has_usage = true;
    assert_int_equal(engine_swap_out(f->m, job[0], 0, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "MPS"));
}

/* A verb without a daemon is not there any more when a measurement would end. */
static void test_once(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    f->d.has_counters = f->once = true;
    three_clients(f, p, job, (enum job_class[]){CLASS_BATCH, CLASS_BATCH, CLASS_BATCH});
    ticks(f, 500);
    for (int i = 0; i < 3; i++)
        assert_false(view(f, job[i]).signalled);
    stop(f, false);
    for (int i = 0; i < 3; i++)
        assert_true(reaches(p[i], false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_nobody_is_suspended),
        T(test_turns_as_one),
        T(test_pause_is_a_signal),
        T(test_stopped_by_others),
        T(test_kill_while_stopped),
        T(test_left_alone),
        T(test_server),
        T(test_comes_and_goes),
        T(test_found_late),
        T(test_first_ends_unseen),
        T(test_two_servers_and_gpus),
        T(test_not_swapped),
        T(test_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
