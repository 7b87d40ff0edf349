/* The measurements (measure.c) that `cede doctor` (cli/doctor.c) and ceded's check of a driver
 * (check_main.c) make. */
#ifndef CEDE_DOCTOR_DOCTOR_H
#define CEDE_DOCTOR_DOCTOR_H

#include <stdbool.h>

#include "doctor/testbed.h"

/* Fields of a part are valid if the measurement got that far (done). */
struct measured {
    struct {
        bool done, effective;
        double asked, got;  /* ratio of the two programs' rates */
        double call_us;     /* time to set one timeslice on the busy GPU */
        double alone, a, b; /* rates of work */
    } timeslices;
    struct {
        bool done, stops, resumes;
        double suspend_us, resume_us; /* time of the calls */
        double work_us;               /* done while suspended */
        double rate_after;            /* of the resumed program, with both running again */
    } suspend;
    struct {
        bool done, effective;
        double default_p99_us, smallest_p99_us;
    } latency;
    struct {
        bool done; /* smallest timeslices, with the batch program switched out at block ends */
        double p99_us;
        struct error error;
    } preempt;
    struct {
        bool done, effective;
        double sent, seen; /* requests/s: of the latency program; in the driver's trace */
        struct error error;
    } activity;
};

/* Measures on two batch programs, then on a latency and a batch program, which it steers directly
 * through the driver, in less than 10 s. A control without effect is a result; an error says that
 * nothing could be measured. */
int measure_effects(struct testbed *s, const char *device, struct measured *out, struct error *err);

/* Measures on two batch programs alone, on a GPU that others may use meanwhile. The criteria are
 * factors too large for others to blur: timeslices.asked and got are the change of the ratio when
 * the two exchange their timeslices. preempt: whether the control is accepted. The programs find
 * the GPU by CUDA_VISIBLE_DEVICES; uuid is its name there, or "" for the first. */
int measure_controls(struct testbed *s, const char *device, const char *uuid, struct measured *out,
                     struct error *err);

/* cede-check */
int check_main(int argc, char **argv);

#endif
