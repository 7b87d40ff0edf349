/* `cede bench` on the software GPU when something goes wrong: it is told, counted and survived, and
 * nothing is left behind. */
#include "results.h"

#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TEST_WITH(usage, harness_begin, harness_end)
{
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
    BENCH(2, NULL, "mine.ini:3: unknown key", "run", "--device=soft",
          scenario_file("[scenario]\ntitle = t\nnonsense = 1\n"));
    if (access("/dev/nvidiactl", F_OK) < 0) {
        RUN(&result, "cede", "bench", "run", "nosuchscenario");
        assert_ptr_equal(strstr(result.err, "cede: bench: no NVIDIA GPU is here"), result.err);
        RUN(&result, "cede", "bench", "run", "--device=soft", "nosuchscenario");
        assert_null(strstr(result.err, "no NVIDIA GPU"));
    }
    BENCH(1, NULL, "no results", "report", harness_dir());
    BENCH(0, "preemption ", NULL, "list");
}

/* What measures needs no Python, and what does not measure says so where there is none. */
TEST_WITH(runner, harness_begin, harness_end)
{
    SAYS(&result, 1, NULL, "python3 is not installed", "sh", "-c",
         "exec env PATH=/nonexistent \"$CEDE_EXE\" bench list");
#define CELLS "exec env PATH=/nonexistent \"$CEDE_EXE\" bench cells soft /nonexistent"
#define ROLE  "{\"name\":\"b\",\"load\":\"batch\"}"
    RUN(&result, "sh", "-c",
        "echo '{\"seconds\":0.2,\"settle\":0.1,\"roles\":[" ROLE "]}' | " CELLS);
    assert_int_equal(status_of(result.status), 0);
    char *second = strchr(result.out, '\n');
    assert_non_null(second);
    json_t *about = json_loadb(result.out, (size_t)(second - result.out), 0, NULL);
    json_t *answer = json_loads(second + 1, 0, NULL);
    const json_t *cell = json_array_get(json_object_get(answer, "cells"), 0);
    assert_true(json_string_length(json_object_get(about, "gpu")) > 0);
    assert_string_equal(text_of(cell, "status"), "ok");
    assert_true(json_number_value(json_object_get(
                    json_object_get(json_object_get(cell, "roles"), "b"), "rate")) > 0);
    json_decref(about);
    json_decref(answer);
    SAYS(&result, 2, "{\"error\":\"plan: gpus has to be", NULL, "sh", "-c",
         "echo '{\"roles\":[" ROLE "],\"gpus\":99}' | " CELLS);
    SAYS(&result, 2, "plan: not JSON", NULL, "sh", "-c", "echo nothing | " CELLS);
}

/* A program that fails is a cell that failed, with what it said; the others are measured all the
 * same, and a tool of somebody else's is wrapped around programs, started and stopped. */
TEST_WITH(failed_cells, harness_begin, harness_end)
{
    char text[1200];
    const char *marks = harness_file("marks");
    const char *script = write_file("broken", "#!/bin/sh\nprintf 'gr\\303\\266\\337er\\n' >&2\n"
                                              "echo no such thing >&2\nexit 3\n");
    assert_int_equal(chmod(script, 0755), 0);
    snprintf(text, sizeof(text),
             HEAD "configs = default broken other\n[config broken]\nbase = other\nwrap = %s\n"
                  "[config other]\nstart = echo start >>%s\nstop = echo stop >>%s\n"
                  "wrap = env WRAPPED=1\n[role batch]\nload = batch\n"
                  "[target it is shown]\ncheck = broken.batch.rate > 0\n"
                  "[target others count]\ncheck = other.batch.share > 0.5\n",
             script, marks, marks);
    BENCH(1, NULL, NULL, "run", "--device=soft", "--out", harness_dir(), scenario_file(text));
    json_t *o = read_json("mine"), *cell;
    size_t i, failed = 0;
    assert_int_equal(count_of(o, "failed_cells"), 1);
    json_array_foreach(json_object_get(o, "cells"), i, cell)
    {
        if (strcmp(text_of(cell, "status"), "failed") != 0)
            continue;
        failed++;
        assert_string_equal(text_of(cell, "config"), "broken");
        assert_non_null(strstr(text_of(cell, "stderr"), "no such thing"));
        assert_non_null(strstr(text_of(cell, "error"), "status 3"));
    }
    assert_int_equal(failed, 1);
    assert_true(value(o, "other.batch.share") > 0.5);
    json_decref(o);
    RUN(&result, "cat", marks);
    assert_string_equal(result.out, "start\nstop\n");
    RUN(&result, "cede", "bench", "report", harness_dir());
    RUN(&result, "cat", harness_file("report.md"));
    assert_non_null(strstr(result.out, "**failed**"));
}

/* Results of somebody else's: what they say runs nothing, and what cannot be drawn is told. */
TEST_WITH(report_of_others, harness_begin, harness_end)
{
    char text[1200];
    const char *mark = harness_file("mark");
    snprintf(text, sizeof(text),
             "{\"scenario\":\"theirs\",\"test_id\":\"1\",\"test_name\":\"\\\"`touch %s`\","
             "\"hardware\":\"`touch %s`\",\"figures\":\"bars b.rate\\nbars share latency\\nbars "
             "b.`touch\","
             "\"rows\":[{\"config\":\"`touch %s`\",\"point\":{\"`touch %s`\":1},\"status\":\"ok\","
             "\"roles\":{\"b\":{\"rate\":{\"median\":1,\"min\":1,\"max\":1,\"n\":1}}}}]}\n",
             mark, mark, mark, mark);
    write_file("theirs.json", text);
    BENCH(1, NULL, NULL, "report", harness_dir(), "--figures");
    assert_int_equal(access(harness_file("mark"), F_OK), -1);
    RUN(&result, "cat", harness_file("report.md"));
    assert_non_null(strstr(result.out, "touch")); /* its title, in words */
}

/* --only and --repeat: one configuration, and the programs alone, so often. */
TEST_WITH(choice, harness_begin, harness_end)
{
    BENCH(0, NULL, NULL, "run", "--device=soft", "--only=cede", "--repeat=2", "--out",
          harness_dir(), scenario_file(HEAD "configs = default cede\n[role b]\nload = batch\n"));
    json_t *o = read_json("mine"), *cell;
    size_t i;
    json_array_foreach(json_object_get(o, "cells"), i, cell)
        assert_string_not_equal(text_of(cell, "config"), "default");
    assert_int_equal(i, 4);
    json_decref(o);
    BENCH(2, NULL, "--only ceed: none of these scenarios", "run", "--device=soft", "--only=ceed",
          scenario_file(HEAD "configs = default cede\n[role b]\nload = batch\n"));
}

/* What the device or the machine has not is left out, with the reason; it is no failure. */
TEST_WITH(lacking, harness_begin, harness_end)
{
    /* Where others can write, a link may lie in wait. */
    assert_int_equal(symlink(harness_file("precious"), harness_file("mine.json.tmp")), 0);
    BENCH(0, "hints: skipped: needs an NVIDIA GPU", NULL, "run", "--device=soft", "--out",
          harness_dir(), "hints",
          scenario_file(HEAD "memory_mib = size\n[axis size]\nvalues = 1 1e9\n"
                             "[role b]\nload = batch\n[phase p]\ndo = wait\n[phase q]\ndo = wait\n"
                             "[target t]\ncheck = p.b.rate > 0\n"));
    assert_int_equal(access(harness_file("precious"), F_OK), -1);
    json_t *o = read_json("mine"), *cell;
    size_t i;
    json_array_foreach(json_object_get(o, "cells"), i, cell)
        assert_string_equal(text_of(cell, "status"), i < 2 ? "ok" : "unavailable");
    assert_int_equal(i, 4);
    assert_int_equal(count_of(o, "failed_cells"), 0);
    json_decref(o);
}

/* On a GPU server with all that scenarios need, MPS included, all of them take no longer than what
 * docs/guide.md says. */
TEST_WITH(all_in_time, harness_begin, harness_end)
{
    char path[4400], old[4096];
    assert_int_equal(chmod(write_file("nvidia-cuda-mps-control", ""), 0755), 0);
    snprintf(old, sizeof(old), "%s", getenv("PATH"));
    snprintf(path, sizeof(path), "%s:%s", harness_dir(), old);
    setenv("PATH", path, 1);
    RUN(&result, "cede", "bench", "list", "--device=nvidia");
    setenv("PATH", old, 1);
    double minutes = 0;
    const char *all = strstr(result.out, "\nall ");
    assert_non_null(all);
    assert_int_equal(sscanf(all, "\nall %lf min", &minutes), 1);
    if (!(minutes > 10 && minutes < 85))
        fail_msg("%g minutes", minutes);
}

/* The times of the list: those of the windows at least, none for another device; their sum. */
TEST_WITH(listed, harness_begin, harness_end)
{
    BENCH(0, NULL, NULL, "list", "--device=soft", "--json");
    json_t *list = json_loads(result.out, 0, NULL), *s;
    double sum = 0, told = -1;
    size_t i;
    assert_non_null(list);
    json_array_foreach(list, i, s)
    {
        bool out = strstr(text_of(s, "needs"), "nvidia") || strstr(text_of(s, "needs"), "opencl");
        assert_true(json_is_string(json_object_get(s, "left_out")) == out);
        if (strcmp(text_of(s, "name"), "overhead") == 0)
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
    json_t *o = read_json("mine"), *cells = json_object_get(o, "cells");
    assert_int_equal(json_array_remove(cells, json_array_size(cells) - 1), 0);
    assert_int_equal(json_dump_file(o, harness_file("mine.json"), 0), 0);
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
TEST_WITH(resumed, harness_begin, harness_end)
{
#define KEPT                                                                                       \
    HEAD "configs = default cede\n[axis n]\nvalues = 1 2\n[role b]\nload = batch\ncount = n\n"     \
         "[target missed]\ncheck = cede.b.rate < 0\n"
    const char *file = scenario_file(KEPT);
    BENCH(1, NULL, NULL, "run", "--device=soft", "--resume", "--out", harness_dir(), file);
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

    RUN(&result, "cede", "bench", "list", "--device=soft", "--scenarios", harness_dir(), "--out",
        harness_dir());
    assert_non_null(strstr(result.out, " done  t"));
    write_file("mine.json", "");
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
TEST_WITH(interrupted, harness_begin, harness_end)
{
    int out;
    char text[600];
    const char *path = harness_file("begun");
    snprintf(text, sizeof(text),
             HEAD "configs = default cede\n[config default]\nstart = echo >>%s\nstop = rm %s\n"
                  "[config cede]\nstart = echo >>%s\nstop = rm %s\n"
                  "[role b]\nload = batch\ncount = 3\n",
             path, path, path, path);
    const char *file = scenario_file(text);
    const char *const argv[] = {
        "cede", "bench", "run", "--device=soft", "--repeat=50", "--out", harness_dir(), file, NULL};
    pid_t pid = start_program(&out, argv);
    await_line(harness_file("mine.json"), "\"cede\"");
    assert_int_equal(kill(pid, SIGINT), 0);
    int st = 0;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(status_of(st), 130);
    close(out);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(access(harness_file("begun"), F_OK), -1); /* `stop` has run */
    RUN(&result, "cede", "bench", "list", "--device=soft", "--repeat=50", "--scenarios",
        harness_dir(), "--out", harness_dir());
    assert_non_null(strstr(result.out, "mine "));
    assert_null(strstr(result.out, " done "));
    json_t *o = read_json("mine");
    assert_true(json_array_size(json_object_get(o, "cells")) >= 2);
    json_decref(o);
}
