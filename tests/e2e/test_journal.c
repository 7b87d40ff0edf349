/* Who holds the journal, and what becomes of programs when it cannot be written or was damaged. */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "fixture.h"
#include "gpu/registry.h"
#include "journal/journal.h"

enum { LAT, B1, B2, B3, N };
static const char *const names[N] = {"lat", "b1", "b2", "b3"};

E2E(two_daemons)
{
    pid_t pids[2];
    loads_start(2, names, pids);
    struct ceded d = ceded_start();
    become_jobs(2, names, pids);
    long long number = job_int("b1", "number");

    char who[32], own[128];
    snprintf(who, sizeof(who), "(pid %d)", (int)d.pid);
    FAILS(1, who, "daemon", "--config", in_dir("cede.conf"), "--dir", cede_home());
    /* The device is the same, whatever the directory. */
    FAILS(1, who, "daemon", "--config", in_dir("cede.conf"), "--dir", in_dir("elsewhere"));
    snprintf(own, sizeof(own), "(CEDE_DIR=%s)", cede_home());
    assert_non_null(strstr(result.err, own));
    /* A verb that would do it itself, too. */
    setenv("CEDE_DIR", in_dir("elsewhere"), 1);
    FAILS(1, who, "pause", pid_text(pids[1]));
    setenv("CEDE_DIR", cede_home(), 1);
    assert_false(suspended(pids[1]));
    assert_int_equal(job_int("b1", "number"), number); /* the first answers still */
    await_progress(pids, 2);
    ceded_stop(&d);
    assert_true(all_slices_default(pids, 2));
    loads_end(2, names, pids);
}

static bool says_socket(const char *name)
{
    return strstr(contents(name), "policy") != NULL;
}

/* Of three that start at once in directories of their own one stays. Killed, it keeps nobody from
 * starting. */
E2E(daemons_at_once)
{
    enum { DAEMONS = 3 };
    char dir[DAEMONS][96], name[DAEMONS][8], errs[DAEMONS][16];
    pid_t pids[DAEMONS];
    int stays = DAEMONS;
    configure(200, "");
    for (int i = 0; i < DAEMONS; i++) {
        snprintf(dir[i], sizeof(dir[i]), "%s/dir%d", harness_dir(), i);
        snprintf(name[i], sizeof(name[i]), "d%d", i);
        snprintf(errs[i], sizeof(errs[i]), "d%d.err", i);
        pids[i] =
            SPAWN(name[i], "cede", "daemon", "--config", in_dir("cede.conf"), "--dir", dir[i]);
    }
    for (int i = 0; i < DAEMONS; i++) {
        AWAIT(says_socket(errs[i]) || strstr(contents(errs[i]), "another cede"));
        if (says_socket(errs[i])) {
            assert_int_equal(stays, DAEMONS);
            stays = i;
        } else {
            assert_int_equal(await_child(pids[i]), 1);
        }
    }
    assert_in_range(stays, 0, DAEMONS - 1);
    slay_child(pids[stays]);
    pid_t next = SPAWN("next", "cede", "daemon", "--config", in_dir("cede.conf"), "--dir",
                       dir[(stays + 1) % DAEMONS]);
    AWAIT(says_socket("next.err"));
    kill(next, SIGTERM);
    assert_int_equal(await_child(next), 0);
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

E2E(no_room_for_a_journal)
{
    mount_small("64k");
    FAILS(1, "No space left on device", "daemon", "--config", in_dir("cede.conf"), "--dir",
          cede_home());
    assert_non_null(strstr(result.err, cede_home()));

    pid_t pid = LOAD("b1", "batch");
    AWAIT(all_have_contexts(&pid, 1));
    FAILS(1, "No space left on device", "pause", pid_text(pid));
    await_progress(&pid, 1);
    json_decref(load_end("b1", pid));

    FAILS(7, "'sh' runs unscheduled: ", "run", "--gpu-device", "soft", "-c", "batch", "--", "sh",
          "-c", "exit 7");
    assert_non_null(strstr(result.err, "No space left on device"));
    unmount_small();
}

E2E(journal_cannot_grow)
{
    char path[96], block[4096] = {0};
    pid_t pids[3];
    loads_start(3, names, pids);
    mount_small("4m");
    struct ceded d = ceded_start();
    snprintf(path, sizeof(path), "%s/filler", cede_home());
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (write(fd, block, sizeof(block)) > 0)
        ;
    assert_int_equal(errno, ENOSPC);
    close(fd);
    for (int i = 0; i < 3; i++)
        FAILS(1, "No space left on device", "set", pid_text(pids[i]), "-c",
              i ? "batch" : "latency");
    pid_t job = SPAWN("b3", "cede", "run", "-c", "batch", "-n", "b3", "--", harness_exe(), "load",
                      "batch", "--device", "soft");
    AWAIT(job_is("b3", "state", "running"));
    assert_non_null(strstr(contents("b3.err"), "No space left on device"));

    /* What cannot be done is not said to be done, and does not happen later. */
    FAILS(1, "No space left on device", "pause", "b3");
    FAILS(1, "No space left on device", "swap-out", "b3");
    FAILS(1, "No space left on device", "set", "b3", "-c", "latency");
    FAILS(1, "No space left on device", "set", "b3", "--gpu-max", "10%");
    assert_true(job_is("b3", "state", "running"));
    assert_true(job_is("b3", "class", "batch"));
    CEDE("resume", "b3");
    await_progress(pids, 3);
    assert_int_equal(records(NULL), 0);
    assert_true(all_slices_default(pids, 3));

    /* As soon as there is room, it goes on. */
    assert_int_equal(unlink(path), 0);
    become_jobs(3, names, pids);
    AWAIT(somebody_suspended());
    kill(job, SIGTERM);
    (void)await_child(job);
    ceded_stop(&d);
    assert_true(all_slices_default(pids, 3));
    loads_end(3, names, pids);
    unmount_small();
}

/* ceded and its restorer go on when the file is cut short under them; so whoever is killed then,
 * nobody stays suspended. */
E2E(cut_short)
{
    pid_t pids[2];
    loads_start(2, names + B1, pids);
    for (int made_anew = 0; made_anew < 2; made_anew++) {
        struct ceded d = ceded_start();
        CEDE("set", pid_text(pids[0]), "-c", "batch");
        CEDE("pause", "b1");
        AWAIT(somebody_suspended());
        assert_int_equal(truncate(in_dir("journal"), 0), 0);
        assert_true(!made_anew || EVENTUALLY(somebody_suspended()));
        CEDE("set", "b1", "-w", "50");
        ceded_kill(&d);
        await_progress(pids, 2);
        AWAIT(all_slices_default(pids, 2));
    }
    loads_end(2, names + B1, pids);
}

/* A limit on the size of files is an error as any other. */
E2E(file_too_large)
{
    const struct rlimit few = {4096, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
    pid_t pids[2];
    loads_start(2, names + B1, pids);
    struct ceded d = ceded_start();
    assert_int_equal(prlimit(d.pid, RLIMIT_FSIZE, &few, NULL), 0);
    FAILS(1, "File too large", "set", pid_text(pids[0]), "-c", "batch");
    await_progress(pids, 2);
    assert_int_equal(prlimit(d.pid, RLIMIT_FSIZE, &all, NULL), 0);
    become_jobs(2, names + B1, pids);
    CEDE("pause", "b1");
    AWAIT(somebody_suspended());
    CEDE("resume", "b1");
    ceded_stop(&d);
    assert_true(all_slices_default(pids, 2));
    loads_end(2, names + B1, pids);
}

/* ---- a damaged one ---- */

/* Each starts some ten processes. */
#define VARIANTS (SANITIZED || getenv("CEDE_TEST_QUICK") ? 50 : 100)

struct image {
    char *bytes;
    size_t size, groups; /* groups: where the first group record is */
};

static struct image take_image(void)
{
    struct stat st;
    _cleanup_close_ int fd = open(in_dir("journal"), O_RDONLY | O_CLOEXEC);
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
    unlink(in_dir("journal"));
    _cleanup_close_ int fd = open(in_dir("journal"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
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
    json_t *all = ask_jobs(), *job;
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

E2E(damaged)
{
    pid_t pids[N];
    bool waits[N];
    struct rng rng = {0x9e3779b97f4a7c15};
    loads_start(N, names, pids);
    configure(1000, "");
    struct ceded d = ceded_start();
    become_jobs(N, names, pids);
    CEDE("pause", names[B3]);
    AWAIT(suspended(pids[B1]) || suspended(pids[B2]));
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
    loads_end(N, names, pids);
}
