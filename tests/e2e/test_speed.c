/* How fast each of two batch jobs goes that share the software GPU in space, as `cede ps` has it,
 * told from the GPU's counters. Each queues so much that neither waits for a processor, and less
 * than ends while a measurement settles. What counters show of jobs that are slowed down, or that
 * are alike: sched_speeds and engine_speeds. */
#include <math.h>

#include "pool.h"

static const char *const names[] = {"a", "b"};

struct told {
    double speed[2], error[2];
};

/* False: one is not told, or measured just now. */
static bool all_told(struct told *out)
{
    bool all = true;
    for (int i = 0; i < 2; i++) {
        json_t *job = job_named(names[i]), *speed = value_at(job, "mps.speed");
        all &= json_is_number(speed) && json_is_false(value_at(job, "mps.profiling"));
        out->speed[i] = json_number_value(speed);
        out->error[i] = json_number_value(value_at(job, "mps.speed_error"));
        json_decref(job);
    }
    return all;
}

static bool is_close(double a, double b)
{
    return fabs(a - b) < 0.08;
}

/* On a machine that is too busy to keep a program's queue filled, what it does alone is measured
 * too low. Never the reverse; so what was not told right is measured again. */
#define ATTEMPTS 4

/* Kernels that need all SMs run one after the other, in the order in which they came: who queues
 * twice as many gets twice as much. */
static bool counted(void)
{
    pid_t p[2];
    struct told t;
    double busy[2] = {0};
    mps_server("server");
    p[0] = LOAD("a", "batch", "--kernel-us", "1000", "--depth", "40", "--uses",
                "tensor16=0.8,dram=0.2");
    p[1] =
        LOAD("b", "batch", "--kernel-us", "1000", "--depth", "20", "--uses", "fp32=0.5,dram=0.6");
    mps_server(NULL);
    AWAIT(all_have_contexts(p, 2));
    struct ceded d = ceded_start();
    CEDE("set", pid_text(p[0]), pid_text(p[1]), "-c", "batch");
    bool right = false;
    for (int i = 0; i < 40 && !right; i++) {
        bool told = all_told(&t);
        measure(p, 2, 500, busy);
        right = told && t.error[0] < 0.15 && t.error[1] < 0.15 &&
                is_close(t.speed[0] + t.speed[1], 1) && t.speed[0] > 1.4 * t.speed[1] &&
                is_close(t.speed[0], busy[0] / (busy[0] + busy[1]));
    }
    ceded_stop(&d);
    loads_end(2, names, p);
    return right;
}

E2E(as_was_counted)
{
    in_some_attempt(ATTEMPTS, counted);
}

static bool in_turns(void)
{
    return job_int("a", "mps.turns");
}

/* In a pool: one that did little beside another does not join it again; another program does. */
static bool lost_there(void)
{
    static const char out[] = "takes turns instead of joining the pool: beside what runs there";
#define BATCH(depth, uses)                                                                         \
    harness_exe(), "load", "batch", "--device", "soft", "--kernel-us", "1000", "--depth", depth,   \
        "--uses", uses
    struct ceded d = ceded_start();
    pid_t a = IN_POOL("a", BATCH("40", "tensor16=0.8,dram=0.2"));
    pid_t b = IN_POOL("b", BATCH("3", "fp32=0.5,dram=0.6"));
    bool lost = EVENTUALLY(in_turns());
    kill(b, SIGTERM);
    assert_int_equal(await_child(b), 0);
    assert_string_equal(contents("b.err"), "");
    if (lost) {
        b = IN_POOL("b", BATCH("3", "fp32=0.5,dram=0.6"));
        AWAIT(job_int("b", "timeslice_us") > 0);
        assert_int_equal(unit_of_job("b"), 0);
        assert_non_null(strstr(contents("b.err"), out));
        kill(b, SIGTERM);
        assert_int_equal(await_child(b), 0);
        CEDE("run", "-q", "-c", "batch", "--pool", "-n", "b", "--", "sh", "-c",
             "echo .$CUDA_MPS_PIPE_DIRECTORY");
        assert_string_not_equal(result.out, ".\n"); /* another program */
    }
    kill(a, SIGTERM);
    assert_int_equal(await_child(a), 0);
    ceded_stop(&d);
    return lost;
}

E2E(lost_there_before)
{
    use_stand_in();
    in_some_attempt(ATTEMPTS, lost_there);
}
