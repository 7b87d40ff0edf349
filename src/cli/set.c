/* `cede set` and `cede detach`: make running programs jobs, change jobs, and end jobs. */
#include <string.h>

#include "api/job_terms.h"
#include "cli/cli.h"
#include "cli/targets.h"

static const char help[] =
    "usage: cede set TARGET... [-c CLASS] [-w WEIGHT] [--budget TIME] [--gpu-min P%] [--gpu-max "
    "P%]\n"
    "                [--deadline TIME [--laxity TIME]] [--preempt MODE]\n"
    "                [--min-speed P%] [--memory-max SIZE[,ACTION]] [-n NAME]\n"
    "       cede set --others [-c CLASS] [-w WEIGHT]\n"
    "\n"
    "Makes running programs jobs, or changes jobs. TARGET is a pid, a job's number\n"
    "('#12' or %12) or a job's name. A name is that of a job of yours if there is one; root\n"
    "and administrators reach other users' jobs, too, and say USER/name where several have it.\n"
    "\n"
    "  -c, --class CLASS    latency, normal or batch; or none, as cede detach\n"
    "  -w, --weight WEIGHT  share within its class, 1 to 10000\n"
    "      --budget TIME    delay that requests of a latency job tolerate, such as 2ms, so that\n"
    "                       batch jobs lose less to switching (default 0)\n"
    "      --gpu-min 30%    time of each GPU that the job gets at least, of what latency jobs "
    "leave;\n"
    "                       0: none\n"
    "      --gpu-max 50%    and that it gets at most; 0: no limit\n"
    "      --deadline TIME  time allowed for each burst of GPU work, such as 3s: the job "
    "overtakes\n"
    "                       its class when its slack is nearly gone; for programs without "
    "libcede;\n"
    "                       0: none\n"
    "      --laxity TIME    slack: the deadline less the GPU time needed (default: estimated)\n"
    "      --min-speed 90%  the part of its speed alone that a latency job keeps, as lower jobs\n"
    "                       run less; or that a batch job in a pool keeps, as batch jobs there\n"
    "                       without one run less; 0: the default\n"
    "      --preempt MODE   block: a batch job yields the GPU only when its running blocks end, "
    "which\n"
    "                       costs less; the driver kills it if a block runs for seconds while\n"
    "                       another program waits. instruction: at any time, as usual\n"
    "      --memory-max SIZE[,warn|pause|kill]  the most memory that it may have on a GPU, and\n"
    "                       what happens when ceded sees more: its log warns (default), or the\n"
    "                       job is paused or killed; 0: none\n"
    "  -n, --name NAME      the job's name from now on\n"
    "      --others         instead of targets: all GPU programs of yours (root: of all users)\n"
    "                       that are in no job and were not detached by hand\n"
    "  -h, --help           this text\n"
    "\n"
    "All targets are tried; the exit status is 1 if any failed. Without a daemon one is started\n"
    "that ends with its last job.\n"
    "\n"
    "  cede set 4711 -c batch\n"
    "  cede set train -w 300\n"
    "  cede set --others -c batch\n";

static const char detach_help[] =
    "usage: cede detach TARGET...\n"
    "\n"
    "Makes jobs ordinary programs again: all that was set is undone, they run by the driver's\n"
    "default, and no rule makes them jobs again. TARGET is a pid, a job's number ('#12' or %12)\n"
    "or a job's name. All targets are tried; the exit status is 1 if any failed.\n"
    "\n"
    "  -h, --help  this text\n"
    "\n"
    "  cede detach train\n";

static bool is_class(const char *word)
{
    enum job_class class;
    return strcmp(word, "none") == 0 || job_class_parse(word, &class) == 0;
}

int set_main(int argc, char **argv)
{
    struct request r = {.op = OP_SET};
    bool others = false;
    const struct option_row more[] = {{"name", 'n', .read = request_text, .to = &r},
                                      {"others", .flag = &others}};
    struct option_row options[REQUEST_OPTIONS_MAX];
    const unsigned n = request_options(&r, more, ARRAY_SIZE(more), options);
    const struct command_line line = {.program = "cede set", .help = help};
    int status = options_read(argc, argv, &line, options, n);
    if (status != OPTIONS_GO_ON)
        return status;
    if (others && optind < argc)
        return cli_usage("set", "set: --others takes no target");
    if (others && r.release)
        return cli_usage("set", "set: --others are in no job: there is nothing to detach");
    if (others && r.rename[0])
        return cli_usage("set", "set: --others are several: they do not get one name");
    if (!others && r.rename[0] && optind + 1 < argc)
        return cli_usage("set", "set: --name takes one target");
    if (others && !(r.given & (TERM(class) | TERM(weight))))
        return cli_usage("set", "set: --others takes -c or -w");
    if (!others && optind == argc)
        return targets_none("set");
    struct error err = {""};
    char names[160];
    if (terms_check(&r, r.given & TERM(class) ? r.class : CLASS_COUNT, &err) < 0)
        return cli_usage("set", "set: %s", err.text);
    const char *last = others ? "" : argv[argc - 1];
    if (!r.given && !r.release && !r.rename[0] && optind + 1 < argc && is_class(last))
        return cli_usage("set", "set: '%s' is a class: type `cede set %s -c %s`", last,
                         argv[optind], last);
    if (!r.given && !r.release && !r.rename[0])
        return cli_usage("set", "set: nothing to set: give --class, --weight or another option");
    if (r.release && (r.given || r.rename[0]))
        return cli_usage("set", "set: class none takes no %s",
                         r.rename[0] ? "name" : terms_names(r.given, true, names, sizeof(names)));
    if (others)
        return targets_do_others(&r);
    return targets_do("set", &r, argv + optind, argc - optind, NULL);
}

int detach_main(int argc, char **argv)
{
    const struct request r = {.op = OP_SET, .release = true};
    return targets_verb(argc, argv, "detach", detach_help, &r, NULL);
}
