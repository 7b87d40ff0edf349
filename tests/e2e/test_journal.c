/* Who holds the journal, and what becomes of programs when it cannot be written or was damaged. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/registry.h"
#include "fixture.h"
#include "recovery/journal.h"

static void assert_names(const char *text, pid_t pid)
{
    char who[32];
    snprintf(who, sizeof(who), "(pid %d)", (int)pid);
    if (!strstr(text, who))
        fail_msg("'%s' does not name %s", text, who);
}

static void two_daemons(void **state)
{
    (void)state;
    char config[96];
    pid_t pids[2] = {LOAD("lat", "latency"), LOAD("b1", "batch")};
    assert_true(EVENTUALLY(all_have_contexts(pids, 2)));
    struct ceded d = ceded_start();
    CEDE("set", pid_text(pids[0]), "-c", "latency");
    CEDE("set", pid_text(pids[1]), "-c", "batch");
    long long number = job_int("b1", "number");

    snprintf(config, sizeof(config), "%s/cede.conf", harness_dir());
    RUN(&result, "cede", "daemon", "--config", config, "--dir", cede_home());
    assert_int_equal(status_of(result.status), 1);
    assert_names(result.err, d.pid);
    /* The device is the same, whatever the directory. */
    char elsewhere[96], own[128];
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", harness_dir());
    RUN(&result, "cede", "daemon", "--config", config, "--dir", elsewhere);
    assert_int_equal(status_of(result.status), 1);
    assert_names(result.err, d.pid);
    snprintf(own, sizeof(own), "(CEDE_DIR=%s)", cede_home());
    assert_non_null(strstr(result.err, own));
    /* A verb that would do it itself, too. */
    snprintf(own, sizeof(own), "CEDE_DIR=%s", elsewhere);
    RUN(&result, "env", own, harness_exe(), "pause", pid_text(pids[1]));
    assert_int_equal(status_of(result.status), 1);
    assert_names(result.err, d.pid);
    assert_false(suspended(pids[1]));
    assert_int_equal(job_int("b1", "number"), number); /* the first answers still */
    await_progress(pids, 2);
    ceded_stop(&d);
    assert_true(all_slices_default(pids, 2));
    json_decref(load_end("lat", pids[0]));
    json_decref(load_end("b1", pids[1]));
}

static bool says_socket(const char *name)
{
    return strstr(contents(name), "policy") != NULL;
}

/* Of three that start at once in directories of their own one stays. Killed, it keeps nobody from
 * starting. */
static void daemons_at_once(void **state)
{
    (void)state;
    enum { N = 3 };
    char config[96], dir[N][96], name[N][8], errs[N][16];
    pid_t pids[N];
    int stays = N;
    configure(200, "");
    snprintf(config, sizeof(config), "%s/cede.conf", harness_dir());
    for (int i = 0; i < N; i++) {
        snprintf(dir[i], sizeof(dir[i]), "%s/dir%d", harness_dir(), i);
        snprintf(name[i], sizeof(name[i]), "d%d", i);
        snprintf(errs[i], sizeof(errs[i]), "d%d.err", i);
        pids[i] = SPAWN(name[i], "cede", "daemon", "--config", config, "--dir", dir[i]);
    }
    for (int i = 0; i < N; i++) {
        assert_true(EVENTUALLY(says_socket(errs[i]) || strstr(contents(errs[i]), "another cede")));
        if (says_socket(errs[i])) {
            assert_int_equal(stays, N);
            stays = i;
        } else {
            assert_int_equal(await_child(pids[i]), 1);
        }
    }
    assert_in_range(stays, 0, N - 1);
    kill(pids[stays], SIGKILL);
    await_child(pids[stays]);
    pid_t next = SPAWN("next", "cede", "daemon", "--config", config, "--dir", dir[(stays + 1) % N]);
    assert_true(EVENTUALLY(says_socket("next.err")));
    kill(next, SIGTERM);
    assert_int_equal(await_child(next), 0);
}

static void many_runs_share_one(void **state)
{
    (void)state;
    enum { N = 8 };
    pid_t runners[N];
    char names[N][8];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "r%d", i);
        runners[i] = SPAWN(names[i], "cede", "run", "--strict", "--gpu-device", "soft", "-c",
                           i ? "batch" : "latency", "-n", names[i], "--", harness_exe(), "load",
                           i ? "batch" : "latency", "--device", "soft", "--verify");
    }
    json_t *all = NULL;
    assert_true(EVENTUALLY(({
        json_decref(all);
        all = ask("{\"v\":1,\"op\":\"ps\"}");
        json_array_size(json_object_get(all, "jobs")) == N;
    })));
    pid_t daemon = (pid_t)json_integer_value(json_object_get(all, "pid"));
    json_decref(all);
    assert_true(EVENTUALLY(children_named(getpid(), "ceded").living ==
                           1)); /* who came too late has given up */
    for (int i = 0; i < N; i++) {
        assert_int_equal(job_int(names[i], "pid"), runners[i]);
        assert_true(EVENTUALLY(job_int(names[i], "processes") == 1));
    }
    for (int i = 0; i < N; i++)
        json_decref(load_end(names[i], runners[i]));
    assert_int_equal(await_child(daemon), 0);
    assert_int_equal(records(NULL), 0);
}

/* ---- a full file system ---- */

/* A small file system that only this process and its children see. */
static void mount_small(const char *size)
{
    char dir[80], options[64];
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0)
        skip();
    snprintf(dir, sizeof(dir), "%s/small", harness_dir());
    snprintf(options, sizeof(options), "size=%s,mode=755", size);
    assert_int_equal(mkdir(dir, 0755), 0);
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("cede-test", dir, "tmpfs", 0, options) < 0)
        skip();
    set_cede_home(dir);
}

static void unmount_small(void)
{
    assert_int_equal(umount2(cede_home(), MNT_DETACH), 0);
}

static void no_room_for_a_journal(void **state)
{
    (void)state;
    char config[96];
    mount_small("64k");
    snprintf(config, sizeof(config), "%s/cede.conf", harness_dir());
    RUN(&result, "cede", "daemon", "--config", config, "--dir", cede_home());
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "No space left on device"));
    assert_non_null(strstr(result.err, cede_home()));

    pid_t pid = LOAD("b1", "batch");
    assert_true(EVENTUALLY(all_have_contexts(&pid, 1)));
    RUN(&result, "cede", "pause", pid_text(pid));
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "No space left on device"));
    await_progress(&pid, 1);
    json_decref(load_end("b1", pid));

    RUN(&result, "cede", "run", "--gpu-device", "soft", "-c", "batch", "--", "sh", "-c", "exit 7");
    assert_int_equal(status_of(result.status), 7);
    assert_non_null(strstr(result.err, "'sh' runs unscheduled: "));
    assert_non_null(strstr(result.err, "No space left on device"));
    unmount_small();
}

static void assert_refused(const char *verb, const char *target, const char *option,
                           const char *value)
{
    RUN(&result, "cede", verb, target, option, value);
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "No space left on device"));
}

static void journal_cannot_grow(void **state)
{
    (void)state;
    char path[96], block[4096] = {0};
    pid_t pids[3] = {LOAD("lat", "latency"), LOAD("b1", "batch"), LOAD("b2", "batch")};
    mount_small("4m");
    assert_true(EVENTUALLY(all_have_contexts(pids, 3)));
    struct ceded d = ceded_start();
    snprintf(path, sizeof(path), "%s/filler", cede_home());
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (write(fd, block, sizeof(block)) > 0)
        ;
    assert_int_equal(errno, ENOSPC);
    close(fd);
    for (int i = 0; i < 3; i++)
        assert_refused("set", pid_text(pids[i]), "-c", i ? "batch" : "latency");
    pid_t job = SPAWN("b3", "cede", "run", "-c", "batch", "-n", "b3", "--", harness_exe(), "load",
                      "batch", "--device", "soft");
    assert_true(EVENTUALLY(job_is("b3", "state", "running")));
    assert_non_null(strstr(contents("b3.err"), "No space left on device"));

    /* What cannot be done is not said to be done, and does not happen later. */
    assert_refused("pause", "b3", NULL, NULL);
    assert_refused("swap-out", "b3", NULL, NULL);
    assert_refused("set", "b3", "-c", "latency");
    assert_refused("set", "b3", "--gpu-max", "10%");
    assert_true(job_is("b3", "state", "running"));
    assert_true(job_is("b3", "class", "batch"));
    CEDE("resume", "b3");
    await_progress(pids, 3);
    assert_int_equal(records(NULL), 0);
    assert_true(all_slices_default(pids, 3));

    /* As soon as there is room, it goes on. */
    assert_int_equal(unlink(path), 0);
    for (int i = 0; i < 3; i++)
        CEDE("set", pid_text(pids[i]), "-c", i ? "batch" : "latency");
    assert_true(EVENTUALLY(somebody_suspended()));
    kill(job, SIGTERM);
    (void)await_child(job);
    ceded_stop(&d);
    assert_true(all_slices_default(pids, 3));
    json_decref(load_end("lat", pids[0]));
    json_decref(load_end("b1", pids[1]));
    json_decref(load_end("b2", pids[2]));
    unmount_small();
}

/* ceded and its restorer go on when the file is cut short under them; so whoever is killed then,
 * nobody stays suspended. */
static void cut_short(void **state)
{
    (void)state;
    char path[96];
    pid_t pids[2] = {LOAD("b1", "batch"), LOAD("b2", "batch")};
    assert_true(EVENTUALLY(all_have_contexts(pids, 2)));
    snprintf(path, sizeof(path), "%s/journal", cede_home());
    for (int made_anew = 0; made_anew < 2; made_anew++) {
        struct ceded d = ceded_start();
        CEDE("set", pid_text(pids[0]), "-c", "batch");
        CEDE("pause", "b1");
        assert_true(EVENTUALLY(somebody_suspended()));
        assert_int_equal(truncate(path, 0), 0);
        assert_true(!made_anew || EVENTUALLY(somebody_suspended()));
        CEDE("set", "b1", "-w", "50");
        ceded_kill(&d);
        await_progress(pids, 2);
        assert_true(EVENTUALLY(all_slices_default(pids, 2)));
    }
    json_decref(load_end("b1", pids[0]));
    json_decref(load_end("b2", pids[1]));
}

/* A limit on the size of files is an error as any other. */
static void file_too_large(void **state)
{
    (void)state;
    const struct rlimit few = {4096, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
    pid_t pids[2] = {LOAD("b1", "batch"), LOAD("b2", "batch")};
    assert_true(EVENTUALLY(all_have_contexts(pids, 2)));
    struct ceded d = ceded_start();
    assert_int_equal(prlimit(d.pid, RLIMIT_FSIZE, &few, NULL), 0);
    RUN(&result, "cede", "set", pid_text(pids[0]), "-c", "batch");
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "File too large"));
    await_progress(pids, 2);
    assert_int_equal(prlimit(d.pid, RLIMIT_FSIZE, &all, NULL), 0);
    for (int i = 0; i < 2; i++)
        CEDE("set", pid_text(pids[i]), "-c", "batch");
    CEDE("pause", "b1");
    assert_true(EVENTUALLY(somebody_suspended()));
    CEDE("resume", "b1");
    ceded_stop(&d);
    assert_true(all_slices_default(pids, 2));
    json_decref(load_end("b1", pids[0]));
    json_decref(load_end("b2", pids[1]));
}

/* ---- a damaged one ---- */

/* Each starts some ten processes. */
#define VARIANTS (SANITIZED || getenv("CEDE_TEST_QUICK") ? 50 : 200)

enum { LAT, B1, B2, B3, N };
static const char *const names[N] = {"lat", "b1", "b2", "b3"};

struct image {
    char *bytes;
    size_t size, groups; /* groups: where the first group record is */
};

static void journal_path(char *buf, size_t size)
{
    snprintf(buf, size, "%s/journal", cede_home());
}

static struct image take_image(void)
{
    char path[96];
    struct stat st;
    journal_path(path, sizeof(path));
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    struct image m = {malloc((size_t)st.st_size), (size_t)st.st_size,
                      4096 + JOURNAL_JOBS * sizeof(struct journal_job) +
                          JOURNAL_SWAPS * sizeof(struct journal_swap) +
                          JOURNAL_MEMBERS * sizeof(struct journal_member)};
    assert_non_null(m.bytes);
    assert_int_equal(read_full(fd, m.bytes, m.size), 0);
    assert_true(m.groups < m.size);
    return m;
}

/* Some in the header, some in records that are in use, some anywhere. */
static void put_damaged(const struct image *m, struct rng *rng)
{
    char path[96];
    char *bytes = malloc(m->size);
    assert_non_null(bytes);
    memcpy(bytes, m->bytes, m->size);
    for (uint64_t n = 1 + rng_below(rng, 32); n > 0; n--) {
        size_t at;
        switch (rng_below(rng, 8)) {
        case 0:
            at = rng_below(rng, 512);
            break;
        case 1:
        case 2:
            at = 4096 + rng_below(rng, N * sizeof(struct journal_job));
            break;
        case 3:
            at = rng_below(rng, m->size);
            break;
        default:
            at = m->groups + rng_below(rng, 4 * N * sizeof(struct journal_group));
        }
        bytes[at] ^= (char)(1U << rng_below(rng, 8));
    }
    journal_path(path, sizeof(path));
    unlink(path);
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    size_t size = rng_below(rng, 10) ? m->size : rng_below(rng, m->size); /* some cut short */
    assert_int_equal(write_full(fd, bytes, size), 0);
    free(bytes);
}

/* The device as the undamaged image tells it. */
static void put_device(const pid_t pids[N], const bool waits[N])
{
    struct device_driver *d = NULL;
    assert_int_equal(device_open("soft", NULL, &d, NULL), 0);
    for (int i = 0; i < N; i++) {
        struct proc_stat st;
        struct group_list l = {0};
        const struct device_group *g[8];
        assert_int_equal(proc_stat_read(pids[i], &st), 0);
        assert_int_equal(d->ops->scan(d, st.id, &l, NULL), 0);
        assert_int_equal(l.n, 4);
        for (size_t k = 0; k < l.n; k++)
            g[k] = &l.v[k];
        if (waits[i])
            assert_int_equal(d->ops->set_running(d, g, l.n, false, NULL), 0);
        group_list_free(&l);
    }
    device_close(d);
}

static bool shown_paused(pid_t pid)
{
    json_t *all = ask("{\"v\":1,\"op\":\"ps\"}"), *job;
    size_t i;
    bool paused = false;
    json_array_foreach(json_object_get(all, "jobs"), i, job)
    {
        if (json_integer_value(json_object_get(job, "pid")) == pid)
            paused = strcmp(json_string_value(json_object_get(job, "state")), "paused") == 0;
    }
    json_decref(all);
    return paused;
}

static void damaged(void **state)
{
    (void)state;
    pid_t pids[N];
    bool waits[N];
    struct rng rng = {0x9e3779b97f4a7c15};
    for (int i = 0; i < N; i++)
        pids[i] = i == LAT ? LOAD(names[i], "latency") : LOAD(names[i], "batch");
    assert_true(EVENTUALLY(all_have_contexts(pids, N)));
    configure(1000, "");
    struct ceded d = ceded_start();
    for (int i = 0; i < N; i++)
        CEDE("set", pid_text(pids[i]), "-c", i == LAT ? "latency" : "batch");
    CEDE("pause", names[B3]);
    assert_true(EVENTUALLY(suspended(pids[B1]) || suspended(pids[B2])));
    kill(d.pid, SIGSTOP);
    await_state(d.pid, "T");
    struct image image = take_image();
    for (int i = 0; i < N; i++)
        waits[i] = suspended(pids[i]);
    ceded_kill(&d);
    configure(10, "");

    for (int variant = 0; variant < VARIANTS; variant++) {
        put_damaged(&image, &rng);
        put_device(pids, waits);
        d = ceded_start();
        /* Who runs; damage may have made a job of the wrong class, or forgotten it. */
        pid_t running[N];
        size_t n = 0;
        for (int i = 0; i < N; i++) {
            if (!shown_paused(pids[i]))
                running[n++] = pids[i];
        }
        await_progress(running, n);
        ceded_stop(&d);
        await_progress(pids, N);
        assert_true(all_slices_default(pids, N));
    }
    free(image.bytes);
    for (int i = 0; i < N; i++)
        json_decref(load_end(names[i], pids[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        e2e(two_daemons),         e2e(daemons_at_once),
        e2e(many_runs_share_one), e2e(no_room_for_a_journal),
        e2e(journal_cannot_grow), e2e(cut_short),
        e2e(file_too_large),      e2e(damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
