/* Clients of one MPS server on the software GPU, which does with them what an H200 does: suspending
 * one stops all. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"

/* Programs that are started from now on are clients of the server of that name, or of none. */
static void server(const char *name)
{
    char dir[128];
    if (!name) {
        unsetenv("CUDA_MPS_PIPE_DIRECTORY");
        return;
    }
    snprintf(dir, sizeof(dir), "%s/%s", harness_dir(), name);
    mkdir(dir, 0700);
    setenv("CUDA_MPS_PIPE_DIRECTORY", dir, 1);
}

static void become(pid_t pid, const char *class)
{
    CEDE("set", pid_text(pid), "-c", class);
}

/* A latency and two batch programs, all of them clients: before, nearly nothing got done. */
static void all_in_one_server(void **state)
{
    (void)state;
    double busy[3] = {0}, alone[3] = {0};
    server("one");
    pid_t p[] = {LOAD("serve", "latency"), LOAD("train", "batch"), LOAD("train2", "batch")};
    server(NULL);
    assert_true(EVENTUALLY(all_have_contexts(p, 3)));
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

/* Beside a latency and a batch program of their own. */
static void turns_as_one(void **state)
{
    (void)state;
    double busy[4] = {0};
    server("one");
    pid_t p[4] = {LOAD("a", "batch", "--kernel-us", "500"),
                  LOAD("b", "batch", "--kernel-us", "500")};
    server(NULL);
    p[2] = LOAD("other", "batch", "--kernel-us", "500");
    p[3] = LOAD("serve", "latency");
    configure(20, "");
    struct ceded d = ceded_start();
    assert_true(EVENTUALLY(all_have_contexts(p, 4)));
    become(p[3], "latency");
    for (int i = 0; i < 3; i++)
        become(p[i], "batch");
    await_progress(p, 4);
    int apart = 0, waits = 0;
    for (int i = 0; i < 200; i++) {
        bool a = suspended(p[0]), b = suspended(p[1]), again = suspended(p[0]);
        apart += a == again && a != b;
        waits += a;
        nap_ms(3);
    }
    assert_in_range(waits, 20, 180);
    assert_true(apart < 60); /* it takes two calls; by themselves they would be in most */
    measure(p, 4, 2000, busy);
    /* Turns are one job's, not two jobs'. */
    assert_true(busy[2] > (busy[0] + busy[1]) / 2 && busy[2] < (busy[0] + busy[1]) * 2);
    ceded_kill(&d);
    assert_true(all_slices_default(p, 4));
    await_progress(p, 4);
}

static void pause_one(void **state)
{
    (void)state;
    server("one");
    pid_t p[2] = {LOAD("a", "batch"), LOAD("b", "batch")};
    server(NULL);
    configure(20, "");
    struct ceded d = ceded_start();
    assert_true(EVENTUALLY(all_have_contexts(p, 2)));
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
    kill(d.restorer, SIGKILL);
    kill(d.pid, SIGKILL);
    await_child(d.pid);
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

/* One of the clients is in no job: nothing is done to any of them. */
static void one_in_no_job(void **state)
{
    (void)state;
    server("one");
    pid_t p[3] = {LOAD("a", "batch"), LOAD("b", "batch")};
    server(NULL);
    p[2] = LOAD("serve", "latency");
    configure(20, "");
    struct ceded d = ceded_start();
    assert_true(EVENTUALLY(all_have_contexts(p, 3)));
    become(p[0], "batch");
    become(p[2], "latency");
    assert_true(EVENTUALLY(({
        json_t *job = job_named("a");
        bool alone = json_is_true(json_object_get(json_object_get(job, "mps"), "left_alone"));
        json_decref(job);
        alone;
    })));
    assert_true(EVENTUALLY(all_slices_default(p, 2)));
    assert_true(runs_on(p, 3));
    CEDE("set", "--others", "-c", "batch");
    assert_true(EVENTUALLY(!all_slices_default(p, 2)));
    ceded_stop(&d);
    assert_true(all_slices_default(p, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {e2e(all_in_one_server), e2e(turns_as_one), e2e(pause_one),
                                       e2e(one_in_no_job)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
