/* `cede bench` as a whole, on the software GPU. "all": every scenario that can run there,
 * shortened, and the report; asserts shapes and orderings. "some": a few of these, which is enough
 * for sanitizers. "faults": what goes wrong is told, and nothing is left behind. */
#include "../cli/harness.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/util.h"

static struct result result;
static bool some;

static json_t *read_json(const char *name)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/%s.json", harness_dir(), name);
    json_t *o = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (!o)
        fail_msg("%s is not there or not JSON", path);
    return o;
}

static double value(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(json_object_get(o, "results"), key);
    if (!json_is_number(v))
        fail_msg("no %s", key);
    return json_number_value(v);
}

/* The fields of the test plan's record, and a cell for whatever a row speaks of. */
static void check_shape(const json_t *o)
{
    static const char *const texts[] = {"test_id",        "test_name", "date",   "hardware",
                                        "kernel",         "notes",     "device", "cede_version",
                                        "driver_version", "command"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        assert_true(json_string_length(json_object_get(o, texts[i])) > 0);
    if (json_object_get(o, "skipped")) {
        assert_true(json_is_null(json_object_get(o, "pass")));
        return;
    }
    assert_true(json_is_boolean(json_object_get(o, "pass")));
    assert_true(json_object_size(json_object_get(o, "results")) > 0);
    assert_int_equal(json_integer_value(json_object_get(o, "failed_cells")), 0);
    const json_t *cell, *row;
    size_t i, k;
    json_array_foreach(json_object_get(o, "cells"), i, cell)
    {
        const char *status = json_string_value(json_object_get(cell, "status"));
        const char *config = json_string_value(json_object_get(cell, "config"));
        assert_non_null(status);
        if (strcmp(status, "ok") != 0) /* MPS is the only thing that a software GPU lacks */
            assert_string_equal(config, "mps");
        else
            assert_true(json_object_size(json_object_get(cell, "roles")) > 0);
    }
    json_array_foreach(json_object_get(o, "rows"), k, row)
        assert_true(json_is_object(json_object_get(row, "roles")));
    assert_true(i > 0 && k > 0);
}

static void other_figures(void)
{
    json_t *o = read_json("partition");
    double first = value(o, "cede.first.share[part=0.75]");
    double second = value(o, "cede.second.share[part=0.75]");
    assert_true(first > 2 * second && first + second > 0.9 && first + second < 1.1);
    json_decref(o);
    o = read_json("adoption");
    assert_true(value(o, "adopted.latency.p99_us") < value(o, "before.latency.p99_us"));
    assert_true(value(o, "adopted.latency.p99_us") < value(o, "detached.latency.p99_us"));
    json_decref(o);
    o = read_json("lognormal");
    double late = value(o, "edf.requests.late[load=80]");
    assert_true(late >= 0 && late <= 1);
    assert_true(value(o, "edf.requests.late[load=30]") <
                value(o, "fifo.requests.late[load=30]") +
                    0.1); /* a host that stalls makes some late */
    assert_true(value(o, "edf.requests.rate[load=80]") > value(o, "edf.requests.rate[load=30]"));
    json_decref(o);
    o = read_json("serving_soft");
    if (!json_object_get(o, "skipped")) /* for want of Python or a library that Python can load */
        assert_true(value(o, "cede.high.p50_us") < value(o, "default.high.p50_us"));
    json_decref(o);
}

static void all(void **state)
{
    (void)state;
    if (some)
        RUN(&result, "cede", "bench", "run", "preemption", "swap", "pause", "priority", "hints",
            "gpus", "--device", "soft", "--quick", "--json", "--out", harness_dir());
    else
        RUN(&result, "cede", "bench", "run", "all", "--device", "soft", "--quick", "--json",
            "--out", harness_dir());
    /* 1: a target was missed, which a busy machine may cause; what has to hold is looked at below
     */
    if (status_of(result.status) > 1)
        fail_msg("status %d: %s", status_of(result.status), result.err);
    json_t *summary = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL), *s;
    size_t i, ran = 0, skipped = 0;
    assert_non_null(summary);
    assert_int_equal(json_integer_value(json_object_get(summary, "failed_cells")), 0);
    json_array_foreach(json_object_get(summary, "scenarios"), i, s)
    {
        json_t *o = read_json(json_string_value(json_object_get(s, "scenario")));
        check_shape(o);
        *(json_object_get(o, "skipped") ? &skipped : &ran) += 1;
        json_decref(o);
    }
    json_decref(summary);
    assert_true(some || (ran >= 10 && skipped >= 3));

    json_t *o = read_json("preemption");
    static const char *const kernels[] = {"500", "10000"};
    for (i = 0; i < ARRAY_SIZE(kernels); i++) {
        char a[64], b[64], c[64];
        snprintf(a, sizeof(a), "alone.latency.p99_us[kernel_us=%s]", kernels[i]);
        snprintf(b, sizeof(b), "cede.latency.p99_us[kernel_us=%s]", kernels[i]);
        snprintf(c, sizeof(c), "default.latency.p99_us[kernel_us=%s]", kernels[i]);
        assert_true(value(o, a) < value(o, b) && value(o, b) < value(o, c));
    }
    json_decref(o);
    o = read_json("swap");
    static const char *const sizes[] = {"128", "1024"};
    double before = 0;
    for (i = 0; i < ARRAY_SIZE(sizes); i++) { /* more takes longer, and more out than in */
        char a[64], b[64], c[64];
        snprintf(a, sizeof(a), "out.verb.us[mib=%s]", sizes[i]);
        snprintf(b, sizeof(b), "back.verb.us[mib=%s]", sizes[i]);
        snprintf(c, sizeof(c), "out.batch.rate[mib=%s]", sizes[i]);
        assert_true(value(o, c) < 0.01);
        assert_true(value(o, a) > before);
        before = value(o, a);
        if (i == 1)
            assert_true(before > value(o, b));
    }
    json_decref(o);
    o = read_json("gpus");
    static const char *const latency[] = {"latency0", "latency1"};
    for (i = 0; i < ARRAY_SIZE(latency); i++) { /* on each GPU the batch job is put off */
        char a[64], b[64];
        snprintf(a, sizeof(a), "cede.%s.p50_us", latency[i]);
        snprintf(b, sizeof(b), "default.%s.p50_us", latency[i]);
        assert_true(2 * value(o, a) < value(o, b));
    }
    json_decref(o);
    o = read_json("pause");
    assert_true(value(o, "paused.batch.rate") < 0.01 && value(o, "resumed.batch.rate") > 0.5);
    json_decref(o);

    if (!some)
        other_figures();

    char path[160];
    bool gnuplot = system("gnuplot --version >/dev/null 2>&1") == 0;
    RUN(&result, "cede", "bench", "report", harness_dir(), "--figures");
    assert_int_equal(status_of(result.status), gnuplot ? 0 : 1);
    snprintf(path, sizeof(path), "%s/report.md", harness_dir());
    RUN(&result, "cat", path);
    assert_non_null(strstr(result.out, "| kernel_us 500 | cede | "));
    assert_non_null(strstr(result.out, "| pass |"));
    assert_non_null(strstr(result.out, "skipped: needs an NVIDIA GPU"));
    static const char *const figures[] = {"preemption-1", "preemption-2", "priority-2",
                                          "priority-1"};
    for (i = 0; gnuplot && i < ARRAY_SIZE(figures); i++) {
        struct stat st;
        snprintf(path, sizeof(path), "%s/figures/%s.svg", harness_dir(), figures[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_true(st.st_size > 2000);
        assert_non_null(strstr(result.out, figures[i]));
        snprintf(path, sizeof(path), "%s/figures/%s.png", harness_dir(), figures[i]);
        assert_int_equal(stat(path, &st), 0);
    }
}

/* ---- faults ---- */

static const char *scenario_file(const char *text)
{
    static char path[160];
    snprintf(path, sizeof(path), "%s/mine.ini", harness_dir());
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    return path;
}

#define HEAD "[scenario]\ntitle = t\nid = 1\nseconds = 0.3\nsettle = 0.1\nrepeat = 1\n"

static void usage(void **state)
{
    (void)state;
    static const char *const table[][4] = {
        {"bench", NULL},
        {"bench", "fly", NULL},
        {"bench", "run", NULL},
        {"bench", "run", "nosuchscenario", NULL},
        {"bench", "list", "x", NULL},
        {"bench", "report", NULL},
        {"bench", "run", "--repeat=0", NULL},
        {"bench", "run", "--device=tpu", NULL},
        {"bench", "run", "--resume", NULL},
        {"bench", "list", "--resume", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        RUN(&result, "cede", table[i][0], table[i][1], table[i][1] ? table[i][2] : NULL);
        if (status_of(result.status) != 2 || !result.err[0])
            fail_msg("row %zu: status %d: %s", i, status_of(result.status), result.err);
    }
    RUN(&result, "cede", "bench", "run", "--device=soft",
        scenario_file("[scenario]\ntitle = t\nnonsense = 1\n"));
    assert_int_equal(status_of(result.status), 2);
    assert_non_null(strstr(result.err, "mine.ini:3: unknown key"));
    RUN(&result, "cede", "bench", "report", harness_dir());
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "no results"));
    RUN(&result, "cede", "bench", "list");
    assert_int_equal(status_of(result.status), 0);
    assert_non_null(strstr(result.out, "preemption "));
}

/* A program that fails is a cell that failed, with what it said; the others are measured all the
 * same, and a tool of somebody else's is wrapped around programs, started and stopped. */
static void failed_cells(void **state)
{
    (void)state;
    char marks[160], script[160], text[1200];
    snprintf(script, sizeof(script), "%s/broken", harness_dir());
    snprintf(marks, sizeof(marks), "%s/marks", harness_dir());
    snprintf(text, sizeof(text),
             HEAD "configs = default broken other\n[config broken]\nbase = other\nwrap = %s\n"
                  "[config other]\nstart = echo start >>%s\nstop = echo stop >>%s\n"
                  "wrap = env WRAPPED=1\n[role batch]\nload = batch\n"
                  "[target it is shown]\ncheck = broken.batch.rate > 0\n"
                  "[target others count]\ncheck = other.batch.share > 0.5\n",
             script, marks, marks);
    FILE *f = fopen(script, "we");
    assert_non_null(f);
    fputs("#!/bin/sh\nprintf 'gr\\303\\266\\337er\\n' >&2\necho no such thing >&2\nexit 3\n", f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(script, 0755), 0);
    RUN(&result, "cede", "bench", "run", "--device=soft", "--out", harness_dir(),
        scenario_file(text));
    assert_int_equal(status_of(result.status), 1);
    json_t *o = read_json("mine"), *cell;
    size_t i, failed = 0;
    assert_int_equal(json_integer_value(json_object_get(o, "failed_cells")), 1);
    json_array_foreach(json_object_get(o, "cells"), i, cell)
    {
        if (strcmp(json_string_value(json_object_get(cell, "status")), "failed") != 0)
            continue;
        failed++;
        assert_string_equal(json_string_value(json_object_get(cell, "config")), "broken");
        assert_non_null(
            strstr(json_string_value(json_object_get(cell, "stderr")), "no such thing"));
        assert_non_null(strstr(json_string_value(json_object_get(cell, "error")), "status 3"));
    }
    assert_int_equal(failed, 1);
    assert_true(value(o, "other.batch.share") > 0.5);
    json_decref(o);
    RUN(&result, "cat", marks);
    assert_string_equal(result.out, "start\nstop\n");
    RUN(&result, "cede", "bench", "report", harness_dir());
    char report[160];
    snprintf(report, sizeof(report), "%s/report.md", harness_dir());
    RUN(&result, "cat", report);
    assert_non_null(strstr(result.out, "**failed**"));
}

/* Results of somebody else's: what they say runs nothing, and what cannot be drawn is told. */
static void report_of_others(void **state)
{
    (void)state;
    char path[160], mark[160];
    snprintf(path, sizeof(path), "%s/theirs.json", harness_dir());
    snprintf(mark, sizeof(mark), "%s/mark", harness_dir());
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f,
            "{\"scenario\":\"theirs\",\"test_id\":\"1\",\"test_name\":\"\\\"`touch %s`\","
            "\"hardware\":\"`touch %s`\",\"figures\":\"bars b.rate\\nbars share latency\\nbars "
            "b.`touch\","
            "\"rows\":[{\"config\":\"`touch %s`\",\"point\":{\"`touch %s`\":1},\"status\":\"ok\","
            "\"roles\":{\"b\":{\"rate\":{\"median\":1,\"min\":1,\"max\":1,\"n\":1}}}}]}\n",
            mark, mark, mark, mark);
    assert_int_equal(fclose(f), 0);
    RUN(&result, "cede", "bench", "report", harness_dir(), "--figures");
    assert_int_equal(status_of(result.status), 1);
    assert_int_equal(access(mark, F_OK), -1);
    snprintf(path, sizeof(path), "%s/report.md", harness_dir());
    RUN(&result, "cat", path);
    assert_non_null(strstr(result.out, "touch")); /* its title, in words */
}

/* --only and --repeat: one configuration, and the programs alone, so often. */
static void choice(void **state)
{
    (void)state;
    RUN(&result, "cede", "bench", "run", "--device=soft", "--only=cede", "--repeat=2", "--out",
        harness_dir(), scenario_file(HEAD "configs = default cede\n[role b]\nload = batch\n"));
    assert_int_equal(status_of(result.status), 0);
    json_t *o = read_json("mine"), *cell;
    size_t i;
    json_array_foreach(json_object_get(o, "cells"), i, cell)
        assert_string_not_equal(json_string_value(json_object_get(cell, "config")), "default");
    assert_int_equal(i, 4);
    json_decref(o);
    RUN(&result, "cede", "bench", "run", "--device=soft", "--only=ceed",
        scenario_file(HEAD "configs = default cede\n[role b]\nload = batch\n"));
    assert_int_equal(status_of(result.status), 2);
    assert_non_null(strstr(result.err, "--only ceed: none of these scenarios"));
}

/* What the device or the machine has not is left out, with the reason; it is no failure. */
static void lacking(void **state)
{
    (void)state;
    RUN(&result, "cede", "bench", "run", "--device=soft", "--out", harness_dir(), "hints",
        scenario_file(HEAD "memory_mib = size\n[axis size]\nvalues = 1 1e9\n"
                           "[role b]\nload = batch\n[phase p]\ndo = wait\n[phase q]\ndo = wait\n"
                           "[target t]\ncheck = p.b.rate > 0\n"));
    assert_int_equal(status_of(result.status), 0);
    assert_non_null(strstr(result.out, "hints: skipped: needs an NVIDIA GPU"));
    json_t *o = read_json("mine"), *cell;
    size_t i;
    json_array_foreach(json_object_get(o, "cells"), i, cell) assert_string_equal(
        json_string_value(json_object_get(cell, "status")), i < 2 ? "ok" : "unavailable");
    assert_int_equal(i, 4);
    assert_int_equal(json_integer_value(json_object_get(o, "failed_cells")), 0);
    json_decref(o);
}

/* On a GPU server with all that scenarios need, MPS included, all of them take less than an hour.
 */
static void within_an_hour(void **state)
{
    (void)state;
    char mps[160], path[4400], old[4096];
    snprintf(mps, sizeof(mps), "%s/nvidia-cuda-mps-control", harness_dir());
    FILE *f = fopen(mps, "we");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(mps, 0755), 0);
    snprintf(old, sizeof(old), "%s", getenv("PATH"));
    snprintf(path, sizeof(path), "%s:%s", harness_dir(), old);
    setenv("PATH", path, 1);
    RUN(&result, "cede", "bench", "list", "--device=nvidia");
    setenv("PATH", old, 1);
    double minutes = 0;
    const char *all = strstr(result.out, "\nall ");
    assert_non_null(all);
    assert_int_equal(sscanf(all, "\nall %lf min", &minutes), 1);
    if (!(minutes > 10 && minutes < 60))
        fail_msg("%g minutes", minutes);
}

/* The times of the list: those of the windows at least, none for another device; their sum. */
static void listed(void **state)
{
    (void)state;
    RUN(&result, "cede", "bench", "list", "--device=soft", "--json");
    assert_int_equal(status_of(result.status), 0);
    json_t *list = json_loads(result.out, 0, NULL), *s;
    double sum = 0, told = -1;
    size_t i;
    assert_non_null(list);
    json_array_foreach(list, i, s)
    {
        bool out = strstr(json_string_value(json_object_get(s, "needs")), "nvidia") ||
                   strstr(json_string_value(json_object_get(s, "needs")), "opencl");
        assert_true(json_is_string(json_object_get(s, "left_out")) == out);
        if (strcmp(json_string_value(json_object_get(s, "name")), "overhead") == 0)
            assert_true(json_number_value(json_object_get(s, "seconds")) >= 3 * 3 * 4.5);
        sum += out ? 0 : json_number_value(json_object_get(s, "seconds"));
    }
    json_decref(list);
    RUN(&result, "cede", "bench", "list", "--device=soft");
    const char *all = strstr(result.out, "\nall ");
    assert_non_null(all);
    assert_int_equal(sscanf(all, "\nall %lf min", &told), 1);
    assert_true(fabs(told - sum / 60) < 0.06);
}

/* As a run that was cut off leaves it. */
static void drop_cell(void)
{
    char path[160];
    json_t *o = read_json("mine"), *cells = json_object_get(o, "cells");
    assert_int_equal(json_array_remove(cells, json_array_size(cells) - 1), 0);
    snprintf(path, sizeof(path), "%s/mine.json", harness_dir());
    assert_int_equal(json_dump_file(o, path, 0), 0);
    json_decref(o);
}

static json_t *resume(const char *file, const char *says)
{
    RUN(&result, "cede", "bench", "run", "--device=soft", "--resume", "--out", harness_dir(), file);
    if (!strstr(result.err, says))
        fail_msg("no '%s' in %s", says, result.err);
    return read_json("mine");
}

/* --resume: what is whole is kept as it is, missed targets included; all else is measured anew. */
static void resumed(void **state)
{
    (void)state;
#define KEPT                                                                                       \
    HEAD "configs = default cede\n[axis n]\nvalues = 1 2\n[role b]\nload = batch\ncount = n\n"     \
         "[target missed]\ncheck = cede.b.rate < 0\n"
    const char *file = scenario_file(KEPT);
    RUN(&result, "cede", "bench", "run", "--device=soft", "--resume", "--out", harness_dir(), file);
    assert_int_equal(status_of(result.status), 1);
    json_t *first = read_json("mine"), *again = resume(file, "mine: kept: ");
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.out, "mine: kept, of "));
    assert_non_null(strstr(result.out, "MISS  mine: cede.b.rate < 0"));
    assert_true(json_equal(first, again));
    json_decref(again);
    drop_cell();
    again = resume(file, "has 4 of 5 sessions");
    assert_non_null(strstr(result.err, "mine: measured anew: "));
    assert_false(json_equal(first, again));
    assert_int_equal(json_array_size(json_object_get(again, "cells")), 5);
    json_decref(again);
    again = resume(scenario_file(KEPT "; the same, but for these words\n"),
                   "is of another version of the scenario's file");
    json_decref(again);
    json_decref(first);

    char path[160];
    snprintf(path, sizeof(path), "%s/mine.json", harness_dir());
    RUN(&result, "cede", "bench", "list", "--device=soft", "--scenarios", harness_dir(), "--out",
        harness_dir());
    assert_non_null(strstr(result.out, " done  t"));
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    json_decref(resume(file, "cannot be read"));
}

static void await_line(const char *path, const char *what)
{
    for (int i = 0; i < 4000; i++) {
        char command[300];
        snprintf(command, sizeof(command), "grep -q '%s' '%s' 2>/dev/null", what, path);
        if (system(command) == 0)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    fail_msg("no '%s' in %s", what, path);
}

/* ^C in the middle: finished cells stay, programs do not. The test is their subreaper, so whatever
 * was left behind would be its child. */
static void interrupted(void **state)
{
    (void)state;
    int out;
    char path[160];
    char text[600];
    snprintf(path, sizeof(path), "%s/begun", harness_dir());
    snprintf(text, sizeof(text),
             HEAD "configs = default cede\n[config default]\nstart = echo >>%s\nstop = rm %s\n"
                  "[config cede]\nstart = echo >>%s\nstop = rm %s\n"
                  "[role b]\nload = batch\ncount = 3\n",
             path, path, path, path);
    const char *file = scenario_file(text);
    snprintf(path, sizeof(path), "%s/mine.json", harness_dir());
    const char *const argv[] = {
        "cede", "bench", "run", "--device=soft", "--repeat=50", "--out", harness_dir(), file, NULL};
    pid_t pid = start_program(&out, argv);
    await_line(path, "\"cede\"");
    assert_int_equal(kill(pid, SIGINT), 0);
    int st = 0;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(status_of(st), 130);
    close(out);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    snprintf(path, sizeof(path), "%s/begun", harness_dir());
    assert_int_equal(access(path, F_OK), -1); /* `stop` has run */
    RUN(&result, "cede", "bench", "list", "--device=soft", "--repeat=50", "--scenarios",
        harness_dir(), "--out", harness_dir());
    assert_non_null(strstr(result.out, "mine "));
    assert_null(strstr(result.out, " done "));
    json_t *o = read_json("mine");
    assert_true(json_array_size(json_object_get(o, "cells")) >= 2);
    json_decref(o);
}

/* Real programs on a real OpenCL device, held by the gate: every cell comes about, results are
 * right, and what the environment of a configuration says makes cells of its own. */
static void opencl(void **state)
{
    (void)state;
    RUN(&result, "cede", "bench", "run", "--device=opencl", "--out", harness_dir(),
        scenario_file(HEAD "needs = opencl\nconfigs = default fixed cede\n"
                           "[axis n]\nvalues = 1 4\n"
                           "[role latency]\nclass = latency\n"
                           "load = latency --kernel-us 100 --period-us 5000\n"
                           "[role batch]\nload = batch --kernel-us 200\nclass = batch\n"
                           "[config fixed]\nbase = cede\nenv = CEDE_GATE_THRESHOLD={n}\n"));
    if (status_of(result.status) != 0)
        fail_msg("status %d: %s", status_of(result.status), result.err);
    json_t *o = read_json("mine"), *cell;
    size_t i;
    check_shape(o);
    json_array_foreach(json_object_get(o, "cells"), i, cell)
        assert_string_equal(json_string_value(json_object_get(cell, "status")), "ok");
    assert_int_equal(i, 2 + 1 + 2 + 1);
    assert_true(value(o, "fixed.batch.rate[n=4]") > 0);
    assert_true(value(o, "cede.latency.rate[n=4]") > 0);
    assert_string_equal(json_string_value(json_object_get(o, "device")), "opencl");
    json_decref(o);
}

/* 77 without an OpenCL device. */
static int opencl_only(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(opencl, harness_begin, harness_end),
    };
    char command[600];
    snprintf(command, sizeof(command),
             "%s load batch --device opencl --iterations-per-us 1 --requests 1 >/dev/null",
             harness_exe());
    return system(command) == 0 ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "opencl") == 0)
        return opencl_only();
    const struct CMUnitTest whole[] = {
        cmocka_unit_test_setup_teardown(all, harness_begin, harness_end),
    };
    const struct CMUnitTest faults[] = {
        cmocka_unit_test_setup_teardown(usage, harness_begin, harness_end),
        cmocka_unit_test_setup_teardown(failed_cells, harness_begin, harness_end),
        cmocka_unit_test_setup_teardown(report_of_others, harness_begin, harness_end),
        cmocka_unit_test_setup_teardown(choice, harness_begin, harness_end),
        cmocka_unit_test_setup_teardown(lacking, harness_begin, harness_end),
        cmocka_unit_test_setup_teardown(listed, harness_begin, harness_end),
        cmocka_unit_test_setup_teardown(within_an_hour, harness_begin, harness_end),
        cmocka_unit_test_setup_teardown(resumed, harness_begin, harness_end),
        cmocka_unit_test_setup_teardown(interrupted, harness_begin, harness_end),
    };
    some = argc == 2 && strcmp(argv[1], "some") == 0;
    return some || (argc == 2 && strcmp(argv[1], "all") == 0)
               ? cmocka_run_group_tests(whole, NULL, NULL)
               : cmocka_run_group_tests(faults, NULL, NULL);
}
