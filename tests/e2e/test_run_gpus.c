/* `cede run --gpus`: where jobs land on a server with several software GPUs. Loads use the GPU that
 * their environment leaves them, so what ceded then sees of them is what it has chosen. Which GPU
 * is chosen, and why: sched_placement_choice, engine_placement and api_visible_devices; what is
 * said: cli_run_gpus. */
#include "fixture.h"

#define JOBS 6

static pid_t pids[JOBS];
static char names[JOBS][16];

/* bytes: of each GPU's memory. */
static void begin_with(const char *gpus, const char *bytes)
{
    REPLACE_GPU("--gpus", gpus, "--memory", bytes);
    for (int i = 0; i < JOBS; i++)
        snprintf(names[i], sizeof(names[i]), "job%d", i);
}

static pid_t start(const char *name, const char *gpus, const char *load_gpus)
{
    return SPAWN(name, "cede", "run", "-q", "--gpu-device", "soft", "-c", "batch", "--gpus", gpus,
                 "-n", name, "--", harness_exe(), "load", "batch", "--device", "soft", "--verify",
                 "--kernel-us", "2000", load_gpus ? "--gpus" : NULL, load_gpus);
}

/* Bit map of the GPUs on which it has contexts. */
static unsigned gpus_of(const char *name)
{
    json_t *job = job_named(name), *gpus = json_object_get(job, "gpus");
    unsigned map = 0;
    for (size_t i = 0; i < json_array_size(gpus); i++)
        map |= 1U << json_integer_value(json_array_get(gpus, i));
    json_decref(job);
    return map;
}

/* A program that opens no GPU; what it has in the variable is in NAME.out. */
static pid_t start_idle(const char *name, const char *memory)
{
    return SPAWN(name, "cede", "run", "-q", "--gpus", "1", "-n", name, memory, "--", "sh", "-c",
                 "echo $CUDA_VISIBLE_DEVICES; exec sleep 1000");
}

static void await_visible(const char *name, const char *list)
{
    char file[32], line[64];
    snprintf(file, sizeof(file), "%s.out", name);
    snprintf(line, sizeof(line), "%s\n", list);
    AWAIT(strchr(contents(file), '\n'));
    assert_string_equal(contents(file), line);
}

static void stop(pid_t pid)
{
    kill(pid, SIGTERM);
    await_child(pid);
}

static void end(const char *name, pid_t pid)
{
    json_decref(load_end(name, pid));
    AWAIT(job_gone(name));
}

/* Six at one instant, by loads that use what they are given. */
E2E(spread)
{
    begin_with("2", "17179869184");
    ceded_start();
    unsigned on[4] = {0};
    for (int i = 0; i < 6; i++)
        pids[i] = start(names[i], "1", NULL);
    for (int i = 0; i < 6; i++) {
        AWAIT(gpus_of(names[i]));
        on[gpus_of(names[i]) & 3]++;
    }
    assert_int_equal(on[1], 3);
    assert_int_equal(on[2], 3);
    for (int i = 0; i < 6; i++)
        end(names[i], pids[i]);
}

/* What jobs said that they will take is not there for others: the fifth and the sixth wait for the
 * GPUs that were chosen for them, and the fifth goes where there is room first. */
E2E(memory)
{
    begin_with("3", "3221225472");
    ceded_start();
    for (int i = 0; i < 3; i++) {
        char gpu[16];
        pids[i] = start_idle(names[i], "--memory=2G");
        snprintf(gpu, sizeof(gpu), "SOFT-%d", i);
        await_visible(names[i], gpu);
    }
    pids[3] = start_idle("small", "--memory=500M");
    await_visible("small", "SOFT-0");
    for (int i = 1; i <= 2; i++) {
        char name[16], file[32], says[64];
        snprintf(name, sizeof(name), "queued%d", i);
        pids[3 + i] = SPAWN(name, "cede", "run", "--gpus", "1", "--memory", "2G", "-n", name, "--",
                            "sh", "-c", "echo $CUDA_VISIBLE_DEVICES");
        snprintf(file, sizeof(file), "%s.err", name);
        snprintf(says, sizeof(says), "waiting for 2.0 GiB on GPU %d", i);
        if (!EVENTUALLY(strstr(contents(file), says)))
            fail_msg("%s", contents(file));
        assert_true(job_is(name, "state", "queued"));
    }
    stop(pids[2]);
    for (int i = 2; i >= 1; i--) {
        assert_int_equal(await_child(pids[3 + i]), 0);
        assert_string_equal(contents(i == 1 ? "queued1.out" : "queued2.out"), "SOFT-2\n");
    }
    FAILS(2, "'true' was not run: GPU 2 has 3.0 GiB of memory in all", "run", "--gpus", "1",
          "--memory", "4G", "true");
    stop(pids[0]);
    stop(pids[1]);
    stop(pids[3]);
}

E2E(several)
{
    begin_with("2", "17179869184");
    ceded_start();
    pids[0] = start("gang", "2", "0,1");
    AWAIT(gpus_of("gang") == 3);
    assert_int_equal(job_count("gang", "placed.gpus"), 2);
    assert_true(job_is("gang", "placed.why", "there is no other choice"));
    FAILS(2, "'echo' was not run: 3 GPUs are wanted, and there are 2 (SOFT-0, SOFT-1)\n", "run",
          "--gpus", "3", "--", "echo", "ran");
    assert_string_equal(result.out, "");
    assert_true(job_gone("echo"));
    end("gang", pids[0]);
}

/* What the user has set is chosen from. */
E2E(restricted)
{
    begin_with("2", "17179869184");
    ceded_start();
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    for (int i = 0; i < 3; i++)
        pids[i] = start(names[i], "auto", NULL);
    FAILS(2, "2 GPUs are wanted, and CUDA_VISIBLE_DEVICES lists 1 (1)", "run", "--gpus", "2",
          "true");
    unsetenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; i < 3; i++)
        AWAIT(gpus_of(names[i]) == 2);
    for (int i = 0; i < 3; i++)
        end(names[i], pids[i]);
}

/* A name goes where it was, though another GPU has a lower number. */
E2E(names_return)
{
    begin_with("2", "17179869184");
    ceded_start();
    for (int i = 0; i < 2; i++) {
        pids[i] = start(names[i], "1", NULL);
        AWAIT(gpus_of(names[i]) == 1U << i);
    }
    for (int i = 0; i < 2; i++)
        end(names[i], pids[i]);
    pids[1] = start(names[1], "1", NULL);
    AWAIT(gpus_of(names[1]) == 2);
    assert_true(job_is(names[1], "placed.why", "a job of this name ran there last"));
    end(names[1], pids[1]);
}

/* Without a ceded one is started, which knows at once what others use. */
E2E(starts_a_ceded)
{
    begin_with("2", "17179869184");
    pids[0] = LOAD("other", "batch");
    await_progress(pids, 1);
    RUN(&result, "cede", "run", "-q", "--gpu-device", "soft", "--gpus", "auto", "--", "sh", "-c",
        "echo $CUDA_VISIBLE_DEVICES");
    assert_int_equal(status_of(result.status), 0);
    assert_string_equal(result.out, "SOFT-1\n");
    assert_string_equal(result.err, "");
    json_decref(load_end("other", pids[0]));
}
