/* The data of accounting: a row has the sums of one job for a piece of time, at most an hour. The
 * same structures go from ceded to the recorder (acct/recorder.h), and from that to clients. All
 * have a fixed size, as both ends are the same program. */
#ifndef CEDE_ACCT_ROW_H
#define CEDE_ACCT_ROW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/job_terms.h"
#include "who/pod_names.h"
#include "who/workload.h"

/* Sums of a row, each a column of this name. Times in ns; those of GPUs summed over GPUs. */
#define ACCT_SUMS(X)                                                                               \
    X(GPU_NS, "gpu_ns")         /* engine time, as far as it was seen */                           \
    X(EXACT_NS, "exact_ns")     /* of that, by the driver's record of switches; else by samples */ \
    X(ALLOWED_NS, "allowed_ns") /* could have the GPU: GPU_NS is not more, but for sampling */     \
    X(WAITED_NS, "waited_ns")   /* had work and waited for others */                               \
    X(KNOWN_NS, "known_ns")     /* known to ceded; of that: */                                     \
    X(QUEUED_NS, "queued_ns")   /* waited for GPU memory before it began, */                       \
    X(PAUSED_NS, "paused_ns")   /* paused by a person, */                                          \
    X(SWAPPED_NS, "swapped_ns") /* out of GPU memory or on the way */                              \
    X(TURNS, "turns")                                                                              \
    X(PREEMPTED, "preempted")                                                                      \
    X(SWAPS, "swaps")                                                                              \
    X(SWAPPED_BYTES, "swapped_bytes")                                                              \
    X(REQUESTS, "requests") /* ended, as its programs reported through libcede; of those: */       \
    X(DUE, "due")           /* had a deadline, */                                                  \
    X(MET, "met")           /* and met it */
#define X(id, name) ACCT_##id,
enum acct_sum { ACCT_SUMS(X) ACCT_SUMS_COUNT };
#undef X

#define ACCT_NAME_MAX 64 /* JOB_NAME_MAX */

struct acct_row {
    /* The job: unique, and the same in all its rows. */
    int64_t boot;
    uint64_t number, start_ticks;
    /* The row among those of the job: a row that is sent again replaces the one before. */
    int64_t session; /* of ceded */
    uint64_t piece;

    int64_t begin_s, end_s; /* since 1970 */
    uint32_t ended;         /* the job ended with this row */
    uint32_t uid;           /* of its first process */
    uint32_t class;         /* enum job_class, at the end of the row */
    uint32_t gpus;          /* number of GPUs that it used */
    uint64_t sums[ACCT_SUMS_COUNT];
    char name[ACCT_NAME_MAX], account[ACCOUNT_NAME_MAX];
    struct workload workload;
    struct pod_names pod; /* as agents reported; workload.pod is the pod's uid */
    uint64_t jobs, rows;  /* in an answer: the numbers that this sums up */
};

/* A message from ceded to the recorder. */
enum acct_kind { ACCT_ROW, ACCT_SETTINGS };
struct acct_message {
    uint64_t kind;
    uint64_t seq; /* the recorder answers with it when the row is on disk */
    struct acct_row row;
    struct acct_settings {
        uint32_t admin_gid; /* its members see all; (gid_t)-1: none */
        uint32_t keep_days;
        int64_t session;
        uint64_t dropped; /* rows that ceded had no room for, in this session */
    } settings;
};

enum acct_by {
    ACCT_BY_JOB,
    ACCT_BY_ROW, /* not summed up */
    ACCT_BY_USER,
    ACCT_BY_NAME,
    ACCT_BY_CLASS,
    ACCT_BY_UNIT,
    ACCT_BY_POD,
    ACCT_BY_SLURM,
    ACCT_BY_COUNT
};

#define ACCT_ANYBODY UINT32_MAX
/* To be changed with these structures, as client and recorder may be of different releases. */
#define ACCT_PROTO 2
struct acct_query {
    uint64_t proto;
    int64_t start_s, end_s;   /* rows with some of their time in [start, end) count, whole */
    uint32_t uid;             /* ACCT_ANYBODY: all that may be seen */
    uint32_t class;           /* CLASS_COUNT: all */
    uint32_t by;              /* enum acct_by */
    char name[ACCT_NAME_MAX]; /* "": all */
    uint64_t number;          /* of the job; 0: all */
};

/* The answer: a message for each row, then one with `last`. */
struct acct_answer {
    uint32_t last;
    int32_t code; /* of the last: 0, or -errno with the reason in text */
    uint64_t dropped;
    union {
        struct acct_row row;
        char text[256];
    };
};

#endif
