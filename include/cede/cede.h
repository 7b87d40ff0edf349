/* libcede: reports a program's class, weight and requests to the GPU scheduler cede. A request can
 * be reported when it begins, when it is due, and when it ends. See cede(3).
 *
 * No program needs this to be scheduled by cede, and nothing here needs cede: without a daemon, or
 * after it ends, every call has the same effect on the caller and returns the same. A daemon that
 * starts later is found by the next hint after at most one second.
 *
 * Thread-safe: all functions may be called from several threads at once, except cede_close(), which
 * no other call on the handle may overlap. No function may be called from a signal handler. After
 * fork() handles work in the child and begin there with empty statistics.
 *
 * A handle of NULL is allowed everywhere, and then calls do nothing. Functions that return int
 * return 0 or a negative errno, unless they say otherwise; none changes errno. Times are
 * microseconds. */
#ifndef CEDE_CEDE_H
#define CEDE_CEDE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A handle. C++ has no name for tags alone, and `cede` is the namespace of cede/cede.hpp. */
#ifdef __cplusplus
struct cede_handle;
#else
typedef struct cede cede_handle;
#endif

enum cede_class {
    CEDE_LATENCY, /* a user waits for the result */
    CEDE_NORMAL,
    CEDE_BATCH, /* may wait */
};

#define CEDE_WEIGHT_MIN 1
#define CEDE_WEIGHT_MAX 10000 /* the default is 100 */

/* A part of the program: a stream's handle as a number, e.g. (cede_stream)cudaStream. */
typedef uintptr_t cede_stream;
#define CEDE_JOB         (~(cede_stream)0) /* the whole job */
#define CEDE_STREAMS_MAX 64                /* streams with settings, per handle */

/* Makes a handle, and looks for a daemon for at most 0.1 s. Succeeds with or without one.
 * -EINVAL: out is NULL. -ENOMEM: *out is NULL then, which every call accepts. */
int cede_connect(cede_handle **out);

/* Frees the handle and forgets its open requests. Waits for no daemon. */
void cede_close(cede_handle *c);

/* 1: a daemon receives the hints; 0: none does. For display only: no other call depends on it. */
int cede_connected(cede_handle *c);

/* Class and weight (CEDE_WEIGHT_MIN to CEDE_WEIGHT_MAX) of the job that this process belongs to, as
 * `cede set` does; a process without a job becomes one. Without a daemon the value is kept and sent
 * to the next one. Waits for the daemon's answer, at most 1 s.
 * -EINVAL: no such class or weight. -EPERM: a user may lower them, but not raise them. -ETIMEDOUT:
 * the daemon did not answer, and does not do it later. Other errors are the daemon's. */
int cede_set_class(cede_handle *c, enum cede_class cls);
int cede_set_weight(cede_handle *c, unsigned weight);

/* Default deadline, from request start; 0: none. For requests of one stream, or with CEDE_JOB for
 * those of all streams without a setting of their own. Never waits for the daemon.
 * -ENOSPC: CEDE_STREAMS_MAX streams have settings. */
int cede_set_deadline(cede_handle *c, cede_stream stream, uint64_t deadline_us);

/* Laxity: the deadline minus the GPU time that a request needs (0, the default: cede learns the GPU
 * time). Priority (default 0): among jobs of a class with requests due, the one with the highest
 * priority runs first, then the one with the earliest deadline; priorities above 0 count for root's
 * programs only. Both are set for a stream, or with CEDE_JOB for all streams without a setting of
 * their own. If several requests of a program are open, the one with the earliest deadline counts.
 * Neither waits for the daemon. -ENOSPC: CEDE_STREAMS_MAX streams have settings. */
int cede_set_laxity(cede_handle *c, cede_stream stream, uint64_t laxity_us);
int cede_set_priority(cede_handle *c, cede_stream stream, int priority);

/* One request. The caller's memory, which has to stay in place until the request has ended; the
 * contents are libcede's. */
struct cede_request {
    uint64_t opaque[8];
};

/* A request begins; work for the GPU follows. expected_us: from now until its first work is queued;
 * 0: at once, or not known. deadline_us: from now; 0: the default of cede_set_deadline(). Never
 * waits for the daemon. -EINVAL: r is NULL. */
int cede_request_begin(cede_handle *c, struct cede_request *r, cede_stream stream,
                       uint64_t expected_us, uint64_t deadline_us);

/* The request's first GPU work has been queued. Optional; makes pre-preemption (cede_lead_cuda())
 * more precise. -EINVAL, -ESTALE: as cede_request_end(). */
int cede_request_queued(cede_handle *c, struct cede_request *r);

/* The request has ended. Never waits for the daemon. -EINVAL: it has not begun, or has ended
 * before. -ESTALE: it began in the parent, before a fork(). */
int cede_request_end(cede_handle *c, struct cede_request *r);

/* Pre-preemption on NVIDIA GPUs: from now on the GPU switches to this program while a request
 * prepares, so that the request's work does not wait for the switch (180 us on an H200, driver
 * 580.159.04). To be called once per handle, with the CUDA context of that work current. libcede
 * then runs one thread and, per request, a kernel of one thread on a stream of its own. Works best
 * if expected_us is 350 us or more, given or learned from cede_request_queued().
 *
 * The program keeps the GPU until the request ends, but at most keep_us (0: 100; at most 10000)
 * after cede_request_queued(), and at most 1 ms if that is not called. A synchronization of the
 * whole device may wait as long.
 *
 * Does nothing, and returns 0, with CEDE_LEAD=0 in the environment; launches nothing without a
 * daemon. -EALREADY: called before. -EINVAL: keep_us. -EIO: the driver refused. -ENOMEM. -ENOSYS:
 * no CUDA, or no context is current. */
int cede_lead_cuda(cede_handle *c, uint64_t keep_us);

/* 1: a job of a higher class waits until this one gives way: on a GPU whose work cannot be
 * preempted, or for GPU memory that this one has. A long computation then saves what it has and
 * returns, or sleeps until this is 0 (cede/slice.h does so between slices). 0: none waits, which is
 * always so on GPUs that preempt and have room; there is no daemon; or c is NULL. Never waits. The
 * first call makes the daemon look, so its answer is 0. */
int cede_wanted(cede_handle *c);

/* How much of the GPU this process can expect now, in thousandths, 1 to CEDE_SHARE_WHOLE: all of it
 * but for what jobs of higher classes used in the last second, shared with jobs of the same class
 * by weight, where these use their part. Of several GPUs that it uses, the least. The daemon looks
 * about once a second from the first call on; CEDE_SHARE_WHOLE until it has, without a daemon, and
 * where c is NULL. Never waits. */
#define CEDE_SHARE_WHOLE 1000
int cede_share(cede_handle *c);

/* This process's job gives the GPU to others until cede_job_acquire(): it is of class batch;
 * CEDE_YIELD_PAUSE: suspended, too; CEDE_YIELD_MEMORY: its GPU memory moves to host memory, and the
 * call returns when it has. Work of all threads and processes of the job should have ended; what is
 * queued later runs after cede_job_acquire(), or, without flags, when no other job works. A process
 * without a job becomes one.
 * -EINVAL: other flags. -ENOTCONN: there is no daemon, or it does not answer for 5 s. Then, and
 * after every other error, which are the daemon's, nothing has changed: -EBUSY: no room for the
 * move within a minute, as others moved or started; -ENOMEM: too little host memory; -ENOTSUP,
 * -ETIMEDOUT: it cannot be moved, or its work did not end within 10 s. */
enum cede_yield_flags { CEDE_YIELD_PAUSE = 1, CEDE_YIELD_MEMORY = 2 };
int cede_job_yield(cede_handle *c, unsigned flags);

/* The job has back what it yielded: its memory, when there is room for it, then its class, and it
 * runs. Waits for at most timeout_us, for instance for another job to yield; in the order of calls.
 * 0 also where nothing was yielded, and without a daemon, when nothing is withheld. -EINVAL:
 * timeout_us is below 0. -EPERM: an administrator has had it yield. -ETIMEDOUT. */
int cede_job_acquire(cede_handle *c, int64_t timeout_us);

struct cede_statistics {
    uint64_t begun, ended;   /* requests */
    uint64_t with_deadline;  /* of those that ended */
    uint64_t deadlines_met;  /* of those with a deadline */
    uint64_t p50_us, p99_us; /* from begin to end, at most 1/16 or 1 us too high; 0: none ended */
    uint64_t max_us;
};

/* Since the handle was made. size: sizeof(*out), so that later releases can add fields. -EINVAL:
 * out is NULL, or this library does not know the size. */
int cede_get_statistics(cede_handle *c, struct cede_statistics *out, size_t size);

#ifdef __cplusplus
}
#endif

#endif
