/* libcede: a job gives the GPU to others for a while, and takes it back; see cede/cede.h. Asks the
 * daemon again and again, so a daemon that ends meanwhile delays its callers, but never blocks
 * them. */
#include <errno.h>

#include "libcede/clock.h"
#include "libcede/error.h"
#include "libcede/handle.h"

#define LOOK_MIN_NS (5 * NSEC_PER_MSEC) /* between looks, and longer the longer it takes */
#define LOOK_MAX_NS (100 * NSEC_PER_MSEC)
#define GONE_NS     (5 * NSEC_PER_SEC)  /* for another daemon, after one has gone */
#define SILENT_NS   (5 * NSEC_PER_SEC)  /* for an answer of one that is there */
#define BUSY_NS     (60 * NSEC_PER_SEC) /* for another job's move */

struct asking {
    struct cede *c;
    uint64_t began_ns, sleep_ns;
    uint64_t gone_ns;   /* since when there is no daemon; 0: there is one */
    uint64_t silent_ns; /* since when it has not answered; 0: it does */
    bool waits;         /* it is not done yet */
};

/* -ENOTCONN: there is no daemon, nor has one come while it could be expected. -EAGAIN: to be asked
 * anew, from the start. */
static int asking_ask(struct asking *a, struct link_ask ask)
{
    const uint64_t now = cede_clock_now_ns();
    int r = cede_link_ask(a->c, &ask, &a->waits);
    a->silent_ns = r != -EINPROGRESS ? 0 : a->silent_ns ? a->silent_ns : now;
    if (r != -ENOTCONN) {
        a->gone_ns = 0;
        return r;
    }
    if (!atomic_load(&a->c->link.met))
        return r;
    a->gone_ns = a->gone_ns ? a->gone_ns : now;
    return now - a->gone_ns < GONE_NS ? -EAGAIN : r;
}

static void asking_sleep(struct asking *a, uint64_t left_ns)
{
    cede_clock_sleep_ns(min_u64(a->sleep_ns, left_ns));
    a->sleep_ns = min_u64(a->sleep_ns + a->sleep_ns / 4, LOOK_MAX_NS);
}
_Static_assert(LINK_PAUSE == CEDE_YIELD_PAUSE && LINK_MEMORY == CEDE_YIELD_MEMORY, "same flags");

static int job_yield(struct cede *c, unsigned flags)
{
    struct asking a = {.c = c, .began_ns = cede_clock_now_ns(), .sleep_ns = LOOK_MIN_NS};
    struct link_ask ask = {.op = LINK_YIELD, .flags = flags};
    for (;;) {
        const bool look = ask.flags & LINK_LOOK;
        int r = asking_ask(&a, ask);
        if (r == 0 && !a.waits)
            return 0;
        const bool again = r == 0 || r == -EAGAIN || r == -EINPROGRESS || (r == -EBUSY && !look);
        const uint64_t now = cede_clock_now_ns();
        const bool in_vain = a.silent_ns && now - a.silent_ns >= SILENT_NS;
        if (!again || in_vain || (r < 0 && now - a.began_ns >= BUSY_NS))
            return r == -EAGAIN || r == -EINPROGRESS ? -ENOTCONN : r;
        ask.flags = flags | (r == 0 || (look && r == -EINPROGRESS) ? LINK_LOOK : 0);
        asking_sleep(&a, UINT64_MAX);
    }
}

CEDE_API int cede_job_yield(struct cede *c, unsigned flags)
{
    LONG_CALL(IS(!(flags & ~(unsigned)(CEDE_YIELD_PAUSE | CEDE_YIELD_MEMORY)),
                 "flags is %#x: give CEDE_YIELD_PAUSE, CEDE_YIELD_MEMORY or 0", flags));
    return SAY(c ? job_yield(c, flags) : 0,
               {-ENOTCONN, "there is no daemon, or it does not answer: start ceded"},
               {-ENODEV,
                "it is in no job, or its job has nothing on a GPU: start it by `cede run`, "
                "and yield memory once it has some"},
               {-EBUSY, "the move found no room, as others moved or started: try again"},
               {-ENOMEM, "too little host memory for the job's GPU memory: free some"},
               {-ENOTSUP, "the job's GPU memory cannot be moved: leave CEDE_YIELD_MEMORY out"},
               {-ETIMEDOUT, "the job's work did not end within 10 s: end it first"});
}

static int job_acquire(struct cede *c, cede_timeout timeout_us)
{
    int r;
    struct asking a = {.c = c, .began_ns = cede_clock_now_ns(), .sleep_ns = LOOK_MIN_NS};
    const uint64_t end_ns = timeout_end(timeout_us, a.began_ns, CEDE_TIMEOUT_FOREVER);
    for (;;) {
        uint64_t left_us = saturating_sub(end_ns, cede_clock_now_ns()) / NSEC_PER_USEC;
        r = asking_ask(&a,
                       (struct link_ask){.op = LINK_ACQUIRE,
                                         .wait_us = (uint32_t)min_u64(left_us, ACQUIRE_WAIT_US)});
        /* Without a daemon nothing is withheld, and what is in no job has yielded nothing. */
        if (r == -ENOTCONN || r == -ESRCH || (r == 0 && !a.waits))
            return 0;
        if (r < 0 && r != -EAGAIN && r != -EINPROGRESS)
            return r;
        if (!left_us)
            return -ETIMEDOUT;
        asking_sleep(&a, left_us < ACQUIRE_WAIT_US ? left_us * NSEC_PER_USEC : UINT64_MAX);
    }
}

CEDE_API int cede_job_acquire(struct cede *c, cede_timeout timeout_us)
{
    LONG_CALL(TIMEOUT(timeout_us));
    return SAY(c ? job_acquire(c, timeout_us) : 0,
               {-EPERM, "an administrator made the job yield: ask for `cede acquire`"},
               {-ETIMEDOUT, "other jobs did not make room in time: wait longer"});
}
