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
    assert_int_equal(count_of(o, "failed_cells"), 0);
    const json_t *cell, *row;
    size_t i, k;
    json_array_foreach(json_object_get(o, "cells"), i, cell)
    {
        const char *status = text_of(cell, "status");
        const char *config = text_of(cell, "config");
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

/* Of a scenario: so many times the one figure is below the other. Either is a figure,
 * a number or a sum of these. Policies'
 * lateness is not compared: this program's requests wait for a processor too, each policy is
 * measured in a window of its own, and a stall of the machine in one of them makes more late than
 * the policy does. test_requests.c of tests/libcede/pure compares EDF with the order of arrival in
 * virtual time, strictly. */
static const struct order {
    const char *scenario;
    double times;
    const char *less, *more;
} orders[] = {
    {"preemption", 1, "alone.latency.p99_us[kernel_us=500]", "cede.latency.p99_us[kernel_us=500]"},
    {"preemption", 1, "cede.latency.p99_us[kernel_us=500]",
     "default.latency.p99_us[kernel_us=500]"},
    {"preemption", 1, "alone.latency.p99_us[kernel_us=10000]",
     "cede.latency.p99_us[kernel_us=10000]"},
    {"preemption", 1, "cede.latency.p99_us[kernel_us=10000]",
     "default.latency.p99_us[kernel_us=10000]"},
    {"swap", 1, "out.batch.rate[mib=128]", "0.01"},
    {"swap", 1, "out.batch.rate[mib=1024]", "0.01"},
    {"swap", 1, "0", "out.verb.us[mib=128]"},
    {"swap", 1, "out.verb.us[mib=128]", "out.verb.us[mib=1024]"},
    {"swap", 1, "back.verb.us[mib=1024]", "out.verb.us[mib=1024]"},
    {"gpus", 2, "cede.latency0.p50_us", "default.latency0.p50_us"},
    {"gpus", 2, "cede.latency1.p50_us", "default.latency1.p50_us"},
    {"pause", 1, "paused.batch.rate", "0.01"},
    {"pause", 1, "0.5", "resumed.batch.rate"},
    {"partition", 2, "cede.second.share[part=0.75]", "cede.first.share[part=0.75]"},
    {"partition", 1, "0.9", "cede.first.share[part=0.75] + cede.second.share[part=0.75]"},
    {"partition", 1, "cede.first.share[part=0.75] + cede.second.share[part=0.75]", "1.1"},
    {"adoption", 1, "adopted.latency.p99_us", "before.latency.p99_us"},
    {"adoption", 1, "adopted.latency.p99_us", "detached.latency.p99_us"},
    {"lognormal", 1, "edf.requests.late[load=30]", "fifo.requests.late[load=30]"},
    {"lognormal", 1, "edf.requests.rate[load=30]", "edf.requests.rate[load=50]"},
    {"serving_soft", 1, "cede.high.p50_us", "default.high.p50_us"},
};

static double side(const json_t *o, const char *text)
{
    char words[160], *save = NULL, *end;
    double sum = 0;
    snprintf(words, sizeof(words), "%s", text);
    for (char *w = strtok_r(words, " +", &save); w; w = strtok_r(NULL, " +", &save)) {
        double number = strtod(w, &end);
        sum += *end ? value(o, w) : number;
    }
    return sum;
}

static void check_orders(const json_t *o, const char *scenario)
{
    if (json_object_get(o, "skipped")) /* for want of Python or a library that Python can load */
        return;
    for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
        const struct order *x = &orders[i];
        if (strcmp(x->scenario, scenario) == 0 && !(x->times * side(o, x->less) < side(o, x->more)))
            fail_msg("%s: %g times %s (%g) is not below %s (%g)", scenario, x->times, x->less,
                     side(o, x->less), x->more, side(o, x->more));
    }
}

/* Scenarios of which more is known than their shape, and a figure that the report draws of it. */
static const struct check {
    const char *scenario, *figures[2];
    enum {
        SANITIZED,
        PLAIN,
        ALONE
    } when; /* also under sanitizers; else; while no other one runs */
} checks[] = {
    {"preemption", {"preemption-1", "preemption-2"}, SANITIZED},
    {"swap", {NULL}, SANITIZED},
    {"pause", {NULL}, SANITIZED},
    {"priority", {"priority-1", "priority-2"}, SANITIZED},
    {"hints", {NULL}, SANITIZED},
    {"gpus", {NULL}, SANITIZED},
    {"partition", {NULL}, PLAIN},
    {"adoption", {NULL}, PLAIN},
    {"lognormal", {NULL}, PLAIN},
    {"serving_soft", {NULL}, ALONE},
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
    BENCH(0, NULL, NULL, "list", "--device", "soft", "--json");
    json_t *list = json_loads(result.out, 0, NULL), *s;
    size_t i, n = 0, seen = 0;
    json_array_foreach(list, i, s)
    {
        const char *name = text_of(s, "name");
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
    bool draws = system("python3 -c 'import matplotlib' 2>/dev/null") == 0;
    RUN(&result, "cede", "bench", "report", harness_dir(), "--figures");
    assert_int_equal(status_of(result.status), draws ? 0 : 1);
    if (!draws)
        assert_non_null(strstr(result.err, "python3-matplotlib is not installed"));
    RUN(&result, "cat", harness_file("report.md"));
    assert_non_null(strstr(result.out, "| pass |"));
    if (skipped)
        assert_non_null(strstr(result.out, "skipped: needs "));
    for (size_t i = 0; i < n; i++) {
        const struct check *c = check_of(names[i]);
        if (strcmp(names[i], "preemption") == 0)
            assert_non_null(strstr(result.out, "| kernel_us 500 | cede | "));
        for (size_t k = 0; draws && c && k < ARRAY_SIZE(c->figures) && c->figures[k]; k++) {
            struct stat st;
            char path[80];
            snprintf(path, sizeof(path), "figures/%s.svg", c->figures[k]);
            assert_int_equal(stat(harness_file(path), &st), 0);
            assert_true(st.st_size > 2000);
            assert_non_null(strstr(result.out, c->figures[k]));
            snprintf(path, sizeof(path), "figures/%s.png", c->figures[k]);
            assert_int_equal(stat(harness_file(path), &st), 0);
        }
    }
}

static void whole(void **state)
{
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
    if (count_of(summary, "failed_cells") != 0)
        fail_msg("cells failed: %s%s", result.out, result.err);
    json_array_foreach(json_object_get(summary, "scenarios"), i, s)
    {
        json_t *o = read_json(text_of(s, "scenario"));
        check_shape(o);
        check_orders(o, text_of(s, "scenario"));
        skipped += json_object_get(o, "skipped") != NULL;
        listed++;
        json_decref(o);
    }
    json_decref(summary);
    assert_int_equal(listed, n);
    assert_true(skipped < n);
    check_report(names, n, skipped > 0);
    for (i = 0; i < n; i++)
        free((char *)(uintptr_t)names[i]);
}

/* Real programs on a real OpenCL device, held by the gate: every cell comes about, results are
 * right, and what the environment of a configuration says makes cells of its own. */
static void opencl(void **state)
{
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
        assert_string_equal(text_of(cell, "status"), "ok");
    assert_int_equal(i, 2 + 1 + 2 + 1);
    assert_true(value(o, "fixed.batch.rate[n=4]") > 0);
    assert_true(value(o, "cede.latency.rate[n=4]") > 0);
    assert_string_equal(text_of(o, "device"), "opencl");
    json_decref(o);
}

/* Two clients of one server, started by the configuration's environment: what they do is told. */
static void speeds(void **state)
{
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
static bool opencl_is_there(void)
{
    char command[600];
    snprintf(command, sizeof(command),
             "%s load batch --device opencl --iterations-per-us 1 --requests 1 >/dev/null",
             harness_exe());
    return system(command) == 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    void (*test)(void **) = strcmp(what, "opencl") == 0   ? opencl
                            : strcmp(what, "speeds") == 0 ? speeds
                                                          : whole;
    if (test == opencl && !opencl_is_there())
        return 77;
    alone = strcmp(what, "alone") == 0;
    some = strcmp(what, "some") == 0;
    if (test == whole && argc != (alone ? 2 : 4))
        return 2;
    if (argc == 4) {
        part = strtoul(argv[2], NULL, 10);
        parts = strtoul(argv[3], NULL, 10);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test, harness_begin, harness_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
