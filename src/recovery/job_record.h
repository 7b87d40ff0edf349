/* What is a record of a job or of a member of one: journal.c. */
#ifndef CEDE_RECOVERY_JOB_RECORD_H
#define CEDE_RECOVERY_JOB_RECORD_H

#include <string.h>

#include "recovery/journal.h"

#define NUMBER_MAX   (1ULL << 53) /* job numbers travel as JSON numbers */
#define JOB_CHANGING 0U           /* for a sum: old and new values mixed, all of which were meant */

/* FNV-1a. */
static inline uint32_t sum_of(const void *data, size_t size)
{
    const unsigned char *p = data;
    uint32_t h = 2166136261U;
    for (size_t i = 0; i < size; i++)
        h = (h ^ p[i]) * 16777619U;
    return h;
}

static inline uint32_t job_sum(const struct journal_job *r)
{
    uint32_t sum = sum_of(r, offsetof(struct journal_job, sum));
    return sum == JOB_CHANGING ? 1 : sum;
}

static inline bool yield_ok(const struct journal_job *r)
{
    return r->yielded <= (YIELD_CLASS | YIELD_PAUSE | YIELD_MEMORY) &&
           r->yielded_class < CLASS_COUNT && r->yielded_budget_us <= BUDGET_MAX_US;
}

static inline bool job_ok(const struct journal_job *r)
{
    return r->root.pid > 0 && r->class < CLASS_COUNT && r->weight >= WEIGHT_MIN && r->paused <= 1 &&
           r->weight <= WEIGHT_MAX && r->budget_us <= BUDGET_MAX_US && r->room <= ROOM_NONE &&
           r->may_promote <= 1 && r->gpu_min <= 100 && r->gpu_max <= 100 && r->min_speed <= 100 &&
           r->memory_bytes <= MEMORY_MAX_BYTES && r->number <= NUMBER_MAX &&
           memchr(r->name, '\0', sizeof(r->name)) && memchr(r->account, '\0', sizeof(r->account)) &&
           r->deadline_us <= DEADLINE_MAX_US && r->memory_gpu < DEVICE_GPUS_MAX && yield_ok(r) &&
           r->cgroup.hierarchy <= CGROUP_HIERARCHIES && r->preempt < PREEMPT_COUNT &&
           r->laxity_us <= DEADLINE_MAX_US && !(r->placed >> DEVICE_GPUS_MAX) &&
           (r->sum == JOB_CHANGING || (r->sum == job_sum(r) && r->laxity_us <= r->deadline_us));
}

static inline uint64_t member_sum(const struct journal_member *r)
{
    const uint64_t prime = 1099511628211ULL;
    uint64_t h = ((uint64_t)(uint32_t)r->proc.pid ^ 14695981039346656037ULL) * prime;
    h = (h ^ r->proc.start_ticks) * prime;
    return (h ^ r->job) * prime;
}

/* With what is between the members, which is summed too. A job that has not yielded its class
 * yields the one that it has: so a record in which old and new are mixed gives no other back. */
static inline void job_copy(struct journal_job *to, const struct journal_job *job)
{
    memcpy(to, job, sizeof(*to));
    if (to->yielded & YIELD_CLASS)
        return;
    to->yielded_class = to->class;
    to->yielded_budget_us = to->budget_us;
}

#endif
