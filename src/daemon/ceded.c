/* ceded: one thread, one loop (libuv) around the engine.
 *
 * What wakes it: the control socket, what the engine watches (a process of a job has ended), the
 * time the engine asked for, a heartbeat while there are jobs (the restorer takes a daemon without
 * one for hung), and signals. Nothing else, so that an idle daemon costs nothing.
 *
 * Must not change anything on a GPU before the restorer stands by, nor let go of the journal's lock
 * while something is changed. */
#include "daemon/ceded.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <uv.h>

#include "control/config.h"
#include "control/server.h"
#include "daemon/notify.h"
#include "device/registry.h"
#include "lib/log.h"
#include "lib/paths.h"
#include "lib/version.h"
#include "recovery/restorer.h"

#define JOURNAL_WAIT_MS      2000 /* a restorer that is at work has the journal until it is done */
#define HEARTBEAT_NS         (500 * NSEC_PER_MSEC)
#define TRANSIENT_WAIT_NS    (5 * NSEC_PER_SEC) /* for the first job */
#define RESTORER_INTERVAL_NS NSEC_PER_SEC       /* between starts, should it keep dying */
/* Started before its GPU was there, as happens at boot: looks for one while it has no jobs. */
#define GPU_LOOK_NS       (2 * NSEC_PER_SEC)
#define GPU_LOOK_UNTIL_NS (600 * NSEC_PER_SEC)
#define RESTORER_LEAVE_MS 500   /* it has only to read the farewell */
#define NOFILE_MAX        65536 /* a descriptor per process of a job and per client, and spare */

struct options {
    const char *config, *dir, *device, *soft_socket;
    bool transient;
};

struct daemon {
    struct options opt;
    char dir[108], socket[128];
    struct config config;
    struct rule_list rules; /* of config; where the engine's rule_fn looks */
    struct logger log;

    struct journal *journal;
    struct device_driver *driver;
    struct engine *engine;
    struct server *server;
    struct verbs verbs;

    pid_t restorer; /* 0: none */
    int restorer_pipe;
    uint64_t restorer_started_ns;

    struct hints *hints;
    uv_loop_t loop;
    bool loop_open;
    uv_timer_t timer;
    uv_check_t check;
    uv_signal_t signals[4];
    const char *soft; /* where the software GPU listens; NULL: the default */
    uint64_t start_ns, wake_ns;
    unsigned jobs;
    bool had_jobs, stopping;
    uint64_t gpu_look_ns; /* 0: not */
    bool again;           /* start anew */
};

static void tell_status(const struct daemon *d, const char *more)
{
    char text[256];
    snprintf(text, sizeof(text), "%sSTATUS=%u job%s on %s, policy %s", more, d->jobs,
             d->jobs == 1 ? "" : "s", device_name(d->driver), engine_policy(d->engine));
    int r = notify_send(text);
    if (r < 0)
        logger_say(&d->log, LOG_DEBUG, "cannot reach the service manager: %s", strerror(-r));
}

static void beat(struct daemon *d)
{
    journal_shared(d->journal)->heartbeat_ns = monotonic_ns();
}

/* The restorer */

static int start_restorer(struct daemon *d, struct error *err)
{
    d->restorer_started_ns = monotonic_ns();
    int r = restorer_start(d->journal, &d->restorer, &d->restorer_pipe, err);
    if (r < 0) {
        d->restorer = 0;
        d->restorer_pipe = -1;
    }
    return r;
}

static bool restorer_missing(const struct daemon *d)
{
    return d->restorer == 0;
}

static void reap_restorer(struct daemon *d)
{
    int status;
    if (restorer_missing(d) || waitpid(d->restorer, &status, WNOHANG) != d->restorer)
        return;
    logger_say(&d->log, LOG_WARNING, "the restorer (pid %d) has died (%s %d); starting another",
               (int)d->restorer, WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    d->restorer = 0;
    close(d->restorer_pipe);
    d->restorer_pipe = -1;
}

static void mend_restorer(struct daemon *d, uint64_t now)
{
    struct error err = {""};
    if (restorer_missing(d) && now >= d->restorer_started_ns + RESTORER_INTERVAL_NS &&
        start_restorer(d, &err) < 0)
        logger_say(&d->log, LOG_ERR, "%s; trying again in a second", err.text);
}

/* The loop */

static void stop(struct daemon *d);
static void on_timer(uv_timer_t *t);

static void arm(struct daemon *d)
{
    uint64_t now = monotonic_ns(), next = d->wake_ns;
    if (d->jobs)
        next = min_u64(next, now + HEARTBEAT_NS);
    if (restorer_missing(d))
        next = min_u64(next, d->restorer_started_ns + RESTORER_INTERVAL_NS);
    if (d->gpu_look_ns && !d->jobs)
        next = min_u64(next, d->gpu_look_ns);
    if (d->opt.transient && !d->had_jobs)
        next = min_u64(next, d->start_ns + TRANSIENT_WAIT_NS);
    if (next == TIME_NEVER) {
        uv_timer_stop(&d->timer);
        return;
    }
    /* Rounded up: a millisecond early would only mean another turn. */
    uint64_t ms = next <= now ? 0 : (next - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC;
    uv_update_time(&d->loop);
    uv_timer_start(&d->timer, on_timer, ms, 0);
}

/* Everything that is due in the engine, and what follows from it. */
static void turn(struct daemon *d)
{
    if (d->stopping)
        return;
    uint64_t now = monotonic_ns(),
             told = d->hints ? hints_report(d->hints, d->engine, now) : TIME_NEVER;
    d->wake_ns = min_u64(engine_tick(d->engine, now), told);
    beat(d);
    unsigned jobs = engine_jobs(d->engine);
    if (jobs != d->jobs) {
        d->jobs = jobs;
        tell_status(d, "");
    }
    d->had_jobs |= jobs > 0;
    if (d->opt.transient && d->had_jobs && !jobs) {
        logger_say(&d->log, LOG_INFO, "the last job has ended");
        stop(d);
        return;
    }
    arm(d);
}

/* The number of devices is fixed once it works, so it starts anew. */
static bool gpu_appeared(struct daemon *d, uint64_t now)
{
    struct device_driver *gpu;
    if (!d->gpu_look_ns || d->jobs || now < d->gpu_look_ns)
        return false;
    d->gpu_look_ns = now < d->start_ns + GPU_LOOK_UNTIL_NS ? now + GPU_LOOK_NS : 0;
    if (device_open("auto", d->soft, &gpu, NULL) < 0)
        return false;
    device_close(gpu);
    return true;
}

static void on_timer(uv_timer_t *t)
{
    struct daemon *d = t->data;
    uint64_t now = monotonic_ns();
    beat(d);
    mend_restorer(d, now);
    if (d->opt.transient && !d->had_jobs && now >= d->start_ns + TRANSIENT_WAIT_NS) {
        logger_say(&d->log, LOG_INFO, "no job came");
        stop(d);
        return;
    }
    if (gpu_appeared(d, now)) {
        logger_say(&d->log, LOG_INFO, "a GPU has appeared: starting anew");
        d->again = true;
        stop(d);
        return;
    }
    if (now >= d->wake_ns)
        turn(d);
    else
        arm(d);
}

/* After descriptors were looked at: commands wait, or processes have ended. */
static void on_check(uv_check_t *c)
{
    struct daemon *d = c->data;
    if (engine_pending(d->engine))
        turn(d);
}

/* Ends the loop; ceded_main() does the rest. */
static void stop(struct daemon *d)
{
    if (d->stopping)
        return;
    d->stopping = true;
    notify_send("STOPPING=1");
    if (d->server)
        server_stop(d->server);
    d->server = NULL;
    if (d->loop_open)
        uv_stop(&d->loop);
}

static bool configured(const struct daemon *d, struct config *c, struct error *err)
{
    return config_read(d->opt.config ? d->opt.config : CONFIG_FILE, d->opt.config != NULL, c,
                       err) == 0;
}

static void use_config(struct daemon *d)
{
    /* A transient daemon serves those who started it, and looks for nobody else's programs. */
    d->rules = (struct rule_list){d->config.rules, d->opt.transient ? 0 : d->config.nrules};
    d->log.level = d->config.log_level;
}

static void reload(struct daemon *d)
{
    struct error err = {""};
    struct config c;
    char state[64];
    snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)(monotonic_ns() / NSEC_PER_USEC));
    notify_send(state);
    if (!configured(d, &c, &err)) {
        logger_say(&d->log, LOG_ERR, "%s (the old configuration stays)", err.text);
        tell_status(d, "READY=1\n");
        return;
    }
    if (strcmp(c.device, d->config.device) != 0 ||
        strcmp(c.soft_socket, d->config.soft_socket) != 0)
        logger_say(&d->log, LOG_WARNING, "device and soft_socket are used at the next start");
    struct config old = d->config;
    d->config = c;
    use_config(d);
    config_free(&old);
    server_set_group(d->server, c.admin_gid);
    /* Both were checked when the file was read. */
    engine_set_policy(d->engine, c.policy);
    engine_set_params(d->engine, &c.params);
    engine_set_swap(d->engine, &c.swap);
    logger_say(&d->log, LOG_INFO, "configuration read again");
    turn(d);
    tell_status(d, "READY=1\n");
}

static void on_signal(uv_signal_t *s, int number)
{
    struct daemon *d = s->data;
    switch (number) {
    case SIGHUP:
        reload(d);
        break;
    case SIGCHLD:
        reap_restorer(d);
        mend_restorer(d, monotonic_ns());
        arm(d);
        break;
    default:
        logger_say(&d->log, LOG_INFO, "signal %d: leaving", number);
        stop(d);
    }
}

static int open_loop(struct daemon *d, struct error *err)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};
    int r = uv_loop_init(&d->loop);
    if (r < 0)
        return error_set(err, r, "cannot start the event loop: %s", uv_strerror(r));
    d->loop_open = true;
    for (size_t i = 0; i < ARRAY_SIZE(numbers) && r == 0; i++) {
        r = uv_signal_init(&d->loop, &d->signals[i]);
        d->signals[i].data = d;
        if (r == 0)
            r = uv_signal_start(&d->signals[i], on_signal, numbers[i]);
    }
    if (r == 0)
        r = uv_timer_init(&d->loop, &d->timer);
    d->timer.data = d;
    if (r == 0)
        r = uv_check_init(&d->loop, &d->check);
    d->check.data = d;
    if (r == 0)
        r = uv_check_start(&d->check, on_check);
    return r < 0 ? error_set(err, r, "cannot set up the event loop: %s", uv_strerror(r)) : 0;
}

/* Being a daemon */

/* Best effort: each helps, and none is needed. */
static void settle(void)
{
    umask(022);
    signal(SIGPIPE, SIG_IGN);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDIN_FILENO); /* closed, number 0 would go to something that matters */
        if (null != STDIN_FILENO)
            close(null);
    }
    /* Whatever else was handed down is no business of the restorer's. */
    close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    (void)!chdir("/"); /* so that no file system is kept from being unmounted */
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < NOFILE_MAX) {
        l.rlim_cur = l.rlim_max < NOFILE_MAX ? l.rlim_max : NOFILE_MAX;
        setrlimit(RLIMIT_NOFILE, &l);
    }
    /* Killed for want of memory, it would leave the GPU to the restorer. */
    _cleanup_close_ int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && geteuid() == 0)
        (void)write_full(fd, "-900", 4);
}

/* What it decides a request may be waiting for, and on devices that are processors the programs it
 * decides about would keep it from the processor: some ms, seen as twice the latency. A user's own
 * daemon has no right to either. */
static void hurry(void)
{
    struct sched_param p = {.sched_priority = sched_get_priority_min(SCHED_RR)};
    if (sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &p) == 0 ||
        setpriority(PRIO_PROCESS, 0, -20) == 0)
        return;
}

static int set_up(struct daemon *d, struct error *err)
{
    hurry();
    int r = d->opt.dir ? 0 : cede_dir(d->dir, sizeof(d->dir), err);
    if (r < 0)
        return r;
    if (d->opt.dir && (size_t)snprintf(d->dir, sizeof(d->dir), "%s", d->opt.dir) >= sizeof(d->dir))
        return error_set(err, -ENAMETOOLONG, "--dir: at most %zu bytes", sizeof(d->dir) - 1);
    snprintf(d->socket, sizeof(d->socket), "%s/socket", d->dir);
    r = cede_dir_make(d->dir, err);
    if (r == 0)
        r = journal_open(d->dir, JOURNAL_WAIT_MS, &d->journal, err);
    if (r < 0)
        return r;
    if (journal_damaged(d->journal))
        logger_say(&d->log, LOG_WARNING,
                   "the journal in %s is damaged, or of another boot or version: all GPU programs "
                   "are given back the driver's defaults, and some jobs may be forgotten",
                   d->dir);

    const char *device = d->opt.device ? d->opt.device : d->config.device;
    d->soft = d->opt.soft_socket         ? d->opt.soft_socket
              : d->config.soft_socket[0] ? d->config.soft_socket
                                         : NULL;
    char gate[128];
    snprintf(gate, sizeof(gate), "%s/gate", d->dir);
    struct device_address address;
    r = device_open_list(device, d->soft, gate, &d->driver, &address, err);
    if (r < 0)
        return r;
    /* What the restorer has to open, should it come to that. */
    unsigned left = restorer_address(d->journal, d->driver, &address);
    if (left)
        logger_say(&d->log, LOG_WARNING,
                   "%u channel groups that an earlier cede changed are on devices that cannot be "
                   "reached any more: forgotten",
                   left);
    beat(d);
    r = start_restorer(d, err);
    if (r < 0)
        return r;

    r = open_loop(d, err);
    if (r < 0)
        return r;
    struct engine_options o = {
        .loop = &d->loop,
        .params = d->config.params,
        .policy = d->config.policy,
        .swap = d->config.swap,
        .rule = d->opt.transient ? NULL : rules_fn,
        .rule_arg = &d->rules,
    };
    r = engine_new(d->driver, d->journal, &o, &d->engine, err);
    if (r < 0)
        return r;
    d->hints = hints_new(); /* without memory: nobody tells of requests */
    d->verbs = (struct verbs){.engine = d->engine, .log = &d->log, .hints = d->hints};
    return server_start(&d->loop, d->socket, &d->verbs, d->config.admin_gid, &d->server, err);
}

/* Undoes what was changed, then lets the restorer go. Returns the exit status. */
static int leave(struct daemon *d)
{
    unsigned failed = d->engine ? engine_free(d->engine, true) : 0;
    if (d->journal)
        journal_shared(d->journal)->heartbeat_ns = 0;
    if (d->restorer_pipe >= 0) {
        if (failed == 0)
            restorer_dismiss(d->restorer_pipe);
        else
            close(d->restorer_pipe); /* without a farewell: it tries once more */
        /* Gone means gone: the journal is free for the next one, and nothing is left to reap. */
        for (int i = 0; i < RESTORER_LEAVE_MS && failed == 0; i++) {
            if (waitpid(d->restorer, NULL, WNOHANG) != 0)
                break;
            usleep(1000);
        }
    }
    if (failed)
        logger_say(&d->log, LOG_ERR,
                   "%u channel groups could not be given back what they had; the restorer goes on "
                   "trying for a second, and the journal in %s keeps what is left: start ceded "
                   "again, or end those programs",
                   failed, d->dir);
    hints_free(d->hints);
    device_close(d->driver);
    journal_close(d->journal);
    return failed ? 1 : 0;
}

static void close_handle(uv_handle_t *h, void *arg)
{
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

/* The last closing callbacks; nothing uses the loop any more. */
static void close_loop(struct daemon *d)
{
    if (!d->loop_open)
        return;
    uv_walk(&d->loop, close_handle, NULL);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    uv_loop_close(&d->loop);
}

static int run(struct daemon *d)
{
    struct error err = {""};
    int r = set_up(d, &err);
    if (r < 0) {
        logger_say(&d->log, LOG_ERR, "%s", err.text);
        stop(d);
        leave(d);
        close_loop(d);
        return 1;
    }
    d->start_ns = monotonic_ns();
    logger_say(&d->log, LOG_INFO, "cede %s: %s, policy %s, socket %s", build_version(),
               device_name(d->driver), engine_policy(d->engine), d->socket);
    const char *device = d->opt.device ? d->opt.device : d->config.device;
    if (strcmp(device, "auto") == 0 && strcmp(device_name(d->driver), "gate") == 0 &&
        !d->opt.transient) {
        logger_say(&d->log, LOG_INFO,
                   "no GPU is here: only programs that hold their own work are scheduled");
        d->gpu_look_ns = d->start_ns + GPU_LOOK_NS;
    }
    turn(d);
    if (!d->stopping)
        tell_status(d, "READY=1\n");
    if (!d->stopping)
        uv_run(&d->loop, UV_RUN_DEFAULT);
    r = leave(d);
    close_loop(d);
    return r;
}

static const char usage[] =
    "usage: ceded [options]\n"
    "Schedules the GPU programs of this machine, for cede(1).\n"
    "\n"
    "  --config FILE       configuration (default " CONFIG_FILE ", which may be missing)\n"
    "  --dir DIR           directory of the socket and the journal (default /run/cede for root)\n"
    "  --device LIST       auto, or some of nvidia, amd, soft, soft@PATH and gate, with commas\n"
    "                      between (default: as configured)\n"
    "  --socket-soft PATH  where the software GPU listens\n"
    "  --transient         end with the last job, or after 5 s without a first one\n"
    "  --foreground        do not detach; ceded never does\n"
    "  --help, --version\n";

enum {
    OPT_CONFIG = 256,
    OPT_DIR,
    OPT_DEVICE,
    OPT_SOFT,
    OPT_TRANSIENT,
    OPT_FOREGROUND,
    OPT_HELP,
    OPT_VERSION
};

/* 0: go on; else the exit status + 1. */
static int parse_options(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        {"config", required_argument, NULL, OPT_CONFIG},
        {"dir", required_argument, NULL, OPT_DIR},
        {"device", required_argument, NULL, OPT_DEVICE},
        {"socket-soft", required_argument, NULL, OPT_SOFT},
        {"transient", no_argument, NULL, OPT_TRANSIENT},
        {"foreground", no_argument, NULL, OPT_FOREGROUND},
        {"help", no_argument, NULL, OPT_HELP},
        {"version", no_argument, NULL, OPT_VERSION},
        {NULL, 0, NULL, 0},
    };
    struct error err = {""};
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        switch (c) {
        case OPT_CONFIG:
            o->config = optarg;
            break;
        case OPT_DIR:
            o->dir = optarg;
            break;
        case OPT_DEVICE:
            if (device_list_check(optarg, &err) < 0) {
                fprintf(stderr, "ceded: %s\n", err.text);
                return 3;
            }
            o->device = optarg;
            break;
        case OPT_SOFT:
            o->soft_socket = optarg;
            break;
        case OPT_TRANSIENT:
            o->transient = true;
            break;
        case OPT_FOREGROUND:
            break;
        case OPT_HELP:
            fputs(usage, stdout);
            return 1;
        case OPT_VERSION:
            printf("ceded %s\n", build_version());
            return 1;
        default:
            fputs("ceded: --help lists the options\n", stderr);
            return 3;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "ceded: unexpected argument '%s'; --help lists the options\n",
                argv[optind]);
        return 3;
    }
    return 0;
}

/* chdir("/") comes later, and SIGHUP reads the file again: paths have to be absolute. */
static int make_absolute(const char **path, char *buf, size_t size)
{
    if (!*path || (*path)[0] == '/')
        return 0;
    char cwd[3072];
    if (!getcwd(cwd, sizeof(cwd)))
        return -errno;
    int n = snprintf(buf, size, "%s/%s", cwd, *path);
    *path = buf;
    return (size_t)n < size ? 0 : -ENAMETOOLONG;
}

static void start_anew(const struct options *o)
{
    const char *argv[12] = {"ceded"}, *with[][2] = {{"--config", o->config},
                                                    {"--dir", o->dir},
                                                    {"--device", o->device},
                                                    {"--socket-soft", o->soft_socket}};
    size_t n = 1;
    for (size_t i = 0; i < ARRAY_SIZE(with); i++) {
        if (with[i][1]) {
            argv[n++] = with[i][0];
            argv[n++] = with[i][1];
        }
    }
    execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
}

int ceded_main(int argc, char **argv)
{
    struct options opt = {.config = NULL};
    int r = parse_options(argc, argv, &opt);
    if (r)
        return r - 1;

    char paths[3][4096];
    const char **relative[] = {&opt.config, &opt.dir, &opt.soft_socket};
    for (size_t i = 0; i < ARRAY_SIZE(relative); i++) {
        r = make_absolute(relative[i], paths[i], sizeof(paths[i]));
        if (r < 0) {
            fprintf(stderr, "ceded: cannot make '%s' an absolute path: %s\n", *relative[i],
                    strerror(-r));
            return 1;
        }
    }
    struct daemon *d = calloc(1, sizeof(*d));
    if (!d)
        return 1;
    d->opt = opt;
    d->restorer_pipe = -1;
    logger_init(&d->log, LOG_INFO);
    struct error err = {""};
    if (configured(d, &d->config, &err)) {
        use_config(d);
        settle();
        r = run(d);
        if (d->again)
            start_anew(&opt); /* never returns, or the old end it is */
        config_free(&d->config);
    } else {
        logger_say(&d->log, LOG_ERR, "%s", err.text);
        r = 2;
    }
    free(d);
    return r;
}
