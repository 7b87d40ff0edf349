/* Provokes each kind of failed capture, on a GPU or on the stand-in for libcuda, and checks that
 * the cache gives its reason, that the step ran once all the same, and that stream and context work
 * afterwards. Prints one line for each. Exits 77 where there is no GPU. Needs nothing but libcede,
 * so that it can be carried to the machine with the GPU. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "bench/graph_add.h"
#include "bench/graph_rig.h"
#include "cede/graph.h"

static struct rig rig;

/* What a step does, one thing after the other up to the first error: each with its code. */
#define ACTS(X)                                                                                    \
    X(END, 0)                                                                                      \
    X(ADD, rig_add(&rig, s->stream, 0, 1)) /* to word 0 */                                         \
    X(ADD_IN_LEGACY, rig_add(&rig, NULL, 1, 1))                                                    \
    X(ADD_ON_THE_SIDE, rig_add(&rig, s->side, 1, 1))                                               \
    X(SYNCHRONIZE, rig.cu.stream_synchronize(s->stream))                                           \
    X(SYNCHRONIZE_AND_HIDE, rig.cu.stream_synchronize(s->stream) * 0)                              \
    X(SYNCHRONIZE_CONTEXT, rig.cu.ctx_synchronize())                                               \
    X(QUERY, not_ready(rig.cu.stream_query(s->stream)))                                            \
    X(RECORD, rig.cu.event_record(s->event, s->stream))                                            \
    X(RECORD_ON_THE_SIDE, rig.cu.event_record(s->event, s->side))                                  \
    X(WAIT_FOR_EVENT, rig.cu.event_synchronize(s->event))                                          \
    X(QUERY_EVENT, not_ready(rig.cu.event_query(s->event)))                                        \
    X(AWAIT_EVENT, rig.cu.stream_wait(s->stream, s->event, 0))                                     \
    X(AWAIT_EVENT_ON_THE_SIDE, rig.cu.stream_wait(s->side, s->event, 0))                           \
    X(AWAIT_EVENT_IF_CAPTURED, is_captured(s->stream) ? act(s, AWAIT_EVENT) : 0)                   \
    X(ALLOCATE, allocate(s))                                                                       \
    X(ALLOCATE_ONCE, s->once ? 0 : rig.cu.mem_alloc(&s->once, 1 << 20))                            \
    X(ALLOCATE_OF_POOL, allocate_of_pool(s))                                                       \
    X(LOAD, load(s))                                                                               \
    X(LAUNCH_LOADED, launch_loaded(s))                                                             \
    X(END_CAPTURE_OR_ADD, is_captured(s->stream) ? end_capture(s->stream), 0 : act(s, ADD))        \
    X(PASS_CAPTURE_ON, pass_capture_on(s))                                                         \
    X(FAIL, -EPROTO)                                                                               \
    X(THREAD_SYNCHRONIZES, beside(s, SYNCHRONIZE))                                                 \
    X(THREAD_ALLOCATES, beside(s, ALLOCATE))                                                       \
    X(THREAD_CAPTURES, capture_beside(s, s->side, RIG_GLOBAL))                                     \
    X(THREAD_ENDS, end_beside(s))

#define NAME(name, ...) name,
enum act { ACTS(NAME) };
#undef NAME

/* What it has to do it with. */
struct scene {
    void *stream, *side; /* both wait for the legacy default stream */
    void *event;
    unsigned calls;
    rig_pointer once;
    void *module, *late; /* a kernel that no launch has loaded */
    pthread_t thread;
    enum act by_thread;
    void *captured; /* by the thread, in this mode */
    int mode;
    sem_t begun, go_on;
    int thread_error;
};

static bool is_captured(void *stream)
{
    int status = 0;
    return rig.cu.capturing(stream, &status) || status != 0;
}

static int end_capture(void *stream)
{
    void *graph = NULL;
    int r = rig.cu.end(stream, &graph);
    if (graph)
        rig.cu.graph_destroy(graph);
    return r;
}

static int not_ready(int r)
{
    return r == 600 ? 0 : r; /* is no error */
}

/* ---- other threads --------------------------------------------------------------------------- */

static int act(struct scene *s, enum act what);

/* Acts, or captures on a stream until it is told to go on. */
static void *in_thread(void *arg)
{
    struct scene *s = arg;
    rig.cu.push(rig.context);
    if (s->by_thread) {
        s->thread_error = act(s, s->by_thread);
        return NULL;
    }
    s->thread_error =
        rig.cu.begin(s->captured, s->mode) ?: rig.cu.event_record(s->event, s->captured);
    sem_post(&s->begun);
    sem_wait(&s->go_on);
    s->thread_error = s->thread_error ?: end_capture(s->captured);
    return NULL;
}

static int beside(struct scene *s, enum act what)
{
    s->by_thread = what;
    if (pthread_create(&s->thread, NULL, in_thread, s))
        abort();
    if (what)
        pthread_join(s->thread, NULL);
    else
        sem_wait(&s->begun);
    return 0;
}

static int capture_beside(struct scene *s, void *stream, int mode)
{
    s->captured = stream;
    s->mode = mode;
    return beside(s, END);
}

static int end_beside(struct scene *s)
{
    sem_post(&s->go_on);
    pthread_join(s->thread, NULL);
    return 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int allocate(struct scene *s)
{
    rig_pointer p;
    return rig.cu.mem_alloc(&p, 1 << 20) ?: rig.cu.mem_free(p);
}

static int allocate_of_pool(struct scene *s)
{
    rig_pointer p;
    return rig.cu.mem_alloc_async(&p, 1 << 20, s->stream)
               ?: act(s, ADD) ?: rig.cu.mem_free_async(p, s->stream);
}

static int load(struct scene *s)
{
    return rig.cu.module_load(&s->module, graph_add_ptx)
               ?: rig.cu.module_function(&s->late, s->module, "graph_add");
}

static int launch_loaded(struct scene *s)
{
    uint32_t number = 1;
    void *params[] = {&rig.words, &number};
    return rig.cu.launch(s->late, 1, 1, 1, 1, 1, 1, 0, s->stream, params, NULL);
}

/* The first call is in the capture, and hands the stream to another thread. */
static int pass_capture_on(struct scene *s)
{
    if (s->calls > 1)
        return end_beside(s) ?: act(s, ADD);
    end_capture(s->stream);
    return capture_beside(s, s->stream, RIG_THREAD_LOCAL);
}

static int act(struct scene *s, enum act what)
{
    switch (what) {
#define DO(name, ...)                                                                              \
    case name:                                                                                     \
        return __VA_ARGS__;
        ACTS(DO)
#undef DO
    }
    return -EINVAL;
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* If reason is CEDE_GRAPH_NOT_REFUSED: it is captured, and launched as a graph. */
static const struct scenario {
    const char *name;
    enum cede_graph_reason reason;
    enum act step[7];
    enum act before; /* in place of a warm-up */
    enum act after;
    int result;    /* of the launch */
    bool as_errno; /* the step returns -EIO in place of the driver's error */
    bool legacy;   /* the cache is on the legacy default stream */
} scenarios[] = {
    {"nothing", 0, .step = {ADD}},
    {"fork and join", 0,
     .step = {ADD, RECORD, AWAIT_EVENT_ON_THE_SIDE, ADD_ON_THE_SIDE, RECORD_ON_THE_SIDE,
              AWAIT_EVENT}},
    {"allocation of a pool", 0, .step = {ALLOCATE_OF_POOL}},
    {"allocation, once", 0, .step = {ALLOCATE_ONCE, ADD}, .before = RECORD_ON_THE_SIDE},
    {"kernel loaded late", 0, .step = {LAUNCH_LOADED}, .before = LOAD},
    {"allocation of another thread", 0, .step = {ADD, THREAD_ALLOCATES}},
    {"global capture of another thread", 0, .step = {ADD}, .before = THREAD_CAPTURES,
     .after = THREAD_ENDS},
    {"stream synchronized", CEDE_GRAPH_SYNCHRONIZES, .step = {ADD, SYNCHRONIZE}},
    {"stream queried", CEDE_GRAPH_SYNCHRONIZES, .step = {ADD, QUERY}},
    {"context synchronized", CEDE_GRAPH_SYNCHRONIZES, .step = {ADD, SYNCHRONIZE_CONTEXT}},
    {"error returned as errno", CEDE_GRAPH_INVALIDATED, .step = {ADD, SYNCHRONIZE},
     .as_errno = true},
    {"error not returned", CEDE_GRAPH_INVALIDATED, .step = {ADD, SYNCHRONIZE_AND_HIDE}},
    {"synchronized by another thread", CEDE_GRAPH_INVALIDATED, .step = {ADD, THREAD_SYNCHRONIZES}},
    {"event of its own, synchronized", CEDE_GRAPH_CAPTURED_EVENT,
     .step = {ADD, RECORD, WAIT_FOR_EVENT}},
    {"event of its own, queried", CEDE_GRAPH_CAPTURED_EVENT, .step = {ADD, RECORD, QUERY_EVENT}},
    {"allocation", CEDE_GRAPH_UNSAFE_CALL, .step = {ALLOCATE, ADD}},
    {"launch on the legacy stream", CEDE_GRAPH_DEFAULT_STREAM, .step = {ADD, ADD_IN_LEGACY}},
    {"cache on the legacy stream", CEDE_GRAPH_DEFAULT_STREAM, .step = {ADD}, .legacy = true},
    {"event from outside", CEDE_GRAPH_OUTSIDE_EVENT, .step = {AWAIT_EVENT, ADD},
     .before = RECORD_ON_THE_SIDE},
    {"event of another capture", CEDE_GRAPH_MERGES, .step = {AWAIT_EVENT_IF_CAPTURED, ADD},
     .before = THREAD_CAPTURES, .after = THREAD_ENDS},
    {"fork not joined", CEDE_GRAPH_UNJOINED,
     .step = {ADD, RECORD, AWAIT_EVENT_ON_THE_SIDE, ADD_ON_THE_SIDE}},
    {"capture ended", CEDE_GRAPH_UNMATCHED, .step = {END_CAPTURE_OR_ADD}},
    {"capture of another thread", CEDE_GRAPH_OTHER_THREAD, .step = {PASS_CAPTURE_ON},
     .before = RECORD_ON_THE_SIDE},
    {"nothing queued", CEDE_GRAPH_EMPTY, .step = {END}},
    {"error of its own", 0, .step = {FAIL}, .before = RECORD_ON_THE_SIDE, .result = -EPROTO},
};

struct run {
    struct scene scene;
    const struct scenario *what;
};

static int run_step(void *arg, void *stream, unsigned n)
{
    struct run *r = arg;
    int error = 0;
    r->scene.calls++;
    for (const enum act *a = r->what->step; *a && !error; a++)
        error = act(&r->scene, *a);
    return error && r->what->as_errno ? -EIO : error;
}

static int run_good(void *arg, void *stream, unsigned n)
{
    return rig_add(&rig, stream, 2, n);
}

/* Whether a stream and the context take eager work, a capture and a graph. */
static const char *unusable(void *stream)
{
    struct cede_graph_config c;
    struct cede_graph *g = NULL;
    unsigned took[2] = {9, 9};
    uint32_t before = rig_word(&rig, 2);
    if (is_captured(stream))
        return "the stream is still captured";
    if (rig_add(&rig, stream, 2, 1) || rig.cu.stream_synchronize(stream) ||
        rig_word(&rig, 2) != before + 1)
        return "no work runs on the stream";
    cede_graph_defaults(&c);
    if (cede_graph_open(&c, run_good, NULL, &g) || cede_graph_launch(g, stream, 1, &took[0]) ||
        cede_graph_launch(g, stream, 1, &took[1]))
        return "no graph can be launched on the stream";
    uint32_t after = rig_word(&rig, 2);
    cede_graph_close(g);
    return took[0] != 0 || took[1] != 1 || after != before + 3 ? "a graph on the stream did not run"
                                                               : NULL;
}

/* NULL, or what is wrong. */
static const char *judge(const struct scenario *w, const struct cede_graph_bucket *b, int result,
                         unsigned took, uint32_t ran)
{
    bool graph = !w->result && w->reason == CEDE_GRAPH_NOT_REFUSED;
    uint32_t want = !w->result && w->step[0];
    if (result != w->result)
        return "the launch gave another result";
    if (b->refused != w->reason)
        return "another reason was expected";
    if (took != graph || b->captured != graph)
        return graph ? "no graph was launched" : "a graph was launched";
    return ran == want ? NULL : "the step did not run once";
}

static const char *play(const struct scenario *w)
{
    struct run r = {.what = w};
    struct cede_graph_config c;
    struct cede_graph_bucket b = {0};
    struct cede_graph_statistics stats = {0};
    struct cede_graph *g = NULL;
    unsigned took = 9;
    sem_init(&r.scene.begun, 0, 0);
    sem_init(&r.scene.go_on, 0, 0);
    if (rig.cu.stream_create(&r.scene.stream, 0) ||
        rig.cu.stream_create(&r.scene.side, RIG_NON_BLOCKING) ||
        rig.cu.event_create(&r.scene.event, 0))
        return "no stream";
    void *stream = w->legacy ? NULL : r.scene.stream;
    cede_graph_defaults(&c);
    c.max_batch = 1;
    c.warmups = !w->before;
    if (cede_graph_open(&c, run_step, &r, &g))
        return "no cache";
    if (c.warmups && cede_graph_launch(g, stream, 1, &took))
        return "the warm-up failed";
    uint32_t before = rig_word(&rig, 0);
    act(&r.scene, w->before);
    int result = cede_graph_launch(g, stream, 1, &took);
    act(&r.scene, w->after);
    uint32_t ran = rig_word(&rig, 0) - before;
    cede_graph_get_bucket(g, 1, &b, sizeof(b));
    cede_graph_get_statistics(g, &stats, sizeof(stats));
    const char *wrong = judge(w, &b, result, took, ran);
    if (!wrong && w->reason == CEDE_GRAPH_NOT_REFUSED && r.scene.thread_error)
        wrong = "the other thread was disturbed";
    const char *broken = unusable(r.scene.stream) ?: unusable(r.scene.side);
    printf("%-34s result %d, reason %d, CUDA %d, retried %d, runs %u%s%s\n    %s\n", w->name,
           result, (int)b.refused, b.cuda_error, (int)stats.retried, ran,
           wrong || broken ? ": WRONG: " : "",
           wrong    ? wrong
           : broken ? broken
                    : "",
           stats.error[0] ? stats.error : "(no error)");
    cede_graph_close(g);
    if (r.scene.once)
        rig.cu.mem_free(r.scene.once);
    if (r.scene.module)
        rig.cu.module_unload(r.scene.module);
    rig.cu.event_destroy(r.scene.event);
    rig.cu.stream_destroy(r.scene.side);
    rig.cu.stream_destroy(r.scene.stream);
    return wrong ? wrong : broken;
}

/* ---- graphs that work ------------------------------------------------------------------------ */

struct work {
    unsigned word, nodes;
};

static int do_work(void *arg, void *stream, unsigned n)
{
    const struct work *w = arg;
    int r = 0;
    for (unsigned i = 0; i < w->nodes && !r; i++)
        r = rig_add(&rig, stream, w->word, n);
    return r;
}

struct trial {
    struct work work;
    struct cede_graph *g;
    void *stream;
    struct cede_graph_statistics stats;
};

static bool read_stats(struct trial *b)
{
    return cede_graph_get_statistics(b->g, &b->stats, sizeof(b->stats)) == 0;
}

static bool launches(struct trial *b, unsigned n, unsigned times)
{
    bool ok = true;
    for (unsigned i = 0; i < times && ok; i++)
        ok = cede_graph_launch(b->g, b->stream, n, NULL) == 0;
    return ok;
}

static bool changed_to(struct trial *b, unsigned word, unsigned nodes)
{
    b->work = (struct work){word, nodes};
    cede_graph_changed(b->g);
    return launches(b, 1, 3);
}

static bool updates(struct trial *b)
{
    return launches(b, 1, 3) && changed_to(b, 9, 4) && rig_word(&rig, 8) == 12 &&
           rig_word(&rig, 9) == 12 && read_stats(b) && b->stats.updates == 1 &&
           b->stats.rebuilds == 0;
}

static bool rebuilds(struct trial *b)
{
    return launches(b, 1, 3) && changed_to(b, 9, 5) && rig_word(&rig, 8) == 12 &&
           rig_word(&rig, 9) == 15 && read_stats(b) && b->stats.updates == 0 &&
           b->stats.rebuilds == 1;
}

/* Graphs are destroyed and updated while they run, as nothing is waited for in between. */
static bool runs_meanwhile(struct trial *b)
{
    uint32_t want = 0;
    b->work.nodes = 300;
    for (unsigned round = 0; round < 50; round++) {
        for (unsigned n = 1; n <= 4; n *= 2) {
            if (!launches(b, n, 3))
                return false;
            want += 3 * n * b->work.nodes;
        }
        cede_graph_changed(b->g);
    }
    return rig_word(&rig, 8) == want && read_stats(b) && b->stats.evictions > 0 &&
           b->stats.updates > 0 && b->stats.graphs == 2;
}

static bool prepares_many(struct trial *b)
{
    b->work.nodes = 300;
    return cede_graph_prepare(b->g, b->stream, 0) == 0 && launches(b, 1, 1000) &&
           rig_word(&rig, 8) == (1 + 2 + 4 + 1000) * 300 && read_stats(b) && b->stats.graphs == 3 &&
           b->stats.launched == 1000 && b->stats.eager == 0;
}

static const struct {
    const char *name;
    bool (*f)(struct trial *);
    unsigned warmups, max_graphs;
} functions[] = {
    {"addresses change: update", updates, 0, 0},
    {"nodes change: rebuild", rebuilds, 0, 0},
    {"eviction and update while running", runs_meanwhile, 0, 2},
    {"all prepared, 1000 launches", prepares_many, 1, 0},
};

static bool try_function(size_t i)
{
    static const uint32_t zeros[2];
    struct trial b = {.work = {.word = 8, .nodes = 4}};
    struct cede_graph_config c;
    cede_graph_defaults(&c);
    c.max_batch = 4;
    c.warmups = functions[i].warmups;
    c.max_graphs = functions[i].max_graphs;
    bool ok = rig.cu.copy_in(rig.words + 8 * sizeof(uint32_t), zeros, sizeof(zeros)) == 0 &&
              rig.cu.stream_create(&b.stream, RIG_NON_BLOCKING) == 0 &&
              cede_graph_open(&c, do_work, &b.work, &b.g) == 0 && functions[i].f(&b);
    if (b.g)
        cede_graph_get_statistics(b.g, &b.stats, sizeof(b.stats));
    printf("%-34s captures %d, updates %d, rebuilds %d, evictions %d, %d us capturing, %d us "
           "saved, %d bytes%s\n    %s\n",
           functions[i].name, (int)b.stats.captures, (int)b.stats.updates, (int)b.stats.rebuilds,
           (int)b.stats.evictions, (int)b.stats.capture_us, (int)b.stats.saved_us,
           (int)b.stats.bytes, ok ? "" : ": WRONG",
           b.stats.error[0] ? b.stats.error : "(no error)");
    cede_graph_close(b.g);
    rig.cu.stream_destroy(b.stream);
    return ok;
}

int main(void)
{
    unsigned failed = 0;
    const char *missing = rig_open(&rig, graph_add_ptx);
    if (missing) {
        fprintf(stderr, "test_graph_gpu: %s\n", missing);
        return 77;
    }
    for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++)
        failed += play(&scenarios[i]) != NULL;
    for (size_t i = 0; i < ARRAY_SIZE(functions); i++)
        failed += !try_function(i);
    rig_close(&rig);
    printf("%zu of %zu as expected\n", ARRAY_SIZE(scenarios) + ARRAY_SIZE(functions) - failed,
           ARRAY_SIZE(scenarios) + ARRAY_SIZE(functions));
    return failed ? 1 : 0;
}
