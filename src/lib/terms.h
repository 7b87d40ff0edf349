/* What all parts mean by the same words: classes, weights, slots and times. Constants only. */
#ifndef CEDE_LIB_TERMS_H
#define CEDE_LIB_TERMS_H

#include <stdint.h>

enum job_class { CLASS_LATENCY, CLASS_NORMAL, CLASS_BATCH, CLASS_COUNT };

/* Where a job may be switched out of a GPU: at any instruction, or when its running blocks end. */
enum preempt_mode { PREEMPT_INSTRUCTION, PREEMPT_BLOCK, PREEMPT_COUNT };

#define WEIGHT_MIN     1U
#define WEIGHT_MAX     10000U
#define WEIGHT_DEFAULT 100U

/* Whose jobs share a part of the GPU: see sched/account.h. */
#define ACCOUNT_NAME_MAX 32
#define ACCOUNTS_NAMED   256U /* by the configuration, at most */

#define BUDGET_MAX_US 1000000U /* of added latency */

/* Deadlines that somebody sets for a job (not those of its requests). Who works is seen ten times a
 * second: for shorter ones there is the latency class. */
#define DEADLINE_MIN_US 200000U
#define DEADLINE_MAX_US 3600000000U

#define MEMORY_MAX_BYTES (1ULL << 50) /* of a GPU, that a job may say it will take */

#define SLOT_NONE  UINT32_MAX /* no job, process, group or device */
#define TIME_NEVER UINT64_MAX

#endif
