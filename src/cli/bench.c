/* `cede bench`: the face of src/bench. Options, tables for people, exit status. */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/expr.h"
#include "cli/cli.h"

static const char help[] =
    "usage: cede bench list [--quick] [--device DEVICE] [--scenarios DIR] [--out DIR] [--json]\n"
    "       cede bench run NAME...|all [--out DIR [--resume]] [--quick] [--device DEVICE]\n"
    "                  [--repeat N] [--only CONFIG] [--scenarios DIR] [--json]\n"
    "       cede bench report DIR [--figures]\n"
    "\n"
    "Runs scenarios with programs that it starts: each alone, together as the driver does it, "
    "under\n"
    "MPS where that is installed, and under cede; and shows what each got. NAME is a scenario of\n"
    "the list, or a path with a '/'.\n"
    "\n"
    "      --out DIR         keep the results there, one JSON file a scenario\n"
    "      --resume          leave out scenarios whose results are there already, all of them: of\n"
    "                        the same file, GPU, driver and --quick, with no failed cell\n"
    "      --quick           fewer points, short windows, fewer repeats\n"
    "      --device DEVICE   nvidia, soft or opencl; if not given, nvidia or else soft\n"
    "      --repeat N        measurements of everything\n"
    "      --only CONFIG     one configuration, and the programs alone\n"
    "      --scenarios DIR   where scenario files are\n"
    "      --figures         draw them with gnuplot\n"
    "      --json            one array (list) or object (run: the summary), and nothing else\n"
    "  -h, --help            this text\n"
    "\n"
    "Exit status: 0; 1 if a target was missed or a cell failed; 2 for wrong usage.\n";

static void print_point(const json_t *point)
{
    const char *axis;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)point, axis, v)
    {
        printf(" %s=%.6g", axis, json_number_value(v));
    }
}

/* False: some of it was not measured. */
static bool print_target(const char *name, const json_t *t)
{
    const json_t *o;
    size_t i;
    bool measured = true;
    double factor;
    const char *unit = expr_unit(json_string_value(json_object_get(t, "check")), &factor);
    json_array_foreach(json_object_get(t, "points"), i, o)
    {
        const json_t *pass = json_object_get(o, "pass"), *v = json_object_get(o, "value");
        const json_t *limit = json_object_get(o, "limit");
        if (json_is_null(v)) {
            printf("%-5s", "open");
        } else {
            printf("%-5s", json_is_null(pass) ? "" : json_is_true(pass) ? "ok" : "MISS");
        }
        printf(" %s: %s", name, json_string_value(json_object_get(t, "check")));
        print_point(json_object_get(o, "point"));
        if (!json_is_null(v)) {
            printf(": %.5g (%.5g to %.5g)%s%s",
                   json_number_value(json_object_get(v, "median")) / factor,
                   json_number_value(json_object_get(v, "min")) / factor,
                   json_number_value(json_object_get(v, "max")) / factor, *unit ? " " : "", unit);
            if (!json_is_null(limit))
                printf(", limit %.5g",
                       json_number_value(json_object_get(limit, "median")) / factor);
        } else {
            printf(": not measured");
            measured = false;
        }
        putchar('\n');
    }
    return measured;
}

static void print_summary(const json_t *summary)
{
    const json_t *s, *t;
    size_t i, k;
    unsigned unmeasured = 0;
    json_array_foreach(json_object_get(summary, "scenarios"), i, s)
    {
        const char *name = json_string_value(json_object_get(s, "scenario"));
        const char *skipped = json_string_value(json_object_get(s, "skipped"));
        if (skipped)
            printf("%-5s %s: skipped: %s\n", "", name, skipped);
        if (json_is_true(json_object_get(s, "kept")))
            printf("%-5s %s: kept, of %s\n", "", name,
                   json_string_value(json_object_get(s, "date")));
        json_array_foreach(json_object_get(s, "targets"), k, t)
        {
            unmeasured += !print_target(name, t);
        }
        if (json_integer_value(json_object_get(s, "failed_cells")))
            printf("%-5s %s: %lld cells failed\n", "FAIL", name,
                   (long long)json_integer_value(json_object_get(s, "failed_cells")));
    }
    char open[64] = "";
    if (unmeasured)
        snprintf(open, sizeof(open), ", %u not measured", unmeasured);
    printf("%s: %lld cells failed, %lld targets missed%s, %.0f s\n",
           json_is_true(json_object_get(summary, "pass")) ? "passed" : "not passed",
           (long long)json_integer_value(json_object_get(summary, "failed_cells")),
           (long long)json_integer_value(json_object_get(summary, "missed")), open,
           json_number_value(json_object_get(summary, "took_s")));
}

static void print_json(const json_t *o)
{
    if (json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0)
        putchar('\n');
}

static int list(const struct bench_options *given, bool json)
{
    static const char *const all[] = {"all"};
    struct bench_options o = *given;
    struct error err = {""};
    json_t *v = NULL, *s;
    size_t i;
    o.names = all;
    o.nnames = 1;
    int r = bench_list(&o, &v, &err);
    if (r < 0) {
        cli_error("bench: %s", err.text);
        json_decref(v);
        return CLI_FAILED;
    }
    if (json)
        print_json(v);
    double sum = 0;
    json_array_foreach(v, i, s)
    {
        char minutes[24] = "        -";
        if (json)
            break;
        if (json_is_true(json_object_get(s, "done"))) {
            snprintf(minutes, sizeof(minutes), "     done");
        } else if (json_is_null(json_object_get(s, "left_out"))) {
            double seconds = json_number_value(json_object_get(s, "seconds"));
            snprintf(minutes, sizeof(minutes), "%5.1f min", seconds / 60);
            sum += seconds;
        }
        printf("%-16s %s  %s%s%s\n", json_string_value(json_object_get(s, "name")), minutes,
               json_string_value(json_object_get(s, "title")),
               json_string_length(json_object_get(s, "needs")) ? "; needs " : "",
               json_string_value(json_object_get(s, "needs")));
    }
    if (!json)
        printf("%-16s %5.1f min  with --device %s%s\n", "all", sum / 60, o.device,
               o.quick ? " --quick" : "");
    json_decref(v);
    return CLI_OK;
}

static int run(const struct bench_options *o, bool json)
{
    struct error err = {""};
    json_t *summary = NULL;
    int signal = 0, r = bench_run(o, &summary, &signal, &err);
    if (summary && json)
        print_json(summary);
    else if (summary)
        print_summary(summary);
    bool pass = json_is_true(json_object_get(summary, "pass"));
    json_decref(summary);
    if (r < 0)
        cli_error("bench: %s", err.text);
    if (signal && o->out)
        cli_error("bench: the same with --resume goes on after the last whole scenario");
    if (signal)
        return 128 + signal;
    if (r == -ENOENT || r == -EINVAL)
        return CLI_USAGE;
    return r == 0 && pass ? CLI_OK : CLI_FAILED;
}

static int report(const char *dir, bool figures)
{
    struct error err = {""};
    bool missing = false;
    int r = bench_report(dir, figures, &missing, &err);
    if (r < 0) {
        cli_error("bench: %s", err.text);
        return CLI_FAILED;
    }
    printf("%s/report.md\n", dir);
    if (missing)
        cli_error("bench: no figures, as gnuplot is not installed");
    return missing ? CLI_FAILED : CLI_OK;
}

/* Before getopt puts them in another order. */
static const char *join(int argc, char **argv, char *buf, size_t size)
{
    size_t n = (size_t)snprintf(buf, size, "cede bench");
    for (int i = 1; i < argc && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, " %s", argv[i]);
    return buf;
}

int bench_main(int argc, char **argv)
{
    enum { OUT = 256, RESUME, QUICK, DEVICE, REPEAT, ONLY, SCENARIOS, FIGURES, JSON };
    static const struct option longs[] = {
        {"out", required_argument, NULL, OUT},
        {"resume", no_argument, NULL, RESUME},
        {"quick", no_argument, NULL, QUICK},
        {"device", required_argument, NULL, DEVICE},
        {"repeat", required_argument, NULL, REPEAT},
        {"only", required_argument, NULL, ONLY},
        {"scenarios", required_argument, NULL, SCENARIOS},
        {"figures", no_argument, NULL, FIGURES},
        {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    char dir[400], command[800];
    struct bench_options o = {.progress = true,
                              .command = join(argc, argv, command, sizeof(command))};
    bool json = false, figures = false;
    uint64_t repeat = 0;
    struct error err = {""};
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        if (c == 'h') {
            fputs(help, stdout);
            return CLI_OK;
        }
        if (c == '?')
            return cli_usage("bench", NULL);
        if (c == REPEAT && parse_u64(optarg, 1, 100, &repeat) < 0)
            return cli_usage("bench", "bad --repeat '%s': a number from 1 to 100", optarg);
        if (c == DEVICE && strcmp(optarg, "nvidia") != 0 && strcmp(optarg, "soft") != 0 &&
            strcmp(optarg, "opencl") != 0)
            return cli_usage("bench", "unknown device '%s': use nvidia, soft or opencl", optarg);
        o.out = c == OUT ? optarg : o.out;
        o.device = c == DEVICE ? optarg : o.device;
        o.only = c == ONLY ? optarg : o.only;
        o.dir = c == SCENARIOS ? optarg : o.dir;
        o.quick |= c == QUICK;
        o.resume |= c == RESUME;
        figures |= c == FIGURES;
        json |= c == JSON;
    }
    const char *what = optind < argc ? argv[optind] : "";
    o.names = (const char *const *)argv + optind + 1;
    o.nnames = optind < argc ? (size_t)(argc - optind - 1) : 0;
    o.repeat = (size_t)repeat;
    if (!o.device)
        o.device = access("/dev/nvidiactl", F_OK) == 0 ? "nvidia" : "soft";
    if (strcmp(what, "report") == 0)
        return o.nnames == 1 ? report(o.names[0], figures)
                             : cli_usage("bench", "bench report: one directory is needed");
    if (strcmp(what, "list") != 0 && strcmp(what, "run") != 0)
        return cli_usage("bench", "bench: list, run or report is needed");
    if (o.resume && (strcmp(what, "run") != 0 || !o.out))
        return cli_usage("bench", "--resume is for bench run, with --out DIR: where results are");
    if (!o.dir) {
        if (bench_find_scenarios(dir, sizeof(dir), &err) < 0) {
            cli_error("bench: %s", err.text);
            return CLI_FAILED;
        }
        o.dir = dir;
    }
    if (strcmp(what, "list") == 0)
        return o.nnames ? cli_usage("bench", "bench list takes no name") : list(&o, json);
    if (o.nnames == 0)
        return cli_usage("bench", "bench run: name scenarios, or all");
    return run(&o, json);
}
