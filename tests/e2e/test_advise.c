/* cede advise: what it finds of jobs of known work, and that nothing of a trial stays, whoever ends
 * or is killed meanwhile. The tests mostly wait, so they run at the same time. What it says where
 * there is nothing to try: cli_advise. */
#include <math.h>

#include "../json_like.h"
#include "pool.h"

#define WINDOW     "--window", "500ms"
#define ATTEMPTS   4 /* on a busy machine what a program does alone may be measured too low */
#define NEAR(a, b) (fabs((a) - (b)) < 0.12)

#define WORK(depth, uses)                                                                          \
    harness_exe(), "load", "batch", "--device", "soft", "--kernel-us", "1000", "--depth", depth,   \
        "--uses", uses
#define TENSOR "tensor16=0.8,dram=0.2"
#define FP32   "fp32=0.5,dram=0.4"
/* In no pool. */
#define IN_TIME(name, weight, ...)                                                                 \
    SPAWN(name, "cede", "run", "-q", "-c", "batch", "-w", weight, "-n", name, "--", __VA_ARGS__)

/* ---- what it prints ---- */

/* Again if the machine gave it, or ceded, no time for seconds. */
static void run_patiently(const char *const argv[])
{
    bool again = true;
    for (int i = 0; i < 8 && again; i++) {
        run_program(&result, NULL, argv);
        again = result.status && (strstr(result.err, "stopped for a while") ||
                                  strstr(result.err, "showed nothing") ||
                                  strstr(result.err, "gave no answer within"));
    }
}

static json_t *advise(const char *const more[])
{
    const char *argv[40] = {"cede", "advise", WINDOW, "--json"};
    for (size_t i = 0; more[i] && i + 6 < ARRAY_SIZE(argv); i++)
        argv[i + 5] = more[i];
    run_patiently(argv);
    json_t *o = result.status ? NULL : json_loads(result.out, 0, NULL);
    if (!o || result.err[0])
        fail_msg("status %d: %s%s", status_of(result.status), result.out, result.err);
    return o;
}
#define ADVISE(...) advise((const char *const[]){__VA_ARGS__, NULL})

/* Index of the row of that name, -1: none. */
static int row_of(const json_t *o, const char *arrangement)
{
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(o, "rows"), i, row)
    {
        if (strcmp(json_get_text(row, "arrangement"), arrangement) == 0)
            return (int)i;
    }
    return -1;
}

/* A job's speed in a row; NAN: there is none. */
static double speed_in(json_t *o, const char *arrangement, const char *name)
{
    char path[64];
    const int row = row_of(o, arrangement);
    for (unsigned i = 0; i < 2 && row >= 0; i++) {
        snprintf(path, sizeof(path), "jobs.%u.name", i);
        const char *is = json_string_value(value_at(o, path));
        snprintf(path, sizeof(path), "rows.%d.speeds.%u", row, i);
        if (is && strcmp(is, name) == 0)
            return json_number_value(value_at(o, path));
    }
    return NAN;
}

/* ---- programs ---- */

static bool has_ended(pid_t pid)
{
    return !process_state(pid) || process_state(pid) == 'Z';
}

/* Each computes on a GPU, and ceded knows it. */
static void await_work(void)
{
    AWAIT(job_count("a", "gpus") == 1 && job_count("b", "gpus") == 1 &&
          job_int("a", "timeslice_us") > 0 && job_int("b", "timeslice_us") > 0);
}

/* Runners and their programs, outside of a pool or in one. */
struct two {
    pid_t run[2], program[2];
};

/* The second becomes a job after the first. */
static struct two two_in_time(const char *weight)
{
    struct two t = {.run[0] = IN_TIME("a", weight, WORK("40", TENSOR))};
    AWAIT(!job_gone("a"));
    t.run[1] = IN_TIME("b", "100", WORK("40", FP32));
    await_work();
    for (int i = 0; i < 2; i++)
        t.program[i] = program_below(t.run[i]);
    return t;
}

/* Also those that are known to do less together, from an earlier attempt. */
#define JOIN(name, ...)                                                                            \
    SPAWN(name, "cede", "run", "-q", "-c", "batch", "--pool", "--strict", "-n", name, "--",        \
          __VA_ARGS__)

static struct two two_in_pool(const char *fraction)
{
    struct two t = {.run[0] = JOIN("a", WORK("40", TENSOR), "--sm-fraction", fraction)};
    AWAIT(!job_gone("a"));
    t.run[1] = JOIN("b", WORK("20", FP32), "--sm-fraction", fraction);
    await_work();
    AWAIT(unit_of_job("a") && unit_of_job("a") == unit_of_job("b"));
    for (int i = 0; i < 2; i++)
        t.program[i] = program_of(t.run[i]);
    return t;
}

static void end_two(const struct two *t)
{
    for (int i = 0; i < 2; i++)
        kill(t->run[i], SIGTERM);
    for (int i = 0; i < 2; i++)
        assert_int_equal(await_child(t->run[i]), 0);
}

static bool is_held(pid_t pid)
{
    return process_state(pid) == 'T' || suspended(pid);
}

/* Both work, and neither is held. */
static void assert_free(const struct two *t)
{
    AWAIT(!is_held(t->program[0]) && !is_held(t->program[1]));
    await_progress(t->program, 2);
    assert_true(job_is("a", "class", "batch") && job_is("b", "class", "batch"));
}

/* ---- what it finds ---- */

/* Three turns of one to one of the other, as is counted from outside. */
static bool three_to_one(void)
{
    double busy[2];
    struct ceded d = ceded_start();
    struct two t = two_in_time("300");
    measure(t.program, 2, 1500, busy);
    json_t *o = ADVISE(NULL);
    const double a = speed_in(o, "as they run", "a"), b = speed_in(o, "as they run", "b");
    bool right = NEAR(a + b, 1) && a > 1.8 * b && NEAR(a, busy[0] / (busy[0] + busy[1]));
    if (!right)
        print_error("%.2f and %.2f, counted %.2f and %.2f\n", a, b, busy[0], busy[1]);
    assert_like(o, "{'gpu':0,'window_s':0.5,'best':0,'rows':[{'arrangement':'as they run',"
                   "'first':null,'how':'nothing: leave them as they are'}],"
                   "'jobs':[{'name':'a'},{'name':'b'}]}");
    json_decref(o);
    assert_free(&t);

    o = ADVISE("--aim", "protect:b", "a", "b");
    assert_like(o, "{'rows':[{'first':null},{'arrangement':'first','first':1,"
                   "'how':'cede set %* -c latency, and the others -c batch'}]}");
    right &= json_get_int(o, "best") == 1 && speed_in(o, "first", "b") > 0.85 &&
             speed_in(o, "first", "a") < 0.15;
    json_decref(o);
    assert_free(&t);
    end_two(&t);
    ceded_stop(&d);
    return right || SANITIZED; /* what is measured then says nothing */
}

E2E(in_time)
{
    in_some_attempt(ATTEMPTS, three_to_one);
}

/* What a job does that is mostly idle is not known; the other one has what that leaves. */
static bool one_hardly_busy(void)
{
    struct ceded d = ceded_start();
    struct two t = {.run[0] = SPAWN("a", "cede", "run", "-q", "-c", "latency", "-n", "a", "--",
                                    harness_exe(), "load", "latency", "--device", "soft",
                                    "--kernel-us", "1000", "--uses", "dram=0.6")};
    AWAIT(!job_gone("a"));
    t.run[1] = IN_TIME("b", "100", WORK("4", TENSOR));
    await_work();
    json_t *o = ADVISE("--window", "2s", "a", "b");
    const double a = speed_in(o, "as they run", "a"), b = speed_in(o, "as they run", "b");
    const bool right = a == 0 /* null */ && NEAR(b, 0.87);
    if (!right)
        print_error("%.2f and %.2f\n", a, b);
    json_decref(o);
    end_two(&t);
    ceded_stop(&d);
    return right || SANITIZED; /* what is measured then says nothing */
}

E2E(one_is_hardly_busy)
{
    in_some_attempt(ATTEMPTS, one_hardly_busy);
}

/* What ceded has written down of all together, in thousandths; -1: nothing. */
static int remembered(void)
{
    unsigned together;
    return sscanf(contents("experience"), "%*x %*u %u", &together) == 1 ? (int)together : -1;
}

/* Kernels that need all multiprocessors run in the order in which they came: who queues twice as
 * many gets twice as much. In turns both get the same, and that is fairer. */
static bool two_to_one(void)
{
    struct ceded d = ceded_start();
    struct two t = two_in_pool("1");
    json_t *o = ADVISE("--aim", "fair");
    const double a = speed_in(o, "pool, together", "a"), b = speed_in(o, "pool, together", "b"),
                 c = speed_in(o, "pool, in turns", "a"), e = speed_in(o, "pool, in turns", "b"),
                 sum = json_number_value(value_at(o, "rows.0.sum"));
    const bool right = NEAR(a + b, 1) && a > 1.4 * b && NEAR(c, 0.5) && NEAR(e, 0.5) &&
                       json_get_int(o, "best") == 1;
    if (!right)
        print_error("%.2f and %.2f together, %.2f and %.2f in turns\n", a, b, c, e);
    assert_like(o, "{'rows':[{'arrangement':'pool, together','how':'nothing: they are in a pool*'},"
                   "{'arrangement':'pool, in turns','first':null,"
                   "'how':'start them without --pool*'}]}");
    const bool fair = json_number_value(value_at(o, "rows.0.least")) >= 0.33;
    assert_int_equal(remembered(), json_is_null(value_at(o, "rows.0.sum")) /* not known */
                                       ? -1
                                       : lround((fair ? sum : fmin(sum, 0.93)) * 1000));
    json_decref(o);
    assert_free(&t);
    end_two(&t);
    ceded_stop(&d);
    return right || SANITIZED; /* what is measured then says nothing */
}

E2E(in_a_pool)
{
    use_stand_in();
    in_some_attempt(ATTEMPTS, two_to_one);
}

/* Those that need less than half of them each do not slow each other down. */
static bool twice_as_much(void)
{
    static struct result renamed;
    static const char *const words[] = {"> pool, together", "  pool, in turns",
                                        "Best: nothing: they are in a pool",
                                        " a ääääääääääää    SUM"};
    struct ceded d = ceded_start();
    struct two t = two_in_pool("0.4");
    RUN(&renamed, "cede", "set", "b", "-n", "ääääääääääääää");
    run_patiently((const char *const[]){"cede", "advise", WINDOW, NULL});
    RUN(&renamed, "cede", "set", "ääääääääääääää", "-n", "b");
    bool right = true;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        right &= strstr(result.out, words[i]) != NULL;
    if (!right)
        print_error("%s", result.out);
    right &= remembered() > 1700;
    assert_free(&t);
    end_two(&t);
    ceded_stop(&d);
    return right || SANITIZED; /* what is measured then says nothing */
}

E2E(in_a_pool_together)
{
    use_stand_in();
    in_some_attempt(ATTEMPTS, twice_as_much);
}

/* Where the counters would say nothing, that is said before a job is held. */
E2E(in_no_counters)
{
    struct two t;
    ceded_start();
    for (int i = 0; i < 2; i++)
        t.run[i] =
            IN_TIME(i ? "b" : "a", "100", harness_exe(), "load", "batch", "--device", "soft");
    await_work();
    FAILS(1, "the counters of GPU 0 show nothing of what these jobs do", "advise", WINDOW);
    end_two(&t);
}

/* ---- programs that are started ---- */

static size_t njobs(void)
{
    json_t *all = ask_jobs();
    size_t n = json_array_size(json_object_get(all, "jobs"));
    json_decref(all);
    return n;
}

static bool starts_them(void)
{
    struct ceded d = ceded_start();
    json_t *o = ADVISE("--", WORK("40", TENSOR), "--sm-fraction", "0.4", "--", WORK("40", FP32),
                       "--sm-fraction", "0.4");
    assert_like(o, "{'jobs':[{'name':'1:cede'},{'name':'2:cede'}],"
                   "'rows':[{'arrangement':'as they run','how':'cede run -c batch -- COMMAND*'},"
                   "{'arrangement':'pool, together','how':'cede run -c batch --pool -- *'},"
                   "{'arrangement':'pool, parts','how':'cede run -c batch --pool --sm 50 -- *'}]}");
    const double sum[] = {json_number_value(value_at(o, "rows.0.sum")),
                          json_number_value(value_at(o, "rows.1.sum"))};
    const bool right = NEAR(sum[0], 1) && sum[1] > 1.7 && json_get_int(o, "best") > 0;
    if (!right)
        print_error("%.2f in turns, %.2f together\n", sum[0], sum[1]);
    json_decref(o);
    assert_int_equal(njobs(), 0);
    ceded_stop(&d);
    return right || SANITIZED; /* what is measured then says nothing */
}

E2E(started)
{
    use_stand_in();
    in_some_attempt(2, starts_them);
}

/* What a program printed last says why, however much it was; no file is needed for that. What it
 * leaves behind ends, too. */
E2E(started_in_vain)
{
    char script[300];
    setenv("TMPDIR", "/nonexistent", 1);
    ceded_start();
    FAILS(1, "1:no-such-program has ended with status 127 after ", "advise", WINDOW, "--",
          "no-such-program", "--", WORK("4", FP32));
    assert_non_null(strstr(result.err, "1:no-such-program printed last:\n"));
    assert_int_equal(njobs(), 0);
    snprintf(
        script, sizeof(script),
        "trap '' TERM; setsid sh -c 'echo $$ >%s/left; exec sleep 1000' & yes | head -c 10000000;"
        "while ! [ -s %s/left ]; do sleep 0.05; done; echo bye",
        harness_dir(), harness_dir());
    FAILS(1, "2:sh has ended with status 0 after ", "advise", WINDOW, "--", WORK("4", FP32), "--",
          "sh", "-c", script);
    const char *last = strstr(result.err, "2:sh printed last:\n");
    assert_true(last && strstr(last, "\ny\ny\n") && strstr(last, "\nbye\n"));
    assert_true(strlen(last) < 1200);
    snprintf(script, sizeof(script), "/proc/%d/exe", atoi(contents("left")));
    assert_int_equal(access(script, F_OK), -1); /* also of one that nobody has waited for */
    assert_int_equal(njobs(), 0);
}

/* Said before anything is started; then one arrangement is tried, which is not called the best. */
E2E(started_without_mps)
{
    setenv("PATH", "/nonexistent", 1);
    ceded_start();
    run_patiently((const char *const[]){"cede", "advise", WINDOW, "--", WORK("40", TENSOR), "--",
                                        WORK("40", FP32), NULL});
    assert_string_equal(result.err,
                        "cede: not tried: a pool: there is no nvidia-cuda-mps-control in $PATH\n");
    assert_true(strstr(result.out, "\n  in turns ") && !strstr(result.out, "Best"));
    assert_non_null(strstr(result.out, "Only this one was tried. For it: cede run -c batch -- C"));
}

E2E(started_beside_others)
{
    ceded_start();
    struct two t = two_in_time("100");
    AWAIT(job_number("a", "busy") > 0.1 && job_number("b", "busy") > 0.1);
    FAILS(1, "so that the speeds may be wrong: #1 a, #2 b; hold them with `cede pause %1 %2`\n",
          "advise", "--", "/bin/true", "--", "/bin/true");
    end_two(&t);
}

/* ---- killed meanwhile ---- */

#define IN_BACKGROUND(...) SPAWN("advise", "cede", "advise", "--window", "5s", ##__VA_ARGS__)

/* Programs that it has begun to try, which are alone one after the other. */
static pid_t await_trial(const struct two *t, pid_t advises)
{
    AWAIT(is_held(t->program[0]) != is_held(t->program[1]) || has_ended(advises));
    assert_false(has_ended(advises));
    return advises;
}

/* By the end of its connection, and not only because it asks no more. */
static bool freed_at_once(const struct two *t, int signal)
{
    pid_t pid = await_trial(t, IN_BACKGROUND("a", "b"));
    const uint64_t began = monotonic_ns();
    kill(pid, signal);
    assert_int_equal(await_child(pid), 1000 + signal);
    AWAIT(!is_held(t->program[0]) && !is_held(t->program[1]));
    const double took_s = (double)(monotonic_ns() - began) / 1e9;
    assert_free(t);
    return took_s < 1;
}

static struct two both;

static bool killed_at_once(void)
{
    return freed_at_once(&both, SIGKILL);
}

static bool interrupted_at_once(void)
{
    return freed_at_once(&both, SIGINT);
}

/* One that is stopped has no jobs held for long. */
static void stopped(void)
{
    pid_t pid = await_trial(&both, IN_BACKGROUND("a", "b"));
    kill(pid, SIGSTOP);
    assert_free(&both);
    kill(pid, SIGKILL);
    await_child(pid);
}

static void check_kills(void)
{
    in_some_attempt(ATTEMPTS, killed_at_once);
    in_some_attempt(ATTEMPTS, interrupted_at_once);
    stopped();
    end_two(&both);
}

E2E(killed_in_time)
{
    ceded_start();
    both = two_in_time("100");
    check_kills();
}

E2E(killed_in_a_pool)
{
    use_stand_in();
    ceded_start();
    both = two_in_pool("1");
    check_kills();
}

/* Programs of jobs, at most 8. */
static size_t programs_of_jobs(pid_t *v)
{
    json_t *all = ask_jobs();
    const json_t *job;
    size_t i, n = 0;
    json_array_foreach(json_object_get(all, "jobs"), i, job)
    {
        pid_t runner = (pid_t)json_get_int(job, "pid");
        if (i < 4 && children_of(runner, &v[n], 1) == 1)
            n++;
    }
    json_decref(all);
    return n;
}

E2E(killed_with_programs)
{
    static const int signals[] = {SIGKILL, SIGINT};
    setenv("TMPDIR", harness_dir(), 1);
    ceded_start();
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
        pid_t v[8], pid = IN_BACKGROUND("--", WORK("4", TENSOR), "--", WORK("4", FP32));
        AWAIT(programs_of_jobs(v) == 2 && all_have_contexts(v, 2));
        kill(pid, signals[i]);
        assert_int_equal(await_child(pid), 1000 + signals[i]);
        AWAIT(has_ended(v[0]) && has_ended(v[1]));
        AWAIT(njobs() == 0);
    }
}

/* By its events, or by what it asks. */
static void said_of_ceded(void)
{
    const char *text = contents("advise.err");
    if (!strstr(text, "ceded has ended: all jobs run as before") && !strstr(text, "the daemon") &&
        !strstr(text, "no daemon is running"))
        fail_msg("it says: %s", text);
}

/* It says so, and the jobs run; programs that were started for it end. */
E2E(ceded_killed)
{
    use_stand_in();
    for (int pooled = 0; pooled < 2; pooled++) {
        struct ceded d = ceded_start();
        struct two t = pooled ? two_in_pool("1") : two_in_time("100");
        pid_t pid = await_trial(&t, IN_BACKGROUND("a", "b"));
        ceded_kill(&d);
        assert_int_equal(await_child(pid), 1);
        said_of_ceded();
        AWAIT(!is_held(t.program[0]) && !is_held(t.program[1]));
        await_progress(t.program, 2);
        d = ceded_start();
        assert_free(&t);
        end_two(&t);
        ceded_stop(&d);
    }
}

E2E(ceded_killed_with_programs)
{
    setenv("TMPDIR", harness_dir(), 1);
    struct ceded d = ceded_start();
    pid_t v[8], pid = IN_BACKGROUND("--", WORK("4", TENSOR), "--", WORK("4", FP32));
    AWAIT(programs_of_jobs(v) == 2 && all_have_contexts(v, 2));
    ceded_kill(&d);
    assert_int_equal(await_child(pid), 1);
    said_of_ceded();
    AWAIT(has_ended(v[0]) && has_ended(v[1]));
}

/* ---- jobs that cannot be tried ---- */

/* Nothing of it shows where the machine gave cede advise no time for seconds. */
static bool said_to_have_ended(void)
{
    struct ceded d = ceded_start();
    struct two t = two_in_time("100");
    pid_t pid = await_trial(&t, IN_BACKGROUND("a", "b"));
    kill(t.run[1], SIGTERM);
    await_child(t.run[1]);
    assert_int_equal(await_child(pid), 1);
    const bool in_time = !strstr(contents("advise.err"), "stopped for a while");
    if (in_time && !strstr(contents("advise.err"), "has ended meanwhile"))
        fail_msg("it says: %s", contents("advise.err"));
    AWAIT(!is_held(t.program[0]));
    await_progress(t.program, 1);
    kill(t.run[0], SIGTERM);
    await_child(t.run[0]);
    ceded_stop(&d);
    return in_time;
}

E2E(ends_meanwhile)
{
    in_some_attempt(ATTEMPTS, said_to_have_ended);
}

/* A window in which ceded had no time to read the counters becomes longer. */
E2E(counters_come_late)
{
    struct ceded d = ceded_start();
    struct two t = two_in_time("100");
    pid_t pid = SPAWN("advise", "cede", "advise", WINDOW);
    AWAIT((is_held(t.program[0]) && is_held(t.program[1])) || has_ended(pid));
    kill(d.pid, SIGSTOP);
    nap_ms(900);
    kill(d.pid, SIGCONT);
    if (await_child(pid) != 0 && !strstr(contents("advise.err"), "stopped for a while"))
        fail_msg("it says: %s", contents("advise.err"));
    end_two(&t);
}

E2E(others)
{
    REPLACE_GPU("--gpus", "2");
    ceded_start();
    struct two t = two_in_time("100");
    pid_t idle = IN_TIME("idle", "100", harness_exe(), "load", "latency", "--device", "soft",
                         "--period-us", "600000000");
    pid_t second = IN_TIME("second", "100", WORK("4", FP32), "--gpu", "1");
    AWAIT(job_count("idle", "gpus") == 1 && job_count("second", "gpus") == 1);
    /* Its first request may come late. */
    AWAIT(({
        run_patiently((const char *const[]){"cede", "advise", WINDOW, "a", "idle", NULL});
        result.status &&strstr(result.err, "what idle uses of the GPU cannot be told while other");
    }));
    FAILS(1, "second: it is on another GPU than the first one", "advise", WINDOW, "a", "second");
    FAILS(2, "there are jobs on several GPUs", "advise", WINDOW);
    CEDE("pause", "b");
    FAILS(1, "b: it does not run now", "advise", WINDOW, "a", "b");
    CEDE("resume", "b");
    /* One tries a job at a time. */
    pid_t first = await_trial(&t, IN_BACKGROUND("a", "b"));
    FAILS(1, "wait for some seconds", "advise", WINDOW, "a", "b");
    assert_false(has_ended(first));
    kill(first, SIGKILL);
    await_child(first);
    assert_free(&t);
    kill(idle, SIGTERM);
    kill(second, SIGTERM);
    await_child(idle);
    await_child(second);
    end_two(&t);
}

int main(void)
{
    return e2e_at_once();
}
