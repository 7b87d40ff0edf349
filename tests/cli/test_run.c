/* `cede run` behaves as the program alone would. Nearly everything is run twice, with cede and
 * without, and compared. There is no scheduler to be had, so this is also how it fails open; what a
 * scheduler answers is told by a stand-in. */
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void statuses(void **state)
{
    (void)state;
    static const char *const scripts[] = {
        "exit 0",        "exit 1",        "exit 2",
        "exit 7",        "exit 255",      "kill -TERM $$",
        "kill -KILL $$", "kill -SEGV $$", "kill -INT $$",
        "kill -HUP $$",  "kill -QUIT $$", "kill -PIPE $$",
        "kill -ABRT $$", "kill -USR1 $$", "kill -40 $$",
        "kill -ALRM $$", "echo out",      "echo e >&2; echo o; exit 3",
    };
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        BOTH("sh", "-c", scripts[i]);
        if (with.status != without.status)
            fail_msg("%s: %x, alone %x", scripts[i], (unsigned)with.status,
                     (unsigned)without.status);
        assert_string_equal(with.out, without.out);
    }
}

/* As env(1) has it. */
static void not_executable(void **state)
{
    (void)state;
    RUN(&with, CEDE_RUN, "/nonexistent/program");
    assert_int_equal(status_of(with.status), 127);
    assert_non_null(strstr(with.err, "cede: cannot run '/nonexistent/program': No such file"));
    RUN(&with, CEDE_RUN, "no-such-program-anywhere");
    assert_int_equal(status_of(with.status), 127);
    RUN(&with, CEDE_RUN, "/etc/passwd");
    assert_int_equal(status_of(with.status), 126);
    RUN(&with, CEDE_RUN, "/");
    assert_int_equal(status_of(with.status), 126);
}

/* One line says that nothing is scheduled; --strict makes it an error. */
static void fails_open(void **state)
{
    (void)state;
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

static void arguments(void **state)
{
    (void)state;
    BOTH("printf", "%s|", "-c", "a b", "", "*", "--", "-h", "\n");
    assert_same();
    RUN(&with, "cede", "run", "--gpu-device", "soft", "echo", "-c", "batch", "--help");
    assert_string_equal(with.out, "-c batch --help\n");
}

static void input(void **state)
{
    (void)state;
    both("one\ntwo\n", (const char *const[]){"cat", NULL});
    assert_same();
    assert_string_equal(with.out, "one\ntwo\n");
    BOTH("sh", "-c", "exec <&- >&-; cat");
    assert_same();
}

static void environment(void **state)
{
    (void)state;
    BOTH("env");
    assert_same();
    BOTH("sh", "-c",
         "pwd; umask; ulimit -a; id; ps -o pgid= -p $$ | grep -c $(ps -o pgid= -p $PPID)");
    assert_string_equal(with.out, without.out);
}

static void descriptors(void **state)
{
    (void)state;
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

/* Mask and dispositions, inherited ones too. */
static void signal_state(void **state)
{
    (void)state;
    /* Not SigQ: that counts what is queued for all of this user's processes. */
    static const char *const command[] = {"grep", "-E", "^(Sig[^Q]|Shd)", "/proc/self/status",
                                          NULL};
    both(NULL, command);
    assert_same();

    const struct sigaction ign = {.sa_handler = SIG_IGN};
    struct sigaction before[3];
    sigset_t block, mask;
    sigaction(SIGHUP, &ign, &before[0]);
    sigaction(SIGPIPE, &ign, &before[1]);
    sigaction(SIGUSR2, &ign, &before[2]);
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    sigaddset(&block, SIGTERM);
    sigprocmask(SIG_BLOCK, &block, &mask);
    both(NULL, command);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    sigaction(SIGHUP, &before[0], NULL);
    sigaction(SIGPIPE, &before[1], NULL);
    sigaction(SIGUSR2, &before[2], NULL);
    assert_same();
}

/* A caller that ignores SIGCHLD must not cost the exit status, and the program keeps the ignoring.
 */
static void ignored_sigchld(void **state)
{
    (void)state;
    RUN(&with, "env", "--ignore-signal=CHLD", harness_exe(), "run", "--gpu-device", "soft", "sh",
        "-c", "exit 9");
    assert_int_equal(status_of(with.status), 9);
    RUN(&with, "env", "--ignore-signal=CHLD", harness_exe(), "run", "--gpu-device", "soft", "grep",
        "SigIgn", "/proc/self/status");
    RUN(&without, "env", "--ignore-signal=CHLD", "grep", "SigIgn", "/proc/self/status");
    assert_same();
    /* Others may be ignored already where the tests run. */
    assert_true(strtoull(with.out + strlen("SigIgn:\t"), NULL, 16) & 1ULL << (SIGCHLD - 1));
}

static void forwards_signals(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int sig;
    } t[] = {
        {"HUP", SIGHUP},     {"INT", SIGINT},   {"QUIT", SIGQUIT},
        {"TERM", SIGTERM},   {"USR1", SIGUSR1}, {"ALRM", SIGALRM},
        {"WINCH", SIGWINCH}, {"ABRT", SIGABRT}, {"40", 40},
    };
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        char script[256], line[64];
        int out;
        signal(t[i].sig, SIG_DFL); /* a shell cannot trap what it found ignored, as under nohup */
        /* Counts: each has to arrive, and once. */
        snprintf(script, sizeof(script),
                 "n=0; trap 'n=$((n+1)); echo got' %s; trap 'echo $n; exit 42' USR2; echo ready; "
                 "while :; do sleep 0.02; done",
                 t[i].name);
        pid_t runner =
            start_program(&out, (const char *const[]){CEDE_RUN, "sh", "-c", script, NULL});
        read_line(out, line, sizeof(line));
        assert_string_equal(line, "ready");
        kill(runner, t[i].sig);
        read_line(out, line, sizeof(line));
        assert_string_equal(line, "got");
        kill(runner, SIGUSR2);
        read_line(out, line, sizeof(line));
        assert_string_equal(line, "1");
        int status;
        assert_int_equal(waitpid(runner, &status, 0), runner);
        assert_int_equal(status_of(status), 42);
        close(out);
    }
}

static volatile sig_atomic_t counted;

static void count(int sig)
{
    (void)sig;
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
static void own_signals_come_once(void **state)
{
    (void)state;
    char self[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    assert_true(n > 0);
    self[n] = '\0';
    RUN(&with, "setsid", "-w", harness_exe(), "run", "--gpu-device", "soft", self,
        "signal-own-group");
    assert_string_equal(with.out, "1\n");
    assert_int_equal(status_of(with.status), 0);
}

/* alarm(2) survives exec but not fork: the idiom that limits a program's time. */
static void inherited_alarm(void **state)
{
    (void)state;
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

static void stops_and_continues(void **state)
{
    (void)state;
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
    assert_int_equal(waitpid(runner, &status, 0), runner);
    assert_int_equal(status_of(status), 1000 + SIGKILL);
    close(out);
    program = start_pid_teller(&runner, &out, "echo $$; exec sleep 600");
    kill(runner, SIGTERM);
    assert_int_equal(waitpid(runner, &status, 0), runner);
    assert_int_equal(status_of(status), 1000 + SIGTERM);
    close(out);
}

static void adopts_and_reaps_orphans(void **state)
{
    (void)state;
    int out, status;
    pid_t runner;
    pid_t orphan =
        start_pid_teller(&runner, &out,
                         "setsid sh -c 'sleep 600 & echo $!' & wait; trap 'exit 5' TERM; "
                         "echo waiting; while :; do sleep 0.02; done");
    char line[64];
    read_line(out, line, sizeof(line));
    assert_string_equal(line, "waiting");
    assert_int_equal(process_parent(orphan), runner);
    kill(orphan, SIGKILL);
    await_state(orphan, ""); /* not even a zombie */
    assert_int_equal(waitpid(runner, &status, WNOHANG), 0);
    kill(runner, SIGTERM);
    assert_int_equal(waitpid(runner, &status, 0), runner);
    assert_int_equal(status_of(status), 5);
    close(out);
}

static void ends_with_the_program(void **state)
{
    (void)state;
    int out, status;
    pid_t runner;
    pid_t orphan = start_pid_teller(&runner, &out, "sleep 600 >/dev/null & echo $!; exit 3");
    assert_int_equal(waitpid(runner, &status, 0), runner);
    assert_int_equal(status_of(status), 3);
    await_state(orphan, "SR"); /* and leaves alone what goes on */
    kill(orphan, SIGKILL);
    close(out);
}

static void killed_runner_leaves_the_program(void **state)
{
    (void)state;
    int out, status;
    pid_t runner;
    char line[64];
    pid_t program = start_pid_teller(
        &runner, &out, "trap 'echo still here; exit' USR1; echo $$; while :; do sleep 0.02; done");
    kill(runner, SIGKILL);
    assert_int_equal(waitpid(runner, &status, 0), runner);
    kill(program, SIGUSR1);
    read_line(out, line, sizeof(line));
    assert_string_equal(line, "still here");
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

static void on_a_terminal(void **state)
{
    (void)state;
    int master, slave, tell[2];
    char line[128];
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

    read_line(master, line, sizeof(line));
    assert_string_equal(line, "ready");
    /* The foreground group can read. */
    assert_int_equal(write(master, "hello\n", 6), 6);
    read_line(master, line, sizeof(line));
    assert_string_equal(line, "read hello");
    /* ^Z stops the job, and the shell sees it. */
    assert_int_equal(write(master, "\x1a", 1), 1);
    read_line(tell[0], line, sizeof(line));
    assert_string_equal(line, "stopped");
    read_line(master, line, sizeof(line));
    assert_string_equal(line, "cont");
    /* ^C reaches the program, each time once. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(write(master, "\x03", 1), 1);
        read_line(master, line, sizeof(line));
        assert_string_equal(line, "int");
    }
    read_line(master, line, sizeof(line));
    assert_string_equal(line, "2");
    read_line(tell[0], line, sizeof(line));
    assert_string_equal(line, "ended 6");
    waitpid(shell, NULL, 0);
    close(master);
    close(tell[0]);
}

/* ---- what a scheduler answers ---------------------------------------------------------------- */

static void registers_itself(void **state)
{
    (void)state;
    static const char reply[] = "{\"v\":1,\"ok\":true,\"job\":{},\"note\":\"no GPU context yet\"}";
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

static void names_itself(void **state)
{
    (void)state;
    static const char *const t[][2] = {
        {"/bin/echo", "echo"},
        {"./123", "_123"},
        {"./#x", "_x"},
        {"./a b\n", "a_b_"},
    };
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){"{\"v\":1,\"ok\":true}", NULL});
        RUN(&with, "cede", "run", t[i][0]);
        char *asked = fake_daemon_end(daemon), name[64];
        snprintf(name, sizeof(name), "\"name\":\"%s\"", t[i][1]);
        if (!strstr(asked, name) || !strstr(asked, "\"class\":\"normal\""))
            fail_msg("%s: %s", t[i][0], asked);
        free(asked);
    }
}

/* Refused by permission: not run. Any other trouble: run, with a word. */
static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        int status;
        const char *out, *err;
    } t[] = {
        {"{\"v\":1,\"ok\":false,\"errno\":1,\"error\":\"class latency takes root\"}", 1, "",
         "cede: 'echo' was not run: class latency takes root\n"},
        {"{\"v\":1,\"ok\":false,\"errno\":28,\"error\":\"too many jobs\"}", 0, "ran\n",
         "cede: 'echo' runs unscheduled: too many jobs\n"},
        {"garbage", 0, "ran\n", "cede: 'echo' runs unscheduled: "},
        {NULL, 0, "ran\n", "cede: 'echo' runs unscheduled: "},
    };
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){t[i].reply, NULL});
        RUN(&with, "cede", "run", "-c", "latency", "echo", "ran");
        free(fake_daemon_end(daemon));
        assert_int_equal(status_of(with.status), t[i].status);
        assert_string_equal(with.out, t[i].out);
        assert_ptr_equal(strstr(with.err, t[i].err), with.err);
    }
}

static void asks_again_while_too_many_do(void **state)
{
    (void)state;
    static const char full[] = "{\"v\":1,\"ok\":false,\"errno\":87,\"error\":\"too many\"}";
    pid_t daemon = fake_daemon(
        (uid_t)-1, (const char *const[]){full, full, full, full, "{\"v\":1,\"ok\":true}", NULL});
    RUN(&with, "cede", "run", "--strict", "echo", "ran");
    free(fake_daemon_end(daemon));
    assert_string_equal(with.err, "");
    assert_int_equal(status_of(with.status), 0);
}

/* A program waits longer than one call only if it is to run as a job or not at all. */
static void without_an_answer(void **state)
{
    (void)state;
    static const char *const replies[] = {"", "{\"v\":1,\"ok\":true}", NULL};
    pid_t daemon = fake_daemon((uid_t)-1, replies);
    RUN(&with, "cede", "run", "--strict", "echo", "ran");
    free(fake_daemon_end(daemon));
    assert_string_equal(with.err, "");
    daemon = fake_daemon((uid_t)-1, replies);
    RUN(&without, "cede", "run", "echo", "ran");
    free(fake_daemon_end(daemon));
    assert_non_null(strstr(without.err, "'echo' runs unscheduled: "));
    assert_int_equal(status_of(with.status) + status_of(without.status), 0);
}

/* A stranger's socket is as good as none. */
static void distrusts(void **state)
{
    (void)state;
    if (getuid() != 0)
        skip();
    pid_t daemon = fake_daemon(65534, (const char *const[]){"{\"v\":1,\"ok\":true}", NULL});
    RUN(&with, "cede", "run", "echo", "ran");
    char *asked = fake_daemon_end(daemon);
    assert_string_equal(asked, "");
    free(asked);
    assert_string_equal(with.out, "ran\n");
    assert_non_null(strstr(with.err, "not trusting the daemon"));
}

/* As a plain user, if this is root's test: the same, with a directory of its own. */
static void as_a_user(void **state)
{
    (void)state;
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses),
        cmocka_unit_test(not_executable),
        cmocka_unit_test(fails_open),
        cmocka_unit_test(arguments),
        cmocka_unit_test(input),
        cmocka_unit_test(environment),
        cmocka_unit_test(descriptors),
        cmocka_unit_test(signal_state),
        cmocka_unit_test(ignored_sigchld),
        cmocka_unit_test(forwards_signals),
        cmocka_unit_test(own_signals_come_once),
        cmocka_unit_test(inherited_alarm),
        cmocka_unit_test(stops_and_continues),

        cmocka_unit_test(adopts_and_reaps_orphans),
        cmocka_unit_test(ends_with_the_program),
        cmocka_unit_test(killed_runner_leaves_the_program),
        cmocka_unit_test(on_a_terminal),
        cmocka_unit_test(registers_itself),
        cmocka_unit_test(names_itself),
        cmocka_unit_test(refused),
        cmocka_unit_test(asks_again_while_too_many_do),
        cmocka_unit_test(without_an_answer),
        cmocka_unit_test(distrusts),
        cmocka_unit_test(as_a_user),
    };
    return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
