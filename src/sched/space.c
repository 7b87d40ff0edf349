/* See space.h. */
#include "sched/space.h"

#include <math.h>
#include <string.h>

#define TRIAL     5U   /* windows */
#define GAIN      0.97 /* turns give 0.93 to 1.0 in sum: each switch costs, and gaps are filled */
#define FAIR      0.5  /* of a job's turns */
#define TURN_NS   1000000000U
#define PERIOD_NS 500000000U /* a whole number of them is a window */
#define LEAST     0.05       /* of the time, of those that others are protected from */
#define SPARE     0.01       /* of the speed, so that the mean is not below min_speed */
#define RETRY_NS  60000000000U
#define RETRY_MAX 16U /* times RETRY_NS */

static bool gains(const struct space *s, const struct space_job *v, uint32_t n)
{
    double weights = 0;
    bool fair = true;
    for (uint32_t i = 0; i < n; i++)
        weights += v[i].weight;
    for (uint32_t i = 0; i < n; i++) {
        double speed = s->sum[i] / s->windows;
        fair &= speed >= FAIR * v[i].weight / weights;
    }
    return s->all / s->windows >= GAIN && (fair || s->alike);
}

/* How much of its speed the job has least of, of what it is to keep, is missing; negative: spare.
 */
static bool missing(const struct space_job *v, uint32_t n, double *lost, double *may_lose)
{
    double worst = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        double below = v[i].min_speed - v[i].speed.value;
        if (v[i].min_speed <= 0 || below <= worst)
            continue;
        worst = below;
        *lost = 1 - v[i].speed.value;
        *may_lose = fmax(1 - v[i].min_speed - SPARE, 0);
    }
    return isfinite(worst);
}

/* What is lost grows with the time that the others run; the time that leaves it at what it may be
 * is approached by halves, since speeds err. */
static void regulate(struct space *s, double lost, double may_lose)
{
    double time = 1 - s->less, right = time * may_lose / fmax(lost, 0.005);
    time += (fmin(fmax(right, time / 2), time * 2) - time) / 2;
    s->less = 1 - fmin(fmax(time, LEAST), 1);
}

void space_told(struct space *s, const struct space_job *v, uint32_t n, struct speed all,
                uint64_t now_ns)
{
    bool told = true;
    for (uint32_t i = 0; i < n; i++)
        told &= v[i].speed.error <= SPEED_ERROR_MAX;
    if (all.error > SPEED_ERROR_MAX || s->turns)
        return; /* of whom nothing is known stay together */
    double lost = 0, may_lose = 0;
    if (told && missing(v, n, &lost, &may_lose)) {
        regulate(s, lost, may_lose);
        return;
    }
    s->less = 0;
    for (uint32_t i = 0; i < n; i++)
        s->sum[i] += v[i].speed.value;
    s->all += all.value;
    s->alike += !told;
    if (++s->windows < TRIAL)
        return;
    s->turns = !gains(s, v, n);
    s->windows = s->alike = 0;
    s->all = 0;
    memset(s->sum, 0, sizeof(s->sum));
    if (!s->turns)
        return;
    s->retry_ns = s->retry_ns ? 2 * s->retry_ns : RETRY_NS;
    s->retry_ns = s->retry_ns > RETRY_MAX * RETRY_NS ? RETRY_MAX * RETRY_NS : s->retry_ns;
    s->until = now_ns + s->retry_ns;
    s->turn_until = now_ns;
    memset(s->had, 0, sizeof(s->had));
}

uint32_t space_decide(struct space *s, const struct space_job *v, uint32_t n, uint64_t now_ns,
                      uint64_t *wake_ns)
{
    uint32_t unprotected = 0;
    for (uint32_t i = 0; i < n; i++)
        unprotected |= v[i].min_speed > 0 ? 0 : 1U << i;
    *wake_ns = UINT64_MAX;
    s->turns &= now_ns < s->until && unprotected == (1U << n) - 1;
    if (s->less > 0 && unprotected != (1U << n) - 1) {
        uint64_t begin = now_ns - now_ns % PERIOD_NS, runs = (uint64_t)((1 - s->less) * PERIOD_NS);
        bool held = now_ns - begin >= runs;
        *wake_ns = begin + (held ? PERIOD_NS : runs);
        return held ? unprotected : 0;
    }
    if (!s->turns)
        return 0;
    if (now_ns >= s->turn_until) {
        uint32_t next = 0;
        for (uint32_t i = 1; i < n; i++)
            next = s->had[i] < s->had[next] ? i : next;
        s->holder = next;
        s->had[next] += 1.0 / v[next].weight;
        s->turn_until = now_ns + TURN_NS;
    }
    *wake_ns = s->turn_until < s->until ? s->turn_until : s->until;
    return ((1U << n) - 1) & ~(1U << s->holder);
}
