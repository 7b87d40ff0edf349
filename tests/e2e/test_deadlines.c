/* A job that is due beside one that is not, and a latency job above both: with `cede set
 * --deadline` on an unmodified program, and with libcede in one. And two latency jobs with
 * libcede. Asserts orderings of times of the
 * device. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

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

enum { FRAMES, SPEECH, TRAINING, N };

/* A third of a second of transcription every second, in a third of the time that frames leave it.
 */
#define SPEECH_LOAD                                                                                \
    "latency", "--kernel-us", "3333", "--kernels", "110", "--period-us", "1000000", "--open",      \
        "--report", "20"

static void beside(bool told)
{
    double v[256];
    configure(200, "urgent_us = 200000");
    struct ceded d = ceded_start();
    pid_t pids[N];
    pids[SPEECH] = told ? LOAD("speech", SPEECH_LOAD, "--deadline-us", "1000000")
                        : LOAD("speech", SPEECH_LOAD);
    assert_true(EVENTUALLY(latencies("speech.out", v, 256) > 0));
    if (told)
        CEDE("set", pid_text(pids[SPEECH]), "-c", "batch");
    else
        CEDE("set", pid_text(pids[SPEECH]), "-c", "batch", "--deadline", "1s");
    pids[FRAMES] = LOAD("frames", "latency", "--kernel-us", "5000", "--period-us", "13333");
    CEDE("set", pid_text(pids[FRAMES]), "-c", "latency");
    pids[TRAINING] = LOAD("training", "batch");
    CEDE("set", pid_text(pids[TRAINING]), "-c", "batch");
    await_progress(&pids[TRAINING], 1);

    size_t from = latencies("speech.out", v, 256) + 1; /* one may have begun before */
    assert_true(EVENTUALLY(latencies("speech.out", v, 256) >= from + 4));
    double laxity = most_of(v, from, from + 4);
    for (size_t i = 0; i < from + 4; i++)
        printf("%s%.0f ms", i ? ", " : "with a deadline: ", v[i] / 1e3);
    CEDE("policy", "priority");
    from = latencies("speech.out", v, 256) + 1;
    assert_true(EVENTUALLY(latencies("speech.out", v, 256) >= from + 4));
    double classes = v[from + 3];
    for (size_t i = from; i < from + 4; i++)
        printf("%s%.0f ms", i > from ? ", " : "; by classes alone: ", v[i] / 1e3);
    printf("\n");
    assert_true(laxity < classes);
    for (int i = 0; i < N; i++)
        kill(pids[i], SIGTERM);
    for (int i = 0; i < N; i++)
        await_child(pids[i]);
    ceded_stop(&d);
}

static void set_from_outside(void **state)
{
    (void)state;
    beside(false);
}

static void told_by_libcede(void **state)
{
    (void)state;
    beside(true);
}

/* ---- two latency jobs ---- */

#define LIGHT_DUE_US 100000.0

/* Of what comes from here on, how many of so many are late. */
static unsigned count_late(const char *file, double due_us, size_t n)
{
    double v[512];
    unsigned late = 0;
    size_t from = latencies(file, v, 512) + 2; /* two may have begun before */
    assert_true(EVENTUALLY(latencies(file, v, 512) >= from + n));
    for (size_t i = from; i < from + n; i++)
        late += v[i] > due_us;
    return late;
}

/* Requests of 60 ms, which are late when they share the GPU with one of 400 ms, and in time before
 * it. */
static void ordered_by_slack(void **state)
{
    (void)state;
    configure(200, "");
    struct ceded d = ceded_start();
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
    assert_true(EVENTUALLY(latencies("heavy.out", v, 512) >= learned));
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
    ceded_stop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {e2e(set_from_outside), e2e(told_by_libcede),
                                       e2e(ordered_by_slack)};
    return cmocka_run_group_tests_name("deadlines", tests, NULL, NULL);
}
