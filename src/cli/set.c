/* `cede set`: makes running programs jobs, and changes jobs. */
#include <getopt.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/targets.h"

static const char help[] =
    "usage: cede set TARGET... [-c CLASS] [-w WEIGHT] [--budget TIME]\n"
    "                [--deadline TIME [--laxity TIME]]\n"
    "       cede set --others -c CLASS [-w WEIGHT]\n"
    "\n"
    "Makes running programs jobs, or changes jobs. TARGET is a pid, a job's number\n"
    "('#12' or %12) or a job's name.\n"
    "\n"
    "  -c, --class CLASS    latency, normal, batch, or none: a job no more, all that was set "
    "undone\n"
    "  -w, --weight WEIGHT  share within its class, 1 to 10000\n"
    "      --budget TIME    delay that requests of a latency job tolerate, such as 2ms, so that\n"
    "                       batch jobs lose less to switching (default 0)\n"
    "      --deadline TIME  time allowed for each burst of GPU work, such as 3s: the job "
    "overtakes\n"
    "                       its class when its slack is nearly gone; for programs without libcede\n"
    "      --laxity TIME    slack: the deadline less the GPU time needed (default: estimated)\n"
    "      --others         instead of targets: all GPU programs of yours (root: of all users)\n"
    "                       that are in no job and were not detached by -c none\n"
    "  -h, --help           this text\n"
    "\n"
    "All targets are tried; the exit status is 1 if any failed. Without a daemon the change is "
    "made\n"
    "once, and stays until another `cede set` changes or undoes it.\n"
    "\n"
    "  sudo cede set 4711 -c batch\n"
    "  sudo cede set train -w 300\n"
    "  sudo cede set --others -c batch\n";

int set_main(int argc, char **argv)
{
    enum { OPT_BUDGET = 256, OPT_DEADLINE, OPT_LAXITY, OPT_OTHERS };
    static const struct option longs[] = {
        {"class", required_argument, NULL, 'c'},
        {"weight", required_argument, NULL, 'w'},
        {"budget", required_argument, NULL, OPT_BUDGET},
        {"deadline", required_argument, NULL, OPT_DEADLINE},
        {"laxity", required_argument, NULL, OPT_LAXITY},
        {"others", no_argument, NULL, OPT_OTHERS},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct request r = {.op = OP_SET};
    bool others = false;
    for (int c; (c = getopt_long(argc, argv, "c:w:h", longs, NULL)) != -1;) {
        int status = CLI_OK;
        switch (c) {
        case 'c':
            r.release = strcmp(optarg, "none") == 0;
            if (r.release)
                r.has_class = false;
            else
                status = cli_class("set", optarg, &r);
            break;
        case 'w':
            status = cli_weight("set", optarg, &r);
            break;
        case OPT_BUDGET:
            status = cli_budget("set", optarg, &r);
            break;
        case OPT_DEADLINE:
            status = cli_deadline("set", optarg, &r);
            break;
        case OPT_LAXITY:
            status = cli_laxity("set", optarg, &r);
            break;
        case OPT_OTHERS:
            others = true;
            break;
        case 'h':
            fputs(help, stdout);
            return CLI_OK;
        default:
            return cli_usage("set", NULL);
        }
        if (status != CLI_OK)
            return status;
    }
    if (others && optind < argc)
        return cli_usage("set", "set: --others takes no target");
    if (others && r.release)
        return cli_usage("set", "set: --others are in no job: there is nothing to detach");
    if (others && !r.has_class && !r.has_weight)
        return cli_usage("set", "set: --others takes -c or -w");
    if (!others && optind == argc)
        return cli_usage("set", "set: no target given");
    struct error err = {""};
    uint32_t budget_us;
    if ((r.has_class && request_budget(&r, r.class, 0, &budget_us, &err) < 0) ||
        request_deadline(&r, r.has_class ? r.class : CLASS_NORMAL, &err) < 0)
        return cli_usage("set", "set: %s", err.text);
    if (!r.has_class && !r.has_weight && !r.has_budget && !r.has_deadline && !r.release)
        return cli_usage("set", "set: nothing to set; give -c, -w, --budget or --deadline");
    if (r.release && (r.has_weight || r.has_budget || r.has_deadline))
        return cli_usage("set", "set: class none takes no weight, no budget and no deadline");
    if (others)
        return targets_do_others(&r);
    return targets_do("set", &r, argv + optind, argc - optind);
}
