/* A GPU that is a row of timers in place of libcuda, and the clock, in virtual time: an event is
 * the time at which what is in the stream in front of it has run. Replaces cede_cuda_here()
 * (--wrap). */
#ifndef CEDE_TESTS_LIBCEDE_TIMERS_H
#define CEDE_TESTS_LIBCEDE_TIMERS_H

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "libcede/clock.h"
#include "libcede/cuda.h"

enum { MADE_UP = 999 };

static struct {
    uint64_t now_ns, busy_until_ns;
    unsigned open; /* events */
    bool missing;
    int fail_open, fail_mark, fail_wait; /* the n-th from now; 0: none */
} timers;

uint64_t cede_clock_now_ns(void)
{
    return timers.now_ns;
}

static int timers_made_up(int *n)
{
    return *n && --*n == 0 ? MADE_UP : 0;
}

static int timers_stream(void **s, unsigned flags, int priority)
{
    *s = &timers;
    return 0;
}

static int timers_unused(void *s)
{
    return 0;
}

static int timers_create(void **e, unsigned flags)
{
    *e = calloc(1, sizeof(uint64_t));
    timers.open++;
    return timers_made_up(&timers.fail_open);
}

static int timers_destroy(void *e)
{
    free(e);
    timers.open--;
    return 0;
}

static int timers_record(void *e, void *s)
{
    *(uint64_t *)e = max_u64(timers.now_ns, timers.busy_until_ns);
    return timers_made_up(&timers.fail_mark);
}

static int timers_query(void *e)
{
    return timers.now_ns >= *(uint64_t *)e ? 0 : CUDA_NOT_READY;
}

static int timers_sync(void *e)
{
    timers.now_ns = max_u64(timers.now_ns, *(uint64_t *)e);
    return timers_made_up(&timers.fail_wait);
}

static int timers_elapsed(float *ms, void *from, void *to)
{
    *ms = (float)saturating_sub(*(uint64_t *)to, *(uint64_t *)from) / 1e6F;
    return 0;
}

static int timers_name(int r, const char **s)
{
    *s = r == MADE_UP ? "made up" : NULL;
    return 0;
}

int __wrap_cede_cuda_here(struct cuda *cu, unsigned use, void **context);
int __wrap_cede_cuda_here(struct cuda *cu, unsigned use, void **context)
{
    *cu = (struct cuda){timers_name,
                        .stream_create = timers_stream,
                        .stream_destroy = timers_unused,
                        .stream_sync = timers_unused,
                        .event_create = timers_create,
                        .event_destroy = timers_destroy,
                        .event_record = timers_record,
                        .event_query = timers_query,
                        .event_sync = timers_sync,
                        .event_elapsed = timers_elapsed};
    return timers.missing ? -ENOSYS : 0;
}

#endif
