/* cede-load on the software GPU's real server, all in processes of their own. Nothing here depends
 * on how fast this machine is: the device's own times are compared, and orders. */
#include "../test.h"
#include "base/util.h"
#include "bench/load/load.h"
#include "child.h"
#include "softgpu/server.h"

#include <signal.h>
#include <sys/wait.h>

static struct child server, latency, batch;
static char dir[] = "/tmp/cede-load-XXXXXX", socket_path[64];

static void start_load(struct child *c, const char *line)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "cede-load %s --device soft --socket %s --verify", line,
             socket_path);
    child_start(c, load_main, whole);
}

static int set_up(void **state)
{
    char line[128];
    if (!mkdtemp(strcpy(dir, "/tmp/cede-load-XXXXXX")))
        return -1;
    snprintf(socket_path, sizeof(socket_path), "%s/gpu", dir);
    snprintf(line, sizeof(line), "cede-softgpu --gpus 2 --socket %s", socket_path);
    child_start(&server, soft_server_main, line);
    for (int i = 0; access(socket_path, F_OK) && i < 10000; i++)
        usleep(1000);
    return 0;
}

static int tear_down(void **state)
{
    if (server.pid) {
        kill(server.pid, SIGTERM);
        child_end(&server);
    }
    unlink(socket_path);
    return rmdir(dir);
}

static const json_t *run_latency(struct child *c)
{
    start_load(c, "latency --period-us 5000 --requests 60");
    child_end(c);
    const json_t *l = child_verified(c);
    assert_int_equal(json_number(l, "requests"), 60);
    static const char *const rising[] = {"p50_us", "p90_us", "p99_us", "p999_us", "max_us"};
    assert_true(json_number(l, rising[0]) >= 100); /* the kernel alone */
    for (size_t i = 1; i < ARRAY_SIZE(rising); i++)
        assert_true(json_number(l, rising[i]) >= json_number(l, rising[i - 1]));
    return l;
}

TEST_WITH(alone_and_beside, set_up, tear_down)
{
    static struct child first;
    const json_t *alone = run_latency(&first);
    start_load(&batch, "batch --report 20");
    child_await_output(&batch);
    const json_t *beside = run_latency(&latency);
    kill(batch.pid, SIGTERM);
    child_end(&batch);
    const json_t *b = child_verified(&batch);

    assert_true(json_number(beside, "p50_us") > json_number(alone, "max_us"));
    assert_true(json_number(b, "kernels") > 0);
    assert_true(json_number(b, "work_us") == 500 * json_number(b, "kernels"));
    assert_true(json_number(b, "rate") > 0 && json_number(b, "rate") <= 1);

    /* Live lines: counts rise with time, at most by the work that fits in between. */
    double t0 = 0, k0 = 0, lines = 0;
    for (const char *s = batch.out; strncmp(s, "{\"t\":", 5) == 0; s = strchr(s, '\n') + 1) {
        json_t *l = json_loads(s, JSON_DISABLE_EOF_CHECK, NULL);
        assert_non_null(l);
        double t = json_number(l, "t"), k = json_number(l, "kernels");
        assert_true(t > t0 && k >= k0);
        if (lines++ > 0)
            assert_true((k - k0) * 500e-6 <= t - t0 + 500e-6);
        t0 = t;
        k0 = k;
    }
    assert_true(lines >= 1 && k0 <= json_number(b, "kernels"));
}

/* Every policy gets the same requests; those of all classes are all requests; edf has no more late
 * than the order of arrival has, but for what a busy machine's timing may change. */
TEST_WITH(models, set_up, tear_down)
{
    static const char *const policies[] = {"fifo", "priority", "edf", "laxity"};
    static const char *const classes[] = {"latency", "normal", "batch"};
    double late[ARRAY_SIZE(policies)];
    for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
        char line[128];
        double n = 0;
        snprintf(line, sizeof(line), "models --policy %s --load 60 --requests 400 --report 50",
                 policies[i]);
        start_load(&latency, line);
        child_end(&latency);
        const json_t *l = child_verified(&latency);
        for (size_t c = 0; c < ARRAY_SIZE(classes); c++)
            n +=
                json_number(json_object_get(json_object_get(l, "classes"), classes[c]), "requests");
        assert_true(n == 400 && json_number(l, "requests") == 400);
        assert_true(json_number(l, "refused") == 0);
        assert_true(json_number(l, "p50_us") >= 500);
        assert_true(json_number(l, "p99_us") > json_number(l, "p99_lateness_us"));
        assert_non_null(strstr(latency.out, "\"late\":"));
        late[i] = json_number(l, "late");
    }
    assert_true(late[2] <= late[0] + 40);
    start_load(&latency, "models --load 300 --requests 300 --admit --kernel-us 100");
    child_end(&latency);
    const json_t *l = child_final(&latency);
    assert_true(json_number(l, "refused") > 0);
    assert_true(json_number(l, "requests") + json_number(l, "refused") == 300);
}

static size_t others_of(const struct child *first, pid_t *one)
{
    char path[64];
    int n = 0, pid;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)first->pid, (int)first->pid);
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    for (; f && fscanf(f, "%d", &pid) == 1; n++)
        *one = pid;
    return (size_t)n;
}

/* A rank that ends is the end of its gang. */
TEST_WITH(gang, set_up, tear_down)
{
    pid_t rank = 0;
    start_load(&batch, "batch --gpus 0,1 --requests 50");
    child_end(&batch);
    const json_t *l = child_verified(&batch);
    assert_int_equal(json_number(l, "kernels"), 50);

    start_load(&batch, "batch --gpus 0,1 --report 20");
    child_await_output(&batch);
    assert_int_equal(others_of(&batch, &rank), 1);
    kill(rank, SIGKILL);
    child_end(&batch);
    assert_int_equal(batch.status, 1);
    assert_non_null(strstr(batch.err, "another rank of this gang, has ended"));

    start_load(&batch, "batch --gpus 0,1 --report 20");
    child_await_output(&batch);
    assert_int_equal(others_of(&batch, &rank), 1);
    kill(batch.pid, SIGTERM);
    child_end(&batch);
    assert_int_equal(kill(rank, 0), -1);
    child_final(&batch);
}

/* Every launch has its time: a step takes what its host's work and its last kernel take, however
 * busy this machine is. */
TEST_WITH(launches_at_their_times, set_up, tear_down)
{
    start_load(&latency, "latency --period-us 0 --kernels 200 --kernel-us 5 --launch-us 50 "
                         "--requests 60");
    child_end(&latency);
    const json_t *l = child_verified(&latency);
    assert_true(json_number(l, "p50_us") >= 200 * 50 + 5 && json_number(l, "p50_us") < 10100);
    assert_true(json_number(l, "rate") > 90 && json_number(l, "rate") < 100);
}

#define RANKS 3
static void start_ranks(struct child *v)
{
    char line[128];
    for (int i = 0; i < RANKS; i++) {
        snprintf(line, sizeof(line),
                 "batch --burst 4 --kernel-us 100 --host-us 500 --barrier %s --ranks %d --report "
                 "20",
                 dir + strlen("/tmp/"), RANKS);
        start_load(&v[i], line);
    }
    for (int i = 0; i < RANKS; i++)
        child_await_output(&v[i]);
}

/* Ranks make the same number of rounds, but for the one in which they end; the end of one, however
 * it ends, is that of all; and its barrier's name can be used again. */
TEST_WITH(ranks_at_a_barrier, set_up, tear_down)
{
    static struct child v[RANKS];
    double rounds[RANKS];
    for (int killed = 0; killed < 2; killed++) {
        start_ranks(v);
        kill(v[0].pid, killed ? SIGKILL : SIGTERM);
        for (int i = killed; i < RANKS; i++) {
            child_end(&v[i]);
            const json_t *l = child_verified(&v[i]);
            rounds[i] = json_number(l, "rounds");
            assert_true(rounds[i] >= 1 && json_number(l, "kernels") >= 4 * rounds[i]);
            assert_true(rounds[i] - rounds[killed] <= 1 && rounds[killed] - rounds[i] <= 1);
        }
        if (killed)
            assert_int_equal(waitpid(v[0].pid, NULL, 0), v[0].pid);
    }
    start_ranks(v);
    char line[128];
    snprintf(line, sizeof(line), "batch --burst 1 --barrier %s --ranks %d", dir + strlen("/tmp/"),
             RANKS);
    start_load(&latency, line);
    child_end(&latency);
    assert_int_equal(latency.status, 1);
    assert_non_null(strstr(latency.err, "its 3 ranks are there already"));
    for (int i = 0; i < RANKS; i++)
        kill(v[i].pid, SIGKILL);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(waitpid(v[i].pid, NULL, 0), v[i].pid);
    /* A barrier whose ranks were all killed is no obstacle. */
    start_ranks(v);
    for (int i = 0; i < RANKS; i++)
        kill(v[i].pid, SIGTERM);
    for (int i = 0; i < RANKS; i++) {
        child_end(&v[i]);
        child_final(&v[i]);
    }
    char path[64];
    snprintf(path, sizeof(path), "/dev/shm/cede-load-%s", dir + strlen("/tmp/"));
    assert_int_not_equal(access(path, F_OK), 0);
}

TEST_WITH(server_goes, set_up, tear_down)
{
    start_load(&batch, "batch --report 20");
    child_await_output(&batch);
    kill(server.pid, SIGTERM);
    child_end(&server);
    server.pid = 0;
    child_end(&batch);
    assert_int_equal(batch.status, 1);
    assert_non_null(strstr(batch.err, "its server has gone"));
}
