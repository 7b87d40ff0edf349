/* The kernels of examples/decode for GPUs, compiled for the host: the threads of a block are
 * contexts that take turns, and meet where lanes exchange values and at barriers. They give what
 * those in cpu.c give but for rounding, and a row's result is the same bits whatever the number of
 * rows. */
#include <math.h>
#include <ucontext.h>

#include "../random.h"
#include "../test.h"

/* ---- what CUDA has --------------------------------------------------------------------------- */

#define THREADS 256
#define LANES   32

static struct dim {
    unsigned x, y;
} threadIdx, blockIdx, blockDim;

static struct thread {
    ucontext_t context;
    char stack[32768];
    enum thread_state { RUNS, AT_EXCHANGE, AT_BARRIER, ENDED } is;
    float given[2]; /* of this exchange and the one before it, by turns */
    unsigned exchanges;
} threads[THREADS];
static ucontext_t scheduler;

static void stop_at(unsigned t, enum thread_state is)
{
    threads[t].is = is;
    swapcontext(&threads[t].context, &scheduler);
}

static float exchanged(float v, unsigned from)
{
    const unsigned t = threadIdx.x, turn = threads[t].exchanges++ % 2;
    threads[t].given[turn] = v;
    stop_at(t, AT_EXCHANGE);
    return threads[t / LANES * LANES + from].given[turn];
}

static float shfl_down(float v, int lanes)
{
    const unsigned from = threadIdx.x % LANES + (unsigned)lanes;
    return exchanged(v, from < LANES ? from : threadIdx.x % LANES);
}

static float as_float(unsigned bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

typedef struct {
    float x, y;
} float2;

#define KERNEL                       static void
#define __device__                   __attribute__((unused))
#define __shared__                   static
#define __uint_as_float              as_float
#define __expf                       expf
#define rsqrtf(v)                    (1 / sqrtf(v))
#define __syncthreads()              stop_at(threadIdx.x, AT_BARRIER)
#define __shfl_down_sync(mask, v, n) shfl_down(v, n)
#define __shfl_sync(mask, v, lane)   exchanged(v, lane)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#include "../../examples/decode/kernels.cu"
#pragma GCC diagnostic pop

static struct work work;
static enum kernel kernel;
static int rows;

static void body(void)
{
    if (kernel == EMBED)
        decode_embed(work);
    else if (kernel == NORM)
        decode_norm(work);
    else if (kernel == LINEAR)
        decode_linear(work, rows);
    else if (kernel == ATTEND)
        decode_attend(work);
    else if (kernel == CHOOSE)
        decode_choose(work);
    else if (kernel == GELU)
        decode_gelu(work);
    else
        decode_take(work);
    threads[threadIdx.x].is = ENDED;
}

/* A warp runs until all of its lanes have stopped. Those of a warp stop alike. */
static void run_warp(unsigned first)
{
    for (unsigned t = first; t < first + LANES; t++) {
        threadIdx.x = t;
        threads[t].is = RUNS;
        swapcontext(&scheduler, &threads[t].context);
        assert_int_equal(threads[t].is, threads[first].is);
    }
}

static void run_block(unsigned n)
{
    unsigned at_barrier, ended;
    blockDim.x = n;
    for (unsigned t = 0; t < n; t++) {
        getcontext(&threads[t].context);
        threads[t].context.uc_stack.ss_sp = threads[t].stack;
        threads[t].context.uc_stack.ss_size = sizeof(threads[t].stack);
        threads[t].context.uc_link = &scheduler;
        threads[t].is = RUNS;
        makecontext(&threads[t].context, body, 0);
    }
    do {
        at_barrier = ended = 0;
        for (unsigned t = 0; t < n; t += LANES) {
            while (threads[t].is == RUNS || threads[t].is == AT_EXCHANGE)
                run_warp(t);
            at_barrier += threads[t].is == AT_BARRIER;
            ended += threads[t].is == ENDED;
        }
        for (unsigned t = 0; t < n && at_barrier; t++)
            threads[t].is = threads[t].is == AT_BARRIER ? RUNS : ENDED;
    } while (ended < n / LANES);
}

/* As cuda.c launches them. */
static void run_kernel(enum kernel k, unsigned blocks, unsigned n, const struct work *w)
{
    static const unsigned of_block[KERNELS] = {128, 32, 256, 256, 256, 256, 256};
    const unsigned blocks_y = k == LINEAR ? (n + 7) / 8 : n;
    kernel = k;
    work = *w;
    rows = (int)n;
    for (blockIdx.y = 0; blockIdx.y < blocks_y; blockIdx.y++) {
        for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
            run_block(of_block[k]);
    }
}

/* ---- the two devices beside each other ------------------------------------------------------- */

#define ROWS_MAX  10
#define WIDTH     128
#define HEADS     2
#define PAGES     4 /* that a row may have */
#define PAGES_ALL (ROWS_MAX * PAGES)
#define IN_MAX    (4 * WIDTH)
#define CACHE     (2 * PAGES_ALL * PAGE * WIDTH * 2)

static struct device cpu;
static float x[ROWS_MAX * IN_MAX], y[2][ROWS_MAX * IN_MAX], cache[2][CACHE];
static uint16_t weights[IN_MAX * IN_MAX];
static int32_t token[ROWS_MAX], position[ROWS_MAX], pages[ROWS_MAX * PAGES];

static uint64_t at(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

static float random_float(void)
{
    return (float)rnd(1u << 20) / (1 << 19) - 1;
}

static void fill_inputs(void)
{
    for (size_t i = 0; i < ROWS_MAX * IN_MAX; i++) {
        x[i] = random_float();
        y[0][i] = y[1][i] = random_float();
    }
    for (size_t i = 0; i < CACHE; i++)
        cache[0][i] = cache[1][i] = random_float();
    for (size_t i = 0; i < IN_MAX * IN_MAX; i++) /* up to 2 in size */
        weights[i] = (uint16_t)(rnd(2) << 15 | (0x3c00 + rnd(0x400)));
    for (int i = 0; i < PAGES_ALL; i++)
        pages[i] = i;
    for (int i = PAGES_ALL - 1; i > 0; i--) {
        const int other = (int)rnd((uint64_t)i + 1), page = pages[i];
        pages[i] = pages[other];
        pages[other] = page;
    }
    const int filled = ROWS_MAX - (int)rnd(ROWS_MAX); /* the others are empty */
    for (int i = 0; i < ROWS_MAX; i++) {
        token[i] = (int32_t)rnd(WIDTH);
        position[i] = i >= filled ? -1 : i < 3 ? i : (int32_t)rnd(PAGES * PAGE);
    }
}

static void run_both(enum kernel k, unsigned blocks, struct work w)
{
    w.y = at(y[0]);
    w.cache = at(cache[0]);
    assert_int_equal(cpu.launch(NULL, k, blocks, ROWS_MAX, &w), 0);
    w.y = at(y[1]);
    w.cache = at(cache[1]);
    run_kernel(k, blocks, ROWS_MAX, &w);
}

static void same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_float_equal(a[i], b[i], 1e-4f * (1 + fabsf(a[i])));
}

/* What a row gets as the only one. */
static void same_alone(enum kernel k, unsigned blocks, struct work w, int numbers,
                       const float *before)
{
    for (int row = 0; row < ROWS_MAX; row++) {
        static float alone[IN_MAX];
        struct work one = w;
        memcpy(alone, before + row * numbers, (size_t)numbers * sizeof(*alone));
        one.y = at(alone);
        one.x += (uint64_t)(row * w.in) * sizeof(*x);
        one.position += (uint64_t)row * sizeof(*position);
        one.pages += (uint64_t)(row * PAGES) * sizeof(*pages);
        one.cache = at(cache[1]);
        run_kernel(k, blocks, 1, &one);
        assert_memory_equal(alone, y[1] + row * numbers, (size_t)numbers * sizeof(*alone));
    }
}

static struct work work_of(int in, int out)
{
    return (struct work){.x = at(x),
                         .w = at(weights),
                         .token = at(token),
                         .position = at(position),
                         .pages = at(pages),
                         .in = in,
                         .out = out,
                         .heads = HEADS,
                         .pages_max = PAGES,
                         .layer = 1,
                         .page_count = PAGES_ALL};
}

TEST(embed_and_norm)
{
    fill_inputs();
    run_both(EMBED, 1, work_of(0, WIDTH));
    assert_memory_equal(y[0], y[1], sizeof(y[0]));
    run_both(NORM, 1, work_of(WIDTH, 0));
    same(y[0], y[1], ROWS_MAX * IN_MAX);
}

TEST(linear_layers)
{
    static const int sizes[][2] = {{WIDTH, 3 * WIDTH}, {4 * WIDTH, WIDTH}, {64, 20}};
    static float before[ROWS_MAX * IN_MAX];
    for (int i = 0; i < 6; i++) {
        struct work w = work_of(sizes[i % 3][0], sizes[i % 3][1]);
        w.adds = i % 2;
        w.gelu = i / 3;
        fill_inputs();
        memcpy(before, y[1], sizeof(before));
        run_both(LINEAR, (unsigned)(w.out + 7) / 8, w);
        same(y[0], y[1], ROWS_MAX * IN_MAX);
        same_alone(LINEAR, (unsigned)(w.out + 7) / 8, w, w.out, before);
    }
}

TEST(attention)
{
    for (int i = 0; i < 4; i++) {
        struct work w = work_of(3 * WIDTH, WIDTH);
        fill_inputs();
        memcpy(y[0], x, sizeof(y[0]));
        memcpy(y[1], x, sizeof(y[1]));
        run_both(ATTEND, HEADS, w);
        same(y[0], y[1], ROWS_MAX * WIDTH);
        same(cache[0], cache[1], CACHE);
        same_alone(ATTEND, HEADS, w, WIDTH, x);
    }
}

TEST(choice)
{
    for (unsigned i = 0; i < 20; i++) {
        fill_inputs();
        for (size_t k = 0; i % 2 && k < ROWS_MAX * IN_MAX; k++)
            x[k] = (float)rnd(3); /* many are the largest: the first is chosen */
        run_both(CHOOSE, 1, work_of(IN_MAX - (int)i, 0));
        assert_memory_equal(y[0], y[1], sizeof(y[0]));
    }
}

TEST(after_a_product)
{
    for (int i = 0; i < 3; i++) {
        struct work w = work_of(0, i == 0 ? 20 : i == 1 ? 256 : IN_MAX - 3);
        fill_inputs();
        run_both(GELU, (unsigned)(w.out + 255) / 256, w);
        same(y[0], y[1], ROWS_MAX * IN_MAX);
    }
}

TEST(inputs_from_the_host)
{
    for (int n = 255; n < 515; n += 129) {
        const struct work w = {.x = at(x), .out = n};
        fill_inputs();
        for (int i = 0; i < 2; i++) {
            struct work to = w;
            to.y = at(y[i]);
            if (i == 0)
                assert_int_equal(cpu.launch(NULL, TAKE, (unsigned)(n + 255) / 256, 1, &to), 0);
            else
                run_kernel(TAKE, (unsigned)(n + 255) / 256, 1, &to);
            assert_memory_equal(y[i], x, (size_t)n * sizeof(*x));
            assert_memory_not_equal(y[i] + n, x + n, sizeof(*x));
        }
    }
}

int main(void)
{
    cpu_open(&cpu);
    return test_run(NULL, NULL);
}
