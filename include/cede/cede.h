/* libcede: reports a program's class, weight and requests to the GPU scheduler cede. A request can
 * be reported when it begins, when it is due, and when it ends. See cede(3).
 *
 * cede also schedules programs that do not use libcede, and libcede works without cede: without a
 * daemon, or after it ends, hints are dropped, and the calls that give them succeed. A daemon that
 * starts later is found by the next hint after at most one second.
 *
 * Thread-safe: all functions may be called from several threads at once, except cede_close(), which
 * no other call on the handle may overlap. No function may be called from a signal handler. After
 * fork() handles work in the child and begin there with empty statistics.
 *
 * A handle of NULL is allowed everywhere, and then calls check their arguments and do nothing.
 * Functions that return int return 0 or a negative errno (of <errno.h>, which these headers do not
 * include), unless they say otherwise; none changes errno. Times are microseconds. */
#ifndef CEDE_CEDE_H
#define CEDE_CEDE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A handle. In C++ a struct cannot be named `cede`, which is the namespace of cede/cede.hpp. */
#ifdef __cplusplus
struct cede_handle;
#else
typedef struct cede cede_handle;
#endif

/* What is zeroed is of class normal. The lower goes first. */
enum cede_class {
    CEDE_LATENCY = -1, /* a user waits for the result */
    CEDE_NORMAL = 0,
    CEDE_BATCH = 1, /* the result may wait */
};

/* How long a call may wait, in microseconds: 0 or more, or one of these. All functions of libcede
 * that wait take it. Other negative numbers are refused (-EINVAL), as a rule before anything else
 * is looked at, and cede_error_text() says so. */
typedef int64_t cede_timeout;
#define CEDE_TIMEOUT_NOW INT64_C(0) /* not at all */
#define CEDE_TIMEOUT_DEFAULT                                                                       \
    INT64_MIN /* the setting block_timeout_us of a pool or a memory; else                          \
                 for ever, unless the function says otherwise */
#define CEDE_TIMEOUT_FOREVER INT64_MAX

/* Why the calling thread's latest call failed: which call, what is wrong with what, and what to do,
 * as in "cede_queue_open: batches is 257: give 0 to 256". "": it did not fail, or there was no
 * memory for a text. That is of the latest call of any function of libcede that can return a
 * negative errno; one that succeeds takes the text of an earlier one away. Never NULL; valid until
 * the thread's next such call. */
const char *cede_error_text(void);

#define CEDE_WEIGHT_MIN 1
#define CEDE_WEIGHT_MAX 10000 /* the default is 100 */

/* A part of the program: a stream's handle as a number, e.g. (cede_stream)cudaStream. */
typedef uintptr_t cede_stream;
#define CEDE_JOB         (~(cede_stream)0) /* the whole job */
#define CEDE_STREAMS_MAX 64                /* streams with settings, per handle */

/* Makes a handle, and looks for a daemon for at most 0.1 s. Succeeds with or without a daemon.
 * -EINVAL: out is NULL. -ENOMEM: *out is NULL, which every call accepts. */
int cede_connect(cede_handle **out);

/* Frees the handle and drops its open requests. Never waits for the daemon. */
void cede_close(cede_handle *c);

/* 1: a daemon receives the hints; 0: none does. For display only: other calls work either way. */
int cede_connected(cede_handle *c);

/* Sets class or weight (CEDE_WEIGHT_MIN to CEDE_WEIGHT_MAX) of this process's job, as `cede set`
 * does; a process without a job becomes one. Without a daemon the value is kept and sent to the
 * next one. Waits for the daemon's answer, at most 1 s. -EINVAL: no such class or weight. -EPERM: a
 * user may lower them, but not raise them. -ETIMEDOUT: the daemon did not answer, and will not do
 * it later. Other errors are the daemon's. */
int cede_set_class(cede_handle *c, enum cede_class cls);
int cede_set_weight(cede_handle *c, unsigned weight);

/* Default deadline, from request start; 0: none. It is for requests of one stream, or with CEDE_JOB
 * for those of all streams without a separate setting. Never waits for the daemon. -EINVAL: more
 * than 146,000 years, as of a difference below 0. -ENOSPC: CEDE_STREAMS_MAX streams have settings.
 */
int cede_set_deadline(cede_handle *c, cede_stream stream, uint64_t deadline_us);

/* Laxity: the deadline minus the GPU time that a request needs (0, the default: cede learns the GPU
 * time). Priority (default 0): among jobs of a class with requests due, the one with the highest
 * priority runs first, then the one with the earliest deadline; priorities above 0 count for root's
 * programs only. Both are set for a stream, or with CEDE_JOB for all streams without a separate
 * setting. If several requests of a program are open, the one with the earliest deadline counts.
 * Neither waits for the daemon. Errors as above. */
int cede_set_laxity(cede_handle *c, cede_stream stream, uint64_t laxity_us);
int cede_set_priority(cede_handle *c, cede_stream stream, int priority);

/* One request, in memory of the caller that has to stay in place until the request has ended; the
 * contents are libcede's. */
struct cede_request {
    uint64_t opaque[8];
};

/* A request begins; work for the GPU follows. queued_in_us: from now until its first work is
 * queued; 0: at once, or not known. deadline_us: from now; 0: the default of cede_set_deadline().
 * Never waits for the daemon. -EINVAL: r is NULL. */
int cede_request_begin(cede_handle *c, struct cede_request *r, cede_stream stream,
                       uint64_t queued_in_us, uint64_t deadline_us);

/* The request's first GPU work has been queued. Optional; makes pre-preemption (cede_lead_cuda())
 * more precise. -EINVAL, -ESTALE: as cede_request_end(). */
int cede_request_queued(cede_handle *c, struct cede_request *r);

/* The request has ended. Never waits for the daemon. -EINVAL: it has not begun, or has ended
 * before. -ESTALE: it began in the parent, before a fork(). */
int cede_request_end(cede_handle *c, struct cede_request *r);

/* Pre-preemption on NVIDIA GPUs: from now on the GPU switches to this program while a request
 * prepares, so that the request's work does not wait for the switch (180 us on an H200, driver
 * 580.159.04). It is called once per handle, with the CUDA context of that work current. libcede
 * then runs one thread and, per request, a kernel of one thread on a separate stream. It works best
 * if queued_in_us is 350 us or more, given or learned from cede_request_queued().
 *
 * The program keeps the GPU until the request ends, but at most keep_us (0: 100; at most 10000)
 * after cede_request_queued(), and at most 1 ms if that is not called. A synchronization of the
 * whole device may wait as long.
 *
 * The call does nothing, and returns 0, with CEDE_LEAD=0 in the environment; without a daemon no
 * kernel is launched. -EALREADY: called before. -EINVAL: keep_us. -EIO: the driver refused.
 * -ENOMEM. -ENOSYS: there is no CUDA, or no context is current. */
int cede_lead_cuda(cede_handle *c, uint64_t keep_us);

/* 1: a job of a higher class waits until this job yields: on a GPU whose work cannot be preempted,
 * or for GPU memory that this job has. A long computation then saves its state and returns, or
 * sleeps until the answer is 0 (cede/slice.h does so between slices). 0: no job waits, as on GPUs
 * that preempt and have room; there is no daemon; or c is NULL. Never waits. The first call makes
 * the daemon look, so its answer is 0. */
int cede_wanted(cede_handle *c);

/* The share of the GPU that this process can expect now, up to 1, which is all of it: the
 * time that jobs of higher classes left in the last second, shared by weight with those jobs of the
 * same class that use their part; of several GPUs, the least. The daemon computes it about once per
 * second from the first call on. 1 until then, without a daemon, and if c is NULL.
 * Never waits. */
double cede_share(cede_handle *c);

/* This process's job yields the GPU until cede_job_acquire(): it joins the batch class; with
 * CEDE_YIELD_PAUSE it is suspended, too; with CEDE_YIELD_MEMORY its GPU memory moves to host
 * memory, and the call returns after that. Work of all threads and processes of the job should have
 * ended; work that is queued later runs after cede_job_acquire(), or, without flags, when no other
 * job works. A process without a job becomes one. After an error nothing has changed. -EINVAL:
 * other flags. -ENOTCONN: there is no daemon, or it did not answer for 5 s. Other errors are the
 * daemon's: -EBUSY: the move found no room within a minute, because others moved or started;
 * -ENOMEM: too little host memory; -ENOTSUP: the job cannot be moved; -ETIMEDOUT: its work did not
 * end within 10 s. */
enum cede_yield_flags { CEDE_YIELD_PAUSE = 1, CEDE_YIELD_MEMORY = 2 };
int cede_job_yield(cede_handle *c, unsigned flags);

/* The job takes back what it yielded: its memory, when there is room for it, then its class, and it
 * runs. Calls wait in order, each for at most timeout_us, for instance until another job yields. 0
 * also if nothing was yielded, and without a daemon, as nothing is withheld then. -EINVAL: no such
 * time-out. -EPERM: an administrator made the job yield. -ETIMEDOUT. */
int cede_job_acquire(cede_handle *c, cede_timeout timeout_us);

struct cede_statistics {
    uint64_t begun, ended;   /* requests */
    uint64_t with_deadline;  /* ended requests that had a deadline */
    uint64_t deadlines_met;  /* those of them that met it */
    uint64_t p50_us, p99_us; /* from begin to end, of all requests, at most 1/16 or 1 us too high;
                                0: none ended */
    uint64_t max_us;
};

/* Figures since the handle was made. size: sizeof(*out), so that later releases can add fields.
 * -EINVAL: out is NULL, or this library does not know the size. */
int cede_get_statistics(cede_handle *c, struct cede_statistics *out, size_t size);

#ifdef __cplusplus
}
#endif

#endif
