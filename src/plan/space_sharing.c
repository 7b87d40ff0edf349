/* See space_sharing.h. */
#include "plan/space_sharing.h"

#include <math.h>
#include <string.h>

#define TRIAL     5U /* windows */
#define TURN_NS   1000000000U
#define PERIOD_NS 500000000U /* a whole number of them is a window */
#define LEAST     0.05       /* part of the time that jobs without min_speed have at least */
#define FAR       2.0        /* factor of the loss that may be, from which on it is far above */
#define SPARE     0.01       /* reserve of speed, so that the mean is not below min_speed */
#define IDLE      0.1        /* speed below which a job is idle, of that which it could have */
#define RETRY_NS  60000000000U
#define RETRY_MAX 16U /* times RETRY_NS */

static bool is_idle(const struct space *s, const struct space_job *v, uint32_t i)
{
    return v[i].unknown || s->idle >> i & 1;
}

static bool gains(const struct space *s, const struct space_job *v, uint32_t n)
{
    double weights = 0;
    bool fair = true;
    for (uint32_t i = 0; i < n; i++)
        weights += is_idle(s, v, i) ? 0 : v[i].weight;
    for (uint32_t i = 0; i < n; i++) {
        double speed = s->sum[i] / s->windows;
        fair &= is_idle(s, v, i) || speed >= SPACE_FAIR * v[i].weight / weights;
    }
    return s->all / s->windows >= SPACE_GAIN && (fair || 2 * s->alike > s->windows);
}

/* Finds the job that is furthest below its min_speed, or least above; false: none has one. */
static bool missing(const struct space *s, const struct space_job *v, uint32_t n, double *lost,
                    double *may_lose)
{
    double worst = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        double below = v[i].min_speed - v[i].speed.value;
        if (v[i].min_speed <= 0 || is_idle(s, v, i) || below <= worst)
            continue;
        worst = below;
        *lost = 1 - v[i].speed.value;
        *may_lose = fmax(1 - v[i].min_speed - SPARE, 0);
    }
    return isfinite(worst);
}

/* The loss grows with the time for which the others run. That time is set to the right value at
 * once if the loss is far above, and else approached by halves, because speeds err. */
static void regulate(struct space *s, double lost, double may_lose)
{
    double time = 1 - s->less, right = time * may_lose / fmax(lost, 0.005);
    double by = lost > FAR * may_lose ? 1 : 0.5;
    time += (fmin(fmax(right, time / 4), time * 2) - time) * by;
    s->less = 1 - fmin(fmax(time, LEAST), 1);
}

static void begin_trial(struct space *s)
{
    s->windows = s->alike = 0;
    s->all = 0;
    memset(s->sum, 0, sizeof(s->sum));
}

/* Finds jobs that do nothing although they could, and idle jobs that work again. */
static void see_idle(struct space *s, const struct space_job *v, uint32_t n)
{
    uint32_t was = s->idle, working = 0;
    for (uint32_t i = 0; i < n; i++) {
        double alone = s->turns ? s->current == i : v[i].min_speed > 0 ? s->less : 0;
        if (v[i].unknown || v[i].speed.error > SPEED_ERROR_MAX)
            continue;
        if (was >> i & 1 && v[i].speed.value > IDLE)
            s->idle &= ~(1U << i);
        else if (!(was >> i & 1) && v[i].speed.value < IDLE * alone)
            s->idle |= 1U << i;
    }
    if (s->idle == was)
        return;
    for (uint32_t i = 0; i < n; i++)
        working += !is_idle(s, v, i);
    begin_trial(s);
    memset(s->had, 0, sizeof(s->had));
    s->turn_until = 0;
    s->less = 0;
    if (working < 2) {
        s->turns = false;
        s->retry_ns = 0;
    }
}

void space_begin_turns(struct space *s, uint64_t now_ns)
{
    s->turns = true;
    s->retry_ns = s->retry_ns ? 2 * s->retry_ns : RETRY_NS;
    s->retry_ns = s->retry_ns > RETRY_MAX * RETRY_NS ? RETRY_MAX * RETRY_NS : s->retry_ns;
    s->until = now_ns + s->retry_ns;
    s->turn_until = now_ns;
    memset(s->had, 0, sizeof(s->had));
}

int space_told(struct space *s, const struct space_job *v, uint32_t n, struct speed all,
               uint64_t now_ns)
{
    bool told = true;
    double lost = 0, may_lose = 0;
    uint32_t working = 0;
    see_idle(s, v, n);
    for (uint32_t i = 0; i < n; i++) {
        told &= is_idle(s, v, i) || v[i].speed.error <= SPEED_ERROR_MAX;
        working += !is_idle(s, v, i);
    }
    if (all.error > SPEED_ERROR_MAX || s->turns || working < 2)
        return 0; /* jobs of which nothing is known stay together */
    if (missing(s, v, n, &lost, &may_lose)) {
        regulate(s, lost, may_lose);
        return 0;
    }
    s->less = 0;
    for (uint32_t i = 0; i < n; i++)
        s->sum[i] += v[i].speed.value;
    s->all += all.value;
    s->alike += !told;
    if (++s->windows < TRIAL)
        return 0;
    bool gain = gains(s, v, n);
    begin_trial(s);
    if (!gain)
        space_begin_turns(s, now_ns);
    return gain ? 1 : -1;
}

static uint32_t next_turn(const struct space *s, uint32_t working, uint32_t n)
{
    uint32_t next = SPEED_JOBS;
    for (uint32_t i = 0; i < n; i++) {
        if (working >> i & 1 && (next == SPEED_JOBS || s->had[i] < s->had[next]))
            next = i;
    }
    return next;
}

bool space_outside_turn(double share, uint64_t now_ns, uint64_t *until_ns)
{
    const double less = fmin(share, 1 - share);
    *until_ns = UINT64_MAX;
    if (less <= 0)
        return share <= 0;
    const uint64_t period = (uint64_t)(TURN_NS / fmax(less, LEAST)),
                   begin = now_ns - now_ns % period, inside = (uint64_t)(share * (double)period);
    const bool held = now_ns - begin >= inside;
    *until_ns = begin + (held ? period : inside);
    return held;
}

uint32_t space_decide(struct space *s, const struct space_job *v, uint32_t n, uint64_t now_ns,
                      uint64_t *wake_ns)
{
    uint32_t working = 0, unprotected = 0;
    for (uint32_t i = 0; i < n; i++) {
        working |= is_idle(s, v, i) ? 0 : 1U << i;
        unprotected |= is_idle(s, v, i) || v[i].min_speed > 0 ? 0 : 1U << i;
    }
    *wake_ns = UINT64_MAX;
    s->turns &= now_ns < s->until && unprotected == working && working;
    if (s->less > 0 && unprotected != working) {
        uint64_t begin = now_ns - now_ns % PERIOD_NS, runs = (uint64_t)((1 - s->less) * PERIOD_NS);
        bool held = now_ns - begin >= runs;
        *wake_ns = begin + (held ? PERIOD_NS : runs);
        return held ? unprotected : 0;
    }
    if (!s->turns)
        return 0;
    if (now_ns >= s->turn_until) {
        s->current = next_turn(s, working, n);
        s->had[s->current] += 1.0 / v[s->current].weight;
        s->turn_until = now_ns + TURN_NS;
    }
    *wake_ns = s->turn_until < s->until ? s->turn_until : s->until;
    return working & ~(1U << s->current);
}
