/* Jobs swapped out and in on the software GPU: what others can do meanwhile, that all work is done
 * in the end, and that whoever is killed at whatever moment, nobody stays out for ever. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "fixture.h"

#define SMALL "268435456" /* moves in 0.3 s */

static void assert_no_record(void)
{
    pid_t swapper;
    assert_int_equal(swap_records(&swapper), 0);
}

static pid_t load_batch(const char *name, const char *bytes)
{
    pid_t pid = LOAD(name, "batch", "--memory", bytes);
    assert_true(EVENTUALLY(all_have_contexts(&pid, 1)));
    await_progress(&pid, 1);
    return pid;
}

static void room_for_another(void **state)
{
    (void)state;
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
    assert_true(EVENTUALLY(suspended(a)));
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

    RUN(&result, "cede", "swap-in", "a");
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "no room on GPU 0: 2."));
    assert_true(job_is("a", "state", "swapped"));
    json_decref(load_end("lat", lat));
    CEDE("swap-in", "a");
    assert_string_equal(result.out, "#1 a: swapped in\n");
    assert_no_record();
    assert_true(EVENTUALLY(job_is("a", "state", "paused")));
    assert_true(EVENTUALLY(suspended(a)));
    CEDE("resume", "a");
    await_progress(&a, 1);

    /* A daemon that leaves leaves nobody behind. */
    CEDE("swap-out", "a");
    ceded_stop(&d);
    assert_no_record();
    await_progress(&a, 1);
    json_decref(load_end("a", a));
}

/* A latency job says what it will take: the batch job leaves before it starts. */
static void automatic(void **state)
{
    (void)state;
    small_gpu("3221225472");
    struct ceded d = ceded_start();
    pid_t a = load_batch("a", "2147483648"), small = load_batch("small", SMALL);
    CEDE("set", pid_text(a), "-c", "batch");
    CEDE("set", pid_text(small), "-c", "batch");
    pid_t runner = SPAWN("lat", "cede", "run", "-c", "latency", "-n", "lat", "--memory", "2G", "--",
                         harness_exe(), "load", "latency", "--device", "soft", "--memory",
                         "2147483648", "--requests", "20", "--verify");
    assert_int_equal(await_child(runner), 0);
    assert_non_null(strstr(contents("lat.err"), "waiting for 2.0 GiB on GPU 0"));
    json_t *done = load_final("lat");
    assert_true(json_is_true(json_object_get(done, "verified")));
    json_decref(done);
    assert_true(job_is("a", "state", "swapped"));
    assert_false(job_is("small", "state", "swapped")); /* it would not have helped */
    RUN(&result, "cede", "run", "-c", "latency", "--memory", "4G", "--", "true");
    assert_int_equal(status_of(result.status), 2);
    assert_non_null(strstr(result.err, "GPU 0 has 3.0 GiB of memory in all: 4.0 GiB are 1.0"));
    ceded_stop(&d);
    assert_no_record();
    await_progress(&a, 1);
    json_decref(load_end("small", small));
    json_decref(load_end("a", a));
}

static void refused(void **state)
{
    (void)state;
    small_gpu("200000000000000");
    struct ceded d = ceded_start();
    pid_t a = load_batch("a", SMALL);
    CEDE("swap-in", pid_text(a)); /* it is in no job, and where it is only the driver knows */
    assert_string_equal(result.out, "#1 swapped: swapped in\n");
    CEDE("set", pid_text(a), "-c", "none");
    RUN(&result, "cede", "swap-in", pid_text(getpid()));
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "uses no GPU"));
    CEDE("set", pid_text(getpid()), "-c", "none");
    kill(a, SIGSTOP);
    await_state(a, "T");
    RUN(&result, "cede", "swap-out", pid_text(a));
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "is stopped"));
    kill(a, SIGCONT);

    /* No host memory has so much room: it runs on, and ps says why it does. */
    pid_t huge = load_batch("huge", "1000000000000");
    RUN(&result, "cede", "swap-out", pid_text(huge));
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "it runs on"));
    CEDE("ps");
    assert_non_null(strstr(result.err, "GiB of host memory"));
    await_progress(&huge, 1);
    assert_no_record();
    json_decref(load_end("huge", huge));
    json_decref(load_end("a", a));
    ceded_stop(&d);
}

static void kill_both(struct ceded *d)
{
    kill(d->restorer, SIGSTOP); /* nothing between the one kill and the other */
    await_state(d->restorer, "T");
    kill(d->pid, SIGKILL);
    assert_int_equal(await_child(d->pid), 1000 + SIGKILL);
    kill(d->restorer, SIGKILL);
    assert_int_equal(await_child(d->restorer), 1000 + SIGKILL);
}

/* Without a daemon it is told, and cannot be helped; the next one takes it over as it is. */
static void both_killed_meanwhile(void **state)
{
    (void)state;
    struct ceded d = ceded_start();
    pid_t a = load_batch("a", SMALL);
    CEDE("set", pid_text(a), "-c", "batch");
    CEDE("swap-out", "a");
    kill_both(&d);
    CEDE("ps");
    assert_non_null(strstr(result.out, " swapped "));
    RUN(&result, "cede", "swap-in", "a");
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "start ceded"));
    d = ceded_start();
    assert_true(job_is("a", "state", "swapped") && job_is("a", "class", "batch"));
    CEDE("swap-in", "a");
    assert_no_record();
    await_progress(&a, 1);
    json_decref(load_end("a", a));
    ceded_stop(&d);
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
        assert_no_record(); /* the restorer has brought it in */
        await_progress(&a, 1);
        *d = ceded_start();
        break;
    case SWAPPER:
        if (swap_records(&swapper) && swapper)
            kill(swapper, SIGKILL);
        break;
    case BOTH:
        kill_both(d);
        *d = ceded_start();
        break;
    default:
        kill(a, SIGKILL);
        assert_int_equal(await_child(a), 1000 + SIGKILL);
        assert_true(EVENTUALLY(({
            json_t *job = job_named("a");
            json_decref(job);
            !job && !swap_records(&swapper);
        })));
        a = load_batch("a", SMALL);
        CEDE("set", pid_text(a), "-c", "batch");
    }
    assert_true(
        EVENTUALLY(!job_is("a", "state", "swapping-out") && !job_is("a", "state", "swapping-in")));
    CEDE("swap-in", "a"); /* it may have been out already: then as it was asked */
    assert_no_record();
    await_progress(&a, 1);
    return a;
}

static void killed_in_a_move(void **state)
{
    (void)state;
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
static void swapper_that_hangs(void **state)
{
    (void)state;
    pid_t swapper = 0;
    struct ceded d = ceded_start();
    pid_t lat = LOAD("lat", "latency"), b = LOAD("b", "batch"), a = load_batch("a", SMALL);
    CEDE("set", pid_text(lat), "-c", "latency");
    CEDE("set", pid_text(b), "-c", "batch");
    CEDE("set", pid_text(a), "-c", "batch");
    json_decref(ask("{\"v\":1,\"op\":\"swap-out\",\"target\":\"a\"}"));
    assert_true(EVENTUALLY(({
        struct proc_stat st;
        swap_records(&swapper) == 1 && swapper &&proc_stat_read(swapper, &st) == 0 &&
            strcmp(st.comm, "cede-swap") == 0;
    })));
    kill(swapper, SIGSTOP);
    await_state(swapper, "T");
    kill(d.pid, SIGKILL);
    assert_int_equal(await_child(d.pid), 1000 + SIGKILL);
    assert_true(EVENTUALLY(records(NULL) == 0)); /* the restorer has come so far */
    pid_t restorer = d.restorer;
    d = ceded_start();
    assert_int_equal(await_child(restorer), 0); /* it has seen that somebody else cares */
    assert_true(job_is("a", "state", "swapping-in"));
    const pid_t others[] = {lat, b};
    await_progress(others, 2);

    kill(swapper, SIGCONT);
    assert_true(EVENTUALLY(swap_records(&swapper) == 0));
    await_progress(&a, 1);
    ceded_stop(&d);
    json_decref(load_end("a", a));
    json_decref(load_end("b", b));
    json_decref(load_end("lat", lat));
}

int main(void)
{
    const struct CMUnitTest tests[] = {e2e(room_for_another), e2e(automatic),
                                       e2e(refused),          e2e(both_killed_meanwhile),
                                       e2e(killed_in_a_move), e2e(swapper_that_hangs)};
    return e2e_at_once(tests, ARRAY_SIZE(tests));
}
