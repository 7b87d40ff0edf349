/* `cede run`: runs a program as a job. It behaves as the program alone would: terminal, signals,
 * exit status, descriptors and environment are the program's.
 *
 * The job's root is this process, not the program, and this process is the program's subreaper, so
 * that all descendants of the program stay in the tree that the daemon looks at. Where it has the
 * right, it first makes a control group, by which the daemon finds them after this process's end.
 * Nothing here may make the program depend on cede: no death signal, no open descriptor, and no
 * variables except for gates (gates.h), chosen GPUs (run_gpus.h) and pools. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "api/client.h"
#include "api/job_terms.h"
#include "base/child.h"
#include "base/fnv.h"
#include "base/json_text.h"
#include "cli/cli.h"
#include "cli/gates.h"
#include "cli/run_gpus.h"
#include "cli/run_memory.h"
#include "cli/run_pool.h"
#include "cli/run_words.h"
#include "cli/signals.h"
#include "cli/transient.h"
#include "cli/unmanaged.h"
#include "gpu/registry.h"
#include "who/cgroup.h"
#include "who/procfs.h"

static const char help[] =
    "usage: cede run [-c CLASS] [-w WEIGHT] [--budget TIME] [--gpu-min P%] [--gpu-max P%] [-n "
    "NAME]\n"
    "                [--gpus N|auto] [--memory SIZE [--wait TIME]] [--memory-max SIZE[,ACTION]]\n"
    "                [--strict] [--kill-leftovers] [-q]\n"
    "                [--deadline TIME [--laxity TIME]] [--preempt MODE] [--pool[=latency] [--sm "
    "P%] [--min-speed P%]]\n"
    "                [--] COMMAND [ARGUMENT...]\n"
    "\n"
    "Runs COMMAND as a job on the GPU. All that it starts belongs to the job.\n"
    "\n"
    "  -c, --class CLASS    latency, which preempts the others; normal (default); batch,\n"
    "                       which has the time that the others leave\n"
    "  -w, --weight WEIGHT  share within its class, 1 to 10000 (default 100)\n"
    "      --budget TIME    delay that requests of a latency job tolerate, such as 2ms, so that\n"
    "                       batch jobs lose less to switching (default 0)\n"
    "      --gpu-min 30%    time of each GPU that the job gets at least, of what latency jobs "
    "leave\n"
    "      --gpu-max 50%    and that it gets at most\n"
    "      --deadline TIME  time allowed for each burst of GPU work, such as 3s: the job "
    "overtakes\n"
    "                       its class when its slack is nearly gone; for programs without libcede\n"
    "      --laxity TIME    slack: the deadline less the GPU time needed (default: estimated)\n"
    "      --min-speed 90%  the part of its speed alone that a latency job keeps, as lower jobs\n"
    "                       run less; or that a batch job in a pool keeps, as batch jobs there\n"
    "                       without one run less\n"
    "      --preempt MODE   block: a batch job yields the GPU only when its running blocks end, "
    "which\n"
    "                       costs less; the driver kills it if a block runs for seconds while\n"
    "                       another program waits. instruction: at any time (default)\n"
    "      --pool           puts a batch job into the pool, an MPS server that cede runs for you,\n"
    "                       in which your batch jobs run at the same time; a latency job has the\n"
    "                       higher priority there\n"
    "      --pool=latency   for a batch job: latency jobs may join, so it has 95% of the\n"
    "                       multiprocessors at most (pool_latency_sm in cede.conf)\n"
    "      --sm 30%         the most of the GPU's multiprocessors that it may use in the pool\n"
    "      --gpus N         chooses N GPUs for the job (auto: 1), the least loaded or where its "
    "name\n"
    "                       ran last, and sets CUDA_VISIBLE_DEVICES to them; if that is set "
    "already,\n"
    "                       it chooses among those\n"
    "      --memory SIZE[@GPU]  GPU memory that the job will take, such as 40G: it starts when so\n"
    "                       much is free on that GPU (default: the one that --gpus chooses, else "
    "0);\n"
    "                       jobs that wait start by class, then in turn; for a latency job batch "
    "and\n"
    "                       normal jobs are swapped out\n"
    "      --wait TIME      longest wait for that memory; then it starts anyway (default: 120s "
    "for\n"
    "                       a latency job, else as long as it takes)\n"
    "      --memory-max SIZE[,warn|pause|kill]  the most memory that it may have on a GPU: in a\n"
    "                       pool MPS refuses more; elsewhere it is seen within about 0.1 s after\n"
    "                       the fact, and ceded's log warns (default), or the job is paused or "
    "killed\n"
    "  -n, --name NAME      what `cede ps` shows (default: the command's name)\n"
    "      --strict         does not run the command if it would be unscheduled, outside of its\n"
    "                       --pool, or without its --memory or its --gpus\n"
    "      --kill-leftovers  when the command ends, ends what it has started and left behind: by\n"
    "                       SIGTERM, and after 5 s by SIGKILL\n"
    "  -q, --quiet          no notes on GPU programs that are not scheduled, on jobs that it "
    "waits\n"
    "                       for, and on the GPUs that it gets of CUDA_VISIBLE_DEVICES\n"
    "      --gpu-device D   if no scheduler runs, one is started, for this kind of GPU: auto, "
    "nvidia,\n"
    "                       amd, soft, ...\n"
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
    "  cede run -c latency -n serve -- python3 serve.py\n"
    "  cede run -c batch -- python3 train.py --epochs 90\n";

#define ROOM_WAIT_US     (120 * 1000000ULL) /* enough to swap out two jobs of 64 GiB */
#define WAIT_DEFAULT     UINT64_MAX
#define ENROLL_NS        (5 * NSEC_PER_SEC)  /* for a daemon that is there */
#define ENROLL_MAX_NS    (20 * NSEC_PER_SEC) /* where daemons end and begin, or with --strict */
#define NAP_FIRST_NS     (5 * NSEC_PER_MSEC)
#define NAP_MAX_NS       (200 * NSEC_PER_MSEC)
#define CONTINUE_LOOK_NS 20000000L /* between looks whether a stopped program goes on */

struct options {
    struct request request;
    const char *device;
    bool quiet;
    bool kill_leftovers;
    bool grouped;         /* a control group was made for the job */
    struct run_pool pool; /* its `strict` is --strict, which is not only about pools */
    uint64_t wait_us;     /* longest wait for room */
};

/* The result of making this process a job. */
struct enrolled {
    bool refused, impossible; /* the daemon refused the job; no job can have what was asked for */
    struct error unplaced;    /* why no GPUs were chosen; "": they were, or were not asked for */
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

/* Checks the options together. OPTIONS_GO_ON, or the exit status. */
static int parse_checked(const char *command, struct options *o)
{
    struct request *r = &o->request;
    struct error err = {""};
    if (!command || !command[0])
        return cli_usage("run", "run: no command given");
    if (o->wait_us != WAIT_DEFAULT && !r->memory_bytes)
        return cli_usage("run", "run: --wait is for GPU memory: say with --memory how much");
    if (terms_check(r, r->class, &err) < 0 || request_place(r, &err) < 0)
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

/* Reads the command line. OPTIONS_GO_ON, or the exit status. */
static int run_parse(int argc, char **argv, struct options *o)
{
    struct request *r = &o->request;
    *r = (struct request){.op = OP_ADD, .run = true, .pid = getpid(), .given = TERM(class)};
    r->class = CLASS_NORMAL;
    run_words(r);
    const struct option_row more[] = {
        {"name", 'n', .read = request_text, .to = r},
        {"memory", .read = request_text, .to = r},
        {"gpus", .read = request_text, .to = r},
        {"wait", .read = read_wait, .to = &o->wait_us},
        {"pool", .read = run_pool_option, .to = &o->pool, .optional = true},
        {"sm", .read = run_pool_sm, .to = &o->pool.sm_percent},
        {"strict", .flag = &o->pool.strict},
        {"kill-leftovers", .flag = &o->kill_leftovers},
        {"quiet", 'q', .flag = &o->quiet},
        {"gpu-device", .read = run_device, .to = &o->device},
    };
    struct option_row options[REQUEST_OPTIONS_MAX];
    const unsigned n = request_options(r, more, ARRAY_SIZE(more), options);
    const struct command_line line = {.program = "cede run", .help = help, .own = true};
    int status = options_read(argc, argv, &line, options, n);
    if (status == OPTIONS_GO_ON)
        status = parse_checked(optind < argc ? argv[optind] : NULL, o);
    run_pool_words(&o->pool, r);
    return status == OPTIONS_GO_ON ? run_pool_check(&o->pool, r) : status;
}

/* Names the unmanaged programs that make the job's class ineffective. */
static void run_note_unmanaged(const struct options *o, const json_t *reply)
{
    struct unmanaged_words w;
    if (!o->quiet && unmanaged_words(reply, NULL, &w))
        cli_error("note: %s: %s to this job until you type: %s", w.who,
                  w.several ? "they do not yield" : "it does not yield", w.command);
}

static void run_warning(const struct options *o, const json_t *reply)
{
    const char *why = json_get_text(reply, "warning");
    if (why)
        cli_error("'%s' runs unscheduled for now: %s", o->request.name, why);
}

/* -ENODEV, with --strict: no GPU is here. Programs that hold their own work are scheduled anyway,
 * so this is a note; OpenCL on processors is asked for. */
static int run_check_gpu(const struct options *o, const json_t *reply, struct error *err)
{
    static const char why[] = "no GPU here can be scheduled: `cede doctor` says why";
    if (!json_get_true(reply, "no_gpu") || getenv("CEDE_GATE_CPU"))
        return 0;
    if (o->pool.strict)
        return error_set(err, -ENODEV, "%s", why);
    if (!o->quiet)
        cli_error("note: %s", why);
    return 0;
}

/* Waits for the memory that the job stated. Meanwhile the daemon may have chosen other GPUs for it.
 */
static int run_wait(const struct options *o, struct client *peer, const json_t *reply,
                    struct error *err)
{
    struct room_wait w = {
        .request = &o->request, .device = o->device, .wait_us = o->wait_us, .quiet = o->quiet};
    if (w.wait_us == WAIT_DEFAULT)
        w.wait_us = o->request.class == CLASS_LATENCY ? ROOM_WAIT_US : ROOM_NO_LIMIT;
    const int r = room_wait(&w, peer, reply, err);
    _cleanup_json_ json_t *now = NULL;
    if (r > 0 || !o->request.gpus || !room_awaited(json_object_get(reply, "job")) ||
        client_open_until(peer, monotonic_ns() + ENROLL_NS, NULL) < 0)
        return r;
    if (client_call(peer, &o->request, &now, NULL) == 0)
        place_enter(&o->request, now, o->quiet);
    client_close(peer);
    return r;
}

/* Whether a failure may pass: many calls at once exceed the daemon's limits or the client's time,
 * and a daemon that leaves after its last job closes its connections. A daemon that closes a
 * connection twice has a fault. */
static bool is_passing(int r, pid_t daemon, pid_t *left)
{
    const pid_t before = *left;
    *left = r == -EPIPE ? daemon : 0;
    return (r == -EPIPE && daemon != before) || r == -EUSERS || r == -EMFILE || r == -ETIMEDOUT;
}

/* Makes this process a job. */
static int enroll(struct options *o, struct client *peer, struct enrolled *e, struct error *err)
{
    _cleanup_(transient_close) struct transient t = TRANSIENT_NONE;
    const uint64_t since = monotonic_ns();
    long nap = NAP_FIRST_NS;
    pid_t left = 0;
    int r = transient_connect(&t, o->device, peer, 0, err);
    while (r == 0) {
        o->grouped = o->grouped || cgroup_run_enter();
        /* The program must not wait for a daemon that hangs. */
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
        /* A size or a preemption mode that no GPU has is refused, too. */
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
    return r;
}

/* Signals that may be forwarded: all that can be caught, except those that a fault here raises. */
static void forwarded_set(sigset_t *set)
{
    static const int not [] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigfillset(set);
    for (size_t i = 0; i < ARRAY_SIZE(not ); i++)
        sigdelset(set, not [i]);
}

/* Whether a process is one of the job's. A signal that it sent to its process group has already
 * reached the program. */
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
        return true; /* such as SIGALRM of an alarm that was set before exec */
    }
}

struct continued {
    pid_t runner, program;
};

static int continue_runner(void *arg)
{
    const struct continued *c = arg;
    while (getppid() == c->runner && (is_stopped(c->program) || !is_stopped(c->runner)))
        nanosleep(&(struct timespec){.tv_nsec = CONTINUE_LOOK_NS}, NULL);
    if (getppid() == c->runner)
        kill(c->runner, SIGCONT);
    return 0;
}

/* Stops this process as the program has stopped, so that a shell sees it. A helper continues this
 * one when the program goes on or ends, since whoever continues that may not know this one. */
static void stop_like(pid_t program)
{
    struct continued c = {getpid(), program};
    pid_t continuer;
    const int r =
        child_start(&(struct child_spec){.begin = continue_runner, .arg = &c}, &continuer);
    kill(c.runner, SIGSTOP);
    if (r == 0 && kill(continuer, SIGKILL) == 0)
        waitpid(continuer, NULL, 0);
}

/* Reaps children. True: the program has ended, with its wait status. held: a SIGSTOP is ceded's,
 * which stops batch jobs of MPS servers for moments, and must not look like ^Z to a shell. */
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
        if (is_stopped(child) && !(held && WSTOPSIG(st) == SIGSTOP))
            stop_like(child);
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

/* Ends this process as the program ended. Returns the exit status unless a signal ends it. */
static int end_like(int status, const sigset_t *set)
{
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    int sig = WTERMSIG(status);
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0); /* a core of this process would hide the program's */
    signal(sig, SIG_DFL);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, set, NULL);
    return 128 + sig;
}

/* Grants all processes of the user the right to steer this process, before it becomes the program.
 *
 * Where kernel.yama.ptrace_scope is 1, a process can be traced by its ancestors and by one process
 * that it names, with that one's descendants at the time of the call. The grant lasts over exec, is
 * not inherited, and ends with the named process. A job that is off the run list stays off it
 * unless a process with the right is left, so the right must not end with a process that may be
 * killed:
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
 * The next cede may be any process's child: a verb from another terminal, or a daemon of another
 * runner. It descends from no process that was named before, so only the last row has no gap.
 *
 * The cost: Yama's limit is lifted for this program, but not for its children. The kernel's own
 * conditions stay, the same user and a dumpable program (no set-user-ID), as where ptrace_scope is
 * 0. A compromised process of the same user could read the program's memory; without the grant it
 * could already write the program's files and start it under a debugger. A daemon that runs as root
 * needs no grant and gets none. */
static void grant_steering(const struct client *peer)
{
    if (peer->daemon_pid > 0 && peer->daemon_uid != 0)
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
}

/* A number above 0 by which ceded recognizes programs that ran well together before, or did not. */
static uint64_t program_number(char *const *command)
{
    uint64_t hash = FNV_START;
    for (; *command; command++)
        hash = fnv(hash, *command, strlen(*command) + 1);
    return hash >> 1 | 1;
}

struct beginning {
    pid_t runner;
    const struct client *peer;
    const struct pool *pool;
    struct sigaction child; /* the program's action for SIGCHLD */
};

/* Runs in the process that is about to become the program. */
static int program_begins(void *arg)
{
    const struct beginning *b = arg;
    sigaction(SIGCHLD, &b->child, NULL);
    grant_steering(b->peer);
    run_words_pid(b->runner);
    if (b->peer->socket[0])
        gates_enter(b->peer->socket); /* the program runs even if this fails */
    pool_enter(b->pool);
    return 0;
}

static int run_program(const struct options *o, char **command, const struct client *peer,
                       const struct pool *pool)
{
    char text[160];
    sigset_t set, before;
    struct beginning b = {.runner = getpid(), .peer = peer, .pool = pool};
    const struct sigaction dfl = {.sa_handler = SIG_DFL};
    forwarded_set(&set);
    sigprocmask(SIG_BLOCK, &set, &before);
    sigaction(SIGCHLD, &dfl, &b.child); /* if it were ignored, the exit status would be lost */
    prctl(PR_SET_CHILD_SUBREAPER, 1);

    const struct child_spec spec = {.argv = (const char *const *)command,
                                    .begin = program_begins,
                                    .arg = &b,
                                    .inherit = true,
                                    .mask = &before};
    pid_t child;
    int status = child_start(&spec, &child);
    if (status < 0)
        return cli_error("cannot start '%s': %s", command[0], strerror(-status));
    status = wait_and_forward(child, o->request.class == CLASS_BATCH, &set);
    const unsigned left = o->kill_leftovers ? signals_end_descendants() : 0;
    if (left && !o->quiet)
        cli_error("'%s' left %u process%s behind: ended", command[0], left, left == 1 ? "" : "es");
    if (o->grouped)
        cgroup_run_leave(false);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && peer->socket[0] && !o->quiet)
        room_killed(command[0]);
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
    r = r == 0 ? run_check_gpu(&o, e.reply, &err) : r;
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
