/* A configuration that names users and groups, and a directory service that does not answer: nobody
 * waits for it but the configuration. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "both.h"
#include "journal/journal.h"

enum { LAT, B1, B2, N };
static const char *const names[N] = {"lat", "b1", "b2"};
static char slow[96], asked[128];

static void stop_answering(void)
{
    unlink(asked);
    int fd = open(slow, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void answer(void)
{
    assert_int_equal(unlink(slow), 0);
}

static bool is_asked(void)
{
    return access(asked, F_OK) == 0;
}

static void configure_policy(const char *name)
{
    char more[160];
    snprintf(more, sizeof(more),
             "name = %s\n[rule of root]\nuid = root\nexe = /nothing\nclass = batch\n", name);
    configure(20, more);
}

/* It may still wait for the directory service. */
static pid_t spawn_ceded(void)
{
    setenv("LD_PRELOAD", getenv("SLOW_DIRECTORY"), 1);
    const pid_t pid = SPAWN("ceded", "cede", "daemon", "--config", harness_file("cede.conf"),
                            "--dir", cede_home());
    unsetenv("LD_PRELOAD");
    return pid;
}

static struct ceded start(void)
{
    setenv("LD_PRELOAD", getenv("SLOW_DIRECTORY"), 1);
    struct ceded d = ceded_start();
    unsetenv("LD_PRELOAD");
    return d;
}

/* How often somebody has undone everything. */
static uint64_t restored(void)
{
    struct journal *j;
    assert_int_equal(journal_open_readonly(cede_home(), &j, NULL), 0);
    uint64_t n = journal_shared(j)->restored;
    journal_close(j);
    return n;
}

static bool policy_is(const char *name)
{
    json_t *all = ask("{\"v\":1,\"op\":\"ps\"}");
    const char *policy = json_string_value(json_object_get(all, "policy"));
    bool is = policy && strcmp(policy, name) == 0;
    json_decref(all);
    return is;
}

static struct ceded begin(pid_t pids[N])
{
    snprintf(slow, sizeof(slow), "%s/slow", harness_dir());
    snprintf(asked, sizeof(asked), "%s/slow.asked", harness_dir());
    setenv("CEDE_TEST_SLOW", slow, 1);
    for (int i = 0; i < N; i++)
        pids[i] = i == LAT ? LOAD(names[i], "latency") : LOAD(names[i], "batch");
    AWAIT(all_have_contexts(pids, N));
    configure_policy("priority");
    struct ceded d = start();
    for (int i = 0; i < N; i++)
        CEDE("set", pid_text(pids[i]), "-c", i == LAT ? "latency" : "batch");
    AWAIT(somebody_suspended());
    return d;
}

static void end(const pid_t pids[N])
{
    assert_int_equal(records(NULL), 0);
    assert_true(all_slices_default(pids, N));
    for (int i = 0; i < N; i++)
        json_decref(load_end(names[i], pids[i]));
}

E2E(reload)
{
    pid_t pids[N];
    struct ceded d = begin(pids);
    uint64_t before = restored();
    stop_answering();
    configure_policy("edf");
    kill(d.pid, SIGHUP);
    AWAIT(is_asked());
    /* Turns are taken as before, and people are answered. */
    await_progress(pids, N);
    assert_true(policy_is("priority"));
    assert_int_equal(restored(), before);
    /* The file as it is at the last signal counts. */
    configure_policy("shares");
    kill(d.pid, SIGHUP);
    assert_true(policy_is("priority"));
    answer();
    AWAIT(policy_is("shares"));
    AWAIT(children_of(d.pid, NULL, 0) == 2); /* restorer, cede-identify */

    /* Rubbish leaves what is in force. */
    configure(20, "rubbish\n");
    kill(d.pid, SIGHUP);
    AWAIT(strstr(contents("ceded.err"), "the old configuration stays"));
    assert_true(policy_is("shares"));

    /* It leaves without having heard. */
    configure_policy("edf");
    stop_answering();
    kill(d.pid, SIGHUP);
    AWAIT(is_asked());
    ceded_stop(&d);
    answer();
    end(pids);
}

/* Whoever waits for an answer keeps nobody from taking over. */
E2E(killed_while_it_reads)
{
    pid_t pids[N];
    struct ceded d = begin(pids);
    stop_answering();
    kill(d.pid, SIGHUP);
    AWAIT(is_asked());
    ceded_kill(&d);
    assert_int_equal(records(NULL), 0);
    await_progress(pids, N);
    answer();
    d = start();
    AWAIT(somebody_suspended());
    ceded_stop(&d);
    end(pids);
}

/* What a killed ceded and its restorer left suspended does not wait for the next one's
 * configuration. */
E2E(slow_start)
{
    pid_t pids[N], reader;
    struct ceded d = begin(pids);
    CEDE("pause", "b2");
    AWAIT(suspended(pids[B2]));
    kill_both(d.pid, d.restorer);
    assert_true(suspended(pids[B2]));

    stop_answering();
    d.pid = spawn_ceded();
    AWAIT(is_asked());
    await_progress(pids, N);
    AWAIT(records(NULL) == 0);
    answer();
    AWAIT(job_is("b2", "state", "paused"));
    CEDE("resume", "b2");
    ceded_stop(&d);
    end(pids);

    /* Nothing is wrong with the configuration: its service starts it again. */
    stop_answering();
    d.pid = spawn_ceded();
    AWAIT(is_asked());
    AWAIT(children_of(d.pid, &reader, 1) == 1);
    kill(reader, SIGKILL);
    assert_int_equal(await_child(d.pid), 1);
    answer();
}
