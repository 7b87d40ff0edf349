/* The stand-in for libcuda, second part: memory, events, captures and graphs, with the rules of
 * stream capture as CUDA's reference has them. A kernel that is called graph_add adds to a word of
 * what is GPU memory here, at once. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fake_gpu.h"

enum { OK = 0, BAD_VALUE = 1, NO_MEMORY = 2, BAD_HANDLE = 400, ILLEGAL_STATE = 401 };
enum {
    UNSUPPORTED = 900,
    INVALIDATED,
    MERGE,
    UNMATCHED,
    UNJOINED,
    ISOLATION,
    IMPLICIT,
    CAPTURED_EVENT,
    WRONG_THREAD,
    UPDATE_FAILED = 910
};
enum { GLOBAL, THREAD_LOCAL, RELAXED };
enum { NODES_MAX = 1024, STREAMS_MAX = 8, CAPTURES_MAX = 16 };

struct node {
    const char *kernel; /* NULL: an allocation of a pool, or its end */
    uint32_t *word;
    uint32_t number;
};

struct graph {
    unsigned n;
    struct node nodes[NODES_MAX];
};

struct exec {
    struct graph graph;
    uint64_t bytes;
};

struct fake_capture {
    struct fake_stream *origin; /* NULL: the place is free */
    struct fake_stream *streams[STREAMS_MAX];
    bool unjoined[STREAMS_MAX];
    unsigned nstreams;
    uint64_t id;
    int mode;
    bool invalid;
    pthread_t thread;
    struct graph *graph;
};

struct event {
    bool recorded;
    uint64_t capture; /* that it was recorded in; 0: in none */
    struct fake_stream *stream;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_capture captures[CAPTURES_MAX];
static uint64_t capture_ids;
static _Thread_local int thread_mode;

static bool is_legacy(const void *stream)
{
    return (uintptr_t)stream <= 1;
}

static struct fake_capture *capture_of(const void *stream)
{
    return is_legacy(stream) ? NULL : ((const struct fake_stream *)stream)->capture;
}

static struct fake_capture *capture_by_id(uint64_t id)
{
    for (unsigned i = 0; i < CAPTURES_MAX; i++) {
        if (captures[i].origin && captures[i].id == id)
            return &captures[i];
    }
    return NULL;
}

static int unlocked(int r)
{
    pthread_mutex_unlock(&lock);
    return r;
}

/* OK, or why not, which makes the capture invalid. */
static int spoil(struct fake_capture *c, int r)
{
    if (!c)
        return OK;
    c->invalid = true;
    return r;
}

/* A call that is potentially unsafe, such as an allocation. */
static int unsafe_call(void)
{
    int r = OK;
    for (struct fake_capture *c = captures; c < captures + CAPTURES_MAX; c++) {
        bool own = c->origin && pthread_equal(c->thread, pthread_self());
        if (thread_mode != RELAXED &&
            ((own && c->mode != RELAXED) ||
             (c->origin && !own && c->mode == GLOBAL && thread_mode == GLOBAL)))
            r = spoil(c, UNSUPPORTED);
    }
    return r;
}

/* A call in the legacy stream, or one that waits for all streams. */
static int global_call(bool blocking_only, int why)
{
    int r = OK;
    for (struct fake_capture *c = captures; c < captures + CAPTURES_MAX; c++) {
        if (c->origin && (c->origin->blocking || !blocking_only))
            r = spoil(c, why);
    }
    return r;
}

static int legacy_call(void)
{
    return global_call(true, IMPLICIT);
}

/* ---- memory ---------------------------------------------------------------------------------- */

CALL(cuMemGetInfo_v2, unsigned long *available, size_t *all)
{
    *available = fake_cuda.free_bytes;
    *all = fake_cuda.free_bytes;
    return OK;
}

static int allocate(unsigned long long *p, size_t bytes)
{
    if (unsafe_call() != OK)
        return UNSUPPORTED;
    *p = (unsigned long long)(uintptr_t)calloc(1, bytes);
    fake_cuda.allocated++;
    return OK;
}

static int release(unsigned long long p)
{
    if (unsafe_call() != OK)
        return UNSUPPORTED;
    free((void *)(uintptr_t)p);
    fake_cuda.allocated--;
    return OK;
}

static int copy(void *to, const void *from, size_t bytes)
{
    if (legacy_call() != OK)
        return IMPLICIT;
    memcpy(to, from, bytes);
    return OK;
}

LOCKED(cuMemAlloc_v2, (unsigned long long *p, size_t bytes), allocate(p, bytes))
LOCKED(cuMemFree_v2, (unsigned long long p), release(p))
LOCKED(cuMemcpyHtoD_v2, (unsigned long long to, const void *from, size_t bytes),
       copy((void *)(uintptr_t)to, from, bytes))
LOCKED(cuMemcpyDtoH_v2, (void *to, unsigned long long from, size_t bytes),
       copy(to, (const void *)(uintptr_t)from, bytes))

/* 0, or what a capture of the stream makes of the call. */
static int add_node(void *stream, struct node node)
{
    struct fake_capture *c = capture_of(stream);
    if (c->invalid)
        return INVALIDATED;
    if (c->graph->n == NODES_MAX)
        return NO_MEMORY;
    c->graph->nodes[c->graph->n++] = node;
    for (unsigned i = 0; i < c->nstreams; i++)
        c->unjoined[i] |= c->streams[i] == stream;
    return OK;
}

static int pool_call(void *stream)
{
    return capture_of(stream) ? add_node(stream, (struct node){NULL, NULL, 0}) : OK;
}

LOCKED(cuMemAllocAsync, (unsigned long long *p, size_t bytes, void *stream), *p = 4096,
       pool_call(stream))
LOCKED(cuMemFreeAsync, (unsigned long long p, void *stream), pool_call(stream))

/* ---- streams and events ---------------------------------------------------------------------- */

LOCKED(cuCtxSynchronize, (void), global_call(false, UNSUPPORTED))

static int ask_stream(const void *stream)
{
    return is_legacy(stream) ? legacy_call() : spoil(capture_of(stream), UNSUPPORTED);
}

static int synchronize(const void *stream)
{
    int r = ask_stream(stream);
    if (r == OK) {
        fake_cuda.free_bytes += atomic_exchange(&fake_cuda.running_bytes, 0);
        fake_cuda.pool_bytes += atomic_exchange(&fake_cuda.running_pool_bytes, 0);
    }
    return r;
}

static int record(struct event *e, struct fake_stream *stream)
{
    const struct fake_capture *c = capture_of(stream);
    *e = (struct event){.recorded = true, .capture = c ? c->id : 0, .stream = stream};
    return c && c->invalid ? INVALIDATED : OK;
}

static int ask_event(const struct event *e)
{
    return spoil(e->capture ? capture_by_id(e->capture) : NULL, CAPTURED_EVENT);
}

LOCKED(cuStreamSynchronize, (void *stream), synchronize(stream))
LOCKED(cuStreamQuery, (void *stream), ask_stream(stream))
DOES(cuEventCreate, (void **event, unsigned flags), *event = calloc(1, sizeof(struct event)))
DOES(cuEventDestroy_v2, (void *event), free(event))
LOCKED(cuEventRecord, (void *e, void *stream), record(e, stream))
LOCKED(cuEventQuery, (const struct event *e), ask_event(e))
LOCKED(cuEventSynchronize, (const struct event *e), ask_event(e))

static int wait_event(struct fake_stream *s, const struct event *e)
{
    struct fake_capture *c = s->capture, *its = e->capture ? capture_by_id(e->capture) : NULL;
    if (!e->recorded)
        return OK;
    if (c && c->invalid)
        return INVALIDATED;
    if (c && c != its) {
        spoil(its, MERGE);
        return spoil(c, its ? MERGE : ISOLATION);
    }
    if (c) { /* what was done up to the event is joined */
        for (unsigned i = 0; i < c->nstreams; i++)
            c->unjoined[i] &= c->streams[i] != e->stream;
    } else if (its && its->nstreams < STREAMS_MAX) { /* the stream forks */
        s->capture = its;
        its->unjoined[its->nstreams] = true;
        its->streams[its->nstreams++] = s;
    }
    return OK;
}

LOCKED(cuStreamWaitEvent, (void *s, const struct event *e, unsigned flags), wait_event(s, e))

/* ---- captures -------------------------------------------------------------------------------- */

CALL(cuThreadExchangeStreamCaptureMode, int *mode)
{
    int was = thread_mode;
    thread_mode = *mode;
    *mode = was;
    return OK;
}

static int status_of(const struct fake_capture *c)
{
    return !c ? 0 : c->invalid ? 2 : 1;
}

static int begin_capture(struct fake_stream *s, int mode)
{
    unsigned i = 0;
    if (is_legacy(s))
        return UNSUPPORTED;
    while (i < CAPTURES_MAX && captures[i].origin)
        i++;
    if (s->capture || i == CAPTURES_MAX)
        return ILLEGAL_STATE;
    fake_cuda.begun++;
    captures[i] = (struct fake_capture){.origin = s,
                                        .id = ++capture_ids,
                                        .mode = mode,
                                        .thread = pthread_self(),
                                        .graph = calloc(1, sizeof(struct graph))};
    s->capture = &captures[i];
    return OK;
}

static int end_capture(struct fake_stream *s, void **graph)
{
    struct fake_capture *c = capture_of(s);
    *graph = NULL;
    if (!c)
        return ILLEGAL_STATE;
    if (c->origin != s)
        return UNMATCHED;
    if (c->mode != RELAXED && !pthread_equal(c->thread, pthread_self()))
        return WRONG_THREAD;
    int r = c->invalid ? INVALIDATED : OK;
    for (unsigned i = 0; i < c->nstreams; i++) {
        r = r == OK && c->unjoined[i] ? UNJOINED : r;
        c->streams[i]->capture = NULL;
    }
    if (r == OK) {
        *graph = c->graph;
        fake_cuda.graphs++;
    } else {
        free(c->graph);
    }
    s->capture = NULL;
    c->origin = NULL;
    return r;
}

LOCKED(cuStreamIsCapturing, (void *stream, int *status), *status = status_of(capture_of(stream)),
       OK)
LOCKED(cuStreamBeginCapture_v2, (void *s, int mode), begin_capture(s, mode))
LOCKED(cuStreamEndCapture, (void *s, void **graph), end_capture(s, graph))

/* ---- graphs ---------------------------------------------------------------------------------- */

DOES(cuGraphGetNodes, (const struct graph *g, void **nodes, size_t *n), *n = g->n)

CALL(cuGraphDestroy, void *g)
{
    fake_cuda.graphs--;
    free(g);
    return OK;
}

static int instantiate(struct exec **out, const struct graph *g)
{
    uint64_t bytes = g->n * fake_cuda.node_bytes;
    if (unsafe_call() != OK)
        return UNSUPPORTED;
    if (fake_cuda.fail_instantiate)
        return fake_cuda.fail_instantiate;
    if (bytes > fake_cuda.free_bytes)
        return NO_MEMORY;
    *out = malloc(sizeof(**out));
    **out = (struct exec){.graph = *g, .bytes = bytes};
    fake_cuda.free_bytes -= bytes;
    fake_cuda.execs++;
    fake_cuda.instantiated++;
    return OK;
}

LOCKED(cuGraphInstantiateWithFlags, (void *out, const struct graph *g, unsigned long long flags),
       instantiate(out, g))

CALL(cuDeviceGraphMemTrim, int device)
{
    fake_cuda.bad += device != 40;
    fake_cuda.free_bytes += atomic_exchange(&fake_cuda.pool_bytes, 0);
    return OK;
}

CALL(cuGraphExecDestroy, struct exec *e)
{
    bool pool = false;
    for (unsigned i = 0; i < e->graph.n; i++)
        pool |= !e->graph.nodes[i].kernel;
    *(fake_cuda.busy && pool ? &fake_cuda.running_pool_bytes
      : fake_cuda.busy       ? &fake_cuda.running_bytes
      : pool                 ? &fake_cuda.pool_bytes
                             : &fake_cuda.free_bytes) += e->bytes;
    fake_cuda.execs--;
    free(e);
    return OK;
}

CALL(cuGraphUpload, struct exec *e, void *stream)
{
    fake_cuda.uploads++;
    return fake_cuda.fail_upload;
}

CALL(cuGraphExecUpdate_v2, struct exec *e, const struct graph *g, int *result)
{
    bool same = e->graph.n == g->n && !fake_cuda.fail_update;
    for (unsigned i = 0; same && i < g->n; i++)
        same = e->graph.nodes[i].kernel == g->nodes[i].kernel && g->nodes[i].kernel;
    *result = !same;
    if (!same)
        return UPDATE_FAILED;
    e->graph = *g;
    return OK;
}

static void run_node(const struct node *n)
{
    if (n->kernel && fake_graph_run)
        fake_graph_run(n->word, n->number);
    else if (n->kernel)
        *n->word += n->number;
}

CALL(cuGraphLaunch, struct exec *e, void *stream)
{
    if (fake_cuda.fail_graph_launch)
        return fake_cuda.fail_graph_launch;
    fake_cuda.graph_launches++;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < e->graph.n; i++)
        run_node(&e->graph.nodes[i]);
    return unlocked(OK);
}

/* The first launch of a kernel may have to load it, which is unsafe in a capture. */
static int launch_add(void *f, void *stream, void **params)
{
    struct node node = {f, (uint32_t *)(uintptr_t) * (unsigned long long *)params[0],
                        *(uint32_t *)params[1]};
    if (fake_cuda.lazy && unsafe_call() != OK)
        return UNSUPPORTED;
    fake_cuda.lazy = 0;
    if (is_legacy(stream) && legacy_call() != OK)
        return IMPLICIT;
    if (capture_of(stream))
        return add_node(stream, node);
    fake_cuda.added++;
    run_node(&node);
    return OK;
}

int fake_graph_launch(void *f, void *stream, void **params)
{
    if (!fake_graph_run && strncmp(f, "graph_add", 9) != 0)
        return -1;
    pthread_mutex_lock(&lock);
    return unlocked(launch_add(f, stream, params));
}
