/* Two latency jobs whose requests are due, as libcede reports them: by slack fewer are late than by
 * weight. Jobs of lower classes that are due: sched_deadlines and engine_deadlines. */
#include "fixture.h"

/* Of a load's live lines so far; how many. */
static size_t latencies(const char *file, double *v, size_t most)
{
    size_t n = 0, i;
    const char *line = contents(file);
    for (const char *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *o = json_loadb(line, (size_t)(end - line), 0, NULL), *x;
        json_array_foreach(json_object_get(o, "latencies_us"), i, x)
        {
            assert_true(n < most);
            v[n++] = json_real_value(x);
        }
        json_decref(o);
    }
    return n;
}

static double most_of(const double *v, size_t from, size_t to)
{
    double most = 0;
    for (size_t i = from; i < to; i++)
        most = v[i] > most ? v[i] : most;
    return most;
}

#define LIGHT_DUE_US 100000.0

/* Of what comes from here on, how many of so many are late. */
static unsigned count_late(const char *file, double due_us, size_t n)
{
    double v[512];
    unsigned late = 0;
    size_t from = latencies(file, v, 512) + 2; /* two may have begun before */
    AWAIT(latencies(file, v, 512) >= from + n);
    for (size_t i = from; i < from + n; i++)
        late += v[i] > due_us;
    return late;
}

/* Requests of 60 ms, which are late when they share the GPU with one of 400 ms, and in time before
 * it. */
E2E(ordered_by_slack)
{
    configure(200, "");
    ceded_start();
    pid_t pids[2];
    pids[0] = LOAD("heavy", "latency", "--kernel-us", "4000", "--kernels", "100", "--period-us",
                   "910000", "--open", "--report", "20", "--deadline-us", "880000");
    pids[1] = LOAD("light", "latency", "--kernel-us", "4000", "--kernels", "15", "--period-us",
                   "190000", "--open", "--report", "20", "--deadline-us", "100000");
    CEDE("set", pid_text(pids[0]), "-c", "latency");
    CEDE("set", pid_text(pids[1]), "-c", "latency");
    double v[512];
    /* What they need has been learned. */
    size_t learned = latencies("heavy.out", v, 512) + 4;
    AWAIT(latencies("heavy.out", v, 512) >= learned);
    unsigned slack = count_late("light.out", LIGHT_DUE_US, 30);
    CEDE("policy", "priority");
    unsigned weight = count_late("light.out", LIGHT_DUE_US, 30);
    size_t n = latencies("heavy.out", v, 512);
    printf("late of 30: %u by slack, %u by weight; slowest of the heavy ones %.0f ms\n", slack,
           weight, most_of(v, 0, n) / 1e3);
    assert_true(weight >= 5 && 2 * slack < weight);
    for (int i = 0; i < 2; i++)
        kill(pids[i], SIGTERM);
    for (int i = 0; i < 2; i++)
        await_child(pids[i]);
}
