/* Swapping on NVIDIA GPUs, by the driver's checkpoint calls, which work on another process by its
 * pid and need no context here. The library is opened at run time; types are declared here, so that
 * no SDK is needed. Must not be called in a daemon.
 *
 * Measured on one H200, driver 580.159.04, November 2026:
 * - A process whose restore has failed once, for lack of GPU memory or because it had memory of
 *   another process open (cuIpcOpenMemHandle), could not be restored any more. So the caller makes
 *   sure before the restore that there is room, and before the checkpoint that nothing is shared.
 * - The kernel killed a process in mid-checkpoint when there was too little host memory.
 * - For a stopped process (SIGSTOP) the lock call does not return, whatever its time limit; for one
 *   whose channels are disabled it does, and the process runs on.
 * - When the caller is killed in mid-call, the process itself finishes the step, and a call for its
 *   state waits for that.
 * - The checkpoint refuses managed memory, and the process can be unlocked.
 * - The restored context has other handles, and timeslices of 1024 us, also for compute. */
#include "gpu/nvidia/nvidia.h"

#include <errno.h>
#include <string.h>

#include "base/symbols.h"

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
/* Arguments of checkpoint and unlock; restore takes the same zeros as no argument. */
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
    static const struct symbol symbols[] = {
        {"cuGetErrorName", offsetof(struct cuda, error_name)},
        {"cuCheckpointProcessGetState", offsetof(struct cuda, state)},
        {"cuCheckpointProcessLock", offsetof(struct cuda, lock)},
        {"cuCheckpointProcessCheckpoint", offsetof(struct cuda, checkpoint)},
        {"cuCheckpointProcessRestore", offsetof(struct cuda, restore)},
        {"cuCheckpointProcessUnlock", offsetof(struct cuda, unlock)},
    };
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); /* for the rest of this process */
    if (!lib)
        return error_set(err, -ENOTSUP, "swapping requires libcuda.so.1: %s", dlerror());
    const char *missing = symbols_find(lib, symbols, ARRAY_SIZE(symbols), c);
    if (missing)
        return error_set(err, -ENOTSUP,
                         "this NVIDIA driver is too old to swap (libcuda has no %s): 570 or "
                         "later is needed",
                         missing);
    return 0; /* the calls need no cuInit(), which would take 10 to 90 ms */
}

/* Turns a call's result into 0 or an error. */
static int cuda_result(const struct cuda *c, int pid, const char *what, int r, struct error *err)
{
    const char *name = NULL;
    if (r == CU_OK)
        return 0;
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

static int cuda_state(const struct cuda *c, struct proc_id proc, enum swap_state *out,
                      struct error *err)
{
    static const enum swap_state states[] = {
        [CU_STATE_RUNNING] = SWAP_RUNNING,
        [CU_STATE_LOCKED] = SWAP_LOCKED,
        [CU_STATE_CHECKPOINTED] = SWAP_OUT,
        [CU_STATE_FAILED] = SWAP_FAILED,
    };
    int s = -1;
    if (!proc_alive(proc))
        return error_set(err, -ESRCH, "process %d is gone", (int)proc.pid);
    /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): checkpoint_open() finds all or fails */
    int r = cuda_result(c, proc.pid, "cannot ask for the state of", c->state(proc.pid, &s), err);
    if (r < 0)
        return r;
    if (s < 0 || s >= (int)ARRAY_SIZE(states))
        return error_set(err, -EIO, "process %d is in a state that is not known here (%d)",
                         (int)proc.pid, s);
    *out = states[s];
    return 0;
}

static int cuda_lock(const struct cuda *c, int pid, unsigned ms, struct error *err)
{
    struct cu_lock_args args = {.timeout_ms = ms};
    /* The library exceeds its limit if the process is stopped meanwhile. Then the signal ends this
     * process, which is its default. */
    alarm(ms / 1000 + 5);
    int r = c->lock(pid, &args);
    alarm(0);
    r = cuda_result(c, pid, "cannot stop", r, err);
    if (r == -ETIMEDOUT)
        return error_set(err, r,
                         "process %d did not become idle within %u ms: its kernels are long, or "
                         "it is stopped; it runs on",
                         pid, ms);
    return r;
}

int nv_swap_step(struct device_driver *d, struct proc_id proc, enum swap_step step,
                 unsigned lock_ms, struct error *err)
{
    struct cuda c = {0};
    struct cu_other_args args = {{0}};
    enum swap_state s = SWAP_RUNNING;
    if (step == SWAP_STEP_LOCK && proc_stopped(proc))
        return error_set(err, -EBUSY,
                         "process %d is stopped (SIGSTOP, or a debugger): continue it first",
                         (int)proc.pid);
    int r = checkpoint_open(&c, err);
    if (r == 0)
        r = cuda_state(&c, proc, &s, err);
    if (r == 0 && s == SWAP_FAILED)
        return error_set(err, -EIO,
                         "process %d was broken by a swap that failed: end it, and start it again",
                         (int)proc.pid);
    if (r < 0 || s != swap_step_from(step))
        return r;
    switch (step) {
    case SWAP_STEP_LOCK:
        return cuda_lock(&c, proc.pid, lock_ms, err);
    case SWAP_STEP_OUT:
        return cuda_result(&c, proc.pid, "cannot move to host memory",
                           c.checkpoint(proc.pid, &args), err);
    case SWAP_STEP_IN:
        return cuda_result(&c, proc.pid, "cannot bring back", c.restore(proc.pid, &args), err);
    case SWAP_STEP_UNLOCK:
        break;
    }
    return cuda_result(&c, proc.pid, "cannot unlock", c.unlock(proc.pid, &args), err);
}

/* Whether the process has mapped a file with this text in its path. */
static bool proc_maps(pid_t pid, const char *text)
{
    char path[64], line[512];
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof(line), f))
        found = strstr(line, text) != NULL;
    return found;
}

/* The first number of the driver's release, 580 for 580.159.04; 0: not known. */
static unsigned driver_branch(void)
{
    char release[32];
    rm_io_system.release(release, sizeof(release));
    return (unsigned)strtoul(release, NULL, 10);
}

/* From outside, only NCCL's segments for peers on the same machine show that memory is shared.
 * Memory that was opened by handle (cuIpcOpenMemHandle) is invisible, and the driver reports it
 * only at the restore, when it is too late. The vendor says that 610 and later restore it
 * (cuda-checkpoint#56); with older drivers, each of several processes might have such memory. */
int nv_swap_shares(struct device_driver *d, struct proc_id proc, bool several, struct error *err)
{
    if (proc_maps(proc.pid, "/dev/shm/nccl-"))
        return error_set(err, -ENOTSUP,
                         "process %d shares memory with others through NCCL, which the driver "
                         "cannot move: not swapped, it runs on",
                         (int)proc.pid);
    if (several && driver_branch() < 610)
        return error_set(err, -ENOTSUP,
                         "several of its processes use a GPU and may share memory there, with "
                         "which a driver before 610 could not bring them back: not swapped, it "
                         "runs on");
    return 0;
}

/* The library is asked only about programs that use it, because it is not known what it does to
 * others. */
int nv_swap_state(struct device_driver *d, struct proc_id proc, enum swap_state *state,
                  struct error *err)
{
    struct cuda c = {0};
    if (!proc_maps(proc.pid, "/libcuda.so"))
        return error_set(err, -ESRCH, "process %d is gone, or has no CUDA library in it",
                         (int)proc.pid);
    int r = checkpoint_open(&c, err);
    return r < 0 ? r : cuda_state(&c, proc, state, err);
}
