/* Fuzz target for sequences of calls of libcede, without a GPU, in one thread: bytes decide which
 * call comes next, with which handles (open, closed, NULL) and numbers (none, all, usual).
 * Functions of the program make calls, too. A call that fails leaves a text with its name; one that
 * succeeds leaves none. Left out is what the headers rule out: handles whose memory was freed, and
 * closing one that is in use. */
#include <errno.h>
#include <limits.h>
#include <math.h>

#include "cede/graph.h"
#include "cede/memory.h"
#include "cede/queue.h"
#include "cede/scope.h"
#include "cede/slice.h"
#include "cede/step.h"
#include "fuzz.h"

#define DEPTH_MAX 3 /* of calls within calls */

static const uint8_t *input, *input_end;
static unsigned depth;

static struct {
    cede_handle *c;
    struct cede_pool *pools[3]; /* may be closed */
    struct cede_memory *memories[2];
    struct cede_queue *queues[2]; /* these, if closed, are NULL */
    struct cede_scope *scopes[2];
    struct cede_graph *graphs[2];
    struct cede_futures *maps[2];
    struct cede_step_loop *loops[2];
    struct cede_lease leases[4];
    struct cede_reservation rooms[4];
    struct cede_queue_batch batches[2];
    struct cede_request requests[2];
    struct cede_slice_progress progress;
    uint64_t ids[4]; /* tickets, and requests of loops */
    int64_t symbols[2], values[8];
} at;

static unsigned below(unsigned n)
{
    return input < input_end ? *input++ % n : 0;
}

/* One of a table; and NULL, now and then. */
#define PICK(table)   ((table)[below(sizeof(table) / sizeof(*(table)))])
#define OR_NULL(this) (below(8) ? (this) : NULL)

static uint64_t number(void)
{
    static const uint64_t all[] = {0,         1,          2,         3,       100,
                                   1000,      65536,      0x20001,   INT_MAX, UINT_MAX,
                                   INT64_MAX, 1ULL << 63, UINT64_MAX};
    return PICK(all);
}

static unsigned number32(void)
{
    return (unsigned)number();
}

static double real(void)
{
    static const double all[] = {0, 0.1, 0.9, 1, 2, 64, -1, 1e300, INFINITY, NAN};
    return PICK(all);
}

/* None that waits long. */
static cede_timeout timeout(void)
{
    static const cede_timeout all[] = {0, 1, 50, -1, INT64_MIN + 1};
    return PICK(all);
}

static cede_timeout deadline(void)
{
    return below(4) ? CEDE_TIMEOUT_FOREVER : timeout();
}

static int checked(const char *name, int r)
{
    const char *text = cede_error_text();
    size_t n = strlen(name);
    require(r < 0 ? strncmp(text, name, n) == 0 && text[n] == ':' && text[n + 2] : !*text);
    return r;
}

#define CALL(f, ...) checked(#f, f(__VA_ARGS__))
#define SIZED(type)  (void *)OR_NULL(out), below(4) ? sizeof(type) : number()

/* ---- the program's functions ----------------------------------------------------------------- */

static void act(void);

static int called(void)
{
    static const int all[] = {0,       0,          0,     1,       -1,     -EDEADLK,
                              -EAGAIN, -ECANCELED, -5000, INT_MIN, INT_MAX};
    if (depth < DEPTH_MAX) {
        depth++;
        for (unsigned n = below(3); n; n--)
            act();
        depth--;
    }
    return PICK(all);
}

static int task(struct cede_scope *s, void *arg)
{
    require(CALL(cede_scope_join, s) == -EDEADLK && CALL(cede_scope_close, s) == -EDEADLK);
    return called();
}

static int graph_step(void *arg, void *stream, unsigned n)
{
    return called();
}

static int in_step(void *loop, struct cede_step *s)
{
    require(CALL(cede_step_close, *(struct cede_step_loop **)loop) == -EDEADLK);
    return called();
}

static void left(void *arg, void *user, int reason)
{
    called();
}

static int launch(void *arg, uint64_t first, uint64_t count, void *stream)
{
    return below(4) ? 0 : called();
}

static int save(void *arg, uint64_t done)
{
    return below(4) ? 0 : called();
}

static void pressure(void *arg, enum cede_pressure now)
{
    called();
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* Writes numbers over settings, now and then. Pointers are set after it. */
static void spoil(void *config, size_t size)
{
    while (below(4) == 3) {
        const double v = real();
        const uint64_t n = number();
        memcpy((char *)config + below((unsigned)size / 8) * 8, below(2) ? &n : (const void *)&v, 8);
    }
}

static void open_pool(void)
{
    struct cede_pool_config c;
    struct cede_pool *p, **old = &PICK(at.pools);
    cede_pool_defaults(&c);
    c.capacity = 8;
    c.max_concurrent_streams = c.displace = 1;
    spoil(&c, sizeof(c));
    c.flags = CEDE_POOL_NO_GPU;
    c.block_timeout_us = c.stream_timeout_us = 20;
    c.client = OR_NULL(at.c);
    if (CALL(cede_pool_open, &c, &p) == 0) {
        cede_pool_close(*old); /* or it was before */
        *old = p;
    }
}

static void open_memory(void)
{
    struct cede_memory_config c;
    struct cede_memory *m, **old = &PICK(at.memories);
    cede_memory_defaults(&c);
    c.total_bytes = 111; /* 100 fit */
    c.capacity = 4;
    spoil(&c, sizeof(c));
    c.flags = CEDE_MEMORY_NO_GPU;
    c.block_timeout_us = 20;
    c.on_pressure = OR_NULL(pressure);
    c.client = OR_NULL(at.c);
    if (CALL(cede_memory_open, &c, &m) == 0) {
        cede_memory_close(*old);
        *old = m;
    }
}

static void open_queue(struct cede_queue **q)
{
    struct cede_queue_config c;
    struct cede_memory *const memory[64] = {PICK(at.memories)};
    cede_queue_defaults(&c);
    c.policy = (enum cede_queue_policy)below(5);
    c.capacity = 8;
    c.batch_wait_us = 10;
    spoil(&c, sizeof(c));
    c.pool = PICK(at.pools);
    c.client = OR_NULL(at.c);
    c.memory = OR_NULL(memory);
    CALL(cede_queue_open, &c, q);
}

static void open_graph(struct cede_graph **g)
{
    struct cede_graph_config c;
    const unsigned buckets[CEDE_GRAPH_BUCKETS_MAX] = {1, number32(), number32()};
    cede_graph_defaults(&c);
    spoil(&c, sizeof(c));
    c.flags = CEDE_GRAPH_EAGER;
    c.buckets = OR_NULL(buckets);
    CALL(cede_graph_open, &c, OR_NULL(graph_step), NULL, g);
}

static void open_map(struct cede_futures **f)
{
    struct cede_future_config c;
    cede_future_defaults(&c);
    c.slots = 4;
    spoil(&c, sizeof(c));
    c.flags = CEDE_FUTURE_NO_GPU;
    CALL(cede_future_open, &c, f);
}

static void open_loop(struct cede_step_loop **l)
{
    struct cede_step_config c;
    cede_step_defaults(&c);
    c.batch = c.requests = 2;
    spoil(&c, sizeof(c));
    c.flags = CEDE_STEP_NO_GPU;
    c.arg = l;
    c.schedule = c.launch = c.finish = in_step;
    c.left = OR_NULL(left);
    c.futures = PICK(at.maps);
    c.scope = PICK(at.scopes);
    c.stream = NULL;
    c.queue = NULL; /* it would wait there for ever */
    c.joined = NULL;
    CALL(cede_step_open, &c, l);
}

static void run_slices(void)
{
    struct cede_slice_config c;
    cede_slice_defaults(&c);
    c.count = 100;
    spoil(&c, sizeof(c));
    c.flags = CEDE_SLICE_NO_GPU;
    c.patience_us = 10;
    c.launch = launch;
    c.save = OR_NULL(save);
    c.scope = PICK(at.scopes);
    c.client = OR_NULL(at.c);
    c.lease = OR_NULL(&PICK(at.leases));
    at.progress.done = number();
    CALL(cede_slice_run, OR_NULL(&c), OR_NULL(&at.progress));
    at.progress = (struct cede_slice_progress){0};
}

/* Loops before what they use; at the end of an input everything. */
static void close_some(bool all)
{
    for (int i = 1; i >= 0; i--) {
        if (!all && below(2))
            continue;
        CALL(cede_step_close, at.loops[i]);
        cede_queue_close(at.queues[i]);
        cede_graph_close(at.graphs[i]);
        at.loops[i] = NULL, at.queues[i] = NULL, at.graphs[i] = NULL;
    }
    for (int i = 1; i >= 0 && !at.loops[0] && !at.loops[1]; i--) {
        cede_future_close(at.maps[i]);
        cede_scope_close(at.scopes[i]);
        at.maps[i] = NULL, at.scopes[i] = NULL;
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

enum { FIRST = __COUNTER__ };
#define ACT(f, ...)                                                                                \
    if (n == __COUNTER__ - FIRST - 1)                                                              \
    checked(#f, f(__VA_ARGS__))
#define DO(condition, what)                                                                        \
    if (n == __COUNTER__ - FIRST - 1 && (condition))                                               \
    what

#define C      OR_NULL(at.c)
#define P      PICK(at.pools)
#define M      PICK(at.memories)
#define KERNEL PICK(names)
#define DEVICE (below(4) ? (int)below(3) - 1 : (int)number())
#define LEASE  OR_NULL(&PICK(at.leases))
#define ROOM   OR_NULL(&PICK(at.rooms))
#define BATCH  OR_NULL(&PICK(at.batches))
#define REPORT OR_NULL(&PICK(at.requests))
#define ID     PICK(at.ids)
#define SYMBOL PICK(at.symbols)
#define ARRAY  OR_NULL(&array)

static const char *const names[] = {NULL, "", "conv", "gemm"};
static char out[512]; /* more than any struct of statistics */

static const struct cede_shape *shape(void)
{
    static struct cede_shape s;
    s = (struct cede_shape){number32(), number32(), number32(), (int)number(), number(), number()};
    return OR_NULL(&s);
}

static void act_on_resources(unsigned n)
{
    const struct cede_range range = {number(), number(), number32()};
    ACT(cede_set_class, C, (enum cede_class)number());
    ACT(cede_set_weight, C, number32());
    ACT(cede_set_deadline, C, number(), number());
    ACT(cede_set_laxity, C, number(), number());
    ACT(cede_set_priority, C, number(), (int)number());
    ACT(cede_request_begin, C, REPORT, number(), number(), number());
    ACT(cede_request_queued, C, REPORT);
    ACT(cede_request_end, C, REPORT);
    ACT(cede_lead_cuda, C, number());
    ACT(cede_get_statistics, C, SIZED(struct cede_statistics));
    ACT(cede_job_yield, C, number32());
    ACT(cede_job_acquire, C, timeout());
    DO(depth == 0, open_pool());
    DO(depth == 0, CALL(cede_pool_close, P));
    ACT(cede_pool_kernel, P, KERNEL, OR_NULL(&at));
    ACT(cede_pool_occupancy, P, KERNEL, real());
    ACT(cede_pool_profile, P, KERNEL, shape(), SIZED(struct cede_profile));
    ACT(cede_pool_get_statistics, P, DEVICE, SIZED(struct cede_pool_statistics));
    ACT(cede_acquire, P, DEVICE, KERNEL, shape(), timeout(), LEASE);
    ACT(cede_release, LEASE);
    DO(true, cede_lease_wanted(LEASE));
    DO(depth == 0, open_memory());
    DO(depth == 0, CALL(cede_memory_close, M));
    ACT(cede_memory_can_allocate, M, number());
    ACT(cede_memory_reserve, M, number(), timeout(), ROOM);
    ACT(cede_memory_release, ROOM);
    ACT(cede_memory_allocate, M, ROOM, number(), timeout(), OR_NULL(&ID));
    ACT(cede_memory_free, M, ID);
    ACT(cede_memory_pressure, M);
    ACT(cede_memory_users, M, (void *)OR_NULL(out), below(2));
    ACT(cede_memory_text, M, OR_NULL(out), below(40));
    ACT(cede_memory_get_statistics, M, SIZED(struct cede_memory_statistics));
    DO(true, cede_memory_need(M, KERNEL, shape()));
    ACT(cede_memory_acquire, M, P, KERNEL, shape(), OR_NULL(&range), below(2), timeout(), LEASE,
        ROOM);
}

static void act_on_work(unsigned n)
{
    struct cede_queue **q = &PICK(at.queues);
    struct cede_scope **s = &PICK(at.scopes);
    struct cede_graph **g = &PICK(at.graphs);
    struct cede_futures **f = &PICK(at.maps);
    struct cede_step_loop **l = &PICK(at.loops);
    const struct cede_future_array array = {(uintptr_t)at.values, 0, below(6), 8};
    const struct cede_queue_request r = {
        .model = number32(), .deadline_us = number(), .device = below(4) ? 0 : (int)number()};
    struct cede_queue_ticket ticket = {0};
    DO(!*q, open_queue(q));
    ACT(cede_queue_set_model, *q, number32(), number32(), number(), number());
    ACT(cede_queue_set_lease, *q, number32(), KERNEL, shape());
    ACT(cede_queue_submit, *q, OR_NULL(&r), &ticket);
    if (ticket.id)
        ID = ticket.id;
    ACT(cede_queue_next, *q, below(3), timeout(), BATCH);
    ACT(cede_queue_done, *q, BATCH, (int)below(2));
    ACT(cede_queue_cancel, *q, ID);
    ACT(cede_queue_reclaim, *q, (void *)OR_NULL(out));
    ACT(cede_queue_get_statistics, *q, SIZED(struct cede_queue_statistics));
    DO(true, cede_queue_shutdown(*q));
    DO(!*s, CALL(cede_scope_open, s, s == at.scopes ? NULL : at.scopes[0], 0, deadline()));
    ACT(cede_scope_fork, *s, OR_NULL(task), NULL);
    DO(depth == 0, CALL(cede_scope_join, *s));
    DO(true, cede_scope_cancel(*s));
    DO(!*g, open_graph(g));
    ACT(cede_graph_launch, *g, NULL, number32(), (void *)OR_NULL(out));
    ACT(cede_graph_prepare, *g, NULL, number32());
    ACT(cede_graph_get_bucket, *g, number32(), SIZED(struct cede_graph_bucket));
    ACT(cede_graph_get_statistics, *g, SIZED(struct cede_graph_statistics));
    DO(!*f, open_map(f));
    ACT(cede_future_reserve, *f, number32(), OR_NULL(&SYMBOL));
    ACT(cede_future_release, *f, SYMBOL);
    ACT(cede_future_store, *f, NULL, ARRAY, SYMBOL);
    ACT(cede_future_store_placed, *f, NULL, &array);
    ACT(cede_future_place, *f, NULL, SYMBOL, number32());
    ACT(cede_future_resolve, *f, NULL, &array);
    ACT(cede_future_get_statistics, *f, SIZED(struct cede_future_statistics));
    DO(!*l && depth == 0, open_loop(l));
    ACT(cede_step_join, *l, NULL, *s, deadline(), OR_NULL(&ID));
    ACT(cede_step_leave, *l, ID, (int)number());
    ACT(cede_step_add, *l, ID, OR_NULL(&SYMBOL));
    ACT(cede_step_once, *l);
    ACT(cede_step_get_statistics, *l, SIZED(struct cede_step_statistics));
    DO(depth == 0, run_slices());
    DO(depth == 0, close_some(false));
}
enum { COUNT = __COUNTER__ - FIRST - 1 };

static void act(void)
{
    const unsigned n = below(COUNT);
    act_on_resources(n);
    act_on_work(n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memset(&at, 0, sizeof(at));
    setenv("CEDE_DIR", "/tmp/cede-fuzz-nowhere", 1);
    require(cede_connect(&at.c) == 0);
    for (input = data, input_end = data + size; input < input_end;)
        act();
    close_some(true);
    for (int i = 0; i < 3; i++)
        cede_pool_close(at.pools[i]);
    for (int i = 0; i < 2; i++)
        cede_memory_close(at.memories[i]);
    cede_close(at.c);
    return 0;
}
