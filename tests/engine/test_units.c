/* Jobs whose programs are clients of one MPS server: one for the scheduler, suspended as a whole or
 * not at all; one of them is paused by a signal; nothing of it outlives who set it. */

#include "clients.h"

ENGINE_TEST(test_nobody_is_suspended)
{
    clients_of(f, "L* B* B*");
    for (int i = 0; i < 200; i++) {
        ticks(f, 10);
        assert_int_equal(suspended_groups(f), 0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(view(f, j[i]).unit, view(f, j[0]).number);
        assert_int_equal(view(f, j[i]).unit_class, CLASS_LATENCY);
        assert_int_equal(on(f, p[i])->timeslice_us, on(f, p[0])->timeslice_us);
    }
}

/* Two clients, a latency job and a batch job of their own. */
ENGINE_TEST(test_turns_as_one)
{
    unsigned on_turn = 0, waits = 0;
    jobs_of(f, "priority", 2, "L B B* B*");
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
    assert_false(view(f, j[0]).is_client);
    /* The class of the best of them. */
    change_class(f, j[3], CLASS_LATENCY);
    ticks(f, 500);
    assert_int_equal(suspended_of(f, p[2]) + suspended_of(f, p[3]), 0);
    assert_true(on(f, p[2])->timeslice_us > 1);
}

ENGINE_TEST(test_pause_is_a_signal)
{
    clients_of(f, "L* B* B*");
    paused(f, 1);
    assert_int_equal(suspended_groups(f), 0);
    assert_true(view(f, j[1]).signalled);
    assert_false(view(f, j[2]).signalled);
    /* Somebody lets it go on: it is paused all the same. */
    kill(p[1], SIGCONT);
    assert_true(reaches(p[1], false));
    ticks(f, 1100);
    assert_true(reaches(p[1], true));
    /* The best of the others counts. */
    pause_job(f, j[0], true);
    assert_int_equal(view(f, j[2]).unit_class, CLASS_BATCH);
    pause_job(f, j[0], false);
    pause_job(f, j[1], false);
    for (int i = 0; i < 3; i++)
        assert_true(reaches(p[i], false));
    assert_false(view(f, j[1]).signalled);
}

ENGINE_TEST(test_kill_while_stopped)
{
    clients_of(f, "L* B* B*");
    paused(f, 1);
    crash(f);
    /* The next one takes it over as it is: not for a moment does it run, or does anybody wait. */
    start(f, "priority", NULL);
    for (int i = 0; i < 50; i++) {
        ticks(f, 10);
        assert_int_equal(suspended_groups(f), 0);
        assert_int_equal(state_of(p[1]), 'T');
    }
    assert_true(view(f, j[1]).signalled);
    crash_and_undo(f);
    assert_true(reaches(p[1], false));
}

/* A program in no job is one of the clients: all is as it was, until it ends or joins. */
ENGINE_TEST(test_left_alone)
{
    jobs_of(f, "priority", 2, "B* B* u* L");
    ticks(f, 1500);
    assert_true(view(f, j[0]).left_alone);
    for (int i = 0; i < 100; i++) {
        ticks(f, 10);
        assert_int_equal(suspended_groups(f), 0);
        assert_int_equal(on(f, p[0])->timeslice_us, 2048);
    }
    end(f, p[2]);
    ticks(f, 1500);
    assert_false(view(f, j[0]).left_alone);
    assert_int_equal(on(f, p[0])->timeslice_us, 1);
    /* One leaves: it is in no job, and the rest is left alone again. */
    engine_release(f->m, j[0]);
    ticks(f, 3500);
    assert_int_equal(on(f, p[0])->timeslice_us, 2048);
    assert_int_equal(suspended_of(f, p[0]) + suspended_of(f, p[1]), 0);
}

/* The server is one of the processes; it is nobody's program. */
ENGINE_TEST(test_server)
{
    const pid_t server = named_child(f, "nvidia-cuda-mps");
    mock_context(&f->d, server, 0, 0);
    client_of(f, server, SERVER);
    jobs_of(f, "priority", 2, "B* B* L");
    ticks(f, 1500);
    assert_false(view(f, j[0]).left_alone);
    assert_int_equal(on(f, p[0])->timeslice_us, 1);
}

/* Who was first ends; who comes later sees a timeslice that is ours. What is given back in the end
 * is what the first had found. */
ENGINE_TEST(test_comes_and_goes)
{
    clients_of(f, "B* L");
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
ENGINE_TEST(test_found_late)
{
    clients_of(f, "B L u");
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
}

/* The one that was first ends when nobody is there to see it. */
ENGINE_TEST(test_first_ends_unseen)
{
    clients_of(f, "B* B* L");
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    crash(f);
    end(f, p[0]);
    undo(f);
}

ENGINE_TEST(test_two_servers_and_gpus)
{
    for (int i = 0; i < 4; i++) {
        p[i] = child(f);
        mock_context(&f->d, p[i], (unsigned)i / 2, 1);
        client_of(f, p[i], SERVER); /* numbers count on one GPU */
    }
    start(f, "priority", NULL);
    for (int i = 0; i < 4; i++)
        j[i] = add(f, p[i], CLASS_BATCH);
    ticks(f, 100);
    assert_int_equal(view(f, j[0]).unit, view(f, j[1]).unit);
    assert_int_equal(view(f, j[2]).unit, view(f, j[3]).unit);
    assert_int_not_equal(view(f, j[0]).unit, view(f, j[2]).unit);
}

ENGINE_TEST(test_not_swapped)
{
    clients_of(f, "B* B* B*");
    f->d.has_usage = true;
    FAILS(-ENOTSUP, "MPS", engine_swap_out(f->m, j[0], 0, &f->err));
}
