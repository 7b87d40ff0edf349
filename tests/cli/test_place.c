/* What `cede run --gpus` asks, what becomes of its environment, and what it does with a daemon that
 * chooses no GPUs. The daemon is a stand-in. */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

static struct result r;

#define OK      "{\"v\":1,\"ok\":true"
#define ADDED   OK ",\"job\":{\"number\":12}}"
#define CHOSEN  OK ",\"job\":{\"number\":12},\"visible\":\"GPU-b\"}"
#define WAITS   OK ",\"job\":{\"number\":12,\"room\":false},\"visible\":\"GPU-a\"}"
#define ROOM    OK ",\"jobs\":[{\"number\":12,\"room\":true}]}"
#define GONE    OK ",\"jobs\":[]}"
#define NO(n)   "{\"v\":1,\"ok\":false,\"errno\":" #n ",\"error\":"
#define OLD     NO(22) "\"unknown field 'gpus': add takes pid, class\"}"
#define NONE    NO(95) "\"no GPU here can be chosen\"}"
#define TOO_FEW NO(7) "\"3 GPUs are wanted\"}"
#define UNKNOWN NO(22) "\"CUDA_VISIBLE_DEVICES lists 7\"}"

static const struct {
    const char *set, *args[4], *replies[4];
    int status;
    const char *out, *err;
} rows[] = {
    {NULL, {"--gpus=1"}, {CHOSEN}, 0, "GPU-b\n", ""},
    {"0,1",
     {"--gpus=1"},
     {CHOSEN},
     0,
     "GPU-b\n",
     "cede: note: of CUDA_VISIBLE_DEVICES=0,1 the program gets GPU-b\n"},
    {"0,1", {"-q", "--gpus=1"}, {CHOSEN}, 0, "GPU-b\n", ""},
    {"GPU-b", {"--gpus=1"}, {CHOSEN}, 0, "GPU-b\n", ""},
    {"0,1", {"-q"}, {CHOSEN}, 0, "0,1\n", ""}, /* nobody asked for it */
    /* While it waits for memory it is given another; unless it was detached meanwhile. */
    {NULL, {"-q", "--gpus=1", "--memory=2G"}, {WAITS, ROOM, CHOSEN}, 0, "GPU-b\n", ""},
    {NULL, {"-q", "--gpus=1", "--memory=2G"}, {WAITS, GONE, CHOSEN}, 0, "GPU-a\n", ""},
    {NULL,
     {"-q", "--gpus=1", "--memory=2G", "--wait=0"},
     {WAITS, ADDED, CHOSEN},
     0,
     "GPU-b\n",
     "cede: 'sh' runs anyway: 2.0 GiB were not free on GPU 0"},
    /* One that knows nothing of GPUs, or has none: the job is scheduled all the same. */
    {"0,1",
     {"--gpus=1"},
     {OLD, ADDED},
     0,
     "0,1\n",
     "cede: 'sh' runs with no GPU chosen for it: unknown field 'gpus'"},
    {NULL,
     {"--gpus=1"},
     {NONE, ADDED},
     0,
     "unset\n",
     "cede: 'sh' runs with no GPU chosen for it: no GPU here can be chosen\n"},
    {NULL,
     {"--gpus=1", "--strict"},
     {NONE, ADDED},
     1,
     "",
     "cede: 'sh' was not run: no GPU here can be chosen\n"},
    {NULL, {"--gpus=1", "--strict"}, {OLD, ADDED}, 1, "", "cede: 'sh' was not run: unknown field"},
    /* It cannot be. */
    {NULL, {"--gpus=3"}, {TOO_FEW, ADDED}, 2, "", "cede: 'sh' was not run: 3 GPUs are wanted\n"},
    {"7",
     {"--gpus=1"},
     {UNKNOWN, ADDED},
     2,
     "",
     "cede: 'sh' was not run: CUDA_VISIBLE_DEVICES lists 7\n"},
    {NULL, {"--gpus=0"}, {NULL}, 2, "", "'0' is not a number of GPUs from 1 to 16, or auto"},
    {NULL, {"--gpus=17"}, {NULL}, 2, "", "'17' is not a number of GPUs"},
    {NULL, {"--gpus=all"}, {NULL}, 2, "", "'all' is not a number of GPUs"},
    {NULL, {"--gpus=1", "--memory=2G@0"}, {NULL}, 2, "", "leave out its number"},
    {NULL, {"--gpus=2", "--memory=2G"}, {NULL}, 2, "", "memory is waited for on one GPU only"},
};

static void runs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *argv[12] = {"cede", "run"};
        size_t n = 2;
        for (size_t k = 0; k < 4 && rows[i].args[k]; k++)
            argv[n++] = rows[i].args[k];
        argv[n++] = "sh";
        argv[n++] = "-c";
        argv[n] = "echo ${CUDA_VISIBLE_DEVICES-unset}";
        if (rows[i].set)
            setenv("CUDA_VISIBLE_DEVICES", rows[i].set, 1);
        pid_t daemon = fake_daemon((uid_t)-1, rows[i].replies);
        run_program(&r, NULL, argv);
        free(fake_daemon_end(daemon));
        unsetenv("CUDA_VISIBLE_DEVICES");
        if (status_of(r.status) != rows[i].status || strcmp(r.out, rows[i].out) != 0 ||
            !strstr(r.err, rows[i].err) || (!rows[i].err[0] && r.err[0]))
            fail_msg("row %zu: status %d: %s%s", i, status_of(r.status), r.out, r.err);
    }
}

/* The daemon is asked with the list that is set. */
static void asks(void **state)
{
    (void)state;
    setenv("CUDA_VISIBLE_DEVICES", "0, 1", 1);
    pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){CHOSEN, NULL});
    RUN(&r, "cede", "run", "--gpus", "auto", "true");
    unsetenv("CUDA_VISIBLE_DEVICES");
    char *asked = fake_daemon_end(daemon);
    assert_non_null(strstr(asked, "\"gpus\":1,\"visible\":\"0, 1\""));
    free(asked);

    char list[1100];
    memset(list, '0', sizeof(list) - 1);
    list[sizeof(list) - 1] = '\0';
    setenv("CUDA_VISIBLE_DEVICES", list, 1);
    RUN(&r, "cede", "run", "--gpus", "1", "true");
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_int_equal(status_of(r.status), 2);
    assert_non_null(strstr(r.err, "CUDA_VISIBLE_DEVICES is longer than 1023 bytes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(runs), cmocka_unit_test(asks)};
    return cmocka_run_group_tests_name("place", tests, harness_begin, harness_end);
}
