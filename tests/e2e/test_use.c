/* What people do with it: pausing, releasing, shares, a ceiling; that clients that misbehave
 * disturb none of it; and jobs in containers. Shares are times of the device. A latency program
 * beside a batch program: cli_demo. */
#include <sys/socket.h>

#include "fixture.h"

/* ---- pausing, releasing, shares ---- */

enum { A, B, N };

/* Engine time of a job so far, as `cede ps` counts it; and the part that is exact. */
static double counted(const char *job, double *exact)
{
    *exact = job_number(job, "counts.gpus.0.exact_s");
    return job_number(job, "counts.gpus.0.gpu_s");
}

static void steer(const pid_t pids[N])
{
    char number[24];
    double busy[N];
    for (int i = 0; i < N; i++)
        CEDE("set", pid_text(pids[i]), "-w", i == A ? "300" : "100");
    snprintf(number, sizeof(number), "#%lld", job_int("b", "number"));
    const char *const targets[] = {pid_text(pids[B]), "b", number};
    for (size_t i = 0; i < 3; i++) {
        CEDE("pause", targets[i]);
        assert_true(job_is("b", "state", "paused"));
        measure(&pids[B], 1, 100, busy);
        assert_true(busy[0] == 0);
        await_progress(&pids[A], 1);
        CEDE("resume", targets[i]);
        await_progress(&pids[B], 1);
    }

    CEDE("policy", "shares");
    nap_ms(200); /* queues fill, and the round that was under way ends */
    measure(pids, N, 2400, busy);
    double ratio = busy[A] / busy[B];
    if (!(ratio > 2.4 && ratio < 3.6))
        fail_msg("300:100 gives %.3f:%.3f", busy[A], busy[B]);

    /* A ceiling leaves the rest to the other; without one nothing of it stays. */
    CEDE("policy", "priority");
    CEDE("set", "a", "--gpu-max", "20%");
    assert_int_equal(job_int("a", "gpu_max"), 20);
    nap_ms(200);
    double exact[N], was[N] = {counted("a", &exact[A]), counted("b", &exact[B])};
    measure(pids, N, 2400, busy);
    double had[N], part[N];
    for (int i = 0; i < N; i++) {
        double before = exact[i];
        had[i] = counted(i ? "b" : "a", &exact[i]) - was[i];
        part[i] = (exact[i] - before) / had[i];
    }
    /* Who is alone on the engine may keep it while it has no work: more than they counted. */
    if (!(had[A] > busy[A] - 0.1 && had[B] > busy[B] - 0.3 && had[B] > 2 * had[A] &&
          part[A] > 0.3 && part[B] > 0.3))
        fail_msg("%.3f and %.3f s are counted, of which %.2f and %.2f exactly", had[A], had[B],
                 part[A], part[B]);
    if (!(busy[A] > 0.1 && busy[A] < 0.23 && busy[B] > 3 * busy[A]))
        fail_msg("with a ceiling of 20 %%: %.3f:%.3f", busy[A], busy[B]);
    CEDE("set", "a", "--gpu-max", "0");
    assert_int_equal(job_int("a", "gpu_max"), 0);

    CEDE("set", "b", "-c", "none");
    assert_true(all_slices_default(&pids[B], 1));
    assert_true(job_gone("b"));
    CEDE("policy", "priority");
}

/* ---- clients that misbehave ---- */

/* Asks and asks and never takes an answer. */
static void never_read(void)
{
    static const char ps[] = "{\"v\":1,\"op\":\"ps\"}";
    int fd[4] = {-1, -1, -1, -1};
    for (unsigned i = 0;; i++) {
        int *f = &fd[i % 4];
        if (*f < 0)
            *f = connect_raw(SOCK_NONBLOCK);
        else if (send(*f, ps, sizeof(ps) - 1, MSG_NOSIGNAL) < 0 && i % 64 == 0) {
            close(*f);
            *f = -1;
        }
        usleep(200);
    }
}

static void send_garbage(void)
{
    static char bytes[100000];
    struct rng rng = {42};
    for (int fd = -1;; usleep(500)) {
        if (fd < 0 && (fd = connect_raw(SOCK_NONBLOCK)) < 0)
            continue;
        size_t n = 1 + rng_below(&rng, rng_below(&rng, 4) ? 200 : sizeof(bytes));
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)rng_below(&rng, 256);
        if (rng_below(&rng, 3) == 0) /* something like a request */
            snprintf(bytes, sizeof(bytes), "{\"v\":1,\"op\":\"pause\",\"target\":%llu}",
                     (unsigned long long)rng_below(&rng, 1U << 31) << rng_below(&rng, 32));
        if (send(fd, bytes, n, MSG_NOSIGNAL) < 0 || rng_below(&rng, 8) == 0) {
            close(fd);
            fd = -1;
        }
    }
}

E2E(steered_while_clients_misbehave)
{
    /* Enough in the queue for a slice of 60 ms, however late the program is woken. */
    pid_t pids[N] = {LOAD("a", "batch", "--depth", "100"), LOAD("b", "batch", "--depth", "100")};
    AWAIT(all_have_contexts(pids, N));
    struct ceded d = ceded_start();
    size_t before = descriptors(d.pid);
    pid_t bad[2] = {in_a_child(never_read), in_a_child(send_garbage)};
    nap_ms(200);
    steer(pids);
    for (int i = 0; i < 2; i++)
        slay_child(bad[i]);         /* it was at it to the end */
    CEDE("set", "a", "-c", "none"); /* a job's processes have descriptors too */
    AWAIT(descriptors(d.pid) <= before);
    ceded_stop(&d);
    assert_true(all_slices_default(pids, N));
    assert_int_equal(records(NULL), 0);
    json_decref(load_end("a", pids[A]));
    json_decref(load_end("b", pids[B]));
}

/* ---- what may be a job ---- */

/* cede itself and the kernel cannot be jobs: who pauses a job would wait for ever. */
E2E(what_is_no_program)
{
    _cleanup_free_ pid_t *pids = NULL;
    size_t n = 0;
    struct proc_stat st;
    struct ceded d = ceded_start();
    FAILS(1, "schedules programs", "set", pid_text(d.pid), "-c", "batch");
    FAILS(1, "schedules programs", "set", pid_text(d.restorer), "-c", "batch");
    assert_int_equal(proc_list(&pids, &n), 0);
    for (size_t i = 0; i < n; i++) {
        if (pids[i] != 1 && proc_stat_read(pids[i], &st) == 0 && st.kernel) {
            FAILS(1, "thread of the kernel", "set", pid_text(pids[i]), "-c", "batch");
            break;
        }
    }
}

/* In a container that shares nothing but the sockets, with users of its own: the numbers of
 * processes are others than ceded's. */
E2E(in_a_bare_container)
{
    static const char *const script =
        "mount -t tmpfs tmpfs /mnt && cd /mnt && touch socket gpu cede || exit 10\n"
        "mount --bind $CEDE_DIR/socket socket && mount --bind $CEDE_SOFT_SOCKET gpu || exit 10\n"
        "mount --bind $CEDE_EXE cede && mount -t tmpfs tmpfs /tmp || exit 10\n"
        "export CEDE_DIR=/mnt CEDE_SOFT_SOCKET=/mnt/gpu\n"
        "shows() { ./cede ps $1 >shown 2>&1; grep -q \"$2\" shown; }\n"
        "./cede run -c batch -n inner -- ./cede load batch --device soft & runner=$!\n"
        "until shows $runner 'running.* inner'; do sleep 0.05; done\n"
        "sleep 1000 & sleeper=$!\n"
        "until grep -q sleep /proc/$sleeper/comm; do :; done\n"
        "shows $sleeper 'no such job' || exit 11\n"
        "./cede set $sleeper -c latency && shows $sleeper 'latency.* sleep' || exit 12\n"
        "shows $sleeper inner && exit 13\n"
        "./cede pause $runner && shows inner paused && shows outer running || exit 14\n"
        "./cede resume $runner && shows inner running || exit 15\n"
        "shows 30000 'no such job' || exit 16\n"
        "kill $sleeper $runner && wait $runner";
    if (getuid() != 0)
        skip();
    RUN(&result, "unshare", "-Urpfm", "--mount-proc", "mount", "-t", "tmpfs", "tmpfs", "/mnt");
    if (result.status)
        skip(); /* nor user namespaces */
    ceded_start();
    pid_t outer = LOAD("outer", "batch");
    AWAIT(all_have_contexts(&outer, 1));
    CEDE("set", pid_text(outer), "-c", "normal");
    pid_t pid = SPAWN("container", "unshare", "-Urpfm", "--mount-proc", "sh", "-c", script);
    int status = await_child(pid);
    if (status)
        fail_msg("%d: %s", status, contents("container.err"));
    json_decref(load_end("outer", outer));
}
