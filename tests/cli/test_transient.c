/* Many `cede run` at once on a machine where no daemon runs: all of them are scheduled, whatever
 * another's daemon is at just then. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

#define RUNNERS 10
#define TIMES   "30"

static struct result r;

static const char *file_in(const char *name)
{
    static char path[120];
    snprintf(path, sizeof(path), "%s/%s", harness_dir(), name);
    return path;
}

/* Daemons begin and end all the time. */
static void many_at_once(void **state)
{
    (void)state;
    static const char script[] =
        "i=0; while [ $i -lt " TIMES " ]; do "
        "\"$CEDE_EXE\" run --strict -q --gpu-device gate true || exit 1; i=$((i + 1)); done";
    pid_t v[RUNNERS];
    for (int i = 0; i < RUNNERS; i++)
        v[i] = harness_start((const char *const[]){"sh", "-c", script, NULL}, -1, -1, 2, false);
    for (int i = 0; i < RUNNERS; i++) {
        int st;
        assert_int_equal(waitpid(v[i], &st, 0), v[i]);
        assert_int_equal(status_of(st), 0);
    }
}

static bool log_says(const char *what)
{
    RUN(&r, "cat", file_in("log"));
    return strstr(r.out, what);
}

static void await_log(const char *what)
{
    for (int i = 0; i < 2000 && !log_says(what); i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_true(log_says(what));
}

static int lock_held(void)
{
    int fd = open(file_in("lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    return fd;
}

static pid_t runner_started(void)
{
    return harness_start((const char *const[]){"cede", "run", "--strict", "-q", "--gpu-device",
                                               "gate", "true", NULL},
                         -1, -1, 2, false);
}

/* The daemon that it started has come and gone before it looks again. */
static void misses_its_own_daemon(void **state)
{
    (void)state;
    int lock = lock_held(), st;
    pid_t runner = runner_started();
    for (int i = 0; i < 2000 && access(file_in("log"), F_OK) < 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* it is executed */
    kill(runner, SIGSTOP);
    await_state(runner, "T");
    close(lock);
    await_log("no job came");
    kill(runner, SIGCONT);
    assert_int_equal(waitpid(runner, &st, 0), runner);
    assert_int_equal(status_of(st), 0);
}

/* One that ends has the lock for longer than the next daemon waits. */
static void predecessor_takes_long(void **state)
{
    (void)state;
    int lock = lock_held(), st;
    pid_t runner = runner_started();
    await_log("another cede");
    close(lock);
    assert_int_equal(waitpid(runner, &st, 0), runner);
    assert_int_equal(status_of(st), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(predecessor_takes_long, harness_begin, harness_end),
        cmocka_unit_test_setup_teardown(misses_its_own_daemon, harness_begin, harness_end),
        cmocka_unit_test_setup_teardown(many_at_once, harness_begin, harness_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
