/* See still_starting.h. */
#include "memory/still_starting.h"

#include <errno.h>

uint32_t starting_next(const struct model *m, unsigned gpu, uint64_t max_ns, uint32_t slot)
{
    for (uint32_t i = slot; i < m->jobs_end; i++) {
        const struct job *j = &m->jobs[i];
        if (j->rec.root.pid && j->swap.phase == SWAP_HERE &&
            starting_until(&j->on[gpu].start, max_ns, m->now))
            return i;
    }
    return SLOT_NONE;
}

uint32_t starting_in_way(const struct model *m, uint64_t max_ns, uint32_t job, bool out,
                         bool others, unsigned *gpu)
{
    const struct job *j = &m->jobs[job];
    for (*gpu = 0; *gpu < m->ngpus; ++*gpu) {
        uint64_t bytes = out ? j->on[*gpu].memory_bytes : j->swap.bytes[*gpu];
        bool opened = out && starting_until(&j->on[*gpu].start, max_ns, m->now);
        uint32_t starts = bytes || opened ? starting_next(m, *gpu, max_ns, 0) : SLOT_NONE;
        if (others && starts == job)
            starts = starting_next(m, *gpu, max_ns, job + 1);
        if (starts != SLOT_NONE)
            return starts;
    }
    return SLOT_NONE;
}

int starting_error(const struct model *m, uint64_t max_ns, uint32_t starts, unsigned gpu,
                   struct error *err)
{
    const struct job *j = &m->jobs[starts];
    const uint64_t until = starting_until(&j->on[gpu].start, max_ns, m->now);
    return error_set(
        err, -EBUSY,
        "job #%llu (%s) is starting on GPU %u and may size itself by the free memory there: "
        "no job moves until its memory has not grown for %u s, for %llu s at most",
        (unsigned long long)j->rec.number, j->rec.name, gpu,
        (unsigned)(STARTING_QUIET_NS / NSEC_PER_SEC),
        (unsigned long long)((until > m->now ? until - m->now : 0) / NSEC_PER_SEC + 1));
}
