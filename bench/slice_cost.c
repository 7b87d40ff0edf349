/* What slices cost: the same work as one launch, and by cede_slice_run() with one and with two
 * slices queued. The three take turns in each round. "cost" is how much longer the slices took than
 * the one launch, at the median of rounds. An element is a block of 256 threads; with --multiple,
 * slices have a multiple of so many, such as of all that run at once. Needs libcuda, and exits 77
 * without a GPU; --cpu computes on the CPU, only to see that this program works.
 *
 * usage: bench_slice_cost [--target-us N] [--ms N] [--rounds N] [--iters N] [--multiple N] [--cpu]
 *                         [--json FILE]
 */
#include <errno.h>
#include <stdlib.h>

#include "bench/cost.h"
#include "bench/graph_add.h"
#include "bench/graph_rig.h"
#include "bench/kernels.h"
#include "cede/slice.h"

#define ROUNDS_MAX 1000U
#define GRID_MAX   2147483647U
#define WORDS      1024U /* of slice_spin.ptx, */
#define LINE       128U  /* a line each */

enum { WHOLE, DEPTH_1, DEPTH_2, WAYS };
static const char *const names[WAYS] = {"whole", "depth_1", "depth_2"};

static struct {
    uint64_t target_us, ms, rounds, iters, multiple;
    bool cpu;
    const char *json;
} o = {.target_us = 500, .ms = 1000, .rounds = 9, .iters = 300, .multiple = 1};

static struct rig rig;
static void *spin, *stream;
static rig_pointer word;
static uint32_t counted;  /* elements that were launched, of 32 bits */
static uint64_t elements; /* of a run */
static double took_ms[WAYS][ROUNDS_MAX];
static struct cede_slice_progress seen[WAYS];

static int launch(void *unused, uint64_t first, uint64_t count, void *on)
{
    uint32_t iters = (uint32_t)o.iters;
    void *params[] = {&word, &iters};
    counted += (uint32_t)count;
    if (!o.cpu)
        return rig.cu.launch(spin, (unsigned)count, 1, 1, 256, 1, 1, 0, on, params, NULL) ? -EIO
                                                                                          : 0;
    volatile uint32_t x = 0;
    for (uint64_t i = 0; i < count * iters; i++)
        x = x * 1664525U + 1013904223U;
    return 0;
}

static struct cede_slice_config config_of(uint64_t count, unsigned depth)
{
    struct cede_slice_config c;
    cede_slice_defaults(&c);
    c.flags = o.cpu ? CEDE_SLICE_NO_GPU : 0;
    c.depth = depth;
    c.target_us = o.target_us;
    c.multiple = o.multiple;
    c.count = count;
    c.stream = stream;
    c.launch = launch;
    return c;
}

static int run_way(unsigned way, double *ms)
{
    const uint64_t start = monotonic_ns();
    int r;
    if (way == WHOLE) {
        r = launch(NULL, 0, elements, stream);
        if (r == 0 && !o.cpu)
            r = rig.cu.stream_synchronize(stream) ? -EIO : 0;
    } else {
        const struct cede_slice_config c = config_of(elements, way);
        struct cede_slice_progress *p = &seen[way];
        *p = (struct cede_slice_progress){.next_count = p->next_count};
        r = cede_slice_run(&c, p);
        if (r < 0)
            fprintf(stderr, "bench_slice_cost: %s\n", p->error);
    }
    *ms = cost_ms_since(start);
    return r;
}

/* How many elements take `ms`; 0: it failed. */
static uint64_t calibrate(void)
{
    struct cede_slice_progress p = {.done = 0};
    struct cede_slice_config c = config_of(GRID_MAX, 2);
    c.timeout_us = 300000;
    int r = cede_slice_run(&c, &p);
    if ((r && r != -ETIMEDOUT) || !p.gpu_us) {
        fprintf(stderr, "bench_slice_cost: %s\n", p.error);
        return 0;
    }
    double n = (double)p.done / (double)p.gpu_us * (double)o.ms * 1000;
    return n < 1 ? 1 : n < GRID_MAX ? (uint64_t)n : GRID_MAX;
}

static void report(FILE *f)
{
    fputc('{', f);
    rig_describe(f, o.cpu ? NULL : &rig, "cpu");
    fprintf(f,
            ",\"target_us\":%llu,\"iters\":%llu,\"multiple\":%llu,\"elements\":%llu,"
            "\"rounds\":%llu",
            (unsigned long long)o.target_us, (unsigned long long)o.iters,
            (unsigned long long)o.multiple, (unsigned long long)elements,
            (unsigned long long)o.rounds);
    for (unsigned way = 0; way < WAYS; way++) {
        const double *t = took_ms[way], median = t[o.rounds / 2];
        const struct cede_slice_progress *p = &seen[way];
        fprintf(f, ",\"%s\":{\"min_ms\":%.3f,\"p50_ms\":%.3f,\"max_ms\":%.3f", names[way], t[0],
                median, t[o.rounds - 1]);
        if (way != WHOLE)
            fprintf(f, ",\"cost\":%.4f,\"slices\":%llu,\"slice_us\":%.1f,\"idle_us\":%llu",
                    median / took_ms[WHOLE][o.rounds / 2] - 1, (unsigned long long)p->slices,
                    (double)p->gpu_us / (double)p->slices, (unsigned long long)p->idle_us);
        fputc('}', f);
    }
    fputs("}\n", f);
}

/* The elements that ran, as the blocks themselves counted. */
static int ran(uint32_t *found)
{
    static uint32_t lines[WORDS * LINE / sizeof(uint32_t)];
    *found = 0;
    if (rig.cu.copy_out(lines, word, sizeof(lines)))
        return -EIO;
    for (unsigned i = 0; i < WORDS; i++)
        *found += lines[i * LINE / sizeof(uint32_t)];
    return 0;
}

static int measure(void)
{
    double ms;
    elements = calibrate();
    int r = elements ? run_way(DEPTH_2, &ms) : -EIO; /* not counted: all is warm then */
    for (unsigned i = 0; r == 0 && i < o.rounds; i++) {
        for (unsigned way = 0; r == 0 && way < WAYS; way++)
            r = run_way(way, &took_ms[way][i]);
    }
    uint32_t found = counted;
    if (r == 0 && !o.cpu)
        r = ran(&found);
    if (r == 0 && found != counted) {
        fprintf(stderr, "bench_slice_cost: %u elements ran, and %u were launched\n", found,
                counted);
        r = -EIO;
    }
    for (unsigned way = 0; way < WAYS; way++)
        cost_sort(took_ms[way], o.rounds);
    return r ? r : cost_report("bench_slice_cost", o.json, report);
}

static int run_on_gpu(void)
{
    static const uint32_t zeros[WORDS * LINE / sizeof(uint32_t)];
    void *module = NULL;
    const char *missing = rig_open(&rig, graph_add_ptx);
    if (missing) {
        fprintf(stderr, "bench_slice_cost: %s\n", missing);
        return 77;
    }
    int r = rig.cu.module_load(&module, slice_spin_ptx) ||
                    rig.cu.module_function(&spin, module, "slice_spin") ||
                    rig.cu.mem_alloc(&word, sizeof(zeros)) ||
                    rig.cu.copy_in(word, zeros, sizeof(zeros)) ||
                    rig.cu.stream_create(&stream, RIG_NON_BLOCKING)
                ? -EIO
                : measure();
    if (r)
        fprintf(stderr, "bench_slice_cost: a call of the driver failed, or work did not run\n");
    return r ? 1 : 0;
}

int main(int argc, char **argv)
{
    static const struct command_line line = {
        .program = "bench_slice_cost",
        .help = "usage: bench_slice_cost [--target-us N] [--ms N] [--rounds N] [--iters N] "
                "[--multiple N] [--cpu] [--json FILE]\n"};
    const struct option_row options[] = {
        {"target-us", COST_WHOLE(&o.target_us, 1, CEDE_SLICE_TARGET_MAX_US)},
        {"ms", COST_WHOLE(&o.ms, 1, 60000)},
        {"rounds", COST_WHOLE(&o.rounds, 1, ROUNDS_MAX)},
        {"iters", COST_WHOLE(&o.iters, 1, 100000000)},
        {"multiple", COST_WHOLE(&o.multiple, 1, GRID_MAX)},
        {"cpu", .flag = &o.cpu},
        {"json", .text = &o.json},
    };
    int status = cost_options(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    return o.cpu ? measure() != 0 : run_on_gpu();
}
