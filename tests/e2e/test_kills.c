/* Programs, runners and the GPU itself killed: the others go on, and ceded with them. */
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
    loads_start(N, names, s.pids);
    s.d = ceded_start();
    become_jobs(N, names, s.pids);
    AWAIT(suspended(s.pids[B1]) || suspended(s.pids[B2]));
    return s;
}

/* Kills a program; the others work on, under the same daemon. */
static void kill_one(struct scene *s, int victim)
{
    const char *left[N];
    pid_t rest[N];
    size_t n = 0;
    slay_child(s->pids[victim]);
    for (int i = 0; i < N; i++) {
        if (i == victim)
            continue;
        left[n] = names[i];
        rest[n++] = s->pids[i];
    }
    AWAIT(job_gone(names[victim]));
    assert_false(suspended(s->pids[victim])); /* nor on record any more */
    await_progress(rest, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(job_int(left[i], "pid"), rest[i]);
    /* Nobody is left to take turns with, or to make way for. */
    AWAIT(!somebody_suspended());
    ceded_stop(&s->d);
    assert_true(all_slices_default(rest, n));
    loads_end(n, left, rest);
}

E2E(suspended_program)
{
    configure(200, "");
    struct scene s = begin();
    kill_one(&s, suspended(s.pids[B1]) ? B1 : B2);
}

E2E(turn_holder)
{
    configure(200, "");
    struct scene s = begin();
    kill_one(&s, suspended(s.pids[B1]) ? B2 : B1);
}

E2E(latency_program)
{
    struct scene s = begin();
    kill_one(&s, LAT);
}

E2E(its_runner)
{
    struct scene s = begin();
    pid_t all[N + 1] = {s.pids[LAT], s.pids[B1], s.pids[B2]};
    pid_t runner = JOB("left", "batch", NULL);
    AWAIT(job_int("left", "processes") == 1);
    all[N] = program_below(runner);
    AWAIT(suspended(all[N]));
    slay_child(runner);
    await_progress(all, N + 1);
    assert_true(job_is("left", "class", "batch")); /* its program goes on, and so does the job */
    json_decref(load_end("left", all[N]));
    AWAIT(job_gone("left"));
    ceded_stop(&s.d);
    loads_end(N, names, s.pids);
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

E2E(the_gpu)
{
    char file[32];
    struct scene s = begin();
    slay_child(gpu_pid());
    for (int i = 0; i < N; i++) {
        assert_int_equal(await_child(s.pids[i]), 1);
        snprintf(file, sizeof(file), "%s.err", names[i]);
        assert_non_null(strstr(contents(file), "its server has gone"));
    }
    AWAIT(strstr(contents("ceded.err"), "no software GPU at "));
    for (int i = 0; i < N; i++)
        AWAIT(job_gone(names[i]));
    unsigned long before = cpu_ticks(s.d.pid);
    nap_ms(1000);
    assert_true(cpu_ticks(s.d.pid) - before < (unsigned long)sysconf(_SC_CLK_TCK) / 4);
    assert_int_equal(records(NULL), 0);

    /* Another one, and all is as before. */
    ANOTHER_GPU("again", NULL);
    loads_start(N, names, s.pids);
    become_jobs(N, names, s.pids);
    AWAIT(suspended(s.pids[B1]) || suspended(s.pids[B2]));
    await_progress(s.pids, N);
    ceded_stop(&s.d);
    loads_end(N, names, s.pids);
}

/* 200 programs that open a context and end soon, in one job, and two that stay until the job is
 * seen to have several. */
E2E(fork_bomb)
{
    struct scene s = begin();
    AWAIT(job_int("b1", "processes") == 1);
    size_t before = descriptors(s.d.pid);
    pid_t bomb =
        SPAWN("bomb", "cede", "run", "--strict", "-c", "batch", "-n", "bomb", "--", "sh", "-c",
              "load=\"$0 load batch --device soft --kernel-us 100 --depth 1\"; $load & a=$!; $load "
              "& b=$!;"
              " i=0; while [ $i -lt 200 ]; do $load --seconds 0.3 & i=$((i+1)); done;"
              " while [ ! -e \"$1\" ]; do sleep 0.1; done; kill $a $b; wait; echo all",
              harness_exe(), in_dir("seen"));
    AWAIT(job_int("bomb", "processes") > 1); /* it is looked after */
    touch("seen");
    assert_int_equal(await_child(bomb), 0);
    assert_non_null(strstr(contents("bomb.out"), "all\n"));
    assert_string_equal(contents("bomb.err"), "");
    AWAIT(job_gone("bomb"));
    AWAIT(descriptors(s.d.pid) <= before);
    unsigned count = 0;
    AWAIT((count = records(NULL)) <= N * 4);

    AWAIT(suspended(s.pids[B1]));
    AWAIT(suspended(s.pids[B2]));
    await_progress(s.pids, N);
    assert_int_equal(kill(s.d.pid, 0), 0);
    ceded_stop(&s.d);
    assert_true(all_slices_default(s.pids, N));
    loads_end(N, names, s.pids);
}

/* Paused, and taken over by one ceded after the other with no restorer between them: one resume is
 * enough, and so is the last one's restorer. */
E2E(paused_for_generations)
{
    for (int resumed = 0; resumed < 2; resumed++) {
        pid_t pid = LOAD(resumed ? "resumed" : "restored", "batch");
        AWAIT(all_have_contexts(&pid, 1));
        struct ceded d = ceded_start();
        CEDE("pause", pid_text(pid));
        for (int i = 0; i < 3; i++) {
            ceded_kill_both(&d);
            d = ceded_start();
            AWAIT(suspended(pid));
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
