/* Threads that are cancelled (pthread_cancel) while they wait in libcede: the wait goes on, nothing
 * stays locked, and the thread ends where it would next. */
#include <sched.h>
#include <unistd.h>

#include "cede/graph.h"
#include "cede/memory.h"
#include "cede/queue.h"
#include "cede/scope.h"
#include "cede/step.h"
#include "pools.h"

static struct cede_pool *pool;
static struct cede_memory *memory;
static struct cede_queue *queue;
static struct cede_scope *scope;
static struct cede_lease held;
static _Atomic bool began, may_end, came_back;

static int (*waits_in)(void);

static void *waits(void *arg)
{
    began = true;
    came_back = waits_in() == 0;
    pthread_testcancel();
    return NULL;
}

/* A thread that is in `call` is cancelled, and must come back from it when `end` lets it. A lock
 * that it left behind would stop this program: not for ever. */
static void cancelled_in(int (*call)(void), void (*end)(void))
{
    pthread_t t;
    void *r;
    came_back = began = may_end = false;
    waits_in = call;
    alarm(60);
    assert_int_equal(pthread_create(&t, NULL, waits, NULL), 0);
    while (!began)
        sched_yield();
    usleep(20000); /* in the wait, or on the way to it */
    assert_int_equal(pthread_cancel(t), 0);
    usleep(20000);
    end();
    assert_int_equal(pthread_join(t, &r), 0);
    alarm(0);
    assert_ptr_equal(r, PTHREAD_CANCELED);
    assert_true(came_back);
}

static int for_a_lease(void)
{
    struct cede_lease l;
    return cede_acquire(pool, 0, NULL, NULL, 60 * S, &l) ?: cede_release(&l);
}

static void end_lease(void)
{
    assert_int_equal(cede_release(&held), 0);
}

TEST(waiting_for_a_lease)
{
    const struct cede_pool_config c = no_gpu(1, 1);
    pool = open_configured(&c);
    assert_int_equal(cede_acquire(pool, 0, NULL, NULL, 0, &held), 0);
    cancelled_in(for_a_lease, end_lease);
    assert_int_equal(pool_stats(pool, 0).active, 0);
    assert_int_equal(cede_pool_close(pool), 0);
}

static int for_a_batch(void)
{
    struct cede_queue_batch b;
    return cede_queue_next(queue, 0, CEDE_TIMEOUT_FOREVER, &b) ?: cede_queue_done(queue, &b, 0);
}

static void submit(void)
{
    const struct cede_queue_request r = {.cls = CEDE_NORMAL, .deadline_us = 1};
    assert_int_equal(cede_queue_submit(queue, &r, NULL), 0);
}

TEST(waiting_for_a_batch)
{
    assert_int_equal(cede_queue_open(NULL, &queue), 0);
    cancelled_in(for_a_batch, submit);
    cede_queue_close(queue);
}

static int runs(struct cede_scope *s, void *arg)
{
    while (!may_end)
        usleep(100);
    return 0;
}

static int for_tasks(void)
{
    return cede_scope_join(scope);
}

static void end_tasks(void)
{
    may_end = true;
}

TEST(waiting_for_tasks)
{
    may_end = false;
    assert_int_equal(cede_scope_open(&scope, NULL, 2, CEDE_TIMEOUT_FOREVER), 0);
    assert_int_equal(cede_scope_fork(scope, runs, NULL), 0);
    cancelled_in(for_tasks, end_tasks);
    assert_int_equal(cede_scope_close(scope), 0);
}

static int for_room(void)
{
    struct cede_reservation r;
    return cede_memory_reserve(memory, 600, 60 * S, &r) ?: cede_memory_release(&r);
}

static struct cede_reservation kept;

static void end_reservation(void)
{
    assert_int_equal(cede_memory_release(&kept), 0);
}

TEST(waiting_for_room)
{
    struct cede_memory_config c;
    cede_memory_defaults(&c);
    c.flags = CEDE_MEMORY_NO_GPU;
    c.total_bytes = 1000;
    assert_int_equal(cede_memory_open(&c, &memory), 0);
    assert_int_equal(cede_memory_reserve(memory, 600, 0, &kept), 0);
    cancelled_in(for_room, end_reservation);
    assert_int_equal(cede_memory_close(memory), 0);
}

static struct cede_graph *graph;
static struct cede_step_loop *loop;

static int graph_step(void *arg, void *stream, unsigned n)
{
    return runs(NULL, NULL);
}

static int in_a_launch(void)
{
    return cede_graph_launch(graph, NULL, 1, NULL);
}

/* Nor is what calls the program's functions left half-way. */
TEST(in_a_step_of_a_graph)
{
    struct cede_graph_config c;
    cede_graph_defaults(&c);
    c.flags = CEDE_GRAPH_EAGER;
    assert_int_equal(cede_graph_open(&c, graph_step, NULL, &graph), 0);
    cancelled_in(in_a_launch, end_tasks);
    assert_int_equal(cede_graph_launch(graph, NULL, 1, NULL), 0);
    cede_graph_close(graph);
}

static int loop_schedule(void *arg, struct cede_step *step)
{
    return runs(NULL, NULL);
}

static int loop_step(void *arg, struct cede_step *step)
{
    return 0;
}

static int in_a_loop(void)
{
    return cede_step_once(loop);
}

TEST(in_a_function_of_a_loop)
{
    struct cede_step_config c;
    cede_step_defaults(&c);
    c.flags = CEDE_STEP_NO_GPU;
    c.schedule = loop_schedule;
    c.launch = c.finish = loop_step;
    assert_int_equal(cede_step_open(&c, &loop), 0);
    cancelled_in(in_a_loop, end_tasks);
    assert_int_equal(cede_step_close(loop), 0);
}
