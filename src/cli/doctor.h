/* Between the two halves of `cede doctor`: what is looked at (doctor.c) and what is measured
 * (measure.c), which ceded's check of a driver uses too (check.c). */
#ifndef CEDE_CLI_DOCTOR_H
#define CEDE_CLI_DOCTOR_H

#include <stdbool.h>

#include "testbed/testbed.h"

/* Fields are of use only where the measurement got as far (done). */
struct measured {
    struct {
        bool done, effective;
        double asked, got;  /* ratio of the two programs' rates */
        double call_us;     /* of setting one timeslice on the busy GPU */
        double alone, a, b; /* rates of work */
    } timeslices;
    struct {
        bool done, stops, resumes;
        double suspend_us, resume_us; /* the calls */
        double work_us;               /* done while suspended */
        double rate_after;            /* of the one that was resumed, both running again */
    } suspend;
    struct {
        bool done, effective;
        double default_p99_us, smallest_p99_us;
    } latency;
    struct {
        bool done; /* with the smallest slices, and the batch program switched out at block ends */
        double p99_us;
        struct error error;
    } preempt;
    struct {
        bool done, effective;
        double sent, seen; /* requests/s of the latency program, as the driver's trace shows */
        struct error error;
    } activity;
};

/* Two batch programs, then a latency and a batch program, steered directly through the driver,
 * under 10 s. Returns an error when it could not be measured; that a control has no effect is a
 * result. */
int measure_effects(struct testbed *s, const char *device, struct measured *out, struct error *err);

/* The same with two batch programs alone, on a GPU that others may use meanwhile: what is effective
 * or not is told by factors that they do not blur, and timeslices.asked and got are the change of
 * the ratio when the two exchange their timeslices. preempt: whether the control is accepted. The
 * programs find the GPU by CUDA_VISIBLE_DEVICES; uuid is its name there, or "" for the first. */
int measure_controls(struct testbed *s, const char *device, const char *uuid, struct measured *out,
                     struct error *err);

#endif
