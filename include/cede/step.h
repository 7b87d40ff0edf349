/* libcede: the overlap loop, for the inner loop of a program that serves models. While the GPU
 * computes one step, the CPU schedules and launches the next one, and then finishes the first:
 * reads its results and answers. The program gives the three functions; the loop decides when each
 * is called, copies results, waits, and knows what was learnt late: the result of a request that
 * ended in step N, while step N + 1 ran with it already, is surplus. See cede_step_open(3).
 *
 * What step N + 1 needs of step N it names by symbols of a future map (cede/future.h). Their slots
 * are used again only after every step that may read them has run.
 *
 * Needs no daemon. libcuda is opened at run time. A loop has no thread: one thread at a time calls
 * cede_step_once() or cede_step_run(), which call the program's functions, with no lock held.
 *
 * Thread-safe: cede_step_join(), cede_step_leave() and cede_step_get_statistics() may be called
 * from any thread at any time, and from the program's functions. cede_step_add() is for `schedule`
 * alone. No other call may overlap cede_step_close(). The CUDA context in which the loop was opened
 * has to be current. None may be called from a signal handler, or in a forked child on its parent's
 * loop. Functions return 0 or a negative errno, unless they say otherwise. Times are microseconds.
 */
#ifndef CEDE_STEP_H
#define CEDE_STEP_H

#include "cede/future.h"
#include "cede/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cede_step_loop;

#define CEDE_STEP_DEPTH_MAX    4
#define CEDE_STEP_BATCH_MAX    65536
#define CEDE_STEP_REQUESTS_MAX 1048576

/* A step, as the program's functions see it. */
struct cede_step {
    uint64_t number; /* from 1 */
    void *batch;     /* the program's, set in `schedule` */
    void *stream;    /* CUstream; NULL without a GPU */
    unsigned lane;   /* 0 to depth: no other unfinished step has this number, so it is an index for
                        the program's buffers */
    unsigned n;      /* requests in it, in the order of cede_step_add() */
    void *const *user; /* of each request */
    int64_t symbol;    /* of the first one's result; cede_future_symbol() has the others. 0: there
                          is no map */
    /* For `finish`: */
    int error;                    /* 0, or why the step failed; then there are no results */
    const int64_t *result;        /* of each request; NULL: the step failed, or there is no map */
    const unsigned char *surplus; /* of each request, 1: it had left; its result is to be dropped */
    uint64_t gpu_us;  /* from its beginning in the stream to its end; 0: no GPU, or it failed */
    uint64_t idle_us; /* between the end of the step before it and its beginning, while there was
                         something to do */
};

enum cede_step_flags {
    CEDE_STEP_NO_GPU = 1, /* a step has run when `launch` returns; nothing overlaps */
    CEDE_STEP_SPIN = 2,   /* wait for results spinning, not asleep: no wake-up is waited for, but a
                             processor is busy all the time */
};

/* To be filled in by cede_step_defaults(), then changed. The comments give the defaults. */
struct cede_step_config {
    size_t size;       /* of this struct; set by cede_step_defaults() */
    unsigned flags;    /* 0 */
    unsigned depth;    /* 2: steps that were launched and are not finished. 1: no overlap;
                          at most CEDE_STEP_DEPTH_MAX */
    unsigned batch;    /* 256 requests in a step; at most CEDE_STEP_BATCH_MAX */
    unsigned requests; /* 1024 joined at a time; at most CEDE_STEP_REQUESTS_MAX */
    void *stream;      /* NULL: the loop makes a stream of its own */
    struct cede_futures *futures; /* NULL: no symbols, and no results. With room for `batch` values;
                                     2 * depth - 1 times as many never hold a step back. It has to
                                     outlive the loop */
    struct cede_scope *scope; /* NULL; else, once it is cancelled, no step is scheduled any more */
    void *arg;                /* for the functions below */

    /* Fills in a step: step->batch, and its requests by cede_step_add(). 1: the step is to be
     * launched. 0: there is nothing to run now. Negative: an error, which cede_step_once() returns.
     */
    int (*schedule)(void *arg, struct cede_step *step);
    /* Puts the step's work into step->stream and does not wait for it: cede_future_resolve() on the
     * inputs, the model, cede_future_store() of one result for each request, any number where there
     * is none (a part of a prompt). Negative: the step has failed. */
    int (*launch)(void *arg, struct cede_step *step);
    /* The step has run, or failed. In the order of steps, once for each that `schedule` returned
     * 1 for. What ends, leaves: cede_step_leave(). Negative: as with schedule. */
    int (*finish)(void *arg, struct cede_step *step);
    /* NULL, or: no step has this request any more, so what it used may be freed. Once for each that
     * joined. reason: what cede_step_leave() was given; -ECANCELED or -ETIMEDOUT: its scope or
     * deadline; or the error of a step. */
    void (*left)(void *arg, void *user, int reason);
};
/* config must not be NULL. */
void cede_step_defaults(struct cede_step_config *config);

/* Opens a loop in the calling thread's current CUDA context. On failure *out is NULL. -EINVAL: a
 * setting out of range, a function is missing, the map is too small, or one of map and loop is on
 * the GPU and the other is not. -EIO: the driver refused. -ENOMEM. -ENOSYS: there is no CUDA, or no
 * context is current: create one first, or set CEDE_STEP_NO_GPU. */
int cede_step_open(const struct cede_step_config *config, struct cede_step_loop **out);

/* Waits for the steps that run, does not finish them, and lets all requests leave (-ECANCELED).
 * -EDEADLK: called by one of the program's functions; the loop is still there. NULL: 0. */
int cede_step_close(struct cede_step_loop *l);

/* A request joins, to be scheduled from the next step on. user: comes back with each step. scope:
 * NULL, or the request leaves when it is cancelled; it has to outlive the request. timeout_us: it
 * leaves then; CEDE_NO_TIMEOUT: never. Both are looked at between steps. *id: for the calls below.
 * -EINVAL: NULL, or a negative time. -ENOSPC: `requests` have joined: try again when one has left.
 */
int cede_step_join(struct cede_step_loop *l, void *user, struct cede_scope *scope,
                   int64_t timeout_us, uint64_t *id);

/* A request ends, or is given up: results of it that are not with `finish` yet are surplus.
 * -ENOENT: it has left before. */
int cede_step_leave(struct cede_step_loop *l, uint64_t id, int reason);

/* In `schedule`: puts a request into the step. *symbol (may be NULL): the symbol of its latest
 * result, if `finish` has not had that yet; else 0, and the program knows the result.
 * -EALREADY: it is in this step. -ENOENT: it has left. -ENOSPC: `batch` requests are in this step.
 * -EPERM: not called by `schedule`. */
int cede_step_add(struct cede_step_loop *l, uint64_t id, int64_t *symbol);

/* Schedules and launches a step if there may be one more; then finishes the oldest one if there may
 * not, or none was scheduled, and those that have run while the GPU has another one. 1: something
 * was done. 0: nothing is to do, and nothing runs: wait for a request, then call again. Negative:
 * what a function returned, and steps that run are kept for the next call; -ECANCELED: the loop's
 * scope is cancelled, and every step is finished; -EDEADLK: called by one of the program's
 * functions; -ENOBUFS: others than this loop hold the map's slots. */
int cede_step_once(struct cede_step_loop *l);

/* Calls cede_step_once() until it returns 0 or an error, and returns that. */
int cede_step_run(struct cede_step_loop *l);

struct cede_step_statistics {
    uint64_t steps, failed;                     /* that are finished; of these with an error */
    uint64_t results, surplus;                  /* of steps that did not fail */
    uint64_t joined, left;                      /* requests */
    uint64_t blocked;                           /* steps put off until slots were free */
    uint64_t schedule_us, launch_us, finish_us; /* in the program's functions */
    uint64_t wait_us;                           /* for results */
    uint64_t hidden_us; /* of the time in these functions: while the GPU computed */
    uint64_t gpu_us;    /* from the beginning of a step in the stream to its end */
    uint64_t idle_us;   /* between the end of a step and the beginning of the next, while there was
                           something to do */
    unsigned running;   /* steps launched and not finished, now */
    unsigned requests;  /* now */
    char error[128];    /* the latest error of the driver, or what a step lacked; "": none */
};
/* size: sizeof(*out). -EINVAL: this library does not know the size. */
int cede_step_get_statistics(struct cede_step_loop *l, struct cede_step_statistics *out,
                             size_t size);

#ifdef __cplusplus
}
#endif

#endif
