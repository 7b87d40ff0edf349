/* The verbs as a person meets them: exit statuses, messages, tables, what they ask the daemon for
 * and what they make of its answers. No GPU and no real daemon. */
#include <jansson.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "harness.h"

static struct result r;

#define SWAP(state)                                                                                \
    "{'number':12,'name':'train','state':'" state                                                  \
    "','swap_error':'managed memory','swapped_bytes':1610612736}"
#define MOVES(state) OK ",'job':" SWAP(state) "}"
#define SHOWS(state) OK ",'jobs':[" SWAP(state) "]}"
#define ASKS         OP("ps") ",'after':11}\n"
#define PS           OP("ps") ",'brief':true}\n"

/* In each command one blank is between two words, and so two are around an empty one. */
struct status_row {
    const char *command;
    int status;
    const char *out, *err; /* parts that must occur; "" nothing at all */
};

static void check_status(const struct status_row *t)
{
    char *words = strdup(t->command), *rest = words;
    const char *argv[10] = {"cede"};
    for (size_t n = 1; *words && rest; n++)
        argv[n] = strsep(&rest, " ");
    run_says(&r, t->status, t->out, t->err, argv);
    free(words);
}

TEST(statuses)
{
    static const struct status_row t[] = {
        {"--help", 0, "usage: cede VERB", ""},
        {"-h", 0, "usage: cede VERB", ""},
        {"help", 0, "policy", ""},
        {"--version", 0, "cede 0", ""},
        {"version", 0, "cede 0", ""},
        {"help run", 0, "usage: cede run", ""},
        {"help help", 0, "usage: cede VERB", ""},
        {"--help", 0, "\nJobs\n  run ", ""},
        {"--help", 0, "\nMemory\n  swap ", ""},
        {"--help", 0, "\nLook\n  ps ", ""},
        {"--help", 0, "\nMachine\n  status ", ""},
        {"--help", 0, "\nTry\n  demo ", ""},
        {"help swap", 0, "usage: cede swap out", ""},
        {"swap out --help", 0, "usage: cede swap out", ""},
        {"help detach", 0, "usage: cede detach", ""},
        {"run --help", 0, "usage: cede run", ""},
        {"yield --memory 4711", 1, "", "start ceded"},
        {"acquire", 1, "", "start ceded"},
        {"ps", 0, "no jobs\n", "no daemon"},
        {"ps --json", 0, "\"jobs\": []", "no daemon"},
        {"ps train", 1, "", "cede: train: no such job"},
        {"policy", 0, "priority", "no daemon"},
        {"softgpu --socket /tmp/no-such-directory-of-cede/s", 1, "",
         "cannot open the directory /tmp/no-such-directory-of-cede: No such"},
        {"policy shares", 1, "", "no daemon"},
        {"policy floor=0.1", 1, "", "no daemon"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        check_status(&t[i]);
}

/* What is no command says why, and ends with status 2. */
TEST(usage)
{
    static const char *const t[][2] = {
        {"", "usage: cede VERB"},
        {"help nonsense", "cede: unknown command 'nonsense'"},
        {"nonsense", "cede: unknown command 'nonsense'"},
        {" ", "cede: unknown command ''"},
        {"puase", "unknown command 'puase': did you mean `cede pause`?"},
        {"pas", "unknown command 'pas': did you mean `cede ps`?"},
        {"ls", "unknown command 'ls': did you mean `cede ps`?"},
        {"describe", "unknown command 'describe': did you mean `cede why`?"},
        {"get", "unknown command 'get': did you mean `cede ps`?"},
        {"--verison", "unknown option '--verison': did you mean `cede --version`?"},
        {"--hlep", "unknown option '--hlep': did you mean `cede --help`?"},
        {"-v", "unknown option '-v': did you mean `cede --version`?"},
        {"--status", "unknown option '--status': did you mean `cede status`?"},
        {"-x", "unknown option '-x'\ntry `cede --help`"},
        {"xyzzy", "unknown command 'xyzzy'\ntry `cede --help`"},
        {"run", "cede: run: no command"},
        {"run --", "cede: run: no command"},
        {"run -c", "cede: option requires an argument"},
        {"run -c best true", "class: 'best'"},
        {"run -c none true", "class: 'none'"},
        {"run -c latency --budget 2 true", "budget: '2'"},
        {"run -c latency --budget -1ms true", "budget: '"},
        {"run -c latency --budget 1.1s true", "up to 1s"},
        {"run -c batch --budget 2ms true", "class latency too"},
        {"set 4711 -c batch --budget 2ms", "class latency too"},
        {"set 4711 -c none --budget 2ms", "no budget"},
        {"set 4711 -c none --deadline 3s", "no deadline"},
        {"set 4711 --deadline 3", "deadline: '3'"},
        {"set 4711 --deadline 100ms", "from 200ms to 3600s"},
        {"set 4711 --deadline 2h", "deadline: '"},
        {"set 4711 --laxity 1s", "a laxity is a part of a deadline"},
        {"set 4711 --deadline 1s --laxity -1s", "laxity: '"},
        {"run --deadline 1s --laxity 1s true", "shorter"},
        {"run -c latency --deadline 3s true", "latency job"},
        {"run -c latency --memory 40X true", "memory: '40X'"},
        {"run -c latency --memory 0 true", "memory: '0'"},
        {"run -c latency --memory  true", "memory: ''"},
        {"run -c latency --memory 1G@ true", "memory: '1G@'"},
        {"run -c latency --memory 1G@16 true", "memory: '1G@16'"},
        {"run -c latency --memory 99999T true", "memory: '"},
        {"run --memory 40 true", "memory: 40 is bytes: give a unit, such as 40G or 40M"},
        {"run --memory 40@1 true", "such as 40G or 40M"},
        {"run --wait 5s true", "--wait is for GPU memory"},
        {"run -c latency --wait 5 true", "wait: '5' is not a time"},
        {"run -w 0 true", "weight: '0'"},
        {"run -w 10001 true", "weight: '10001'"},
        {"run -w 1x true", "weight: '1x'"},
        {"run -w -5 true", "weight: '-5'"},
        {"run -n 12 true", "name: '12'"},
        {"run -n #12 true", "name: '#12'"},
        {"run -n %12 true", "name: '%12'"},
        {"run -n  true", "name: ''"},
        {"run --gpu-device x true", "unknown device 'x'"},
        {"run --nonsense", "cede: unrecognized option"},
        {"set", "cede: set: no target"},
        {"set -c batch", "cede: set: no target"},
        {"set 4711", "nothing to set"},
        {"set 4711 -c x", "class: 'x' is not latency, normal or batch, or none"},
        {"daemon --x", "ceded: unrecognized option '--x'"},
        {"softgpu --memory 0", "cede-softgpu: --memory takes a size"},
        {"set 4711 -w 0", "weight: '"},
        {"set 4711 -c none -w2", "takes no weight"},
        {"set 0 -c batch", "cede: '0'"},
        {"set #x -c batch", "cede: '#x'"},
        {"set  -c batch", "cede: ''"},
        {"set 4711 -q", "cede: invalid option"},
        {"pause", "cede: pause: no target given; a shell takes #12 for a comment: write %12"},
        {"set train batch", "'batch' is a class: type `cede set train -c batch`"},
        {"detach", "cede: detach: no target"},
        {"metrics --pids", "cede: metrics: --pids needs --per-job"},
        {"swap", "cede: swap: out or in?"},
        {"swap train", "cede: swap: out or in? as in `cede swap out train`"},
        {"swap outt train", "cede: swap: out or in? as in `cede swap out train`"},
        {"set 4711 --name 12", "name: '12' cannot be one"},
        {"set 1 2 --name x", "--name takes one target"},
        {"set 4711 -c none --name x", "takes no name"},
        {"pause -c batch", "cede: invalid option"},
        {"resume", "cede: resume: no target"},
        {"swap out", "cede: swap out: no target"},
        {"swap out -x", "cede: invalid option"},
        {"swap out #", "cede: '#'"},
        {"swap in", "cede: swap in: no target"},
        {"acquire --timeout soon", "timeout: 'soon' is not a time"},
        {"ps -x", "cede: invalid option"},
        {"ps -a train", "-a takes no target"},
        {"ps #", "cede: '#'"},
        {"policy a b", "one name at most"},
        {"policy ", "bad policy name"},
        {"policy x=1", "no parameter x; there are"},
        {"policy =1", "no parameter"},
        {"policy probe_us=", "probe_us: '' is not a number: 1000 to rotation_us"},
        {"policy probe_us=2ms", "probe_us: '2ms'"},
        {"policy probe_us=-1", "probe_us: '-1'"},
        {"policy probe_us=1.5", "probe_us: a whole number"},
        {"demo --seconds 9", "bad --seconds '9': a number from 10 to 600"},
        {"demo --seconds 601", "bad --seconds"},
        {"demo --seconds x", "bad --seconds"},
        {"demo --rate 0", "bad --rate"},
        {"demo --batch-kernel-us 0", "bad --batch-kernel-us"},
        {"demo --device tpu", "unknown device 'tpu'"},
        {"demo now", "unexpected argument 'now'"},
        {"demo --nonsense", "unrecognized option"},
        {"doctor --device tpu", "unknown device 'tpu'"},
        {"doctor now", "unexpected argument 'now'"},
        {"doctor --nonsense", "unrecognized option"},
        {"acct train", "acct: unexpected argument 'train'"},
        {"acct -S never", "'never' is no time: YYYY-MM-DD"},
        {"acct -S now -E now-1day", "the end is not after the start"},
        {"acct -u no-such-user", "there is no user 'no-such-user'"},
        {"acct -j train", "'train' is no job's number"},
        {"acct --class best", "'best' is no class"},
        {"acct --sum-by job", "none of user, name, class"},
        {"acct --format JobID,,", "there is no field ''"},
        {"acct --format Cost", "there is no field 'Cost'; there are JobID"},
        {"acct --format JobID%0", "JobID: a width is 1 to"},
        {"acct --format JobID%99999999999", "JobID: a width is 1 to"},
        {"acct --sum-by user --format Unit", "no field 'Unit' of such sums"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++)
        check_status(&(struct status_row){t[i][0], 2, "", t[i][1]});
}

TEST(output_that_cannot_be_written)
{
    SAYS(&r, 1, "", "cede: cannot write standard output: No space left", "sh", "-c",
         "\"$CEDE_EXE\" policy >/dev/full");
    SAYS(&r, 1, "", "cede: cannot write standard output", "sh", "-c", "\"$CEDE_EXE\" policy >&-");
    /* The reader has gone before anything is written. */
    RUN(&r, "sh", "-c", "{ sleep 0.2; \"$CEDE_EXE\" ps; echo $? >&2; } | true");
    assert_null(strstr(r.err, "standard output"));
    assert_non_null(strstr(r.err, "141\n"));
}

/* A daemon that takes no more connections says so and closes: whether the request still fits before
 * that or not, the reason is shown. */
TEST(refused_at_the_door)
{
    static const char text[] = "{\"v\":1,\"ok\":false,\"errno\":87,\"error\":\"too many\"}";
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
    for (int i = 0; i < 10; i++)
        SAYS(&r, 1, NULL, "cede: train: too many\n", "cede", "pause", "train");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(a.sun_path);
}

/* USER/NAME that is none, or would steer the terminal. */
TEST(jobs_of_others)
{
    SAYS(&r, 2, "", "there is no user no such user", "cede", "ps", "no such user/train");
    SAYS(&r, 2, "", "'4000000000/a??", "cede", "pause", "4000000000/a\xe2\x80\xae");
    assert_null(strstr(r.err, "\xe2"));
}

#define JOBS   OK ",'more':false,'policy':'priority','jobs':["
#define RUNS   "'weight':100,'state':'running'"
#define SERVE  "{'number':3,'name':'serve','class':'latency','pid':10," RUNS
#define TRAINS "{'number':4,'name':'train','class':'batch','pid':11," RUNS
#define PAGE1                                                                                      \
    OK ",'more':true,'policy':'priority','jobs':[" SERVE                                           \
       ",'gpus':[0],'levels':[3],'timeslice_us':1000000,'busy':0.25,'memory_bytes':13207024435},"  \
       "{'number':4,'name':'a\\u001b[31m','class':'normal','weight':1,'pid':11,"                   \
       "'state':'starting','gpus':[],'timeslice_us':0,'busy':null,'memory_bytes':0}]}"
#define PAGE2                                                                                      \
    JOBS "{'number':120,'name':'train','class':'batch','weight':10000,'pid':4194304,"              \
         "'state':'waiting','gpus':[0,1,7],'levels':[3,3,1],'timeslice_us':1,'busy':1.5,"          \
         "'memory_bytes':2048,'error':'the control answered 0x1b'}]}"
#define AWAY                                                                                       \
    OK ",'job':{'number':12,'name':'train','class':'batch','state':'swapped',"                     \
       "'swapped_bytes':1610612736,'swap_by_user':"
#define BUSY NO(16) "'cannot change job #12: job #7 (s) is starting'}"
#define TWO  OK ",'jobs':[{'number':1,'name':'x','pid':1},{'number':2,'name':'y','pid':77}]}"

#define SHARES OK ",'policy':'shares','policies':["

/* clang-format off */
static const struct talk talks[] = {
    {"set 4711 -c batch -w 300", {TRAIN "}"}, 0, "#12 train: batch, weight 300\n", "",
     OP("set") ",'target':4711,'class':'batch','weight':300}\n"},
    {"set -w300 train", {TRAIN ",'note':'no GPU context yet'}"}, 0,
     "#12 train: batch, weight 300\n", "cede: #12 train: no GPU context yet\n",
     OP("set") ",'target':'train','weight':300}\n"},
    {"set 4711 -n train", {TRAIN "}"}, 0, "#12 train: batch, weight 300\n", "",
     OP("set") ",'target':4711,'rename':'train'}\n"},
    /* The job is set, and a control of its GPU has failed. */
    {"set -w300 train", {TRAIN ",'failed':true,'note':'cannot write the journal: left running'}"}, 1,
     "#12 train: batch, weight 300\n", "cede: #12 train: cannot write the journal: left running\n",
     NULL},
    {"detach %12", {TRAIN "}"}, 0, "#12 train: detached\n", "",
     OP("set") ",'target':'#12','class':'none'}\n"},
    {"set -c none %12", {TRAIN "}"}, 0, "#12 train: detached\n", "",
     OP("set") ",'target':'#12','class':'none'}\n"},
    /* Messages have the number, and answers about others' jobs say whose they are. */
    /* Which group that is. */
    {"pause 7", {"{'v':1,'ok':false,'errno':1,'error':'only root and the administrators\\u0027 group may','admin_gid':0}"},
     1, "", "cede: 7: only root and group root may\n", NULL},
    {"pause 7", {"{'v':1,'ok':false,'errno':1,'error':'root or the administrators\\u0027 group','admin_gid':null}"},
     1, "", "group (to name it, write `group = cede` into [daemon] of /etc/cede/cede.conf)\n", NULL},
    {"set -w300 root/train", {OK ",'job':{'number':12,'name':'train','class':'batch','weight':300,"
                                 "'uid':4000000000}}"}, 0,
     "#12 train of user 4000000000: batch, weight 300\n", "",
     OP("set") ",'target':'0/train','weight':300}\n"},
    {"pause #12", {TRAIN "}"}, 0, "#12 train: paused\n", "", OP("pause") ",'target':'#12'}\n"},
    {"resume 4711", {TRAIN "}"}, 0, "#12 train: resumed\n", "", OP("resume") ",'target':4711}\n"},
    {"resume 4711", {AWAY "false}}"}, 0, "#12 train: resumed\n",
     "cede: #12 train: its memory is in host memory for a latency job: it comes back when there is room, or by `cede "
     "swap in`\n", NULL},
    {"acquire train", {AWAY "true},'vain':true,'note':'it had yielded nothing'}"}, 0, "",
     "cede: #12 train: it had yielded nothing\n"
     "cede: #12 train: its memory was swapped out by hand: `cede swap in` brings it back\n", NULL},
    {"yield --memory train", {BUSY, BUSY, AWAY "true,'yielded':{'memory':true}}}"}, 0,
     "#12 train: yielded, batch, 1.5 GiB in host memory\n",
     "cede: retrying for 60 s: cannot change job #12: job #7 (s) is starting\n", NULL},
    /* The others are tried, and one failure is a failure. */
    {"pause 1 2 3", {NO(3) "'1: no such process'}", NO(1) "'not yours'}", TRAIN "}"}, 1,
     "#12 train: paused\n", "cede: 1: no such process\ncede: 2: not yours\n",
     OP("pause") ",'target':1}\n" OP("pause") ",'target':2}\n" OP("pause") ",'target':3}\n"},
    {"pause 7", {"{"}, 1, "", "not an object in JSON", NULL},
    {"pause 7", {"[]"}, 1, "", "not an object in JSON", NULL},
    {"pause 7", {"{'v':2,'ok':true}"}, 1, "", "another version", NULL},
    {"pause 7", {"{'v':1}"}, 1, "", "another version", NULL},
    {"pause 7", {"{'v':1,'ok':false}"}, 1, "", "gave no reason", NULL},
    {"pause 7", {NULL}, 1, "", "closed the connection", NULL},
    {"pause 7", {OK "}"}, 0, "7: paused\n", "", NULL},
    /* A socket that somebody else put there must not be told anything. */
    {"DAEMON_UID=65534 pause 7", {TRAIN "}"}, 1, "", "not trusting the daemon", ""},
    /* Waits until the job is where it is to be, or stays. */
    {"swap out 4711", {MOVES("swapping-out"), SHOWS("swapping-out"), SHOWS("swapped")}, 0,
     "#12 train: swapped out, 1.5 GiB\n", "", OP("swap-out") ",'target':4711}\n" ASKS ASKS},
    {"swap out 1 %12", {NO(16) "'another one moves'}", MOVES("swapping-out"), SHOWS("running")}, 1,
     "", "cede: 1: another one moves\ncede: %12: managed memory\n",
     OP("swap-out") ",'target':1}\n" OP("swap-out") ",'target':'#12'}\n" ASKS},
    {"swap in train", {MOVES("swapping-in"), SHOWS("running")}, 0,
     "#12 train: swapped in, 1.5 GiB\n", "", OP("swap-in") ",'target':'train'}\n" ASKS},
    {"swap-in train", {MOVES("swapping-in"), SHOWS("swapped")}, 1,
     "", "cede: train: managed memory\n", NULL},
    {"swap-in train", {MOVES("swapping-in"), OK ",'jobs':[]}"}, 1,
     "", "cede: train: the job has ended\n", NULL},
    {"policy", {SHARES "{'name':'priority','summary':'p'},{'name':'shares','summary':'s'}]}"}, 0,
     "  priority   p\n* shares     s\n", "", OP("policy") "}\n"},
    {"policy shares", {SHARES "]}"}, 0,
     "policy: shares\n", "", OP("policy") ",'name':'shares'}\n"},
    {"policy floor=0.25 shares probe_us=7000", {SHARES "],'params':{'floor':0.25}}"}, 0,
     "policy: shares\n", "",
     OP("policy") ",'name':'shares','params':{'probe_us':7000,'floor':0.25}}\n"},
    {"policy floor=0.9", {NO(22) "'floor would be 0.9'}"}, 2, "", "cede: floor would be 0.9", NULL},
    {"policy none", {NO(22) "'no such policy'}"}, 2, "", "cede: no such policy\n", NULL},
    {"ps", {OK ",'jobs':[],'more':false}"}, 0, "no jobs\n", "", PS},
    {"ps", {OK "}"}, 0, "no jobs\n", "", NULL},
    {"ps", {OK ",'jobs':[{'number':12,'pid':7,'error':'why','swap_error':'why'}]}"}, 0,
     "JOB  PID  CLASS  WEIGHT  STATE  GPU  LEVEL  SLICE  BUSY  MEM  NAME\n"
     "#12    7  -           -  -      -    -          -     -    -  ?\n",
     "cede: #12: not swapped: why\n", NULL},
    {"ps", {PAGE1, PAGE2}, 0,
     " JOB      PID  CLASS    WEIGHT  STATE     GPU    LEVEL          SLICE  BUSY   MEM  NAME\n"
     "  #3       10  latency     100  running   0      hardware          1s   25%   12G  serve\n"
     "  #4       11  normal        1  starting  -      -                  -     -     -  a?[31m\n"
     "#120  4194304  batch     10000  waiting   0,1,7  hardware,gate    1us   50%  2.0K  train\n",
     "cede: #120: the control answered 0x1b\n", PS OP("ps") ",'after':4,'brief':true}\n"},
    /* "more" for ever, with the same jobs. */
    {"ps --json serve", {PAGE1}, 0, NULL, "", OP("ps") "}\n" OP("ps") ",'after':4}\n"},
    /* A column more when somebody has a budget, and one when jobs are another user's. */
    {"ps", {JOBS SERVE ",'budget_us':2500}," TRAINS ",'budget_us':0}]}"}, 0,
     "JOB  PID  CLASS    WEIGHT  BUDGET  STATE    GPU  LEVEL  SLICE  BUSY  MEM  NAME\n"
     " #3   10  latency     100   2.5ms  running  -    -          -     -    -  serve\n"
     " #4   11  batch       100       -  running  -    -          -     -    -  train\n", "", NULL},
    {"ps 4000000000/serve", {JOBS SERVE ",'uid':4000000000}," TRAINS ",'uid':4000000001}]}"}, 0,
     "JOB  PID  CLASS    WEIGHT  STATE    GPU  LEVEL  SLICE  BUSY  MEM  USER        NAME\n"
     " #3   10  latency     100  running  -    -          -     -    -  4000000000  serve\n", "",
     NULL},
    /* The daemon is asked whose process that is: the number may mean another one to it. */
    {"ps 1", {TWO, OK ",'jobs':[],'job_of':2}"}, 0,
     "JOB  PID  CLASS  WEIGHT  STATE  GPU  LEVEL  SLICE  BUSY  MEM  NAME\n"
     " #2   77  -           -  -      -    -          -     -    -  y\n", "", "'pid':1"},
    {"ps 77", {TWO, OK ",'jobs':[]}"}, 1,
     "", "cede: 77: no such job; `cede ps` lists the jobs\n", NULL},
};
/* clang-format on */

/* What a verb sends, what it says to the answer, and the exit status. */
TEST_TALKS(talks)

/* Jobs are shown though nobody can tell who else uses a GPU: there is none. */
TEST(all_without_a_gpu)
{
    if (access("/dev/nvidiactl", F_OK) == 0 || access("/dev/kfd", F_OK) == 0)
        skip();
    setenv("CEDE_SOFT_SOCKET", "/nonexistent/s", 1);
    SAYS(&r, 1, "no jobs\n", "cannot list the GPU processes that belong to no job: no GPU", "cede",
         "ps", "-a");
    unsetenv("CEDE_SOFT_SOCKET");
}

TEST(too_long_an_answer)
{
    static char big[68000] = OK "}";
    memset(big + strlen(big), ' ', sizeof(big) - 1 - strlen(big));
    pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){big, NULL});
    SAYS(&r, 1, NULL, "more than 65536", "cede", "pause", "7");
    free(fake_daemon_end(daemon));
}

TEST(chosen)
{
    pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){PAGE1, PAGE2, NULL});
    RUN(&r, "cede", "ps", "--json", "%120", "serve", "serve", "nosuch");
    free(fake_daemon_end(daemon));
    assert_int_equal(status_of(r.status), 1);
    assert_string_equal(r.err, "cede: nosuch: no such job; `cede ps` lists the jobs\n");
    const char *name, *policy;
    int number, daemon_is;
    json_t *o = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(json_unpack(o, "{s:[{s:s}, {s:i}!], s:b, s:s}", "jobs", "name", &name,
                                 "number", &number, "daemon", &daemon_is, "policy", &policy),
                     0);
    assert_string_equal(name, "serve");
    assert_int_equal(number, 120);
    assert_true(daemon_is);
    assert_string_equal(policy, "priority");
    assert_null(json_object_get(o, "ok"));
    json_decref(o);
}
