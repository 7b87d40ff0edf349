/* How long one decision takes: 10,000 jobs on 8 GPUs, each policy, and the events around it.
 * Prints one JSON object a line; the target is 1 ms for a decision over all 8 devices. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/cost.h"
#include "plan/sched.h"

enum { DEVICES = 8, JOBS = 10000, ROUNDS = 201 };

/* idle: no job below the latency class works. */
static void bench(struct sched *c, bool idle)
{
    static uint64_t now;
    const char *name, *summary;
    for (unsigned p = 0; sched_policy_at(p, &name, &summary); p++) {
        double us[ROUNDS];
        size_t settings = 0;
        sched_set_policy(c, name);
        for (int r = 0; r < ROUNDS; r++) {
            now += 250 * NSEC_PER_MSEC; /* every round ends turns */
            for (uint32_t d = 0; d < DEVICES; d++)
                sched_event(c, &(struct sched_event){.type = EV_SWITCH,
                                                     .device = d,
                                                     .group = 80 + d + (r % 2 ? DEVICES : 0),
                                                     .at_ns = now});
            uint64_t t0 = monotonic_ns();
            struct sched_plan plan;
            sched_decide(c, now, &plan);
            settings = plan.n;
            us[r] = (double)(monotonic_ns() - t0) / 1e3;
        }
        cost_sort(us, ROUNDS);
        printf("{\"bench\":\"decide\",\"policy\":\"%s\",\"jobs\":%d,\"idle\":%s,\"gpus\":%d,"
               "\"settings\":%zu,"
               "\"median_us\":%.1f,\"max_us\":%.1f}\n",
               name, JOBS, idle ? "true" : "false", DEVICES, settings, us[ROUNDS / 2],
               us[ROUNDS - 1]);
    }
}

int main(void)
{
    struct sched_params params;
    params_default(&params);
    params.floor = 0.05;
    struct sched *c;
    if (sched_new(&(struct sched_limits){DEVICES, JOBS, JOBS, 1}, &params, &c) < 0)
        return 1;
    uint64_t t0 = monotonic_ns();
    for (uint32_t i = 0; i < JOBS; i++) {
        sched_event(c, &(struct sched_event){.type = EV_JOB_ADD,
                                             .job = i,
                                             .class = i < 80 ? CLASS_LATENCY : 1 + i % 2,
                                             .weight = 1 + i % 1000});
        sched_event(c, &(struct sched_event){.type = EV_GROUP_ADD,
                                             .job = i,
                                             .group = i,
                                             .process = i,
                                             .computes = true,
                                             .device = i % DEVICES});
    }
    printf("{\"bench\":\"add\",\"jobs\":%d,\"us_per_job\":%.3f}\n", JOBS,
           (double)(monotonic_ns() - t0) / 1e3 / JOBS);

    for (unsigned idle = 0; idle < 2; idle++) {
        for (uint32_t i = 80; idle && i < JOBS; i++)
            sched_event(c,
                        &(struct sched_event){.type = EV_DEMAND, .job = i, .device = i % DEVICES});
        bench(c, idle);
    }
    sched_free(c);
    return 0;
}
