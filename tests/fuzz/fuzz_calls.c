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

static int checked(const char *name, int r)
{
    const char *text = cede_error_text();
    size_t n = strlen(name);
    require(r < 0 ? strncmp(text, name, n) == 0 && text[n] == ':' && text[n + 2] : !*text);
    return r;
}

#define CALL(f, ...) checked(#f, f(__VA_ARGS__))
#define SIZED(this)  OR_NULL(&(this)), below(4) ? sizeof(this) : number()

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
    (void)arg;
    require(CALL(cede_scope_join, s) == -EDEADLK && CALL(cede_scope_close, s) == -EDEADLK);
    return called();
}

static int graph_step(void *arg, void *stream, unsigned n)
{
    (void)arg, (void)stream, (void)n;
    return called();
}

static int in_step(void *loop, struct cede_step *s)
{
    (void)s;
    require(CALL(cede_step_close, *(struct cede_step_loop **)loop) == -EDEADLK);
    return called();
}

static void left(void *arg, void *user, int reason)
{
    (void)arg, (void)user, (void)reason;
    called();
}

static int launch(void *arg, uint64_t first, uint64_t count, void *stream)
{
    (void)arg, (void)first, (void)count, (void)stream;
    return below(4) ? 0 : called();
}

static int save(void *arg, uint64_t done)
{
    (void)arg, (void)done;
    return below(4) ? 0 : called();
}

static void pressure(void *arg, enum cede_pressure now)
{
    (void)arg, (void)now;
    called();
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* Writes a number over a setting, now and then. */
#define SPOIL(field)      (below(16) ? (void)0 : (void)((field) = (typeof(field))number()))
#define SPOIL_REAL(field) (below(16) ? (void)0 : (void)((field) = real()))

static void open_pool(void)
{
    struct cede_pool_config c;
    struct cede_pool *p;
    cede_pool_defaults(&c);
    c.flags = CEDE_POOL_NO_GPU;
    c.block_timeout_us = c.stream_timeout_us = 20;
    c.capacity = 8;
    c.cede = OR_NULL(at.c);
    SPOIL(c.size), SPOIL(c.devices), SPOIL(c.capacity), SPOIL(c.max_concurrent_streams);
    SPOIL(c.streams), SPOIL(c.age_us), SPOIL(c.urgent_us), SPOIL(c.displace);
    SPOIL(c.target_utilization_percent), SPOIL(c.utilization_polling_us);
    SPOIL_REAL(c.max_total_occupancy), SPOIL_REAL(c.max_slowdown), SPOIL_REAL(c.unknown_occupancy);
    SPOIL_REAL(c.memory_reserve_fraction);
    if (CALL(cede_pool_open, &c, &p) == 0) {
        struct cede_pool **old = &PICK(at.pools);
        cede_pool_close(*old); /* or was before */
        *old = p;
    }
}

static void open_memory(void)
{
    struct cede_memory_config c;
    struct cede_memory *m;
    cede_memory_defaults(&c);
    c.flags = CEDE_MEMORY_NO_GPU;
    c.block_timeout_us = 20;
    c.total_bytes = 1000;
    c.capacity = 4;
    c.on_pressure = OR_NULL(pressure);
    SPOIL(c.size), SPOIL(c.device), SPOIL(c.capacity), SPOIL(c.polling_us), SPOIL(c.total_bytes);
    SPOIL(c.reserve_bytes), SPOIL_REAL(c.reserve_fraction), SPOIL_REAL(c.high);
    SPOIL_REAL(c.critical);
    if (CALL(cede_memory_open, &c, &m) == 0) {
        struct cede_memory **old = &PICK(at.memories);
        cede_memory_close(*old);
        *old = m;
    }
}

static void open_queue(struct cede_queue **q)
{
    struct cede_queue_config c;
    cede_queue_defaults(&c);
    c.policy = (enum cede_queue_policy)below(5);
    c.capacity = 8;
    c.batch_wait_us = 10;
    c.admit = (int)below(2);
    c.pool = PICK(at.pools);
    c.cede = OR_NULL(at.c);
    SPOIL(c.size), SPOIL(c.k), SPOIL(c.devices), SPOIL(c.batches), SPOIL(c.capacity);
    SPOIL(c.urgent_us), SPOIL(c.batch_max), SPOIL(c.batch_wait_us), SPOIL(c.expected_us);
    SPOIL_REAL(c.quantile);
    CALL(cede_queue_open, &c, q);
}

static void open_graph(struct cede_graph **g)
{
    struct cede_graph_config c;
    unsigned buckets[3] = {1, number32(), number32()};
    cede_graph_defaults(&c);
    c.flags = CEDE_GRAPH_EAGER;
    c.buckets = OR_NULL(buckets);
    SPOIL(c.size), SPOIL(c.max_batch), SPOIL(c.warmups), SPOIL(c.max_graphs), SPOIL(c.max_bytes);
    c.nbuckets = below(4);
    CALL(cede_graph_open, &c, OR_NULL(graph_step), NULL, g);
}

static void open_map(struct cede_futures **f)
{
    struct cede_future_config c;
    cede_future_defaults(&c);
    c.flags = CEDE_FUTURE_NO_GPU;
    c.slots = 4;
    SPOIL(c.size), SPOIL(c.slots);
    CALL(cede_future_open, &c, f);
}

static void open_loop(struct cede_step_loop **l)
{
    struct cede_step_config c;
    cede_step_defaults(&c);
    c.flags = CEDE_STEP_NO_GPU;
    c.batch = c.requests = 2;
    c.arg = l;
    c.schedule = c.launch = c.finish = in_step;
    c.left = OR_NULL(left);
    c.futures = PICK(at.maps);
    c.scope = PICK(at.scopes);
    SPOIL(c.size), SPOIL(c.depth), SPOIL(c.batch), SPOIL(c.requests);
    CALL(cede_step_open, &c, l);
}

static void run_slices(void)
{
    struct cede_slice_config c;
    cede_slice_defaults(&c);
    c.flags = CEDE_SLICE_NO_GPU;
    c.count = 100;
    c.launch = launch;
    c.save = OR_NULL(save);
    c.scope = PICK(at.scopes);
    c.cede = OR_NULL(at.c);
    c.lease = OR_NULL(&PICK(at.leases));
    c.patience_us = 10;
    SPOIL(c.size), SPOIL(c.depth), SPOIL(c.target_us), SPOIL(c.count), SPOIL(c.multiple);
    SPOIL(c.checkpoint_us), SPOIL(c.timeout_us), SPOIL(at.progress.done), SPOIL(at.progress.saved);
    CALL(cede_slice_run, OR_NULL(&c), OR_NULL(&at.progress));
}

/* Loops before what they use; everything at the end of an input, and between calls one of two. */
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

static void act_on_client(unsigned n)
{
    cede_handle *c = OR_NULL(at.c);
    struct cede_request *request = OR_NULL(&PICK(at.requests));
    struct cede_statistics s;
    ACT(cede_set_class, c, (enum cede_class)number());
    ACT(cede_set_weight, c, number32());
    ACT(cede_set_deadline, c, number(), number());
    ACT(cede_set_laxity, c, number(), number());
    ACT(cede_set_priority, c, number(), (int)number());
    ACT(cede_request_begin, c, request, number(), number(), number());
    ACT(cede_request_queued, c, request);
    ACT(cede_request_end, c, request);
    ACT(cede_lead_cuda, c, number());
    ACT(cede_get_statistics, c, SIZED(s));
    ACT(cede_job_yield, c, number32());
    ACT(cede_job_acquire, c, timeout());
}

static void act_on_room(unsigned n)
{
    static const char *const names[] = {NULL, "", "conv", "gemm"};
    struct cede_pool *p = PICK(at.pools);
    struct cede_memory *m = PICK(at.memories);
    struct cede_queue **q = &PICK(at.queues);
    struct cede_lease *lease = OR_NULL(&PICK(at.leases));
    struct cede_reservation *room = OR_NULL(&PICK(at.rooms));
    struct cede_queue_batch *batch = OR_NULL(&PICK(at.batches));
    uint64_t *id = &PICK(at.ids);
    const int device = below(4) ? (int)below(3) - 1 : (int)number();
    const struct cede_shape sh = {number32(),    number32(), number32(),
                                  (int)number(), number(),   number()},
                            *shape = OR_NULL(&sh);
    const struct cede_range range = {number(), number(), number32()};
    const struct cede_queue_request r = {.model = number32(),
                                         .shape = below(3),
                                         .cls = (enum cede_class)(int)below(3),
                                         .deadline_us = number(),
                                         .device = device};
    struct cede_queue_ticket ticket = {0};
    union {
        struct cede_pool_statistics p;
        struct cede_memory_statistics m;
        struct cede_memory_user u;
        struct cede_queue_statistics q;
        char text[40];
        void *user;
    } o;
    DO(depth == 0, open_pool());
    DO(depth == 0, CALL(cede_pool_close, p));
    ACT(cede_pool_kernel, p, PICK(names), OR_NULL(&at));
    ACT(cede_pool_occupancy, p, PICK(names), real());
    ACT(cede_pool_get_statistics, p, device, SIZED(o.p));
    ACT(cede_acquire, p, device, PICK(names), shape, timeout(), lease);
    ACT(cede_try_acquire, p, device, PICK(names), shape, lease);
    ACT(cede_release, lease);
    DO(true, cede_lease_wanted(lease));
    DO(depth == 0, open_memory());
    DO(depth == 0, CALL(cede_memory_close, m));
    ACT(cede_memory_can_allocate, m, number());
    ACT(cede_memory_reserve, m, number(), timeout(), room);
    ACT(cede_memory_release, room);
    ACT(cede_memory_allocate, m, room, number(), timeout(), OR_NULL(id));
    ACT(cede_memory_free, m, *id);
    ACT(cede_memory_pressure, m);
    ACT(cede_memory_users, m, OR_NULL(&o.u), below(2));
    ACT(cede_memory_text, m, OR_NULL(o.text), below(sizeof(o.text) + 1));
    ACT(cede_memory_get_statistics, m, SIZED(o.m));
    DO(true, cede_memory_need(m, PICK(names), shape));
    ACT(cede_memory_acquire, m, p, PICK(names), shape, OR_NULL(&range), below(2), timeout(), lease,
        room);
    DO(!*q, open_queue(q));
    ACT(cede_queue_set_model, *q, number32(), number32(), number(), number());
    ACT(cede_queue_set_lease, *q, number32(), PICK(names), shape);
    ACT(cede_queue_submit, *q, OR_NULL(&r), &ticket);
    *id = ticket.id ? ticket.id : *id;
    ACT(cede_queue_next, *q, below(3), timeout(), batch);
    ACT(cede_queue_done, *q, batch, (int)below(2));
    ACT(cede_queue_cancel, *q, *id);
    ACT(cede_queue_reclaim, *q, OR_NULL(&o.user));
    ACT(cede_queue_get_statistics, *q, SIZED(o.q));
    DO(true, cede_queue_shutdown(*q));
}

static void act_on_work(unsigned n)
{
    struct cede_scope **s = &PICK(at.scopes);
    struct cede_graph **g = &PICK(at.graphs);
    struct cede_futures **f = &PICK(at.maps);
    struct cede_step_loop **l = &PICK(at.loops);
    uint64_t *id = &PICK(at.ids);
    int64_t *symbol = &PICK(at.symbols);
    const struct cede_future_array a = {(uintptr_t)OR_NULL(at.values), 0, below(6), 8};
    union {
        struct cede_graph_bucket b;
        struct cede_graph_statistics g;
        struct cede_future_statistics f;
        struct cede_step_statistics l;
        unsigned bucket;
    } o;
    DO(!*s, CALL(cede_scope_open, s, s == at.scopes ? NULL : at.scopes[0], 0, timeout()));
    ACT(cede_scope_fork, *s, OR_NULL(task), NULL);
    DO(depth == 0, CALL(cede_scope_join, *s));
    DO(true, cede_scope_cancel(*s));
    DO(!*g, open_graph(g));
    ACT(cede_graph_launch, *g, NULL, number32(), OR_NULL(&o.bucket));
    ACT(cede_graph_prepare, *g, NULL, number32());
    ACT(cede_graph_get_bucket, *g, number32(), SIZED(o.b));
    ACT(cede_graph_get_statistics, *g, SIZED(o.g));
    DO(!*f, open_map(f));
    ACT(cede_future_reserve, *f, number32(), OR_NULL(symbol));
    ACT(cede_future_release, *f, *symbol);
    ACT(cede_future_store, *f, NULL, OR_NULL(&a), *symbol);
    ACT(cede_future_store_placed, *f, NULL, &a);
    ACT(cede_future_place, *f, NULL, *symbol, number32());
    ACT(cede_future_resolve, *f, NULL, &a);
    ACT(cede_future_get_statistics, *f, SIZED(o.f));
    DO(!*l && depth == 0, open_loop(l));
    ACT(cede_step_join, *l, NULL, *s, timeout(), OR_NULL(id));
    ACT(cede_step_leave, *l, *id, (int)number());
    ACT(cede_step_add, *l, *id, OR_NULL(symbol));
    ACT(cede_step_once, *l);
    ACT(cede_step_get_statistics, *l, SIZED(o.l));
    DO(depth == 0, run_slices());
    DO(depth == 0, close_some(false));
}
enum { COUNT = __COUNTER__ - FIRST - 1 };

static void act(void)
{
    const unsigned n = below(COUNT);
    act_on_client(n);
    act_on_room(n);
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
