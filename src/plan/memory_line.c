/* See memory_line.h. */
#include "plan/memory_line.h"

#include <stdlib.h>

#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

static int by_turn(const struct room_job *a, const struct room_job *b)
{
    int r = COMPARE(a->class, b->class);
    r = r ? r : COMPARE(a->line_ns, b->line_ns);
    return r ? r : COMPARE(a->number, b->number);
}

/* The memory that is not available to a waiting job of that class. */
static uint64_t room_kept(const struct room_job *jobs, uint32_t n, enum job_class class)
{
    uint64_t taken = 0;
    for (uint32_t i = 0; i < n; i++) {
        taken += jobs[i].waits ? 0 : jobs[i].need_bytes;
        taken += jobs[i].class <= class ? jobs[i].back_bytes : 0;
    }
    return taken;
}

/* The first in line, of the jobs that need at most most[class] if that is given. */
static uint32_t room_first(const struct room_job *jobs, uint32_t n, const uint64_t *most)
{
    uint32_t first = SLOT_NONE;
    for (uint32_t i = 0; i < n; i++) {
        const struct room_job *j = &jobs[i];
        if (j->waits && !j->infeasible && (!most || j->need_bytes <= most[j->class]) &&
            (first == SLOT_NONE || by_turn(j, &jobs[first]) < 0))
            first = i;
    }
    return first;
}

static void room_start(struct room_job *jobs, uint32_t n, uint32_t job, uint64_t now_ns)
{
    jobs[job].waits = false;
    for (uint32_t i = 0; i < n; i++) {
        if (jobs[i].waits && jobs[i].account == jobs[job].account &&
            jobs[i].class == jobs[job].class)
            jobs[i].line_ns = now_ns;
    }
}

/* Starts jobs as long as they fit. pass: also past those that do not. */
static void room_fill(struct room_job *jobs, uint32_t n, uint64_t free_bytes, uint64_t now_ns,
                      bool pass)
{
    for (;;) {
        uint64_t most[CLASS_COUNT];
        for (int c = 0; c < CLASS_COUNT; c++) {
            uint64_t taken = room_kept(jobs, n, (enum job_class)c);
            most[c] = taken < free_bytes ? free_bytes - taken : 0;
        }
        uint32_t next = room_first(jobs, n, pass ? most : NULL);
        if (next == SLOT_NONE || jobs[next].need_bytes > most[jobs[next].class])
            return;
        room_start(jobs, n, next, now_ns);
    }
}

void room_decide(struct room_job *jobs, uint32_t n, uint64_t free_bytes, uint64_t now_ns)
{
    room_fill(jobs, n, free_bytes, now_ns, false);
    uint32_t i = room_first(jobs, n, NULL);
    if (i == SLOT_NONE)
        return;
    struct room_job *first = &jobs[i];
    if (!first->first_ns) {
        first->first_ns = now_ns;
        first->pass_ns = ROOM_PASS_NS;
    }
    if (now_ns < first->first_ns + first->pass_ns)
        return;
    first->first_ns = now_ns;
    first->pass_ns = first->pass_ns < ROOM_PASS_MAX_NS / 2 ? 2 * first->pass_ns : ROOM_PASS_MAX_NS;
    room_fill(jobs, n, free_bytes, now_ns, true);
}

static int by_account(const void *a, const void *b)
{
    const struct room_job *x = *(struct room_job *const *)a, *y = *(struct room_job *const *)b;
    int r = COMPARE(x->account, y->account);
    return r ? r : by_turn(x, y);
}

/* By the number of jobs of the same account and class before it, which is in `position` here. */
static int by_round(const void *a, const void *b)
{
    const struct room_job *x = *(struct room_job *const *)a, *y = *(struct room_job *const *)b;
    int r = COMPARE(x->class, y->class);
    r = r ? r : COMPARE(x->position, y->position);
    return r ? r : by_turn(x, y);
}

void room_line(struct room_job *jobs, uint32_t n, struct room_job **scratch)
{
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (jobs[i].waits)
            scratch[waiting++] = &jobs[i];
    }
    qsort(scratch, waiting, sizeof(struct room_job *), by_account);
    for (uint32_t i = 0; i < waiting; i++) {
        bool same = i && scratch[i]->account == scratch[i - 1]->account &&
                    scratch[i]->class == scratch[i - 1]->class;
        scratch[i]->position = same ? scratch[i - 1]->position + 1 : 0;
    }
    qsort(scratch, waiting, sizeof(struct room_job *), by_round);
    for (uint32_t i = 0; i < waiting; i++)
        scratch[i]->position = i;
}
