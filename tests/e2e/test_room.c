/* Jobs that say how much GPU memory they will take, on a software GPU with 3 GiB: those that do not
 * fit wait in line before their programs are started, whoever is killed meanwhile. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixture.h"

#define GPU_BYTES "3221225472"
#define TWO_GIB   "2147483648"

static struct ceded room_begin(void)
{
    small_gpu(GPU_BYTES);
    return ceded_start();
}

/* `cede run` of a load that takes `bytes` and ends when it is asked to. */
static pid_t load(const char *name, const char *class, const char *says, const char *bytes)
{
    return SPAWN(name, "cede", "run", "-c", class, "-n", name, "--gpu-device", "soft", "--memory",
                 says, "--", harness_exe(), "load", "batch", "--device", "soft", "--kernel-us",
                 "2000", "--verify", "--memory", bytes);
}

static bool queued_at(const char *name, int place)
{
    json_t *job = job_named(name);
    const json_t *at = json_object_get(json_object_get(job, "memory"), "place");
    bool is = at && json_integer_value(at) == place;
    json_decref(job);
    return is;
}

static bool holds_memory(const char *name)
{
    return job_int(name, "memory_bytes") > 0;
}

static void await_queued(const char *name, int place)
{
    if (!EVENTUALLY(queued_at(name, place)))
        fail_msg("%s does not wait at place %d", name, place);
    assert_true(job_is(name, "state", "queued"));
}

/* It has taken its memory, or the load would have failed. */
static void await_running(const char *name)
{
    if (!EVENTUALLY(holds_memory(name)))
        fail_msg("%s does not run", name);
}

/* A load that is done, without a failure. */
static void end_load(const char *name, pid_t runner)
{
    kill(runner, SIGTERM);
    assert_int_equal(await_child(runner), 0);
    json_t *done = load_final(name);
    assert_true(json_is_true(json_object_get(done, "verified")));
    json_decref(done);
}

static void one_after_the_other(void **state)
{
    (void)state;
    struct ceded d = room_begin();
    pid_t a = load("a", "batch", "2G", TWO_GIB);
    await_running("a");
    assert_string_equal(contents("a.err"), ""); /* there was room, and nothing to say */
    pid_t b = load("b", "batch", "2G", TWO_GIB);
    await_queued("b", 0);
    assert_true(EVENTUALLY(strstr(contents("b.err"), "waiting for 2.0 GiB on GPU 0")));
    assert_non_null(strstr(contents("b.err"), "memory is held or reserved by: #1 a"));
    CEDE("ps");
    assert_non_null(strstr(result.out, " queued "));
    assert_non_null(strstr(result.out, "-/2.0G"));
    nap_ms(2500); /* the daemon has looked again */
    await_queued("b", 0);
    assert_string_equal(contents("b.out"), "");
    end_load("a", a);
    await_running("b");
    end_load("b", b);
    ceded_stop(&d);
}

/* What was said and has not been taken yet is not there for another. */
static void reserved(void **state)
{
    (void)state;
    struct ceded d = room_begin();
    pid_t first = SPAWN("first", "cede", "run", "-n", "first", "--memory", "2G", "sleep", "600");
    assert_true(EVENTUALLY(job_is("first", "state", "starting")));
    pid_t second = SPAWN("second", "cede", "run", "-n", "second", "--memory", "2G", "echo", "ran");
    await_queued("second", 0);
    nap_ms(2500);
    await_queued("second", 0);
    /* One that waits only so long runs anyway, or not. */
    RUN(&result, "cede", "run", "-q", "--memory", "2G", "--wait", "300ms", "echo", "late");
    assert_int_equal(status_of(result.status), 0);
    assert_string_equal(result.out, "late\n");
    assert_non_null(strstr(result.err, "runs anyway: 2.0 GiB were not free on GPU 0 within"));
    RUN(&result, "cede", "run", "--strict", "--memory", "2G", "--wait", "300ms", "echo", "late");
    assert_int_equal(status_of(result.status), 1);
    assert_string_equal(result.out, "");
    RUN(&result, "cede", "run", "-c", "batch", "--memory", "4G", "true");
    assert_int_equal(status_of(result.status), 2);
    assert_non_null(strstr(result.err, "GPU 0 has 3.0 GiB of memory in all: 4.0 GiB are 1.0 GiB"));
    kill(first, SIGTERM);
    assert_int_equal(await_child(first), 1000 + SIGTERM);
    assert_int_equal(await_child(second), 0);
    assert_string_equal(contents("second.out"), "ran\n");
    ceded_stop(&d);
}

/* By class, then first come; a small one does not overtake; who is killed leaves the line. */
static void in_line(void **state)
{
    (void)state;
    struct ceded d = room_begin();
    pid_t a = load("a", "batch", "2G", TWO_GIB);
    await_running("a");
    pid_t b = load("b", "batch", "2G", TWO_GIB);
    await_queued("b", 0);
    pid_t c = load("c", "batch", "2G", TWO_GIB);
    await_queued("c", 1);
    pid_t small = load("small", "batch", "100M", "104857600");
    await_queued("small", 2);
    pid_t normal = load("normal", "normal", "2G", TWO_GIB);
    await_queued("normal", 0);
    await_queued("b", 1);
    await_queued("small", 3);

    kill(b, SIGKILL);
    assert_int_equal(await_child(b), 1000 + SIGKILL);
    assert_true(EVENTUALLY(job_gone("b")));
    await_queued("c", 1);
    assert_string_equal(contents("b.out"), "");
    end_load("a", a);
    await_running("normal");
    assert_true(job_is("c", "state", "queued") && job_is("small", "state", "queued"));
    end_load("normal", normal);
    await_running("c"); /* and the small one beside it */
    await_running("small");
    end_load("c", c);
    end_load("small", small);
    ceded_stop(&d);
}

/* ^C ends a wait. */
static void interrupted(void **state)
{
    (void)state;
    struct ceded d = room_begin();
    pid_t a = load("a", "batch", "2G", TWO_GIB);
    await_running("a");
    pid_t b = load("b", "batch", "2G", TWO_GIB);
    await_queued("b", 0);
    kill(b, SIGINT);
    assert_int_equal(await_child(b), 1000 + SIGINT);
    assert_true(EVENTUALLY(job_gone("b")));
    end_load("a", a);
    ceded_stop(&d);
}

/* A killed daemon's successor has the line as it was. */
static void daemon_killed(void **state)
{
    (void)state;
    struct ceded d = room_begin();
    pid_t a = load("a", "batch", "2G", TWO_GIB);
    await_running("a");
    pid_t b = load("b", "batch", "2G", TWO_GIB);
    await_queued("b", 0);
    pid_t c = load("c", "batch", "2G", TWO_GIB);
    await_queued("c", 1);
    ceded_kill(&d);
    nap_ms(1500); /* those that wait have found out */
    d = ceded_start();
    await_queued("b", 0);
    await_queued("c", 1);
    end_load("a", a);
    await_running("b");
    await_queued("c", 0);
    end_load("b", b);
    await_running("c");
    end_load("c", c);
    ceded_stop(&d);
}

/* A successor that knows of nobody hears from those that wait. */
static void journal_lost(void **state)
{
    (void)state;
    char path[128];
    struct ceded d = room_begin();
    pid_t a = load("a", "batch", "2G", TWO_GIB);
    await_running("a");
    pid_t b = load("b", "batch", "2G", TWO_GIB);
    await_queued("b", 0);
    ceded_kill(&d);
    snprintf(path, sizeof(path), "%s/journal", cede_home());
    assert_int_equal(unlink(path), 0);
    d = ceded_start();
    await_queued("b", 0);
    assert_true(job_gone("a"));
    assert_string_equal(contents("b.out"), "");
    end_load("a", a);
    await_running("b");
    end_load("b", b);
    ceded_stop(&d);
}

/* Where nobody starts another daemon, one that waits does. */
static void daemon_gone(void **state)
{
    (void)state;
    struct ceded d = room_begin();
    pid_t a = load("a", "batch", "2G", TWO_GIB);
    await_running("a");
    pid_t b = load("b", "batch", "2G", TWO_GIB);
    await_queued("b", 0);
    ceded_kill(&d);
    await_queued("b", 0);
    assert_string_equal(contents("b.out"), "");
    end_load("a", a);
    await_running("b");
    end_load("b", b);
}

/* What it holds counts, not what it said. */
static void more_than_it_said(void **state)
{
    (void)state;
    struct ceded d = room_begin();
    pid_t a = load("a", "batch", "1G", TWO_GIB);
    await_running("a");
    assert_true(EVENTUALLY(({
        CEDE("ps");
        strstr(result.out, "2.0G/1.0G");
    })));
    pid_t b = load("b", "batch", "1500M", "1572864000");
    await_queued("b", 0);
    end_load("a", a);
    await_running("b");
    end_load("b", b);
    ceded_stop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        e2e(one_after_the_other), e2e(reserved),     e2e(in_line),     e2e(interrupted),
        e2e(daemon_killed),       e2e(journal_lost), e2e(daemon_gone), e2e(more_than_it_said)};
    return e2e_at_once(tests, ARRAY_SIZE(tests));
}
