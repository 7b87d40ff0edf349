/* Types and limits that all rooms share: classes, the terms of a job, slots and times. */
#ifndef CEDE_BASE_JOB_TERMS_H
#define CEDE_BASE_JOB_TERMS_H

#include <stddef.h>
#include <stdint.h>

enum job_class { CLASS_LATENCY, CLASS_NORMAL, CLASS_BATCH, CLASS_COUNT };

/* Where a job may be switched out of a GPU: at any instruction, or when its running blocks end. */
enum preempt_mode { PREEMPT_INSTRUCTION, PREEMPT_BLOCK, PREEMPT_COUNT };

/* What is done with a job that has more GPU memory than its memory-max (plan/memory_limit.h). */
enum memory_over { MEMORY_WARN, MEMORY_PAUSE, MEMORY_KILL, MEMORY_OVER_COUNT };
#define MEMORY_MAX_MIB (1U << 30)

#define WEIGHT_MIN     1U
#define WEIGHT_MAX     10000U
#define WEIGHT_DEFAULT 100U

/* Accounts, whose jobs share a part of the GPU: see plan/account_shares.h. */
#define ACCOUNT_NAME_MAX 32
#define ACCOUNTS_NAMED   256U /* by the configuration, at most */

#define BUDGET_MAX_US 1000000U /* of added latency */

/* Limits of deadlines that are set for a job (not those of its requests). Whether a job works is
 * seen ten times per second, so shorter deadlines need the latency class. */
#define DEADLINE_MIN_US 200000U
#define DEADLINE_MAX_US 3600000000U

/* The parameters of a job. The struct goes whole from a request to the model, the journal, the
 * scheduler and the replies. A term is a member here and a row in api/job_terms.c, which has its
 * range and who may set it. Each member has four bytes, so that TERM() can number them. */
struct job_terms {
    enum job_class class;
    uint32_t weight;
    uint32_t budget_us;        /* extra delay that a latency job tolerates; 0: none */
    uint32_t gpu_min, gpu_max; /* percent of each GPU; 0: none */
    /* For programs that report no requests: the time in which each burst of GPU work should end
     * after it began, 0: any; and the part of that without need for the GPU, 0: estimated. */
    uint32_t deadline_us, laxity_us;
    enum preempt_mode preempt; /* of a batch job */
    uint32_t min_speed;        /* percent of its speed alone that a latency job keeps while lower
                                  ones run, or a batch job in an MPS server; 0: none */
    uint32_t memory_max_mib;   /* the most GPU memory that it may have on a GPU; 0: any */
    enum memory_over memory_over;
    uint32_t may_promote; /* no row: an administrator set the deadline, so that it may lift the
                             job into the latency class */
};
/* A set of terms is a bit map: TERM(class) | TERM(weight). */
#define TERM(member) (1U << offsetof(struct job_terms, member) / sizeof(uint32_t))

#define MEMORY_MAX_BYTES (1ULL << 50) /* the most GPU memory that a job may say it will take */

#define SLOT_NONE  UINT32_MAX /* no job, process, group or device */
#define TIME_NEVER UINT64_MAX

#endif
