/* libcede: a long computation in slices, and checkpoints of it. Work of `count` elements runs as
 * kernel launches that each take about 0.5 ms, whatever the kernel and the GPU. Between slices it
 * can be cancelled, reach a deadline, or give way to a job of a higher class; then it is saved, and
 * goes on later, in another process or on another GPU. See cede_slice_run(3) and docs/slices.md,
 * which says when slices are of no use.
 *
 * Needs no daemon. libcuda or libOpenCL is opened at run time. Has no thread, and calls the
 * program's functions on the thread that called it, with no lock held.
 *
 * Thread-safe: all functions may be called from several threads at once, each with structs of its
 * own. None may be called from a signal handler. Functions return 0 or a negative errno. Times are
 * microseconds. */
#ifndef CEDE_SLICE_H
#define CEDE_SLICE_H

#include "cede/cede.h"
#include "cede/lease.h"
#include "cede/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CEDE_SLICE_DEPTH_MAX  8
#define CEDE_SLICE_TARGET_MAX 1000000 /* us */

enum cede_slice_flags {
    CEDE_SLICE_NO_GPU = 1, /* a slice has run when `launch` returns */
    CEDE_SLICE_OPENCL = 2, /* `stream` is a cl_command_queue, in order; it has to be given */
};

/* To be filled in by cede_slice_defaults(), then changed. The comments give the defaults. */
struct cede_slice_config {
    size_t size;              /* of this struct; set by cede_slice_defaults() */
    unsigned flags;           /* 0: CUDA, in the calling thread's current context */
    unsigned depth;           /* 2 slices queued; at most CEDE_SLICE_DEPTH_MAX. 1: the GPU idles
                                 between slices */
    uint64_t target_us;       /* 500: what a slice is to take; 1 to CEDE_SLICE_TARGET_MAX */
    uint64_t count;           /* 0: elements of the whole work */
    uint64_t multiple;        /* 1: a slice is a multiple of it, except the last */
    uint64_t checkpoint_us;   /* 10000000: `save` is called so often; 0: only when the run stops */
    int64_t timeout_us;       /* CEDE_NO_TIMEOUT: the deadline, from the call of cede_slice_run() */
    struct cede_scope *scope; /* NULL; else no slice begins once it is cancelled */
    cede_handle *cede;        /* NULL; else no slice begins while cede_wanted() */
    uint64_t patience_us;     /* 100000: if that lasts so long, the run stops; UINT64_MAX: never */
    const struct cede_lease *lease; /* NULL; else no slice begins while cede_lease_wanted(), for at
                                       most patience_us before the next */
    void *stream;                   /* NULL: a CUDA stream of the run's own */
    void *arg;                      /* for the functions below */

    /* Puts elements first to first + count - 1 into the stream, in order after the slices before,
     * and does not wait. Negative: nothing was put there, and the run stops with that. */
    int (*launch)(void *arg, uint64_t first, uint64_t count, void *stream);
    /* NULL, or: saves the state after `done` elements, as a rule by cede_checkpoint_write().
     * Nothing runs in the stream meanwhile. Negative: the run stops with that. */
    int (*save)(void *arg, uint64_t done);
};
/* config must not be NULL. */
void cede_slice_defaults(struct cede_slice_config *config);

/* How far a computation is. All 0 at first, but `done` where a checkpoint was read; then handed to
 * each further cede_slice_run() of the same work as the last one left it. */
struct cede_slice_progress {
    uint64_t done;       /* elements 0 to done - 1 have run */
    uint64_t saved;      /* of these `save` has saved */
    uint64_t next_count; /* what the next slice would have; 0: not measured yet */
    uint64_t slices;     /* that have run */
    uint64_t gpu_us;     /* in slices */
    uint64_t idle_us;    /* between slices, and while `save` ran: the stream was empty */
    char error[256];     /* why the latest call failed, and what to do; "": it did not */
    uint64_t reserved[4];
};

/* Runs slices until all elements are done, or there is a reason to stop: one of the first four
 * errors. It then waits for the slices that are queued (depth * target_us), and saves what is not
 * saved. 0: all is done, and saved.
 * -EAGAIN: a job of a higher class waits (cede_wanted()) for longer than patience_us. -ECANCELED:
 * the scope is cancelled, or past its deadline. -ETIMEDOUT: the deadline. What `launch` or `save`
 * returned. After all of these another call goes on from there. -EINVAL: a setting out of range, or
 * `launch` is missing. -EIO, unless it is `launch`'s or `save`'s: the driver refused or a slice
 * failed: what is on the GPU is lost, so nothing is saved; go on from the latest checkpoint, in a
 * new process. -ENOMEM. -ENOSYS: there is no CUDA, or no context is current, or no OpenCL. */
int cede_slice_run(const struct cede_slice_config *config, struct cede_slice_progress *progress);

/* ---- a checkpoint in a file ------------------------------------------------------------------ */

/* Filled in by the program: a file that is whole or not there, whenever the process or the machine
 * stops. Beside it, while it is written, is PATH.new. */
struct cede_checkpoint {
    const char *path; /* neither it nor PATH.new may be a symbolic link */
    uint64_t work;    /* what is computed: a number made of all parameters, or of their version.
                         A file of other work is refused */
    char error[512];  /* why the latest call failed, on which file, and what to do */
};

/* Writes PATH.new, syncs it, renames it, syncs the directory. After an error the former checkpoint
 * is still there. -EBUSY: another process writes it. -EINVAL. -ELOOP: a symbolic link is in the
 * way. -EEXIST: something else is. Others are those of open(2), write(2), fsync(2) and rename(2),
 * such as -ENOSPC and -EACCES. */
int cede_checkpoint_write(struct cede_checkpoint *c, uint64_t done, const void *data, size_t bytes);

/* Reads what cede_checkpoint_write() wrote. *done is only changed, and data only complete, where 0
 * is returned. -ENOENT: there is none: begin at 0. -EBADMSG: it is damaged, or no checkpoint.
 * -EPROTO: a release of another format wrote it. -ESTALE: it is of other work, or its state has
 * not `bytes` bytes. -EINVAL. Others are those of open(2) and read(2). */
int cede_checkpoint_read(struct cede_checkpoint *c, uint64_t *done, void *data, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
