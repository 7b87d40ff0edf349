/* libcede: a long computation in slices, and checkpoints of it. Work of `count` elements runs as
 * kernel launches that each take about 0.5 ms, whatever the kernel and the GPU. Between slices it
 * can be cancelled, reach its time-out, or yield to a job of a higher class; then it is saved, and
 * goes on later, in another process or on another GPU. See cede_slice_run(3) and docs/slices.md,
 * which says when slices are of no use.
 *
 * Slices need no daemon and no thread. libcuda or libOpenCL is opened at run time. The program's
 * functions are called on the thread that called, with no lock held.
 *
 * Thread-safe: all functions may be called from several threads at once, each with separate
 * structs. No function may be called from a signal handler. Functions return 0 or a negative errno,
 * and none changes errno. Times are microseconds. */
#ifndef CEDE_SLICE_H
#define CEDE_SLICE_H

#include "cede/cede.h"
#include "cede/lease.h"
#include "cede/scope.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CEDE_SLICE_DEPTH_MAX     8
#define CEDE_SLICE_TARGET_MAX_US 1000000

enum cede_slice_flags {
    CEDE_SLICE_NO_GPU = 1, /* a slice has run when `launch` returns */
    CEDE_SLICE_OPENCL = 2, /* `stream` is a cl_command_queue, in order; it has to be given */
};

/* Settings, which cede_slice_defaults() fills in. The comments give the defaults. */
struct cede_slice_config {
    size_t size;             /* of this struct; set by cede_slice_defaults() */
    unsigned flags;          /* 0: CUDA, in the calling thread's current context */
    unsigned depth;          /* 2 slices queued; at most CEDE_SLICE_DEPTH_MAX. 1: the GPU idles
                                between slices */
    uint64_t target_us;      /* 500: length of a slice; 1 to CEDE_SLICE_TARGET_MAX_US */
    uint64_t count;          /* elements of the whole work; it has to be given: 0 is refused */
    uint64_t multiple;       /* 1: a slice is a multiple of it, except the last */
    uint64_t checkpoint_us;  /* 10000000: between calls of `save`; 0: only when the run stops */
    cede_timeout timeout_us; /* CEDE_TIMEOUT_FOREVER, as the default: the time-out, from the call of
                                cede_slice_run() */
    struct cede_scope *scope;       /* NULL; else no slice begins once it has ended */
    cede_handle *client;            /* NULL; else no slice begins while cede_wanted() */
    cede_timeout patience_us;       /* 100000, as the default: longest wait for cede_wanted() */
    const struct cede_lease *lease; /* NULL; else no slice begins while cede_lease_wanted(), for at
                                       most patience_us before the next */
    void *stream;                   /* NULL: the run makes a CUDA stream */
    void *arg;                      /* for the functions below */

    /* Puts elements first to first + count - 1 into the stream, in order after earlier slices, and
     * does not wait. Returns 0; anything else, a negative errno or (as -EIO) a CUresult, means that
     * nothing was put there, and the run stops with this error. */
    int (*launch)(void *arg, uint64_t first, uint64_t count, void *stream);
    /* NULL, or: saves the state after `done` elements, as a rule by cede_checkpoint_write().
     * Nothing runs in the stream meanwhile. Not 0: the run stops with this error, as `launch`. */
    int (*save)(void *arg, uint64_t done);
};
/* config must not be NULL. */
void cede_slice_defaults(struct cede_slice_config *config);

/* The progress of a computation. At first all fields are 0, except `done` after a checkpoint was
 * read; each further cede_slice_run() of the same work gets it as the last one left it. */
struct cede_slice_progress {
    uint64_t done;       /* elements 0 to done - 1 have run */
    uint64_t saved;      /* elements 0 to saved - 1 are in the state that `save` has saved */
    uint64_t next_count; /* elements of the next slice; 0: not measured yet */
    uint64_t slices;     /* slices that have run */
    uint64_t gpu_us;     /* time in slices */
    uint64_t idle_us;    /* time with an empty stream, between slices and while `save` ran */
    char error[256];     /* why the latest call failed, and what to do; "": it did not fail */
    uint64_t reserved[4];
};

/* Runs slices until all elements are done, or until one of the first four errors. It then waits for
 * the queued slices (depth * target_us), and saves what is not saved. 0: all is done, and saved.
 * -EAGAIN: a job of a higher class has waited (cede_wanted()) for longer than patience_us.
 * -ECANCELED: the scope, or that of the calling task, has ended. -ETIMEDOUT: timeout_us has passed.
 * Errors that `launch` or `save` returned; in place of these three -EIO. After all of these another
 * call goes on from there. -EINVAL: a setting out of range, or `launch` is missing. -EIO that is
 * not `launch`'s or `save`'s: the driver refused or a slice failed; the GPU's state is lost and not
 * saved, and a new process has to go on from the latest checkpoint. -ENOMEM. -ENOSYS: no CUDA, no
 * current context, or no OpenCL. */
int cede_slice_run(const struct cede_slice_config *config, struct cede_slice_progress *progress);

/* ---- a checkpoint in a file ------------------------------------------------------------------ */

/* A checkpoint's file, which the program names: it is whole or not there, whenever the process or
 * the machine stops. While it is written there is also PATH.new. */
struct cede_checkpoint {
    const char *path; /* neither it nor PATH.new may be a symbolic link */
    uint64_t work;    /* a number made of all parameters of the computation, or of their version; a
                         file with another number is refused */
    char error[512];  /* why the latest call failed, on which file, and what to do */
};

/* Writes PATH.new, syncs it, renames it, syncs the directory. After an error the former checkpoint
 * is still there. -EBUSY: another process writes it. -EINVAL. -ELOOP: a symbolic link is in the
 * way. -EEXIST: something else is. -ENOTDIR: its directory is not there. Others are those of
 * open(2), write(2), fsync(2) and rename(2), such as -ENOSPC and -EACCES. */
int cede_checkpoint_write(struct cede_checkpoint *c, uint64_t done, const void *data, size_t bytes);

/* Reads a checkpoint. Only if it returns 0 is *done changed and data complete. -ENOENT: there is no
 * checkpoint: begin at 0. -EBADMSG: the file is damaged, or no checkpoint. -EPROTO: a release with
 * another format wrote it. -ESTALE: it is of other work, or its state does not have `bytes` bytes.
 * -ENOTDIR: the directory of the file is not there. -EINVAL. Others are those of open(2) and
 * read(2). */
int cede_checkpoint_read(struct cede_checkpoint *c, uint64_t *done, void *data, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
