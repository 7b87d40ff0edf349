/* `cede bench` as a whole, on the software GPU. "all": every scenario that can run there,
 * shortened, and the report; asserts shapes and orderings, but for one that compares latencies:
 * "alone". "some": a few of these, which is enough for sanitizers. Both take two numbers more, K
 * and N: only every N-th of them from the K-th on, so that several can run at the same time.
 * "opencl": a scenario of its own on an OpenCL device. */
#include "results.h"

#include <sys/stat.h>

static bool some, alone;
static unsigned long part, parts = 1;

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

static void check_preemption(void)
{
    static const char *const kernels[] = {"500", "10000"};
    json_t *o = read_json("preemption");
    for (size_t i = 0; i < ARRAY_SIZE(kernels); i++) {
        char a[64], b[64], c[64];
        snprintf(a, sizeof(a), "alone.latency.p99_us[kernel_us=%s]", kernels[i]);
        snprintf(b, sizeof(b), "cede.latency.p99_us[kernel_us=%s]", kernels[i]);
        snprintf(c, sizeof(c), "default.latency.p99_us[kernel_us=%s]", kernels[i]);
        assert_true(value(o, a) < value(o, b) && value(o, b) < value(o, c));
    }
    json_decref(o);
}

/* More takes longer, and more out than in. */
static void check_swap(void)
{
    static const char *const sizes[] = {"128", "1024"};
    json_t *o = read_json("swap");
    double before = 0;
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
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
}

/* On each GPU the batch job is put off. */
static void check_gpus(void)
{
    static const char *const latency[] = {"latency0", "latency1"};
    json_t *o = read_json("gpus");
    for (size_t i = 0; i < ARRAY_SIZE(latency); i++) {
        char a[64], b[64];
        snprintf(a, sizeof(a), "cede.%s.p50_us", latency[i]);
        snprintf(b, sizeof(b), "default.%s.p50_us", latency[i]);
        assert_true(2 * value(o, a) < value(o, b));
    }
    json_decref(o);
}

static void check_pause(void)
{
    json_t *o = read_json("pause");
    assert_true(value(o, "paused.batch.rate") < 0.01 && value(o, "resumed.batch.rate") > 0.5);
    json_decref(o);
}

static void check_partition(void)
{
    json_t *o = read_json("partition");
    double first = value(o, "cede.first.share[part=0.75]");
    double second = value(o, "cede.second.share[part=0.75]");
    assert_true(first > 2 * second && first + second > 0.9 && first + second < 1.1);
    json_decref(o);
}

static void check_adoption(void)
{
    json_t *o = read_json("adoption");
    assert_true(value(o, "adopted.latency.p99_us") < value(o, "before.latency.p99_us"));
    assert_true(value(o, "adopted.latency.p99_us") < value(o, "detached.latency.p99_us"));
    json_decref(o);
}

/* The policies' lateness is not compared: this program's requests wait for a processor too, each
 * policy is measured in a window of its own, and a stall of the machine in one of them makes more
 * late than the policy does. test_requests.c of tests/libcede/pure compares EDF with the order of
 * arrival in virtual time, strictly. */
static void check_lognormal(void)
{
    json_t *o = read_json("lognormal");
    double late = value(o, "edf.requests.late[load=80]");
    assert_true(late >= 0 && late <= 1);
    assert_true(value(o, "edf.requests.rate[load=80]") > value(o, "edf.requests.rate[load=30]"));
    json_decref(o);
}

static void check_serving_soft(void)
{
    json_t *o = read_json("serving_soft");
    if (!json_object_get(o, "skipped")) /* for want of Python or a library that Python can load */
        assert_true(value(o, "cede.high.p50_us") < value(o, "default.high.p50_us"));
    json_decref(o);
}

/* Scenarios of which more is known than their shape, and a figure that the report draws of it. */
static const struct check {
    const char *scenario, *figures[2];
    void (*check)(void);
    enum {
        SANITIZED,
        PLAIN,
        ALONE
    } when; /* also under sanitizers; else; while no other one runs */
} checks[] = {
    {"preemption", {"preemption-1", "preemption-2"}, check_preemption, SANITIZED},
    {"swap", {NULL}, check_swap, SANITIZED},
    {"pause", {NULL}, check_pause, SANITIZED},
    {"priority", {"priority-1", "priority-2"}, NULL, SANITIZED},
    {"hints", {NULL}, NULL, SANITIZED},
    {"gpus", {NULL}, check_gpus, SANITIZED},
    {"partition", {NULL}, check_partition, PLAIN},
    {"adoption", {NULL}, check_adoption, PLAIN},
    {"lognormal", {NULL}, check_lognormal, PLAIN},
    {"serving_soft", {NULL}, check_serving_soft, ALONE},
};

static const struct check *check_of(const char *scenario)
{
    for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
        if (strcmp(checks[i].scenario, scenario) == 0)
            return &checks[i];
    return NULL;
}

/* Every parts-th of the scenarios that there are, or of those for sanitizers. */
static size_t choose(const char *names[], size_t max)
{
    RUN(&result, "cede", "bench", "list", "--device", "soft", "--json");
    assert_int_equal(status_of(result.status), 0);
    json_t *list = json_loads(result.out, 0, NULL), *s;
    size_t i, n = 0, seen = 0;
    json_array_foreach(list, i, s)
    {
        const char *name = json_string_value(json_object_get(s, "name"));
        const struct check *c = check_of(name);
        if ((some && !(c && c->when == SANITIZED)) || alone != (c && c->when == ALONE))
            continue;
        if (seen++ % parts != part)
            continue;
        assert_true(n < max);
        names[n++] = strdup(name);
    }
    json_decref(list);
    assert_true(seen >= (alone ? 1 : some ? 6 : 12) && n);
    return n;
}

static void check_report(const char *const names[], size_t n, bool skipped)
{
    char path[160];
    bool gnuplot = system("gnuplot --version >/dev/null 2>&1") == 0;
    RUN(&result, "cede", "bench", "report", harness_dir(), "--figures");
    assert_int_equal(status_of(result.status), gnuplot ? 0 : 1);
    snprintf(path, sizeof(path), "%s/report.md", harness_dir());
    RUN(&result, "cat", path);
    assert_non_null(strstr(result.out, "| pass |"));
    if (skipped)
        assert_non_null(strstr(result.out, "skipped: needs an NVIDIA GPU"));
    for (size_t i = 0; i < n; i++) {
        const struct check *c = check_of(names[i]);
        if (strcmp(names[i], "preemption") == 0)
            assert_non_null(strstr(result.out, "| kernel_us 500 | cede | "));
        for (size_t k = 0; gnuplot && c && k < ARRAY_SIZE(c->figures) && c->figures[k]; k++) {
            struct stat st;
            snprintf(path, sizeof(path), "%s/figures/%s.svg", harness_dir(), c->figures[k]);
            assert_int_equal(stat(path, &st), 0);
            assert_true(st.st_size > 2000);
            assert_non_null(strstr(result.out, c->figures[k]));
            snprintf(path, sizeof(path), "%s/figures/%s.png", harness_dir(), c->figures[k]);
            assert_int_equal(stat(path, &st), 0);
        }
    }
}

static void whole(void **state)
{
    (void)state;
    enum { MAX = 80 };
    const char *names[MAX];
    size_t n = choose(names, MAX), i;
    const char *argv[MAX + 10] = {"cede",    "bench",  "run",   "--device",   "soft",
                                  "--quick", "--json", "--out", harness_dir()};
    memcpy(argv + 9, names, n * sizeof(*names));
    run_program(&result, NULL, argv);
    /* 1: a target was missed, which a busy machine may cause; what has to hold is looked at below
     */
    if (status_of(result.status) > 1)
        fail_msg("status %d: %s", status_of(result.status), result.err);
    json_t *summary = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL), *s;
    size_t listed = 0, skipped = 0;
    assert_non_null(summary);
    if (json_integer_value(json_object_get(summary, "failed_cells")) != 0)
        fail_msg("cells failed: %s%s", result.out, result.err);
    json_array_foreach(json_object_get(summary, "scenarios"), i, s)
    {
        json_t *o = read_json(json_string_value(json_object_get(s, "scenario")));
        check_shape(o);
        skipped += json_object_get(o, "skipped") != NULL;
        listed++;
        json_decref(o);
    }
    json_decref(summary);
    assert_int_equal(listed, n);
    assert_true(skipped < n);
    for (i = 0; i < n; i++)
        if (check_of(names[i]) && check_of(names[i])->check)
            check_of(names[i])->check();
    check_report(names, n, skipped > 0);
    for (i = 0; i < n; i++)
        free((char *)(uintptr_t)names[i]);
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

/* Two clients of one server, started by the configuration's environment: what they do is told. */
static void speeds(void **state)
{
    (void)state;
    char text[1024];
    snprintf(text, sizeof(text),
             "[scenario]\ntitle = t\nid = 1\nseconds = 3\nsettle = 7\nrepeat = 1\n"
             "configs = shared\n"
             "[role a]\nload = batch --depth 40 --uses tensor16=0.8\nclass = batch\n"
             "[role b]\nload = batch --depth 40 --uses fp32=0.5\nclass = batch\n"
             "[config shared]\nbase = cede\nenv = CUDA_MPS_PIPE_DIRECTORY=%s\n"
             "[target told]\ncheck = shared.a.speed >= 0.1\n",
             harness_dir());
    RUN(&result, "cede", "bench", "run", "--device=soft", "--out", harness_dir(),
        scenario_file(text));
    if (status_of(result.status) != 0)
        fail_msg("status %d: %s%s", status_of(result.status), result.out, result.err);
    json_t *o = read_json("mine");
    assert_true(value(o, "shared.a.speed") > 0.1 && value(o, "shared.b.speed") > 0.1);
    assert_null(json_object_get(json_object_get(o, "results"), "alone.a.speed"));
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
    const struct CMUnitTest all[] = {
        cmocka_unit_test_setup_teardown(whole, harness_begin, harness_end),
    };
    if (argc == 2 && strcmp(argv[1], "speeds") == 0) {
        const struct CMUnitTest one[] = {
            cmocka_unit_test_setup_teardown(speeds, harness_begin, harness_end),
        };
        return cmocka_run_group_tests(one, NULL, NULL);
    }
    alone = argc == 2 && strcmp(argv[1], "alone") == 0;
    if (alone)
        return cmocka_run_group_tests(all, NULL, NULL);
    if (argc != 4)
        return 2;
    some = strcmp(argv[1], "some") == 0;
    part = strtoul(argv[2], NULL, 10);
    parts = strtoul(argv[3], NULL, 10);
    return cmocka_run_group_tests(all, NULL, NULL);
}
