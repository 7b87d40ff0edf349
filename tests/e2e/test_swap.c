/* Jobs swapped out and in on the software GPU: what others can do meanwhile, that all work is done
 * in the end, and that whoever is killed at whatever moment, nobody stays out for ever. */
#include "fixture.h"

#define SMALL "268435456" /* moves in 0.3 s */

static pid_t load_batch(const char *name, const char *bytes)
{
    pid_t pid = LOAD(name, "batch", "--memory", bytes);
    AWAIT(all_have_contexts(&pid, 1));
    await_progress(&pid, 1);
    return pid;
}

E2E(room_for_another)
{
    double busy;
    small_gpu("3221225472");
    struct ceded d = ceded_start();
    pid_t a = load_batch("a", "2147483648");
    CEDE("set", pid_text(a), "-c", "batch");

    /* Two thirds twice do not fit, */
    pid_t lat = LOAD("lat", "latency", "--memory", "2147483648");
    assert_int_equal(await_child(lat), 1);
    assert_non_null(strstr(contents("lat.err"), "no room for --memory"));
    /* but one after the other; also when the first is suspended. */
    CEDE("pause", "a");
    AWAIT(suspended(a));
    CEDE("swap-out", "a");
    assert_string_equal(result.out, "#1 a: swapped out, 2.0 GiB\n");
    assert_true(job_is("a", "state", "swapped"));
    CEDE("swap-out", "a"); /* again: is out */
    lat = LOAD("lat", "latency", "--memory", "2147483648");
    await_progress(&lat, 1);
    CEDE("set", pid_text(lat), "-c", "latency");
    measure(&a, 1, 100, &busy);
    assert_true(busy == 0);
    CEDE("ps");
    assert_non_null(strstr(result.out, " swapped "));

    FAILS(1, "no room on GPU 0: 2.", "swap-in", "a");
    assert_true(job_is("a", "state", "swapped"));
    json_decref(load_end("lat", lat));
    CEDE("swap-in", "a");
    assert_string_equal(result.out, "#1 a: swapped in\n");
    assert_int_equal(swap_records(NULL), 0);
    AWAIT(job_is("a", "state", "paused"));
    AWAIT(suspended(a));
    CEDE("resume", "a");
    await_progress(&a, 1);

    /* A daemon that leaves leaves nobody behind. */
    CEDE("swap-out", "a");
    ceded_stop(&d);
    assert_int_equal(swap_records(NULL), 0);
    await_progress(&a, 1);
    json_decref(load_end("a", a));
}

E2E(refused)
{
    small_gpu("200000000000000");
    ceded_start();
    pid_t a = load_batch("a", SMALL);
    CEDE("swap-in", pid_text(a)); /* it is in no job, and where it is only the driver knows */
    assert_string_equal(result.out, "#1 swapped: swapped in\n");
    CEDE("set", pid_text(a), "-c", "none");
    FAILS(1, "uses no GPU", "swap-in", pid_text(getpid()));
    CEDE("set", pid_text(getpid()), "-c", "none");
    kill(a, SIGSTOP);
    await_state(a, "T");
    FAILS(1, "is stopped", "swap-out", pid_text(a));
    kill(a, SIGCONT);
    pid_t none = LOAD("none", "batch");
    AWAIT(all_have_contexts(&none, 1));
    await_progress(&none, 1);
    FAILS(1, "the driver reports no GPU memory of none (process ", "swap-out", pid_text(none));
    json_decref(load_end("none", none));

    /* No host memory has so much room: it runs on, and ps says why it does. */
    pid_t huge = load_batch("huge", "1000000000000");
    FAILS(1, "it runs on", "swap-out", pid_text(huge));
    CEDE("ps");
    assert_non_null(strstr(result.err, "GiB of host memory"));
    await_progress(&huge, 1);
    assert_int_equal(swap_records(NULL), 0);
    json_decref(load_end("huge", huge));
    json_decref(load_end("a", a));
}

/* The verb starts a daemon, which takes it over as it is. */
E2E(both_killed_meanwhile)
{
    struct ceded d = ceded_start();
    pid_t a = load_batch("a", SMALL);
    CEDE("set", pid_text(a), "-c", "batch");
    CEDE("swap-out", "a");
    ceded_kill_both(&d);
    CEDE("ps");
    assert_non_null(strstr(result.out, " swapped "));
    CEDE("swap-in", "a");
    assert_true(job_is("a", "class", "batch"));
    assert_int_equal(swap_records(NULL), 0);
    await_progress(&a, 1);
    json_decref(load_end("a", a));
}

/* The journal is lost, and a stopped program of a lower pid gives the search no answer. */
E2E(found_beside_a_stopped_one)
{
    struct ceded d = ceded_start();
    pid_t stopped = load_batch("stopped", SMALL), a = load_batch("a", SMALL);
    CEDE("set", pid_text(a), "-c", "batch");
    CEDE("swap-out", "a");
    kill(stopped, SIGSTOP);
    await_state(stopped, "T");
    ceded_kill_both(&d);
    assert_int_equal(unlink(in_dir("journal")), 0);
    ceded_start();
    await_progress(&a, 1);
    kill(stopped, SIGCONT);
    json_decref(load_end("stopped", stopped));
    json_decref(load_end("a", a));
}

enum victim { CEDED, SWAPPER, BOTH, JOB, VICTIMS };

/* Kills who is at it, at some moment of a move; then all has to go on. */
static pid_t kill_in_move(struct ceded *d, pid_t a, enum victim victim, bool in, unsigned us)
{
    pid_t swapper;
    json_t *answer;
    char text[80];
    if (in)
        CEDE("swap-out", "a");
    snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"swap-%s\",\"target\":\"a\"}",
             in ? "in" : "out");
    answer = ask(text);
    assert_true(json_is_true(json_object_get(answer, "ok")));
    json_decref(answer);
    usleep(us);
    switch (victim) {
    case CEDED:
        ceded_kill(d);
        assert_int_equal(swap_records(NULL), 0); /* the restorer has brought it in */
        await_progress(&a, 1);
        *d = ceded_start();
        break;
    case SWAPPER:
        if (swap_records(&swapper) && swapper)
            kill(swapper, SIGKILL);
        break;
    case BOTH:
        ceded_kill_both(d);
        *d = ceded_start();
        break;
    default:
        slay_child(a);
        AWAIT(job_gone("a") && !swap_records(NULL));
        a = load_batch("a", SMALL);
        CEDE("set", pid_text(a), "-c", "batch");
    }
    AWAIT(!job_is("a", "state", "swapping-out") && !job_is("a", "state", "swapping-in"));
    CEDE("swap-in", "a"); /* it may have been out already: then as it was asked */
    assert_int_equal(swap_records(NULL), 0);
    await_progress(&a, 1);
    return a;
}

E2E(killed_in_a_move)
{
    struct rng rng = {0x3c6ef372fe94f82b};
    struct ceded d = ceded_start();
    pid_t lat = LOAD("lat", "latency"), a = load_batch("a", SMALL);
    CEDE("set", pid_text(lat), "-c", "latency");
    CEDE("set", pid_text(a), "-c", "batch");
    for (int round = 0; round < 2 * VICTIMS; round++)
        a = kill_in_move(&d, a, (enum victim)(round % VICTIMS), round >= VICTIMS,
                         (unsigned)rng_below(&rng, 350000));
    await_progress(&lat, 1);
    ceded_stop(&d);
    json_decref(load_end("a", a));
    json_decref(load_end("lat", lat));
}

/* A swapper that does not end, as where the vendor's library hangs. Whoever waits for it keeps
 * nobody else waiting: the next ceded begins, and goes on when the swapper does. */
E2E(swapper_that_hangs)
{
    pid_t swapper = 0;
    struct ceded d = ceded_start();
    pid_t lat = LOAD("lat", "latency"), b = LOAD("b", "batch"), a = load_batch("a", SMALL);
    CEDE("set", pid_text(lat), "-c", "latency");
    CEDE("set", pid_text(b), "-c", "batch");
    CEDE("set", pid_text(a), "-c", "batch");
    json_decref(ask("{\"v\":1,\"op\":\"swap-out\",\"target\":\"a\"}"));
    AWAIT(({
        struct proc_stat st;
        swap_records(&swapper) == 1 && swapper &&proc_stat_read(swapper, &st) == 0 &&
            strcmp(st.comm, "cede-swap") == 0;
    }));
    kill(swapper, SIGSTOP);
    await_state(swapper, "T");
    slay_child(d.pid);
    AWAIT(records(NULL) == 0); /* the restorer has come so far */
    pid_t restorer = d.restorer;
    d = ceded_start();
    assert_int_equal(await_child(restorer), 0); /* it has seen that somebody else cares */
    assert_true(job_is("a", "state", "swapping-in"));
    const pid_t others[] = {lat, b};
    await_progress(others, 2);

    kill(swapper, SIGCONT);
    AWAIT(swap_records(&swapper) == 0);
    await_progress(&a, 1);
    ceded_stop(&d);
    json_decref(load_end("a", a));
    json_decref(load_end("b", b));
    json_decref(load_end("lat", lat));
}

int main(void)
{
    return e2e_at_once();
}
