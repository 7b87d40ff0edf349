/* libcede: the loop that runs work in slices; see cede/slice.h. No thread, no lock: all state is of
 * one call, or the caller's. How large slices are is pure/slice_size.c's. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cede/slice.h"
#include "libcede/clock.h"
#include "libcede/cuda.h"
#include "libcede/error.h"
#include "libcede/owner.h"
#include "libcede/pure/slice_size.h"

#define HOLD_NS       NSEC_PER_MSEC /* between two looks while a job of a higher class waits */
#define HOLD_LEASE_NS (50 * NSEC_PER_USEC) /* while a lease displaces: those are short */

#define PATIENCE_US 100000

#define RING (CEDE_SLICE_DEPTH_MAX + 1U) /* those that run, and the one before them */

enum { BEGIN, END };

struct slice {
    uint64_t count;
    bool follows;  /* it begins at the end of the one before it */
    void *mark[2]; /* events at its beginning, if it does not follow, and end */
};

struct slice_run {
    const struct cede_slice_config *config;
    struct cede_slice_progress *progress;
    struct cuda cu;
    void *stream, *own;             /* own: to be destroyed */
    uint64_t deadline_ns, saved_ns; /* saved_ns: when it was saved last */
    uint64_t wanted_ns;             /* since when a job of a higher class waits; 0: none does */
    uint64_t displaced_ns;          /* since when a lease displaces this one; 0: none does */
    uint64_t launched;              /* elements */
    uint64_t first, next;           /* slices that run: numbers from first to next - 1 */
    uint64_t gpu_ns, idle_ns;
    struct slice_size size;
    struct slice ring[RING];
    struct gpu_error error;
};

CEDE_API void cede_slice_defaults(struct cede_slice_config *config)
{
    *config = (struct cede_slice_config){
        .size = sizeof(*config),
        .depth = 2,
        .target_us = 500,
        .multiple = 1,
        .checkpoint_us = 10000000,
        .patience_us = PATIENCE_US,
        .timeout_us = CEDE_TIMEOUT_FOREVER,
    };
}

static bool slice_valid(const struct cede_slice_config *c, const struct cede_slice_progress *p)
{
    return SIZED(c->size, *c) &&
           IS(c->launch, "launch is NULL: give a function that puts elements into the stream") &&
           IS(c->flags <= CEDE_SLICE_OPENCL,
              "flags is %#x: give 0, CEDE_SLICE_NO_GPU or CEDE_SLICE_OPENCL", c->flags) &&
           IS(c->stream || !(c->flags & CEDE_SLICE_OPENCL),
              "stream is NULL: for OpenCL, give a cl_command_queue") &&
           SETTINGS(SETTING(c, depth, 1, CEDE_SLICE_DEPTH_MAX),
                    SETTING(c, target_us, 1, CEDE_SLICE_TARGET_MAX_US),
                    SETTING(c, multiple, 1, UINT64_MAX), SETTING(c, count, 1, UINT64_MAX)) &&
           TIMEOUT_SETTING(c, timeout_us, true) && TIMEOUT_SETTING(c, patience_us, true) &&
           IS(p->done <= c->count && p->saved <= p->done,
              "the progress is not of this work: begin with one that is all 0, except `done` from "
              "a checkpoint");
}

/* ---- slices ---------------------------------------------------------------------------------- */

static struct slice *slice_at(struct slice_run *s, uint64_t number)
{
    return &s->ring[number % RING];
}

PRINTF_LIKE(3, 4)
static int slice_fail(struct slice_run *s, int r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(s->progress->error, sizeof(s->progress->error), format, args);
    va_end(args);
    return r;
}

static int slice_driver_failed(struct slice_run *s)
{
    return slice_fail(s, -EIO, "%s: go on from the latest checkpoint, in a new process",
                      s->error.text);
}

static int slice_mark(struct slice_run *s, void *event)
{
    return cede_cuda_failed(&s->cu, s->cu.event_record(event, s->stream), "mark a slice",
                            &s->error);
}

/* Launches one more. 0; a negative errno of `launch`; -EIO. */
static int slice_launch(struct slice_run *s)
{
    const struct cede_slice_config *c = s->config;
    struct slice *now = slice_at(s, s->next);
    now->count = cede_slice_size_next(&s->size, c->count - s->launched);
    now->follows = false;
    if (s->next > s->first) {
        int passed = cede_cuda_passed(&s->cu, slice_at(s, s->next - 1)->mark[END], &s->error);
        if (passed < 0)
            return slice_driver_failed(s);
        now->follows = !passed;
    }
    if (!now->follows && slice_mark(s, now->mark[BEGIN]) < 0)
        return slice_driver_failed(s);
    int r = c->launch(c->arg, s->launched, now->count, s->stream);
    if (r)
        return slice_fail(
            s, cede_returned(r), "`launch` returned %d for %llu elements from %llu on: %s", r,
            (unsigned long long)now->count, (unsigned long long)s->launched, cede_errno_words(r));
    if (slice_mark(s, now->mark[END]) < 0)
        return slice_driver_failed(s);
    s->launched += now->count;
    s->next++;
    return 0;
}

/* Waits for the oldest slice. Those behind it that are found to have ended too are measured
 * together with it: where times are the host's, it was late for them. 0 or -EIO. */
static int slice_finish(struct slice_run *s)
{
    struct cede_slice_progress *p = s->progress;
    const struct slice *oldest = slice_at(s, s->first), *before = slice_at(s, s->first - 1);
    void *begin = oldest->follows ? before->mark[END] : oldest->mark[BEGIN];
    uint64_t count = oldest->count, end = s->first + 1;
    int r = cede_cuda_failed(&s->cu, s->cu.event_sync(oldest->mark[END]), "run a slice", &s->error);
    while (r == 0 && end < s->next && slice_at(s, end)->follows &&
           (r = cede_cuda_passed(&s->cu, slice_at(s, end)->mark[END], &s->error)) > 0) {
        count += slice_at(s, end++)->count;
        r = 0;
    }
    if (r < 0)
        return slice_driver_failed(s);
    uint64_t took_ns = cede_cuda_elapsed_ns(&s->cu, begin, slice_at(s, end - 1)->mark[END]);
    if (!oldest->follows && s->first)
        s->idle_ns =
            saturating_add(s->idle_ns, cede_cuda_elapsed_ns(&s->cu, before->mark[END], begin));
    cede_slice_size_add(&s->size, count, end - s->first, took_ns);
    s->gpu_ns = saturating_add(s->gpu_ns, took_ns);
    p->next_count = s->size.next;
    p->done += count;
    p->slices += end - s->first;
    s->first = end;
    return 0;
}

/* ---- the loop -------------------------------------------------------------------------------- */

enum { GO_ON = 0, HOLD = 1 }; /* or a negative errno: stop */

/* Whether the run has waited since then, which is now if it is 0, for no longer than it may. */
static bool slice_waits(const struct slice_run *s, uint64_t now, uint64_t *since)
{
    *since = *since ? *since : now;
    return now < timeout_end(s->config->patience_us, *since, PATIENCE_US);
}

/* Whether a lease displaces the run's. Nothing has to be given back for that, so a run that has
 * waited for as long as it may does not stop: it has a slice in between. */
static bool slice_displaced(struct slice_run *s, uint64_t now)
{
    if (cede_lease_wanted(s->config->lease) && slice_waits(s, now, &s->displaced_ns))
        return true;
    s->displaced_ns = 0;
    return false;
}

static int slice_look(struct slice_run *s)
{
    const struct cede_slice_config *c = s->config;
    const int stopped = cede_scope_stopped(c->scope) ?: owner_stopped(cede_owner_here());
    if (stopped)
        return slice_fail(s, -ECANCELED, "%s: call again in another to go on",
                          STOPPED_TEXT(stopped));
    uint64_t now = s->deadline_ns != TIME_NEVER || c->client || c->lease ? cede_clock_now_ns() : 0;
    if (now >= s->deadline_ns)
        return slice_fail(s, -ETIMEDOUT, "the time-out has passed: call again to go on");
    if (!cede_wanted(c->client)) {
        s->wanted_ns = 0;
        return slice_displaced(s, now) ? HOLD : GO_ON;
    }
    if (slice_waits(s, now, &s->wanted_ns))
        return HOLD;
    return slice_fail(s, -EAGAIN,
                      "a job of a higher class waits: free what it may need, and call "
                      "again when cede_wanted() is 0");
}

static int slice_save(struct slice_run *s)
{
    struct cede_slice_progress *p = s->progress;
    const struct cede_slice_config *c = s->config;
    s->saved_ns = cede_clock_now_ns();
    if (!c->save || p->saved == p->done)
        return 0;
    int r = c->save(c->arg, p->done);
    if (r)
        return slice_fail(s, cede_returned(r), "`save` returned %d after %llu elements: %s", r,
                          (unsigned long long)p->done, cede_errno_words(r));
    p->saved = p->done;
    s->saved_ns = cede_clock_now_ns();
    return 0;
}

static bool slice_save_due(const struct slice_run *s)
{
    const struct cede_slice_config *c = s->config;
    return c->save && c->checkpoint_us && s->launched > s->progress->saved &&
           cede_clock_now_ns() >= time_after(s->saved_ns, c->checkpoint_us, NSEC_PER_USEC);
}

/* Launches as many slices as there may be. GO_ON, HOLD, or a reason to stop. */
static int slice_fill(struct slice_run *s)
{
    int r = GO_ON;
    while (r == GO_ON && s->launched < s->config->count && s->next - s->first < s->config->depth) {
        r = slice_look(s);
        if (r == GO_ON)
            r = slice_launch(s);
    }
    return r;
}

/* Until no slice runs and there is a reason to stop. After an error of the driver some may run. */
static int slice_loop(struct slice_run *s)
{
    int why = GO_ON;
    for (;;) {
        bool save = slice_save_due(s);
        if (why >= 0 && !save)
            why = slice_fill(s);
        if (s->error.text[0])
            return why;
        bool over = why < 0 || s->launched == s->config->count;
        if (s->next > s->first) {
            int r = slice_finish(s);
            if (r < 0)
                return r;
        } else if (over || save) {
            int r = slice_save(s);
            if (over || r < 0)
                return r < 0 ? r : why;
        } else if (why == HOLD) {
            cede_clock_sleep_ns(s->wanted_ns ? HOLD_NS : HOLD_LEASE_NS);
        }
    }
}

static int slice_open(struct slice_run *s)
{
    void *context;
    const unsigned flags = s->config->flags;
    int r = 0;
    s->cu = cede_cuda_host;
    if (!(flags & CEDE_SLICE_NO_GPU))
        r = flags & CEDE_SLICE_OPENCL ? cede_cuda_opencl(&s->cu)
                                      : cede_cuda_here(&s->cu, CUDA_STEPS, &context);
    if (r == 0 && !s->stream) {
        r = cede_cuda_failed(&s->cu, s->cu.stream_create(&s->own, CUDA_STREAM_NONBLOCKING, 0),
                             "create a stream", &s->error);
        s->stream = s->own;
    }
    for (unsigned i = 0; r == 0 && i < 2 * RING; i++)
        r = cede_cuda_failed(
            &s->cu, s->cu.event_create(&s->ring[i / 2].mark[i % 2], CUDA_EVENT_BLOCKING_SYNC),
            "create an event", &s->error);
    return r;
}

/* Waits for what is in the stream, so that the program may free what it uses. */
static void slice_close(struct slice_run *s)
{
    if (s->stream && s->ring[0].mark[BEGIN])
        s->cu.stream_sync(s->stream);
    for (unsigned i = 0; i < 2 * RING; i++) {
        if (s->ring[i / 2].mark[i % 2])
            s->cu.event_destroy(s->ring[i / 2].mark[i % 2]);
    }
    if (s->own)
        s->cu.stream_destroy(s->own);
}

/* With settings that are valid. A failure is in words in progress->error. */
static int slice_run(const struct cede_slice_config *config, struct cede_slice_progress *progress)
{
    struct slice_run s = {.config = config, .progress = progress, .stream = config->stream};
    bool saved = !config->save || progress->saved == progress->done;
    if (progress->done == config->count && saved)
        return 0;
    int r = slice_open(&s);
    if (r < 0) {
        slice_close(&s);
        return slice_fail(&s, r, "%s",
                          r == -ENOMEM    ? "too little memory: free some"
                          : r == -EIO     ? s.error.text
                          : config->flags ? "libOpenCL.so.1 cannot be opened: install an OpenCL "
                                            "loader, such as the package ocl-icd-libopencl1"
                                          : NO_CUDA ", or set CEDE_SLICE_NO_GPU");
    }
    s.launched = progress->done;
    s.saved_ns = cede_clock_now_ns();
    s.deadline_ns = timeout_end(config->timeout_us, s.saved_ns, CEDE_TIMEOUT_FOREVER);
    cede_slice_size_begin(&s.size, config->target_us * NSEC_PER_USEC, config->multiple,
                          progress->next_count);
    r = slice_loop(&s);
    progress->gpu_us += s.gpu_ns / NSEC_PER_USEC;
    progress->idle_us += s.idle_ns / NSEC_PER_USEC;
    slice_close(&s);
    return r;
}

CEDE_API int cede_slice_run(const struct cede_slice_config *config,
                            struct cede_slice_progress *progress)
{
    LONG_CALL(GIVEN(config) && GIVEN(progress));
    progress->error[0] = '\0';
    if (!slice_valid(config, progress)) {
        const char *text = cede_error_text();
        snprintf(progress->error, sizeof(progress->error), "%s",
                 text + (*text ? strlen(__func__) + 2 : 0));
        return -EINVAL;
    }
    int r = slice_run(config, progress);
    return SAY(r, {r, progress->error});
}
