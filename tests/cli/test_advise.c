/* cede advise: what is no trial at all, and what each says. The daemon is a stand-in; trials
 * themselves are in tests/e2e. */
#include "harness.h"

#define PAGE(caps, jobs)                                                                           \
    OK ",'more':false,'policy':'priority','gpus':[{'index':0,'caps':[" caps                        \
       "]},{'index':1,'caps':[" caps "]}],'jobs':[" jobs "]}"
#define JOB(number, name, state, gpus)                                                             \
    "{'number':" #number ",'name':'" name "','class':'batch','pid':1" #number                      \
    ",'uid':0,'state':'" state "','gpus':[" gpus "]}"
#define ON(number, name, gpus) JOB(number, name, "running", gpus)
#define COUNTERS               "'pool','counters'"
#define A                      ON(1, "a", "0")
#define B                      ON(2, "b", "0")
/* The daemon is asked for jobs, and then for nothing that changes one. */
#define ONLY_LOOKS "{'v':1,'op':'ps'}\n"

/* clang-format off */
static const struct talk talks[] = {
    {"advise", {PAGE(COUNTERS, "")}, 2, "", "2 to 8 jobs are needed, and here are 0", ONLY_LOOKS},
    {"advise", {PAGE(COUNTERS, A)}, 2, "", "2 to 8 jobs are needed, and here is 1", ONLY_LOOKS},
    {"advise a", {PAGE(COUNTERS, A "," B)}, 2, "", "and here is 1", ONLY_LOOKS},
    {"advise a a", {PAGE(COUNTERS, A "," B)}, 2, "", "and here is 1", ONLY_LOOKS},
    {"advise", {PAGE(COUNTERS, A "," B "," ON(3, "c", "0") "," ON(4, "d", "0") "," ON(5, "e", "0") ","
                 ON(6, "f", "0") "," ON(7, "g", "0") "," ON(8, "h", "0") "," ON(9, "i", "0"))},
     2, "", "2 to 8 jobs are needed, and here are 9", ONLY_LOOKS},
    {"advise a x", {PAGE(COUNTERS, A "," B)}, 1, "", "x: no such job; `cede ps` lists the jobs", ONLY_LOOKS},
    {"advise", {PAGE(COUNTERS, A "," ON(2, "b", "1"))}, 2, "", "there are jobs on several GPUs: name", ONLY_LOOKS},
    {"advise a b", {PAGE(COUNTERS, A "," ON(2, "b", "1"))}, 1, "", "#2 b: it is on another GPU than the first one", ONLY_LOOKS},
    {"advise a b", {PAGE(COUNTERS, A "," ON(2, "b", "0,1"))}, 1, "", "#2 b: it is on several GPUs, or on none yet", ONLY_LOOKS},
    {"advise a b", {PAGE(COUNTERS, ON(1, "a", "") "," B)}, 1, "", "#1 a: it is on several GPUs, or on none yet", ONLY_LOOKS},
    /* Without names, those that are on no GPU or on several do not count. */
    {"advise", {PAGE(COUNTERS, A "," ON(2, "b", "") "," ON(3, "c", "0,1"))}, 2, "", "and here is 1", ONLY_LOOKS},
    {"advise", {PAGE(COUNTERS, A "," JOB(2, "b", "paused", "0"))}, 1, "", "#2 b: it does not run now", ONLY_LOOKS},
    {"advise", {PAGE(COUNTERS, A "," JOB(2, "b", "swapped", "0"))}, 1, "", "#2 b: it does not run now", ONLY_LOOKS},
    {"advise", {PAGE("'pool'", A "," JOB(2, "b", "throttled", "0"))}, 1, "",
     "GPU 0 has no counters that say what its parts do, as NVIDIA GPUs from Hopper on have: run them as batch jobs", ONLY_LOOKS},
    /* Nothing is started where nothing can be measured. */
    {"advise -- a -- b", {PAGE("'pool'", "")}, 1, "", "no GPU here has counters", ONLY_LOOKS},
    {"advise -- a -- b", {OK ",'gpus':[],'jobs':[]}"}, 1, "", "no GPU here has counters", ONLY_LOOKS},
    {"advise --aim protect:b=150%", {PAGE(COUNTERS, A "," B)}, 1, "", "its least speed is set by `cede set JOB --min-speed PERCENT`", ONLY_LOOKS},
    {"advise --aim protect:x", {PAGE(COUNTERS, A "," B)}, 1, "", "x: no such job", ONLY_LOOKS},
    {"advise --aim protect:b a c", {PAGE(COUNTERS, A "," B "," ON(3, "c", "0"))}, 1, "", "b: no such job", ONLY_LOOKS},

    /* What is wrong on the command line the daemon does not hear of. */
    {"advise --aim most", {OK "}"}, 2, "", "--aim is sum, fair or protect:JOB", ""},
    {"advise --aim protect:", {OK "}"}, 2, "", "--aim is sum, fair or protect:JOB", ""},
    {"advise --window 499ms", {OK "}"}, 2, "", "--window is less than 500ms", ""},
    {"advise --window 2", {OK "}"}, 2, "", "window: '2' is no time from 1us to 60s, as in 2s", ""},
    {"advise --window 61s", {OK "}"}, 2, "", "no time from 1us to 60s", ""},
    {"advise --p99 0us", {OK "}"}, 2, "", "p99: '0us' is no time", ""},
    {"advise --", {OK "}"}, 2, "", "2 to 8 commands of at most 256 words are needed, each after --", ""},
    {"advise -- a", {OK "}"}, 2, "", "one command alone has nothing to share a GPU with", ""},
    {"advise -- a --", {OK "}"}, 2, "", "2 to 8 commands", ""},
    {"advise -- -- a", {OK "}"}, 2, "", "2 to 8 commands", ""},
};
/* clang-format on */

TEST_TALKS(talks)

TEST(without_a_daemon)
{
    static struct result r;
    SAYS(&r, 1, "", "no daemon is running: there are no jobs", "cede", "advise");
    SAYS(&r, 1, "", "no daemon is running: there are no jobs", "cede", "advise", "a", "b");
    SAYS(&r, 1, "", "no daemon is running; `systemctl start ceded`", "cede", "advise", "--", "a",
         "--", "b");
    /* On a terminal, too, nothing is cleared that was not printed. */
    RUN(&r, "script", "-qc", "\"$CEDE_EXE\" advise -- a -- b", "/dev/null");
    assert_ptr_equal(strstr(r.out, "cede: no daemon"), r.out);
    SAYS(&r, 2, "", "2 to 8 commands", "cede", "advise", "--", "a", "--", "b", "--", "c", "--", "d",
         "--", "e", "--", "f", "--", "g", "--", "h", "--", "i");
}
