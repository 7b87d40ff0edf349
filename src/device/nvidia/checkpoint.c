/* See checkpoint.h. The driver's own checkpoint calls, by pid, from outside the program. The
 * library is opened at run time; types are declared here, so that no SDK is needed. Must not be
 * called in a daemon, and creates no context: the calls work on another process's.
 *
 * Measured on one H200, driver 580.159.04, November 2026:
 * - A process whose restore has failed once, for want of GPU memory or because it had memory of
 *   another process open (cuIpcOpenMemHandle), could not be restored any more: the caller of
 *   swap_in makes sure first that there is room, and the caller of swap_out that nothing is
 *   shared. A process without the host memory was killed by the kernel in mid-checkpoint.
 * - Of a stopped process (SIGSTOP) the lock call does not come back, whatever its time limit; of
 *   one whose channels are disabled it does, and the process runs on.
 * - A caller that is killed in mid-call changes nothing: the process itself finishes the step, and
 *   asking for its state waits for that.
 * - Managed memory is refused at the checkpoint, and the process can be unlocked.
 * - The context that comes back has other handles, and timeslices of 1024 us. */
#include "device/nvidia/checkpoint.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

/* Names and layouts: the driver API's documented ABI (cuda.h of CUDA 12.8 and later). */
enum {
    CU_OK = 0,
    CU_OUT_OF_MEMORY = 2,
    CU_OPERATING_SYSTEM = 304,
    CU_NOT_READY = 600,
    CU_NOT_SUPPORTED = 801
};
enum { CU_STATE_RUNNING, CU_STATE_LOCKED, CU_STATE_CHECKPOINTED, CU_STATE_FAILED };

struct cu_lock_args {
    unsigned timeout_ms; /* 0: none */
    unsigned reserved0;
    uint64_t reserved1[7];
};
/* Of checkpoint and unlock; for restore it is what an absent argument means. */
struct cu_other_args {
    uint64_t reserved[8];
};
_Static_assert(sizeof(struct cu_lock_args) == 64 && sizeof(struct cu_other_args) == 64,
               "arguments of the checkpoint calls");

struct cuda {
    int (*error_name)(int r, const char **s);
    int (*state)(int pid, int *state);
    int (*lock)(int pid, struct cu_lock_args *args);
    int (*checkpoint)(int pid, struct cu_other_args *args);
    int (*restore)(int pid, struct cu_other_args *args);
    int (*unlock)(int pid, struct cu_other_args *args);
};

static int checkpoint_open(struct cuda *c, struct error *err)
{
    const struct {
        void *slot;
        const char *name;
    } symbols[] = {
        {&c->error_name, "cuGetErrorName"},
        {&c->state, "cuCheckpointProcessGetState"},
        {&c->lock, "cuCheckpointProcessLock"},
        {&c->checkpoint, "cuCheckpointProcessCheckpoint"},
        {&c->restore, "cuCheckpointProcessRestore"},
        {&c->unlock, "cuCheckpointProcessUnlock"},
    };
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* for the rest of this process */
    if (!lib)
        return error_set(err, -ENOTSUP, "swapping takes libcuda.so.1: %s", dlerror());
    for (size_t i = 0; i < ARRAY_SIZE(symbols); i++) {
        void *p = dlsym(lib, symbols[i].name);
        if (!p)
            return error_set(err, -ENOTSUP,
                             "this NVIDIA driver is too old to swap (libcuda has no %s): 570 or "
                             "later is needed",
                             symbols[i].name);
        memcpy(symbols[i].slot, &p, sizeof(p));
    }
    return 0; /* the calls work without cuInit(), which would take 10 to 90 ms */
}

static int checkpoint_failed(const struct cuda *c, int pid, const char *what, int r,
                             struct error *err)
{
    const char *name = NULL;
    c->error_name(r, &name);
    if (r == CU_NOT_SUPPORTED)
        return error_set(err, -ENOTSUP,
                         "%s process %d: it uses what the driver cannot swap, such as managed "
                         "memory (%s)",
                         what, pid, name ? name : "not supported");
    int code = r == CU_OUT_OF_MEMORY ? -ENOMEM : r == CU_NOT_READY ? -ETIMEDOUT : -EIO;
    return error_set(err, code, "%s process %d: the driver answered %s (%d)%s", what, pid,
                     name ? name : "an error", r,
                     r == CU_OPERATING_SYSTEM ? "; is it another user's, or gone?" : "");
}

static int get_state(const struct cuda *c, int pid, enum swap_state *out, struct error *err)
{
    static const enum swap_state states[] = {
        [CU_STATE_RUNNING] = SWAP_RUNNING,
        [CU_STATE_LOCKED] = SWAP_LOCKED,
        [CU_STATE_CHECKPOINTED] = SWAP_OUT,
        [CU_STATE_FAILED] = SWAP_FAILED,
    };
    int s = -1, r;
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): checkpoint_open() finds all or fails */
    r = c->state(pid, &s);
    if (r)
        return checkpoint_failed(c, pid, "cannot ask for the state of", r, err);
    if (s < 0 || s >= (int)ARRAY_SIZE(states))
        return error_set(err, -EIO, "process %d is in a state that is not known here (%d)", pid, s);
    *out = states[s];
    return 0;
}

static int cuda_lock(const struct cuda *c, int pid, unsigned ms, struct error *err)
{
    struct cu_lock_args args = {.timeout_ms = ms};
    /* The library keeps to its limit, but not where the process stops meanwhile. The signal's
     * default is what is wanted: the end of this process. */
    alarm(ms / 1000 + 5);
    int r = c->lock(pid, &args);
    alarm(0);
    if (r == CU_OK)
        return 0;
    int code = checkpoint_failed(c, pid, "cannot stop", r, err);
    if (code == -ETIMEDOUT)
        return error_set(err, code,
                         "process %d did not become idle within %u ms: its kernels are long, or "
                         "it is stopped; it runs on",
                         pid, ms);
    return code;
}

/* From wherever they are to running. All are back before the first goes on: it may use what another
 * one shares with it. */
static int cuda_bring_in(const struct cuda *c, const struct proc_id *procs, size_t n,
                         struct error *err)
{
    struct cu_other_args args = {{0}};
    int first = 0;
    for (size_t i = 0; n && i < 2 * n; i++) {
        struct proc_id proc = procs[i % n];
        enum swap_state s = SWAP_RUNNING;
        struct error e = {""};
        int r = proc_alive(proc) ? get_state(c, proc.pid, &s, &e)
                                 : error_set(&e, -ESRCH, "process %d is gone", (int)proc.pid);
        int answer = CU_OK;
        if (r == 0 && s == SWAP_FAILED)
            r = error_set(&e, -EIO,
                          "process %d was broken by a swap that failed: end it, and start it again",
                          (int)proc.pid);
        else if (r == 0 && s == SWAP_OUT && i < n)
            answer = c->restore(proc.pid, &args);
        else if (r == 0 && s == SWAP_LOCKED && i >= n)
            answer = c->unlock(proc.pid, &args);
        if (answer)
            r = checkpoint_failed(c, proc.pid, i < n ? "cannot bring back" : "cannot unlock",
                                  answer, &e);
        if (r < 0 && first == 0)
            first = error_set(err, r, "%s", e.text);
    }
    return first;
}

/* Every one is stopped before the first is moved: processes that share memory wait for each other.
 */
int nv_swap_out(struct device_driver *d, const struct proc_id *procs, size_t n, unsigned lock_ms,
                struct error *err)
{
    (void)d;
    struct cuda c = {0};
    int r = checkpoint_open(&c, err);
    if (r < 0)
        return r;
    size_t begun = 0;
    for (; begun < n && r == 0; begun++) {
        enum swap_state s = SWAP_RUNNING;
        if (!proc_alive(procs[begun]))
            r = error_set(err, -ESRCH, "process %d is gone", (int)procs[begun].pid);
        struct proc_stat st;
        if (r == 0 && proc_stat_read(procs[begun].pid, &st) == 0 &&
            (st.state == 'T' || st.state == 't'))
            r = error_set(err, -EBUSY,
                          "process %d is stopped (SIGSTOP, or a debugger): continue it first",
                          (int)procs[begun].pid);
        if (r == 0)
            r = get_state(&c, procs[begun].pid, &s, err);
        if (r == 0 && s == SWAP_RUNNING)
            r = cuda_lock(&c, procs[begun].pid, lock_ms, err);
    }
    for (size_t i = 0; i < n && r == 0; i++) {
        struct cu_other_args args = {{0}};
        enum swap_state s = SWAP_FAILED;
        r = get_state(&c, procs[i].pid, &s, err);
        if (r < 0 || s == SWAP_OUT)
            continue;
        int result = c.checkpoint(procs[i].pid, &args);
        if (result)
            r = checkpoint_failed(&c, procs[i].pid, "cannot move to host memory", result, err);
    }
    if (r < 0 && begun)
        cuda_bring_in(&c, procs, begun, NULL);
    return r;
}

int nv_swap_in(struct device_driver *d, const struct proc_id *procs, size_t n, struct error *err)
{
    (void)d;
    struct cuda c = {0};
    int r = checkpoint_open(&c, err);
    return r < 0 ? r : cuda_bring_in(&c, procs, n, err);
}

/* The library is not asked about what has nothing to do with it: what it would do to find that out
 * is its own affair. */
static bool uses_cuda(pid_t pid)
{
    char path[64], line[512];
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof(line), f))
        found = strstr(line, "/libcuda.so") != NULL;
    return found;
}

int nv_swap_state(struct device_driver *d, struct proc_id proc, enum swap_state *state,
                  struct error *err)
{
    (void)d;
    struct cuda c = {0};
    if (!proc_alive(proc))
        return error_set(err, -ESRCH, "process %d is gone", (int)proc.pid);
    if (!uses_cuda(proc.pid))
        return error_set(err, -ESRCH, "process %d has no CUDA library in it", (int)proc.pid);
    int r = checkpoint_open(&c, err);
    return r < 0 ? r : get_state(&c, proc.pid, state, err);
}
