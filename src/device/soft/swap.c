/* See swap.h. Takes the same steps in the same order as the NVIDIA driver's checkpoint.c, so that
 * being killed between two of them is the same. */
#include "device/soft/swap.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "device/soft/link.h"

/* The answer's result, or an error. */
static int step(struct device_driver *d, struct proc_id proc, uint32_t what, unsigned lock_ms,
                struct error *err)
{
    static const char *const names[] = {[SOFT_SWAP_STATE] = "ask for the state of",
                                        [SOFT_LOCK] = "stop",
                                        [SOFT_MOVE_OUT] = "move to host memory",
                                        [SOFT_MOVE_IN] = "bring back",
                                        [SOFT_UNLOCK] = "continue"};
    struct soft_msg m = {.type = SOFT_SWAP,
                         .u.swap = {proc.start_ticks, proc.pid, what, lock_ms, 0}};
    int r = soft_link_wait((struct soft_driver *)d, &m, err);
    if (r < 0 || m.u.reply.result >= 0)
        return r < 0 ? r : m.u.reply.result;
    r = m.u.reply.result;
    if (r == -ESRCH)
        return error_set(err, r, "process %d is gone, or uses no GPU", (int)proc.pid);
    if (r == -ETIMEDOUT)
        return error_set(err, r, "process %d did not become idle within %u ms; it runs on",
                         (int)proc.pid, lock_ms);
    return error_set(err, r, "cannot %s process %d: %s%s", names[what], (int)proc.pid, strerror(-r),
                     r == -ENOMEM ? " on the GPU" : "");
}

/* A step that a swapper began before it was killed goes on to its end. */
static int patient_step(struct device_driver *d, struct proc_id proc, uint32_t what,
                        unsigned lock_ms, struct error *err)
{
    int r;
    while ((r = step(d, proc, what, lock_ms, err)) == -EBUSY)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return r;
}

/* One step of those that lead to running; where such a step of another's has just ended, the
 * process is elsewhere already, and its state decides what comes next. */
static int soft_step_in(struct device_driver *d, struct proc_id proc, uint32_t what,
                        struct error *err)
{
    int r = patient_step(d, proc, what, 0, err);
    return r == -EINVAL ? 0 : r;
}

int soft_swap_in(struct device_driver *d, struct proc_id proc, struct error *err)
{
    enum { MOVE, UNLOCK };
    int first = 0;
    for (int i = MOVE; i <= UNLOCK; i++) {
        struct error e = {""};
        int s = step(d, proc, SOFT_SWAP_STATE, 0, &e), r = s < 0 ? s : 0;
        /* What is under way may yet change the state. */
        if (i == MOVE && (s == SWAP_LOCKED || s == SWAP_OUT))
            r = soft_step_in(d, proc, SOFT_MOVE_IN, &e);
        else if ((i == MOVE && s == SWAP_RUNNING) || s == SWAP_LOCKED)
            r = soft_step_in(d, proc, SOFT_UNLOCK, &e); /* or about to be locked */
        if (r < 0 && first == 0)
            first = error_set(err, r, "%s", e.text);
    }
    return first;
}

int soft_swap_out(struct device_driver *d, struct proc_id proc, unsigned lock_ms, struct error *err)
{
    int r = step(d, proc, SOFT_SWAP_STATE, 0, err);
    if (r == SWAP_RUNNING)
        r = patient_step(d, proc, SOFT_LOCK, lock_ms, err);
    if (r >= 0)
        r = step(d, proc, SOFT_SWAP_STATE, 0, err);
    if (r == SWAP_LOCKED)
        r = patient_step(d, proc, SOFT_MOVE_OUT, 0, err);
    if (r < 0)
        soft_swap_in(d, proc, NULL);
    return r < 0 ? r : 0;
}

int soft_swap_state(struct device_driver *d, struct proc_id proc, enum swap_state *state,
                    struct error *err)
{
    int r = step(d, proc, SOFT_SWAP_STATE, 0, err);
    if (r >= 0)
        *state = (enum swap_state)r;
    return r < 0 ? r : 0;
}
