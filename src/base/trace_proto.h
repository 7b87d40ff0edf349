/* What ceded sends to `cede trace` on its connection, after the answer to {"op":"trace"}: messages
 * of one or more events, plain structs, because both ends run on one machine and are of one version
 * (the answer has TRACE_VERSION). An event's time may lie before that of an earlier event. */
#ifndef CEDE_BASE_TRACE_PROTO_H
#define CEDE_BASE_TRACE_PROTO_H

#include <stdint.h>

#define TRACE_VERSION 3
#define TRACE_TEXT    72
#define TRACE_BATCH   256 /* events of a message, at most */

enum trace_kind {
    TRACE_GPU,     /* there is this GPU; text: its label and name */
    TRACE_JOB,     /* there is this job; text: its name, "" if that is not for the receiver */
    TRACE_JOB_END, /* it has ended */
    TRACE_STATE,   /* from now on; text: as in `cede ps --json` */
    TRACE_WHY,     /* a decision for job on gpu; text: why; v: job that it names, jobs before it,
                      us at most (UINT64_MAX: not known) */
    TRACE_SWITCH,  /* gpu's engine passes to job; job 0: v[0] is an enum trace_owner */
    TRACE_MEMORY,  /* of job; v: bytes */
    TRACE_BUSY,    /* share of GPU time lately, over all GPUs; v: per million of one GPU */
    TRACE_PART,    /* of gpu's work at the highest clock; v: enum gpu_part, per million */
    TRACE_REQUEST, /* of job, at_ns to v[0]; v[1] to v[2]: its lead, 0: it had none */
    TRACE_LEASE,   /* of job waited, at_ns to v[0]; text: its kernel; v[1]: hints_lease_what() */
    TRACE_LOST,    /* v: so many events were lost before this one; 1: and this is the last */
    TRACE_NOTE,    /* text: what the receiver should know */
    TRACE_POD,     /* of job; v: enum trace_pod; text: its name, not if TRACE_JOB has none */
    TRACE_KINDS
};
enum trace_pod { TRACE_NAMESPACE, TRACE_POD_NAME, TRACE_CONTAINER, TRACE_POD_NAMES };
enum trace_owner { TRACE_NOBODY, TRACE_NO_JOB, TRACE_UNKNOWN };

struct trace_event {
    uint64_t at_ns; /* CLOCK_MONOTONIC */
    uint64_t job;   /* number; 0: none */
    uint64_t v[3];
    uint32_t kind, gpu;
    char text[TRACE_TEXT]; /* ends with 0 */
};

#endif
