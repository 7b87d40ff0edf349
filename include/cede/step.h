/* libcede: the overlap loop, for the inner loop of a program that serves models. While the GPU
 * computes one step, the CPU schedules and launches the next one, and then finishes the first: it
 * reads its results and answers. The program gives the three functions; the loop decides when each
 * is called, copies results and waits. If a request ends in step N while step N + 1 already runs
 * with it, its result of step N + 1 is surplus. See cede_step_open(3).
 *
 * Step N + 1 names values of step N by symbols of a future map (cede/future.h). Their slots are
 * used again only after every step that may read them has run.
 *
 * With a queue (cede/queue.h) the loop takes its requests from there, by deadline and class, and
 * with memory each has room, such as for its keys and values, for as long as it is in the loop.
 *
 * A loop needs no daemon. libcuda is opened at run time. It has no thread: one thread at a time
 * calls cede_step_once() or cede_step_run(), which call the program's functions, with no lock held.
 *
 * Thread-safe: cede_step_join(), cede_step_leave() and cede_step_get_statistics() may be called
 * from any thread at any time, and from the program's functions. cede_step_add() is for `schedule`
 * alone. No other call may overlap cede_step_close(). The CUDA context in which the loop was opened
 * has to be current. No function may be called from a signal handler, or in a forked child on its
 * parent's loop. They return 0 or a negative errno, unless they say otherwise, and none changes
 * errno. Times are us. */
#ifndef CEDE_STEP_H
#define CEDE_STEP_H

#include "cede/future.h"
#include "cede/queue.h"
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
    uint64_t number;   /* from 1 */
    void *batch;       /* the program's, set in `schedule` */
    void *stream;      /* CUstream; NULL without a GPU */
    unsigned lane;     /* 0 to depth, different for all unfinished steps: an index for the program's
                          buffers */
    unsigned n;        /* requests in it, in the order of cede_step_add() */
    void *const *user; /* of each request */
    int64_t symbol;    /* of the first request's result; cede_future_symbol() has the others. 0:
                          there is no map */
    /* For `finish`: */
    int error;                    /* 0, or why the step failed; then there are no results */
    const int64_t *result;        /* of each request; NULL: the step failed, or there is no map */
    const unsigned char *surplus; /* of each request, 1: it had left, and its result is dropped */
    uint64_t gpu_us;  /* from the step's beginning in the stream to its end; 0: no GPU, or failed */
    uint64_t idle_us; /* between the end of the previous step and its beginning, while there was
                         something to do */
};

enum cede_step_flags {
    CEDE_STEP_NO_GPU = 1, /* all is in host memory, and symbols' values are there when `launch`
                             returns. Calls come in the same order as with a GPU, so `finish` can
                             wait for what `launch` has begun, and the next step was launched
                             meanwhile */
    CEDE_STEP_SPIN = 2, /* spin instead of sleeping until results are there: saves the wake-up, and
                           keeps a processor busy all the time */
};

/* Settings, which cede_step_defaults() fills in. The comments give the defaults. */
struct cede_step_config {
    size_t size;    /* of this struct; set by cede_step_defaults() */
    unsigned flags; /* 0 */
    unsigned depth; /* 2: launched steps that are not finished; at most CEDE_STEP_DEPTH_MAX. 1: no
                       overlap */
    unsigned batch; /* 256 requests in a step; at most CEDE_STEP_BATCH_MAX */
    unsigned requests;            /* 1024 joined at a time; at most CEDE_STEP_REQUESTS_MAX */
    void *stream;                 /* NULL: the loop makes a stream */
    struct cede_futures *futures; /* NULL: no symbols, and no results. A map that outlives the loop,
                                     with slots for `batch` values; with 2 * depth - 1 times as many
                                     no step waits for slots */
    struct cede_scope *scope;     /* NULL; else, once it has ended, no step is scheduled any more.
                                     The scope whose task calls cede_step_once() counts anyway */
    struct cede_queue *queue; /* NULL; else the loop takes its requests from it, as `requests` and
                                 the queue's `batches` allow, cede_step_join() returns -EINVAL, and
                                 `joined` has to be given. It has no pool, of which each request
                                 would have a lease until it leaves */
    int device;               /* 0: of the queue's, whose requests it takes; 0 without one */
    void *arg;                /* for the functions below */

    /* Fills in a step: step->batch, and its requests by cede_step_add(). 1: the step is to be
     * launched. 0: there is nothing to run now. Negative: an error, which cede_step_once() returns.
     */
    int (*schedule)(void *arg, struct cede_step *step);
    /* Puts the step's work into step->stream and does not wait for it: cede_future_resolve() on the
     * inputs, the model, cede_future_store() of one result for each request (any number if it has
     * none, as after a part of a prompt). Not 0, such as a CUresult: the step has failed. */
    int (*launch)(void *arg, struct cede_step *step);
    /* Called in the order of steps when one has run, or failed, once for each that was scheduled.
     * Requests that end leave: cede_step_leave(). Not 0: as a negative `schedule`. */
    int (*finish)(void *arg, struct cede_step *step);
    /* NULL, or called once for each request that joined, when no step has it any more and its
     * buffers may be freed. reason: cede_step_leave()'s; -ECANCELED: its scope has ended;
     * -ETIMEDOUT: its time-out has passed; or the error of a step. */
    void (*left)(void *arg, void *user, int reason);
    /* NULL, but with a queue: called before the first step that may have this request. taken: a
     * batch of one with its room, which the loop reports done when the request has left, and as
     * failed if the reason is not 0. id: for cede_step_add(). */
    void (*joined)(void *arg, const struct cede_queue_batch *taken, uint64_t id);
};
/* config must not be NULL. */
void cede_step_defaults(struct cede_step_config *config);

/* Opens a loop in the calling thread's current CUDA context. On failure *out is NULL. -EINVAL: a
 * setting out of range, a function is missing, one of `queue` and `joined` is given alone, the map
 * is too small, or one of map and loop is on the GPU and the other is not. -EIO: the driver
 * refused. -ENOMEM. -ENOSYS: there is no CUDA, or no context is current: create one first, or set
 * CEDE_STEP_NO_GPU. */
int cede_step_open(const struct cede_step_config *config, struct cede_step_loop **out);

/* Waits for running steps without finishing them, makes all requests leave (-ECANCELED), and frees
 * the loop. -EDEADLK: called by one of the program's functions; the loop stays. NULL: 0. */
int cede_step_close(struct cede_step_loop *l);

/* Adds a request, to be scheduled from the next step on. user: comes back with each step. scope:
 * NULL, or one that outlives the request, which leaves when the scope has ended. timeout_us: after
 * which the request leaves; CEDE_TIMEOUT_FOREVER, which is the default: never. Both are checked
 * between steps. *id: for the calls below. -EINVAL: NULL, no such time-out, or the loop has a
 * queue. -ENOSPC: `requests` have joined: try again when one has left. */
int cede_step_join(struct cede_step_loop *l, void *user, struct cede_scope *scope,
                   cede_timeout timeout_us, uint64_t *id);

/* Ends a request: results of it that `finish` has not had yet are surplus. -ENOENT: it has left
 * before. */
int cede_step_leave(struct cede_step_loop *l, uint64_t id, int reason);

/* In `schedule`: puts a request into the step. *symbol (may be NULL): the symbol of its latest
 * result, if `finish` has not had that yet; else 0, and the program knows the result.
 * -EALREADY: it is in this step. -ENOENT: it has left. -ENOSPC: `batch` requests are in this step.
 * -EPERM: not called by `schedule`. */
int cede_step_add(struct cede_step_loop *l, uint64_t id, int64_t *symbol);

/* Schedules and launches a step if fewer than `depth` are unfinished. If `depth` are, or none was
 * scheduled, it then finishes the oldest step; steps that have run while the GPU has another one
 * are finished too. 1: something was done. 0: there is nothing to do, and nothing runs: wait for a
 * request, then call again. While a loop with a queue has no request it waits
 * for one itself; 0 then means that the queue is shut down and all have left, or that `schedule`
 * had nothing for those it has. Negative: the error of `schedule` or `finish`, while that of
 * `launch` is the `error` of its step (running steps are kept for the next call); -ECANCELED: the
 * scope of the loop, or of the calling task, has ended, and every step is finished; -EDEADLK:
 * called by one of the program's functions; -ENOBUFS: other users of the map hold its slots. */
int cede_step_once(struct cede_step_loop *l);

/* Calls cede_step_once() until it returns 0 or an error, and returns that. With a queue: until that
 * is shut down and every request has left. */
int cede_step_run(struct cede_step_loop *l);

struct cede_step_statistics {
    uint64_t steps, failed;                     /* finished steps; those of them with an error */
    uint64_t results, surplus;                  /* of steps that did not fail */
    uint64_t joined, left;                      /* requests */
    uint64_t blocked;                           /* steps put off until slots were free */
    uint64_t schedule_us, launch_us, finish_us; /* in the program's functions */
    uint64_t wait_us;                           /* for results */
    uint64_t hidden_us; /* part of the time in these functions in which the GPU computed; 0 with
                           CEDE_STEP_NO_GPU */
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
