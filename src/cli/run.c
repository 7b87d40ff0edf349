/* `cede run`: a program as a job. It behaves as the program alone would: terminal, signals, exit
 * status, descriptors and environment are the program's own affair.
 *
 * The job's root is this process, not the program, and this process is the program's subreaper, so
 * that whatever the program starts stays in the tree that the daemon looks at. Where it may, it
 * makes a control group first, by which the daemon knows them when this process has ended, too.
 * Nothing here may make the program depend on cede: no death signal, no descriptor kept open, no
 * variable set but those of devices that need a gate inside (gates.h) and of GPUs that cede was to
 * choose (place.h).
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/gates.h"
#include "cli/place.h"
#include "cli/room.h"
#include "cli/run_pool.h"
#include "cli/run_words.h"
#include "cli/transient.h"
#include "cli/unmanaged.h"
#include "device/registry.h"
#include "lib/cgroup.h"
#include "lib/fnv.h"
#include "lib/json_text.h"
#include "lib/procfs.h"

static const char help[] =
    "usage: cede run [-c CLASS] [-w WEIGHT] [--budget TIME] [--gpu-min P%] [--gpu-max P%] [-n "
    "NAME]\n"
    "                [--gpus N|auto] [--memory SIZE [--wait TIME]] [--strict] [-q]\n"
    "                [--deadline TIME [--laxity TIME]] [--preempt MODE] [--pool[=latency] [--sm "
    "P%] [--min-speed P%]]\n"
    "                [--] COMMAND [ARGUMENT...]\n"
    "\n"
    "Runs COMMAND as a job on the GPU. All that it starts belongs to the job.\n"
    "\n"
    "  -c, --class CLASS    latency, normal (default) or batch\n"
    "  -w, --weight WEIGHT  share within its class, 1 to 10000 (default 100)\n"
    "      --budget TIME    delay that requests of a latency job tolerate, such as 2ms, so that\n"
    "                       batch jobs lose less to switching (default 0)\n"
    "      --gpu-min 30%    time of each GPU that the job gets at least, of what latency jobs "
    "leave\n"
    "      --gpu-max 50%    and at most\n"
    "      --deadline TIME  time allowed for each burst of GPU work, such as 3s: the job "
    "overtakes\n"
    "                       its class when its slack is nearly gone; for programs without libcede\n"
    "      --laxity TIME    slack: the deadline less the GPU time needed (default: estimated)\n"
    "      --min-speed 90%  of its speed alone that a latency job keeps while lower jobs run, or\n"
    "                       a batch job beside others in a pool: those without one run less\n"
    "      --preempt MODE   block: a batch job yields the GPU only when its running blocks end, "
    "which\n"
    "                       costs less; the driver kills it if a block runs for seconds while\n"
    "                       another program waits. instruction: at any time (default)\n"
    "      --pool           a batch job that shares the GPU in space with your other batch jobs "
    "in\n"
    "                       the pool: an MPS server that cede runs for you; or a latency job that\n"
    "                       runs there with the higher priority\n"
    "      --pool=latency   for a batch job: latency jobs may join, so it has 90% of the\n"
    "                       multiprocessors at most (pool_latency_sm in cede.conf)\n"
    "      --sm 30%         of the GPU's multiprocessors that it may use there at most\n"
    "      --gpus N         chooses N GPUs for the job (auto: 1), the least loaded or where its "
    "name\n"
    "                       ran last, and sets CUDA_VISIBLE_DEVICES to them; if that is set, of\n"
    "                       those in it\n"
    "      --memory SIZE[@GPU]  memory that the job takes of that GPU (default: GPU 0, or the one\n"
    "                       that --gpus chooses), such as 40G: it starts when so much is free, by\n"
    "                       class, then in turn; for a latency job batch and normal jobs are\n"
    "                       swapped out\n"
    "      --wait TIME      longest wait for that memory; then it starts anyway (default: 120s "
    "for\n"
    "                       a latency job, else as long as it takes)\n"
    "  -n, --name NAME      what `cede ps` shows (default: the command's name)\n"
    "      --strict         do not run the command unscheduled, outside of its --pool, nor\n"
    "                       without its --memory or its --gpus\n"
    "  -q, --quiet          do not name the GPU programs that are not scheduled, nor say for whom\n"
    "                       it waits, nor which GPUs of CUDA_VISIBLE_DEVICES it gets\n"
    "      --gpu-device D   auto, nvidia, amd, soft, ...: device of the scheduler that is started\n"
    "                       if none runs\n"
    "  -h, --help           this text\n"
    "\n"
    "CEDE_CLASS, CEDE_WEIGHT, CEDE_NAME and CEDE_POOL=1 in the environment stand for -c, -w, -n "
    "and\n"
    "--pool where these are not given; they only lower: not to latency, nor above weight 100.\n"
    "\n"
    "The exit status is the command's; 1 if cede refused, 2 for wrong usage, 126 and 127 if the\n"
    "command cannot be executed or found. If no scheduler can be had the command runs anyway, and\n"
    "a line on standard error says why.\n"
    "\n"
    "  sudo cede run -c latency -n serve -- python3 serve.py\n"
    "  cede run -c batch -- python3 train.py --epochs 90\n";

#define ROOM_WAIT_US     (120 * 1000000ULL) /* two jobs of 64 GiB have left by then */
#define WAIT_DEFAULT     UINT64_MAX
#define ENROLL_NS        (5 * NSEC_PER_SEC)  /* for a daemon that is there */
#define ENROLL_MAX_NS    (20 * NSEC_PER_SEC) /* where daemons end and begin, or with --strict */
#define NAP_FIRST_NS     (5 * NSEC_PER_MSEC)
#define NAP_MAX_NS       (200 * NSEC_PER_MSEC)
#define CONTINUE_LOOK_NS 20000000L /* of whether a stopped program goes on */

struct options {
    struct request request;
    const char *device;
    bool quiet;
    bool grouped;         /* has a control group of its own */
    struct run_pool pool; /* strict is of more than that */
    uint64_t wait_us;     /* for room */
};

/* What became of enrolling. */
struct enrolled {
    bool refused, impossible; /* a scheduler is there and does not allow it; it cannot be */
    struct error unplaced;    /* why no GPUs are chosen for it; "": they are, or need not */
    json_t *reply;            /* to the request; NULL: not accepted */
};

/* The command's last path component, made into a valid name. */
static void default_name(const char *command, char name[static JOB_NAME_MAX])
{
    const char *base = strrchr(command, '/');
    base = base && base[1] ? base + 1 : command;
    if (!proto_name_from(name, base))
        snprintf(name, JOB_NAME_MAX, "_%.*s", JOB_NAME_MAX - 2, base);
}

/* What options and command are together: OPTIONS_GO_ON, or the exit status. */
static int parse_checked(const char *command, struct request *r)
{
    struct error err = {""};
    uint32_t budget_us, min_speed;
    enum preempt_mode preempt;
    if (!command || !command[0])
        return cli_usage("run", "run: no command given");
    if (request_budget(r, r->class, 0, &budget_us, &err) < 0 ||
        request_preempt(r, r->class, PREEMPT_INSTRUCTION, &preempt, &err) < 0 ||
        request_min_speed(r, r->class, 0, &min_speed, &err) < 0 ||
        request_deadline(r, r->class, &err) < 0 || request_place(r, &err) < 0)
        return cli_usage("run", "run: %s", err.text);
    if (!r->name[0])
        default_name(command, r->name);
    return OPTIONS_GO_ON;
}

static int read_wait(void *to, const char *name, const char *text, struct error *err)
{
    if (parse_duration_us(text, UINT32_MAX * 1000000ULL, to) < 0)
        return error_set(err, -EINVAL, "%s: '%s' is not a time, such as 90s or 0", name, text);
    return 0;
}

static int run_device(void *to, const char *name, const char *text, struct error *err)
{
    *(const char **)to = text;
    return device_list_check(text, err);
}

/* OPTIONS_GO_ON, or the exit status. */
static int run_parse(int argc, char **argv, struct options *o)
{
    struct request *r = &o->request;
    *r = (struct request){.op = OP_ADD, .run = true, .pid = getpid(), .has_class = true};
    r->class = CLASS_NORMAL;
    run_words(r);
    const struct option_row options[] = {
        {"class", 'c', .read = request_text, .to = r},
        {"weight", 'w', .read = request_text, .to = r},
        {"gpu-min", .read = request_text, .to = r},
        {"gpu-max", .read = request_text, .to = r},
        {"name", 'n', .read = request_text, .to = r},
        {"budget", .read = request_text, .to = r},
        {"deadline", .read = request_text, .to = r},
        {"laxity", .read = request_text, .to = r},
        {"min-speed", .read = request_text, .to = r},
        {"preempt", .read = request_text, .to = r},
        {"memory", .read = request_text, .to = r},
        {"gpus", .read = request_text, .to = r},
        {"wait", .read = read_wait, .to = &o->wait_us},
        {"pool", .read = run_pool_option, .to = &o->pool, .optional = true},
        {"sm", .read = run_pool_sm, .to = &o->pool.sm_percent},
        {"strict", .flag = &o->pool.strict},
        {"quiet", 'q', .flag = &o->quiet},
        {"gpu-device", .read = run_device, .to = &o->device},
    };
    const struct command_line line = {.program = "cede run", .help = help, .own = true};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status == OPTIONS_GO_ON)
        status = parse_checked(optind < argc ? argv[optind] : NULL, r);
    run_pool_words(&o->pool, r);
    return status == OPTIONS_GO_ON ? run_pool_check(&o->pool, r) : status;
}

/* Names the unmanaged programs that make the job's class ineffective. */
static void run_note_unmanaged(const struct options *o, const json_t *reply)
{
    struct unmanaged_words w;
    bool batch = o->request.class == CLASS_BATCH;
    if (!o->quiet && unmanaged_words(reply, NULL, batch ? CLASS_NORMAL : CLASS_BATCH, &w))
        cli_error("note: %s: %s until you type: %s", w.who,
                  !batch      ? "nothing yields to this job there"
                  : w.several ? "this job does not yield to them"
                              : "this job does not yield to it",
                  w.command);
}

static void run_warning(const struct options *o, const json_t *reply)
{
    const char *why = json_get_text(reply, "warning");
    if (why)
        cli_error("'%s' runs unscheduled for now: %s", o->request.name, why);
}

/* Waits for the memory that the job said it will take. Meanwhile it may have been given other GPUs.
 */
static int run_wait(const struct options *o, struct client *peer, const json_t *reply,
                    struct error *err)
{
    struct room_wait w = {
        .request = &o->request, .device = o->device, .wait_us = o->wait_us, .quiet = o->quiet};
    if (w.wait_us == WAIT_DEFAULT)
        w.wait_us = o->request.class == CLASS_LATENCY ? ROOM_WAIT_US : ROOM_NO_LIMIT;
    const int r = room_wait(&w, peer, reply, err);
    json_t *now;
    if (r > 0 || !o->request.gpus || !room_awaited(json_object_get(reply, "job")) ||
        client_open_until(peer, monotonic_ns() + ENROLL_NS, NULL) < 0)
        return r;
    if (client_call(peer, &o->request, &now, NULL) == 0)
        place_enter(&o->request, now, o->quiet);
    json_decref(now);
    client_close(peer);
    return r;
}

/* Of many calls at once some are refused for now, or wait longer than the client does. A daemon
 * that leaves, its last job gone, closes its connections and accepts none after that: one that does
 * so twice is out of order. */
static bool is_passing(int r, pid_t daemon, pid_t *left)
{
    const pid_t before = *left;
    *left = r == -EPIPE ? daemon : 0;
    return (r == -EPIPE && daemon != before) || r == -EUSERS || r == -EMFILE || r == -ETIMEDOUT;
}

/* Makes this process a job. */
static int enroll(struct options *o, struct client *peer, struct enrolled *e, struct error *err)
{
    struct transient t = TRANSIENT_NONE;
    const uint64_t since = monotonic_ns();
    long nap = NAP_FIRST_NS;
    pid_t left = 0;
    int r = transient_connect(&t, o->device, peer, 0, err);
    while (r == 0) {
        o->grouped = o->grouped || cgroup_run_enter();
        /* A program does not wait for a daemon that hangs. */
        const uint64_t until = o->pool.strict ? 0 : max_u64(since, t.none_ns) + ENROLL_NS;
        json_t *reply;
        peer->until_ns = until;
        r = client_call(peer, &o->request, &reply, err);
        if (r == 0) {
            run_note_unmanaged(o, reply);
            run_warning(o, reply);
            e->reply = json_incref(reply);
            place_enter(&o->request, reply, o->quiet);
        }
        json_decref(reply);
        client_close(peer);
        const bool dropped = r < 0 && place_drop(&o->request, r, err);
        if (dropped)
            e->unplaced = *err;
        /* What cannot be had is refused too: a size or a preemption mode that no GPU has. */
        e->impossible =
            (r == -EINVAL && o->request.memory_bytes) || place_impossible(&o->request, r);
        e->refused = r == -EPERM || r == -EACCES || r == -EDQUOT || e->impossible ||
                     (r == -ENOTSUP && o->request.preempt);
        if (!(dropped && !o->pool.strict) &&
            (!is_passing(r, peer->daemon_pid, &left) || (until && monotonic_ns() > until) ||
             monotonic_ns() > since + ENROLL_MAX_NS))
            break;
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
        nap = (long)min_u64((uint64_t)nap * 2, NAP_MAX_NS);
        r = transient_connect(&t, o->device, peer, until, err);
    }
    transient_close(&t);
    return r;
}

/* All that may be forwarded: not what cannot be caught, nor what a fault of our own raises. */
static void forwarded_set(sigset_t *set)
{
    static const int not [] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigfillset(set);
    for (size_t i = 0; i < ARRAY_SIZE(not ); i++)
        sigdelset(set, not [i]);
}

/* Whether a process is one of the job's: what it sent to its process group has reached the program
 * already. */
static bool is_inside(pid_t pid)
{
    return proc_in_tree(pid, getpid());
}

static bool is_stopped(pid_t pid)
{
    struct proc_stat st;
    return proc_stat_read(pid, &st) == 0 && st.state == 'T';
}

static bool should_forward(const siginfo_t *si, pid_t child)
{
    /* A shell's `fg` continues the whole process group. */
    if (si->si_signo == SIGCONT)
        return is_stopped(child);
    if (si->si_code <= 0) /* kill, sigqueue, tgkill, timer of a process */
        return !is_inside(si->si_pid);
    switch (si->si_signo) {
    case SIGINT:
    case SIGQUIT:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU:
    case SIGWINCH:
        return false; /* the terminal's, and sent to the whole process group */
    case SIGHUP:
        return getsid(0) == getpid(); /* a hangup goes to the session's leader alone */
    default:
        return true; /* such as SIGALRM from an alarm that was set before us */
    }
}

/* A process that continues this one, which is about to stop, once the program is stopped no more:
 * whoever continues the program, or kills it, need not know of us. < 0: there is none. */
static pid_t start_continuer(pid_t program)
{
    const pid_t self = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    while (getppid() == self && (is_stopped(program) || !is_stopped(self)))
        nanosleep(&(struct timespec){.tv_nsec = CONTINUE_LOOK_NS}, NULL);
    if (getppid() == self)
        kill(self, SIGCONT);
    _exit(0);
}

/* Reaps all there is. True when the program has ended, with its wait status. held: a SIGSTOP is
 * ceded's, which stops batch jobs of MPS servers for moments; no shell is to take that for ^Z. */
static bool reap(pid_t child, bool held, int *status)
{
    bool ended = false;
    int st;
    for (pid_t pid; (pid = waitpid(-1, &st, WNOHANG | WUNTRACED)) > 0;) {
        if (pid != child)
            continue;
        if (!WIFSTOPPED(st)) {
            *status = st;
            ended = true;
            continue;
        }
        /* The shell that waits for us has to see a stopped job. */
        if (is_stopped(child) && !(held && WSTOPSIG(st) == SIGSTOP)) {
            pid_t continuer = start_continuer(child);
            kill(getpid(), SIGSTOP);
            if (continuer > 0 && kill(continuer, SIGKILL) == 0)
                waitpid(continuer, NULL, 0);
        }
    }
    return ended;
}

static int wait_and_forward(pid_t child, bool held, const sigset_t *set)
{
    int status = 0;
    siginfo_t si;
    for (;;) {
        if (sigwaitinfo(set, &si) < 0)
            continue; /* EINTR: stopped and continued */
        if (si.si_signo == SIGCHLD) {
            if (reap(child, held, &status))
                return status;
        } else if (should_forward(&si, child)) {
            kill(child, si.si_signo);
        }
    }
}

/* Ends as the program ended. Returns the exit status if a signal did not end this process too. */
static int end_like(int status, const sigset_t *set)
{
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    int sig = WTERMSIG(status);
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0); /* a core of ours would hide the program's */
    signal(sig, SIG_DFL);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, set, NULL);
    return 128 + sig;
}

/* Grants the right to steer this program, before it becomes the program, to whoever may have to.
 *
 * Where kernel.yama.ptrace_scope is 1, a process can be reached into by its ancestors and by one
 * process that it names, with those that descend from that one at the time of the call. The name
 * lasts over exec, is not inherited, and is void as soon as the process that was named has ended.
 * A job that is off the run list stays off it unless somebody with that right is left, so the right
 * must not end with any process that may be killed:
 *
 *   named                     who may undo after kill -9 of
 *                             daemon    daemon+restorer  runner+daemon  the first of two runners
 *   the daemon                nobody    nobody           nobody         the daemon
 *   a parent of daemon and    restorer  its next daemon  restorer       the same, until that
 *     restorer                                                          parent is killed: nobody
 *   nobody; the runner, an    runner    runner           nobody         nobody steers the others
 *     ancestor, undoes
 *   any process               restorer  any next cede    restorer       all
 *
 * A next cede may be anybody's child: a verb from another terminal, a daemon that another runner
 * starts. It can descend from nothing that was named before, so only the last row has no gap.
 *
 * What it costs: for this program, and none that it starts, Yama's limit is lifted. Left are the
 * kernel's own conditions, the same user and a program that is dumpable (no set-user-ID), which is
 * all there is where ptrace_scope is 0. A process of the same user that was taken over could read
 * the program's memory; it could write its files and start it under a debugger before. Whoever
 * does not want that runs a daemon as root, which needs no grant and gets none. */
static void grant_steering(const struct client *peer)
{
    if (peer->daemon_pid > 0 && peer->daemon_uid != 0)
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
}

/* For ceded, which tells programs apart by it that did well together or not; above 0. */
static uint64_t program_number(char *const *command)
{
    uint64_t hash = FNV_START;
    for (; *command; command++)
        hash = fnv(hash, *command, strlen(*command) + 1);
    return hash >> 1 | 1;
}

static int run_program(const struct options *o, char **command, const struct client *peer,
                       const struct pool *pool)
{
    char text[160];
    int status;
    sigset_t set, before;
    struct sigaction child_before;
    const struct sigaction dfl = {.sa_handler = SIG_DFL};
    forwarded_set(&set);
    sigprocmask(SIG_BLOCK, &set, &before);
    sigaction(SIGCHLD, &dfl, &child_before); /* ignored, it would take the exit status away */
    prctl(PR_SET_CHILD_SUBREAPER, 1);

    const pid_t runner = getpid();
    pid_t child = fork();
    if (child < 0) {
        cli_error("cannot start '%s': %s", command[0], strerror(errno));
        return CLI_FAILED;
    }
    if (child == 0) {
        sigaction(SIGCHLD, &child_before, NULL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        grant_steering(peer);
        run_words_pid(runner);
        if (peer->socket[0])
            gates_enter(peer->socket); /* without, it runs anyway */
        pool_enter(pool);
        execvp(command[0], command);
        int e = errno;
        cli_error("cannot run '%s': %s", command[0], strerror(e));
        _exit(e == ENOENT ? 127 : 126);
    }
    status = wait_and_forward(child, o->request.class == CLASS_BATCH, &set);
    if (o->grouped)
        cgroup_run_leave(false);
    const char *fault = status && pool->users >= 0 ? pool_fault(pool, text) : NULL;
    if (fault)
        cli_error("the pool of '%s' failed while it ran: %s", command[0], fault);
    return end_like(status, &set);
}

int run_main(int argc, char **argv)
{
    struct options o = {.wait_us = WAIT_DEFAULT};
    int status = run_parse(argc, argv, &o);
    if (status != OPTIONS_GO_ON)
        return status;
    char **command = argv + optind;

    struct client peer = {.fd = -1};
    struct error err = {""};
    struct enrolled e = {.reply = NULL};
    struct pool pool = {.users = -1, .kind = -1};
    o.request.program = program_number(command);
    int r = place_ask(&o.request, &err);
    if (r < 0)
        return cli_usage("run", "run: --gpus: %s", err.text);
    r = enroll(&o, &peer, &e, &err);
    if (r == 0 && e.unplaced.text[0])
        cli_error("'%s' runs with no GPU chosen for it: %s", command[0], e.unplaced.text);
    const int room = r < 0 ? 0 : run_wait(&o, &peer, e.reply, &err);
    if (e.refused || ((r < 0 || room < 0) && o.pool.strict)) {
        json_decref(e.reply);
        if (o.grouped)
            cgroup_run_leave(false);
        cli_error("'%s' was not run: %s", command[0], err.text);
        return e.impossible ? CLI_USAGE : CLI_FAILED;
    }
    if (room < 0)
        cli_error("'%s' runs anyway: %s", command[0], err.text);
    if (r < 0) {
        cli_error("'%s' runs unscheduled%s%s: %s", command[0],
                  o.pool.wanted ? " and outside of a pool" : "",
                  o.request.gpus ? " and with no GPU chosen for it" : "", err.text);
        peer.daemon_pid = 0;
        peer.socket[0] = '\0';
    } else {
        status = run_pool_join(&o.pool, &o.request, e.reply, &pool);
    }
    json_decref(e.reply);
    return status != OPTIONS_GO_ON ? status : run_program(&o, command, &peer, &pool);
}
