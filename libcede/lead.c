/* Leads on NVIDIA GPUs. A kernel of one thread on a stream of our own polls two words in host
 * memory, and a kernel that does nothing is queued behind it: with that one pending the hardware
 * keeps this program's channel group on the GPU, and takes up at once what is queued on its other
 * streams, copies, graphs and all (H200, driver 580.159.04, 2026-11-21; without it the group is
 * taken off when the lead ends, and a request that came meanwhile pays two switches). A lead ends
 * when its request has ended, keep_ns after it was queued, or when its time is up, whatever became
 * of the program. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "lib/symbols.h"
#include "libcede/clock.h"
#include "libcede/lead.h"

#define US_NS       1000U
#define SOON_NS     (60U * US_NS)  /* not worth waking the thread for */
#define MARGIN_NS   (100U * US_NS) /* from a lead's time being up to its being gone */
#define LATE_MAX_NS (500U * US_NS) /* of a thread's waking up that is made up for */

typedef int cu_result;
typedef struct cu_ctx *cu_context;
typedef struct cu_mod *cu_module;
typedef struct cu_func *cu_function;
typedef struct cu_str *cu_stream;
typedef unsigned long long cu_pointer;

enum {
    CU_NOT_READY = 600,
    CU_STREAM_NON_BLOCKING = 1,
    CU_HOST_PORTABLE = 1,
    CU_HOST_DEVICEMAP = 2
};

#define CALLS(X)                                                                                   \
    X(ctx_current, "cuCtxGetCurrent", (cu_context *))                                              \
    X(ctx_push, "cuCtxPushCurrent_v2", (cu_context))                                               \
    X(ctx_pop, "cuCtxPopCurrent_v2", (cu_context *))                                               \
    X(priorities, "cuCtxGetStreamPriorityRange", (int *least, int *greatest))                      \
    X(module_load, "cuModuleLoadData", (cu_module *, const void *image))                           \
    X(module_unload, "cuModuleUnload", (cu_module))                                                \
    X(module_function, "cuModuleGetFunction", (cu_function *, cu_module, const char *))            \
    X(stream_create, "cuStreamCreateWithPriority", (cu_stream *, unsigned flags, int priority))    \
    X(stream_sync, "cuStreamSynchronize", (cu_stream))                                             \
    X(stream_destroy, "cuStreamDestroy_v2", (cu_stream))                                           \
    X(host_alloc, "cuMemHostAlloc", (void **, size_t bytes, unsigned flags))                       \
    X(host_pointer, "cuMemHostGetDevicePointer_v2", (cu_pointer *, void *, unsigned flags))        \
    X(host_free, "cuMemFreeHost", (void *))                                                        \
    X(launch, "cuLaunchKernel",                                                                    \
      (cu_function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,  \
       unsigned shared_bytes, cu_stream, void **params, void **extra))

/* words: numbers of the last request that ended, that was queued, and of the last lead that is
 * gone. limit, keep: ns. */
#define LEAD_PTX                                                                                   \
    ".version 6.0\n"                                                                               \
    ".target sm_52\n"                                                                              \
    ".address_size 64\n"                                                                           \
    ".visible .entry cede_lead(.param .u64 p_words, .param .u32 p_number,\n"                       \
    "                          .param .u64 p_limit, .param .u64 p_keep)\n"                         \
    "{\n"                                                                                          \
    "    .reg .pred %p, %q;\n"                                                                     \
    "    .reg .b32 %number, %ended, %queued, %d;\n"                                                \
    "    .reg .b64 %words, %limit, %keep, %start, %t;\n"                                           \
    "    mov.u64 %start, %globaltimer;\n"                                                          \
    "    ld.param.u64 %words, [p_words];\n"                                                        \
    "    ld.param.u32 %number, [p_number];\n"                                                      \
    "    ld.param.u64 %limit, [p_limit];\n"                                                        \
    "    ld.param.u64 %keep, [p_keep];\n"                                                          \
    "    cvta.to.global.u64 %words, %words;\n"                                                     \
    "    setp.ne.u64 %q, %words, %words;\n" /* not seen queued yet */                              \
    "look:\n"                                                                                      \
    "    ld.volatile.global.v2.u32 {%ended, %queued}, [%words];\n"                                 \
    "    sub.s32 %d, %ended, %number;\n"                                                           \
    "    setp.ge.s32 %p, %d, 0;\n"                                                                 \
    "    @%p bra done;\n"                                                                          \
    "    mov.u64 %t, %globaltimer;\n"                                                              \
    "    sub.u64 %t, %t, %start;\n"                                                                \
    "    setp.ge.u64 %p, %t, %limit;\n"                                                            \
    "    @%p bra done;\n"                                                                          \
    "    @%q bra look;\n"                                                                          \
    "    sub.s32 %d, %queued, %number;\n"                                                          \
    "    setp.ge.s32 %q, %d, 0;\n"                                                                 \
    "    @!%q bra look;\n"                                                                         \
    "    add.u64 %limit, %t, %keep;\n"                                                             \
    "    bra look;\n"                                                                              \
    "done:\n"                                                                                      \
    "    ret;\n"                                                                                   \
    "}\n"                                                                                          \
    ".visible .entry cede_tail(.param .u64 p_words, .param .u32 p_number)\n"                       \
    "{\n"                                                                                          \
    "    .reg .b32 %number;\n"                                                                     \
    "    .reg .b64 %words;\n"                                                                      \
    "    ld.param.u64 %words, [p_words];\n"                                                        \
    "    ld.param.u32 %number, [p_number];\n"                                                      \
    "    cvta.to.global.u64 %words, %words;\n"                                                     \
    "    st.volatile.global.u32 [%words+8], %number;\n"                                            \
    "    ret;\n"                                                                                   \
    "}\n"

struct lead {
    struct {
#define X(field, symbol, args) cu_result(*field) args;
        CALLS(X)
#undef X
    } cu;
    cu_context context;
    cu_module module;
    cu_function lead, tail;
    cu_stream stream;
    volatile uint32_t *words; /* numbers: ended, queued, gone */
    cu_pointer gpu_words;
    uint64_t keep_ns;

    pthread_t thread;
    pthread_cond_t wake;
    pthread_mutex_t lock; /* what follows */
    bool stop, broken;
    uint32_t number, launched; /* of the last lead planned, and launched */
    bool planned;              /* and not launched yet */
    struct lead_plan plan;
    uint64_t late_ns;          /* how late the thread wakes up, about the worst of late */
    uint64_t out_until_ns;     /* the last one launched is gone by then */
    unsigned waiting, running; /* requests that began, were queued; and have not ended */
    struct lead_timing timing;
};

/* With the lock held: a launch takes 5 to 20 us. */
static void launch(struct lead *l)
{
    cu_context current = NULL;
    uint64_t limit = l->plan.hold_ns, keep = l->keep_ns;
    void *params[] = {&l->gpu_words, &l->number, &limit, &keep};
    l->planned = false;
    /* One at a time: of a program that is suspended they would pile up until a launch waits. Seen
     * in memory, since a call that asks would break a graph's capture in another thread. */
    if (l->words[2] != l->launched)
        return;
    if (l->cu.ctx_current(&current) || (current != l->context && l->cu.ctx_push(l->context))) {
        l->broken = true;
        return;
    }
    if (l->cu.launch(l->lead, 1, 1, 1, 1, 1, 1, 0, l->stream, params, NULL) ||
        l->cu.launch(l->tail, 1, 1, 1, 1, 1, 1, 0, l->stream, params, NULL))
        l->broken = true; /* the program has lost its context, or ends */
    l->launched = l->number;
    l->out_until_ns = cede_client_now_ns() + limit + MARGIN_NS;
    if (current != l->context)
        l->cu.ctx_pop(&current);
}

/* Sleeps, so much shorter as its wake-ups are late (virtual machines: up to 0.4 ms), and spins.
 * Called and left with the lock held. */
static void wait_until_planned(struct lead *l)
{
    uint64_t launch = l->plan.launch_ns, wake = launch - l->late_ns;
    struct timespec t = cede_timespec(wake);
    if (cede_client_now_ns() < wake) {
        if (pthread_cond_timedwait(&l->wake, &l->lock, &t) == 0)
            return;
        uint64_t late = cede_client_now_ns() - wake;
        l->late_ns -= l->late_ns / 16;
        l->late_ns = late > l->late_ns ? late : l->late_ns;
        l->late_ns = l->late_ns < LATE_MAX_NS ? l->late_ns : LATE_MAX_NS;
    }
    pthread_mutex_unlock(&l->lock);
    while (cede_client_now_ns() < launch)
        ;
    pthread_mutex_lock(&l->lock);
}

static void *launch_in_time(void *arg)
{
    struct lead *l = arg;
    prctl(PR_SET_NAME, "cede-lead");
    prctl(PR_SET_TIMERSLACK, 1UL);
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (!l->planned)
            pthread_cond_wait(&l->wake, &l->lock);
        else if (cede_client_now_ns() < l->plan.launch_ns)
            wait_until_planned(l);
        else
            launch(l);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

uint32_t cede_lead_begin(struct lead *l, uint64_t now, uint64_t expected_ns)
{
    struct lead_plan p;
    uint32_t number = 0;
    pthread_mutex_lock(&l->lock);
    l->waiting++;
    /* With work running or a lead out the GPU is here, or will be. */
    bool here = l->running || now < l->out_until_ns;
    if (!l->broken && !here && cede_lead_plan(&l->timing, now, expected_ns, &p) &&
        (!l->planned || p.launch_ns < l->plan.launch_ns)) {
        l->number = l->number == UINT32_MAX ? 1 : l->number + 1; /* 0: none */
        number = l->number;
        l->plan = p;
        l->planned = true;
        if (p.launch_ns <= now + SOON_NS)
            launch(l);
        else
            pthread_cond_signal(&l->wake);
    }
    pthread_mutex_unlock(&l->lock);
    return number;
}

void cede_lead_queued(struct lead *l, uint32_t number, uint64_t now, uint64_t expected_ns)
{
    pthread_mutex_lock(&l->lock);
    l->waiting -= l->waiting > 0;
    l->running++;
    cede_lead_learn(&l->timing, (int64_t)(now - expected_ns));
    if (number && number == l->number) {
        l->planned = false; /* too late for it */
        l->words[1] = number;
    }
    pthread_mutex_unlock(&l->lock);
}

void cede_lead_end(struct lead *l, uint32_t number, bool queued)
{
    pthread_mutex_lock(&l->lock);
    unsigned *count = queued ? &l->running : &l->waiting;
    *count -= *count > 0;
    if (number && number == l->number) {
        l->planned = false;
        if (!l->waiting) {
            l->words[0] = number;
            l->out_until_ns = 0;
        }
    }
    pthread_mutex_unlock(&l->lock);
}

static int load_calls(struct lead *l)
{
    static const struct symbol calls[] = {
#define X(field, symbol, args) {symbol, offsetof(struct lead, cu.field)},
        CALLS(X)
#undef X
    };
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); /* the program has it, or no CUDA */
    return lib && !symbols_find(lib, calls, sizeof(calls) / sizeof(*calls), l) ? 0 : -ENOSYS;
}

static void take_down(struct lead *l)
{
    cu_context other;
    if (l->context && l->cu.ctx_push(l->context) == 0) {
        if (l->stream) {
            l->cu.stream_sync(l->stream);
            l->cu.stream_destroy(l->stream);
        }
        if (l->module)
            l->cu.module_unload(l->module);
        if (l->words)
            l->cu.host_free((void *)l->words);
        l->cu.ctx_pop(&other);
    }
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static bool set_up(struct lead *l)
{
    int least = 0, greatest = 0;
    void *words = NULL;
    if (l->cu.priorities(&least, &greatest) || l->cu.module_load(&l->module, LEAD_PTX) ||
        l->cu.module_function(&l->lead, l->module, "cede_lead") ||
        l->cu.module_function(&l->tail, l->module, "cede_tail") ||
        l->cu.stream_create(&l->stream, CU_STREAM_NON_BLOCKING, greatest) ||
        l->cu.host_alloc(&words, 3 * sizeof(uint32_t), CU_HOST_PORTABLE | CU_HOST_DEVICEMAP))
        return false;
    l->words = words;
    l->words[0] = l->words[1] = l->words[2] = 0;
    return l->cu.host_pointer(&l->gpu_words, words, 0) == 0;
}

static int start_thread(struct lead *l)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = pthread_create(&l->thread, NULL, launch_in_time, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -r;
}

int cede_lead_open(uint64_t keep_ns, struct lead **out)
{
    struct lead *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->keep_ns = keep_ns;
    cede_cond_init(&l->wake);
    pthread_mutex_init(&l->lock, NULL);
    int r = load_calls(l);
    if (!r && (l->cu.ctx_current(&l->context) || !l->context))
        r = -ENOSYS;
    if (!r && !set_up(l))
        r = -EIO;
    if (!r)
        r = start_thread(l);
    if (r)
        take_down(l);
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
    take_down(l);
}
