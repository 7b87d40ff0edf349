/* The verbs as a person meets them: exit statuses, messages, tables, what they ask the daemon for
 * and what they make of its answers. No GPU and no real daemon. */
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

static struct result r;

#define OK "{\"v\":1,\"ok\":true"
#define JOB                                                                                        \
    OK ",\"job\":{\"number\":12,\"name\":\"train\",\"class\":\"batch\",\"weight\":300,\"pid\":"    \
       "4711}"

#define SWAP(state)                                                                                \
    "{\"number\":12,\"name\":\"train\",\"state\":\"" state                                         \
    "\",\"swap_error\":\"managed memory\",\"swapped_bytes\":1610612736}"

struct status_row {
    const char *args[6];
    int status;
    const char *out, *err; /* parts that must occur; "" nothing at all */
};

static void check_statuses(const struct status_row *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *argv[8] = {"cede"};
        memcpy(argv + 1, t[i].args, sizeof(t[i].args));
        run_program(&r, NULL, argv);
        if (status_of(r.status) != t[i].status || !strstr(r.out, t[i].out) ||
            !strstr(r.err, t[i].err) || (!*t[i].out && *r.out) || (!*t[i].err && *r.err))
            fail_msg("cede %s %s %s: status %d (%d)\n%s%s", argv[1] ? argv[1] : "",
                     argv[1] && argv[2] ? argv[2] : "",
                     argv[1] && argv[2] && argv[3] ? argv[3] : "", status_of(r.status), t[i].status,
                     r.out, r.err);
    }
}

static void statuses(void **state)
{
    (void)state;
    static const struct status_row t[] = {
        {{NULL}, 2, "", "usage: cede VERB"},
        {{"--help"}, 0, "usage: cede VERB", ""},
        {{"-h"}, 0, "usage: cede VERB", ""},
        {{"help"}, 0, "policy", ""},
        {{"--version"}, 0, "cede 0", ""},
        {{"help", "run"}, 0, "usage: cede run", ""},
        {{"help", "help"}, 0, "usage: cede VERB", ""},
        {{"help", "nonsense"}, 2, "", "cede: unknown command 'nonsense'"},
        {{"nonsense"}, 2, "", "cede: unknown command 'nonsense'"},
        {{""}, 2, "", "cede: unknown command ''"},
        {{"run", "--help"}, 0, "usage: cede run", ""},
        {{"run"}, 2, "", "cede: run: no command"},
        {{"run", "--"}, 2, "", "cede: run: no command"},
        {{"run", "-c"}, 2, "", "cede: option requires an argument"},
        {{"run", "-c", "best", "true"}, 2, "", "class: 'best'"},
        {{"run", "-c", "none", "true"}, 2, "", "class: 'none'"},
        {{"run", "-c", "latency", "--budget", "2", "true"}, 2, "", "budget: '2'"},
        {{"run", "-c", "latency", "--budget", "-1ms", "true"}, 2, "", "budget: '"},
        {{"run", "-c", "latency", "--budget", "1.1s", "true"}, 2, "", "up to 1s"},
        {{"run", "-c", "batch", "--budget", "2ms", "true"}, 2, "", "class latency too"},
        {{"set", "4711", "-c", "batch", "--budget", "2ms"}, 2, "", "class latency too"},
        {{"set", "4711", "-c", "none", "--budget", "2ms"}, 2, "", "no budget"},
        {{"set", "4711", "-c", "none", "--deadline", "3s"}, 2, "", "no deadline"},
        {{"set", "4711", "--deadline", "3"}, 2, "", "deadline: '3'"},
        {{"set", "4711", "--deadline", "100ms"}, 2, "", "from 200ms to 3600s"},
        {{"set", "4711", "--deadline", "2h"}, 2, "", "deadline: '"},
        {{"set", "4711", "--laxity", "1s"}, 2, "", "a laxity is a part of a deadline"},
        {{"set", "4711", "--deadline", "1s", "--laxity", "-1s"}, 2, "", "laxity: '"},
        {{"run", "--deadline", "1s", "--laxity", "1s", "true"}, 2, "", "shorter"},
        {{"run", "-c", "latency", "--deadline", "3s", "true"}, 2, "", "latency job"},
        {{"run", "-c", "latency", "--memory", "40X", "true"}, 2, "", "memory: '40X'"},
        {{"run", "-c", "latency", "--memory", "0", "true"}, 2, "", "memory: '0'"},
        {{"run", "-c", "latency", "--memory", "", "true"}, 2, "", "memory: ''"},
        {{"run", "-c", "latency", "--memory", "1G@", "true"}, 2, "", "memory: '1G@'"},
        {{"run", "-c", "latency", "--memory", "1G@16", "true"}, 2, "", "memory: '1G@16'"},
        {{"run", "-c", "latency", "--memory", "99999T", "true"}, 2, "", "memory: '"},
        {{"run", "-c", "latency", "--wait", "5", "true"}, 2, "", "wait: '5' is not a time"},
        {{"run", "-w", "0", "true"}, 2, "", "weight: '0'"},
        {{"run", "-w", "10001", "true"}, 2, "", "weight: '10001'"},
        {{"run", "-w", "1x", "true"}, 2, "", "weight: '1x'"},
        {{"run", "-w", "-5", "true"}, 2, "", "weight: '-5'"},
        {{"run", "-n", "12", "true"}, 2, "", "name: '12'"},
        {{"run", "-n", "#12", "true"}, 2, "", "name: '#12'"},
        {{"run", "-n", "%12", "true"}, 2, "", "name: '%12'"},
        {{"run", "-n", "", "true"}, 2, "", "name: ''"},
        {{"run", "--gpu-device", "x", "true"}, 2, "", "unknown device 'x'"},
        {{"run", "--nonsense"}, 2, "", "cede: unrecognized option"},
        {{"set", "--help"}, 0, "usage: cede set", ""},
        {{"set"}, 2, "", "cede: set: no target"},
        {{"set", "-c", "batch"}, 2, "", "cede: set: no target"},
        {{"set", "4711"}, 2, "", "nothing to set"},
        {{"set", "4711", "-c", "x"}, 2, "", "class: 'x' is not latency, normal or batch, or none"},
        {{"daemon", "--x"}, 2, "", "ceded: unrecognized option '--x'"},
        {{"softgpu", "--memory", "0"}, 2, "", "cede-softgpu: --memory takes a size"},
        {{"set", "4711", "-w", "0"}, 2, "", "weight: '"},
        {{"set", "4711", "-c", "none", "-w2"}, 2, "", "takes no weight"},
        {{"set", "0", "-c", "batch"}, 2, "", "cede: '0'"},
        {{"set", "#x", "-c", "batch"}, 2, "", "cede: '#x'"},
        {{"set", "", "-c", "batch"}, 2, "", "cede: ''"},
        {{"set", "4711", "-q"}, 2, "", "cede: invalid option"},
        {{"set", "nosuchjob", "-c", "batch"}, 1, "", "cede: "},
        {{"set", "2147483647", "-c", "batch"}, 1, "", "cede: "},
        {{"pause", "--help"}, 0, "usage: cede pause", ""},
        {{"pause"}, 2, "", "cede: pause: no target"},
        {{"pause", "-c", "batch"}, 2, "", "cede: invalid option"},
        {{"pause", "nosuchjob"}, 1, "", "cede: "},
        {{"resume", "--help"}, 0, "usage: cede resume", ""},
        {{"resume"}, 2, "", "cede: resume: no target"},
        {{"resume", "2147483647"}, 1, "", "cede: "},
        {{"swap-out", "--help"}, 0, "usage: cede swap-out", ""},
        {{"swap-out"}, 2, "", "cede: swap-out: no target"},
        {{"swap-out", "-x"}, 2, "", "cede: invalid option"},
        {{"swap-out", "#"}, 2, "", "cede: '#'"},
        {{"swap-out", "4711"}, 1, "", "start ceded"},
        {{"swap-in", "--help"}, 0, "usage: cede swap-in", ""},
        {{"swap-in"}, 2, "", "cede: swap-in: no target"},
        {{"swap-in", "4711"}, 1, "", "start ceded"},
        {{"yield", "--help"}, 0, "usage: cede yield", ""},
        {{"yield", "--memory", "4711"}, 1, "", "start ceded"},
        {{"acquire", "--help"}, 0, "usage: cede acquire", ""},
        {{"acquire", "--timeout", "soon"}, 2, "", "timeout: 'soon' is not a time"},
        {{"acquire"}, 1, "", "start ceded"},
        {{"ps", "--help"}, 0, "usage: cede ps", ""},
        {{"ps"}, 0, "no jobs\n", "no daemon"},
        {{"ps", "--json"}, 0, "\"jobs\": []", "no daemon"},
        {{"ps", "-x"}, 2, "", "cede: invalid option"},
        {{"ps", "train"}, 1, "", "cede: train: no such job"},
        {{"ps", "-a", "train"}, 2, "", "-a takes no target"},
        {{"ps", "#"}, 2, "", "cede: '#'"},
        {{"policy", "--help"}, 0, "usage: cede policy", ""},
        {{"policy"}, 0, "priority", "no daemon"},
        {{"policy", "shares"}, 1, "", "no daemon"},
        {{"policy", "a", "b"}, 2, "", "one name at most"},
        {{"policy", ""}, 2, "", "bad policy name"},
        {{"policy", "floor=0.1"}, 1, "", "no daemon"},
        {{"policy", "x=1"}, 2, "", "no parameter x; there are"},
        {{"policy", "=1"}, 2, "", "no parameter"},
        {{"policy", "probe_us="}, 2, "", "probe_us: '' is not a number: 1000 to rotation_us"},
        {{"policy", "probe_us=2ms"}, 2, "", "probe_us: '2ms'"},
        {{"policy", "probe_us=-1"}, 2, "", "probe_us: '-1'"},
        {{"policy", "probe_us=1.5"}, 2, "", "probe_us: a whole number"},
    };
    check_statuses(t, sizeof(t) / sizeof(t[0]));
}

static void acct_statuses(void **state)
{
    (void)state;
    static const struct status_row t[] = {
        {{"acct", "--help"}, 0, "usage: cede acct", ""},
        {{"acct", "train"}, 2, "", "acct: unexpected argument 'train'"},
        {{"acct", "-S", "never"}, 2, "", "'never' is no time: YYYY-MM-DD"},
        {{"acct", "-S", "now", "-E", "now-1day"}, 2, "", "the end is not after the start"},
        {{"acct", "-u", "no-such-user"}, 2, "", "there is no user 'no-such-user'"},
        {{"acct", "--class", "best"}, 2, "", "'best' is no class"},
        {{"acct", "--sum-by", "job"}, 2, "", "none of user, name, class"},
        {{"acct", "-o", "JobID,,"}, 2, "", "there is no field ''"},
        {{"acct", "-o", "Cost"}, 2, "", "there is no field 'Cost'; there are JobID"},
        {{"acct", "-o", "JobID%0"}, 2, "", "JobID: a width is 1 to"},
        {{"acct", "-o", "JobID%99999999999"}, 2, "", "JobID: a width is 1 to"},
        {{"acct", "--sum-by", "user", "-o", "Unit"}, 2, "", "no field 'Unit' of such sums"},
    };
    check_statuses(t, sizeof(t) / sizeof(t[0]));
}

static void output_that_cannot_be_written(void **state)
{
    (void)state;
    RUN(&r, "sh", "-c", "\"$CEDE_EXE\" policy >/dev/full");
    assert_int_equal(status_of(r.status), 1);
    assert_non_null(strstr(r.err, "cede: cannot write standard output: No space left"));
    RUN(&r, "sh", "-c", "\"$CEDE_EXE\" policy >&-");
    assert_int_equal(status_of(r.status), 1);
    assert_non_null(strstr(r.err, "cede: cannot write standard output"));
    /* The reader has gone before anything is written. */
    RUN(&r, "sh", "-c", "{ sleep 0.2; \"$CEDE_EXE\" ps; echo $? >&2; } | true");
    assert_non_null(strstr(r.err, "cede: cannot write standard output: Broken pipe"));
    assert_non_null(strstr(r.err, "\n1\n"));
}

/* A daemon that takes no more connections says so and closes: whether the request still fits before
 * that or not, the reason is shown. */
static void refused_at_the_door(void **state)
{
    (void)state;
    static const char text[] =
        "{\"v\":1,\"ok\":false,\"errno\":87,\"error\":\"you have too many\"}";
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/socket", harness_dir());
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 8), 0);
    pid_t pid = fork();
    for (int n = pid == 0 ? 0 : -1; n >= 0; n++) {
        int c = accept(fd, NULL, NULL);
        char drop[4096];
        send(c, text, sizeof(text) - 1, MSG_NOSIGNAL);
        if (n % 2 && recv(c, drop, 1, MSG_PEEK) < 0)
            _exit(1);
        close(c); /* with a request that was not read, or before there is one */
    }
    close(fd);
    for (int i = 0; i < 10; i++) {
        RUN(&r, "cede", "pause", "train");
        assert_int_equal(status_of(r.status), 1);
        assert_string_equal(r.err, "cede: train: you have too many\n");
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(a.sun_path);
}

/* USER/NAME: messages have the number, and answers about others' jobs say whose they are. */
static void jobs_of_others(void **state)
{
    (void)state;
    pid_t daemon = fake_daemon(
        (uid_t)-1, (const char *const[]){OK ",\"job\":{\"number\":12,\"name\":\"train\",\"class\":"
                                            "\"batch\",\"weight\":300,\"uid\":4000000000}}",
                                         NULL});
    RUN(&r, "cede", "set", "-w300", "root/train");
    char *asked = fake_daemon_end(daemon);
    assert_string_equal(asked, "{\"v\":1,\"op\":\"set\",\"target\":\"0/train\",\"weight\":300}\n");
    free(asked);
    assert_string_equal(r.out, "#12 train of user 4000000000: batch, weight 300\n");

    RUN(&r, "cede", "ps", "no such user/train");
    assert_int_equal(status_of(r.status), 2);
    assert_non_null(strstr(r.err, "there is no user no such user"));
    RUN(&r, "cede", "pause", "4000000000/a\xe2\x80\xae");
    assert_int_equal(status_of(r.status), 2);
    assert_non_null(strstr(r.err, "'4000000000/a??"));
    assert_null(strstr(r.err, "\xe2"));
}

/* What a verb sends, what it says to the answer, and the exit status. */
static void talk(void **state)
{
    (void)state;
    static const struct {
        const char *args[6], *replies[4];
        const char *asked;
        int status;
        const char *out, *err;
    } t[] = {
        {{"set", "4711", "-c", "batch", "-w", "300"},
         {JOB "}"},
         "{\"v\":1,\"op\":\"set\",\"target\":4711,\"class\":\"batch\",\"weight\":300}\n",
         0,
         "#12 train: batch, weight 300\n",
         ""},
        {{"set", "-w300", "train"},
         {JOB ",\"note\":\"no GPU context yet\"}"},
         "{\"v\":1,\"op\":\"set\",\"target\":\"train\",\"weight\":300}\n",
         0,
         "#12 train: batch, weight 300\n",
         "cede: #12 train: no GPU context yet\n"},
        {{"set", "-c", "none", "%12"},
         {JOB "}"},
         "{\"v\":1,\"op\":\"set\",\"target\":\"#12\",\"class\":\"none\"}\n",
         0,
         "#12 train: detached\n",
         ""},
        {{"pause", "#12"},
         {JOB "}"},
         "{\"v\":1,\"op\":\"pause\",\"target\":\"#12\"}\n",
         0,
         "#12 train: paused\n",
         ""},
        {{"resume", "4711"},
         {JOB "}"},
         "{\"v\":1,\"op\":\"resume\",\"target\":4711}\n",
         0,
         "#12 train: resumed\n",
         ""},
        /* The others are tried, and one failure is a failure. */
        {{"pause", "1", "2", "3"},
         {"{\"v\":1,\"ok\":false,\"errno\":3,\"error\":\"1: no such process\"}",
          "{\"v\":1,\"ok\":false,\"errno\":1,\"error\":\"not yours\"}", JOB "}"},
         "{\"v\":1,\"op\":\"pause\",\"target\":1}\n{\"v\":1,\"op\":\"pause\",\"target\":2}\n"
         "{\"v\":1,\"op\":\"pause\",\"target\":3}\n",
         1,
         "#12 train: paused\n",
         "cede: 1: no such process\ncede: 2: not yours\n"},
        {{"pause", "7"}, {"{"}, NULL, 1, "", "not an object in JSON"},
        {{"pause", "7"}, {"[]"}, NULL, 1, "", "not an object in JSON"},
        {{"pause", "7"}, {"{\"v\":2,\"ok\":true}"}, NULL, 1, "", "another version"},
        {{"pause", "7"}, {"{\"v\":1}"}, NULL, 1, "", "another version"},
        {{"pause", "7"}, {"{\"v\":1,\"ok\":false}"}, NULL, 1, "", "gave no reason"},
        {{"pause", "7"}, {NULL}, NULL, 1, "", "closed the connection"},
        {{"pause", "7"}, {OK "}"}, NULL, 0, "7: paused\n", ""},
        /* Waits until the job is where it is to be, or stays. */
        {{"swap-out", "4711"},
         {OK ",\"job\":" SWAP("swapping-out") "}", OK ",\"jobs\":[" SWAP("swapping-out") "]}",
          OK ",\"jobs\":[" SWAP("swapped") "," SWAP("running") "]}"},
         "{\"v\":1,\"op\":\"swap-out\",\"target\":4711}\n{\"v\":1,\"op\":\"ps\",\"after\":11}\n"
         "{\"v\":1,\"op\":\"ps\",\"after\":11}\n",
         0,
         "#12 train: swapped out, 1.5 GiB\n",
         ""},
        {{"swap-out", "1", "%12"},
         {"{\"v\":1,\"ok\":false,\"errno\":16,\"error\":\"another one moves\"}",
          OK ",\"job\":" SWAP("swapping-out") "}", OK ",\"jobs\":[" SWAP("running") "]}"},
         "{\"v\":1,\"op\":\"swap-out\",\"target\":1}\n"
         "{\"v\":1,\"op\":\"swap-out\",\"target\":\"#12\"}\n{\"v\":1,\"op\":\"ps\",\"after\":11}\n",
         1,
         "",
         "cede: 1: another one moves\ncede: %12: managed memory\n"},
        {{"swap-in", "train"},
         {OK ",\"job\":" SWAP("swapping-in") "}", OK ",\"jobs\":[" SWAP("running") "]}"},
         "{\"v\":1,\"op\":\"swap-in\",\"target\":\"train\"}\n{\"v\":1,\"op\":\"ps\",\"after\":11}"
         "\n",
         0,
         "#12 train: swapped in, 1.5 GiB\n",
         ""},
        {{"swap-in", "train"},
         {OK ",\"job\":" SWAP("swapping-in") "}", OK ",\"jobs\":[" SWAP("swapped") "]}"},
         NULL,
         1,
         "",
         "cede: train: managed memory\n"},
        {{"swap-in", "train"},
         {OK ",\"job\":" SWAP("swapping-in") "}", OK ",\"jobs\":[]}"},
         NULL,
         1,
         "",
         "cede: train: the job has ended\n"},
        {{"policy"},
         {OK ",\"policy\":\"shares\",\"policies\":[{\"name\":\"priority\",\"summary\":\"p\"},"
             "{\"name\":\"shares\",\"summary\":\"s\"}]}"},
         "{\"v\":1,\"op\":\"policy\"}\n",
         0,
         "  priority   p\n* shares     s\n",
         ""},
        {{"policy", "shares"},
         {OK ",\"policy\":\"shares\",\"policies\":[]}"},
         "{\"v\":1,\"op\":\"policy\",\"name\":\"shares\"}\n",
         0,
         "policy: shares\n",
         ""},
        {{"policy", "floor=0.25", "shares", "probe_us=7000"},
         {OK ",\"policy\":\"shares\",\"policies\":[],\"params\":{\"floor\":0.25}}"},
         "{\"v\":1,\"op\":\"policy\",\"name\":\"shares\","
         "\"params\":{\"probe_us\":7000,\"floor\":0.25}}\n",
         0,
         "policy: shares\n",
         ""},
        {{"policy", "floor=0.9"},
         {"{\"v\":1,\"ok\":false,\"errno\":22,\"error\":\"floor would be 0.9\"}"},
         NULL,
         2,
         "",
         "cede: floor would be 0.9\n"},
        {{"policy", "none"},
         {"{\"v\":1,\"ok\":false,\"errno\":22,\"error\":\"no such policy\"}"},
         NULL,
         2,
         "",
         "cede: no such policy\n"},
        {{"ps"},
         {OK ",\"jobs\":[],\"more\":false}"},
         "{\"v\":1,\"op\":\"ps\",\"brief\":true}\n",
         0,
         "no jobs\n",
         ""},
        {{"ps"}, {OK "}"}, NULL, 0, "no jobs\n", ""},
        {{"ps"},
         {OK ",\"jobs\":[{\"number\":12,\"pid\":7,\"error\":\"why\",\"swap_error\":\"why\"}]}"},
         NULL,
         0,
         "JOB  PID  CLASS  WEIGHT  STATE  GPU  LEVEL  SLICE  BUSY  MEM  NAME\n"
         "#12    7  -           -  -      -    -          -     -    -  ?\n",
         "cede: #12: not swapped: why\n"},
    };
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        const char *argv[8] = {"cede"};
        memcpy(argv + 1, t[i].args, sizeof(t[i].args));
        pid_t daemon = fake_daemon((uid_t)-1, t[i].replies);
        run_program(&r, NULL, argv);
        char *asked = fake_daemon_end(daemon);
        if (t[i].asked)
            assert_string_equal(asked, t[i].asked);
        free(asked);
        assert_string_equal(r.out, t[i].out);
        if (!strstr(r.err, t[i].err) || (!*t[i].err && *r.err))
            fail_msg("%s: said '%s', not '%s'", argv[1], r.err, t[i].err);
        assert_int_equal(status_of(r.status), t[i].status);
    }
}

/* Jobs are shown though nobody can tell who else uses a GPU: there is none. */
static void all_without_a_gpu(void **state)
{
    (void)state;
    if (access("/dev/nvidiactl", F_OK) == 0 || access("/dev/kfd", F_OK) == 0)
        skip();
    setenv("CEDE_SOFT_SOCKET", "/nonexistent/s", 1);
    RUN(&r, "cede", "ps", "-a");
    unsetenv("CEDE_SOFT_SOCKET");
    assert_int_equal(status_of(r.status), 1);
    assert_string_equal(r.out, "no jobs\n");
    assert_non_null(strstr(r.err, "cannot list the GPU processes that belong to no job: no GPU"));
}

static void too_long_an_answer(void **state)
{
    (void)state;
    char *big = malloc(68000);
    assert_non_null(big);
    memset(big, ' ', 68000);
    memcpy(big, OK "}", strlen(OK "}"));
    big[67999] = '\0';
    pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){big, NULL});
    RUN(&r, "cede", "pause", "7");
    free(fake_daemon_end(daemon));
    free(big);
    assert_int_equal(status_of(r.status), 1);
    assert_non_null(strstr(r.err, "more than 65536"));
}

/* A socket that somebody else put there must not be told anything. */
static void stranger(void **state)
{
    (void)state;
    if (getuid() != 0)
        skip();
    pid_t daemon = fake_daemon(65534, (const char *const[]){JOB "}", NULL});
    RUN(&r, "cede", "pause", "7");
    char *asked = fake_daemon_end(daemon);
    assert_string_equal(asked, "");
    free(asked);
    assert_int_equal(status_of(r.status), 1);
    assert_non_null(strstr(r.err, "not trusting the daemon"));
}

#define PAGE1                                                                                      \
    OK ",\"more\":true,\"policy\":\"priority\",\"jobs\":["                                         \
       "{\"number\":3,\"name\":\"serve\",\"class\":\"latency\",\"weight\":100,\"pid\":10,"         \
       "\"state\":\"running\",\"gpus\":[0],\"levels\":[3],\"timeslice_us\":1000000,\"busy\":0.25," \
       "\"memory_bytes\":13207024435},"                                                            \
       "{\"number\":4,\"name\":\"a\\u001b[31m\",\"class\":\"normal\",\"weight\":1,\"pid\":11,"     \
       "\"state\":\"starting\",\"gpus\":[],\"timeslice_us\":0,\"busy\":null,"                      \
       "\"memory_bytes\":0}]}"
#define PAGE2                                                                                      \
    OK ",\"more\":false,\"policy\":\"priority\",\"jobs\":["                                        \
       "{\"number\":120,\"name\":\"train\",\"class\":\"batch\",\"weight\":10000,\"pid\":4194304,"  \
       "\"state\":\"waiting\",\"gpus\":[0,1,7],\"levels\":[3,3,1],\"timeslice_us\":1,\"busy\":1."  \
       "5,"                                                                                        \
       "\"memory_bytes\":2048,\"error\":\"the control answered 0x1b\"}]}"

static void table(void **state)
{
    (void)state;
    pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){PAGE1, PAGE2, NULL});
    RUN(&r, "cede", "ps");
    char *asked = fake_daemon_end(daemon);
    assert_string_equal(asked, "{\"v\":1,\"op\":\"ps\",\"brief\":true}\n"
                               "{\"v\":1,\"op\":\"ps\",\"after\":4,\"brief\":true}\n");
    free(asked);
    assert_int_equal(status_of(r.status), 0);
    assert_string_equal(
        r.out,
        " JOB      PID  CLASS    WEIGHT  STATE     GPU    LEVEL          SLICE  BUSY   MEM  NAME\n"
        "  #3       10  latency     100  running   0      hardware          1s   25%   12G  serve\n"
        "  #4       11  normal        1  starting  -      -                  -     -     -  "
        "a?[31m\n"
        "#120  4194304  batch     10000  waiting   0,1,7  hardware,gate    1us   50%  2.0K  "
        "train\n");
    assert_string_equal(r.err, "cede: #120: the control answered 0x1b\n");

    /* A column more when somebody has a budget. */
    daemon = fake_daemon((uid_t)-1,
                         (const char *const[]){
                             OK ",\"more\":false,\"policy\":\"priority\",\"jobs\":["
                                "{\"number\":3,\"name\":\"serve\",\"class\":\"latency\",\"pid\":10,"
                                "\"weight\":100,\"budget_us\":2500,\"state\":\"running\"},"
                                "{\"number\":4,\"name\":\"train\",\"class\":\"batch\",\"pid\":11,"
                                "\"weight\":100,\"budget_us\":0,\"state\":\"running\"}]}",
                             NULL});
    RUN(&r, "cede", "ps");
    free(fake_daemon_end(daemon));
    assert_string_equal(
        r.out, "JOB  PID  CLASS    WEIGHT  BUDGET  STATE    GPU  LEVEL  SLICE  BUSY  MEM  NAME\n"
               " #3   10  latency     100   2.5ms  running  -    -          -     -    -  serve\n"
               " #4   11  batch       100       -  running  -    -          -     -    -  train\n");

    /* And one when jobs are another user's. */
    daemon = fake_daemon((uid_t)-1,
                         (const char *const[]){
                             OK ",\"more\":false,\"policy\":\"priority\",\"jobs\":["
                                "{\"number\":3,\"name\":\"serve\",\"class\":\"latency\",\"pid\":10,"
                                "\"weight\":100,\"uid\":4000000000,\"state\":\"running\"},"
                                "{\"number\":4,\"name\":\"serve\",\"class\":\"batch\",\"pid\":11,"
                                "\"weight\":100,\"uid\":4000000001,\"state\":\"running\"}]}",
                             NULL});
    RUN(&r, "cede", "ps", "4000000000/serve");
    free(fake_daemon_end(daemon));
    assert_string_equal(
        r.out,
        "JOB  PID  CLASS    WEIGHT  STATE    GPU  LEVEL  SLICE  BUSY  MEM  USER        NAME\n"
        " #3   10  latency     100  running  -    -          -     -    -  4000000000  serve\n");
}

static void chosen(void **state)
{
    (void)state;
    pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){PAGE1, PAGE2, NULL});
    RUN(&r, "cede", "ps", "--json", "%120", "serve", "serve", "nosuch");
    free(fake_daemon_end(daemon));
    assert_int_equal(status_of(r.status), 1);
    assert_string_equal(r.err, "cede: nosuch: no such job; `cede ps` lists the jobs\n");
    json_t *o = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL);
    const json_t *jobs = json_object_get(o, "jobs");
    assert_int_equal(json_array_size(jobs), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(jobs, 0), "name")),
                        "serve");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(jobs, 1), "number")), 120);
    assert_true(json_is_true(json_object_get(o, "daemon")));
    assert_string_equal(json_string_value(json_object_get(o, "policy")), "priority");
    assert_null(json_object_get(o, "ok"));
    json_decref(o);
}

/* The daemon is asked whose process that is: the number may mean another one to it. */
static void chosen_by_pid(void **state)
{
    (void)state;
    static const char page[] =
        OK ",\"more\":false,\"jobs\":[{\"number\":1,\"name\":\"x\",\"pid\":1},"
           "{\"number\":2,\"name\":\"y\",\"pid\":77}]}";
    pid_t daemon =
        fake_daemon((uid_t)-1, (const char *const[]){page, OK ",\"jobs\":[],\"job_of\":2}", NULL});
    RUN(&r, "cede", "ps", "1");
    char *asked = fake_daemon_end(daemon);
    assert_int_equal(status_of(r.status), 0);
    assert_non_null(strstr(r.out, "#2 "));
    assert_null(strstr(r.out, "#1 "));
    assert_non_null(strstr(asked, "\"pid\":1"));
    free(asked);
    daemon = fake_daemon((uid_t)-1, (const char *const[]){page, OK ",\"jobs\":[]}", NULL});
    RUN(&r, "cede", "ps", "77");
    free(fake_daemon_end(daemon));
    assert_int_equal(status_of(r.status), 1);
    assert_string_equal(r.err, "cede: 77: no such job; `cede ps` lists the jobs\n");
}

/* "more" for ever, with the same jobs. */
static void endless_pages(void **state)
{
    (void)state;
    pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){PAGE1, NULL});
    RUN(&r, "cede", "ps");
    char *asked = fake_daemon_end(daemon);
    assert_int_equal(status_of(r.status), 0);
    assert_string_equal(asked, "{\"v\":1,\"op\":\"ps\",\"brief\":true}\n"
                               "{\"v\":1,\"op\":\"ps\",\"after\":4,\"brief\":true}\n");
    free(asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses),
        cmocka_unit_test(acct_statuses),
        cmocka_unit_test(output_that_cannot_be_written),
        cmocka_unit_test(talk),
        cmocka_unit_test(jobs_of_others),
        cmocka_unit_test(refused_at_the_door),
        cmocka_unit_test(all_without_a_gpu),
        cmocka_unit_test(too_long_an_answer),
        cmocka_unit_test(stranger),
        cmocka_unit_test(table),
        cmocka_unit_test(chosen),
        cmocka_unit_test(chosen_by_pid),
        cmocka_unit_test(endless_pages),
    };
    return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
