/* What people do with it: a latency program beside a batch program without a daemon, pausing,
 * letting go, shares, a ceiling; and that clients that misbehave disturb none of it. Latencies and
 * shares are times of the device. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

/* ---- a latency program beside a batch program ---- */

static size_t lines_of(const char *file)
{
    size_t n = 0;
    for (const char *p = contents(file); (p = strchr(p, '\n')); p++)
        n++;
    return n;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the requests in the live lines after the first `skip` lines. */
static double p99_us(const char *file, size_t skip)
{
    double v[4096];
    size_t n = 0, i;
    const char *line = contents(file);
    for (const char *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *o = json_loadb(line, (size_t)(end - line), 0, NULL), *x;
        assert_non_null(o);
        if (skip)
            skip--;
        else
            json_array_foreach(json_object_get(o, "latencies_us"), i, x)
            {
                assert_true(n < ARRAY_SIZE(v));
                v[n++] = json_real_value(x);
            }
        json_decref(o);
    }
    assert_true(n >= 100);
    qsort(v, n, sizeof(v[0]), compare);
    return v[(n * 99 + 99) / 100 - 1];
}

static void latency_beside_batch(void **state)
{
    (void)state;
    pid_t pids[2] = {LOAD("batch0", "batch", "--kernel-us", "500"),
                     LOAD("lat0", "latency", "--report", "50", "--requests", "200")};
    assert_int_equal(await_child(pids[1]), 0);
    json_decref(load_end("batch0", pids[0]));
    double without = p99_us("lat0.out", 0);

    pids[0] = SPAWN("batch", "cede", "run", "--gpu-device", "soft", "-c", "batch", "-n", "batch",
                    "--", harness_exe(), "load", "batch", "--device", "soft", "--verify");
    pids[1] =
        SPAWN("lat", "cede", "run", "--gpu-device", "soft", "-c", "latency", "-n", "lat", "--",
              harness_exe(), "load", "latency", "--device", "soft", "--verify", "--report", "50");
    assert_true(EVENTUALLY(job_int("batch", "timeslice_us") == 1));
    assert_true(EVENTUALLY(job_int("lat", "timeslice_us") > SLICE_DEFAULT_US));
    pid_t daemon;
    json_t *all = ask("{\"v\":1,\"op\":\"ps\"}");
    daemon = (pid_t)json_integer_value(json_object_get(all, "pid"));
    json_decref(all);
    /* One line may hold requests of before. */
    size_t skip = lines_of("lat.out") + 1;
    assert_true(EVENTUALLY(lines_of("lat.out") >= skip + 40));
    json_decref(load_end("lat", pids[1]));
    json_decref(load_end("batch", pids[0]));
    double with = p99_us("lat.out", skip);
    if (!(with * 3 <= without))
        fail_msg("p99 %.0f us with cede, %.0f us without", with, without);

    assert_int_equal(await_child(daemon), 0);
    assert_int_equal(records(NULL), 0);
    RUN(&result, "cede", "run", "--gpu-device", "soft", "-c", "batch", "--", "sh", "-c", "exit 3");
    assert_int_equal(status_of(result.status), 3);
    RUN(&result, "cede", "run", "--gpu-device", "soft", "--", "sh", "-c", "kill -9 $$");
    assert_int_equal(status_of(result.status), 1000 + SIGKILL);
}

/* ---- pausing, letting go, shares ---- */

enum { A, B, N };

static void assert_stands(pid_t pid, bool stands)
{
    double busy;
    if (!stands) {
        await_progress(&pid, 1);
        return;
    }
    measure(&pid, 1, 100, &busy);
    assert_true(busy == 0);
}

/* Engine time of a job so far, as `cede ps` counts it; and the part that is exact. */
static double counted(const char *job, double *exact)
{
    json_t *all = job_named(job);
    const json_t *gpu = json_array_get(json_object_get(json_object_get(all, "counts"), "gpus"), 0);
    double s = json_number_value(json_object_get(gpu, "gpu_s"));
    *exact = json_number_value(json_object_get(gpu, "exact_s"));
    json_decref(all);
    return s;
}

static void steer(const pid_t pids[N])
{
    char number[24];
    for (int i = 0; i < N; i++)
        CEDE("set", pid_text(pids[i]), "-w", i == A ? "300" : "100");
    snprintf(number, sizeof(number), "#%lld", job_int("b", "number"));
    const char *const targets[] = {pid_text(pids[B]), "b", number};
    for (size_t i = 0; i < 3; i++) {
        CEDE("pause", targets[i]);
        assert_true(job_is("b", "state", "paused"));
        assert_stands(pids[B], true);
        assert_stands(pids[A], false);
        CEDE("resume", targets[i]);
        assert_stands(pids[B], false);
    }

    CEDE("policy", "shares");
    double busy[N];
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
    json_t *job = job_named("b");
    assert_null(job);
    CEDE("policy", "priority");
}

static void begin(pid_t pids[N], struct ceded *d)
{
    /* Enough in the queue for a slice of 60 ms, however late the program is woken. */
    pids[A] = LOAD("a", "batch", "--depth", "100");
    pids[B] = LOAD("b", "batch", "--depth", "100");
    assert_true(EVENTUALLY(all_have_contexts(pids, N)));
    *d = ceded_start();
}

static void end(const pid_t pids[N], struct ceded *d)
{
    ceded_stop(d);
    assert_true(all_slices_default(pids, N));
    assert_int_equal(records(NULL), 0);
    json_decref(load_end("a", pids[A]));
    json_decref(load_end("b", pids[B]));
}

static void pause_release_shares(void **state)
{
    (void)state;
    pid_t pids[N];
    struct ceded d;
    begin(pids, &d);
    steer(pids);
    end(pids, &d);
}

/* ---- why ---- */

static bool says(const char *job, const char *text)
{
    CEDE("why", job);
    return strstr(result.out, text) != NULL;
}

/* Both batch jobs have turns, and each waits for the other. */
static void why_it_waits(void **state)
{
    (void)state;
    configure(200, "");
    struct ceded d = ceded_start();
    pid_t p[3] = {LOAD("a", "batch"), LOAD("b", "batch"), LOAD("lat", "latency")};
    char text[64];
    assert_true(EVENTUALLY(all_have_contexts(p, 3)));
    CEDE("set", pid_text(p[0]), "-c", "batch");
    CEDE("set", pid_text(p[1]), "-c", "batch");
    CEDE("set", pid_text(p[2]), "-c", "latency");
    assert_true(EVENTUALLY(says("lat", "its class comes before those of all others")));
    assert_true(EVENTUALLY(says("a", "it has its turn, for ")));
    snprintf(text, sizeof(text), "another has its turn: #%lld (b), for ", job_int("b", "number"));
    assert_true(EVENTUALLY(says("a", text)));
    CEDE("pause", "b");
    assert_true(says("b", "somebody paused it"));
    assert_true(EVENTUALLY(says("a", "it has its turn\n")));
    CEDE("why", "--json", "a");
    json_t *all = json_loads(result.out, 0, NULL);
    const json_t *why =
        json_array_get(json_object_get(json_array_get(json_object_get(all, "jobs"), 0), "why"), 0);
    assert_string_equal(json_string_value(json_object_get(why, "reason")), "turn");
    json_decref(all);
    RUN(&result, harness_exe(), "why", "nobody");
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "nobody: no such job"));
    CEDE("resume", "b");
    ceded_stop(&d);
    for (int i = 0; i < 3; i++)
        json_decref(load_end((const char *[]){"a", "b", "lat"}[i], p[i]));
}

/* ---- latency budgets ---- */

static bool slice_within(const char *job, long long lo, long long hi)
{
    long long us = job_int(job, "timeslice_us");
    return us >= lo && us <= hi;
}

/* The batch job's slice is small for rare requests and grows for many, as far as the least patient
 * job allows. */
static void budgets(void **state)
{
    (void)state;
    configure(200, "");
    struct ceded d = ceded_start();
    pid_t batch = LOAD("batch", "batch", "--kernel-us", "500"),
          rare = LOAD("rare", "latency", "--period-us", "500000"), many;
    /* A job set by its process is named as the program is: not before there is one. */
    assert_true(EVENTUALLY(all_have_contexts((pid_t[]){batch, rare}, 2)));
    /* So that 50 requests/s count as many: a busy machine gets those done too. */
    CEDE("policy", "switch_loss=0.01");
    CEDE("set", pid_text(batch), "-c", "batch");
    CEDE("set", pid_text(rare), "-c", "latency", "--budget", "20ms");
    assert_int_equal(job_int("rare", "budget_us"), 20000);
    assert_true(EVENTUALLY(slice_within("batch", 1, 1)));

    many = LOAD("many", "latency", "--period-us", "10000");
    assert_true(EVENTUALLY(all_have_contexts(&many, 1)));
    CEDE("set", pid_text(many), "-c", "latency", "--budget", "15ms");
    assert_true(EVENTUALLY(slice_within("batch", 10000, 14640)));
    /* The parameters count at once. */
    CEDE("policy", "switch_us=7000");
    assert_true(EVENTUALLY(slice_within("batch", 1000, 1000)));
    CEDE("policy", "switch_us=180");
    CEDE("set", "many", "--budget", "0");
    assert_true(EVENTUALLY(slice_within("batch", 1, 1)));
    RUN(&result, "cede", "set", "batch", "--budget", "2ms");
    assert_int_equal(status_of(result.status), 1);
    assert_non_null(strstr(result.err, "class latency"));

    json_decref(load_end("many", many));
    json_decref(load_end("rare", rare));
    json_decref(load_end("batch", batch));
    ceded_stop(&d);
}

/* ---- clients that misbehave ---- */

static int connect_raw(void)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/socket", cede_home());
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Asks and asks and never takes an answer. */
static void never_read(void)
{
    static const char ps[] = "{\"v\":1,\"op\":\"ps\"}";
    int fd[4] = {-1, -1, -1, -1};
    for (unsigned i = 0;; i++) {
        int *f = &fd[i % 4];
        if (*f < 0)
            *f = connect_raw();
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
        if (fd < 0 && (fd = connect_raw()) < 0)
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

static pid_t in_a_child(void (*what)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        what();
    }
    return pid;
}

static void clients_that_misbehave(void **state)
{
    (void)state;
    pid_t pids[N];
    struct ceded d;
    begin(pids, &d);
    size_t before = descriptors(d.pid);
    pid_t bad[2] = {in_a_child(never_read), in_a_child(send_garbage)};
    nap_ms(200);
    steer(pids);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kill(bad[i], SIGKILL), 0);
        assert_int_equal(await_child(bad[i]), 1000 + SIGKILL); /* it was at it to the end */
    }
    CEDE("set", "a", "-c", "none"); /* a job's processes have descriptors too */
    assert_true(EVENTUALLY(descriptors(d.pid) <= before));
    end(pids, &d);
}

static void refused(pid_t pid, const char *why)
{
    char number[16];
    snprintf(number, sizeof(number), "%d", (int)pid);
    RUN(&result, harness_exe(), "set", number, "-c", "batch");
    assert_int_equal(status_of(result.status), 1);
    if (!strstr(result.err, why))
        fail_msg("%s", result.err);
}

/* cede itself and the kernel cannot be jobs: who pauses a job would wait for ever. */
static void what_is_no_program(void **state)
{
    (void)state;
    _cleanup_free_ pid_t *pids = NULL;
    size_t n = 0;
    struct proc_stat st;
    struct ceded d = ceded_start();
    refused(d.pid, "schedules programs");
    refused(d.restorer, "schedules programs");
    assert_int_equal(proc_list(&pids, &n), 0);
    for (size_t i = 0; i < n; i++) {
        if (pids[i] != 1 && proc_stat_read(pids[i], &st) == 0 && st.kernel) {
            refused(pids[i], "thread of the kernel");
            break;
        }
    }
    ceded_stop(&d);
}

/* In a container the numbers of processes are others than ceded's. */
static void in_a_container(void **state)
{
    (void)state;
    static const char *const script =
        "cede() { \"$CEDE_EXE\" \"$@\"; }\n"
        "cede run -c batch -n inner -- \"$CEDE_EXE\" load batch --device soft --name inner &\n"
        "sleep 1000 & sleeper=$!\n"
        "until grep -q sleep /proc/$sleeper/comm; do :; done\n" /* else the job's name is sh */
        "cede set $sleeper -c latency || exit 11\n"
        "cede set 30000 -c batch 2>wrong && exit 12\n"
        "grep -q 'no process 30000 in your pid namespace' wrong || exit 13\n"
        "wait";
    if (getuid() != 0)
        skip();
    RUN(&result, "unshare", "-pf", "--mount-proc", "true");
    if (result.status)
        skip(); /* this machine has no pid namespaces for us */
    struct ceded d = ceded_start();
    pid_t pid =
        SPAWN("container", "unshare", "-pf", "--kill-child", "--mount-proc", "sh", "-c", script);
    assert_true(
        EVENTUALLY(job_is("inner", "state", "running") && job_is("sleep", "class", "latency")));
    CEDE("pause", "inner");
    assert_true(EVENTUALLY(job_is("inner", "state", "paused")));
    CEDE("resume", "inner");
    kill(pid, SIGKILL);
    await_child(pid);
    assert_true(EVENTUALLY(job_gone("inner") && job_gone("sleep")));
    ceded_stop(&d);
}

/* One that shares nothing but the sockets, with users of its own. */
static void in_a_bare_container(void **state)
{
    (void)state;
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
    struct ceded d = ceded_start();
    pid_t outer = LOAD("outer", "batch");
    assert_true(EVENTUALLY(all_have_contexts(&outer, 1)));
    CEDE("set", pid_text(outer), "-c", "normal");
    pid_t pid = SPAWN("container", "unshare", "-Urpfm", "--mount-proc", "sh", "-c", script);
    int status = await_child(pid);
    if (status)
        fail_msg("%d: %s", status, contents("container.err"));
    json_decref(load_end("outer", outer));
    ceded_stop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        e2e(latency_beside_batch),   e2e(pause_release_shares),
        e2e(why_it_waits),           e2e(budgets),
        e2e(clients_that_misbehave), e2e(what_is_no_program),
        e2e(in_a_container),         e2e(in_a_bare_container),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
