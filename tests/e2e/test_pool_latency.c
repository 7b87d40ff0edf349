/* `cede run -c latency --pool`: a latency job in space with batch jobs, which start with a part of
 * the multiprocessors and the lower priority. */
#include "pool.h"

#define TERMS "echo $CUDA_MPS_CLIENT_PRIORITY:$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE."

/* What a program is started with. */
#define expect_terms(terms, ...)                                                                   \
    do {                                                                                           \
        CEDE("run", "-q", __VA_ARGS__, "--", "sh", "-c", TERMS);                                   \
        assert_string_equal(result.out, terms "\n");                                               \
    } while (0)

static pid_t latency_in_pool(void)
{
    pid_t runner = SPAWN("serve", "cede", "run", "-q", "-c", "latency", "--pool", "-n", "serve",
                         "--", "sleep", "1000");
    program_of(runner);
    return runner;
}

static void end_runner(pid_t runner)
{
    kill(runner, SIGTERM);
    await_child(runner);
}

E2E(terms_of_clients)
{
    ceded_start();
    expect_terms(":.", "-c", "batch", "--pool");
    expect_terms("0:.", "-c", "latency", "--pool");
    expect_terms("0:40.", "-c", "latency", "--pool", "--sm", "40");
    /* Latency jobs may join, as somebody says, or as there is one. */
    expect_terms("1:95.", "-c", "batch", "--pool=latency");
    setenv("CEDE_POOL", "latency", 1);
    expect_terms("1:95.", "-c", "batch");
    unsetenv("CEDE_POOL");
    pid_t serve = latency_in_pool();
    expect_terms("1:95.", "-c", "batch", "--pool");
    expect_terms("1:95.", "-c", "batch", "--pool", "--sm", "97%");
    expect_terms("1:30.", "-c", "batch", "--pool", "--sm", "30%");
    setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "12.5", 1);
    expect_terms("1:12.5.", "-c", "batch", "--pool");
    expect_terms("1:30.", "-c", "batch", "--pool", "--sm", "30%");
    setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "97", 1);
    expect_terms("1:95.", "-c", "batch", "--pool");
    unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    end_runner(serve);
    expect_terms(":.", "-c", "batch", "--pool");
}

E2E(terms_by_configuration)
{
    set_device("soft\npool = latency\npool_latency_sm = 75%");
    configure(20, "");
    struct ceded d = ceded_start();
    expect_terms("1:75.", "-c", "batch");
    expect_terms(":.", "-c", "latency"); /* that has to be asked for */
    ceded_stop(&d);
    set_device("soft\npool = batch\npool_latency_sm = 100");
    configure(20, "");
    d = ceded_start();
    expect_terms(":.", "-c", "batch");
    expect_terms("1:.", "-c", "batch", "--pool=latency");
    expect_terms("1:30.", "-c", "batch", "--pool=latency", "--sm", "30");
}

/* A batch job that runs already cannot be limited any more. */
E2E(note_of_batch_jobs_without_limit)
{
    static const char said[] = "note: batch jobs that are in this pool already use all";
    ceded_start();
    pid_t a =
        SPAWN("a", "cede", "run", "-q", "-c", "batch", "--pool=latency", "--", "sleep", "1000");
    program_of(a);
    CEDE("run", "-c", "latency", "--pool", "--", "true");
    assert_string_equal(result.err, "");
    pid_t b = IN_POOL("b", "sleep", "1000");
    program_of(b);
    CEDE("run", "-c", "latency", "--pool", "--", "true");
    assert_non_null(strstr(result.err, said));
    end_runner(b);
    CEDE("run", "-c", "latency", "--pool", "--", "true");
    assert_string_equal(result.err, "");
    end_runner(a);
}

/* Where there can be no pool a latency job is not run, and it is said what to type. */
E2E(without)
{
    ceded_start();
    RUN(&result, "env", "PATH=/usr/bin:/bin", harness_exe(), "run", "-c", "latency", "--pool", "--",
        "echo", "ran");
    assert_int_equal(status_of(result.status), 2);
    assert_string_equal(result.out, "");
    assert_non_null(strstr(result.err,
                           "'echo' was not run: there is no nvidia-cuda-mps-control in "
                           "an absolute directory of $PATH; leave out --pool to share"));
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/else", 1);
    FAILS(2, "CUDA_MPS_PIPE_DIRECTORY is set: that MPS is used; leave out --pool", "run", "-c",
          "latency", "--pool", "--", "echo", "ran");
    assert_string_equal(result.out, "");
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    FAILS(2, "give -c batch or -c latency too", "run", "--pool", "--", "echo", "ran");
    assert_string_equal(result.out, "");
    FAILS(2, "pool: 'batch' is not latency, its only value: --pool=latency", "run", "-c", "batch",
          "--pool=batch", "--", "echo", "ran");
    assert_string_equal(result.out, "");
    FAILS(2, "sm: '0' is not a percentage from 1% to 100%", "run", "-c", "latency", "--pool",
          "--sm", "0", "--", "echo", "ran");
    assert_string_equal(result.out, "");
    assert_int_equal(begun(), 0);
}

int main(void)
{
    use_stand_in();
    return e2e_at_once();
}
