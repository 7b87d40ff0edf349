/* How `cede run --memory` waits for room, and what it says. The daemon is a stand-in. */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

static struct result r;

#define OK    "{\"v\":1,\"ok\":true"
#define ADDED OK ",\"job\":{\"number\":12,\"room\":false}}"
#define PAGE  OK ",\"more\":false,\"jobs\":[]}"
#define WAITS OK ",\"jobs\":[{\"number\":12,\"room\":false}]}"
#define ROOM  OK ",\"jobs\":[{\"number\":12,\"room\":true}]}"

/* A job in line for GPU 1, and one that holds memory. */
#define IN_LINE(number, uid, place)                                                                \
    "{\"number\":" #number ",\"name\":\"job" #number "\",\"uid\":" #uid ",\"room\":false,"         \
    "\"memory\":{\"gpu\":1,\"place\":" #place "}},"
#define HOLDS(number, uid, gpus)                                                                   \
    "{\"number\":" #number ",\"name\":\"job" #number "\",\"uid\":" #uid ",\"gpus\":" gpus ","      \
    "\"memory_bytes\":7},"
#define RESERVED(number, uid)                                                                      \
    "{\"number\":" #number ",\"name\":\"job" #number "\",\"uid\":" #uid ",\"room\":true,"          \
    "\"memory\":{\"gpu\":1}}"

static const char crowd[] = OK ",\"more\":false,\"jobs\":[" IN_LINE(12, 5, 3) IN_LINE(11, 5, 2)
    IN_LINE(10, 6, 1) IN_LINE(9, 6, 0) IN_LINE(13, 5, 4) HOLDS(4, 5, "[0,1]") HOLDS(3, 6, "[1]")
        HOLDS(2, 5, "[0]") RESERVED(1, 5) "],\"unmanaged\":[{\"gpus\":[1]},{\"gpus\":[0]}]}";

static const struct {
    const char *args[6], *replies[5];
    int status;
    const char *err;
} rows[] = {
    {{"-clatency", "--memory=3G@1", "true"},
     {ADDED, PAGE, WAITS, ROOM},
     0,
     "cede: waiting for 3.0 GiB on GPU 1, at most 120 s\n"},
    {{"-cbatch", "--memory=3G@1", "true"},
     {ADDED, crowd, ROOM},
     0,
     "cede: waiting for 3.0 GiB on GPU 1; before it: #11 job11, 2 other jobs; memory is held or "
     "reserved by: #4 job4, #1 job1, 1 other job; 1 program of no job uses that GPU\n"},
    {{"--memory=3G@1", "true"},
     {ADDED,
      OK ",\"more\":false,\"jobs\":[{\"number\":12,\"room\":false,\"memory\":{\"gpu\":1,"
         "\"place\":0,\"infeasible\":true}}],\"unmanaged\":[{\"gpus\":[1]},{\"gpus\":[1]}]}",
      ROOM},
     0,
     "cede: waiting for 3.0 GiB on GPU 1; that is more than there is if all jobs end, so "
     "others go first; 2 programs of no job use that GPU\n"},
    {{"-clatency", "--memory=3G@1", "true"},
     {ADDED,
      OK ",\"more\":false,\"jobs\":[" IN_LINE(
          12, 5, 0) "{\"number\":4,\"name\":\"job4\",\"uid\":5,"
                    "\"gpus\":[1],\"memory_bytes\":7,\"swap_error\":\"no host memory\"}]}",
      ROOM},
     0,
     "cede: waiting for 3.0 GiB on GPU 1, at most 120 s; memory is held or reserved by: #4 job4; "
     "#4: no "
     "host memory\n"},
    {{"-q", "--memory=3G@1", "true"}, {ADDED, WAITS, ROOM}, 0, ""},
    /* There is room; a scheduler of before knows of none; somebody has detached it. */
    {{"--memory=3G", "true"}, {OK ",\"job\":{\"number\":12,\"room\":true}}"}, 0, ""},
    {{"--memory=3G", "true"}, {OK ",\"job\":{\"number\":12}}"}, 0, ""},
    {{"-q", "--memory=3G", "true"}, {ADDED, WAITS, PAGE}, 0, ""},
    /* The time is over. */
    {{"-clatency", "--memory=3G", "--wait=1ms", "true"},
     {ADDED, PAGE, WAITS, OK ",\"job\":{}}"},
     0,
     "cede: 'true' runs anyway: 3.0 GiB were not free on GPU 0"},
    {{"--strict", "-cbatch", "--memory=3G", "--wait=0", "false"},
     {ADDED, OK ",\"job\":{}}"},
     1,
     "cede: 'false' was not run: 3.0 GiB were not free"},
    /* It cannot be, or is not to be. */
    {{"--memory=3G", "true"},
     {"{\"v\":1,\"ok\":false,\"errno\":22,\"error\":\"there is no GPU 7\"}"},
     2,
     "cede: 'true' was not run: there is no GPU 7"},
    {{"-cbatch", "--memory=3G", "true"},
     {"{\"v\":1,\"ok\":false,\"errno\":122,\"error\":\"too many wait\"}"},
     1,
     "cede: 'true' was not run: too many wait"},
};

static void waits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *argv[10] = {"cede", "run"};
        for (size_t k = 0; k < 6; k++)
            argv[2 + k] = rows[i].args[k];
        pid_t daemon = fake_daemon((uid_t)-1, rows[i].replies);
        run_program(&r, NULL, argv);
        free(fake_daemon_end(daemon));
        if (status_of(r.status) != rows[i].status || !strstr(r.err, rows[i].err) ||
            (!rows[i].err[0] && r.err[0]))
            fail_msg("row %zu: status %d: %s", i, status_of(r.status), r.err);
    }
}

/* That it starts without room the daemon is told, so that nobody waits behind it. */
static void says_that_it_starts(void **state)
{
    (void)state;
    pid_t daemon =
        fake_daemon((uid_t)-1, (const char *const[]){ADDED, OK ",\"job\":{\"number\":12}}", NULL});
    RUN(&r, "cede", "run", "-c", "batch", "--memory", "3G", "--wait", "0", "true");
    char *asked = fake_daemon_end(daemon);
    char *second = strchr(asked, '\n');
    assert_non_null(second);
    assert_null(memmem(asked, (size_t)(second - asked), "started", 7));
    assert_non_null(strstr(second, "\"run\":true,\"started\":true,\"memory_bytes\":3221225472"));
    free(asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(waits),
                                       cmocka_unit_test(says_that_it_starts)};
    return cmocka_run_group_tests_name("room", tests, harness_begin, harness_end);
}
