/* What the tables of cede ps and cede why say. The daemon is a stand-in. */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define PAGE(gpus, jobs) OK ",'more':false,'policy':'laxity','gpus':[" gpus "],'jobs':[" jobs "]}"
#define JOB(number, name, class)                                                                   \
    "{'number':" #number ",'name':'" name "','class':'" class "','pid':1" #number ",'weight':100,"
#define BATCH(number, name) JOB(number, name, "batch") "'state':'running',"

/* A job that says why it runs, on GPU 0. */
#define WHY(number, name, class, why)                                                              \
    JOB(number, name, class)                                                                       \
    "'state':'running','gpus':[0],'counts':{'known_s':5,'gpus':[]},'speed':0.97,"                  \
    "'why':[{'gpu':0,'text':'t'" why "}]}"

/* clang-format off */
static const char jobs[] = PAGE("{'index':0,'caps':['pool']}",
    WHY(1, "serve", "latency",
        ",'slice_us':1000000,'throttled':false,"
        "'measured':{'launch_bound':true,'busy':0.19,'bursts_hz':2080.4,'speed':0.97}") ","
    WHY(2, "web", "latency",
        ",'throttled':true,'measured':{'launch_bound':false,'bursts_hz':100}") ","
    WHY(3, "train", "batch", ",'reason':'turn','slice_us':1400,'throttled':false") ","
    WHY(4, "light", "batch", ",'reason':'beside','slice_us':350,'throttled':false") ","
    WHY(5, "next", "batch", ",'reason':'next','slice_us':1"));

#define ON_GPU "  GPU 0: t\n"
#define COUNTS "  so far, in 5 s: nothing on a GPU\n"
static const char reasons[] =
    "#1 (serve), latency: running\n" ON_GPU
    "    launch-bound: works 19% of the GPU, in 2080 bursts per second, with gaps shorter than a "
    "switch\n"
    "    keeps 97% of its speed alone\n"
    "    lower jobs have slices of 350us to 1.4ms\n"
    "    in a pool it would share the GPU in space: start it with --pool (docs/space.md)\n" COUNTS
    "#2 (web), latency: running\n" ON_GPU "    with gaps long enough for a switch\n"
    "    lower jobs are throttled: suspended for some seconds at a time\n" COUNTS
    "#3 (train), batch: running\n" ON_GPU
    "    its slices are 1.4ms, as there is a latency job\n" COUNTS
    "#4 (light), batch: running\n" ON_GPU
    "    its slices are 350us, as there is a latency job\n" COUNTS
    "#5 (next), batch: running\n" ON_GPU COUNTS;

static const char screen[] =
    OK ",'version':'9','policy':'laxity','pid':7,'gpus':[{'index':0,'name':'H200',"
       "'level_name':'hardware','driver':'580.1','off':['suspend'],'off_why':'not seen'},"
       "{'index':1,'name':'H200','level_name':'gate'},"
       "{'index':2,'name':'MI300','level_name':'hardware','caps':['suspend']}],'unmanaged':[{'pid':2147483601,"
       "'name':'x','gpus':[0],'may_set':true},{'pid':2147483602,'name':'y','may_set':false},"
       "{'pid':2147483603,'name':'a\\u001b[31mb','may_set':true,'detached':true},"
       "{'pid':2147483604,'name':'z','may_set':false,'detached':true}],'jobs':[" JOB(1, "a", "latency")
       "'state':'running'}," JOB(2, "b", "batch") "'state':'queued'}]}";

static const struct talk talks[] = {
    /* Several kinds of devices: by what they are called. */
    {"ps", {PAGE("{'index':0,'label':'nvidia0'},{'index':3,'label':'gate1'}",
                 JOB(3, "serve", "latency") "'state':'running','gpus':[0,3,4],'levels':[3,2,9]}")},
     0,
     "JOB  PID  CLASS    WEIGHT  STATE    GPU              LEVEL           SLICE  BUSY  MEM  NAME\n"
     " #3   13  latency     100  running  nvidia0,gate1,4  hardware,piece      -     -    -  serve\n",
     "", NULL},
    /* A GPU that is divided: its instances by their profiles, the others by their indices. */
    {"ps", {PAGE("{'index':0,'label':'nvidia0'},{'index':1,'label':'1:3g.71gb'}",
                 JOB(3, "serve", "latency") "'state':'running','gpus':[0,1]}")}, 0,
     "JOB  PID  CLASS    WEIGHT  STATE    GPU          LEVEL  SLICE  BUSY  MEM  NAME\n"
     " #3   13  latency     100  running  0,1:3g.71gb  -          -     -    -  serve\n", "", NULL},
    /* Never busier than all of its GPUs; unknown where the driver says it otherwise. */
    {"ps", {PAGE("{'index':0,'caps':['swap','usage']},{'index':1,'caps':[]}",
                 BATCH(1, "a") "'gpus':[0,1],'busy':1.5},"
                 BATCH(2, "b") "'gpus':[0,1],'busy':null},"
                 BATCH(3, "c") "'gpus':[1],'busy':null}," BATCH(4, "d") "'gpus':[0],'busy':1.15}")},
     0,
     "JOB  PID  CLASS  WEIGHT  STATE    GPU  LEVEL  SLICE  BUSY  MEM  NAME\n"
     " #1   11  batch     100  running  0,1  -          -   75%    -  a\n"
     " #2   12  batch     100  running  0,1  -          -     ?    -  b\n"
     " #3   13  batch     100  running  1    -          -     -    -  c\n"
     " #4   14  batch     100  running  0    -          -  100%    -  d\n", "", NULL},
    /* A latency job where jobs can be suspended only. GPU 1 has timeslices, GPU 2 no latency job. */
    {"ps", {PAGE("{'index':0,'level_name':'hardware','caps':['suspend']},"
                 "{'index':1,'level_name':'hardware','caps':['timeslice','suspend']},"
                 "{'index':2,'level_name':'hardware','caps':['suspend']},"
                 "{'index':3,'level_name':'hardware','caps':['suspend'],'off':['timeslice']},"
                 "{'index':4,'level_name':'gate','caps':['suspend']}",
                 JOB(1, "a", "latency") "'state':'running','gpus':[0,1,3,4],'levels':[3,3,3,1]},"
                 BATCH(2, "b") "'gpus':[2],'levels':[3]}")}, 0,
     "JOB  PID  CLASS    WEIGHT  STATE    GPU      LEVEL          SLICE  BUSY  MEM  NAME\n"
     " #1   11  latency     100  running  0,1,3,4  hardware,gate      -     -    -  a\n"
     " #2   12  batch       100  running  2        hardware           -     -    -  b\n",
     "note: no timeslices on GPU 0: a latency job there gains nothing over one batch job", NULL},
    /* What it said that it takes: of a job that waits for it, and of one that took more. */
    {"ps", {PAGE("", JOB(3, "a", "batch") "'state':'queued','memory_bytes':0,'memory':"
                 "{'said_bytes':2147483648,'gpu':0,'held_bytes':0,'place':0}},"
                 BATCH(4, "b") "'memory_bytes':4294967296,'memory':"
                 "{'said_bytes':2147483648,'gpu':0,'held_bytes':3221225472}},"
                 BATCH(5, "c") "'memory_bytes':1073741824,'memory':"
                 "{'said_bytes':2147483648,'gpu':0,'held_bytes':1073741824}}")}, 0,
     "JOB  PID  CLASS  WEIGHT  STATE    GPU  LEVEL  SLICE  BUSY        MEM  NAME\n"
     " #3   13  batch     100  queued   -    -          -     -     -/2.0G  a\n"
     " #4   14  batch     100  running  -    -          -     -  3.0G/2.0G  b\n"
     " #5   15  batch     100  running  -    -          -     -       1.0G  c\n", "", NULL},
    {"ps --gpu 1", {PAGE("", BATCH(1, "a") "'gpus':[0],'uid':4000000007}," BATCH(2, "b") "'gpus':[0,1],'uid':4000000008}")}, 0,
     "JOB  PID  CLASS  WEIGHT  STATE    GPU  LEVEL  SLICE  BUSY  MEM  USER        NAME\n"
     " #2   12  batch     100  running  0,1  -          -     -    -  4000000008  b\n", "", NULL},
    {"ps -u 4000000007", {PAGE("", BATCH(1, "a") "'gpus':[0],'uid':4000000007}," BATCH(2, "b") "'gpus':[0,1],'uid':4000000008}")}, 0,
     "JOB  PID  CLASS  WEIGHT  STATE    GPU  LEVEL  SLICE  BUSY  MEM  USER        NAME\n"
     " #1   11  batch     100  running  0    -          -     -    -  4000000007  a\n", "", NULL},
    {"ps -u nobody-here", {jobs}, 2, "", "there is no user 'nobody-here'", NULL},
    {"ps --gpu 99", {jobs}, 2, "", "gpu: '99' is not a GPU's index", NULL},
    {"ps serve", {jobs}, 0,
     "JOB  PID  CLASS    WEIGHT  STATE    GPU  LEVEL  SLICE  BUSY  SPEED  MEM  NAME\n"
     " #1   11  latency     100  running  0    -          -     -    97%    -  serve\n", "", NULL},
    /* What was measured of a launch-bound latency job, and of one with requests; slices below. */
    {"why serve web train light next", {jobs}, 0, reasons, "", NULL},
};
/* clang-format on */

TEST_TALKS(talks)

/* What somebody needs to see at once: a control that is off, a job that waits, a program in no job,
 * and which of those are left alone. */
TEST(one_screen)
{
    static struct result r;
    pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){screen, NULL});
    RUN(&r, "cede", "status");
    free(fake_daemon_end(daemon));
    assert_int_equal(r.status, 0);
    const char *rest = strchr(r.out, '\n');
    assert_memory_equal(r.out, "ceded     9, pid 7, policy laxity; this cede is ", 48);
    assert_string_equal(
        rest, "\n"
              "gpus      GPU 0: H200, preempted by hardware, driver 580.1\n"
              "          off: suspend (not seen); `cede doctor` measures them\n"
              "          GPU 1: H200, preempted by gate\n"
              "          GPU 2: MI300, preempted by hardware without timeslices\n"
              "jobs      2: 1 latency, 1 batch; 1 running, 1 queued\n"
              "waiting   #2 b: queued\n"
              "in no job x (pid 2147483601) uses GPU 0 and is not scheduled; type: cede set "
              "2147483601 -c batch\n"
              "          y (pid 2147483602): of other users, to be set by them or an "
              "administrator\n"
              "          a?[31mb (pid 2147483603) and z (pid 2147483604): detached by hand (cede "
              "detach), so left alone\n");
    SAYS(&r, 1, "", "no daemon is running; `systemctl start ceded`", "cede", "status");
    SAYS(&r, 1, "\"daemon\": false", NULL, "cede", "status", "--json");
    SAYS(&r, 0, "no jobs\n", "no daemon is running; `systemctl start ceded`", "cede", "ps");
}
