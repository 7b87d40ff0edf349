/* See space.h. */
#include "sched/space.h"

#include <math.h>
#include <string.h>

#define TRIAL     5U   /* windows */
#define GAIN      0.97 /* turns give 0.93 to 1.0 in sum: each switch costs, and gaps are filled */
#define FAIR      0.5  /* of a job's turns */
#define TURN_NS   1000000000U
#define RETRY_NS  60000000000U
#define RETRY_MAX 16U /* times RETRY_NS */

static bool gains(const struct space *s, const struct space_job *v, uint32_t n)
{
    double all = 0, weights = 0;
    bool fair = true;
    for (uint32_t i = 0; i < n; i++)
        weights += v[i].weight;
    for (uint32_t i = 0; i < n; i++) {
        double speed = s->sum[i] / s->windows;
        all += speed;
        fair &= speed >= FAIR * v[i].weight / weights;
    }
    return all >= GAIN && fair;
}

void space_told(struct space *s, const struct space_job *v, uint32_t n, uint64_t now_ns)
{
    bool told = true;
    for (uint32_t i = 0; i < n; i++)
        told &= v[i].speed.error <= SPEED_ERROR_MAX;
    if (!told || s->turns)
        return; /* who cannot be told apart stays together */
    for (uint32_t i = 0; i < n; i++)
        s->sum[i] += v[i].speed.value;
    if (++s->windows < TRIAL)
        return;
    s->turns = !gains(s, v, n);
    s->windows = 0;
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
    *wake_ns = UINT64_MAX;
    s->turns &= now_ns < s->until;
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
