/* Leads on NVIDIA GPUs. A kernel of one thread on a stream of its own polls two words in host
 * memory, and a kernel that does nothing (the tail) is queued behind it. While the tail is pending
 * the hardware keeps this program's channel group on the GPU and takes up at once what is queued on
 * its other streams, copies and graphs included. Without the tail the group leaves the GPU when the
 * lead ends, and a request that came meanwhile pays for two switches (H200, driver 580.159.04,
 * 2026-11-21). A lead ends with its request, keep_ns after the request's work was queued, or when
 * its time is up, whatever became of the program. */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/cancel_guard.h"
#include "libcede/clock.h"
#include "libcede/cuda.h"
#include "libcede/lead.h"
#include "libcede/pure/lead_plan.h"

#define SOON_NS     (60 * NSEC_PER_USEC)  /* to a launch: not worth waking the thread for */
#define MARGIN_NS   (100 * NSEC_PER_USEC) /* from the end of a lead's time until it is gone */
#define LATE_MAX_NS (500 * NSEC_PER_USEC) /* of the thread's oversleep is made up for */

struct lead {
    struct cuda cu;
    void *context, *module, *lead, *tail, *stream;
    volatile uint32_t *words; /* as cede_lead.ptx has them */
    uint64_t gpu_words;       /* their address there */
    uint64_t keep_ns;

    pthread_t thread;
    pthread_cond_t wake;
    pthread_mutex_t lock; /* what follows */
    bool stop, broken;
    uint32_t number, launched; /* of the lead planned last, and launched last */
    bool planned;              /* one is, and not launched yet */
    struct lead_plan plan;
    uint64_t oversleep_ns; /* how late the thread wakes up: the worst, fading by 1/16 a time */
    uint64_t launched_ns;
    uint64_t gone_ns;          /* the lead launched last is gone by then */
    unsigned waiting, running; /* requests without and with queued work that have not ended */
    struct lead_timing timing;
};

/* With the lock held: a launch takes 5 to 20 us. */
static void lead_launch(struct lead *l)
{
    void *current = NULL;
    uint64_t limit = l->plan.wait_ns, keep = l->keep_ns;
    void *params[] = {&l->gpu_words, &l->number, &limit, &keep};
    l->planned = false;
    /* One lead at a time: in a suspended program they would pile up until a launch blocks. Read
     * from memory, as asking the driver would break a graph capture in another thread. */
    if (l->words[2] != l->launched)
        return;
    if (l->cu.ctx_current(&current) || (current != l->context && l->cu.push(l->context))) {
        l->broken = true;
        return;
    }
    if (l->cu.launch(l->lead, 1, 1, 1, 1, 1, 1, 0, l->stream, params, NULL) ||
        l->cu.launch(l->tail, 1, 1, 1, 1, 1, 1, 0, l->stream, params, NULL))
        l->broken = true; /* the program has lost its context, or ends */
    l->launched = l->number;
    l->launched_ns = cede_clock_now_ns();
    l->gone_ns = l->launched_ns + limit + MARGIN_NS;
    if (current != l->context)
        l->cu.pop(&current);
}

/* Sleeps, wakes earlier by the oversleep seen before (virtual machines: up to 0.4 ms), then spins.
 * Called and left with the lock held. */
static void lead_wait(struct lead *l)
{
    uint64_t launch = l->plan.launch_ns, wake = launch - l->oversleep_ns;
    struct timespec t = cede_clock_timespec(wake);
    if (cede_clock_now_ns() < wake) {
        if (pthread_cond_timedwait(&l->wake, &l->lock, &t) == 0)
            return;
        uint64_t late = cede_clock_now_ns() - wake;
        l->oversleep_ns -= l->oversleep_ns / 16;
        l->oversleep_ns = min_u64(max_u64(late, l->oversleep_ns), LATE_MAX_NS);
    }
    pthread_mutex_unlock(&l->lock);
    while (cede_clock_now_ns() < launch)
        ;
    pthread_mutex_lock(&l->lock);
}

static void *lead_thread(void *arg)
{
    struct lead *l = arg;
    prctl(PR_SET_NAME, "cede-lead");
    prctl(PR_SET_TIMERSLACK, 1UL);
    HOLD(&l->lock);
    while (!l->stop) {
        if (!l->planned)
            pthread_cond_wait(&l->wake, &l->lock);
        else if (cede_clock_now_ns() < l->plan.launch_ns)
            lead_wait(l);
        else
            lead_launch(l);
    }
    return NULL;
}

uint32_t cede_lead_begin(struct lead *l, uint64_t now, uint64_t expected_ns)
{
    struct lead_plan p;
    uint32_t number = 0;
    WHOLE_CALL;
    HOLD(&l->lock);
    l->waiting++;
    /* While work runs or a lead is out, the GPU is with this program, or will be. */
    bool here = l->running || now < l->gone_ns;
    if (!l->broken && !here && cede_lead_plan(&l->timing, now, expected_ns, &p) &&
        (!l->planned || p.launch_ns < l->plan.launch_ns)) {
        l->number = l->number == UINT32_MAX ? 1 : l->number + 1; /* 0: none */
        number = l->number;
        l->plan = p;
        l->planned = true;
        if (p.launch_ns <= now + SOON_NS)
            lead_launch(l);
        else
            pthread_cond_signal(&l->wake);
    }
    return number;
}

uint64_t cede_lead_queued(struct lead *l, uint32_t number, uint64_t now, uint64_t expected_ns)
{
    uint64_t launched_ns = 0;
    HOLD(&l->lock);
    l->waiting -= l->waiting > 0;
    l->running++;
    cede_lead_learn(&l->timing, (int64_t)(now - expected_ns));
    if (number && number == l->number) {
        l->planned = false; /* too late for it */
        l->words[1] = number;
        launched_ns = number == l->launched ? l->launched_ns : 0;
    }
    return launched_ns;
}

void cede_lead_end(struct lead *l, uint32_t number, bool queued)
{
    HOLD(&l->lock);
    unsigned *count = queued ? &l->running : &l->waiting;
    *count -= *count > 0;
    if (number && number == l->number) {
        l->planned = false;
        if (!l->waiting) {
            l->words[0] = number;
            l->gone_ns = 0;
        }
    }
}

static void lead_free(struct lead *l)
{
    void *other;
    if (l->context && l->cu.push(l->context) == 0) {
        if (l->stream) {
            l->cu.stream_sync(l->stream);
            l->cu.stream_destroy(l->stream);
        }
        if (l->module)
            l->cu.module_unload(l->module);
        if (l->words)
            l->cu.host_free((void *)l->words);
        l->cu.pop(&other);
    }
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static bool lead_set_up(struct lead *l)
{
    int least = 0, greatest = 0;
    struct gpu_error why;
    return !l->cu.priorities(&least, &greatest) && !l->cu.module_load(&l->module, cede_lead_ptx) &&
           !l->cu.module_function(&l->lead, l->module, "cede_lead") &&
           !l->cu.module_function(&l->tail, l->module, "cede_tail") &&
           !l->cu.stream_create(&l->stream, CUDA_STREAM_NONBLOCKING, greatest) &&
           !cede_cuda_pinned(&l->cu, 3 * sizeof(uint32_t), (void **)&l->words, &l->gpu_words, &why);
}

int cede_lead_open(uint64_t keep_ns, struct lead **out)
{
    struct lead *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->keep_ns = keep_ns;
    cede_clock_cond_init(&l->wake);
    pthread_mutex_init(&l->lock, NULL);
    int r = cede_cuda_here(&l->cu, CUDA_LEADS, &l->context);
    if (!r && !lead_set_up(l))
        r = -EIO;
    if (!r)
        r = thread_start(&l->thread, lead_thread, l);
    if (r)
        lead_free(l);
    else
        *out = l;
    return r;
}

void cede_lead_close(struct lead *l, bool forked)
{
    if (forked) {
        free(l);
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    l->words[0] = l->number;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    lead_free(l);
}
