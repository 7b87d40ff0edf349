/* `cede profile` and `cede advise`, from a profiler's table to what to do. */
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

static struct result result;

static const char *path_of(const char *name)
{
    static char paths[4][160];
    static unsigned n;
    char *path = paths[n++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", harness_dir(), name);
    return path;
}

/* A program of one kernel: its issue slots, DRAM bandwidth and threads of 132 blocks. */
static void make_profile(const char *name, const char *issue, const char *dram, const char *threads)
{
    char csv[64], json[64];
    snprintf(csv, sizeof(csv), "%s.csv", name);
    snprintf(json, sizeof(json), "%s.json", name);
    FILE *f = fopen(path_of(csv), "w");
    fprintf(f,
            "\"ID\",\"Kernel Name\",\"CC\",\"gpu__time_duration.sum\",\"launch__grid_size\","
            "\"launch__block_size\",\"smsp__issue_active.avg.pct_of_peak_sustained_active\","
            "\"dram__throughput.avg.pct_of_peak_sustained_elapsed\","
            "\"device__attribute_multiprocessor_count\"\n"
            "\"0\",\"kernel_of_%s\",\"9.0\",\"1,000,000\",\"132\",\"%s\",\"%s\",\"%s\",\"132\"\n",
            name, threads, issue, dram);
    fclose(f);
    RUN(&result, "cede", "profile", "--ncu", path_of(csv), "-o", path_of(json));
    assert_int_equal(status_of(result.status), 0);
    assert_non_null(strstr(result.out, "1 kernels, on a GPU of 132 SMs"));
    assert_non_null(strstr(result.out, "kernel_of_"));
}

static void expect_advice(const char *a, const char *b, const char *advice, const char *limit)
{
    RUN(&result, "cede", "advise", "--json", path_of(a), path_of(b));
    assert_int_equal(status_of(result.status), 0);
    json_t *all = json_loads(result.out, 0, NULL);
    const json_t *pair = json_array_get(json_object_get(all, "pairs"), 0);
    const json_t *limits = json_object_get(json_object_get(pair, "pool"), "limits");
    assert_string_equal(json_string_value(json_object_get(pair, "advice")), advice);
    assert_string_equal(json_string_value(json_array_get(limits, 0)), limit);
    json_decref(all);
}

static void pairs(void **state)
{
    (void)state;
    make_profile("computes", "40", "1", "128");
    make_profile("greedy", "100", "0", "128");
    make_profile("copies", "10", "60", "1024");
    make_profile("fills", "60", "5", "1024");
    expect_advice("computes.json", "copies.json", "pool", "nothing");
    expect_advice("greedy.json", "greedy.json", "turns", "issue slots");
    expect_advice("copies.json", "greedy.json", "split", "issue slots");
    RUN(&result, "cede", "advise", path_of("computes.json"), path_of("copies.json"),
        path_of("fills.json"));
    assert_int_equal(status_of(result.status), 0);
    assert_non_null(strstr(result.out, "computes + copies"));
    assert_non_null(strstr(result.out, "copies + fills"));
    assert_non_null(strstr(result.out, "--pool\n"));
}

/* Whether they contend is the same; but two that are idle most of the time do as well in turns. */
static void gaps(void **state)
{
    (void)state;
    make_profile("computes", "40", "1", "128");
    RUN(&result, "cede", "profile", "--ncu", path_of("computes.csv"), "--busy", "5%", "-o",
        path_of("rarely.json"));
    assert_int_equal(status_of(result.status), 0);
    expect_advice("computes.json", "computes.json", "pool", "nothing");
    expect_advice("rarely.json", "rarely.json", "turns", "nothing");
    RUN(&result, "cede", "profile", "--ncu", path_of("computes.csv"), "--busy", "101%");
    assert_int_equal(status_of(result.status), 2);
    assert_non_null(strstr(result.err, "--busy: '101%' is no percentage above 0 and up to 100"));
}

static void write_profile(const char *file, const char *name, unsigned sms, const char *us)
{
    FILE *f = fopen(path_of(file), "w");
    fprintf(f,
            "{\"program\":\"%s\",\"gpu\":{\"sms\":%u,\"sm_threads\":2048,\"sm_blocks\":32},"
            "\"kernels\":[{\"name\":\"k\",\"calls\":1,\"us\":%s,\"blocks\":9999,"
            "\"threads\":1024,\"use\":{\"DRAM\":0.5}}]}",
            name, sms, us);
    fclose(f);
}

/* Files of others: what steers a terminal, no SMs to split, and times without a ratio. */
static void foreign(void **state)
{
    (void)state;
    write_profile("steers.json", "a\\u001b]0;b\\nc", 132, "10");
    RUN(&result, "cede", "advise", path_of("steers.json"), path_of("steers.json"));
    assert_int_equal(status_of(result.status), 0);
    assert_non_null(strstr(result.out, "a?]0;b?c + a?]0;b?c"));
    RUN(&result, "cede", "profile", "--ncu", path_of("computes.csv"), "--name", "a\033]0;b");
    assert_non_null(strstr(result.out, "a?]0;b: 1 kernels"));

    write_profile("single.json", "single", 1, "10");
    RUN(&result, "cede", "advise", path_of("single.json"), path_of("single.json"));
    assert_null(strstr(result.out, "inf"));
    expect_advice("single.json", "single.json", "turns", "room for blocks");

    write_profile("long.json", "long", 132, "1e11");
    write_profile("short.json", "short", 132, "1e-300");
    RUN(&result, "cede", "advise", path_of("long.json"), path_of("short.json"));
    assert_int_equal(status_of(result.status), 2);
    assert_non_null(strstr(result.err, "short.json is no profile of `cede profile`, or damaged"));
    write_profile("short.json", "short", 132, "0.001");
    expect_advice("long.json", "short.json", "turns", "room for blocks");
}

static void refused(void **state)
{
    (void)state;
    make_profile("one", "40", "1", "128");
    RUN(&result, "cede", "advise", path_of("one.json"));
    assert_int_equal(status_of(result.status), 2);
    RUN(&result, "cede", "advise", path_of("one.json"), path_of("none.json"));
    assert_int_equal(status_of(result.status), 2);
    assert_non_null(strstr(result.err, "cannot open "));
    RUN(&result, "cede", "advise", path_of("one.json"), path_of("one.csv"));
    assert_int_equal(status_of(result.status), 2);
    assert_non_null(strstr(result.err, "line 1"));
    RUN(&result, "cede", "profile");
    assert_int_equal(status_of(result.status), 2);
    RUN(&result, "cede", "profile", "--ncu", path_of("one.json"));
    assert_int_equal(status_of(result.status), 2);
    assert_non_null(strstr(result.err, "is no table of `ncu --csv`"));
    RUN(&result, "cede", "profile", "--ncu", path_of("one.csv"), "-o", path_of("none/one.json"));
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "cannot write"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pairs), cmocka_unit_test(gaps),
                                       cmocka_unit_test(foreign), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
