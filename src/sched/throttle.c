/* See throttle.h. */
#include "sched/throttle.h"

/* Shares of the GPU. Part of its switches counts as a short request's own time, so that many of
 * them seem to leave nothing: measured on H200, a request of 0.1 ms has 0.163 ms of the engine and
 * costs the batch side 0.45, the rest being OUTSIDE switches. */
#define MOST_OF_IT      0.6
#define NEXT_TO_NOTHING 0.05
#define OUTSIDE         1.6
#define LOOKED_NS       1000000000U
#define THROTTLE_NS     5000000000U
#define LATE_S          0.15 /* what is reported first after throttling is of that time */

bool throttle_observes(struct throttle *t, double window_s)
{
    if (t->until_ns)
        return false;
    if (t->blind_s > 0) {
        t->blind_s -= window_s;
        return false;
    }
    return true;
}

/* For how long the lower jobs have to be throttled after what was seen; 0: they need not be. Each
 * gap of the latency jobs in which a lower job runs makes them wait for a switch, and a training
 * job that feeds the GPU kernel by kernel has a hundred a second. Lower jobs run while that is
 * measured, and are throttled for so much longer that the latency jobs lose top_loss on the whole.
 */
static uint64_t throttle_ns(const struct sched_params *p, const struct throttle *t,
                            const struct observed *seen, uint64_t now_ns)
{
    double lost = seen->returns / seen->seconds * p->switch_us * 1e-6;
    double busy = seen->busy_s / seen->seconds, got = 1.0 - busy - OUTSIDE * lost;
    if (lost <= p->top_loss || busy < MOST_OF_IT || got >= NEXT_TO_NOTHING)
        return 0;
    uint64_t ran = now_ns - t->ended_ns;
    double ns = (double)(ran < LOOKED_NS ? ran : LOOKED_NS) * (lost / p->top_loss - 1.0);
    return ns < THROTTLE_NS ? (uint64_t)ns : THROTTLE_NS;
}

bool throttle_decide(const struct sched_params *p, struct throttle *t, struct observed *seen,
                     uint64_t now_ns)
{
    if (!t->may) {
        t->until_ns = 0;
        return false;
    }
    if (t->until_ns && now_ns >= t->until_ns) {
        t->until_ns = 0;
        t->ended_ns = now_ns;
        t->blind_s = LATE_S;
    }
    if (!t->until_ns && observed_enough(seen)) {
        uint64_t ns = throttle_ns(p, t, seen, now_ns);
        if (ns) {
            t->until_ns = now_ns + ns;
            observed_forget(seen);
        }
    }
    return t->until_ns;
}
