/* Jobs that say how much GPU memory they will take, on a software GPU with 3 GiB: those that do not
 * fit wait in line before their programs are started, whoever is killed meanwhile. In which order
 * they start: engine_autoswap and sched_swap_choice. */
#include "fixture.h"

/* A job of class batch that says how much it will take, and takes 2 GiB. */
static pid_t load(const char *name)
{
    return SPAWN(name, "cede", "run", "-c", "batch", "-n", name, "--memory", "2G", "--",
                 harness_exe(), "load", "batch", "--device", "soft", "--kernel-us", "2000",
                 "--verify", "--memory", "2147483648");
}

static void await_queued(const char *name, int place)
{
    if (!EVENTUALLY(job_is(name, "state", "queued") && job_int(name, "memory.place") == place))
        fail_msg("%s does not wait at place %d", name, place);
}

/* It has taken its memory, or the load would have failed. */
static void await_running(const char *name)
{
    if (!EVENTUALLY(job_int(name, "memory_bytes") > 0))
        fail_msg("%s does not run", name);
}

struct line {
    struct ceded d;
    pid_t a, b;
};

/* One has two thirds of the memory, and the other waits for as much. */
static struct line line_begin(void)
{
    small_gpu("3221225472");
    struct line l = {.d = ceded_start(), .a = load("a")};
    await_running("a");
    assert_string_equal(contents("a.err"), ""); /* there was room, and nothing to say */
    l.b = load("b");
    await_queued("b", 0);
    return l;
}

static void line_end(const struct line *l)
{
    json_decref(load_end("a", l->a));
    await_running("b");
    json_decref(load_end("b", l->b));
}

E2E(one_after_the_other)
{
    struct line l = line_begin();
    AWAIT(strstr(contents("b.err"), "waiting for 2.0 GiB on GPU 0"));
    assert_non_null(strstr(contents("b.err"), "memory is held or reserved by: #1 a"));
    CEDE("ps");
    assert_non_null(strstr(result.out, " queued "));
    assert_non_null(strstr(result.out, "-/2.0G"));
    nap_ms(2500); /* the daemon has looked again */
    await_queued("b", 0);
    assert_string_equal(contents("b.out"), "");
    line_end(&l);
}

/* ^C ends a wait. */
E2E(interrupted)
{
    struct line l = line_begin();
    kill(l.b, SIGINT);
    assert_int_equal(await_child(l.b), 1000 + SIGINT);
    AWAIT(job_gone("b"));
    json_decref(load_end("a", l.a));
}

/* A killed daemon's successor has the line as it was. */
E2E(daemon_killed)
{
    struct line l = line_begin();
    pid_t c = load("c");
    await_queued("c", 1);
    ceded_kill(&l.d);
    nap_ms(1500); /* those that wait have found out */
    ceded_start();
    await_queued("b", 0);
    await_queued("c", 1);
    line_end(&l);
    await_running("c");
    json_decref(load_end("c", c));
}

/* A successor that knows of nobody hears from those that wait. */
E2E(journal_lost)
{
    struct line l = line_begin();
    ceded_kill(&l.d);
    assert_int_equal(unlink(in_dir("journal")), 0);
    ceded_start();
    await_queued("b", 0);
    assert_true(job_gone("a"));
    assert_string_equal(contents("b.out"), "");
    line_end(&l);
}

/* Where nobody starts another daemon, one that waits does. */
E2E(daemon_gone)
{
    struct line l = line_begin();
    ceded_kill(&l.d);
    await_queued("b", 0);
    assert_string_equal(contents("b.out"), "");
    line_end(&l);
}

int main(void)
{
    return e2e_at_once();
}
