/* The entry point of all programs of cede, which are one file: chooses the program or the verb by
 * argv[0] or by the first argument, and reports if standard output could not be written. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

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
} programs[] = {
    {"ceded", "daemon", ceded_main},
    {"cede-load", "load", load_main},
    {"cede-softgpu", "softgpu", soft_server_main},
    {"cede-restore", NULL, restore_main},
    {"cede-swap", NULL, swap_main},
    {"cede-acct", NULL, acct_recorder_main},
    {"cede-identify", NULL, identify_main},
    {"cede-check", NULL, check_main},
    {"cede-pool", NULL, pool_keeper_main},
};

/* Verbs in the groups in which help lists them; one without a text is not listed: an older word for
 * another verb, or what a service starts. */
static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
    const char *group, *help;
} verbs[] = {
    {"run", run_main, "Jobs", "run a command as a job"},
    {"set", set_main, "Jobs", "make running programs jobs, or change jobs"},
    {"detach", detach_main, "Jobs", "make jobs ordinary programs again"},
    {"pause", pause_main, "Jobs", "take jobs off the GPU"},
    {"resume", resume_main, "Jobs", "let paused jobs run again"},
    {"kill", kill_main, "Jobs", "send a signal to all processes of jobs"},
    {"yield", yield_main, "Jobs", "have jobs give the GPU to others for a while"},
    {"acquire", acquire_main, "Jobs", "give jobs back what they yielded"},
    {"swap", swap_either_main, "Memory",
     "move jobs' GPU memory to host memory (out), or back (in)"},
    {"swap-out", swap_out_main, NULL, NULL},
    {"swap-in", swap_in_main, NULL, NULL},
    {"ps", ps_main, "Look", "show the jobs"},
    {"top", top_main, "Look", "show the jobs live"},
    {"why", why_main, "Look", "say why jobs run or wait, and which jobs are before them"},
    {"acct", acct_main, "Look", "show what jobs had of GPUs in the last hours or months"},
    {"trace", trace_main, "Look", "write what happens on the GPUs to a file, for ui.perfetto.dev"},
    {"metrics", metrics_main, "Look", "print or serve what ceded counts, for Prometheus"},
    {"status", status_main, "Machine", "show in one screen what runs, what is off, and what waits"},
    {"doctor", doctor_main, "Machine", "check what this machine allows, and measure it"},
    {"policy", policy_main, "Machine", "show or change the scheduling policy"},
    {"rules", rules_main, "Machine", "list the rules, or say which one matches a process and why"},
    {"kube-agent", kube_agent_main, NULL, NULL},
    {"demo", demo_main, "Try", "show what cede does, on this GPU or a software one"},
    {"advise", advise_main, "Try", "try how jobs go best on one GPU: in turns, or in a pool"},
    {"bench", bench_main, "Try", "measure scenarios on this GPU, and report them"},
};

static int usage(FILE *f)
{
    const char *group = NULL;
    fputs("usage: cede VERB [OPTION...]\n"
          "\n"
          "nice, renice, kill -STOP and ps for GPUs, on unmodified programs.\n",
          f);
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
        if (!verbs[i].help)
            continue;
        if (!group || strcmp(group, verbs[i].group) != 0)
            fprintf(f, "\n%s\n", verbs[i].group);
        group = verbs[i].group;
        fprintf(f, "  %-10s %s\n", verbs[i].name, verbs[i].help);
    }
    fputs("\n"
          "`cede help VERB` describes one of them, cede(1) all of them.\n"
          "\n"
          "  cede run -c latency -- python3 serve.py    (as root, or in the group cede)\n"
          "  cede run -c batch -- python3 train.py\n",
          f);
    return f == stdout ? CLI_OK : CLI_USAGE;
}

#define WORD_MAX 16 /* longer words are compared with no verb */

/* How many letters have to be changed, added, left out or exchanged with the next. */
static unsigned distance(const char *a, const char *b)
{
    unsigned d[WORD_MAX + 1][WORD_MAX + 1];
    const size_t n = strlen(a), m = strlen(b);
    for (size_t i = 0; i <= n; i++) {
        for (size_t k = 0; k <= m; k++) {
            if (!i || !k) {
                d[i][k] = (unsigned)(i + k);
                continue;
            }
            const unsigned other = d[i - 1][k - 1] + (a[i - 1] != b[k - 1]);
            const unsigned less = 1 + (d[i - 1][k] < d[i][k - 1] ? d[i - 1][k] : d[i][k - 1]);
            d[i][k] = other < less ? other : less;
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] &&
                d[i - 2][k - 2] + 1 < d[i][k])
                d[i][k] = d[i - 2][k - 2] + 1;
        }
    }
    return d[n][m];
}

/* The listed verb, or option instead of one, that was meant; or NULL. */
static const char *nearest(const char *word)
{
    static const char *const others[][2] = {
        {"list", "ps"},        {"ls", "ps"},        {"jobs", "ps"},       {"start", "run"},
        {"exec", "run"},       {"stop", "pause"},   {"suspend", "pause"}, {"continue", "resume"},
        {"unpause", "resume"}, {"nice", "set"},     {"renice", "set"},    {"release", "detach"},
        {"cancel", "kill"},    {"scancel", "kill"}, {"check", "doctor"},  {"info", "status"},
        {"history", "acct"},   {"explain", "why"},  {"describe", "why"},  {"get", "ps"},
        {"-v", "--version"},   {"-?", "--help"}};
    static const char *const options[] = {"--version", "--help"};
    const char *best = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        if (strcmp(word, others[i][0]) == 0)
            return others[i][1];
    }
    /* One slip in a short word, two in a longer one. */
    unsigned least = strlen(word) < 5 ? 2 : 3;
    for (size_t i = 0; i < ARRAY_SIZE(verbs) && word[0] && strlen(word) <= WORD_MAX; i++) {
        const unsigned d = verbs[i].help ? distance(word, verbs[i].name) : least;
        if (d < least && d < strlen(verbs[i].name)) {
            least = d;
            best = verbs[i].name;
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(options) && strlen(word) <= WORD_MAX; i++)
        best = word[0] == '-' && distance(word, options[i]) < least ? options[i] : best;
    return best;
}

/* Missing standard descriptors, whose numbers open() would reuse, are opened so that use fails. */
static void fill_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    }
}

/* Whether standard output is a pipe that nobody reads any more, as of `| head`. */
static bool reader_gone(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && p.revents & POLLERR;
}

/* Ends the process as other programs end, without a message, where the reader has gone. */
static int flush(int status)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    if (reader_gone()) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
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
    const char *meant = nearest(name);
    cli_error("unknown %s '%s'%s%s%s", name[0] == '-' ? "option" : "command", name,
              meant ? ": did you mean `cede " : "", meant ? meant : "", meant ? "`?" : "");
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
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0 ||
        (argc == 2 && strcmp(argv[1], "version") == 0)) {
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
