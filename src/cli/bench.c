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

static const char *field_text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static double field_number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* How many of its points were not measured. */
static unsigned print_target(const char *name, const json_t *t)
{
    const json_t *o;
    size_t i;
    unsigned unmeasured = 0;
    double factor;
    const char *unit = expr_unit(field_text(t, "check"), &factor);
    json_array_foreach(json_object_get(t, "points"), i, o)
    {
        const json_t *pass = json_object_get(o, "pass"), *v = json_object_get(o, "value");
        const json_t *limit = json_object_get(o, "limit");
        const char *axis;
        json_t *at;
        printf("%-5s %s: %s",
               json_is_null(v)      ? "open"
               : json_is_null(pass) ? ""
               : json_is_true(pass) ? "ok"
                                    : "MISS",
               name, field_text(t, "check"));
        json_object_foreach(json_object_get(o, "point"), axis, at)
        {
            printf(" %s=%.6g", axis, json_number_value(at));
        }
        if (json_is_null(v)) {
            puts(": not measured");
            unmeasured++;
            continue;
        }
        printf(": %.5g (%.5g to %.5g)%s%s", field_number(v, "median") / factor,
               field_number(v, "min") / factor, field_number(v, "max") / factor, *unit ? " " : "",
               unit);
        if (!json_is_null(limit))
            printf(", limit %.5g", field_number(limit, "median") / factor);
        putchar('\n');
    }
    return unmeasured;
}

static void print_summary(const json_t *summary)
{
    const json_t *s, *t;
    size_t i, k;
    unsigned unmeasured = 0;
    char open[64] = "";
    json_array_foreach(json_object_get(summary, "scenarios"), i, s)
    {
        const char *name = field_text(s, "scenario");
        if (field_text(s, "skipped"))
            printf("%-5s %s: skipped: %s\n", "", name, field_text(s, "skipped"));
        if (json_is_true(json_object_get(s, "kept")))
            printf("%-5s %s: kept, of %s\n", "", name, field_text(s, "date"));
        json_array_foreach(json_object_get(s, "targets"), k, t)
        {
            unmeasured += print_target(name, t);
        }
        if (field_number(s, "failed_cells") > 0)
            printf("%-5s %s: %.0f cells failed\n", "FAIL", name, field_number(s, "failed_cells"));
    }
    if (unmeasured)
        snprintf(open, sizeof(open), ", %u not measured", unmeasured);
    printf("%s: %.0f cells failed, %.0f targets missed%s, %.0f s\n",
           json_is_true(json_object_get(summary, "pass")) ? "passed" : "not passed",
           field_number(summary, "failed_cells"), field_number(summary, "missed"), open,
           field_number(summary, "took_s"));
}

static void print_json(const json_t *o)
{
    if (json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0)
        putchar('\n');
}

static void print_scenarios(const struct bench_options *o, const json_t *list)
{
    const json_t *s;
    size_t i;
    double sum = 0;
    json_array_foreach(list, i, s)
    {
        char minutes[24] = "        -";
        if (json_is_true(json_object_get(s, "done"))) {
            snprintf(minutes, sizeof(minutes), "     done");
        } else if (!field_text(s, "left_out")) {
            snprintf(minutes, sizeof(minutes), "%5.1f min", field_number(s, "seconds") / 60);
            sum += field_number(s, "seconds");
        }
        printf("%-16s %s  %s%s%s\n", field_text(s, "name"), minutes, field_text(s, "title"),
               field_text(s, "needs")[0] ? "; needs " : "", field_text(s, "needs"));
    }
    printf("%-16s %5.1f min  with --device %s%s\n", "all", sum / 60, o->device,
           o->quick ? " --quick" : "");
}

static int bench_verb_list(struct bench_options o, bool json)
{
    static const char *const all[] = {"all"};
    struct error err = {""};
    json_t *v = NULL;
    o.names = all;
    o.nnames = 1;
    int r = bench_list(&o, &v, &err);
    if (r < 0)
        cli_error("bench: %s", err.text);
    else if (json)
        print_json(v);
    else
        print_scenarios(&o, v);
    json_decref(v);
    return r < 0 ? CLI_FAILED : CLI_OK;
}

static int bench_verb_run(const struct bench_options *o, bool json)
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

static int bench_verb_report(const char *dir, bool figures)
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
    enum { OUT = 256, DEVICE, REPEAT, ONLY, SCENARIOS };
    int resume = 0, quick = 0, figures = 0, json = 0;
    const struct option longs[] = {
        {"out", required_argument, NULL, OUT},
        {"resume", no_argument, &resume, 1},
        {"quick", no_argument, &quick, 1},
        {"device", required_argument, NULL, DEVICE},
        {"repeat", required_argument, NULL, REPEAT},
        {"only", required_argument, NULL, ONLY},
        {"scenarios", required_argument, NULL, SCENARIOS},
        {"figures", no_argument, &figures, 1},
        {"json", no_argument, &json, 1},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    char dir[400], command[800];
    struct bench_options o = {.progress = true,
                              .command = join(argc, argv, command, sizeof(command))};
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
    }
    const char *what = optind < argc ? argv[optind] : "";
    o.names = (const char *const *)argv + optind + 1;
    o.nnames = optind < argc ? (size_t)(argc - optind - 1) : 0;
    o.repeat = (size_t)repeat;
    o.quick = quick;
    o.resume = resume;
    if (!o.device)
        o.device = access("/dev/nvidiactl", F_OK) == 0 ? "nvidia" : "soft";
    if (strcmp(what, "report") == 0)
        return o.nnames == 1 ? bench_verb_report(o.names[0], figures)
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
        return o.nnames ? cli_usage("bench", "bench list takes no name") : bench_verb_list(o, json);
    if (o.nnames == 0)
        return cli_usage("bench", "bench run: name scenarios, or all");
    return bench_verb_run(&o, json);
}
