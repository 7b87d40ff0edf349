/* Threads that are cancelled (pthread_cancel) while they wait in libcede: the wait goes on, nothing
 * stays locked, and the thread ends where it would next. */
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
    came_back = began = may_end = false;
    waits_in = call;
    alarm(60);
    const pthread_t t = start(waits, NULL);
    UNTIL(began);
    usleep(20000); /* in the wait, or on the way to it */
    OK(pthread_cancel(t));
    usleep(20000);
    end();
    assert_ptr_equal(result_of(t), PTHREAD_CANCELED);
    alarm(0);
    assert_true(came_back);
}

static int for_a_lease(void)
{
    struct cede_lease l;
    return cede_acquire(pool, 0, NULL, NULL, 60 * S, &l) ?: cede_release(&l);
}

static void end_lease(void)
{
    OK(cede_release(&held));
}

TEST(waiting_for_a_lease)
{
    pool = OPEN(pool, .flags = CEDE_POOL_NO_GPU, .max_concurrent_streams = 1);
    OK(cede_acquire(pool, 0, NULL, NULL, 0, &held));
    cancelled_in(for_a_lease, end_lease);
    assert_int_equal(pool_stats(pool, 0).active, 0);
    OK(cede_pool_close(pool));
}

static int for_a_batch(void)
{
    struct cede_queue_batch b;
    return cede_queue_next(queue, 0, CEDE_TIMEOUT_FOREVER, &b) ?: cede_queue_done(queue, &b, 0);
}

static void submit(void)
{
    const struct cede_queue_request r = {.cls = CEDE_NORMAL, .deadline_us = 1};
    OK(cede_queue_submit(queue, &r, NULL));
}

TEST(waiting_for_a_batch)
{
    queue = OPEN(queue);
    cancelled_in(for_a_batch, submit);
    cede_queue_close(queue);
}

static int runs(struct cede_scope *s, void *arg)
{
    UNTIL(may_end);
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
    OK(cede_scope_open(&scope, NULL, 2, CEDE_TIMEOUT_FOREVER));
    OK(cede_scope_fork(scope, runs, NULL));
    cancelled_in(for_tasks, end_tasks);
    OK(cede_scope_close(scope));
}

static int for_room(void)
{
    struct cede_reservation r;
    return cede_memory_reserve(memory, 600, 60 * S, &r) ?: cede_memory_release(&r);
}

static struct cede_reservation kept;

static void end_reservation(void)
{
    OK(cede_memory_release(&kept));
}

TEST(waiting_for_room)
{
    memory = OPEN(memory, .flags = CEDE_MEMORY_NO_GPU, .total_bytes = 1000);
    OK(cede_memory_reserve(memory, 600, 0, &kept));
    cancelled_in(for_room, end_reservation);
    OK(cede_memory_close(memory));
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
    const struct cede_graph_config c = CONFIG(graph, .flags = CEDE_GRAPH_EAGER);
    OK(cede_graph_open(&c, graph_step, NULL, &graph));
    cancelled_in(in_a_launch, end_tasks);
    OK(cede_graph_launch(graph, NULL, 1, NULL));
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
    loop = OPEN(step, .flags = CEDE_STEP_NO_GPU, .schedule = loop_schedule, .launch = loop_step,
                .finish = loop_step);
    cancelled_in(in_a_loop, end_tasks);
    OK(cede_step_close(loop));
}
