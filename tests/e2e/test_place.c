/* `cede run --gpus`: where jobs land on a server with several software GPUs. Loads use the GPU that
 * their environment leaves them, so what ceded then sees of them is what it has chosen. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixture.h"

#define JOBS 10

static pid_t pids[JOBS];
static char names[JOBS][16];

/* bytes: of each GPU's memory. */
static void begin_with(const char *gpus, const char *bytes)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/several", harness_dir());
    setenv("CEDE_SOFT_SOCKET", path, 1);
    SPAWN("several", "cede", "softgpu", "--gpus", gpus, "--memory", bytes);
    assert_true(EVENTUALLY(strstr(contents("several.out"), "listening")));
    for (int i = 0; i < JOBS; i++)
        snprintf(names[i], sizeof(names[i]), "job%d", i);
}

static void begin(void)
{
    begin_with("2", "17179869184");
}

static struct ceded begin_with_ceded(void)
{
    begin();
    return ceded_start();
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
static pid_t start_idle(const char *name, const char *gpus, const char *more)
{
    return SPAWN(name, "cede", "run", "-q", "--gpus", gpus, "-n", name, more ? more : "-cnormal",
                 "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exec sleep 1000");
}

static void await_visible(const char *name, const char *list)
{
    char file[32], line[64];
    snprintf(file, sizeof(file), "%s.out", name);
    snprintf(line, sizeof(line), "%s\n", list);
    assert_true(EVENTUALLY(strchr(contents(file), '\n')));
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
    assert_true(EVENTUALLY(job_gone(name)));
}

/* Six at one instant, by loads that use what they are given. */
static void spread(void **state)
{
    (void)state;
    struct ceded d = begin_with_ceded();
    unsigned on[4] = {0};
    for (int i = 0; i < 6; i++)
        pids[i] = start(names[i], "1", NULL);
    for (int i = 0; i < 6; i++) {
        assert_true(EVENTUALLY(gpus_of(names[i])));
        on[gpus_of(names[i]) & 3]++;
    }
    assert_int_equal(on[1], 3);
    assert_int_equal(on[2], 3);
    for (int i = 0; i < 6; i++)
        end(names[i], pids[i]);
    ceded_stop(&d);
}

/* Ten that open no context: what they were promised counts. All have one name, too. */
static void promises(void **state)
{
    (void)state;
    struct ceded d = begin_with_ceded();
    unsigned on[2] = {0};
    for (int i = 0; i < JOBS; i++)
        pids[i] = SPAWN(names[i], "cede", "run", "--gpus", "auto", "-n", "same", "--", "sh", "-c",
                        "echo \"=$CUDA_VISIBLE_DEVICES\"; exec sleep 1000");
    for (int i = 0; i < JOBS; i++) {
        char file[32];
        snprintf(file, sizeof(file), "%s.out", names[i]);
        assert_true(EVENTUALLY(strchr(contents(file), '\n')));
        on[0] += strcmp(contents(file), "=SOFT-0\n") == 0;
        on[1] += strcmp(contents(file), "=SOFT-1\n") == 0;
        assert_string_equal(contents("job0.err"), "");
    }
    assert_int_equal(on[0], JOBS / 2);
    assert_int_equal(on[1], JOBS / 2);
    for (int i = 0; i < JOBS; i++)
        stop(pids[i]);
    ceded_stop(&d);
}

/* A daemon that takes over knows where those will run that have opened no GPU yet. */
static void promises_last(void **state)
{
    (void)state;
    struct ceded d = begin_with_ceded();
    pids[0] = start_idle("first", "1", NULL);
    await_visible("first", "SOFT-0");
    ceded_kill(&d);
    d = ceded_start();
    pids[1] = start_idle("second", "1", NULL);
    await_visible("second", "SOFT-1");
    json_t *job = job_named("first"), *placed = json_object_get(job, "placed");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(placed, "gpus"), 0)), 0);
    assert_string_equal(json_string_value(json_object_get(placed, "why")),
                        "chosen before this ceded began");
    json_decref(job);
    stop(pids[0]);
    stop(pids[1]);
    ceded_stop(&d);
}

/* Gangs that start at one instant, each on GPUs that no other has. */
static void gangs(void **state)
{
    (void)state;
    begin_with("4", "17179869184");
    struct ceded d = ceded_start();
    pids[0] = start("one", "2", "0,1");
    pids[1] = start("two", "2", "0,1");
    assert_true(EVENTUALLY(__builtin_popcount(gpus_of("one")) == 2));
    assert_true(EVENTUALLY(__builtin_popcount(gpus_of("two")) == 2));
    assert_int_equal(gpus_of("one") | gpus_of("two"), 0xf);
    end("one", pids[0]);
    end("two", pids[1]);
    ceded_stop(&d);
}

/* What jobs said that they will take is not there for others: the fifth and the sixth wait for the
 * GPUs that were chosen for them, and the fifth goes where there is room first. */
static void memory(void **state)
{
    (void)state;
    begin_with("3", "3221225472");
    struct ceded d = ceded_start();
    for (int i = 0; i < 3; i++) {
        char gpu[16];
        pids[i] = start_idle(names[i], "1", "--memory=2G");
        snprintf(gpu, sizeof(gpu), "SOFT-%d", i);
        await_visible(names[i], gpu);
    }
    pids[3] = start_idle("small", "1", "--memory=500M");
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
    RUN(&result, "cede", "run", "--gpus", "1", "--memory", "4G", "true");
    assert_int_equal(status_of(result.status), 2);
    assert_non_null(strstr(result.err, "'true' was not run: GPU 2 has 3.0 GiB of memory in all"));
    stop(pids[0]);
    stop(pids[1]);
    stop(pids[3]);
    ceded_stop(&d);
}

static void several(void **state)
{
    (void)state;
    struct ceded d = begin_with_ceded();
    pids[0] = start("gang", "2", "0,1");
    assert_true(EVENTUALLY(gpus_of("gang") == 3));
    json_t *job = job_named("gang"), *placed = json_object_get(job, "placed");
    assert_int_equal(json_array_size(json_object_get(placed, "gpus")), 2);
    assert_string_equal(json_string_value(json_object_get(placed, "why")),
                        "there is no other choice");
    json_decref(job);
    RUN(&result, "cede", "run", "--gpus", "3", "--", "echo", "ran");
    assert_int_equal(status_of(result.status), 2);
    assert_string_equal(result.out, "");
    assert_string_equal(result.err, "cede: 'echo' was not run: 3 GPUs are wanted, and there are 2 "
                                    "(SOFT-0, SOFT-1)\n");
    assert_true(job_gone("echo"));
    end("gang", pids[0]);
    ceded_stop(&d);
}

/* What the user has set is chosen from, and stays as it is written. */
static void restricted(void **state)
{
    (void)state;
    static const struct {
        const char *list, *gpus, *out, *says; /* out NULL: it is wrong usage */
    } rows[] = {
        {"1", "1", "1\n", NULL},
        {"SOFT-1, 0", "2", "SOFT-1,0\n",
         "note: of CUDA_VISIBLE_DEVICES=SOFT-1, 0 the program gets "},
        {"1,0", "1", "0\n", "cede: note: of CUDA_VISIBLE_DEVICES=1,0 the program gets 0\n"},
        {"1", "2", NULL, "2 GPUs are wanted, and CUDA_VISIBLE_DEVICES lists 1 (1)"},
        {"", "1", NULL, "1 GPU is wanted, and CUDA_VISIBLE_DEVICES lists 0"},
        {"0,7", "1", NULL, "lists 7, and the GPUs that can be chosen are 0 to 1"},
        {"0,-1", "1", NULL, "lists '-1', which is no GPU here"},
        {"GPU-8932f937", "1", NULL, "lists 'GPU-8932f937', which is no GPU here"},
        {"MIG-8932f937/1/0", "1", NULL, "lists MIG-8932f937/1/0, an instance of a GPU"},
        {"0,SOFT-0", "1", NULL, "lists GPU 0 twice ('SOFT-0')"},
        {"SOFT", "1", NULL, "lists 'SOFT', with which several GPUs begin"},
    };
    struct ceded d = begin_with_ceded();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        setenv("CUDA_VISIBLE_DEVICES", rows[i].list, 1);
        RUN(&result, "cede", "run", "--gpus", rows[i].gpus, "--", "sh", "-c",
            "echo $CUDA_VISIBLE_DEVICES");
        if (!rows[i].says ? result.err[0] : !strstr(result.err, rows[i].says))
            fail_msg("%s: %s", rows[i].list, result.err);
        assert_int_equal(status_of(result.status), rows[i].out ? 0 : 2);
        assert_string_equal(result.out, rows[i].out ? rows[i].out : "");
    }
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    for (int i = 0; i < 3; i++)
        pids[i] = start(names[i], "auto", NULL);
    unsetenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; i < 3; i++)
        assert_true(EVENTUALLY(gpus_of(names[i]) == 2));
    for (int i = 0; i < 3; i++)
        end(names[i], pids[i]);
    ceded_stop(&d);
}

/* A name goes where it was, though another GPU has a lower number; not to one that is taken. */
static void names_return(void **state)
{
    (void)state;
    struct ceded d = begin_with_ceded();
    for (int i = 0; i < 2; i++) {
        pids[i] = start(names[i], "1", NULL);
        assert_true(EVENTUALLY(gpus_of(names[i]) == 1U << i));
    }
    end(names[0], pids[0]);
    end(names[1], pids[1]);
    pids[1] = start(names[1], "1", NULL);
    assert_true(EVENTUALLY(gpus_of(names[1]) == 2));
    json_t *job = job_named(names[1]), *placed = json_object_get(job, "placed");
    assert_string_equal(json_string_value(json_object_get(placed, "why")),
                        "a job of this name ran there last");
    json_decref(job);
    pids[2] = start(names[2], "1", NULL);
    assert_true(EVENTUALLY(gpus_of(names[2]) == 1));
    end(names[2], pids[2]);
    pids[0] = start(names[0], "1", NULL);
    assert_true(EVENTUALLY(gpus_of(names[0]) == 1));
    end(names[0], pids[0]);
    end(names[1], pids[1]);
    ceded_stop(&d);
}

/* Without a ceded one is started, which knows at once what others use. */
static void starts_a_ceded(void **state)
{
    (void)state;
    begin();
    pids[0] = LOAD("other", "batch");
    await_progress(pids, 1);
    RUN(&result, "cede", "run", "-q", "--gpu-device", "soft", "--gpus", "auto", "--", "sh", "-c",
        "echo $CUDA_VISIBLE_DEVICES");
    assert_int_equal(status_of(result.status), 0);
    assert_string_equal(result.out, "SOFT-1\n");
    assert_string_equal(result.err, "");
    json_decref(load_end("other", pids[0]));
}

/* Where nothing can be chosen the program runs, and one line says so. */
static void without_choice(void **state)
{
    (void)state;
    static const struct {
        const char *device, *home, *err;
    } rows[] = {
        {"soft", "/proc/none", "cede: 'sh' runs unscheduled and with no GPU chosen for it: "},
        {"gate", NULL,
         "cede: 'sh' runs with no GPU chosen for it: no GPU here can be chosen for a program"},
    };
    begin();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        set_cede_home(rows[i].home ? rows[i].home : harness_dir());
        RUN(&result, "cede", "run", "--gpu-device", rows[i].device, "--gpus", "2", "--", "sh", "-c",
            "echo ${CUDA_VISIBLE_DEVICES-unset}");
        assert_int_equal(status_of(result.status), 0);
        assert_string_equal(result.out, "unset\n");
        if (strstr(result.err, rows[i].err) != result.err)
            fail_msg("%s: %s", rows[i].device, result.err);
        RUN(&result, "cede", "run", "--gpu-device", rows[i].device, "--strict", "--gpus", "2", "--",
            "echo", "ran");
        assert_int_equal(status_of(result.status), 1);
        assert_string_equal(result.out, "");
        assert_non_null(strstr(result.err, "'echo' was not run: "));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        e2e(spread),  e2e(promises),   e2e(promises_last), e2e(gangs),          e2e(memory),
        e2e(several), e2e(restricted), e2e(names_return),  e2e(starts_a_ceded), e2e(without_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
