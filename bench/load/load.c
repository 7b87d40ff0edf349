/* cede-load's face: options, choice of the back end, signals, exit status. Must not know how a
 * kernel is run or a latency is counted. */
#include "bench/load/load.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/version.h"
#include "bench/load/barrier.h"
#include "bench/load/ops.h"
#include "bench/load/works.h"

#define ANY   (LOAD_LATENCY | LOAD_BATCH | LOAD_CALIBRATE | LOAD_MODELS)
#define LOADS (LOAD_LATENCY | LOAD_BATCH | LOAD_MODELS)
#define DUE   (LOAD_LATENCY | LOAD_MODELS)

enum option_type { FLAG, NUMBER, REAL, TEXT, SIZE, SET, USES };

/* Where an option's value goes and what it may be. */
static const struct option {
    const char *name;
    unsigned roles;
    enum option_type type;
    size_t offset;
    double lo, hi;
    const char *help;
} options[] = {
#define AT(field) offsetof(struct load_options, field)
    {"device", ANY, TEXT, AT(device), 0, 0, "soft, nvidia, hip, opencl or auto (default auto)"},
    {"gpu", ANY, NUMBER, AT(gpu), 0, 1023, "which GPU, from 0"},
    {"socket", ANY, TEXT, AT(socket), 0, 0, "the software GPU's socket"},
    {"contexts", ANY, NUMBER, AT(contexts), 1, 64, "contexts to open; the last is used"},
    {"name", ANY, TEXT, AT(name), 0, 0, "shown in ps and in the final object"},
    {"sm-fraction", ANY, REAL, AT(sm_fraction), 1e-6, 1, "part of the GPU a kernel fills"},
    {"kernel-us", LOADS, REAL, AT(kernel_us), 1, 1e6,
     "a kernel's time alone (default: latency 100, batch 500)"},
    {"iterations-per-us", LOADS, REAL, AT(iterations_per_us), 1e-3, 1e6,
     "from cede-load calibrate with the same --sm-fraction; default: measure at start"},
    {"seconds", LOADS, REAL, AT(seconds), 1e-3, 1e8, "time to run (default: until SIGTERM)"},
    {"report", LOADS, NUMBER, AT(report_ms), 1, 3600000, "ms between live lines"},
    {"memory", LOADS, SIZE, AT(memory), 4, 1ULL << 40,
     "bytes (or 500M, 40G) to hold and fill besides; with --verify looked through at the end (the "
     "software GPU's "
     "has no contents)"},
    {"uses", LOADS, USES, AT(uses), 0, 1,
     "of the GPU's parts while it runs alone, such as tensor16=0.6,dram=0.3 (soft)"},
    {"verify", LOADS, FLAG, AT(verify), 0, 0, "check at the end that every kernel did its work"},
    {"requests", LOADS, NUMBER, AT(requests), 1, 1e9,
     "end after this number of requests, or kernels"},
    {"work", LOAD_LATENCY | LOAD_BATCH, TEXT, AT(work), 0, 0,
     "what a kernel does: spin (default), blackscholes or euler"},
    {"period-us", LOAD_LATENCY, NUMBER, AT(period_us), 0, 1e9,
     "a request every (default 10000); 0: as soon as the one before has ended"},
    {"kernels", LOAD_LATENCY, NUMBER, AT(kernels), 1, LOAD_DEPTH_MAX, "kernels a request"},
    {"gap-us", LOAD_LATENCY, NUMBER, AT(gap_us), 0, 1e9,
     "host time between them (default 0: all launched at once)"},
    {"launch-us", LOAD_LATENCY, NUMBER, AT(launch_us), 1, 1e6,
     "busy host time before each launch; nothing is waited for before all are launched (soft, "
     "nvidia, hip)"},
    {"open", LOAD_LATENCY, FLAG, AT(open), 0, 0,
     "send requests when due, whatever still runs, and count from then"},
    {"arrivals", LOAD_LATENCY, TEXT, AT(arrivals), 0, 0,
     "periodic (default), or poisson: random, as of many clients; goes with --open"},
    {"seed", DUE, NUMBER, AT(seed), 0, 1e15, "of random times (default 0)"},
    {"copy-bytes", LOAD_LATENCY, NUMBER, AT(copy_bytes), 1, 1ULL << 32,
     "copied to the GPU before and back after (nvidia, hip, opencl)"},
    {"deadline-us", LOAD_LATENCY, NUMBER, AT(deadline_us), 1, 3.6e9,
     "report each request to cede with this deadline, as a program with libcede does"},
    {"hint-us", LOAD_LATENCY, NUMBER, AT(hint_us), 1, 1e6,
     "announce each request to cede this time ahead, as a program with libcede does (nvidia)"},
    {"hint-says-us", LOAD_LATENCY, NUMBER, AT(hint_says_us), 0, 1e6,
     "announce this time instead; 0: none, cede learns it (default: as --hint-us)"},
    {"hint-false", LOAD_LATENCY, FLAG, AT(hint_false), 0, 0,
     "announce as many requests that never come, between the others"},
    {"policy", LOAD_MODELS, TEXT, AT(policy_name), 0, 0,
     "fifo, priority, edf or laxity (default: CEDE_LOAD_POLICY, or edf)"},
    {"k", LOAD_MODELS, NUMBER, AT(k), 1, 65536, "of edf (default: CEDE_LOAD_K, or 16)"},
    {"admit", LOAD_MODELS, FLAG, AT(admit), 0, 0, "refuse what would be late"},
    {"load", LOAD_MODELS, REAL, AT(load), 0.1, 1000, "percent of the GPU's time (default 50)"},
    {"sigma", LOAD_MODELS, REAL, AT(sigma), 0, 5,
     "of the log-normal times between requests (default 2)"},
    {"due-times", LOAD_MODELS, REAL, AT(due_times), 1, 1e6,
     "deadline, as a multiple of a request's own time (default 10)"},
    {"depth", LOAD_BATCH, NUMBER, AT(depth), 1, LOAD_DEPTH_MAX, "kernels in flight"},
    {"burst", LOAD_BATCH, NUMBER, AT(burst), 1, LOAD_DEPTH_MAX,
     "kernels launched at once and then waited for (default: without end)"},
    {"host-us", LOAD_BATCH, NUMBER, AT(host_us), 1, 1e6, "host time after each burst"},
    {"barrier", LOAD_BATCH, TEXT, AT(barrier), 0, 0,
     "of that name, at which --ranks programs meet before each burst; they end together"},
    {"ranks", LOAD_BATCH, NUMBER, AT(ranks), 2, BARRIER_RANKS_MAX, "programs with this --barrier"},
    {"gpus", LOAD_BATCH, SET, AT(gpus), 0, LOAD_GPUS_MAX - 1,
     "such as 0,1: a process on each, whose kernels wait for each other as NCCL's do (soft)"},
#undef AT
    {"json", ANY, FLAG, SIZE_MAX, 0, 0, "accepted for symmetry: the output is always JSON"},
};

static const struct {
    const char *name, *help;
    enum load_role role;
} roles[] = {
    {"latency", "a request every period; prints percentiles", LOAD_LATENCY},
    {"batch", "as many kernels as the GPU takes; prints throughput", LOAD_BATCH},
    {"models", "requests of four models in bursts, through libcede's queue", LOAD_MODELS},
    {"calibrate", "prints the GPU's speed, for --iterations-per-us", LOAD_CALIBRATE},
};

static void usage(FILE *f)
{
    fprintf(f, "Usage: cede-load ROLE [options]\n"
               "A program that works a GPU and measures what it gets. Prints one JSON object on\n"
               "the last line of its output; stops on SIGTERM or SIGINT.\n\nRoles:\n");
    for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
        fprintf(f, "  %-20s %s\n", roles[i].name, roles[i].help);
    static const struct {
        unsigned roles;
        const char *title;
    } parts[] = {{ANY, "Options"},
                 {LOADS, "Options of latency, batch and models"},
                 {LOAD_LATENCY | LOAD_BATCH, "Options of latency and batch"},
                 {DUE, "Options of latency and models"},
                 {LOAD_LATENCY, "Options of latency"},
                 {LOAD_BATCH, "Options of batch"},
                 {LOAD_MODELS, "Options of models"}};
    for (size_t p = 0; p < ARRAY_SIZE(parts); p++) {
        fprintf(f, "\n%s:\n", parts[p].title);
        for (size_t i = 0; i < ARRAY_SIZE(options); i++)
            if (options[i].roles == parts[p].roles)
                fprintf(f, "  --%-18s %s\n", options[i].name, options[i].help);
    }
}

/* "0,2,3" as a bit map of two numbers or more. */
static int parse_set(const char *s, uint64_t most, uint64_t *out)
{
    uint64_t n;
    *out = 0;
    for (size_t length; *s; s += length + (s[length] == ',')) {
        char number[8];
        length = strcspn(s, ",");
        snprintf(number, sizeof(number), "%.*s", (int)length, s);
        if (length >= sizeof(number) || parse_u64(number, 0, most, &n) < 0 || *out >> n & 1)
            return -EINVAL;
        *out |= 1ULL << n;
    }
    return *out & (*out - 1) ? 0 : -EINVAL;
}

static const char *const parts[GPU_PARTS] = {
    [PART_INTEGER] = "int",
    [PART_TENSOR_FP64] = "tensor64",
    [PART_TENSOR_FP16] = "tensor16",
    [PART_DRAM] = "dram",
    [PART_TENSOR_INTEGER] = "tensor8",
    [PART_FP64] = "fp64",
    [PART_FP32] = "fp32",
    [PART_FP16] = "fp16",
};

static unsigned parse_part(const char *name, size_t length)
{
    unsigned p = 0;
    while (p < GPU_PARTS && (strlen(parts[p]) != length || strncmp(parts[p], name, length) != 0))
        p++;
    return p;
}

/* "tensor16=0.6,dram=0.3", each part once at most. */
static int parse_uses(const char *s, double most, struct load_uses *out)
{
    unsigned seen = 0;
    *out = (struct load_uses){.given = true};
    do {
        char number[32];
        double share;
        size_t name = strcspn(s, "=,"), length = strcspn(s, ",");
        unsigned p = parse_part(s, name);
        if (p == GPU_PARTS || seen >> p & 1 || s[name] != '=' || length - name > sizeof(number))
            return -EINVAL;
        snprintf(number, sizeof(number), "%.*s", (int)(length - name - 1), s + name + 1);
        int r = parse_double(number, 0, most, &share);
        if (r)
            return r;
        out->v[p] = (float)share;
        seen |= 1U << p;
        s += length;
    } while (*s++ == ',');
    return 0;
}

static int set_option(const struct option *opt, const char *value, struct load_options *o,
                      struct error *err)
{
    char *at = (char *)o + opt->offset;
    int r = 0;
    if (opt->type == TEXT)
        *(const char **)(void *)at = value;
    else if (opt->type == SIZE)
        r = parse_bytes(value, (uint64_t)opt->hi, (uint64_t *)(void *)at);
    else if (opt->type == SET)
        r = parse_set(value, (uint64_t)opt->hi, (uint64_t *)(void *)at);
    else if (opt->type == USES)
        r = parse_uses(value, opt->hi, (struct load_uses *)(void *)at);
    else if (opt->type == NUMBER)
        r = parse_u64(value, (uint64_t)opt->lo, (uint64_t)opt->hi, (uint64_t *)(void *)at);
    else
        r = parse_double(value, opt->lo, opt->hi, (double *)(void *)at);
    if (r == 0 && opt->type == SIZE && *(uint64_t *)(void *)at < (uint64_t)opt->lo)
        r = -ERANGE;
    if (r && opt->type == SIZE)
        error_set(err, r, "--%s %s: must be bytes, or a size such as 500M or 40G", opt->name,
                  value);
    else if (r && opt->type == SET)
        error_set(err, r, "--%s %s: must be at least two different numbers up to %.0f, as in 0,1",
                  opt->name, value, opt->hi);
    else if (r && opt->type == USES)
        error_set(err, r,
                  "--%s %s: must be shares from 0 to 1, such as tensor16=0.6,dram=0.3, of int, "
                  "tensor8, tensor16, tensor64, fp16, fp32, fp64 and dram, each once at most",
                  opt->name, value);
    else if (r)
        error_set(err, r, "--%s %s: must be a %snumber from %.10g to %.10g", opt->name, value,
                  opt->type == NUMBER ? "whole " : "", opt->lo, opt->hi);
    return r;
}

/* Defaults from the environment, so that programs of one command line can be compared. */
static int models_options(struct load_options *o, struct error *err)
{
    const char *policy = getenv("CEDE_LOAD_POLICY"), *k = getenv("CEDE_LOAD_K");
    o->policy_name = o->policy_name ? o->policy_name : policy && *policy ? policy : "edf";
    if (load_policy_parse(o->policy_name, &o->policy))
        return error_set(err, -EINVAL, "--policy %s: must be fifo, priority, edf or laxity",
                         o->policy_name);
    if (!o->k && parse_u64(k && *k ? k : "16", 1, 65536, &o->k))
        return error_set(err, -EINVAL, "CEDE_LOAD_K=%s: must be from 1 to 65536", k);
    return 0;
}

/* What goes with what. */
static int latency_options(struct load_options *o, struct error *err)
{
    o->poisson = o->arrivals && strcmp(o->arrivals, "poisson") == 0;
    if (o->arrivals && !o->poisson && strcmp(o->arrivals, "periodic") != 0)
        return error_set(err, -EINVAL, "--arrivals %s: must be periodic or poisson", o->arrivals);
    if ((o->hint_us || o->deadline_us) && o->poisson)
        return error_set(err, -EINVAL,
                         "--hint-us and --deadline-us go with periodic arrivals alone");
    if (!o->hint_us && (o->hint_false || o->hint_says_us != UINT64_MAX))
        return error_set(err, -EINVAL, "--hint-says-us and --hint-false go with --hint-us: add it");
    o->hint_says_us = o->hint_says_us == UINT64_MAX ? o->hint_us : o->hint_says_us;
    /* One at a time would bend the schedule to what the GPU does. */
    if (o->poisson && !o->open)
        return error_set(err, -EINVAL, "--arrivals poisson goes with --open alone: add it");
    if (!o->period_us && (o->open || o->hint_us || o->deadline_us))
        return error_set(err, -EINVAL,
                         "--open, --hint-us and --deadline-us need times at which requests are "
                         "due: leave out --period-us 0");
    if (o->launch_us && (o->open || o->gap_us || o->copy_bytes))
        return error_set(err, -EINVAL,
                         "--launch-us goes without --open, --gap-us and --copy-bytes");
    return 0;
}

static int batch_options(struct load_options *o, struct error *err)
{
    const char *name = o->barrier ? o->barrier : "x";
    if (o->burst && o->depth)
        return error_set(err, -EINVAL, "--burst is what is in flight: leave out --depth");
    if (!o->burst && (o->host_us || o->barrier))
        return error_set(err, -EINVAL, "--host-us and --barrier come between bursts: add --burst");
    if (!o->barrier != !o->ranks)
        return error_set(err, -EINVAL, "--barrier and --ranks go together: add the other");
    if (!*name || strlen(name) > 60 || strchr(name, '/'))
        return error_set(err, -EINVAL, "--barrier %s: must be a name of up to 60 characters, no /",
                         name);
    o->depth = o->burst ? o->burst : o->depth;
    return 0;
}

/* 0, -EINVAL or -ERANGE; *help when asked for. */
static int load_parse(int argc, char **argv, struct load_options *o, bool *help, struct error *err)
{
    const char *role = argc > 1 ? argv[1] : "";
    for (int i = 1; i < argc; i++)
        *help |= strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    if (*help)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
        if (strcmp(role, roles[i].name) == 0)
            o->role = roles[i].role;
    if (!o->role)
        return error_set(err, -EINVAL,
                         "%s%s: the first argument must be latency, batch, models or calibrate",
                         *role ? "unknown role " : "no role", role);

    for (int i = 2; i < argc; i++) {
        const struct option *opt = NULL;
        size_t length = strcspn(argv[i], "=");
        for (size_t j = 0; j < ARRAY_SIZE(options) && strncmp(argv[i], "--", 2) == 0; j++)
            if (strlen(options[j].name) == length - 2 &&
                strncmp(argv[i] + 2, options[j].name, length - 2) == 0)
                opt = &options[j];
        if (!opt)
            return error_set(err, -EINVAL, "unknown argument %s: see cede-load --help", argv[i]);
        if (!(opt->roles & o->role))
            return error_set(err, -EINVAL, "--%s does not go with %s", opt->name, role);
        const char *value = argv[i][length] ? argv[i] + length + 1 : NULL;
        if (opt->type == FLAG) {
            if (value)
                return error_set(err, -EINVAL, "--%s takes no value", opt->name);
            if (opt->offset != SIZE_MAX)
                *((bool *)o + opt->offset) = true;
            continue;
        }
        if (!value && i + 1 < argc)
            value = argv[++i];
        if (!value)
            return error_set(err, -EINVAL, "--%s needs a value: %s", opt->name, opt->help);
        int r = set_option(opt, value, o, err);
        if (r)
            return r;
    }
    if (o->work && strcmp(o->work, "spin") == 0)
        o->work = NULL;
    const struct load_work *work = o->work ? load_work(o->work) : NULL;
    if (o->work && !work)
        return error_set(err, -EINVAL, "--work %s: must be spin, blackscholes or euler", o->work);
    if (o->kernel_us == 0)
        o->kernel_us = work ? work->kernel_us : o->role == LOAD_LATENCY ? 100 : 500;
    return o->role == LOAD_MODELS    ? models_options(o, err)
           : o->role == LOAD_LATENCY ? latency_options(o, err)
           : o->role == LOAD_BATCH   ? batch_options(o, err)
                                     : 0;
}

/* The signals are blocked and looked for, instead of being handled: no global state, and a sleep
 * that ends when one comes. Sticky, as the look takes the signal away. */
struct signals {
    sigset_t set, old;
    bool stop;
    uint64_t spin_ns; /* before what is waited for */
};

static void signals_look(struct signals *s, uint64_t ns)
{
    struct timespec ts = {(time_t)(ns / NSEC_PER_SEC), (long)(ns % NSEC_PER_SEC)};
    if (!s->stop)
        s->stop = sigtimedwait(&s->set, NULL, &ts) > 0;
}

static bool real_stopped(void *arg)
{
    struct signals *s = arg;
    signals_look(s, 0);
    return s->stop;
}

static uint64_t real_now(void *arg)
{
    return monotonic_ns();
}

/* The kernel wakes a sleeper some 50 us late: the last stretch is spun, so that a request is issued
 * when it is due. Where lateness counts as latency (--open), or hints are to come a time ahead, the
 * stretch is longer: virtual machines
 * were seen to wake up to 0.4 ms late, which has nothing to do with the GPU. */
#define SPIN_NS      (60 * NSEC_PER_USEC)
#define SPIN_OPEN_NS NSEC_PER_MSEC
static void real_sleep(void *arg, uint64_t until_ns)
{
    struct signals *s = arg;
    uint64_t now = monotonic_ns();
    if (now + s->spin_ns < until_ns)
        signals_look(s, until_ns - now - s->spin_ns);
    while (!s->stop && monotonic_ns() < until_ns)
        ;
}

static const struct load_ops *load_choose(const char *device, struct error *err)
{
    static const struct load_ops *const all[] = {&load_soft, &load_cuda, &load_hip, &load_opencl};
    if (strcmp(device, "auto") == 0)
        device = access("/dev/nvidiactl", F_OK) == 0 ? load_cuda.name : load_soft.name;
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        if (strcmp(device, all[i]->name) == 0)
            return all[i];
    }
    error_set(err, -EINVAL, "--device %s: must be soft, nvidia, hip, opencl or auto", device);
    return NULL;
}

static int print_calibration(const struct load_run *run, struct error *err)
{
    const struct load_gpu *gpu = run->gpu;
    return load_print_line(run,
                           json_pack("{s:s,s:s,s:f,s:f}", "role", "calibrate", "device",
                                     gpu->ops->name, "iterations_per_us", gpu->iterations_per_us,
                                     "host_overhead_us", gpu->host_overhead_us),
                           err);
}

/* With the back end's context current. Without a daemon they do nothing. */
static int open_hints(const struct load_options *o, struct cede **out, struct error *err)
{
    int r = cede_connect(out);
    if (!r && o->hint_us)
        r = cede_lead_cuda(*out, 0);
    if (r && r != -ENOSYS)
        return error_set(err, r, "cannot prepare to report requests: %s", strerror(-r));
    return 0;
}

static int load_run(const struct load_options *o, const struct load_ops *ops,
                    struct signals *signals, bool *abandoned, struct error *err)
{
    const struct load_env env = {real_now, real_sleep, real_stopped, signals, stdout};
    struct load_run run = {.o = o, .env = &env};
    int r = ops->open(o, &run.gpu, err);
    if (r)
        return r;
    if (o->hint_us || o->deadline_us)
        r = open_hints(o, &run.hints, err);
    if (!r && o->barrier)
        r = barrier_open(o->barrier, o->ranks, &run.barrier, err);
    if (!r)
        r = o->role == LOAD_CALIBRATE ? print_calibration(&run, err)
            : o->role == LOAD_LATENCY ? load_run_latency(&run, err)
            : o->role == LOAD_BATCH   ? load_run_batch(&run, err)
                                      : load_run_models(&run, err);
    if (run.summary[0] && isatty(STDERR_FILENO))
        fprintf(stderr, "%s%s\n", run.summary,
                run.abandoned ? "; the GPU did not finish within 2 s: suspended?" : "");
    barrier_close(run.barrier);
    *abandoned = run.abandoned;
    if (!run.abandoned) {
        cede_close(run.hints);
        ops->close(run.gpu);
    }
    return r;
}

int load_main(int argc, char **argv)
{
    struct load_options o = {.device = "auto",
                             .contexts = 1,
                             .sm_fraction = 1,
                             .period_us = 10000,
                             .kernels = 1,
                             .hint_says_us = UINT64_MAX,
                             .load = 50,
                             .sigma = 2,
                             .due_times = 10};
    struct error err = {""};
    bool help = false, abandoned = false;
    const struct load_ops *ops = NULL;
    int r = load_parse(argc, argv, &o, &help, &err);
    if (help) {
        usage(stdout);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("cede-load %s\n", build_version());
        return 0;
    }
    if (!r)
        ops = load_choose(o.device, &err);
    if (ops && (o.gpus || o.uses.given) && ops != &load_soft) {
        error_set(&err, -EINVAL, "--%s works on the software GPU only: add --device soft",
                  o.gpus ? "gpus" : "uses");
        ops = NULL;
    }
    if (ops == &load_opencl && o.launch_us) { /* its drivers may keep launches until a flush */
        error_set(&err, -EINVAL, "--launch-us does not work with --device opencl");
        ops = NULL;
    }
    if (!ops) {
        fprintf(stderr, "cede-load: %s\n", err.text);
        return 2;
    }
    if (o.name)
        prctl(PR_SET_NAME, o.name);

    /* Before any library makes a thread, so that no thread takes the signal. */
    bool exact = o.open || o.hint_us || o.role == LOAD_MODELS;
    struct signals signals = {.spin_ns = exact ? SPIN_OPEN_NS : SPIN_NS};
    sigemptyset(&signals.set);
    sigaddset(&signals.set, SIGTERM);
    sigaddset(&signals.set, SIGINT);
    sigprocmask(SIG_BLOCK, &signals.set, &signals.old);
    r = load_run(&o, ops, &signals, &abandoned, &err);
    if (r)
        fprintf(stderr, "cede-load: %s\n", err.text);
    if (abandoned) {
        /* Exit handlers of the vendor's library would wait for a GPU that does not answer. */
        fflush(NULL);
        _exit(r ? 1 : 0);
    }
    /* A stop request for all ranks may come when the end of another has ended this one already. */
    if (!o.barrier)
        sigprocmask(SIG_SETMASK, &signals.old, NULL);
    return r ? 1 : 0;
}
