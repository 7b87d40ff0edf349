/* `cede run --pool`: whatever of a pool is killed or fails, the next program has one. */
#include <sys/resource.h>

#include "pool.h"

E2E(killed)
{
    ceded_start();
    /* The runner: its program is in the pool still. */
    pid_t a = IN_POOL("a", "sh", "-c", "echo $$ > $CEDE_DIR/a.pid; exec sleep 1000");
    AWAIT(*pool_file("../a.pid"));
    pid_t program = program_of(a), control = pid_of("control");
    slay_child(a);
    nap_ms(4000);
    assert_int_not_equal(process_state(control), 0);
    /* The keeper: the next user starts another, and the same daemon serves. */
    pid_t old = keeper();
    assert_int_not_equal(old, 0);
    slay_child(old);
    pid_t b = IN_POOL("b", "sleep", "1000");
    AWAIT(keeper());
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
    assert_true(EVENTUALLY(strchr("Z", process_state(control)))); /* or it is reaped already */
    pid_t e = IN_POOL("e", "true");
    assert_int_equal(await_child(e), 0);
    assert_int_equal(begun(), 2);
    assert_int_not_equal(pid_of("control"), control);
    kill(program, SIGKILL);
    kill(program_of(b), SIGKILL);
    await_child(b);
    AWAIT(is_over());
}

/* Who begins the pool is killed meanwhile: the next waits until it is there, and it ends. */
E2E(killed_at_its_beginning)
{
    ceded_start();
    stand_in("slow");
    pid_t a = IN_POOL("a", "true");
    AWAIT(pid_of("control"));
    slay_child(a);
    pid_t b = IN_POOL("b", "sh", "-c", "test -e $CUDA_MPS_PIPE_DIRECTORY/control");
    assert_int_equal(await_child(b), 0);
    assert_string_equal(contents("b.err"), "");
    assert_int_equal(begun(), 1);
    AWAIT(is_over());
    AWAIT(!keeper());
}

/* The next has a control daemon that stays. */
E2E(keeper_killed_while_it_ends_all)
{
    ceded_start();
    stand_in("lingers");
    CEDE("run", "-c", "batch", "--pool", "--", "true");
    const pid_t control = pid_of("control"), k = keeper();
    AWAIT(pool_has("mps/quitting"));
    slay_child(k);
    CEDE("run", "-c", "batch", "--pool", "--", "sh", "-c", "cat $CUDA_MPS_PIPE_DIRECTORY/pid");
    assert_string_equal(result.err, "");
    assert_int_not_equal(strtol(result.out, NULL, 10), control);
    assert_int_equal(begun(), 2);
    AWAIT(is_over());
}

/* The pool ends all the same, and the next one begins. */
E2E(order_to_end_is_lost)
{
    ceded_start();
    stand_in("loses");
    CEDE("run", "-c", "batch", "--pool", "--", "true");
    AWAIT(!pool_has("mps/loses"));
    AWAIT(is_over());
    CEDE("run", "-c", "batch", "--pool", "--", "true");
    assert_string_equal(result.err, "");
    assert_int_equal(begun(), 2);
    AWAIT(is_over());
}

/* MPS' own ends with its control daemon, unless it cannot. */
E2E(server_that_hangs)
{
    ceded_start();
    stand_in("hangs");
    pid_t a = IN_POOL("a", "sleep", "1000"), program = program_of(a), server;
    AWAIT((server = pid_of("mps/server")));
    nap_ms(1000); /* it was seen */
    kill(pid_of("control"), SIGKILL);
    assert_true(EVENTUALLY(strchr("Z", process_state(server)))); /* or it is reaped already */
    kill(program, SIGKILL);
    await_child(a);
}

/* An end that nobody could have suffered from is not the next one's. */
E2E(server_ended_while_empty)
{
    ceded_start();
    CEDE("run", "-c", "batch", "--pool", "--", "sleep", "0.6");
    nap_ms(500);
    const pid_t server = pid_of("mps/server");
    kill(server, SIGKILL);
    AWAIT(pid_of("mps/server") != server);
    pid_t b = IN_POOL("b", "sh", "-c", "sleep 0.6; exit 3");
    assert_int_equal(await_child(b), 3);
    assert_string_equal(contents("b.err"), "");
}

/* What cannot be looked for is not forgotten. */
E2E(keeper_without_descriptors)
{
    struct rlimit before, none;
    ceded_start();
    pid_t a =
        IN_POOL("a", "sh", "-c",
                "until [ -s $CUDA_MPS_PIPE_DIRECTORY/../faults ]; do sleep 0.1; done; exit 3");
    AWAIT(pid_of("mps/server"));
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
}

/* A user's directory is removed at logout; the pool ends after its last program all the same. */
E2E(directory_removed)
{
    ceded_start();
    pid_t a = IN_POOL("a", "sleep", "1000"), program = program_of(a);
    AWAIT(pid_of("mps/server"));
    const pid_t control = pid_of("control"), server = pid_of("mps/server");
    RUN(&result, "rm", "-r", pool_path(""));
    assert_int_equal(status_of(result.status), 0);
    nap_ms(500);
    assert_int_not_equal(process_state(control), 0);
    kill(program, SIGKILL);
    await_child(a);
    AWAIT(!keeper() && !process_state(control) && !process_state(server));
}

E2E(logs_are_bounded)
{
    ceded_start();
    pid_t a = IN_POOL("a", "sh", "-c",
                      "cd $CUDA_MPS_LOG_DIRECTORY; for f in control.err server.log; do "
                      "head -c 2000000 /dev/zero >>$f; while [ $(stat -c %s $f) -gt 1048576 ]; do "
                      "sleep 0.1; done; done");
    assert_int_equal(await_child(a), 0);
}

/* A client's fault is all clients': each is told what happened, and the next has a new server. */
E2E(fault_of_a_client)
{
    ceded_start();
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
    CEDE("run", "-q", "-c", "batch", "--pool", "--", "true");
    assert_string_equal(result.err, "");
    AWAIT(pid_of("mps/server") > 0 && pid_of("mps/server") != server);
    assert_null(strstr(pool_file("faults"), "its MPS server"));
    json_decref(load_end("outside", outside));
    AWAIT(is_over());
}

int main(void)
{
    use_stand_in();
    return e2e_at_once();
}
