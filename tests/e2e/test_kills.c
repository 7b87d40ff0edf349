/* Programs, runners and the GPU itself killed: the others go on, and ceded with them. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

enum { LAT, B1, B2, N };
static const char *const names[N] = {"lat", "b1", "b2"};

struct scene {
    struct ceded d;
    pid_t pids[N];
};

static struct scene begin(void)
{
    struct scene s;
    for (int i = 0; i < N; i++)
        s.pids[i] = i == LAT ? LOAD(names[i], "latency") : LOAD(names[i], "batch");
    assert_true(EVENTUALLY(all_have_contexts(s.pids, N)));
    s.d = ceded_start();
    for (int i = 0; i < N; i++)
        CEDE("set", pid_text(s.pids[i]), "-c", i == LAT ? "latency" : "batch");
    assert_true(EVENTUALLY(suspended(s.pids[B1]) || suspended(s.pids[B2])));
    return s;
}

/* Kills a program; the others work on, under the same daemon. */
static void kill_one(struct scene *s, int victim)
{
    pid_t rest[N];
    size_t n = 0;
    kill(s->pids[victim], SIGKILL);
    assert_int_equal(await_child(s->pids[victim]), 1000 + SIGKILL);
    for (int i = 0; i < N; i++) {
        if (i != victim)
            rest[n++] = s->pids[i];
    }
    assert_true(EVENTUALLY(job_gone(names[victim])));
    assert_false(suspended(s->pids[victim])); /* nor on record any more */
    await_progress(rest, n);
    for (int i = 0; i < N; i++) {
        if (i != victim)
            assert_int_equal(job_int(names[i], "pid"), s->pids[i]);
    }
    /* Nobody is left to take turns with, or to make way for. */
    assert_true(EVENTUALLY(!somebody_suspended()));
    ceded_stop(&s->d);
    assert_true(all_slices_default(rest, n));
    for (int i = 0; i < N; i++) {
        if (i != victim)
            json_decref(load_end(names[i], s->pids[i]));
    }
}

static void suspended_program(void **state)
{
    (void)state;
    configure(200, "");
    struct scene s = begin();
    kill_one(&s, suspended(s.pids[B1]) ? B1 : B2);
}

static void turn_holder(void **state)
{
    (void)state;
    configure(200, "");
    struct scene s = begin();
    kill_one(&s, suspended(s.pids[B1]) ? B2 : B1);
}

static void latency_program(void **state)
{
    (void)state;
    struct scene s = begin();
    kill_one(&s, LAT);
}

static void its_runner(void **state)
{
    (void)state;
    struct scene s = begin();
    pid_t all[N + 1] = {s.pids[LAT], s.pids[B1], s.pids[B2]};
    pid_t runner = SPAWN("left", "cede", "run", "--strict", "-c", "batch", "-n", "left", "--",
                         harness_exe(), "load", "batch", "--device", "soft", "--verify");
    assert_true(EVENTUALLY(job_int("left", "processes") == 1));
    assert_int_equal(children_of(runner, &all[N], 1), 1);
    assert_true(EVENTUALLY(suspended(all[N])));
    kill(runner, SIGKILL);
    assert_int_equal(await_child(runner), 1000 + SIGKILL);
    await_progress(all, N + 1);
    assert_true(job_is("left", "class", "batch")); /* its program goes on, and so does the job */
    json_decref(load_end("left", all[N]));
    assert_true(EVENTUALLY(job_gone("left")));
    ceded_stop(&s.d);
    for (int i = 0; i < N; i++)
        json_decref(load_end(names[i], s.pids[i]));
}

/* CPU time used, in clock ticks: fields 14 and 15 of /proc/PID/stat. */
static unsigned long cpu_ticks(pid_t pid)
{
    char path[64], text[1024];
    unsigned long user, system;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *p = strrchr(text, ')');
    assert_non_null(p);
    assert_int_equal(
        sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system), 2);
    return user + system;
}

static void the_gpu(void **state)
{
    (void)state;
    char file[32];
    struct scene s = begin();
    kill(gpu_pid(), SIGKILL);
    assert_int_equal(await_child(gpu_pid()), 1000 + SIGKILL);
    for (int i = 0; i < N; i++) {
        assert_int_equal(await_child(s.pids[i]), 1);
        snprintf(file, sizeof(file), "%s.err", names[i]);
        assert_non_null(strstr(contents(file), "its server has gone"));
    }
    assert_true(EVENTUALLY(strstr(contents("ceded.err"), "no software GPU at ")));
    for (int i = 0; i < N; i++)
        assert_true(EVENTUALLY(job_gone(names[i])));
    unsigned long before = cpu_ticks(s.d.pid);
    nap_ms(1000);
    assert_true(cpu_ticks(s.d.pid) - before < (unsigned long)sysconf(_SC_CLK_TCK) / 4);
    assert_int_equal(records(NULL), 0);

    /* Another one, and all is as before. */
    pid_t again = SPAWN("again", "cede", "softgpu");
    assert_true(EVENTUALLY(strstr(contents("again.out"), "listening")));
    for (int i = 0; i < N; i++) {
        s.pids[i] = i == LAT ? LOAD(names[i], "latency") : LOAD(names[i], "batch");
        assert_true(EVENTUALLY(all_have_contexts(&s.pids[i], 1)));
        CEDE("set", pid_text(s.pids[i]), "-c", i == LAT ? "latency" : "batch");
    }
    assert_true(EVENTUALLY(suspended(s.pids[B1]) || suspended(s.pids[B2])));
    await_progress(s.pids, N);
    ceded_stop(&s.d);
    for (int i = 0; i < N; i++)
        json_decref(load_end(names[i], s.pids[i]));
    (void)again;
}

/* 200 programs that open a context and end soon, in one job, and two that stay until the job is
 * seen to have several. */
static void fork_bomb(void **state)
{
    (void)state;
    struct scene s = begin();
    assert_true(EVENTUALLY(job_int("b1", "processes") == 1));
    size_t before = descriptors(s.d.pid);
    char seen[96];
    snprintf(seen, sizeof(seen), "%s/seen", harness_dir());
    pid_t bomb =
        SPAWN("bomb", "cede", "run", "--strict", "-c", "batch", "-n", "bomb", "--", "sh", "-c",
              "load=\"$0 load batch --device soft --kernel-us 100 --depth 1\"; $load & a=$!; $load "
              "& b=$!;"
              " i=0; while [ $i -lt 200 ]; do $load --seconds 0.3 & i=$((i+1)); done;"
              " while [ ! -e \"$1\" ]; do sleep 0.1; done; kill $a $b; wait; echo all",
              harness_exe(), seen);
    assert_true(EVENTUALLY(job_int("bomb", "processes") > 1)); /* it is looked after */
    close(open(seen, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(await_child(bomb), 0);
    assert_non_null(strstr(contents("bomb.out"), "all\n"));
    assert_string_equal(contents("bomb.err"), "");
    assert_true(EVENTUALLY(job_gone("bomb")));
    assert_true(EVENTUALLY(descriptors(s.d.pid) <= before));
    unsigned count = 0;
    assert_true(EVENTUALLY((count = records(NULL)) <= N * 4));

    assert_true(EVENTUALLY(suspended(s.pids[B1])));
    assert_true(EVENTUALLY(suspended(s.pids[B2])));
    await_progress(s.pids, N);
    assert_int_equal(kill(s.d.pid, 0), 0);
    ceded_stop(&s.d);
    assert_true(all_slices_default(s.pids, N));
    for (int i = 0; i < N; i++)
        json_decref(load_end(names[i], s.pids[i]));
}

/* Paused, and taken over by one ceded after the other with no restorer between them: one resume is
 * enough, and so is the last one's restorer. */
static void paused_for_generations(void **state)
{
    (void)state;
    for (int resumed = 0; resumed < 2; resumed++) {
        pid_t pid = LOAD(resumed ? "resumed" : "restored", "batch");
        assert_true(EVENTUALLY(all_have_contexts(&pid, 1)));
        struct ceded d = ceded_start();
        CEDE("pause", pid_text(pid));
        for (int i = 0; i < 3; i++) {
            kill(d.restorer, SIGSTOP); /* nothing between the one kill and the other */
            await_state(d.restorer, "T");
            kill(d.pid, SIGKILL);
            await_child(d.pid);
            kill(d.restorer, SIGKILL);
            await_child(d.restorer); /* an orphan of ours now */
            d = ceded_start();
            assert_true(EVENTUALLY(suspended(pid)));
        }
        if (resumed)
            CEDE("resume", pid_text(pid));
        else
            ceded_kill(&d);
        await_progress(&pid, 1);
        if (resumed)
            ceded_stop(&d);
        json_decref(load_end(resumed ? "resumed" : "restored", pid));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        e2e(suspended_program), e2e(turn_holder), e2e(latency_program),        e2e(its_runner),
        e2e(the_gpu),           e2e(fork_bomb),   e2e(paused_for_generations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
