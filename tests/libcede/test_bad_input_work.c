/* As test_bad_input.c: queues, scopes, graphs, maps, loops, slices and checkpoints. */
#include "bad_input.h"
#include "cede/graph.h"
#include "cede/queue.h"
#include "cede/scope.h"
#include "cede/slice.h"
#include "cede/step.h"

/* ---- queues ---------------------------------------------------------------------------------- */

TEST(settings_of_queues)
{
    typedef struct cede_queue_config config;
    struct cede_queue_config c;
    struct cede_queue *q;
    struct cede_pool *p = open_one();
    NO_TEXT(cede_queue_defaults, &c);
    ROW(-EINVAL, cede_queue_open, NULL, NULL);
    REFUSED(c, ROW(-EINVAL, cede_queue_open, &bad, &q), BAD(size, 0),
            BAD(policy, (enum cede_queue_policy)99, (enum cede_queue_policy) - 1), BAD(k, 0),
            BAD(devices, 0, UINT_MAX), BAD(batches, UINT_MAX), BAD(capacity, 0, UINT_MAX),
            BAD(admit, 2, -1), BAD(urgent_us, UINT64_MAX), BAD(quantile, 0, 1, NAN),
            BAD(batch_max, 0, UINT_MAX), BAD(batch_wait_us, UINT64_MAX),
            BAD(expected_us, 0, UINT64_MAX), BAD(pool, (void *)&c));
    c.pool = p;
    REFUSED(c, ROW(-EINVAL, cede_queue_open, &bad, &q), BAD(devices, 2));
    ROW(0, cede_pool_close, p);
    REFUSED(c, ROW(-EINVAL, cede_queue_open, &bad, &q), BAD(devices, 1));
}

TEST(queues)
{
    struct cede_pool *p = open_one();
    struct cede_queue_config c;
    struct cede_queue *q, *alone;
    struct cede_queue_request r = {.user = &c};
    struct cede_queue_ticket t;
    const struct cede_shape most = {UINT_MAX, UINT_MAX, UINT_MAX, INT_MAX, UINT64_MAX, UINT64_MAX};
    cede_queue_defaults(&c);
    c.capacity = c.batch_max = 1;
    ROW(0, cede_queue_open, &c, &alone);
    c.pool = p;
    ROW(0, cede_queue_open, &c, &q);
    ROWS(cede_queue_set_model, (-EINVAL, NULL, 0, 1, 1, 1),
         (-EINVAL, q, CEDE_QUEUE_MODELS, 1, 1, 1), (-EINVAL, q, 0, 0, 1, 1),
         (-EINVAL, q, 0, UINT_MAX, 1, 1), (-EINVAL, q, 0, 1, UINT64_MAX, 1),
         (-EINVAL, q, 0, 1, 1, 0));
    ROWS(cede_queue_set_lease, (-EINVAL, NULL, 0, NULL, NULL), (-EINVAL, q, UINT_MAX, NULL, NULL),
         (-EINVAL, alone, 0, NULL, NULL), (-ENOENT, q, 0, "k", NULL), (0, q, 0, NULL, &most));
    ROWS(cede_queue_submit, (-EINVAL, NULL, &r, &t), (-EINVAL, q, NULL, &t));
    r.cls = (enum cede_class)INT_MAX;
    ROW(-EINVAL, cede_queue_submit, q, &r, &t);
    r.cls = CEDE_NORMAL;
    for (const int *d = (int[]){1, -2, CEDE_PREFER_DEVICE(1), CEDE_PREFER_DEVICE(0x20000),
                                CEDE_PREFER_DEVICE(-2), INT_MIN, INT_MAX, 0};
         *d; d++) {
        r.device = *d;
        ROW(-EINVAL, cede_queue_submit, q, &r, &t);
        assert_non_null(strstr(cede_error_text(), ": give 0, or -1 for any"));
    }
    cede_queue_close(q);
    cede_queue_close(alone);
    ROW(0, cede_pool_close, p);
}

TEST(batches)
{
    struct cede_pool *p = open_one();
    struct cede_queue_config c;
    struct cede_queue *q;
    struct cede_queue_request r = {.model = UINT32_MAX,
                                   .shape = UINT64_MAX,
                                   .after_us = UINT64_MAX,
                                   .deadline_us = UINT64_MAX};
    struct cede_queue_ticket t;
    struct cede_queue_batch b = {0}, other = {.id = UINT64_MAX, .device = INT_MIN};
    struct cede_queue_statistics s;
    void *user;
    cede_queue_defaults(&c);
    c.capacity = c.batch_max = 1;
    c.pool = p;
    ROW(0, cede_queue_open, &c, &q);
    ROWS(cede_queue_next, (-EINVAL, NULL, 0, 0, &b), (-EINVAL, q, 1, 0, &b),
         (-EINVAL, q, INT_MIN, 0, &b), (-EINVAL, q, 0, -1, &b), (-EINVAL, q, 0, 0, NULL),
         (-EAGAIN, q, 0, 0, &b), (-ETIMEDOUT, q, 0, 1, &b));
    ROWS(cede_queue_done, (-EINVAL, NULL, &b, 0), (-EINVAL, q, NULL, 0), (-ENOENT, q, &b, 0),
         (-ENOENT, q, &other, INT_MIN));
    ROWS(cede_queue_cancel, (-EINVAL, NULL, 1), (-ENOENT, q, 0), (-ENOENT, q, UINT64_MAX));
    ROWS(cede_queue_submit, (0, q, &r, &t), (-EBUSY, q, &r, NULL));
    ROW(0, cede_queue_next, q, 0, CEDE_TIMEOUT_FOREVER, &b);
    other = b;
    other.id++;
    assert_int_equal(b.ticket[0], t.id);
    ROW(-EBUSY, cede_queue_cancel, q, t.id);
    ROWS(cede_queue_done, (-ENOENT, q, &other, 0), (0, q, &b, 0), (-ENOENT, q, &b, 0));
    const uint64_t first = t.id;
    ROW(-ENOENT, cede_queue_cancel, q, first);
    ROW(0, cede_queue_submit, q, &r, &t);
    assert_true(t.id != first); /* in the same place */
    ROWS(cede_queue_cancel, (0, q, t.id), (-ENOENT, q, t.id));
    ROWS(cede_queue_reclaim, (-EINVAL, NULL, &user), (-EINVAL, q, NULL), (-EBUSY, q, &user));
    SIZES(cede_queue_get_statistics, &s, q);
    ROW(-EINVAL, cede_queue_get_statistics, NULL, &s, sizeof(s));
    ROW(0, cede_queue_submit, q, &r, &t);
    ROW(0, cede_pool_close, p);
    ROW(-ESHUTDOWN, cede_queue_next, q, 0, CEDE_TIMEOUT_FOREVER, &b);
    ROW(-ESHUTDOWN, cede_queue_set_lease, q, 0, NULL, NULL);
    NO_TEXT(cede_queue_shutdown, NULL);
    cede_queue_shutdown(q);
    ROW(-ESHUTDOWN, cede_queue_next, q, 0, CEDE_TIMEOUT_FOREVER, &b);
    ROW(-ESHUTDOWN, cede_queue_submit, q, &r, NULL);
    ROWS(cede_queue_reclaim, (0, q, &user), (-ENOENT, q, &user));
    assert_non_null(NO_TEXT(cede_queue_text, (enum cede_queue_answer)INT_MIN));
    NO_TEXT(cede_queue_close, NULL);
    cede_queue_close(q);
}

/* ---- scopes ---------------------------------------------------------------------------------- */

static struct cede_pool *scope_pool;

static int fails_with_a_text(struct cede_scope *s, void *arg)
{
    struct cede_lease l;
    ROW(-EDEADLK, cede_scope_join, s);
    ROW(-EDEADLK, cede_scope_close, s);
    return cede_acquire(scope_pool, 99, NULL, NULL, 0, &l);
}

static int succeeds(struct cede_scope *s, void *arg)
{
    return 0;
}

TEST(scopes)
{
    struct cede_scope *s;
    scope_pool = open_one();
    ROWS(cede_scope_open, (-EINVAL, NULL, NULL, 0, 0), (-EINVAL, &s, NULL, 0, -1),
         (-EINVAL, &s, NULL, CEDE_SCOPE_THREADS_MAX + 1, 1), (-EINVAL, &s, NULL, UINT_MAX, 1));
    assert_null(s);
    ROW(0, cede_scope_open, &s, NULL, 0, CEDE_TIMEOUT_FOREVER);
    ROWS(cede_scope_fork, (-EINVAL, NULL, succeeds, NULL), (-EINVAL, s, NULL, NULL),
         (0, s, fails_with_a_text, NULL));
    ROW(-EINVAL, cede_scope_join, s);
    assert_non_null(
        strstr(cede_error_text(), "a task failed: cede_acquire: the pool has no device"));
    ROW(-EINVAL, cede_scope_close, s);
    ROW(0, cede_scope_open, &s, NULL, 0, CEDE_TIMEOUT_FOREVER);
    ROW(0, cede_scope_join, s);
    ROW(-EBUSY, cede_scope_fork, s, succeeds, NULL);
    ROW(0, cede_scope_close, s);
    ROW(0, cede_scope_open, &s, NULL, 0, 0); /* its deadline has passed */
    ROW(-ECANCELED, cede_scope_fork, s, succeeds, NULL);
    ROW(-ETIMEDOUT, cede_scope_close, s);
    ROW(0, cede_scope_open, &s, NULL, 0, CEDE_TIMEOUT_DEFAULT);
    NO_TEXT(cede_scope_cancel, s);
    ROW(-ECANCELED, cede_scope_fork, s, succeeds, NULL);
    ROW(-ECANCELED, cede_scope_join, s);
    ROW(-ECANCELED, cede_scope_close, s);
    ROW(0, cede_scope_join, NULL);
    ROW(0, cede_scope_close, NULL);
    assert_int_equal(NO_TEXT(cede_scope_cancelled, NULL), 0);
    cede_scope_cancel(NULL);
    ROW(0, cede_pool_close, scope_pool);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static int graph_result;

static int graph_step(void *cache, void *stream, unsigned n)
{
    if (cache) {
        ROW(-EBUSY, cede_graph_launch, *(struct cede_graph **)cache, NULL, 1, NULL);
        ROW(-EBUSY, cede_graph_prepare, *(struct cede_graph **)cache, NULL, 1);
    }
    return graph_result;
}

TEST(graphs)
{
    typedef struct cede_graph_config config;
    struct cede_graph_config c;
    struct cede_graph *g;
    struct cede_graph_bucket b;
    struct cede_graph_statistics s;
    NO_TEXT(cede_graph_defaults, &c);
    ROW(-ENOSYS, cede_graph_open, &c, graph_step, NULL, &g);
    c.flags = CEDE_GRAPH_EAGER;
    ROWS(cede_graph_open, (-EINVAL, &c, graph_step, NULL, NULL), (-EINVAL, &c, NULL, NULL, &g));
    REFUSED(c, ROW(-EINVAL, cede_graph_open, &bad, graph_step, NULL, &g), BAD(size, 8),
            BAD(flags, UINT_MAX), BAD(max_batch, 0, UINT_MAX), BAD(nbuckets, 3, UINT_MAX),
            BAD(warmups, UINT_MAX));
    assert_null(g);
    ROW(0, cede_graph_open, &c, graph_step, &g, &g);
    ROWS(cede_graph_launch, (-EINVAL, NULL, NULL, 1, NULL), (-EINVAL, g, NULL, 0, NULL),
         (0, g, NULL, UINT_MAX, NULL));
    graph_result = -ENOSPC;
    ROW(-ENOSPC, cede_graph_launch, g, NULL, 1, NULL);
    for (const int *r = (int[]){INT_MAX, INT_MIN, -EBUSY, -EAGAIN, 0}; *r; r++) {
        graph_result = *r;
        ROW(-EIO, cede_graph_launch, g, NULL, 1, NULL);
    }
    graph_result = INT_MAX;
    ROWS(cede_graph_prepare, (-EINVAL, NULL, NULL, 1), (-EINVAL, g, NULL, UINT_MAX),
         (0, g, NULL, 0));
    ROWS(cede_graph_get_bucket, (-EINVAL, NULL, 1, &b, sizeof(b)), (-EINVAL, g, 0, &b, sizeof(b)),
         (-EINVAL, g, UINT_MAX, &b, sizeof(b)));
    SIZES(cede_graph_get_bucket, &b, g, 1);
    ROW(-EINVAL, cede_graph_get_statistics, NULL, &s, sizeof(s));
    SIZES(cede_graph_get_statistics, &s, g);
    assert_non_null(NO_TEXT(cede_graph_text, (enum cede_graph_reason)INT_MIN));
    NO_TEXT(cede_graph_changed, NULL);
    NO_TEXT(cede_graph_close, NULL);
    cede_graph_close(g);
}

/* ---- maps ------------------------------------------------------------------------------------ */

static struct cede_futures *open_map(unsigned slots)
{
    return OPEN(future, .flags = CEDE_FUTURE_NO_GPU, .slots = slots);
}

TEST(maps)
{
    typedef struct cede_future_config config;
    struct cede_future_config c;
    struct cede_futures *f;
    struct cede_future_statistics s;
    int64_t symbol, values[4] = {0};
    const struct cede_future_array a = {.address = (uintptr_t)values, .n = 4, .bytes = 8};
    struct cede_future_array wrong[] = {a, a, a, a, a};
    wrong[0].address = wrong[1].n = wrong[2].bytes = 0;
    wrong[3].bytes = UINT_MAX;
    wrong[4].n = 5;
    NO_TEXT(cede_future_defaults, &c);
    ROWS(cede_future_open, (-ENOSYS, &c, &f), (-EINVAL, &c, NULL));
    REFUSED(c, ROW(-EINVAL, cede_future_open, &bad, &f), BAD(size, 0), BAD(flags, UINT_MAX),
            BAD(slots, 0, 3, UINT_MAX, 1U << 31));
    cede_future_close(open_map(CEDE_FUTURE_SLOTS_MAX));
    f = open_map(4);
    ROWS(cede_future_reserve, (-EINVAL, NULL, 1, &symbol), (-EINVAL, f, 0, &symbol),
         (-EINVAL, f, 5, &symbol), (-EINVAL, f, UINT_MAX, &symbol), (-EINVAL, f, 1, NULL),
         (0, f, 4, &symbol), (-EAGAIN, f, 1, &(int64_t){0}));
    ROWS(cede_future_release, (-EINVAL, NULL, symbol), (-ENOENT, f, 0), (-ENOENT, f, INT64_MIN),
         (-ENOENT, f, symbol - 1));
    ROWS(cede_future_store, (-EINVAL, NULL, NULL, &a, symbol), (-EINVAL, f, NULL, NULL, symbol),
         (-EINVAL, f, NULL, &a, 0), (-EINVAL, f, NULL, &a, INT64_MIN));
    ROWS(cede_future_store_placed, (-EINVAL, NULL, NULL, &a), (-EINVAL, f, NULL, NULL));
    ROWS(cede_future_resolve, (-EINVAL, NULL, NULL, &a), (-EINVAL, f, NULL, NULL));
    for (unsigned i = 0; i < 5; i++)
        ROW(-EINVAL, cede_future_store, f, NULL, &wrong[i], symbol);
    for (unsigned i = 0; i < 4; i++) {
        ROW(-EINVAL, cede_future_store_placed, f, NULL, &wrong[i]);
        ROW(-EINVAL, cede_future_resolve, f, NULL, &wrong[i]);
    }
    ROWS(cede_future_place, (-EINVAL, NULL, NULL, symbol, 1), (-EINVAL, f, NULL, 0, 1),
         (-EINVAL, f, NULL, symbol, UINT_MAX));
    ROW(-EINVAL, cede_future_get_statistics, NULL, &s, sizeof(s));
    SIZES(cede_future_get_statistics, &s, f);
    assert_string_equal(s.error, "");
    NO_TEXT(cede_future_close, NULL);
    cede_future_close(f);
}

/* ---- loops ----------------------------------------------------------------------------------- */

static struct cede_step_loop *loop;
static uint64_t joined;
static int schedule_result;

static int in_schedule(void *arg, struct cede_step *step)
{
    ROWS(cede_step_add, (-ENOENT, loop, UINT64_MAX, NULL), (0, loop, joined, NULL),
         (-EALREADY, loop, joined, NULL));
    ROW(-EDEADLK, cede_step_once, loop);
    ROW(-EDEADLK, cede_step_run, loop);
    ROW(-EDEADLK, cede_step_close, loop);
    return schedule_result;
}

static int in_step(void *arg, struct cede_step *step)
{
    return 0;
}

static void in_joined(void *arg, const struct cede_queue_batch *taken, uint64_t id)
{
}

TEST(loops)
{
    typedef struct cede_step_config config;
    struct cede_step_config c;
    struct cede_step_statistics s;
    struct cede_futures *f = open_map(4);
    struct cede_pool *p = open_one();
    struct cede_queue *q = OPEN(queue, .devices = 1), *with_leases = OPEN(queue, .pool = p);
    uint64_t id;
    NO_TEXT(cede_step_defaults, &c);
    ROW(-EINVAL, cede_step_open, NULL, &loop);
    c.schedule = in_schedule;
    c.launch = c.finish = in_step;
    ROW(-ENOSYS, cede_step_open, &c, &loop);
    c.batch = 4;
    c.futures = f;
    REFUSED(c, ROW(-EINVAL, cede_step_open, &bad, &loop), BAD(flags, 0)); /* the map has no GPU */
    c.flags = CEDE_STEP_NO_GPU;
    ROW(-EINVAL, cede_step_open, &c, NULL);
    REFUSED(c, ROW(-EINVAL, cede_step_open, &bad, &loop), BAD(size, 0), BAD(flags, UINT_MAX),
            BAD(depth, 0, UINT_MAX), BAD(batch, 0, 5, UINT_MAX), BAD(requests, 0, UINT_MAX),
            BAD(schedule, NULL), BAD(launch, NULL), BAD(finish, NULL), BAD(device, 1, -1),
            BAD(queue, q));
    c.joined = in_joined;
    c.queue = q;
    REFUSED(c, ROW(-EINVAL, cede_step_open, &bad, &loop), BAD(device, 1), BAD(joined, NULL),
            BAD(queue, NULL, with_leases));
    c.queue = NULL;
    c.joined = NULL;
    c.requests = 1;
    ROW(0, cede_step_open, &c, &loop);
    ROWS(cede_step_join, (-EINVAL, NULL, NULL, NULL, 0, &id), (-EINVAL, loop, NULL, NULL, -1, &id),
         (-EINVAL, loop, NULL, NULL, 0, NULL), (0, loop, NULL, NULL, CEDE_TIMEOUT_FOREVER, &joined),
         (-ENOSPC, loop, NULL, NULL, CEDE_TIMEOUT_FOREVER, &id));
    ROWS(cede_step_leave, (-EINVAL, NULL, joined, 0), (-ENOENT, loop, UINT64_MAX, INT_MIN));
    ROWS(cede_step_add, (-EINVAL, NULL, joined, NULL), (-EPERM, loop, joined, NULL));
    ROW(-EINVAL, cede_step_once, NULL);
    ROW(-EINVAL, cede_step_run, NULL);
    schedule_result = -ENXIO;
    ROW(-ENXIO, cede_step_once, loop);
    ROW(-ENXIO, cede_step_run, loop);
    schedule_result = -ECANCELED; /* as if its scope had ended */
    ROW(-EIO, cede_step_once, loop);
    schedule_result = 0;
    ROW(0, cede_step_once, loop);
    ROW(-EINVAL, cede_step_get_statistics, NULL, &s, sizeof(s));
    SIZES(cede_step_get_statistics, &s, loop);
    assert_string_equal(s.error, "");
    ROWS(cede_step_close, (0, NULL), (0, loop));
    cede_queue_close(q);
    cede_queue_close(with_leases);
    ROW(0, cede_pool_close, p);
    cede_future_close(f);
}

/* ---- slices and checkpoints ------------------------------------------------------------------ */

static int launch(void *arg, uint64_t first, uint64_t count, void *stream)
{
    return arg ? -ENOSPC : 0;
}

static int save(void *arg, uint64_t done)
{
    return -ENOSPC;
}

TEST(slices)
{
    typedef struct cede_slice_config config;
    struct cede_slice_config c;
    struct cede_slice_progress p = {0};
    NO_TEXT(cede_slice_defaults, &c);
    c.launch = launch;
    c.count = 100;
    ROWS(cede_slice_run, (-EINVAL, NULL, &p), (-EINVAL, &c, NULL), (-ENOSYS, &c, &p));
    c.flags = CEDE_SLICE_NO_GPU;
    REFUSED(c, ROW(-EINVAL, cede_slice_run, &bad, &p), BAD(size, 8), BAD(launch, NULL),
            BAD(flags, 3, UINT_MAX, CEDE_SLICE_OPENCL), BAD(depth, 0, UINT_MAX),
            BAD(target_us, 0, UINT64_MAX), BAD(count, 0), BAD(multiple, 0), BAD(timeout_us, -1),
            BAD(patience_us, INT64_MIN + 1));
    REFUSED(c, ROW(-ENOSPC, cede_slice_run, &bad, &p), BAD(arg, &c), BAD(save, save));
    p = (struct cede_slice_progress){0};
    REFUSED(c, ROW(-ETIMEDOUT, cede_slice_run, &bad, &p), BAD(timeout_us, 0));
    p = (struct cede_slice_progress){.done = UINT64_MAX};
    ROW(-EINVAL, cede_slice_run, &c, &p);
    p = (struct cede_slice_progress){.done = 3, .saved = 4};
    ROW(-EINVAL, cede_slice_run, &c, &p);
    assert_non_null(strstr(p.error, "progress"));
}

TEST(checkpoints)
{
    char path[5000], state[8] = "";
    struct cede_checkpoint c = {.path = NULL};
    uint64_t done;
    memset(path, 'x', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    ROW(-EINVAL, cede_checkpoint_write, NULL, 1, state, 1);
    ROW(-EINVAL, cede_checkpoint_read, NULL, &done, state, 1);
    const struct {
        const char *path;
        int code;
    } rows[] = {{NULL, -EINVAL}, {"", -EINVAL}, {path, -ENAMETOOLONG}, {"/nowhere/x", -ENOTDIR}};
    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
        c.path = rows[i].path;
        ROW(rows[i].code, cede_checkpoint_write, &c, 1, state, 1);
        ROW(rows[i].code, cede_checkpoint_read, &c, &done, state, 1);
    }
    c.path = "/tmp/nowhere";
    ROWS(cede_checkpoint_read, (-ENOENT, &c, &done, state, 1));
    ROW(-EINVAL, cede_checkpoint_write, &c, 1, NULL, SIZE_MAX);
    assert_non_null(strstr(c.error, "data is NULL"));
    ROWS(cede_checkpoint_read, (-EINVAL, &c, &done, NULL, SIZE_MAX), (-EINVAL, &c, NULL, state, 1));
}
