/* The parameters of the policies, one row each: the name in cede.conf, in the protocol and in
 * `cede policy`, what it is, the default and the bounds. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/sched.h"

#define WHOLE(f, v)       .name = #f, .offset = offsetof(struct sched_params, f), .value = (v)
#define REAL(f, v)        WHOLE(f, v), .real = true
#define FROM_TO(min, max) .lo = {.value = (min)}, .hi = {.value = (max)}
#define UP_TO(min, max)   .lo = {.value = (min)}, .hi = {.field = #max}
#define SLICE             .lo = {.field = "timeslice_min_us"}, .hi = {.field = "timeslice_max_us"}

/* A parameter that bounds others comes before them, so that it is the one that is named. */
static const struct param params[] = {
    {WHOLE(timeslice_max_us, 1000000), FROM_TO(1000, 10000000),
     .help = "longest slice that is ever set"},
    /* The hardware's smallest. A switch takes about 170 us with any slice (H200), so it costs
     * nothing as long as one batch job at a time has it. */
    {WHOLE(timeslice_min_us, 1), UP_TO(1, timeslice_max_us),
     .help = "slice of a job below the highest class"},
    {WHOLE(timeslice_latency_us, 4000), SLICE,
     .help = "slice of the lightest of several latency jobs"},
    {WHOLE(timeslice_alone_us, 1000000), SLICE,
     .help = "slice of the only job of the highest class"},
    /* Measured on H200: 30:10 ms 0.743 + 0.247, 10:10 ms 0.490 + 0.490. Each slice loses one
     * switch of 0.2 ms: twice as long a slice halves that, and a round of two stays short. */
    {WHOLE(timeslice_share_us, 20000), SLICE,
     .help = "slice of the lightest of jobs that share by weight"},
    {WHOLE(timeslice_floor_us, 2000), SLICE,
     .help = "slice of a job of a lower class where floor is above 0"},
    /* A turn costs one suspend and one resume, about 0.9 ms: 0.5 % of it. */
    {WHOLE(rotation_us, 200000), FROM_TO(10000, 60000000),
     .help = "turn of one of several jobs below the highest class"},
    {WHOLE(probe_us, 20000), UP_TO(1000, rotation_us),
     .help = "turn of a job that had no work lately"},
    /* Measured on H200: a request of 0.1 ms costs batch jobs 0.45 ms. */
    {WHOLE(switch_us, 180), FROM_TO(1, 100000), .help = "time of a switch between two jobs"},
    /* Reached at 150 requests/s. Below that a slice of a few ms would save nothing: the batch
     * job runs until the next request anyway. */
    {REAL(switch_loss, 0.05), FROM_TO(0.001, 0.5),
     .help = "share of time for switches before a budget is used"},
    /* Measured on H100: with slices of 1 to 1.5 ms eager PyTorch keeps 0.9 of its speed and a
     * training gets 0.7 of the GPU; with less for PyTorch the training gains next to nothing. */
    {REAL(latency_speed, 0.9), FROM_TO(0.01, 1),
     .help = "share of its speed alone that a latency job keeps"},
    /* A job that saturates the GPU and is to keep its speed keeps 0.99 of it. */
    {REAL(top_loss, 0.005), FROM_TO(0.001, 1),
     .help = "share of time that a job which keeps all of it may lose"},
    {WHOLE(copies_apart, 0), FROM_TO(0, 1), .help = "1: copy groups keep their slices"},
    /* The smallest value above 0 keeps all times that follow from it within an integer's range. */
    {REAL(floor, 0), FROM_TO(0.001, 0.5), .or_zero = true,
     .help = "share of the GPU kept for lower classes; 0: none"},
    /* Estimates err by some tenths of a second, as observations lag by 0.15 s. A job that is early
     * costs the others nothing in the end. */
    {WHOLE(urgent_us, 500000), FROM_TO(0, 600000000),
     .help = "slack at which a job overtakes its class"},
    {WHOLE(edf_k, 1), FROM_TO(1, 64),
     .help = "earliest deadlines of which the first achievable runs"},
    {REAL(deadline_share, 0.8), FROM_TO(0.001, 0.95), .or_zero = true,
     .help = "share of time for which deadlines may delay others"},
};
_Static_assert(sizeof(params) / sizeof(params[0]) == PARAMS_COUNT, "");

void params_default(struct sched_params *p)
{
    memset(p, 0, sizeof(*p));
    for (unsigned i = 0; i < PARAMS_COUNT; i++)
        param_set(p, &params[i], params[i].value);
}

const struct param *param_at(unsigned i)
{
    return i < PARAMS_COUNT ? &params[i] : NULL;
}

const struct param *param_find(const char *name)
{
    for (unsigned i = 0; i < PARAMS_COUNT; i++) {
        if (strcmp(name, params[i].name) == 0)
            return &params[i];
    }
    return NULL;
}

double param_get(const struct sched_params *p, const struct param *f)
{
    const void *at = (const char *)p + f->offset;
    return f->real ? *(const double *)at : *(const uint32_t *)at;
}

int param_set(struct sched_params *p, const struct param *f, double value)
{
    void *at = (char *)p + f->offset;
    if (!f->real && !(value >= 0 && value <= UINT32_MAX && floor(value) == value))
        return -EINVAL;
    if (f->real)
        *(double *)at = value;
    else
        *(uint32_t *)at = (uint32_t)value;
    return 0;
}

static double bound_value(const struct sched_params *p, const struct param_bound *b)
{
    return b->field ? param_get(p, param_find(b->field)) : b->value;
}

int params_check(const struct sched_params *p, const struct param **what)
{
    for (unsigned i = 0; i < PARAMS_COUNT; i++) {
        const struct param *f = *what = &params[i];
        double v = param_get(p, f);
        bool inside = v >= bound_value(p, &f->lo) && v <= bound_value(p, &f->hi); /* NaN: no */
        if (!inside && !(f->or_zero && v == 0.0))
            return -EINVAL;
    }
    return 0;
}

static void bound_text(const struct param_bound *b, char *buf, size_t size)
{
    if (b->field)
        snprintf(buf, size, "%s", b->field);
    else
        snprintf(buf, size, "%.10g", b->value);
}

const char *param_range(const struct param *f, char buf[static PARAM_RANGE])
{
    char lo[32], hi[32];
    bound_text(&f->lo, lo, sizeof(lo));
    bound_text(&f->hi, hi, sizeof(hi));
    bool either = !f->real && !f->hi.field && f->hi.value == f->lo.value + 1;
    snprintf(buf, PARAM_RANGE, "%s%s %s %s", f->or_zero ? "0, or " : "", lo, either ? "or" : "to",
             hi);
    return buf;
}
