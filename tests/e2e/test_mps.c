/* Clients of one MPS server on the software GPU, which does with them what an H200 does: suspending
 * one stops all. */
#include "fixture.h"

static void become(pid_t pid, const char *class)
{
    CEDE("set", pid_text(pid), "-c", class);
}

/* A latency and two batch programs, all of them clients: before, nearly nothing got done. */
E2E(all_in_one_server)
{
    double busy[3] = {0}, alone[3] = {0};
    mps_server("one");
    pid_t p[] = {LOAD("serve", "latency"), LOAD("train", "batch"), LOAD("train2", "batch")};
    mps_server(NULL);
    AWAIT(all_have_contexts(p, 3));
    measure(p, 3, 1000, alone);
    configure(50, "");
    struct ceded d = ceded_start();
    become(p[0], "latency");
    become(p[1], "batch");
    become(p[2], "batch");
    await_progress(p, 3);
    measure(p, 3, 1000, busy);
    for (int i = 0; i < 3; i++)
        assert_true(busy[i] > alone[i] / 4); /* it was a tenth; other programs' load varies */
    assert_false(somebody_suspended());
    CEDE("ps");
    assert_non_null(strstr(result.err, "clients of one MPS server"));
    CEDE("set", pid_text(p[1]), "-w", "50");
    assert_non_null(strstr(result.err, "all as latency"));
    ceded_stop(&d);
    assert_true(all_slices_default(p, 3));
    json_decref(load_end("serve", p[0]));
    json_decref(load_end("train", p[1]));
    json_decref(load_end("train2", p[2]));
}

E2E(pause_one)
{
    mps_server("one");
    pid_t p[2] = {LOAD("a", "batch"), LOAD("b", "batch")};
    mps_server(NULL);
    struct ceded d = ceded_start();
    AWAIT(all_have_contexts(p, 2));
    become(p[0], "batch");
    become(p[1], "batch");
    await_progress(p, 2);
    CEDE("pause", "a");
    assert_non_null(strstr(result.err, "SIGSTOP"));
    await_state(p[0], "T");
    assert_true(job_is("a", "state", "paused"));
    await_progress(&p[1], 1);
    /* A killed daemon: everybody runs. The next one pauses it again, as it is on record. */
    ceded_kill(&d);
    await_state(p[0], "RSD");
    await_progress(p, 2);
    d = ceded_start();
    await_state(p[0], "T");
    /* Both killed: it stays, and the next one lets it go on when asked to. */
    ceded_kill_both(&d);
    assert_int_equal(process_state(p[0]), 'T');
    d = ceded_start();
    CEDE("resume", "a");
    await_state(p[0], "RSD");
    await_progress(p, 2);
    CEDE("pause", "a");
    await_state(p[0], "T");
    ceded_stop(&d);
    await_state(p[0], "RSD");
    /* Without a daemon too. */
    CEDE("pause", "a");
    await_state(p[0], "T");
    await_progress(&p[1], 1);
    CEDE("resume", "a");
    await_state(p[0], "RSD");
    json_decref(load_end("a", p[0]));
    json_decref(load_end("b", p[1]));
}
