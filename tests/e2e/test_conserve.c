/* The GPU is not idle while a job waits: what a batch job gets while a launch-bound latency job
 * runs, compared with what the same programs get without cede, measured just before in the same
 * run. Other mixes, such as ranks of one job and jobs with host work: sim_conserve and sim_mixes.
 */
#include <math.h>

#include "fixture.h"

enum { LATENCY, BATCH, N };

/* A step is 160 kernels of 6 us behind 40 us of host work each: a server of eager PyTorch, which
 * computes for 15 % of the time, beside a batch job that always has work. */
static bool launch_bound(void)
{
    static const char *const names[N] = {"server", "train"};
    double alone, without[N], with[N];
    pid_t v[N] = {LOAD("server", "latency", "--period-us", "0", "--kernels", "160", "--kernel-us",
                       "6", "--launch-us", "40")};
    AWAIT(all_have_contexts(v, 1));
    await_progress(v, 1);
    measure(v, 1, 1500, &alone);
    v[BATCH] = LOAD("train", "batch", "--kernel-us", "500");
    AWAIT(all_have_contexts(v, N));
    await_progress(v, N);
    measure(v, N, 2000, without);
    configure(200, ""); /* turns are as long as without a configuration */
    struct ceded d = ceded_start();
    CEDE("set", pid_text(v[LATENCY]), "-c", "latency");
    CEDE("set", pid_text(v[BATCH]), "-c", "batch");
    nap_ms(6000); /* until a controller has found its slice, or a throttle its job */
    measure(v, N, 4000, with);
    const double speed = job_number("server", "speed"), seen = with[LATENCY] / alone;
    ceded_stop(&d);
    printf("latency alone %.3f, by default %.3f, with cede %.3f; batch %.3f and %.3f\n", alone,
           without[LATENCY], with[LATENCY], without[BATCH], with[BATCH]);
    printf("speed of the latency job: shown %.2f, seen %.2f\n", speed, seen);
    loads_end(N, names, v);
    return with[BATCH] >= 0.4 * without[BATCH] && seen >= 0.8 && fabs(speed - seen) < 0.2;
}

E2E(beside_a_launch_bound_server)
{
    /* A machine that is too busy to run the programs in time can make a measurement too low, and
     * never turns the collapse into a good one: it is repeated. */
    in_some_attempt(3, launch_bound);
}
