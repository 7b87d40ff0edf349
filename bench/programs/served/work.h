/* The models that server.cpp serves, on a GPU (work_cuda.cu) or in sleep (work_sleep.cpp). Knows
 * nothing of requests. work_run() may be called by several threads at once, each with a stream. */
#ifndef SERVED_WORK_H
#define SERVED_WORK_H

enum work_kind {
    WORK_SMALL, /* one product after the other, small ones */
    WORK_LARGE, /* the same, more and larger ones: some ms for a batch */
    WORK_BULK,  /* no request: one piece of a long computation, some ms */
    WORK_KINDS,
};

/* Once, before the rest. Throws std::runtime_error. */
void work_open();
/* Of the calling thread's device. priority: 0, or below 0 for a better one, as in CUDA. */
void *work_stream(int priority);
/* Runs one batch of n requests on a stream of work_stream() or of a lease, and waits for its end
 * and for nothing else. Throws std::runtime_error. */
void work_run(enum work_kind kind, unsigned n, void *stream);

#endif
