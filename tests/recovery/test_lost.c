/* The journal is lost while ceded and its restorer are dead: what they have suspended and swapped
 * out is found again without it, by the next ceded or when a person asks. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "both.h"
#include "gpu/registry.h"
#include "journal/journal.h"

enum { LAT, B1, B2, OUT, N };
static const char *const names[N] = {"lat", "b1", "b2", "out"};

enum loss { REMOVED, EMPTY, HALF, ZEROED, NO_GROUPS, LOSSES };

static void lose(enum loss how)
{
    char path[96];
    struct stat st;
    const off_t swaps = 4096 + (off_t)(JOURNAL_JOBS * sizeof(struct journal_job));
    snprintf(path, sizeof(path), "%s/journal", cede_home());
    assert_int_equal(stat(path, &st), 0);
    if (how == REMOVED)
        assert_int_equal(unlink(path), 0);
    if (how == EMPTY)
        assert_int_equal(truncate(path, 0), 0);
    if (how == HALF)
        assert_int_equal(truncate(path, st.st_size / 2), 0);
    if (how < ZEROED)
        return;
    /* The file as long as it was, with nothing in it, or without groups and swaps. */
    off_t from = how == ZEROED ? 0 : swaps;
    assert_int_equal(truncate(path, from), 0);
    assert_int_equal(truncate(path, st.st_size), 0);
}

static bool complete(void)
{
    struct journal *j;
    assert_int_equal(journal_open_readonly(cede_home(), &j, NULL), 0);
    bool is = journal_incomplete(j) == 0;
    journal_close(j);
    return is;
}

static void start_loads(pid_t pids[N])
{
    for (int i = 0; i < N; i++)
        pids[i] =
            i == LAT ? LOAD(names[i], "latency") : LOAD(names[i], "batch", "--memory", "33554432");
    AWAIT(all_have_contexts(pids, N));
}

/* A ceded that has one job paused and another swapped out loses its journal and is killed, with its
 * restorer. */
static void suspend_and_lose(const pid_t pids[N], enum loss how)
{
    struct ceded d = ceded_start();
    for (int i = 0; i < N; i++)
        CEDE("set", pid_text(pids[i]), "-c", i == LAT ? "latency" : "batch");
    CEDE("pause", pid_text(pids[B2]));
    CEDE("swap-out", pid_text(pids[OUT]));
    AWAIT(suspended(pids[B2]));
    kill_both(d.pid, d.restorer);
    lose(how);
}

static void no_child_but_loads(void)
{
    AWAIT(children_of(getpid(), NULL, 0) == N + 1 || (waitpid(-1, NULL, WNOHANG), false));
}

static void end_loads(const pid_t pids[N])
{
    for (int i = 0; i < N; i++)
        json_decref(load_end(names[i], pids[i]));
}

E2E(lost)
{
    pid_t pids[N];
    start_loads(pids);
    for (int how = 0; how < LOSSES; how++) {
        suspend_and_lose(pids, (enum loss)how);
        struct ceded d = ceded_start();
        if (how == NO_GROUPS) /* its job is known still, and that a person has paused it */
            CEDE("resume", pid_text(pids[B2]));
        await_progress(pids, N);
        AWAIT(complete());
        ceded_stop(&d);
        assert_int_equal(records(NULL), 0);
        assert_true(all_slices_default(pids, N));
        await_progress(pids, N);
    }
    end_loads(pids);
}

/* Killed again, both, at any moment while they look: the one after that looks again. */
E2E(killed_while_it_looks)
{
    pid_t pids[N];
    struct rng rng = {0x51a3c9d2e4b70f68};
    start_loads(pids);
    for (int round = 0; round < 6; round++) {
        suspend_and_lose(pids, REMOVED);
        for (int again = 0; again < 3; again++) {
            char config[96];
            snprintf(config, sizeof(config), "%s/cede.conf", harness_dir());
            pid_t pid = SPAWN("ceded", "cede", "daemon", "--config", config, "--dir", cede_home());
            usleep((useconds_t)rng_below(&rng, 60000));
            pid_t helpers[4];
            size_t n = children_of(pid, helpers, 4);
            kill(pid, SIGKILL);
            await_child(pid);
            for (size_t i = 0; i < n && i < 4; i++)
                kill(helpers[i], SIGKILL);
            no_child_but_loads();
        }
        struct ceded d = ceded_start();
        await_progress(pids, N);
        ceded_stop(&d);
        assert_true(all_slices_default(pids, N));
    }
    end_loads(pids);
}

/* As killed_while_it_looks, but it is told to end, and no other begins. */
E2E(ended_while_it_looks)
{
    pid_t pids[N];
    start_loads(pids);
    for (int round = 0; round < 6; round++) {
        suspend_and_lose(pids, REMOVED);
        struct ceded d = ceded_start();
        kill(d.pid, SIGTERM);
        assert_int_equal(await_child(d.pid), 0);
        await_progress(pids, N);
        AWAIT(complete());
        no_child_but_loads();
    }
    end_loads(pids);
}

static struct device_driver *soft_gpu(pid_t pid, struct proc_id *id)
{
    struct device_driver *d = NULL;
    struct proc_stat st;
    assert_int_equal(device_open("soft", NULL, &d, NULL), 0);
    assert_int_equal(proc_stat_read(pid, &st), 0);
    *id = st.id;
    return d;
}

static void suspend(pid_t pid)
{
    struct proc_id id;
    struct device_driver *d = soft_gpu(pid, &id);
    struct group_list l = {0};
    const struct device_group *g[8];
    assert_int_equal(d->ops->scan(d, id, &l, NULL), 0);
    assert_in_range(l.n, 1, 8);
    for (size_t k = 0; k < l.n; k++)
        g[k] = &l.v[k];
    assert_int_equal(d->ops->set_running(d, g, l.n, false, NULL), 0);
    group_list_free(&l);
    device_close(d);
}

static void swap_out(pid_t pid)
{
    struct proc_id id;
    struct device_driver *d = soft_gpu(pid, &id);
    assert_int_equal(d->ops->swap_step(d, id, SWAP_STEP_LOCK, 1000, NULL), 0);
    assert_int_equal(d->ops->swap_step(d, id, SWAP_STEP_OUT, 0, NULL), 0);
    device_close(d);
}

static bool runs(pid_t pid)
{
    double busy;
    measure(&pid, 1, 100, &busy);
    return busy > 0;
}

/* By verbs, of processes in no job and in one that knows nothing of it. */
E2E(asked_for)
{
    pid_t pids[N];
    start_loads(pids);
    struct ceded d = ceded_start();
    AWAIT(complete());
    suspend(pids[B1]);
    AWAIT(!runs(pids[B1]));
    CEDE("resume", pid_text(pids[B1]));
    AWAIT(runs(pids[B1]));
    assert_true(job_gone("b1")); /* it is in no job still */
    FAILS(1, "nothing of it was found on a GPU", "resume", pid_text(getpid()));

    swap_out(pids[OUT]);
    assert_false(runs(pids[OUT]));
    CEDE("swap-in", pid_text(pids[OUT]));
    AWAIT(runs(pids[OUT]));

    CEDE("set", pid_text(pids[B2]), "-c", "normal");
    suspend(pids[B2]);
    AWAIT(!runs(pids[B2]));
    CEDE("resume", pid_text(pids[B2]));
    AWAIT(runs(pids[B2]));
    ceded_stop(&d);

    /* And by a daemon that the verb starts. */
    suspend(pids[B1]);
    CEDE("resume", pid_text(pids[B1]));
    AWAIT(runs(pids[B1]));
    end_loads(pids);
}

/* On its way to host memory when all was lost, and paused by the next ceded, which is killed: its
 * groups are known, and yet it is not here. */
E2E(on_its_way)
{
    pid_t pids[N];
    start_loads(pids);
    pid_t swapper = fork();
    if (swapper == 0) {
        swap_out(pids[OUT]);
        _exit(0);
    }
    nap_ms(50);
    kill(swapper, SIGKILL);
    assert_int_equal(waitpid(swapper, NULL, 0), swapper);
    struct ceded d = ceded_start();
    RUN(&result, "cede", "pause", pid_text(pids[OUT]));
    const bool paused = status_of(result.status) == 0; /* it may have gone already */
    kill_both(d.pid, d.restorer);
    d = ceded_start();
    AWAIT(complete());
    if (paused) {
        AWAIT(!runs(pids[OUT])); /* or it has come in just now, and its groups are being found */
        CEDE("resume", pid_text(pids[OUT]));
    }
    AWAIT(runs(pids[OUT]));
    ceded_stop(&d);
    await_progress(pids, N);
    end_loads(pids);
}

/* A cede of another place has no record of what this one did: it refuses, and leaves it alone. */
E2E(another_cede)
{
    pid_t pids[N];
    char here[96], there[112];
    start_loads(pids);
    struct ceded d = ceded_start();
    CEDE("pause", pid_text(pids[B1]));
    AWAIT(!runs(pids[B1]));
    snprintf(here, sizeof(here), "%s", getenv("CEDE_DIR"));
    snprintf(there, sizeof(there), "%s/there", here);
    setenv("CEDE_DIR", there, 1);
    FAILS(1, here, "set", pid_text(pids[OUT]), "-c", "batch");
    setenv("CEDE_DIR", here, 1);
    assert_false(runs(pids[B1]));
    CEDE("resume", pid_text(pids[B1]));
    AWAIT(runs(pids[B1]));
    ceded_stop(&d);
    end_loads(pids);
}
