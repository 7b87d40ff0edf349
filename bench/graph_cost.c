/* What queuing a step of many small kernels costs the CPU: each launched by itself, the same as a
 * graph by cede_graph_launch(), and that graph by cuGraphLaunch() alone. The three take turns in
 * each round, so that all see the same machine. "queued" is until the calls have returned, "done"
 * until the GPU has finished. Needs libcuda (or its stand-in), and exits 77 without a GPU.
 *
 * usage: bench_graph_cost [--nodes N] [--rounds N] [--json FILE] */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

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
static uint64_t queued_ns[WAYS][ROUNDS_MAX], done_ns[WAYS][ROUNDS_MAX];

static int add_nodes(void *arg, void *stream, unsigned n)
{
    int r = 0;
    for (uint64_t i = 0; i < o.nodes && !r; i++)
        r = rig_add(&rig, stream, *(unsigned *)arg, n);
    return r;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double us_at(const uint64_t *sorted, unsigned percent)
{
    return (double)sorted[(o.rounds - 1) * percent / 100] / NSEC_PER_USEC;
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
                    : way == GRAPH ? cede_graph_launch(g, 1, NULL)
                                   : rig.cu.graph_launch(exec, stream);
            queued_ns[way][at] = monotonic_ns() - start;
            if (r || rig.cu.stream_synchronize(stream))
                return -EIO;
            done_ns[way][at] = monotonic_ns() - start;
        }
    }
    return 0;
}

/* Of putting new addresses into the graph, in place of capturing it anew. */
static int measure_update(struct cede_graph *g, void *stream, unsigned *word, double *us)
{
    struct cede_graph_statistics before, after;
    *word = 1;
    cede_graph_get_statistics(g, &before, sizeof(before));
    cede_graph_changed(g);
    if (cede_graph_launch(g, 1, NULL) || rig.cu.stream_synchronize(stream))
        return -EIO;
    cede_graph_get_statistics(g, &after, sizeof(after));
    *us = after.updates > before.updates ? (double)(after.capture_us - before.capture_us) : -1;
    return 0;
}

static void report(FILE *f, const struct cede_graph_statistics *first, double update_us)
{
    char device[128] = "";
    int version = 0;
    rig.cu.device_name(device, sizeof(device), rig.device);
    rig.cu.driver_version(&version);
    fprintf(f, "{\"device\":\"%s\",\"cuda\":%d,\"nodes\":%llu,\"rounds\":%llu", device, version,
            (unsigned long long)o.nodes, (unsigned long long)o.rounds);
    for (unsigned way = 0; way < WAYS; way++)
        fprintf(f,
                ",\"%s\":{\"queued_p50_us\":%.2f,\"queued_p99_us\":%.2f,\"done_p50_us\":%.2f,"
                "\"done_p99_us\":%.2f}",
                names[way], us_at(queued_ns[way], 50), us_at(queued_ns[way], 99),
                us_at(done_ns[way], 50), us_at(done_ns[way], 99));
    fprintf(f, ",\"capture_us\":%llu,\"update_us\":%.0f,\"graph_bytes\":%llu}\n",
            (unsigned long long)first->capture_us, update_us, (unsigned long long)first->bytes);
}

static int run(void)
{
    struct cede_graph_config c;
    struct cede_graph_statistics first;
    struct cede_graph *g = NULL;
    void *stream = NULL, *exec = NULL;
    unsigned word = 0;
    double update_us = 0;
    cede_graph_defaults(&c);
    c.max_batch = 1;
    if (rig.cu.stream_create(&stream, RIG_NON_BLOCKING) ||
        cede_graph_open(&c, stream, add_nodes, &word, &g) || cede_graph_prepare(g, 1) ||
        cede_graph_get_statistics(g, &first, sizeof(first)))
        return -EIO;
    if (first.graphs != 1) {
        fprintf(stderr, "bench_graph_cost: %s\n", first.error);
        return -EIO;
    }
    exec = make_direct(stream, &word);
    int r = exec ? measure(g, exec, stream, &word) : -EIO;
    if (!r)
        r = measure_update(g, stream, &word, &update_us);
    /* every round ran, and so did the warm-up of the cache */
    uint64_t want = o.nodes * (WAYS * (SETTLING + o.rounds) + 1);
    if (!r && (rig_word(&rig, 0) != (uint32_t)want || rig_word(&rig, 1) != o.nodes))
        r = -EIO;
    for (unsigned way = 0; way < WAYS; way++) {
        qsort(queued_ns[way], o.rounds, sizeof(uint64_t), compare);
        qsort(done_ns[way], o.rounds, sizeof(uint64_t), compare);
    }
    FILE *f = r || !o.json ? NULL : fopen(o.json, "we");
    if (!r)
        report(stdout, &first, update_us);
    if (f)
        report(f, &first, update_us);
    if (!r && o.json && (!f || fclose(f))) {
        fprintf(stderr, "bench_graph_cost: cannot write %s: %s\n", o.json, strerror(errno));
        r = -EIO;
    }
    cede_graph_close(g);
    if (exec)
        rig.cu.exec_destroy(exec);
    rig.cu.stream_destroy(stream);
    return r;
}

static int options(int argc, char **argv)
{
    static const struct option list[] = {{"nodes", 1, NULL, 'n'},
                                         {"rounds", 1, NULL, 'r'},
                                         {"json", 1, NULL, 'j'},
                                         {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", list, NULL)) != -1;) {
        int r = c == 'n'   ? parse_u64(optarg, 1, 100000, &o.nodes)
                : c == 'r' ? parse_u64(optarg, 1, ROUNDS_MAX, &o.rounds)
                : c == 'j' ? 0
                           : -EINVAL;
        o.json = c == 'j' ? optarg : o.json;
        if (r)
            return r;
    }
    return optind < argc ? -EINVAL : 0;
}

int main(int argc, char **argv)
{
    if (options(argc, argv)) {
        fprintf(stderr, "usage: bench_graph_cost [--nodes N] [--rounds N] [--json FILE]\n");
        return 2;
    }
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
