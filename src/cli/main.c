/* The entry point of all programs of cede, which are one file: chooses the program or the verb by
 * argv[0] or by the first argument, and reports if standard output could not be written. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "acct/recorder.h"
#include "agents/kubernetes/agent.h"
#include "agents/prometheus/metrics_main.h"
#include "base/version.h"
#include "bench/load/load.h"
#include "cli/cli.h"
#include "daemon/ceded.h"
#include "doctor/doctor.h"
#include "journal/restorer.h"
#include "journal/swapper.h"
#include "memory/pool/pool.h"
#include "softgpu/server.h"
#include "who/identify.h"

/* Programs are started by their name, or as `cede VERB`. */
static const struct {
    const char *name, *verb;
    int (*main)(int argc, char **argv);
    const char *help;
} programs[] = {
    {"ceded", "daemon", ceded_main, "run the daemon"},
    {"cede-load", "load", load_main, "run a GPU load and measure it"},
    {"cede-softgpu", "softgpu", soft_server_main, "run the software GPU"},
    {"cede-restore", NULL, restore_main, NULL},
    {"cede-swap", NULL, swap_main, NULL},
    {"cede-acct", NULL, acct_recorder_main, NULL},
    {"cede-identify", NULL, identify_main, NULL},
    {"cede-check", NULL, check_main, NULL},
    {"cede-pool", NULL, pool_keeper_main, NULL},
};

static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
    const char *help;
} verbs[] = {
    {"run", run_main, "run a command as a job"},
    {"set", set_main, "make running programs jobs, or change jobs"},
    {"pause", pause_main, "take jobs off the GPU"},
    {"resume", resume_main, "let paused jobs run again"},
    {"swap-out", swap_out_main, "move jobs' GPU memory to host memory"},
    {"swap-in", swap_in_main, "move swapped jobs back to the GPU"},
    {"yield", yield_main, "have jobs give the GPU to others for a while"},
    {"acquire", acquire_main, "give jobs back what they yielded"},
    {"ps", ps_main, "show the jobs"},
    {"top", top_main, "show the jobs live"},
    {"why", why_main, "say why jobs run or wait, and which jobs are before them"},
    {"trace", trace_main, "write what happens on the GPUs to a file, for ui.perfetto.dev"},
    {"acct", acct_main, "show what jobs had of GPUs in the last hours or months"},
    {"metrics", metrics_main, "print or serve what ceded counts, for Prometheus"},
    {"rules", rules_main, "list the rules, or say which one matches a process and why"},
    {"policy", policy_main, "show or change the scheduling policy"},
    {"kube-agent", kube_agent_main, "report the pods of this node to ceded"},
    {"advise", advise_main, "try how jobs go best on one GPU: in turns, or in a pool"},
    {"doctor", doctor_main, "check what this machine allows, and measure it"},
    {"bench", bench_main, "measure scenarios on this GPU, and report them"},
    {"demo", demo_main, "show what cede does, on this GPU or a software one"},
};

static int usage(FILE *f)
{
    fputs("usage: cede VERB [OPTION...]\n"
          "\n"
          "nice, renice, kill -STOP and ps for GPUs, on unmodified programs.\n"
          "\n",
          f);
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
        fprintf(f, "  %-10s %s\n", verbs[i].name, verbs[i].help);
    for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
        if (programs[i].verb)
            fprintf(f, "  %-10s %s\n", programs[i].verb, programs[i].help);
    }
    fputs("\n"
          "`cede help VERB` describes one of them, cede(1) all of them.\n"
          "\n"
          "  sudo cede run -c latency -- python3 serve.py\n"
          "  sudo cede run -c batch -- python3 train.py\n",
          f);
    return f == stdout ? CLI_OK : CLI_USAGE;
}

/* Missing standard descriptors, whose numbers open() would reuse, are opened so that use fails. */
static void fill_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    }
}

static int flush(int status)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    cli_error("cannot write standard output: %s", errno ? strerror(errno) : "write error");
    return status ? status : CLI_FAILED;
}

static int program(size_t i, int argc, char **argv)
{
    /* A program that is started as /proc/self/exe would be called "exe" in ps and `cede doctor`. */
    prctl(PR_SET_NAME, programs[i].name);
    int status = programs[i].main(argc, argv);
    return status == CLI_OK ? flush(status) : status; /* a failure has been reported already */
}

static int main_verb(int argc, char **argv)
{
    static char self[] = "cede"; /* for getopt's messages, whatever the verb */
    const char *name = argv[0];
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
        if (strcmp(name, verbs[i].name) != 0)
            continue;
        argv[0] = self;
        /* `run` leaves both alone, since its program inherits them. */
        if (verbs[i].main != run_main) {
            fill_descriptors();
            signal(SIGPIPE, SIG_IGN);
        }
        return flush(verbs[i].main(argc, argv));
    }
    for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
        if (!programs[i].verb || strcmp(name, programs[i].verb) != 0)
            continue;
        argv[0] = (char *)programs[i].name;
        return program(i, argc, argv);
    }
    cli_error("unknown command '%s'", name);
    fputs("try `cede --help`\n", stderr);
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    const char *base = argc > 0 ? strrchr(argv[0], '/') : NULL;
    base = base ? base + 1 : argc > 0 ? argv[0] : "cede";
    for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
        if (strcmp(base, programs[i].name) == 0)
            return program(i, argc, argv);
    }
    if (argc < 2)
        return usage(stderr);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("cede %s\n", build_version());
        return flush(CLI_OK);
    }
    bool help = strcmp(argv[1], "help") == 0;
    if ((help && (argc == 2 || strcmp(argv[2], "help") == 0)) || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0)
        return flush(usage(stdout));
    if (help) {
        char option[] = "--help";
        char *args[] = {argv[2], option, NULL};
        return main_verb(2, args);
    }
    return main_verb(argc - 1, argv + 1);
}
