/* `cede run` behaves as the program alone would. Nearly everything is run twice, with cede and
 * without, and compared. There is no scheduler to be had, so this is also how it fails open; what a
 * scheduler answers is told by a stand-in. */
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "harness.h"

static struct result with, without;

#define CEDE_RUN "cede", "run", "--gpu-device", "soft", "--"

/* The same command with cede and without. */
static void both(const char *in, const char *const command[])
{
    const char *argv[16] = {CEDE_RUN};
    size_t n = 5;
    for (size_t i = 0; command[i]; i++)
        argv[n++] = command[i];
    run_program(&with, in, argv);
    run_program(&without, in, command);
}
#define BOTH(...) both(NULL, (const char *const[]){__VA_ARGS__, NULL})

static void assert_same(void)
{
    assert_int_equal(with.status, without.status);
    assert_string_equal(with.out, without.out);
}

/* Statuses, environment, descriptors (also where standard ones are missing), signals. Not SigQ:
 * that counts what is queued for all of this user's processes. */
TEST(is_the_same)
{
    static const char *const scripts[] = {
        "exit 0",
        "exit 1",
        "exit 2",
        "exit 255",
        "kill -TERM $$",
        "kill -KILL $$",
        "kill -SEGV $$",
        "kill -INT $$",
        "kill -HUP $$",
        "kill -QUIT $$",
        "kill -PIPE $$",
        "kill -ABRT $$",
        "kill -USR1 $$",
        "kill -40 $$",
        "kill -ALRM $$",
        "echo e >&2; echo o; exit 3",
        "exec <&- >&-; cat",
        "env",
        "pwd; umask; ulimit -a; id; ps -o pgid= -p $$ | grep -c $(ps -o pgid= -p $PPID)",
        "ls /proc/self/fd",
        "exec grep -E '^(Sig[^Q]|Shd)' /proc/self/status",
    };
    for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
        BOTH("sh", "-c", scripts[i]);
        if (with.status != without.status || strcmp(with.out, without.out) != 0)
            fail_msg("%s: %x, alone %x\n%s\n%s", scripts[i], (unsigned)with.status,
                     (unsigned)without.status, with.out, without.out);
    }
}

/* As env(1) has it. */
TEST(not_executable)
{
    SAYS(&with, 127, NULL, "cede: cannot run '/nonexistent/program': No such file", CEDE_RUN,
         "/nonexistent/program");
    SAYS(&with, 127, NULL, NULL, CEDE_RUN, "no-such-program-anywhere");
    SAYS(&with, 126, NULL, NULL, CEDE_RUN, "/etc/passwd");
    SAYS(&with, 126, NULL, NULL, CEDE_RUN, "/");
}

/* One line says that nothing is scheduled; --strict makes it an error. */
TEST(fails_open)
{
    RUN(&with, CEDE_RUN, "echo", "ran");
    assert_string_equal(with.out, "ran\n");
    assert_int_equal(status_of(with.status), 0);
    assert_ptr_equal(strstr(with.err, "cede: 'echo' runs unscheduled: "), with.err);
    assert_ptr_equal(strchr(with.err, '\n'), with.err + strlen(with.err) - 1);

    RUN(&with, "cede", "run", "--strict", "--gpu-device", "soft", "echo", "ran");
    assert_string_equal(with.out, "");
    assert_int_equal(status_of(with.status), 1);
    assert_ptr_equal(strstr(with.err, "cede: 'echo' was not run: "), with.err);
}

TEST(arguments_and_input)
{
    BOTH("printf", "%s|", "-c", "a b", "", "*", "--", "-h", "\n");
    assert_same();
    SAYS(&with, 0, "-c batch --help\n", NULL, "cede", "run", "--gpu-device", "soft", "echo", "-c",
         "batch", "--help");
    both("one\ntwo\n", (const char *const[]){"cat", NULL});
    assert_same();
    assert_string_equal(with.out, "one\ntwo\n");
}

TEST(descriptors)
{
    int leaked = open("/dev/null", O_RDONLY), high;
    assert_true(leaked >= 0);
    high = fcntl(leaked, F_DUPFD, 77);
    BOTH("ls", "/proc/self/fd");
    close(leaked);
    close(high);
    assert_same();
    assert_non_null(strstr(with.out, "77\n"));
    /* Also with standard descriptors missing. */
    RUN(&with, "sh", "-c",
        "\"$CEDE_EXE\" run --gpu-device soft ls -l /proc/self/fd <&- 2>&- | grep -c -- '->'");
    RUN(&without, "sh", "-c", "ls -l /proc/self/fd <&- 2>&- | grep -c -- '->'");
    assert_same();
}

/* Mask and dispositions that are inherited. */
TEST(signal_state)
{
    static const int ignored[] = {SIGHUP, SIGPIPE, SIGUSR2};
    const struct sigaction ign = {.sa_handler = SIG_IGN};
    struct sigaction before[ARRAY_SIZE(ignored)];
    sigset_t block, mask;
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
        sigaction(ignored[i], &ign, &before[i]);
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    sigaddset(&block, SIGTERM);
    sigprocmask(SIG_BLOCK, &block, &mask);
    BOTH("grep", "-E", "^(Sig[^Q]|Shd)", "/proc/self/status");
    sigprocmask(SIG_SETMASK, &mask, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
        sigaction(ignored[i], &before[i], NULL);
    assert_same();
}

/* A caller that ignores SIGCHLD must not cost the exit status, and the program keeps the ignoring.
 */
TEST(ignored_sigchld)
{
    SAYS(&with, 9, NULL, NULL, "env", "--ignore-signal=CHLD", harness_exe(), "run", "--gpu-device",
         "soft", "sh", "-c", "exit 9");
    RUN(&with, "env", "--ignore-signal=CHLD", harness_exe(), "run", "--gpu-device", "soft", "grep",
        "SigIgn", "/proc/self/status");
    RUN(&without, "env", "--ignore-signal=CHLD", "grep", "SigIgn", "/proc/self/status");
    assert_same();
    /* Others may be ignored already where the tests run. */
    assert_true(strtoull(with.out + strlen("SigIgn:\t"), NULL, 16) & 1ULL << (SIGCHLD - 1));
}

TEST(forwards_signals)
{
    static const struct {
        const char *name;
        int sig;
    } t[] = {
        {"HUP", SIGHUP},     {"INT", SIGINT},   {"QUIT", SIGQUIT},
        {"TERM", SIGTERM},   {"USR1", SIGUSR1}, {"ALRM", SIGALRM},
        {"WINCH", SIGWINCH}, {"ABRT", SIGABRT}, {"40", 40},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        char script[256];
        int out;
        signal(t[i].sig, SIG_DFL); /* a shell cannot trap what it found ignored, as under nohup */
        /* Counts: each has to arrive, and once. */
        snprintf(script, sizeof(script),
                 "n=0; trap 'n=$((n+1)); echo got' %s; trap 'echo $n; exit 42' USR2; echo ready; "
                 "while :; do sleep 0.02; done",
                 t[i].name);
        pid_t runner =
            start_program(&out, (const char *const[]){CEDE_RUN, "sh", "-c", script, NULL});
        reads(out, "ready");
        kill(runner, t[i].sig);
        reads(out, "got");
        kill(runner, SIGUSR2);
        reads(out, "1");
        ends_with(runner, 42);
        close(out);
    }
}

static volatile sig_atomic_t counted;

static void count(int sig)
{
    counted++;
}

/* This program in another role: signals its process group, and tells how often it heard it. */
static int signal_own_group(void)
{
    signal(SIGRTMIN + 1, count); /* queued: two do not become one */
    kill(0, SIGRTMIN + 1);
    for (int i = 0; i < 10; i++)
        usleep(10000);
    printf("%d\n", (int)counted);
    return 0;
}

/* What the program sends to its whole process group has reached it already. */
TEST(own_signals_come_once)
{
    char self[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    assert_true(n > 0);
    self[n] = '\0';
    SAYS(&with, 0, "1\n", NULL, "setsid", "-w", harness_exe(), "run", "--gpu-device", "soft", self,
         "signal-own-group");
}

/* alarm(2) survives exec but not fork: the idiom that limits a program's time. */
TEST(inherited_alarm)
{
    int out, status;
    pid_t runner = start_program(&out, (const char *const[]){"perl", "-e", "alarm 1; exec @ARGV",
                                                             harness_exe(), "run", "--gpu-device",
                                                             "soft", "sleep", "600", NULL});
    assert_int_equal(waitpid(runner, &status, 0), runner);
    close(out);
    if (status_of(status) == 127)
        skip(); /* no perl */
    assert_int_equal(status_of(status), 1000 + SIGALRM);
}

static pid_t start_pid_teller(pid_t *runner, int *out, const char *script)
{
    char line[64];
    *runner = start_program(out, (const char *const[]){CEDE_RUN, "sh", "-c", script, NULL});
    read_line(*out, line, sizeof(line));
    pid_t pid = (pid_t)strtol(line, NULL, 10);
    assert_true(pid > 1);
    return pid;
}

TEST(stops_and_continues)
{
    int out, status;
    pid_t runner;
    pid_t program = start_pid_teller(&runner, &out, "echo $$; exec sleep 600");
    for (int i = 0; i < 3; i++) {
        /* Stopped itself, or told to through the runner: whoever waits for the runner sees it. */
        kill(i == 0 ? program : runner, i == 0 ? SIGSTOP : SIGTSTP);
        assert_int_equal(waitpid(runner, &status, WUNTRACED), runner);
        assert_true(WIFSTOPPED(status));
        await_state(program, "T");
        /* Continued through the runner, or by somebody who knows only of the program. */
        kill(i < 2 ? runner : program, SIGCONT);
        await_state(program, "S");
        await_state(runner, "S");
    }
    /* Killed while stopped: the runner is not, and tells. */
    kill(program, SIGSTOP);
    await_state(runner, "T");
    kill(program, SIGKILL);
    ends_with(runner, 1000 + SIGKILL);
    close(out);
    start_pid_teller(&runner, &out, "echo $$; exec sleep 600");
    kill(runner, SIGTERM);
    ends_with(runner, 1000 + SIGTERM);
    close(out);
}

/* ceded stops clients of MPS servers for moments: no shell shall see a stopped job then. ^Z it
 * sees. */
TEST(batch_job_is_held)
{
    int out, status;
    pid_t runner, program;
    setenv("CEDE_CLASS", "batch", 1);
    program = start_pid_teller(&runner, &out, "echo $$; exec sleep 600");
    unsetenv("CEDE_CLASS");
    kill(program, SIGSTOP);
    await_state(program, "T");
    kill(runner, SIGWINCH); /* it has looked at its child before it forwards this */
    await_state(runner, "S");
    assert_int_equal(waitpid(runner, &status, WUNTRACED | WNOHANG), 0);
    kill(program, SIGCONT);
    await_state(program, "S");
    kill(program, SIGTSTP);
    assert_int_equal(waitpid(runner, &status, WUNTRACED), runner);
    assert_true(WIFSTOPPED(status));
    kill(program, SIGKILL);
    ends_with(runner, 1000 + SIGKILL);
    close(out);
}

TEST(adopts_and_reaps_orphans)
{
    int out, status;
    pid_t runner;
    pid_t orphan =
        start_pid_teller(&runner, &out,
                         "setsid sh -c 'sleep 600 & echo $!' & wait; trap 'exit 5' TERM; "
                         "echo waiting; while :; do sleep 0.02; done");
    reads(out, "waiting");
    assert_int_equal(process_parent(orphan), runner);
    kill(orphan, SIGKILL);
    await_state(orphan, ""); /* not even a zombie */
    assert_int_equal(waitpid(runner, &status, WNOHANG), 0);
    kill(runner, SIGTERM);
    ends_with(runner, 5);
    close(out);
}

TEST(ends_with_the_program)
{
    int out;
    pid_t runner;
    pid_t orphan = start_pid_teller(&runner, &out, "sleep 600 >/dev/null & echo $!; exit 3");
    ends_with(runner, 3);
    await_state(orphan, "SR"); /* and leaves alone what goes on */
    kill(orphan, SIGKILL);
    close(out);
}

TEST(killed_runner_leaves_the_program)
{
    int out;
    pid_t runner;
    pid_t program = start_pid_teller(
        &runner, &out, "trap 'echo still here; exit' USR1; echo $$; while :; do sleep 0.02; done");
    kill(runner, SIGKILL);
    ends_with(runner, 1000 + SIGKILL);
    kill(program, SIGUSR1);
    reads(out, "still here");
    close(out);
}

/* ---- on a terminal --------------------------------------------------------------------------- */

/* A shell's part, as the leader of a session: starts the job in the foreground, tells what becomes
 * of it, continues it when it stops. */
static void play_shell(int tty, int tell, const char *script)
{
    setsid();
    ioctl(tty, TIOCSCTTY, 0);
    signal(SIGTTOU, SIG_IGN);
    pid_t job = fork();
    if (job == 0) {
        setpgid(0, 0);
        tcsetpgrp(tty, getpid());
        signal(SIGTTOU, SIG_DFL);
        dup2(tty, 0);
        dup2(tty, 1);
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, 2);
        execl(harness_exe(), "cede", "run", "--gpu-device", "soft", "sh", "-c", script,
              (char *)NULL);
        _exit(99);
    }
    setpgid(job, job);
    int st;
    while (waitpid(job, &st, WUNTRACED) == job) {
        if (!WIFSTOPPED(st))
            break;
        tcsetpgrp(tty, getpgrp());
        dprintf(tell, "stopped\n");
        tcsetpgrp(tty, job);
        kill(-job, SIGCONT);
    }
    dprintf(tell, "ended %d\n", status_of(st));
    _exit(0);
}

TEST(on_a_terminal)
{
    int master, slave, tell[2];
    assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
    fcntl(master, F_SETFD, FD_CLOEXEC);
    fcntl(slave, F_SETFD, FD_CLOEXEC);
    assert_int_equal(pipe2(tell, O_CLOEXEC), 0);
    pid_t shell = fork();
    if (shell == 0)
        play_shell(slave, tell[1],
                   /* Blocks in a builtin: a shell that is just starting a program cannot stop. */
                   "stty -echo; n=0; trap 'n=$((n+1)); echo int' INT; trap 'echo cont' CONT; "
                   "echo ready; read line; echo \"read $line\"; "
                   "while [ $n -lt 2 ]; do read line; done; echo $n; exit 6");
    close(slave);
    close(tell[1]);

    reads(master, "ready");
    /* The foreground group can read. */
    assert_int_equal(write(master, "hello\n", 6), 6);
    reads(master, "read hello");
    /* ^Z stops the job, and the shell sees it. A line follows each signal, as a program that was
     * about to read when it came runs its trap only when it has read. */
    assert_int_equal(write(master, "\x1a", 1), 1);
    reads(tell[0], "stopped");
    assert_int_equal(write(master, "\n", 1), 1);
    reads(master, "cont");
    /* ^C reaches the program, each time once. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(write(master, "\x03\n", 2), 2);
        reads(master, "int");
    }
    reads(master, "2");
    reads(tell[0], "ended 6");
    waitpid(shell, NULL, 0);
    close(master);
    close(tell[0]);
}

/* ---- what a scheduler answers ---------------------------------------------------------------- */

TEST(registers_itself)
{
    static const char reply[] = OK ",'job':{},'note':'no GPU context yet'}";
    char expected[256];
    pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){reply, NULL});
    RUN(&with, "cede", "run", "-c", "batch", "-w", "300", "-n", "nightly", "sh", "-c",
        "echo $PPID; exit 4");
    char *asked = fake_daemon_end(daemon), *number = strpbrk(strstr(asked, "program"), "123456789");
    snprintf(expected, sizeof(expected),
             "{\"v\":1,\"op\":\"add\",\"pid\":%d,\"class\":\"batch\",\"weight\":300,"
             "\"name\":\"nightly\",\"run\":true,\"program\":%llu}\n",
             atoi(with.out), strtoull(number, NULL, 10));
    assert_string_equal(asked, expected);
    free(asked);
    assert_string_equal(with.err, "");
    assert_int_equal(status_of(with.status), 4);
}

#define FULL   NO(87) "'too many'}"
#define NAMED  "'class':'normal' 'name':"
#define NO_RUN "cede: 'echo' was not run: "
#define FREE   "cede: 'echo' runs unscheduled: "

/* clang-format off */
static const struct talk talks[] = {
    {"run /bin/echo", {OK "}"}, 0, "\n", "", NAMED "'echo'"},
    {"run ./123", {OK "}"}, 127, "", "cannot run", NAMED "'_123'"},
    {"run ./#x", {OK "}"}, 127, "", "cannot run", NAMED "'_x'"},
    {"run ./a\tb\n", {OK "}"}, 127, "", "cannot run", NAMED "'a_b_'"},
    /* Refused by permission: not run. Any other trouble: run, with a word. */
    {"run -c latency echo ran", {NO(1) "'class latency takes root'}"}, 1,
     "", NO_RUN "class latency takes root\n", NULL},
    {"run -c latency echo ran", {NO(28) "'too many jobs'}"}, 0,
     "ran\n", FREE "too many jobs\n", NULL},
    {"run -c latency echo ran", {"garbage"}, 0, "ran\n", FREE, NULL},
    {"run -c latency echo ran", {NULL}, 0, "ran\n", FREE, NULL},
    /* Asks again while too many do. */
    {"run --strict echo ran", {FULL, FULL, FULL, FULL, OK "}"}, 0, "ran\n", "", NULL},
    /* A program waits longer than one call only if it is to run as a job or not at all. */
    {"run --strict echo ran", {"", OK "}"}, 0, "ran\n", "", NULL},
    {"run echo ran", {"", OK "}"}, 0, "ran\n", FREE, NULL},
    /* Without a GPU only programs that hold their own work are scheduled. */
    {"run echo ran", {OK ",'no_gpu':true}"}, 0, "ran\n",
     "cede: note: no GPU here can be scheduled: `cede doctor` says why\n", NULL},
    {"run -q echo ran", {OK ",'no_gpu':true}"}, 0, "ran\n", "", NULL},
    {"run --strict -q echo ran", {OK ",'no_gpu':true}"}, 1, "", NO_RUN "no GPU here can be scheduled: `cede doctor`", NULL},
    {"CEDE_GATE_CPU=1 run --strict echo ran", {OK ",'no_gpu':true}"}, 0, "ran\n", "", NULL},
    {"run --strict echo ran", {OK "}"}, 0, "ran\n", "", NULL},
    /* A stranger's socket is as good as none. */
    {"DAEMON_UID=65534 run echo ran", {OK "}"}, 0, "ran\n", "not trusting the daemon", ""},
};
/* clang-format on */

TEST_TALKS(talks)

/* As a plain user, if this is root's test: the same, with a directory of its own. */
TEST(as_a_user)
{
    if (getuid() != 0)
        skip();
    static const char script[] =
        "dir=$(mktemp -d) && CEDE_DIR=$dir && export CEDE_DIR && "
        "\"$CEDE_EXE\" run --gpu-device soft sh -c 'id -u; exit 11'; echo $?; ls \"$dir\"; "
        "rm -r \"$dir\"";
    RUN(&without, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "test", "-x",
        harness_exe());
    if (status_of(without.status) != 0)
        skip(); /* built where that user may not look */
    RUN(&with, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script);
    assert_ptr_equal(strstr(with.out, "65534\n11\n"), with.out);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "signal-own-group") == 0)
        return signal_own_group();
    return test_run(harness_begin, harness_end);
}
