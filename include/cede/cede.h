/* libcede: what a program can tell the GPU scheduler cede about itself: what class and weight its
 * job is to have, that a request has begun, when it is due, that it has ended. See cede(3).
 *
 * Nothing here is needed to be scheduled by cede, and nothing needs cede to be there: without a
 * daemon, or when it ends, every call does the same and returns the same, and nobody hears of it.
 * A daemon that appears later is found by the next hint after at most a second.
 *
 * All functions may be called from several threads at once, but cede_close() from one only, with
 * no other call under way. None may be called from a signal handler. A handle of NULL is allowed
 * everywhere and does nothing. After fork() the child's handles work and begin with empty
 * statistics. Functions return 0 or a negative errno; errno itself is left alone. */
#ifndef CEDE_CEDE_H
#define CEDE_CEDE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cede;

enum cede_class {
    CEDE_LATENCY, /* somebody waits for it */
    CEDE_NORMAL,
    CEDE_BATCH, /* can wait */
};

#define CEDE_WEIGHT_MIN 1
#define CEDE_WEIGHT_MAX 10000 /* 100 is usual */

/* Which part of the job is meant: a stream's handle as a number, e.g. (cede_stream)cudaStream. */
typedef uintptr_t cede_stream;
#define CEDE_JOB         (~(cede_stream)0) /* all of it */
#define CEDE_STREAMS_MAX 64                /* that something was said about */

/* Gives a handle and looks for a daemon, for at most 0.1 s. 0 with or without one.
 * -ENOMEM: *out is NULL then, which every call takes. -EINVAL: out is NULL. */
int cede_connect(struct cede **out);

/* Ends it; open requests are forgotten. */
void cede_close(struct cede *c);

/* 1: a daemon hears the hints; 0: nobody does. For people to see; nothing depends on it. */
int cede_connected(struct cede *c);

/* Class and weight (CEDE_WEIGHT_MIN to _MAX) of the job that this process belongs to, as `cede set`
 * does; a process in no job becomes one. What is said while there is no daemon is told to it when
 * it comes. Takes a round trip to the daemon, at most 1 s.
 * -EINVAL: no such class or weight. -EPERM: a user may lower, but not raise. -ETIMEDOUT: the daemon
 * does not answer. Others: it could not be done. */
int cede_set_class(struct cede *c, enum cede_class cls);
int cede_set_weight(struct cede *c, unsigned weight);

/* When requests are due, from their beginning, that do not say so themselves; 0: never. Those of a
 * stream, or of all that have none of their own (CEDE_JOB). -ENOSPC: too many streams. */
int cede_set_deadline(struct cede *c, cede_stream stream, uint64_t deadline_us);

/* What of its deadline a request can spare, as it needs the GPU only for the rest (0: not said,
 * cede learns it), and how much it matters (default 0): among jobs of a class that are due the one
 * with the highest priority goes first, whoever is due sooner; above 0 for root's programs only. Of
 * a stream, or of all that have none of their own (CEDE_JOB). What counts is the request of the
 * program that is due first. -ENOSPC: too many streams. */
int cede_set_laxity(struct cede *c, cede_stream stream, uint64_t laxity_us);
int cede_set_priority(struct cede *c, cede_stream stream, int priority);

/* One request. The caller's memory, which stays in its place until the request has ended; the
 * contents are libcede's. */
struct cede_request {
    uint64_t opaque[8];
};

/* A request begins: work for the GPU follows. expected_us: when its first work will be queued, from
 * now; 0: not known, or now. deadline_us: when it is due, from now; 0: as cede_set_deadline() said.
 * Never waits for the daemon. -EINVAL: r is NULL. */
int cede_request_begin(struct cede *c, struct cede_request *r, cede_stream stream,
                       uint64_t expected_us, uint64_t deadline_us);

/* Its first work has been queued. Leads are better with it: see below.
 * -EINVAL, -ESTALE: as cede_request_end(). */
int cede_request_queued(struct cede *c, struct cede_request *r);

/* It has ended. -EINVAL: it has not begun, or has ended before. -ESTALE: it began in the process
 * that this one was forked from. */
int cede_request_end(struct cede *c, struct cede_request *r);

/* Pre-preemption on NVIDIA GPUs: from now on the GPU is brought to this program while its requests
 * prepare, so that their work does not wait for the switch from another (180 us on an H200). Called
 * with the CUDA context of that work current, once a handle; a thread and a kernel of one thread,
 * on a stream of their own, wait for the work. Best when expected_us is 420 us or more, or what was
 * learned of former requests by cede_request_queued() is. The program keeps the GPU until the
 * request ends, at most keep_us after cede_request_queued() (0: 100; at most 10000), and at most
 * 1 ms where that is not called. So long a synchronisation of the whole device may wait.
 * Where there is no daemon, or with CEDE_LEAD=0 in the environment, it does nothing. -ENOSYS: no
 * CUDA, or no context is current. -EALREADY: called before. -EINVAL: keep_us. -ENOMEM. -EIO: the
 * driver refused. */
int cede_lead_cuda(struct cede *c, uint64_t keep_us);

struct cede_statistics {
    uint64_t begun, ended;  /* requests */
    uint64_t with_deadline; /* of those that ended */
    uint64_t deadlines_met;
    uint64_t p50_us, p99_us; /* from begin to end; 0: none ended. At most 1/16 or 1 us above it */
    uint64_t max_us;
};

/* Since the handle was made. size: sizeof(*out), so that later releases can add to it.
 * -EINVAL: out is NULL, or size is none that this library knows. */
int cede_get_statistics(struct cede *c, struct cede_statistics *out, size_t size);

#ifdef __cplusplus
}
#endif

#endif
