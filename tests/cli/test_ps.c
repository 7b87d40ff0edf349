/* What the table of cede ps calls the devices. The daemon is a stand-in. */
#include <stdlib.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(devices)};
    return cmocka_run_group_tests_name("ps", tests, harness_begin, harness_end);
}
