/* See gate.h. One connection a process (link.h), looked after by a background thread: it asks for
 * the daemon, sees its end, and reports the end of work that is not worth a message at once.
 *
 * One lock, never held while anything is waited for, nor while code that is not the gate's runs. It
 * is not taken around fork(): a child begins with everything as if it were new. */
#include "gate/gate.h"

#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cancel_guard.h"
#include "base/util.h"
#include "gate/clock.h"
#include "gate/link.h"

#define RETRY_MS 1000
#define CHECK_MS 5000 /* how often it is looked whether descriptors are still the gate's own */
#define POLL_NS  (50 * NSEC_PER_MSEC) /* how often a waiting thread looks for the daemon's end */
#define HUNG_NS  (5 * NSEC_PER_SEC)   /* a daemon whose beat has not moved for so long hangs */
#define STALL_NS (100 * NSEC_PER_MSEC)
/* The next command is submitted this long before the device runs dry: a thread's way out of sleep.
 */
#define LEAD_NS (200 * NSEC_PER_USEC)
#define SHORT_NS                                                                                   \
    (1000 * NSEC_PER_USEC) /* commands whose end is reported sooner than a clock wakes */
#define LINGER_MS       2
#define LINGER_LIMIT_NS (NSEC_PER_SEC / 2)   /* a job with a larger limit reports at once */
#define LOST_NS         (10 * NSEC_PER_SEC)  /* an end that is so late is not waited for */
#define LOST_HOST_NS    (20 * NSEC_PER_MSEC) /* the same while work may wait for the host */

/* What is under way on one device. */
struct in_flight {
    uint32_t queued, waiting;
    uint32_t ends; /* a futex: changes with each end of work */
    uint32_t sleepers;
    uint64_t queued_ns;
    uint64_t progress_ns; /* when work last ended, or began with an empty device */
    bool wants;           /* as it was reported to the daemon */
};

static struct gate {
    pthread_mutex_t lock;
    bool forks_seen, started;
    uint32_t attempts; /* a futex: changes with each attempt to find the daemon */
    bool hung;         /* the daemon was found hanging when its beat was hung_beat */
    uint32_t hung_beat;
    unsigned ndevices;
    struct gate_msg devices[GATE_DEVICES];
    struct in_flight v[GATE_DEVICES];
    int host_waits;
    uint32_t threshold; /* CEDE_GATE_THRESHOLD: that many commands instead of a time */
} g = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void futex_wait(const void *word, uint32_t value, uint64_t ns, bool shared)
{
    struct timespec t = {(time_t)(ns / NSEC_PER_SEC), (long)(ns % NSEC_PER_SEC)};
    syscall(SYS_futex, word, FUTEX_WAIT | (shared ? 0 : FUTEX_PRIVATE_FLAG), value, &t, NULL, 0);
}

static void futex_wake(const void *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
}

static struct stay gate_enter(void)
{
    struct stay s = stay_begin();
    pthread_mutex_lock(&g.lock);
    return s;
}

static void gate_leave(struct stay s)
{
    pthread_mutex_unlock(&g.lock);
    stay_end(&s);
}

/* Not below zero: flush() may have forked, and the child has begun at zero. */
static void decrement(uint32_t *n)
{
    *n -= *n > 0;
}

/* ---- demand, as it is reported --------------------------------------------------------------- */

/* Threads that wait look again. */
static void lose_daemon_locked(void)
{
    link_drop_locked();
    for (unsigned i = 0; i < GATE_DEVICES; i++) {
        g.v[i].wants = false;
        g.v[i].ends++;
        futex_wake(&g.v[i].ends);
    }
}

static void report_locked(unsigned i, bool wants)
{
    struct in_flight *f = &g.v[i];
    const struct gate_msg m = {.type = GATE_DEMAND, .device = i};
    if (f->wants == wants || !link_up_locked())
        return;
    if (!link_intact_locked()) {
        lose_daemon_locked();
        return;
    }
    f->wants = wants;
    atomic_store(&link_slot->device[i].wants, wants);
    link_send_locked(&m, 8);
    if (wants)
        link_wake_locked();
}

static bool reports_at_once(unsigned i)
{
    return gate_limit_ns((int)i) >= LINGER_LIMIT_NS;
}

/* After queued or waiting has changed. */
static void review_locked(unsigned i)
{
    const struct in_flight *f = &g.v[i];
    if (f->queued || f->waiting)
        report_locked(i, true);
    else if (reports_at_once(i))
        report_locked(i, false);
}

/* ---- the background thread ------------------------------------------------------------------- */

/* Demand that has ended without a report, and work that does not end: because it waits for the
 * host, or because its end is lost. Returns for how long nothing has to be reviewed, in ms; -1:
 * until woken.
 */
static int review_all_locked(void)
{
    uint64_t now = gate_now_ns();
    int next = -1;
    for (unsigned i = 0; i < g.ndevices; i++) {
        struct in_flight *f = &g.v[i];
        if (!f->wants)
            continue;
        bool idle = !f->queued && !f->waiting;
        uint64_t since = now - f->progress_ns;
        bool stalled = f->queued && since > (g.host_waits > 0 ? LOST_HOST_NS : LOST_NS);
        if (stalled && since > LOST_NS)
            f->queued_ns = f->queued = 0;
        if ((idle && since >= LINGER_MS * NSEC_PER_MSEC) || stalled) {
            report_locked(i, false);
            continue;
        }
        int ms = idle || g.host_waits > 0 || !reports_at_once(i) ? LINGER_MS : 1000;
        next = next < 0 || ms < next ? ms : next;
    }
    return next;
}

static void find_daemon(void)
{
    struct link_welcome w;
    bool there = link_ask(&w);
    pthread_mutex_lock(&g.lock);
    if (there && link_take_locked(&w)) {
        __atomic_store_n(&g.hung, false, __ATOMIC_RELAXED);
        for (unsigned i = 0; i < g.ndevices; i++)
            link_send_locked(&g.devices[i], sizeof(g.devices[i]));
    }
    g.attempts++;
    futex_wake(&g.attempts);
    pthread_mutex_unlock(&g.lock);
}

static void *gate_background(void *unused)
{
    pthread_setname_np(pthread_self(), "cede-gate");
    for (;;) {
        struct pollfd p[2];
        pthread_mutex_lock(&g.lock);
        bool up = link_up_locked();
        pthread_mutex_unlock(&g.lock);
        if (!up)
            find_daemon();
        pthread_mutex_lock(&g.lock);
        int ms = review_all_locked();
        if (!link_watch_locked(p) || !link_up_locked())
            ms = RETRY_MS;
        pthread_mutex_unlock(&g.lock);
        poll(p, 2, ms < 0 ? CHECK_MS : ms);
        pthread_mutex_lock(&g.lock);
        up = link_up_locked();
        link_look_locked(p);
        if (up && !link_up_locked())
            lose_daemon_locked();
        pthread_mutex_unlock(&g.lock);
    }
    return NULL;
}

/* The child has no such thread and must not write into its parent's slot: this connection does not
 * schedule it. APIs of accelerators do not outlive a fork; a child that begins anew is found again.
 */
static void gate_in_child(void)
{
    link_in_child();
    g.started = false;
    g.attempts = 0;
    g.ndevices = 0;
    g.host_waits = 0;
    memset(g.v, 0, sizeof(g.v));
    pthread_mutex_init(&g.lock, NULL);
}

static void gate_start_locked(void)
{
    pthread_t t;
    sigset_t all, old;
    if (g.started || !link_reserve())
        return;
    if (!g.forks_seen) {
        const char *n = secure_getenv("CEDE_GATE_THRESHOLD");
        g.threshold = n ? (uint32_t)strtoul(n, NULL, 10) : 0;
        g.forks_seen = pthread_atfork(NULL, NULL, gate_in_child) == 0;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old); /* the program's signals are not for that thread */
    g.started = g.forks_seen && pthread_create(&t, NULL, gate_background, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (g.started)
        pthread_detach(t);
}

int gate_device_add(const char *name, const char *id, unsigned level)
{
    int number = -1;
    struct gate_msg m = {.type = GATE_DEVICE, .level = level};
    strncpy(m.name, name, sizeof(m.name) - 1);
    strncpy(m.id, id, sizeof(m.id) - 1);
    struct stay stay = gate_enter();
    gate_start_locked();
    for (unsigned i = 0; i < g.ndevices && number < 0; i++) {
        if (strcmp(g.devices[i].name, m.name) == 0 && strcmp(g.devices[i].id, m.id) == 0)
            number = (int)i;
    }
    if (number < 0 && g.ndevices < GATE_DEVICES) {
        number = (int)g.ndevices++;
        m.device = (uint32_t)number;
        g.devices[number] = m;
        link_send_locked(&m, sizeof(m));
    }
    if (g.started && !g.attempts) { /* once: so that the first submission is scheduled too */
        pthread_mutex_unlock(&g.lock);
        futex_wait(&g.attempts, 0, LINK_CONNECT_MS * NSEC_PER_MSEC, false);
        pthread_mutex_lock(&g.lock);
    }
    gate_leave(stay);
    return number;
}

/* ---- submissions ----------------------------------------------------------------------------- */

bool gate_device_active(int device)
{
    return atomic_load_explicit(&gate_control()->device[device].state, memory_order_relaxed) != 0;
}

uint64_t gate_limit_ns(int device)
{
    uint32_t us =
        atomic_load_explicit(&gate_control()->device[device].limit_us, memory_order_relaxed);
    return us ? us * NSEC_PER_USEC : UINT64_MAX;
}

void gate_whole(int device)
{
    struct stay stay = gate_enter();
    atomic_store_explicit(&link_slot->device[device].whole, 1, memory_order_relaxed);
    gate_leave(stay);
}

/* Closed by a daemon that lives: one that hangs closes nothing. */
static bool device_closed(int device)
{
    uint32_t s = atomic_load_explicit(&gate_control()->device[device].state, memory_order_acquire);
    return s & GATE_CLOSED &&
           !(__atomic_load_n(&g.hung, __ATOMIC_RELAXED) &&
             atomic_load(&gate_control()->beat) == __atomic_load_n(&g.hung_beat, __ATOMIC_RELAXED));
}

/* Without the lock. The daemon's end is seen by the background thread, which opens the page. */
static void wait_open(int device)
{
    uint32_t beat = atomic_load(&gate_control()->beat);
    uint64_t alive = gate_now_ns();
    while (device_closed(device)) {
        uint32_t state = atomic_load(&gate_control()->device[device].state);
        if (state & GATE_CLOSED)
            futex_wait(&gate_control()->device[device].state, state, POLL_NS, true);
        uint32_t b = atomic_load(&gate_control()->beat);
        uint64_t now = gate_now_ns();
        if (b != beat)
            alive = now;
        beat = b;
        if (now - alive > HUNG_NS) {
            __atomic_store_n(&g.hung_beat, b, __ATOMIC_RELAXED);
            __atomic_store_n(&g.hung, true, __ATOMIC_RELAXED);
        }
    }
}

void gate_pass(int device)
{
    if (!device_closed(device))
        return;
    struct stay stay = gate_enter();
    g.v[device].waiting++;
    review_locked((unsigned)device);
    pthread_mutex_unlock(&g.lock);
    wait_open(device);
    pthread_mutex_lock(&g.lock);
    decrement(&g.v[device].waiting);
    review_locked((unsigned)device);
    gate_leave(stay);
}

/* What is queued, less what the running command has done: all of a short one, because its end is
 * reported sooner than a clock would wake a thread. */
static uint64_t left_locked(const struct in_flight *f, uint64_t now, bool *is_short)
{
    uint64_t each = f->queued ? f->queued_ns / f->queued : 0, done = now - f->progress_ns;
    *is_short = each < SHORT_NS;
    return f->queued_ns - (*is_short ? each : min_u64(done, each));
}

/* How long until this much more may be queued; 0: now. */
static uint64_t room_in_locked(const struct in_flight *f, int device, uint64_t est_ns, uint64_t now)
{
    bool is_short;
    if (!f->queued)
        return 0;
    if (g.threshold)
        return f->queued < g.threshold ? 0 : STALL_NS;
    uint64_t limit = gate_limit_ns(device), left = left_locked(f, now, &is_short);
    if (left <= LEAD_NS || (est_ns < limit && left <= limit - est_ns))
        return 0;
    return is_short ? STALL_NS : left - LEAD_NS;
}

/* Whether an end of work is worth waking the threads that wait for room: to do so each time would
 * take time from a device that is this processor. */
static bool worth_waking_locked(const struct in_flight *f, int device)
{
    bool is_short;
    uint64_t limit = gate_limit_ns(device), left = left_locked(f, f->progress_ns, &is_short);
    return g.threshold || !f->queued || (is_short && left <= max_u64(LEAD_NS, limit) / 2);
}

/* Until there is room, or work that is queued does not move. Leaves the lock meanwhile. */
static void wait_room_locked(int device, uint64_t est_ns, void (**flush)(void *), void *arg)
{
    struct in_flight *f = &g.v[device];
    uint64_t begun = gate_now_ns(), ns;
    uint32_t ends = f->ends;
    while ((ns = room_in_locked(f, device, est_ns, gate_now_ns())) > 0 && !device_closed(device)) {
        uint64_t now = gate_now_ns();
        if (f->ends != ends)
            begun = now;
        ends = f->ends;
        if (now - begun > max_u64(STALL_NS, 2 * f->queued_ns) || g.host_waits > 0)
            break;
        f->sleepers++;
        pthread_mutex_unlock(&g.lock);
        if (*flush)
            (*flush)(arg);
        *flush = NULL;
        futex_wait(&f->ends, ends, min_u64(ns, STALL_NS), false);
        pthread_mutex_lock(&g.lock);
        decrement(&f->sleepers);
    }
}

/* Until the device is open and has room. Leaves the lock meanwhile. */
static void wait_turn_locked(int device, uint64_t est_ns, void (*flush)(void *), void *arg)
{
    do {
        while (device_closed(device)) {
            pthread_mutex_unlock(&g.lock);
            if (flush)
                flush(arg);
            flush = NULL;
            wait_open(device);
            pthread_mutex_lock(&g.lock);
        }
        wait_room_locked(device, est_ns, &flush, arg);
    } while (device_closed(device));
}

bool gate_callback(int change)
{
    static __thread int callbacks;
    return (callbacks += change) > 0;
}

void gate_admit(int device, uint64_t est_ns, void (*flush)(void *), void *arg)
{
    struct in_flight *f = &g.v[device];
    struct stay stay = gate_enter();
    f->waiting++;
    review_locked((unsigned)device);
    if (!gate_callback(0))
        wait_turn_locked(device, est_ns, flush, arg);
    decrement(&f->waiting);
    if (!f->queued)
        f->progress_ns = gate_now_ns();
    f->queued++;
    f->queued_ns += est_ns;
    review_locked((unsigned)device);
    gate_leave(stay);
}

static void ended_locked(int device)
{
    atomic_fetch_add_explicit(&link_slot->device[device].ended, 1, memory_order_relaxed);
}

void gate_ended(int device)
{
    struct stay stay = gate_enter();
    ended_locked(device);
    gate_leave(stay);
}

void gate_done(int device, uint64_t est_ns, uint64_t ns)
{
    struct in_flight *f = &g.v[device];
    struct stay stay = gate_enter();
    if (f->queued) { /* else it was queued before a fork */
        f->queued--;
        f->queued_ns -= min_u64(est_ns, f->queued_ns);
    }
    f->progress_ns = gate_now_ns();
    f->ends++;
    atomic_fetch_add_explicit(&link_slot->device[device].busy_ns, ns, memory_order_relaxed);
    ended_locked(device);
    review_locked((unsigned)device);
    if (f->sleepers && worth_waking_locked(f, device))
        futex_wake(&f->ends);
    gate_leave(stay);
}

void gate_queued(int device, uint64_t ns)
{
    struct in_flight *f = &g.v[device];
    struct stay stay = gate_enter();
    if (ns < f->queued_ns || !f->queued)
        f->progress_ns = gate_now_ns();
    f->queued = ns > 0;
    f->queued_ns = ns;
    review_locked((unsigned)device);
    gate_leave(stay);
}

int gate_host_waits(int change)
{
    if (!change)
        return __atomic_load_n(&g.host_waits, __ATOMIC_RELAXED);
    struct stay stay = gate_enter();
    int n = __atomic_add_fetch(&g.host_waits, change, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < g.ndevices && change < 0; i++) {
        g.v[i].progress_ns = gate_now_ns();
        review_locked(i);
    }
    gate_leave(stay);
    return n;
}

void gate_pass_all(void)
{
    for (unsigned i = 0; i < __atomic_load_n(&g.ndevices, __ATOMIC_RELAXED); i++)
        gate_pass((int)i);
}
