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

/* What a step has to do with. The step adds 1 to word 0. */
struct scene {
    void *stream, *side; /* both wait for the legacy default stream */
    void *event;
    unsigned calls;
    rig_pointer once;
    void *module, *late; /* a kernel that no launch has loaded */
    pthread_t thread;
    sem_t begun, go_on;
    int thread_error;
};

static bool is_captured(void *stream)
{
    int status = 0;
    return rig.cu.capturing(stream, &status) || status != 0;
}

static int add(struct scene *s)
{
    return rig_add(&rig, s->stream, 0, 1);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int step_good(struct scene *s)
{
    return add(s);
}

static int step_synchronizes(struct scene *s)
{
    return add(s) ?: rig.cu.stream_synchronize(s->stream);
}

static int step_queries(struct scene *s)
{
    int r = add(s), q = rig.cu.stream_query(s->stream);
    return r ?: (q == 600 ? 0 : q); /* not ready is no error */
}

static int step_synchronizes_context(struct scene *s)
{
    return add(s) ?: rig.cu.ctx_synchronize();
}

static int step_hides_its_error(struct scene *s)
{
    int r = add(s);
    rig.cu.stream_synchronize(s->stream);
    return r;
}

static int step_returns_errno(struct scene *s)
{
    return step_synchronizes(s) ? -EIO : 0;
}

static int step_waits_for_its_event(struct scene *s)
{
    int r = add(s) ?: rig.cu.event_record(s->event, s->stream);
    return r ?: rig.cu.event_synchronize(s->event);
}

static int step_queries_its_event(struct scene *s)
{
    int r = add(s) ?: rig.cu.event_record(s->event, s->stream);
    int q = rig.cu.event_query(s->event);
    return r ?: (q == 600 ? 0 : q);
}

static int step_allocates(struct scene *s)
{
    rig_pointer p;
    int r = rig.cu.mem_alloc(&p, 1 << 20);
    return r ? r : add(s) ?: rig.cu.mem_free(p);
}

static int step_allocates_once(struct scene *s)
{
    return (s->once ? 0 : rig.cu.mem_alloc(&s->once, 1 << 20)) ?: add(s);
}

static int step_uses_a_pool(struct scene *s)
{
    rig_pointer p;
    int r = rig.cu.mem_alloc_async(&p, 1 << 20, s->stream);
    return r ? r : add(s) ?: rig.cu.mem_free_async(p, s->stream);
}

static int step_loads_late(struct scene *s)
{
    uint32_t number = 1;
    void *params[] = {&rig.words, &number};
    return rig.cu.launch(s->late, 1, 1, 1, 1, 1, 1, 0, s->stream, params, NULL);
}

static int step_uses_legacy(struct scene *s)
{
    return add(s) ?: rig_add(&rig, NULL, 1, 1);
}

static int step_waits_outside(struct scene *s)
{
    return rig.cu.stream_wait(s->stream, s->event, 0) ?: add(s);
}

static int step_forks(struct scene *s, bool join)
{
    int r = add(s) ?: rig.cu.event_record(s->event, s->stream);
    r = r ?: rig.cu.stream_wait(s->side, s->event, 0);
    r = r ?: rig_add(&rig, s->side, 1, 1);
    if (!join)
        return r;
    r = r ?: rig.cu.event_record(s->event, s->side);
    return r ?: rig.cu.stream_wait(s->stream, s->event, 0);
}

static int step_joins(struct scene *s)
{
    return step_forks(s, true);
}

static int step_does_not_join(struct scene *s)
{
    return step_forks(s, false);
}

static int step_waits_for_another_capture(struct scene *s)
{
    return (is_captured(s->stream) ? rig.cu.stream_wait(s->stream, s->event, 0) : 0) ?: add(s);
}

static int step_ends_the_capture(struct scene *s)
{
    void *graph = NULL;
    if (!is_captured(s->stream))
        return add(s);
    if (rig.cu.end(s->stream, &graph) == 0)
        rig.cu.graph_destroy(graph);
    return 0;
}

static int step_does_nothing(struct scene *s)
{
    return 0;
}

static int step_has_an_error_of_its_own(struct scene *s)
{
    return -EPROTO;
}

/* ---- other threads --------------------------------------------------------------------------- */

static void *synchronizes(void *arg)
{
    struct scene *s = arg;
    rig.cu.push(rig.context);
    s->thread_error = rig.cu.stream_synchronize(s->stream);
    return NULL;
}

static void *allocates(void *arg)
{
    struct scene *s = arg;
    rig_pointer p = 0;
    rig.cu.push(rig.context);
    s->thread_error = rig.cu.mem_alloc(&p, 1 << 20);
    if (!s->thread_error)
        rig.cu.mem_free(p);
    return NULL;
}

static int step_beside(struct scene *s, void *(*f)(void *))
{
    int r = add(s);
    if (pthread_create(&s->thread, NULL, f, s) == 0)
        pthread_join(s->thread, NULL);
    return r;
}

static int step_is_synchronized(struct scene *s)
{
    return step_beside(s, synchronizes);
}

static int step_beside_an_allocation(struct scene *s)
{
    return step_beside(s, allocates);
}

/* Captures on a stream until it is told to go on. */
static void capture_meanwhile(struct scene *s, void *stream, int mode)
{
    void *graph = NULL;
    rig.cu.push(rig.context);
    s->thread_error = rig.cu.begin(stream, mode) ?: rig.cu.event_record(s->event, stream);
    sem_post(&s->begun);
    sem_wait(&s->go_on);
    s->thread_error = s->thread_error ?: rig.cu.end(stream, &graph);
    if (graph)
        rig.cu.graph_destroy(graph);
}

static void *captures_the_stream(void *arg)
{
    struct scene *s = arg;
    capture_meanwhile(s, s->stream, RIG_THREAD_LOCAL);
    return NULL;
}

static void *captures_elsewhere(void *arg)
{
    struct scene *s = arg;
    capture_meanwhile(s, s->side, RIG_GLOBAL);
    return NULL;
}

static void start(struct scene *s, void *(*f)(void *))
{
    if (pthread_create(&s->thread, NULL, f, s))
        abort();
    sem_wait(&s->begun);
}

static void stop(struct scene *s)
{
    sem_post(&s->go_on);
    pthread_join(s->thread, NULL);
}

/* The first call is in the capture, and hands the stream to another thread. */
static int step_passes_it_on(struct scene *s)
{
    void *graph = NULL;
    if (s->calls == 1) {
        if (rig.cu.end(s->stream, &graph) == 0)
            rig.cu.graph_destroy(graph);
        start(s, captures_the_stream);
        return 0;
    }
    stop(s);
    return add(s);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void elsewhere(struct scene *s)
{
    start(s, captures_elsewhere);
}

static void record(struct scene *s)
{
    rig.cu.event_record(s->event, s->side);
}

static void load(struct scene *s)
{
    if (rig.cu.module_load(&s->module, graph_add_ptx) ||
        rig.cu.module_function(&s->late, s->module, "graph_add"))
        abort();
}

/* If reason is CEDE_GRAPH_NOT_REFUSED: it is captured, and launched as a graph. */
static const struct scenario {
    const char *name;
    int (*step)(struct scene *s);
    enum cede_graph_reason reason;
    int result;                     /* of the launch */
    void (*before)(struct scene *); /* in place of a warm-up */
    void (*after)(struct scene *);
    bool legacy; /* the cache is on the legacy default stream */
} scenarios[] = {
#define GOOD(name_, step_, ...)                                                                    \
    {                                                                                              \
        .name = (name_), .step = (step_), ##__VA_ARGS__                                            \
    }
#define BAD(name_, step_, why_, ...)                                                               \
    {                                                                                              \
        .name = (name_), .step = (step_), .reason = (why_), ##__VA_ARGS__                          \
    }
    GOOD("nothing", step_good),
    GOOD("fork and join", step_joins),
    GOOD("allocation of a pool", step_uses_a_pool),
    GOOD("allocation, once", step_allocates_once, .before = record),
    GOOD("kernel loaded late", step_loads_late, .before = load),
    GOOD("allocation of another thread", step_beside_an_allocation),
    GOOD("global capture of another thread", step_good, .before = elsewhere, .after = stop),
    BAD("stream synchronized", step_synchronizes, CEDE_GRAPH_SYNCHRONIZES),
    BAD("stream queried", step_queries, CEDE_GRAPH_SYNCHRONIZES),
    BAD("context synchronized", step_synchronizes_context, CEDE_GRAPH_SYNCHRONIZES),
    BAD("error returned as errno", step_returns_errno, CEDE_GRAPH_INVALIDATED),
    BAD("error not returned", step_hides_its_error, CEDE_GRAPH_INVALIDATED),
    BAD("synchronized by another thread", step_is_synchronized, CEDE_GRAPH_INVALIDATED),
    BAD("event of its own, synchronized", step_waits_for_its_event, CEDE_GRAPH_CAPTURED_EVENT),
    BAD("event of its own, queried", step_queries_its_event, CEDE_GRAPH_CAPTURED_EVENT),
    BAD("allocation", step_allocates, CEDE_GRAPH_UNSAFE_CALL),
    BAD("launch on the legacy stream", step_uses_legacy, CEDE_GRAPH_DEFAULT_STREAM),
    BAD("cache on the legacy stream", step_good, CEDE_GRAPH_DEFAULT_STREAM, .legacy = true),
    BAD("event from outside", step_waits_outside, CEDE_GRAPH_OUTSIDE_EVENT, .before = record),
    BAD("event of another capture", step_waits_for_another_capture, CEDE_GRAPH_MERGES,
        .before = elsewhere, .after = stop),
    BAD("fork not joined", step_does_not_join, CEDE_GRAPH_UNJOINED),
    BAD("capture ended", step_ends_the_capture, CEDE_GRAPH_UNMATCHED),
    BAD("capture of another thread", step_passes_it_on, CEDE_GRAPH_OTHER_THREAD, .before = record),
    BAD("nothing queued", step_does_nothing, CEDE_GRAPH_EMPTY),
    GOOD("error of its own", step_has_an_error_of_its_own, .result = -EPROTO, .before = record),
#undef GOOD
#undef BAD
};

struct run {
    struct scene scene;
    const struct scenario *what;
};

static int run_step(void *arg, void *stream, unsigned n)
{
    struct run *r = arg;
    r->scene.calls++;
    return r->what->step(&r->scene);
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
    uint32_t want = w->result || w->step == step_does_nothing ? 0 : 1;
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
    c.warmups = w->before == NULL;
    if (cede_graph_open(&c, run_step, &r, &g))
        return "no cache";
    if (c.warmups && cede_graph_launch(g, stream, 1, &took))
        return "the warm-up failed";
    uint32_t before = rig_word(&rig, 0);
    if (w->before)
        w->before(&r.scene);
    int result = cede_graph_launch(g, stream, 1, &took);
    if (w->after)
        w->after(&r.scene);
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
