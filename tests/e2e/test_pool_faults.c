/* `cede run --pool`: whatever of a pool is killed or fails, the next program has one. */
#include <sys/resource.h>

#include "pool.h"

static void killed(void **state)
{
    (void)state;
    configure(20, "");
    struct ceded d = ceded_start();
    /* The runner: its program is in the pool still. */
    pid_t a = IN_POOL("a", "sh", "-c", "echo $$ > $CEDE_DIR/a.pid; exec sleep 1000");
    assert_true(EVENTUALLY(*pool_file("../a.pid")));
    pid_t program = program_of(a), control = pid_of("control");
    kill(a, SIGKILL);
    await_child(a);
    nap_ms(4000);
    assert_int_not_equal(process_state(control), 0);
    /* The keeper: the next user starts another, and the same daemon serves. */
    pid_t old = keeper();
    assert_int_not_equal(old, 0);
    kill(old, SIGKILL);
    await_child(old);
    pid_t b = IN_POOL("b", "sleep", "1000");
    assert_true(EVENTUALLY(keeper()));
    assert_int_equal(begun(), 1);
    assert_int_equal(pid_of("control"), control);
    /* The server: the others' programs fail by themselves; what happened is said. */
    pid_t c = IN_POOL("c", "sh", "-c",
                      "cd $CUDA_MPS_PIPE_DIRECTORY; until [ -s ../faults ]; do "
                      "kill -9 $(cat server); sleep 0.4; done; exit 3");
    assert_int_equal(await_child(c), 3);
    assert_non_null(
        strstr(contents("c.err"), "the pool of 'sh' failed while it ran: its MPS server"));
    /* The control daemon: the next has a new one. */
    kill(control, SIGKILL);
    await_state(control, "Z");
    pid_t e = IN_POOL("e", "true");
    assert_int_equal(await_child(e), 0);
    assert_int_equal(begun(), 2);
    assert_int_not_equal(pid_of("control"), control);
    kill(program, SIGKILL);
    kill(program_of(b), SIGKILL);
    await_child(b);
    assert_true(EVENTUALLY(is_over()));
    ceded_stop(&d);
}

/* Who begins the pool is killed meanwhile: the next waits until it is there, and it ends. */
static void killed_at_its_beginning(void **state)
{
    (void)state;
    configure(20, "");
    struct ceded d = ceded_start();
    stand_in("slow");
    pid_t a = IN_POOL("a", "true");
    assert_true(EVENTUALLY(pid_of("control")));
    kill(a, SIGKILL);
    await_child(a);
    pid_t b = IN_POOL("b", "sh", "-c", "test -e $CUDA_MPS_PIPE_DIRECTORY/control");
    assert_int_equal(await_child(b), 0);
    assert_string_equal(contents("b.err"), "");
    assert_int_equal(begun(), 1);
    assert_true(EVENTUALLY(is_over()));
    assert_true(EVENTUALLY(!keeper()));
    ceded_stop(&d);
}

/* The next has a control daemon that stays. */
static void keeper_killed_while_it_ends_all(void **state)
{
    (void)state;
    configure(20, "");
    struct ceded d = ceded_start();
    stand_in("lingers");
    CEDE("run", "-c", "batch", "--pool", "--", "true");
    const pid_t control = pid_of("control"), k = keeper();
    assert_true(EVENTUALLY(pool_has("mps/quitting")));
    kill(k, SIGKILL);
    await_child(k);
    CEDE("run", "-c", "batch", "--pool", "--", "sh", "-c", "cat $CUDA_MPS_PIPE_DIRECTORY/pid");
    assert_string_equal(result.err, "");
    assert_int_not_equal(strtol(result.out, NULL, 10), control);
    assert_int_equal(begun(), 2);
    assert_true(EVENTUALLY(is_over()));
    ceded_stop(&d);
}

/* The pool ends all the same, and the next one begins. */
static void order_to_end_is_lost(void **state)
{
    (void)state;
    configure(20, "");
    struct ceded d = ceded_start();
    stand_in("loses");
    CEDE("run", "-c", "batch", "--pool", "--", "true");
    assert_true(EVENTUALLY(!pool_has("mps/loses")));
    assert_true(EVENTUALLY(is_over()));
    CEDE("run", "-c", "batch", "--pool", "--", "true");
    assert_string_equal(result.err, "");
    assert_int_equal(begun(), 2);
    assert_true(EVENTUALLY(is_over()));
    ceded_stop(&d);
}

/* MPS' own ends with its control daemon, unless it cannot. */
static void server_that_hangs(void **state)
{
    (void)state;
    configure(20, "");
    struct ceded d = ceded_start();
    stand_in("hangs");
    pid_t a = IN_POOL("a", "sleep", "1000"), program = program_of(a), server;
    assert_true(EVENTUALLY((server = pid_of("mps/server"))));
    nap_ms(1000); /* it was seen */
    kill(pid_of("control"), SIGKILL);
    await_state(server, "Z");
    kill(program, SIGKILL);
    await_child(a);
    ceded_stop(&d);
}

/* An end that nobody could have suffered from is not the next one's. */
static void server_ended_while_empty(void **state)
{
    (void)state;
    configure(20, "");
    struct ceded d = ceded_start();
    CEDE("run", "-c", "batch", "--pool", "--", "sleep", "0.6");
    nap_ms(500);
    const pid_t server = pid_of("mps/server");
    kill(server, SIGKILL);
    assert_true(EVENTUALLY(pid_of("mps/server") != server));
    pid_t b = IN_POOL("b", "sh", "-c", "sleep 0.6; exit 3");
    assert_int_equal(await_child(b), 3);
    assert_string_equal(contents("b.err"), "");
    ceded_stop(&d);
}

/* What cannot be looked for is not forgotten. */
static void keeper_without_descriptors(void **state)
{
    (void)state;
    struct rlimit before, none;
    configure(20, "");
    struct ceded d = ceded_start();
    pid_t a =
        IN_POOL("a", "sh", "-c",
                "until [ -s $CUDA_MPS_PIPE_DIRECTORY/../faults ]; do sleep 0.1; done; exit 3");
    assert_true(EVENTUALLY(pid_of("mps/server")));
    nap_ms(1000);
    assert_int_equal(prlimit(keeper(), RLIMIT_NOFILE, NULL, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(prlimit(keeper(), RLIMIT_NOFILE, &none, NULL), 0);
    nap_ms(500);
    kill(pid_of("mps/server"), SIGKILL);
    nap_ms(500);
    assert_int_equal(prlimit(keeper(), RLIMIT_NOFILE, &before, NULL), 0);
    assert_int_equal(await_child(a), 3);
    assert_non_null(strstr(contents("a.err"), "its MPS server"));
    ceded_stop(&d);
}

static void logs_are_bounded(void **state)
{
    (void)state;
    configure(20, "");
    struct ceded d = ceded_start();
    pid_t a = IN_POOL("a", "sh", "-c",
                      "cd $CUDA_MPS_LOG_DIRECTORY; for f in control.err server.log; do "
                      "head -c 2000000 /dev/zero >>$f; while [ $(stat -c %s $f) -gt 1048576 ]; do "
                      "sleep 0.1; done; done");
    assert_int_equal(await_child(a), 0);
    ceded_stop(&d);
}

/* A client's fault is all clients': each is told what happened, and the next has a new server. */
static void fault_of_a_client(void **state)
{
    (void)state;
    configure(20, "");
    struct ceded d = ceded_start();
    pid_t outside = SPAWN("outside", "cede", "run", "-q", "--", harness_exe(), "load", "latency",
                          "--device", "soft", "--name", "outside", "--verify");
    pid_t a = IN_POOL("a", harness_exe(), "load", "batch", "--device", "soft");
    await_progress((pid_t[]){program_of(a)}, 1);
    const pid_t server = pid_of("mps/server");
    nap_ms(500);
    /* The stand-in logs what is written to that pipe. */
    pid_t b = IN_POOL("b", "sh", "-c",
                      "echo \"Client {PID: $$, Context: 1} encountered a fatal GPU error.\" "
                      ">$CUDA_MPS_PIPE_DIRECTORY/log; CEDE_SOFT_FAULT=99 exec $CEDE_EXE load batch "
                      "--device soft");
    assert_int_equal(await_child(a), 1);
    assert_int_equal(await_child(b), 1);
    assert_non_null(strstr(contents("a.err"), "the pool of '"));
    assert_non_null(strstr(contents("a.err"), "caused a fatal error on the GPU"));
    assert_non_null(strstr(contents("b.err"), "caused a fatal error on the GPU"));
    CEDE("run", "-q", "-c", "batch", "--pool", "--", "cat", pool_path("mps/server"));
    assert_string_equal(result.err, "");
    assert_int_not_equal(strtol(result.out, NULL, 10), server);
    assert_null(strstr(pool_file("faults"), "its MPS server"));
    json_decref(load_end("outside", outside));
    assert_true(EVENTUALLY(is_over()));
    ceded_stop(&d);
}

int main(void)
{
    use_stand_in();
    const struct CMUnitTest tests[] = {e2e(killed),
                                       e2e(killed_at_its_beginning),
                                       e2e(keeper_killed_while_it_ends_all),
                                       e2e(order_to_end_is_lost),
                                       e2e(server_that_hangs),
                                       e2e(server_ended_while_empty),
                                       e2e(keeper_without_descriptors),
                                       e2e(logs_are_bounded),
                                       e2e(fault_of_a_client)};
    return e2e_at_once(tests, ARRAY_SIZE(tests));
}
