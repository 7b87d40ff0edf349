/* What the environment says to `cede run` where its options say nothing; a stand-in for the daemon
 * shows what was asked for. */
#include "harness.h"

static struct result r;

#define NORMAL "'class':'normal'"
#define BATCH  "'class':'batch'"

/* The stand-in has no pool: it is asked for, or not. */
/* clang-format off */
static const struct talk talks[] = {
    {"run echo ran", {OK "}"}, 0, "ran\n", "", NORMAL " !weight"},
    {"CEDE_CLASS=batch CEDE_WEIGHT=40 CEDE_NAME=nightly run echo ran", {OK "}"}, 0, "ran\n", "",
     BATCH " 'weight':40 'name':'nightly'"},
    {"CEDE_CLASS=batch CEDE_WEIGHT=40 run -c latency echo ran", {OK "}"}, 0, "ran\n", "",
     "'class':'latency' 'weight':40"},
    {"CEDE_CLASS=batch CEDE_WEIGHT=40 run -w 300 echo ran", {OK "}"}, 0, "ran\n", "",
     BATCH " 'weight':300"},
    {"CEDE_CLASS=batch CEDE_NAME=x run -n y echo ran", {OK "}"}, 0, "ran\n", "",
     "'name':'y' !weight"},
    {"CEDE_CLASS=latency run echo ran", {OK "}"}, 0, "ran\n", "give -c latency", NORMAL},
    {"CEDE_CLASS=Batch run echo ran", {OK "}"}, 0, "ran\n", "CEDE_CLASS has no effect", NORMAL},
    {"CEDE_CLASS= CEDE_WEIGHT= CEDE_NAME= CEDE_POOL= run echo ran", {OK "}"}, 0, "ran\n", "",
     NORMAL " 'name':'echo' !weight"},
    {"CEDE_CLASS=batch CEDE_WEIGHT=300 run echo ran", {OK "}"}, 0, "ran\n",
     "CEDE_WEIGHT=300 has no effect", BATCH},
    {"CEDE_CLASS=batch CEDE_NAME=12 run echo ran", {OK "}"}, 0, "ran\n", "CEDE_NAME has no effect",
     "'name':'echo'"},
    {"CEDE_CLASS=batch CEDE_POOL=1 run echo ran", {OK "}"}, 0, "ran\n", "runs outside of a pool",
     BATCH},
    {"CEDE_CLASS=batch CEDE_POOL=0 run echo ran", {OK "}"}, 0, "ran\n", "", BATCH},
    {"CEDE_CLASS=normal CEDE_POOL=1 run echo ran", {OK "}"}, 0, "ran\n", "", NORMAL},
    {"CEDE_CLASS=batch CEDE_POOL=1 run --preempt block echo ran", {OK "}"}, 0, "ran\n", "",
     "'preempt':'block'"},
};
/* clang-format on */

TEST_TALKS(talks)

#define HANDED_OVER(pid)                                                                           \
    "exec 3</dev/null; LISTEN_PID=" pid " LISTEN_FDS=1 LISTEN_PIDFDID=7 WATCHDOG_PID=" pid         \
    " exec \"$CEDE_EXE\" run --gpu-device soft sh -c 'echo $((LISTEN_PID == $$)) "                 \
    "$((WATCHDOG_PID == $$)) $LISTEN_FDS ${LISTEN_PIDFDID-none} $(readlink /proc/$$/fd/3)'"

/* What systemd says to the process that it starts is for the program, and what is for another
 * process stays so. */
TEST(sockets_handed_over)
{
    RUN(&r, "sh", "-c", HANDED_OVER("$$"));
    assert_string_equal(r.out, "1 1 1 none /dev/null\n");
    RUN(&r, "sh", "-c", HANDED_OVER("$PPID"));
    assert_string_equal(r.out, "0 0 1 7 /dev/null\n");
}
