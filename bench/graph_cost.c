/* What queuing a step of many small kernels costs the CPU: each launched by itself, the same as a
 * graph by cede_graph_launch(), and that graph by cuGraphLaunch() alone. The three take turns in
 * each round, so that all see the same machine. "queued" is until the calls have returned, "done"
 * until the GPU has finished. Needs libcuda (or its stand-in), and exits 77 without a GPU.
 *
 * usage: bench_graph_cost [--nodes N] [--rounds N] [--json FILE] */
#include <errno.h>
#include <stdlib.h>

#include "bench/cost.h"
#include "bench/graph_add.h"
#include "bench/graph_rig.h"
#include "cede/graph.h"

#define ROUNDS_MAX 100000U
#define SETTLING   20U /* rounds that are not counted */

enum { EAGER, GRAPH, DIRECT, WAYS };
static const char *const names[WAYS] = {"eager", "graph", "direct"};

static struct rig rig;
static struct {
    uint64_t nodes, rounds;
    const char *json;
} o = {.nodes = 300, .rounds = 1000};
static double queued_us[WAYS][ROUNDS_MAX], done_us[WAYS][ROUNDS_MAX], update_us;
static struct cede_graph_statistics first;

static int add_nodes(void *arg, void *stream, unsigned n)
{
    int r = 0;
    for (uint64_t i = 0; i < o.nodes && !r; i++)
        r = rig_add(&rig, stream, *(unsigned *)arg, n);
    return r;
}

static double us_at(const double *sorted, double q)
{
    return cost_quantile(sorted, o.rounds, q);
}

/* An executable graph that the cache knows nothing of. */
static void *make_direct(void *stream, unsigned *word)
{
    void *graph = NULL, *exec = NULL;
    if (rig.cu.begin(stream, RIG_THREAD_LOCAL) || add_nodes(word, stream, 1) ||
        rig.cu.end(stream, &graph))
        return NULL;
    if (rig.cu.instantiate(&exec, graph, 0))
        exec = NULL;
    rig.cu.graph_destroy(graph);
    return exec;
}

static int measure(struct cede_graph *g, void *exec, void *stream, unsigned *word)
{
    for (unsigned i = 0; i < SETTLING + o.rounds; i++) {
        for (unsigned way = 0; way < WAYS; way++) {
            unsigned at = i < SETTLING ? 0 : i - SETTLING;
            uint64_t start = monotonic_ns();
            int r = way == EAGER   ? add_nodes(word, stream, 1)
                    : way == GRAPH ? cede_graph_launch(g, stream, 1, NULL)
                                   : rig.cu.graph_launch(exec, stream);
            queued_us[way][at] = cost_ms_since(start) * 1e3;
            if (r || rig.cu.stream_synchronize(stream))
                return -EIO;
            done_us[way][at] = cost_ms_since(start) * 1e3;
        }
    }
    return 0;
}

/* Of putting new addresses into the graph, in place of capturing it anew. */
static int measure_update(struct cede_graph *g, void *stream, unsigned *word)
{
    struct cede_graph_statistics before, after;
    *word = 1;
    cede_graph_get_statistics(g, &before, sizeof(before));
    cede_graph_changed(g);
    if (cede_graph_launch(g, stream, 1, NULL) || rig.cu.stream_synchronize(stream))
        return -EIO;
    cede_graph_get_statistics(g, &after, sizeof(after));
    update_us =
        after.updates > before.updates ? (double)(after.capture_us - before.capture_us) : -1;
    return 0;
}

static void report(FILE *f)
{
    fputc('{', f);
    rig_describe(f, &rig, "");
    fprintf(f, ",\"nodes\":%llu,\"rounds\":%llu", (unsigned long long)o.nodes,
            (unsigned long long)o.rounds);
    for (unsigned way = 0; way < WAYS; way++)
        fprintf(f,
                ",\"%s\":{\"queued_p50_us\":%.2f,\"queued_p99_us\":%.2f,\"done_p50_us\":%.2f,"
                "\"done_p99_us\":%.2f}",
                names[way], us_at(queued_us[way], 0.5), us_at(queued_us[way], 0.99),
                us_at(done_us[way], 0.5), us_at(done_us[way], 0.99));
    fprintf(f, ",\"capture_us\":%llu,\"update_us\":%.0f,\"graph_bytes\":%llu}\n",
            (unsigned long long)first.capture_us, update_us, (unsigned long long)first.bytes);
}

static int run(void)
{
    struct cede_graph_config c;
    struct cede_graph *g = NULL;
    void *stream = NULL, *exec = NULL;
    unsigned word = 0;
    cede_graph_defaults(&c);
    c.max_batch = 1;
    if (rig.cu.stream_create(&stream, RIG_NON_BLOCKING) ||
        cede_graph_open(&c, add_nodes, &word, &g) || cede_graph_prepare(g, stream, 1) ||
        cede_graph_get_statistics(g, &first, sizeof(first)))
        return -EIO;
    if (first.graphs != 1) {
        fprintf(stderr, "bench_graph_cost: %s\n", first.error);
        return -EIO;
    }
    exec = make_direct(stream, &word);
    int r = exec ? measure(g, exec, stream, &word) : -EIO;
    if (!r)
        r = measure_update(g, stream, &word);
    /* every round ran, and so did the warm-up of the cache */
    uint64_t want = o.nodes * (WAYS * (SETTLING + o.rounds) + 1);
    if (!r && (rig_word(&rig, 0) != (uint32_t)want || rig_word(&rig, 1) != o.nodes))
        r = -EIO;
    for (unsigned way = 0; way < WAYS; way++) {
        cost_sort(queued_us[way], o.rounds);
        cost_sort(done_us[way], o.rounds);
    }
    r = r ? r : cost_report("bench_graph_cost", o.json, report);
    cede_graph_close(g);
    if (exec)
        rig.cu.exec_destroy(exec);
    rig.cu.stream_destroy(stream);
    return r;
}

int main(int argc, char **argv)
{
    static const struct command_line line = {
        .program = "bench_graph_cost",
        .help = "usage: bench_graph_cost [--nodes N] [--rounds N] [--json FILE]\n"};
    const struct option_row options[] = {{"nodes", COST_WHOLE(&o.nodes, 1, 100000)},
                                         {"rounds", COST_WHOLE(&o.rounds, 1, ROUNDS_MAX)},
                                         {"json", .text = &o.json}};
    int status = cost_options(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    const char *missing = rig_open(&rig, graph_add_ptx);
    if (missing) {
        fprintf(stderr, "bench_graph_cost: %s\n", missing);
        return 77;
    }
    int r = run();
    if (r)
        fprintf(stderr, "bench_graph_cost: a call of the driver failed, or work did not run\n");
    rig_close(&rig);
    return r ? 1 : 0;
}
