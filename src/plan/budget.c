/* See budget.h. */
#include "plan/budget.h"

#include <math.h>
#include <stddef.h>

#define STEPS   48 /* of bisection, enough for microseconds in a double */
#define RATE_HZ 1e-3
#define MOST_HZ 1e6
/* A longer slice has to save at least this part of the switching time, because otherwise it costs
 * latency for nothing: requests every 2 ms end a slice of 1 ms no later than one of 1 us. */
#define WORTH 0.1

/* The mean time for which the batch job runs until it loses the GPU, in seconds. */
static double run_s(double slice_s, double rate_hz)
{
    return slice_s + exp(-rate_hz * slice_s) / rate_hz;
}

static double rate_seen(const struct budget_seen *seen, double switch_s)
{
    double left = fmax(1.0 - seen->busy, 0.0);
    double run = seen->returns_hz > 0.0 ? left / seen->returns_hz - 2.0 * switch_s : INFINITY;
    double slice_s = seen->slice_us * 1e-6;
    if (run <= run_s(slice_s, MOST_HZ))
        return MOST_HZ;
    double lo = RATE_HZ, hi = MOST_HZ;
    for (int i = 0; i < STEPS; i++) {
        double mid = sqrt(lo * hi);
        if (run_s(slice_s, mid) > run)
            lo = mid;
        else
            hi = mid;
    }
    return hi;
}

uint32_t budget_slice_us(const struct sched_params *p, uint32_t budget_us,
                         const struct budget_seen *seen)
{
    uint32_t least = p->timeslice_min_us, most = p->timeslice_max_us;
    if (budget_us <= 2 * p->switch_us + least)
        return least;
    if (budget_us - 2 * p->switch_us < most)
        most = budget_us - 2 * p->switch_us;
    if (!seen)
        return most;
    double switch_s = p->switch_us * 1e-6, rate = rate_seen(seen, switch_s);
    double enough_s = 2.0 * switch_s * (1.0 / p->switch_loss - 1.0);
    double shortest_s = run_s(least * 1e-6, rate), longest_s = run_s(most * 1e-6, rate);
    double saved = 1.0 - (shortest_s + 2.0 * switch_s) / (longest_s + 2.0 * switch_s);
    if (shortest_s >= enough_s || saved < WORTH)
        return least;
    if (longest_s <= enough_s)
        return most;
    double lo = least, hi = most;
    for (int i = 0; i < STEPS; i++) {
        double mid = (lo + hi) / 2.0;
        if (run_s(mid * 1e-6, rate) < enough_s)
            lo = mid;
        else
            hi = mid;
    }
    return (uint32_t)hi;
}

/* Time constant: 50 requests at 100/s, and quick enough to follow a changing load. */
#define SEEN_S 0.5

void observed_add(struct observed *o, const struct sched_event *ev)
{
    double window = (double)ev->window_ns * 1e-9, keep = window < SEEN_S ? 1 - window / SEEN_S : 0;
    o->seconds = o->seconds * keep + window;
    o->returns = o->returns * keep + ev->returns;
    o->busy_s = o->busy_s * keep + (double)ev->busy_ns * 1e-9;
}

/* Whether there are enough to judge the present slice. */
static bool observed_enough(const struct observed *o)
{
    return o->seconds >= 0.2 && (o->returns >= 8 || o->seconds >= 0.4);
}

/* The slice changes by a fifth at least, because a change is a control call and discards the
 * observations. It shrinks only if it would not grow again at once. */
uint32_t budget_decide(const struct sched_params *p, struct budget *b, struct observed *seen,
                       uint32_t least_us)
{
    if (!least_us) {
        b->slice_us = 0;
        return p->timeslice_min_us;
    }
    /* Without observations the slice is as long as the budget allows. */
    uint32_t most = budget_slice_us(p, least_us, NULL), now = b->slice_us;
    uint32_t next = now >= p->timeslice_min_us && now <= most ? now : most;
    if (next == now && observed_enough(seen)) {
        struct budget_seen o = {.returns_hz = seen->returns / seen->seconds,
                                .busy = seen->busy_s / seen->seconds,
                                .slice_us = now};
        struct sched_params strict = *p;
        strict.switch_loss *= 0.8;
        uint32_t up = budget_slice_us(p, least_us, &o),
                 down = budget_slice_us(&strict, least_us, &o);
        if (up > now + now / 5 || down < now - now / 5)
            next = up > now ? up : down;
    }
    if (next != now)
        *seen = (struct observed){0};
    return b->slice_us = next;
}
