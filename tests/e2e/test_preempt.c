/* Jobs that are preempted at block ends: what the device has is what was asked for and nothing
 * more, whoever dies, and what is refused is said. */
#include "fixture.h"
#include "gpu/soft/proto.h"

/* What the software GPU itself says of the process's compute group. */
static bool at_block_ends(pid_t pid)
{
    struct soft_msg m = {.type = SOFT_OPEN_CONTROL};
    bool is = false;
    int fd;
    assert_int_equal(soft_connect(getenv("CEDE_SOFT_SOCKET"), &m, &fd, NULL), 0);
    m = (struct soft_msg){.type = SOFT_LIST, .u.list = {.compute_only = true}};
    assert_int_equal(soft_transact(fd, &m, SOFT_GROUPS), 0);
    for (uint32_t i = 0; i < m.u.groups.n; i++)
        is |= m.u.groups.v[i].pid == pid && m.u.groups.v[i].block_ends;
    close(fd);
    return is;
}

E2E(set_and_restored)
{
    struct ceded d = ceded_start();
    pid_t runner = SPAWN("b", "cede", "run", "--strict", "-c", "batch", "--preempt", "block", "-n",
                         "b", "--", harness_exe(), "load", "batch", "--device", "soft", "--verify");
    pid_t program = 0, plain = LOAD("plain", "batch");
    AWAIT(job_int("b", "preempt_active"));
    assert_int_equal(children_of(runner, &program, 1), 1);
    assert_true(job_is("b", "preempt", "block") && at_block_ends(program));
    CEDE("ps");
    assert_non_null(strstr(result.err, "preempted at block ends: #"));

    /* Another one, later; its own user takes it back. It has its name by then. */
    AWAIT(all_have_contexts(&plain, 1));
    CEDE("set", pid_text(plain), "-c", "batch", "--preempt", "block");
    AWAIT(at_block_ends(plain));
    CEDE("set", "plain", "--preempt", "instruction");
    assert_false(at_block_ends(plain));
    CEDE("set", "plain", "--preempt", "block");
    assert_true(at_block_ends(plain));
    CEDE("set", "plain", "-c", "normal");
    assert_false(at_block_ends(plain));
    CEDE("set", "plain", "-c", "batch");
    assert_false(at_block_ends(plain));
    CEDE("set", "plain", "--preempt", "block");

    ceded_kill(&d);
    assert_false(at_block_ends(program) || at_block_ends(plain));
    assert_int_equal(records(NULL), 0);
    d = ceded_start();
    AWAIT(at_block_ends(program) && at_block_ends(plain));
    CEDE("set", "plain", "-c", "none");
    assert_false(at_block_ends(plain));
    ceded_stop(&d);
    assert_false(at_block_ends(program));
    json_decref(load_end("plain", plain));
    json_decref(load_end("b", runner));
}

E2E(refused)
{
    pid_t plain = LOAD("plain", "batch");
    AWAIT(all_have_contexts(&plain, 1));
    FAILS(2, "not block or instruction", "run", "--preempt", "kernel", "true");
    FAILS(2, "give it class batch", "run", "--preempt", "block", "true");
    FAILS(2, "give it class batch", "set", "1", "-c", "latency", "--preempt", "block");
    FAILS(2, "pool", "run", "-c", "batch", "--pool", "--preempt", "block", "true");
    FAILS(2, "takes no preempt", "set", "1", "-c", "none", "--preempt", "block");

    struct ceded d = ceded_start();
    mps_server("server");
    pid_t client = LOAD("client", "batch");
    mps_server(NULL);
    CEDE("set", pid_text(plain), "-c", "normal");
    FAILS(1, "this is a normal job", "set", "plain", "--preempt", "block");
    AWAIT(all_have_contexts(&client, 1));
    CEDE("set", pid_text(client), "-c", "batch");
    FAILS(1, "MPS server", "set", "client", "--preempt", "block");
    assert_false(at_block_ends(client) || at_block_ends(plain));
    ceded_stop(&d);
    json_decref(load_end("client", client));
    json_decref(load_end("plain", plain));
}
