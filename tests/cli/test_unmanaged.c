/* GPU programs that no job owns, as the verbs speak of them: named without what a terminal obeys,
 * and taken together. The daemon is a stand-in. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

static struct result r;

#define OK "{\"v\":1,\"ok\":true"
#define JOB                                                                                        \
    OK ",\"job\":{\"number\":12,\"name\":\"train\",\"class\":\"batch\",\"weight\":300,\"pid\":"    \
       "4711}"

/* Pids that no machine has. */
#define UNMANAGED(pid, detached, may)                                                              \
    "{\"pid\":" pid ",\"name\":\"a\\u001b[31mb\",\"gpus\":[0,3],\"detached\":" detached            \
    ",\"may_set\":" may "}"
#define PS(list, more) OK ",\"jobs\":[],\"unmanaged\":[" list "]" more "}"
#define A              "2147483601"
#define B              "2147483602"
#define ASKED          "{\"v\":1,\"op\":\"ps\"}\n"
#define SET(pid)       "{\"v\":1,\"op\":\"set\",\"target\":" pid ",\"class\":\"batch\"}\n"

/* What a verb sends, what it says to the answer, and the exit status. */
static const struct {
    const char *args[7], *replies[5], *asked;
    int status;
    const char *out, *err;
} talks[] = {
    {{"run", "-clatency", "true"},
     {OK ",\"unmanaged\":[" UNMANAGED(A, "false", "true") "]}"},
     NULL,
     0,
     "",
     "cede: note: a?[31mb (pid " A ") uses GPUs 0, 3 and is not scheduled: nothing yields to this "
     "job there until you type: cede set " A " -c batch\n"},
    {{"run", "-cbatch", "true"},
     {OK ",\"unmanaged\":[" UNMANAGED(A, "false", "true") "," UNMANAGED(B, "false", "true") "]}"},
     NULL,
     0,
     "",
     "cede: note: a?[31mb (pid " A ") and a?[31mb (pid " B ") use GPUs 0, 3 and are not "
     "scheduled: this job does not yield to them until you type: cede set --others -c "
     "normal\n"},
    {{"run", "-q", "-clatency", "true"},
     {OK ",\"unmanaged\":[" UNMANAGED(A, "false", "true") "]}"},
     NULL,
     0,
     "",
     ""},
    {{"run", "-clatency", "true"},
     {OK ",\"unmanaged\":[" UNMANAGED(A, "true", "true") "," UNMANAGED(B, "false", "false") "]}"},
     NULL,
     0,
     "",
     ""},
    {{"run", "true"}, {OK ",\"unmanaged\":[1,{},null,{\"may_set\":1}]}"}, NULL, 0, "", ""},
    {{"set", "--others", "-cbatch"},
     {PS(UNMANAGED(A, "false", "true"), ",\"unmanaged_more\":1"), JOB "}",
      PS(UNMANAGED(B, "false", "true"), ""), JOB "}"},
     ASKED SET(A) ASKED SET(B),
     0,
     "#12 train: batch, weight 300\n#12 train: batch, weight 300\n",
     ""},
    /* Failures end it, however many there are said to be. */
    {{"set", "--others", "-cbatch"},
     {PS(UNMANAGED(A, "false", "true"), ",\"unmanaged_more\":1000000"),
      "{\"v\":1,\"ok\":false,\"errno\":1,\"error\":\"no\"}"},
     ASKED SET(A),
     1,
     "",
     "cede: " A ": no\ncede: 1000000 GPU programs belong to other users: not set; "},
    {{"set", "--others", "-cbatch"},
     {PS(UNMANAGED(A, "true", "true") "," UNMANAGED(B, "false", "false"), "")},
     ASKED,
     0,
     "no unmanaged GPU programs: nothing to set\n",
     "cede: 1 GPU program was detached by -c none: not set\n"
     "cede: 1 GPU program belongs to another user: not set; that takes root"},
    {{"set", "--others", "-w7"},
     {PS("", "")},
     ASKED,
     0,
     "no unmanaged GPU programs: nothing to set\n",
     ""},
    {{"set", "--others", "-w7"}, {NULL}, NULL, 1, "", "closed the connection"},
};

static void talk(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(talks) / sizeof(talks[0]); i++) {
        const char *argv[8] = {"cede"};
        memcpy(argv + 1, talks[i].args, sizeof(talks[i].args));
        pid_t daemon = fake_daemon((uid_t)-1, talks[i].replies);
        run_program(&r, NULL, argv);
        char *asked = fake_daemon_end(daemon);
        if (talks[i].asked)
            assert_string_equal(asked, talks[i].asked);
        free(asked);
        assert_string_equal(r.out, talks[i].out);
        if (!strstr(r.err, talks[i].err) || (!*talks[i].err && *r.err))
            fail_msg("%zu: said '%s', not '%s'", i, r.err, talks[i].err);
        assert_int_equal(status_of(r.status), talks[i].status);
    }
}

/* What a program's ancestor is taken for it is too: one job, not two. */
static void others_by_their_ancestor(void **state)
{
    (void)state;
    char list[400], asked_for[80];
    int out;
    pid_t child = start_program(&out, (const char *const[]){"sleep", "1000", NULL});
    snprintf(list, sizeof(list),
             OK ",\"unmanaged\":[{\"pid\":%d,\"may_set\":true},{\"pid\":%d,\"may_set\":true}]}",
             (int)child, (int)getpid());
    pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){list, JOB "}", NULL});
    RUN(&r, "cede", "set", "--others", "-c", "batch");
    assert_int_equal(status_of(r.status), 0);
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

/* Only what may be on a GPU of a job is in a job's way. */
static void ps_looks_at_gpus(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        bool hint;
    } t[] = {
#define WITH(jobs) OK ",\"jobs\":[" jobs "],\"unmanaged\":[" UNMANAGED(A, "false", "true") "]}"
        {WITH("{\"number\":1,\"gpus\":[3]}"), true},
        {WITH("{\"number\":1,\"gpus\":[1]},{\"number\":2,\"gpus\":[0]}"), true},
        {WITH("{\"number\":1,\"gpus\":[1,2]}"), false},
        {WITH("{\"number\":1,\"gpus\":[1]},{\"number\":2,\"gpus\":[]}"), true},
        {WITH(""), false}, /* nobody to yield to */
        {OK ",\"jobs\":[{\"number\":1,\"gpus\":[1]}],\"unmanaged\":[{\"pid\":5,\"may_set\":true}]}",
         true},
#undef WITH
    };
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){t[i].reply, NULL});
        RUN(&r, "cede", "ps");
        free(fake_daemon_end(daemon));
        assert_int_equal(status_of(r.status), 0);
        bool hint = strstr(r.err, " no job until you type: cede set ") != NULL;
        if (hint != t[i].hint || (!hint && r.err[0]))
            fail_msg("%zu: said '%s'", i, r.err);
    }
}

static void doctor(void **state)
{
    (void)state;
    static const char list[] = PS(UNMANAGED(A, "false", "true"), "");
    static const char *const replies[][2] = {{list, NULL}, {PS("", ""), NULL}};
    for (size_t i = 0; i < 2; i++) {
        pid_t daemon = fake_daemon((uid_t)-1, replies[i]);
        RUN(&r, "cede", "doctor", "--device", "amd"); /* it measures nothing there */
        free(fake_daemon_end(daemon));
        bool warns =
            strstr(r.out, "warn  unmanaged    a?[31mb (pid " A ") uses GPUs 0, 3 and is not "
                          "scheduled: it yields to no job\n") &&
            strstr(r.out, " -> cede set " A " -c batch\n");
        bool fine = strstr(r.out, "ok    unmanaged    there are no unmanaged GPU programs") != NULL;
        if (warns != (i == 0) || fine != (i == 1))
            fail_msg("%s", r.out);
    }
}

static void usage(void **state)
{
    (void)state;
    static const char *const t[][6] = {
        /* what it says, then the arguments */
        {"--others takes -c or -w", "--others"},
        {"--others takes -c or -w", "--others", "--deadline=3s"},
        {"--others takes no target", "--others", "-cbatch", "4711"},
        {"nothing to detach", "--others", "-cnone"},
    };
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        RUN(&r, "cede", "set", t[i][1], t[i][2], t[i][3]);
        assert_int_equal(status_of(r.status), 2);
        assert_string_equal(r.out, "");
        if (!strstr(r.err, t[i][0]))
            fail_msg("%zu: said '%s'", i, r.err);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage),
        cmocka_unit_test(talk),
        cmocka_unit_test(others_by_their_ancestor),
        cmocka_unit_test(ps_looks_at_gpus),
        cmocka_unit_test(doctor),
    };
    return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
