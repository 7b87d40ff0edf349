/* Many `cede run` at once on a machine where no daemon runs: all of them are scheduled, whatever
 * another's daemon is at just then. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

#define RUNNERS 10
#define TIMES   "30"

static struct result r;

static bool log_says(const char *what)
{
    RUN(&r, "cat", harness_file("log"));
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
    int fd = open(harness_file("lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    return fd;
}

static pid_t runner_started(void)
{
    return harness_start((const char *const[]){"cede", "run", "--strict", "-q", "--gpu-device",
                                               "gate", "true", NULL},
                         -1, -1, 2, false);
}

/* One that ends has the lock for longer than the next daemon waits. */
TEST_WITH(predecessor_takes_long, harness_begin, harness_end)
{
    int lock = lock_held();
    pid_t runner = runner_started();
    await_log("another cede");
    close(lock);
    ends_with(runner, 0);
}

/* The daemon that it started has come and gone before it looks again. */
TEST_WITH(misses_its_own_daemon, harness_begin, harness_end)
{
    int lock = lock_held();
    pid_t runner = runner_started();
    for (int i = 0; i < 2000 && access(harness_file("log"), F_OK) < 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); /* it is executed */
    kill(runner, SIGSTOP);
    await_state(runner, "T");
    close(lock);
    await_log("no job came");
    kill(runner, SIGCONT);
    ends_with(runner, 0);
}

/* Daemons begin and end all the time. */
TEST_WITH(many_at_once, harness_begin, harness_end)
{
    static const char script[] =
        "i=0; while [ $i -lt " TIMES " ]; do "
        "\"$CEDE_EXE\" run --strict -q --gpu-device gate true || exit 1; i=$((i + 1)); done";
    pid_t v[RUNNERS];
    for (int i = 0; i < RUNNERS; i++)
        v[i] = harness_start((const char *const[]){"sh", "-c", script, NULL}, -1, -1, 2, false);
    for (int i = 0; i < RUNNERS; i++)
        ends_with(v[i], 0);
}

int main(void)
{
    return test_run(NULL, NULL);
}
