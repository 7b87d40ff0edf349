/* What the environment says to `cede run` where its options say nothing; a stand-in for the daemon
 * shows what was asked for. */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

static struct result r;

static const struct {
    const char *class, *weight, *name, *pool; /* NULL: not in the environment */
    const char *option, *value;               /* and on the command line; NULL: none */
    const char *asked[3];                     /* what the request has; NULL: no more */
    const char *says;                         /* on standard error; "" nothing of the variables */
} rows[] = {
    {NULL, NULL, NULL, NULL, NULL, NULL, {"\"class\":\"normal\""}, ""},
    {"batch",
     "40",
     "nightly",
     NULL,
     NULL,
     NULL,
     {"\"class\":\"batch\"", "\"weight\":40", "\"name\":\"nightly\""},
     ""},
    {"batch", "40", NULL, NULL, "-c", "latency", {"\"class\":\"latency\"", "\"weight\":40"}, ""},
    {"batch", "40", NULL, NULL, "-w", "300", {"\"class\":\"batch\"", "\"weight\":300"}, ""},
    {"batch", NULL, "x", NULL, "-n", "y", {"\"name\":\"y\""}, ""},
    {"latency", NULL, NULL, NULL, NULL, NULL, {"\"class\":\"normal\""}, "give -c latency"},
    {"Batch", NULL, NULL, NULL, NULL, NULL, {"\"class\":\"normal\""}, "CEDE_CLASS has no effect"},
    {"", "", "", "", NULL, NULL, {"\"class\":\"normal\"", "\"name\":\"echo\""}, ""},
    {"batch",
     "300",
     NULL,
     NULL,
     NULL,
     NULL,
     {"\"class\":\"batch\""},
     "CEDE_WEIGHT=300 has no effect"},
    {"batch", NULL, "12", NULL, NULL, NULL, {"\"name\":\"echo\""}, "CEDE_NAME has no effect"},
    /* The stand-in has no pool: it is asked for, or not. */
    {"batch", NULL, NULL, "1", NULL, NULL, {"\"class\":\"batch\""}, "runs outside of a pool"},
    {"batch", NULL, NULL, "0", NULL, NULL, {"\"class\":\"batch\""}, ""},
    {"normal", NULL, NULL, "1", NULL, NULL, {"\"class\":\"normal\""}, ""},
    {"batch", NULL, NULL, "1", "--preempt", "block", {"\"preempt\":\"block\""}, ""},
};

static void put(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void run_reads_the_environment(void **state)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        put("CEDE_CLASS", rows[i].class);
        put("CEDE_WEIGHT", rows[i].weight);
        put("CEDE_NAME", rows[i].name);
        put("CEDE_POOL", rows[i].pool);
        pid_t daemon = fake_daemon((uid_t)-1, (const char *const[]){"{\"v\":1,\"ok\":true}", NULL});
        if (rows[i].option)
            RUN(&r, "cede", "run", rows[i].option, rows[i].value, "echo", "ran");
        else
            RUN(&r, "cede", "run", "echo", "ran");
        char *asked = fake_daemon_end(daemon);
        for (size_t k = 0; k < 3 && rows[i].asked[k]; k++) {
            if (!strstr(asked, rows[i].asked[k]))
                fail_msg("row %zu: %s is not in %s", i, rows[i].asked[k], asked);
        }
        if (!rows[i].weight && strstr(asked, "weight"))
            fail_msg("row %zu: %s", i, asked);
        free(asked);
        if (!strstr(r.err, rows[i].says) || (!rows[i].says[0] && r.err[0]))
            fail_msg("row %zu: %s", i, r.err);
        assert_int_equal(status_of(r.status), 0);
        assert_string_equal(r.out, "ran\n");
    }
}

#define HANDED_OVER(pid)                                                                           \
    "exec 3</dev/null; LISTEN_PID=" pid " LISTEN_FDS=1 LISTEN_PIDFDID=7 WATCHDOG_PID=" pid         \
    " exec \"$CEDE_EXE\" run --gpu-device soft sh -c 'echo $((LISTEN_PID == $$)) "                 \
    "$((WATCHDOG_PID == $$)) $LISTEN_FDS ${LISTEN_PIDFDID-none} $(readlink /proc/$$/fd/3)'"

/* What systemd says to the process that it starts is for the program, and what is for another
 * process stays so. */
static void sockets_handed_over(void **state)
{
    (void)state;
    RUN(&r, "sh", "-c", HANDED_OVER("$$"));
    assert_string_equal(r.out, "1 1 1 none /dev/null\n");
    RUN(&r, "sh", "-c", HANDED_OVER("$PPID"));
    assert_string_equal(r.out, "0 0 1 7 /dev/null\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(run_reads_the_environment),
                                       cmocka_unit_test(sockets_handed_over)};
    return cmocka_run_group_tests(tests, harness_begin, harness_end);
}
