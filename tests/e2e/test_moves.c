/* Jobs of several processes on the software GPU are swapped as a whole: all of them or none, also
 * where one of them cannot leave, or somebody is killed at whatever moment. */
#include "fixture.h"

#define BYTES "268435456" /* moves in 0.3 s */
#define RANKS 2

struct ranks {
    pid_t root, v[RANKS];
};

/* A shell and two programs below it; the second one's memory is of that kind, or "own". */
static struct ranks ranks_start(const char *kind)
{
    static const char script[] =
        "run() { CEDE_SOFT_MEMORY=$2 $CEDE_EXE load batch --device soft --kernel-us 2000 --memory "
        "$3 --verify > $CEDE_DIR/$1.out 2> $CEDE_DIR/$1.err & echo $! > $CEDE_DIR/$1.pid; }; "
        "run r0 own $2; run r1 $1 $2; wait";
    static const char *const names[RANKS] = {"r0.pid", "r1.pid"};
    struct ranks r = {.root = SPAWN("ranks", "sh", "-c", script, "sh", kind, BYTES)};
    for (int i = 0; i < RANKS; i++) {
        r.v[i] = pid_in(names[i]);
    }
    AWAIT(all_have_contexts(r.v, RANKS));
    await_progress(r.v, RANKS);
    CEDE("set", pid_text(r.root), "-c", "batch");
    AWAIT(job_int("sh", "processes") == RANKS);
    return r;
}

/* Both have done their work right. */
static void ranks_end(const struct ranks *r)
{
    static const char *const names[RANKS] = {"r0", "r1"};
    for (int i = 0; i < RANKS; i++)
        kill(r->v[i], SIGTERM);
    await_child(r->root);
    for (int i = 0; i < RANKS; i++) {
        json_t *last = load_final(names[i]);
        assert_true(json_is_true(json_object_get(last, "verified")));
        json_decref(last);
        assert_int_equal(unlink(in_dir(i ? "r1.pid" : "r0.pid")), 0); /* for the next ones */
    }
}

E2E(whole_job)
{
    double busy[RANKS];
    ceded_start();
    struct ranks r = ranks_start("own");
    CEDE("swap-out", "sh");
    assert_string_equal(result.out, "#1 sh: swapped out, 0.5 GiB\n");
    assert_int_equal(swap_records(NULL), RANKS);
    measure(r.v, RANKS, 100, busy);
    assert_true(busy[0] == 0 && busy[1] == 0);
    CEDE("swap-in", "sh");
    assert_int_equal(swap_records(NULL), 0);
    await_progress(r.v, RANKS);

    /* One of them ends while they are out: the other comes back. */
    CEDE("swap-out", "sh");
    kill(r.v[1], SIGKILL);
    AWAIT(swap_records(NULL) == 1);
    CEDE("swap-in", "sh");
    await_progress(r.v, 1);
    kill(r.v[0], SIGTERM);
    await_child(r.root);
}

/* The first one was locked or had left already when the second turned out not to be able to. */
E2E(one_cannot)
{
    static const struct {
        const char *kind, *reason;
    } rows[] = {{"managed", "has managed memory"}, {"shared", "of another process open"}};
    ceded_start();
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct ranks r = ranks_start(rows[i].kind);
        FAILS(1, rows[i].reason, "swap-out", "sh");
        AWAIT(swap_records(NULL) == 0);
        await_progress(r.v, RANKS);
        CEDE("ps");
        assert_non_null(strstr(result.err, rows[i].reason));
        ranks_end(&r);
        AWAIT(job_gone("sh"));
    }
}

static void ask_target(const char *op, const char *target)
{
    char text[80];
    snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"%s\",\"target\":\"%s\"}", op, target);
    json_t *answer = ask(text);
    assert_true(json_is_true(json_object_get(answer, "ok")));
    json_decref(answer);
}

/* At moments spread over the whole move: between any two steps of the two processes. */
E2E(killed_at_any_step)
{
    enum { MOMENTS = 6 };
    pid_t swapper;
    struct ceded d = ceded_start();
    struct ranks r = ranks_start("own");
    for (unsigned i = 0; i < 2 * MOMENTS; i++) {
        const bool in = i >= MOMENTS;
        if (in)
            CEDE("swap-out", "sh");
        ask_target(in ? "swap-in" : "swap-out", "sh");
        nap_ms(i % MOMENTS * 80);
        if (i % 3 != 0 && swap_records(&swapper) && swapper)
            kill(swapper, SIGKILL);
        if (i % 3 != 1) {
            ceded_kill(&d);
            assert_int_equal(swap_records(NULL), 0);
            await_progress(r.v, RANKS);
            d = ceded_start();
        }
        AWAIT(!job_is("sh", "state", "swapping-out") && !job_is("sh", "state", "swapping-in"));
        CEDE("swap-in", "sh");
        assert_int_equal(swap_records(NULL), 0);
        await_progress(r.v, RANKS);
    }
    ranks_end(&r);
}

/* Nobody leaves or comes where another job is starting, and those who wait are told why; when it
 * has started they move. */
E2E(not_while_one_starts)
{
    small_gpu("3221225472");
    configure(20, "swap_start = 5s");
    struct ceded d = ceded_start();
    pid_t a = LOAD("a", "batch", "--memory", "2147483648");
    AWAIT(all_have_contexts(&a, 1));
    CEDE("set", pid_text(a), "-c", "batch");
    FAILS(1, "is starting on GPU 0", "swap-out", "a");
    AWAIT(({
        RUN(&result, "cede", "swap-out", "a");
        status_of(result.status) == 0;
    }));

    pid_t s = LOAD("server", "batch", "--memory", "1073741");
    AWAIT(all_have_contexts(&s, 1));
    CEDE("set", pid_text(s), "-c", "batch");
    AWAIT(job_int("server", "timeslice_us") > 0);
    ask_target("swap-in", "a");
    AWAIT(({
        json_t *job = job_named("a");
        const char *e = json_string_value(json_object_get(job, "error"));
        bool told = e && strstr(e, "(server) is starting on GPU 0");
        json_decref(job);
        told;
    }));
    AWAIT(job_is("a", "state", "running"));
    await_progress(&a, 1);

    /* A latency job that waits for room, while yet another one starts. */
    pid_t t = LOAD("other", "batch", "--memory", "1073741");
    AWAIT(all_have_contexts(&t, 1));
    CEDE("set", pid_text(t), "-c", "batch");
    AWAIT(job_int("other", "timeslice_us") > 0);
    pid_t runner =
        SPAWN("lat", "cede", "run", "-c", "latency", "-n", "lat", "--memory", "2G", "--", "true");
    AWAIT(job_is("lat", "state", "queued"));
    AWAIT(({ /* a slow machine may be past that */
             CEDE("ps");
             strstr(result.err, "(other) is starting on GPU 0") ||
                 !job_is("lat", "state", "queued");
    }));
    assert_int_equal(await_child(runner), 0);
    assert_true(job_is("a", "state", "swapped"));
    ceded_stop(&d);
    json_decref(load_end("other", t));
    json_decref(load_end("server", s));
    json_decref(load_end("a", a));
}

int main(void)
{
    return e2e_at_once();
}
