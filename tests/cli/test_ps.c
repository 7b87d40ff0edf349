/* What the table of cede ps calls the devices. The daemon is a stand-in. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

static struct result r;

#define OK "{\"v\":1,\"ok\":true"

static void devices(void **state)
{
    (void)state;
    /* Several kinds of devices: by what they are called. */
    pid_t daemon = fake_daemon(
        (uid_t)-1,
        (const char *const[]){
            OK ",\"more\":false,\"policy\":\"priority\",\"gpus\":["
               "{\"index\":0,\"label\":\"nvidia0\"},{\"index\":3,\"label\":\"gate1\"}],\"jobs\":["
               "{\"number\":3,\"name\":\"serve\",\"class\":\"latency\",\"pid\":10,\"weight\":100,"
               "\"state\":\"running\",\"gpus\":[0,3,4],\"levels\":[3,2,9]}]}",
            NULL});
    RUN(&r, "cede", "ps");
    free(fake_daemon_end(daemon));
    assert_string_equal(r.out, "JOB  PID  CLASS    WEIGHT  STATE    GPU              LEVEL         "
                               "  SLICE  BUSY  MEM  NAME\n"
                               " #3   10  latency     100  running  nvidia0,gate1,4  "
                               "hardware,slice      -     -    -  serve\n");

    /* A GPU that is divided: its instances by their profiles, the others by their indices. */
    daemon = fake_daemon(
        (uid_t)-1,
        (const char *const[]){
            OK ",\"more\":false,\"policy\":\"priority\",\"gpus\":["
               "{\"index\":0,\"label\":\"nvidia0\"},{\"index\":1,\"label\":\"1:3g.71gb\"}],"
               "\"jobs\":[{\"number\":3,\"name\":\"serve\",\"class\":\"latency\",\"pid\":10,"
               "\"weight\":100,\"state\":\"running\",\"gpus\":[0,1]}]}",
            NULL});
    RUN(&r, "cede", "ps");
    free(fake_daemon_end(daemon));
    assert_string_equal(
        r.out, "JOB  PID  CLASS    WEIGHT  STATE    GPU          LEVEL  SLICE  BUSY  MEM  NAME\n"
               " #3   10  latency     100  running  0,1:3g.71gb  -          -     -    -  serve\n");
}

/* Never more than all of its GPUs; unknown where the driver tells it otherwise. */
static void busy(void **state)
{
    (void)state;
    pid_t daemon = fake_daemon(
        (uid_t)-1,
        (const char *const[]){
            OK ",\"more\":false,\"policy\":\"priority\",\"gpus\":["
               "{\"index\":0,\"caps\":[\"swap\",\"usage\"]},{\"index\":1,\"caps\":[]}],\"jobs\":["
               "{\"number\":1,\"name\":\"a\",\"class\":\"batch\",\"pid\":10,\"weight\":100,"
               "\"state\":\"running\",\"gpus\":[0,1],\"busy\":1.5},"
               "{\"number\":2,\"name\":\"b\",\"class\":\"batch\",\"pid\":11,\"weight\":100,"
               "\"state\":\"running\",\"gpus\":[0,1],\"busy\":null},"
               "{\"number\":3,\"name\":\"c\",\"class\":\"batch\",\"pid\":12,\"weight\":100,"
               "\"state\":\"running\",\"gpus\":[1],\"busy\":null},"
               "{\"number\":4,\"name\":\"d\",\"class\":\"batch\",\"pid\":13,\"weight\":100,"
               "\"state\":\"running\",\"gpus\":[0],\"busy\":1.15}]}",
            NULL});
    RUN(&r, "cede", "ps");
    free(fake_daemon_end(daemon));
    assert_string_equal(r.out,
                        "JOB  PID  CLASS  WEIGHT  STATE    GPU  LEVEL  SLICE  BUSY  MEM  NAME\n"
                        " #1   10  batch     100  running  0,1  -          -   75%    -  a\n"
                        " #2   11  batch     100  running  0,1  -          -     ?    -  b\n"
                        " #3   12  batch     100  running  1    -          -     -    -  c\n"
                        " #4   13  batch     100  running  0    -          -  100%    -  d\n");
}

#define JOB(number, name, class, why)                                                              \
    "{\"number\":" number ",\"name\":\"" name                                                      \
    "\",\"class\":\"" class "\",\"pid\":1" number                                                  \
                            ",\"weight\":100,\"state\":\"running\",\"gpus\":[0],\"counts\":"       \
                            "{\"known_s\":5,\"gpus\":[]},\"speed\":0.97,\"why\":[{\"gpu\":0,"      \
                            "\"text\":\"t\"" why "}]}"

static const char page[] = OK
    ",\"more\":false,\"policy\":\"laxity\",\"gpus\":[{\"index\":0,\"caps\":[\"pool\"]}],"
    "\"jobs\":[" JOB(
        "1", "serve", "latency",
        ",\"slice_us\":1000000,\"throttled\":false,\"measured\":{\"launch_bound\":true,"
        "\"busy\":0.19,"
        "\"bursts_hz\":2080.4,\"speed\":0.97}") "," JOB("2", "web", "latency",
                                                        ",\"throttled\":true,\"measured\":{"
                                                        "\"launch_bound\":false,\"bursts_"
                                                        "hz\":100}") "," JOB("3", "train", "batch",
                                                                             ",\"reason\":"
                                                                             "\"turn\","
                                                                             "\"slice_us\":"
                                                                             "1400,"
                                                                             "\"throttled\":"
                                                                             "false") "," JOB("4",
                                                                                              "ligh"
                                                                                              "t",
                                                                                              "batc"
                                                                                              "h",
                                                                                              ",\"r"
                                                                                              "easo"
                                                                                              "n\":"
                                                                                              "\"be"
                                                                                              "side"
                                                                                              "\","
                                                                                              "\"sl"
                                                                                              "ice_"
                                                                                              "us\""
                                                                                              ":350"
                                                                                              ",\"t"
                                                                                              "hrot"
                                                                                              "tled"
                                                                                              "\":"
                                                                                              "fals"
                                                                                              "e") "," JOB("5",
                                                                                                           "next",
                                                                                                           "batch",
                                                                                                           ",\"reason\":\"next\",\"slice_us\":1") "]}";

#define ON_GPU "  GPU 0: t\n"
#define COUNTS "  in 5 s: nothing on a GPU\n"
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

/* What was measured of a launch-bound latency job, and of one with requests; slices below them. */
static void why(void **state)
{
    (void)state;
    const char *const replies[] = {page, NULL};
    pid_t daemon = fake_daemon((uid_t)-1, replies);
    RUN(&r, "cede", "ps");
    free(fake_daemon_end(daemon));
    assert_non_null(strstr(r.out, "  SPEED  "));
    assert_non_null(strstr(r.out, "  97%  "));
    daemon = fake_daemon((uid_t)-1, replies);
    RUN(&r, "cede", "why", "serve", "web", "train", "light", "next");
    free(fake_daemon_end(daemon));
    assert_string_equal(r.out, reasons);
}

/* What it said that it takes: of a job that waits for it, and of one that took more. */
static void memory(void **state)
{
    (void)state;
    pid_t daemon = fake_daemon(
        (uid_t)-1,
        (const char *const[]){
            OK ",\"more\":false,\"policy\":\"priority\",\"gpus\":[],\"jobs\":["
               "{\"number\":3,\"name\":\"a\",\"class\":\"batch\",\"pid\":10,\"weight\":100,"
               "\"state\":\"queued\",\"memory_bytes\":0,\"memory\":{\"said_bytes\":2147483648,"
               "\"gpu\":0,\"held_bytes\":0,\"place\":0}},"
               "{\"number\":4,\"name\":\"b\",\"class\":\"batch\",\"pid\":11,\"weight\":100,"
               "\"state\":\"running\",\"memory_bytes\":4294967296,\"memory\":{"
               "\"said_bytes\":2147483648,\"gpu\":0,\"held_bytes\":3221225472}},"
               "{\"number\":5,\"name\":\"c\",\"class\":\"batch\",\"pid\":12,\"weight\":100,"
               "\"state\":\"running\",\"memory_bytes\":1073741824,\"memory\":{"
               "\"said_bytes\":2147483648,\"gpu\":0,\"held_bytes\":1073741824}}]}",
            NULL});
    RUN(&r, "cede", "ps");
    free(fake_daemon_end(daemon));
    assert_string_equal(
        r.out, "JOB  PID  CLASS  WEIGHT  STATE    GPU  LEVEL  SLICE  BUSY        MEM  NAME\n"
               " #3   10  batch     100  queued   -    -          -     -     -/2.0G  a\n"
               " #4   11  batch     100  running  -    -          -     -  3.0G/2.0G  b\n"
               " #5   12  batch     100  running  -    -          -     -       1.0G  c\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(devices), cmocka_unit_test(busy),
                                       cmocka_unit_test(why), cmocka_unit_test(memory)};
    return cmocka_run_group_tests_name("ps", tests, harness_begin, harness_end);
}
