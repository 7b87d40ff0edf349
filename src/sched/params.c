/* The parameters of the policies: defaults, bounds, and their names in cede.conf. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "sched/sched.h"

void params_default(struct sched_params *p)
{
    *p = (struct sched_params){
        /* The hardware's smallest. One switch costs about 170 us whatever the slice (H200), so
         * nothing is lost by it as long as one batch job at a time has it. */
        .timeslice_min_us = 1,
        .timeslice_latency_us = 4000,
        .timeslice_alone_us = 1000000,
        /* Measured on H200: 30:10 ms 0.743 + 0.247, 10:10 ms 0.490 + 0.490. Each slice loses one
         * switch of 0.2 ms: twice as long a slice halves that, and a round of two stays short. */
        .timeslice_share_us = 20000,
        .timeslice_max_us = 1000000,
        /* A turn costs one suspend and one resume, about 0.9 ms: 0.5 % of it. */
        .rotation_us = 200000,
        .probe_us = 20000,
        .timeslice_floor_us = 2000,
        /* Measured on H200: a request of 0.1 ms costs the batch side 0.45 ms. */
        .switch_us = 180,
        /* Reached at 150 requests/s. Below that a slice of a few ms would save nothing: the batch
         * job runs until the next request anyway. */
        .switch_loss = 0.05,
        /* A job that saturates the GPU is to keep 0.99 of its speed. */
        .top_loss = 0.005,
        .floor = 0.0,
        /* Estimates err by some tenths of a second: what is seen of a job lags by 0.15 s. Being
         * early costs the others nothing in the end. */
        .urgent_us = 500000,
        .edf_k = 1,
        .deadline_share = 0.8,
    };
}

#define FIELD(f, real, allowed)                                                                    \
    {                                                                                              \
#f, offsetof(struct sched_params, f), real, allowed                                        \
    }
#define SLICE "timeslice_min_us to timeslice_max_us are allowed"
static const struct param fields[] = {
    FIELD(timeslice_min_us, false, "1 to timeslice_max_us are allowed"),
    FIELD(timeslice_latency_us, false, SLICE),
    FIELD(timeslice_alone_us, false, SLICE),
    FIELD(timeslice_share_us, false, SLICE),
    FIELD(timeslice_max_us, false, "1000 to 10000000 are allowed"),
    FIELD(timeslice_floor_us, false, SLICE),
    FIELD(rotation_us, false, "10000 to 60000000 are allowed"),
    FIELD(probe_us, false, "1000 to rotation_us are allowed"),
    FIELD(switch_us, false, "1 to 100000 are allowed"),
    FIELD(switch_loss, true, "0.001 to 0.5 is allowed"),
    FIELD(top_loss, true, "0.001 to 1 is allowed"),
    FIELD(copies_apart, false, "0 or 1 is allowed"),
    FIELD(floor, true, "0 to 0.5 is allowed, and nothing between 0 and 0.001"),
    FIELD(urgent_us, false, "0 to 600000000 are allowed"),
    FIELD(edf_k, false, "1 to 64 are allowed"),
    FIELD(deadline_share, true, "0 to 0.95 is allowed, and nothing between 0 and 0.001"),
};
_Static_assert(sizeof(fields) / sizeof(fields[0]) == PARAMS_COUNT, "");

const struct param *param_at(unsigned i)
{
    return i < PARAMS_COUNT ? &fields[i] : NULL;
}

const struct param *param_find(const char *name)
{
    for (unsigned i = 0; i < PARAMS_COUNT; i++) {
        if (strcmp(name, fields[i].name) == 0)
            return &fields[i];
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

int params_check(const struct sched_params *p, const struct param **what)
{
    double min = p->timeslice_min_us, max = p->timeslice_max_us;
    /* What bounds others comes first, so that the culprit is named. or_zero: 0 switches it off;
     * the smallest other value keeps all times that follow from it within an integer's range. */
    const struct {
        const char *name;
        double lo, hi;
        bool or_zero;
    } f[] = {
        {"timeslice_max_us", 1000, 10000000, false},
        {"timeslice_min_us", 1, max, false},
        {"timeslice_latency_us", min, max, false},
        {"timeslice_alone_us", min, max, false},
        {"timeslice_share_us", min, max, false},
        {"timeslice_floor_us", min, max, false},
        {"rotation_us", 10000, 60000000, false},
        {"probe_us", 1000, p->rotation_us, false},
        {"switch_us", 1, 100000, false},
        {"switch_loss", 0.001, 0.5, false},
        {"top_loss", 0.001, 1.0, false},
        {"copies_apart", 0, 1, false},
        {"floor", 0.001, 0.5, true},
        {"urgent_us", 0, 600000000, false},
        {"edf_k", 1, 64, false},
        {"deadline_share", 0.001, 0.95, true},
    };
    _Static_assert(sizeof(f) / sizeof(f[0]) == PARAMS_COUNT, "");
    for (unsigned i = 0; i < PARAMS_COUNT; i++) {
        *what = param_find(f[i].name);
        double v = param_get(p, *what);
        if (!(v >= f[i].lo && v <= f[i].hi) && !(f[i].or_zero && v == 0.0)) /* NaN too */
            return -EINVAL;
    }
    return 0;
}
