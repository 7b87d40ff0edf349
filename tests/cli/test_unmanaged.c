/* GPU programs that no job owns, as the verbs speak of them: named without what a terminal obeys,
 * and taken together. The daemon is a stand-in. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

static struct result r;

/* Pids that no machine has. */
#define UNMANAGED(pid, detached, may)                                                              \
    "{'pid':" pid ",'name':'a\\u001b[31mb','gpus':[0,3],'detached':" detached ",'may_set':" may "}"
#define FREE(pid)    UNMANAGED(pid, "false", "true")
#define ADDED(list)  OK ",'unmanaged':[" list "]}"
#define PS(list)     OK ",'jobs':[],'unmanaged':[" list "]}"
#define MORE(pid, n) OK ",'jobs':[],'unmanaged':[" FREE(pid) "],'unmanaged_more':" n "}"
#define WITH(jobs)   OK ",'jobs':[" jobs "],'unmanaged':[" FREE(A) "]}"
#define A            "2147483601"
#define B            "2147483602"
#define ASKED        OP("ps") "}\n"
#define SET(pid)     OP("set") ",'target':" pid ",'class':'batch'}\n"
#define HINT         " no job until you type: cede set "

/* clang-format off */
static const struct talk talks[] = {
    {"run -clatency true", {ADDED(FREE(A))}, 0, "",
     "cede: note: a?[31mb (pid " A ") uses GPUs 0, 3 and is not scheduled: it does not yield to "
     "this job until you type: cede set " A " -c batch\n", NULL},
    {"run -cbatch true", {ADDED(FREE(A) "," FREE(B))}, 0, "",
     "cede: note: a?[31mb (pid " A ") and a?[31mb (pid " B ") use GPUs 0, 3 and are not "
     "scheduled: they do not yield to this job until you type: cede set --others -c batch\n",
     NULL},
    {"run -q -clatency true", {ADDED(FREE(A))}, 0, "", "", NULL},
    {"run -clatency true", {ADDED(UNMANAGED(A, "true", "true") "," UNMANAGED(B, "false", "false"))},
     0, "", "", NULL},
    {"run true", {ADDED("1,{},null,{'may_set':1}")}, 0, "", "", NULL},
    {"set --others -cbatch", {MORE(A, "1"), TRAIN "}", PS(FREE(B)), TRAIN "}"}, 0,
     "#12 train: batch, weight 300\n#12 train: batch, weight 300\n", "",
     ASKED SET(A) ASKED SET(B)},
    /* Failures end it, however many there are said to be. */
    {"set --others -cbatch", {MORE(A, "1000000"), NO(1) "'no'}"}, 1, "",
     "cede: " A ": no\ncede: 1000000 GPU programs belong to other users: not set; ",
     ASKED SET(A)},
    {"set --others -cbatch", {PS(UNMANAGED(A, "true", "true") "," UNMANAGED(B, "false", "false"))},
     0, "no unmanaged GPU programs: nothing to set\n",
     "cede: 1 GPU program was detached by hand: not set\n"
     "cede: 1 GPU program belongs to another user: not set; that takes root", ASKED},
    {"set --others -w7", {PS("")}, 0, "no unmanaged GPU programs: nothing to set\n", "", ASKED},
    {"set --others -w7", {NULL}, 1, "", "closed the connection", NULL},
    {"set --others", {OK "}"}, 2, "", "--others takes -c or -w", ""},
    {"set --others --deadline=3s", {OK "}"}, 2, "", "--others takes -c or -w", ""},
    {"set --others -cbatch 4711", {OK "}"}, 2, "", "--others takes no target", ""},
    {"set --others -cnone", {OK "}"}, 2, "", "nothing to detach", ""},
    /* Only what may be on a GPU of a job is in a job's way. */
    {"ps", {WITH("{'number':1,'gpus':[3]}")}, 0, NULL, HINT, NULL},
    {"ps", {WITH("{'number':1,'gpus':[1]},{'number':2,'gpus':[0]}")}, 0, NULL, HINT, NULL},
    {"ps", {WITH("{'number':1,'gpus':[1,2]}")}, 0, NULL, "", NULL},
    {"ps", {WITH("{'number':1,'gpus':[1]},{'number':2,'gpus':[]}")}, 0, NULL, HINT, NULL},
    {"ps", {WITH("")}, 0, NULL, "", NULL}, /* nobody to yield to */
    {"ps", {OK ",'jobs':[{'number':1,'gpus':[1]}],'unmanaged':[{'pid':5,'may_set':true}]}"}, 0,
     NULL, HINT, NULL},
};
/* clang-format on */

TEST_TALKS(talks)

/* What a program's ancestor is taken for it is too: one job, not two. */
TEST(others_by_their_ancestor)
{
    char list[400], asked_for[80];
    int out;
    pid_t child = start_program(&out, (const char *const[]){"sleep", "1000", NULL});
    snprintf(list, sizeof(list), ADDED("{'pid':%d,'may_set':true},{'pid':%d,'may_set':true}"),
             (int)child, (int)getpid());
    pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){list, TRAIN "}", NULL});
    SAYS(&r, 0, NULL, NULL, "cede", "set", "--others", "-c", "batch");
    char *asked = fake_daemon_end(daemon);
    snprintf(asked_for, sizeof(asked_for), "\"target\":%d,", (int)getpid());
    assert_non_null(strstr(asked, asked_for));
    snprintf(asked_for, sizeof(asked_for), "\"target\":%d,", (int)child);
    assert_null(strstr(asked, asked_for));
    free(asked);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(out);
}

TEST(doctor)
{
    static const char *const replies[][2] = {
        {PS(FREE(A)), NULL}, {PS(""), NULL}, {PS(UNMANAGED(A, "true", "true")), NULL}};
    for (size_t i = 0; i < 3; i++) {
        pid_t daemon = fake_daemon((uid_t)-1, replies[i]);
        RUN(&r, "cede", "doctor", "--device", "amd"); /* it measures nothing there */
        free(fake_daemon_end(daemon));
        bool warns =
            strstr(r.out, "warn  unmanaged    a?[31mb (pid " A ") uses GPUs 0, 3 and is not "
                          "scheduled: it yields to no job\n") &&
            strstr(r.out, " -> cede set " A " -c batch\n");
        if (!strstr(r.out, "warn  latency      a latency job gains nothing over one batch job: "))
            fail_msg("%s", r.out);
        bool fine = strstr(r.out, "ok    unmanaged    there are no unmanaged GPU programs") != NULL;
        bool left = strstr(r.out, "a?[31mb (pid " A "): detached by hand, so left alone\n") != NULL;
        if (warns != (i == 0) || fine != (i == 1) || left != (i == 2))
            fail_msg("%s", r.out);
    }
}
