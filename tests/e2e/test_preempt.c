/* Jobs that are preempted at block ends: what the device has is what was asked for and nothing
 * more, whoever dies, and what is refused is said. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/soft/proto.h"
#include "fixture.h"

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

static bool is_active(const char *name)
{
    json_t *job = job_named(name);
    bool is = json_is_true(json_object_get(job, "preempt_active"));
    json_decref(job);
    return is;
}

static void set_and_restored(void **state)
{
    (void)state;
    struct ceded d = ceded_start();
    pid_t runner = SPAWN("b", "cede", "run", "--strict", "-c", "batch", "--preempt", "block", "-n",
                         "b", "--", harness_exe(), "load", "batch", "--device", "soft", "--verify");
    pid_t program = 0, plain = LOAD("plain", "batch");
    assert_true(EVENTUALLY(is_active("b")));
    assert_int_equal(children_of(runner, &program, 1), 1);
    assert_true(job_is("b", "preempt", "block") && at_block_ends(program));
    CEDE("ps");
    assert_non_null(strstr(result.err, "preempted at block ends: #"));

    /* Another one, later; its own user takes it back. */
    CEDE("set", pid_text(plain), "-c", "batch", "--preempt", "block");
    assert_true(EVENTUALLY(at_block_ends(plain)));
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
    assert_true(EVENTUALLY(at_block_ends(program) && at_block_ends(plain)));
    CEDE("set", "plain", "-c", "none");
    assert_false(at_block_ends(plain));
    ceded_stop(&d);
    assert_false(at_block_ends(program));
    json_decref(load_end("plain", plain));
    json_decref(load_end("b", runner));
}

#define REFUSED(code, says, ...)                                                                   \
    do {                                                                                           \
        RUN(&result, "cede", __VA_ARGS__);                                                         \
        if (status_of(result.status) != (code) || !strstr(result.err, says))                       \
            fail_msg("status %d: %s", status_of(result.status), result.err);                       \
    } while (0)

static void refused(void **state)
{
    (void)state;
    char dir[128];
    pid_t plain = LOAD("plain", "batch");
    assert_true(EVENTUALLY(all_have_contexts(&plain, 1)));
    REFUSED(1, "requires a daemon", "set", pid_text(plain), "-c", "batch", "--preempt", "block");
    REFUSED(2, "not block or instruction", "run", "--preempt", "kernel", "true");
    REFUSED(2, "give it class batch", "run", "--preempt", "block", "true");
    REFUSED(2, "give it class batch", "set", "1", "-c", "latency", "--preempt", "block");
    REFUSED(2, "pool", "run", "-c", "batch", "--pool", "--preempt", "block", "true");
    REFUSED(2, "no preemption mode", "set", "1", "-c", "none", "--preempt", "block");

    struct ceded d = ceded_start();
    snprintf(dir, sizeof(dir), "%s", harness_dir());
    setenv("CUDA_MPS_PIPE_DIRECTORY", dir, 1);
    pid_t client = LOAD("client", "batch");
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    CEDE("set", pid_text(plain), "-c", "normal");
    REFUSED(1, "this is a normal job", "set", "plain", "--preempt", "block");
    assert_true(EVENTUALLY(all_have_contexts(&client, 1)));
    CEDE("set", pid_text(client), "-c", "batch");
    REFUSED(1, "MPS server", "set", "client", "--preempt", "block");
    assert_false(at_block_ends(client) || at_block_ends(plain));
    ceded_stop(&d);
    json_decref(load_end("client", client));
    json_decref(load_end("plain", plain));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        e2e(set_and_restored),
        e2e(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
