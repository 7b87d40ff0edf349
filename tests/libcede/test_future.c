/* The future map without a GPU, and on the stand-in for libcuda: values and inputs of any type and
 * stride, graphs, symbols without a value. */
#include "../random.h"
#include "cede/future.h"
#include "fake_gpu.h"
#include "fixture.h"

static char context[2];

static struct cede_futures *map_of(unsigned slots, unsigned flags)
{
    return OPEN(future, .slots = slots, .flags = flags);
}

static void close_map(struct cede_futures *f)
{
    cede_future_close(f);
    OK(fake_cuda.memory + fake_cuda.pinned + fake_cuda.modules + fake_cuda.bad);
}

static struct cede_future_array array(void *p, unsigned n, unsigned bytes, int64_t stride)
{
    return (struct cede_future_array){(uint64_t)(uintptr_t)p, stride, n, bytes};
}

TEST(refusals)
{
    struct cede_futures *f;
    int32_t v[4] = {0};
    struct cede_future_array a = array(v, 4, 4, 0);
    int64_t symbol;
    fake_cuda.current = NULL;
    assert_int_equal(cede_future_open(NULL, &f), -ENOSYS);
    fake_cuda.current = context;
    fake_cuda.fail_launch = 1;
    f = map_of(4, 0);
    OK(cede_future_reserve(f, 4, &symbol));
    assert_int_equal(cede_future_store(f, NULL, &a, symbol), -EIO);
    assert_non_null(strstr(STATS(future, f).error, "cannot launch"));
    OK(cede_future_release(f, symbol));
    assert_int_equal(cede_future_release(f, symbol), -ENOENT);
    assert_int_equal(STATS(future, f).free, 4);
    close_map(f);
}

TEST(symbols_go_round)
{
    assert_int_equal(cede_future_symbol(-7, 3), -10);
    assert_int_equal(cede_future_symbol(-CEDE_FUTURE_POSITIONS, 0), -CEDE_FUTURE_POSITIONS);
    assert_int_equal(cede_future_symbol(-CEDE_FUTURE_POSITIONS, 1), -1);
    assert_int_equal(cede_future_symbol(-CEDE_FUTURE_POSITIONS + 1, 3), -2);
}

static int64_t get(const void *p, unsigned bytes, int64_t at)
{
    return bytes == 8 ? ((const int64_t *)p)[at] : ((const int32_t *)p)[at];
}

static void set(void *p, unsigned bytes, int64_t at, int64_t value)
{
    if (bytes == 8)
        ((int64_t *)p)[at] = value;
    else
        ((int32_t *)p)[at] = (int32_t)value;
}

#define MOST 40

/* Values of one type and stride, and inputs of another: symbols become their values, all else
 * stays. On the stand-in the kernels run long after they were launched. */
TEST(any_type_and_stride)
{
    static const int64_t strides[] = {0, 1, 2, 3, -1, -2};
    for (unsigned run = 0; run < 400; run++) {
        state = run;
        struct cede_futures *f = map_of(64, run & 1 ? CEDE_FUTURE_NO_GPU : 0);
        for (unsigned round = 0; round < 4; round++) {
            int64_t from[4 * MOST], to[4 * MOST], want[4 * MOST], first;
            unsigned n = 1 + (unsigned)rnd(MOST), m = 1 + (unsigned)rnd(MOST);
            unsigned b = rnd(2) ? 4 : 8, c = rnd(2) ? 4 : 8;
            int64_t s = strides[rnd(6)], t = strides[rnd(6)];
            int64_t at = s < 0 ? 3 * MOST : 0, bt = t < 0 ? 3 * MOST : 0;
            for (unsigned i = 0; i < 4 * MOST; i++)
                set(from, b, i, (int64_t)rnd(100000) - (b == 8 ? 50000 : 1000));
            for (unsigned i = 0; i < 4 * MOST; i++)
                set(to, c, i, (int64_t)i);
            OK(cede_future_reserve(f, n, &first));
            memcpy(want, to, sizeof(to));
            for (unsigned i = 0; i < m; i++) {
                unsigned k = (unsigned)rnd(n);
                int64_t value = get(from, b, at + k * (s ? s : 1));
                if (rnd(3) == 0)
                    continue;
                set(to, c, bt + i * (t ? t : 1), cede_future_symbol(first, k));
                set(want, c, bt + i * (t ? t : 1), value);
            }
            struct cede_future_array values = array((char *)from + at * b, n, b, s);
            struct cede_future_array inputs = array((char *)to + bt * c, m, c, t);
            OK(cede_future_store(f, NULL, &values, first));
            OK(cede_future_resolve(f, NULL, &inputs));
            fake_drain();
            assert_memory_equal(to, want, sizeof(to));
            OK(cede_future_release(f, first));
        }
        assert_int_equal(STATS(future, f).missing, 0);
        close_map(f);
    }
}

/* More than a block of threads has, and past the end of the ring. */
TEST(a_large_step)
{
    static int32_t values[1000];
    static int64_t inputs[1000];
    struct cede_futures *f = map_of(1024, 0);
    struct cede_future_array v = array(values, 1000, 4, 0), in = array(inputs, 1000, 8, 0);
    for (unsigned round = 0; round < 3; round++) {
        int64_t first;
        OK(cede_future_reserve(f, 1000, &first));
        for (unsigned i = 0; i < 1000; i++) {
            values[i] = (int32_t)(round * 5000 + i);
            inputs[i] = cede_future_symbol(first, 999 - i);
        }
        OK(cede_future_store(f, NULL, &v, first));
        OK(cede_future_resolve(f, NULL, &in));
        fake_drain();
        for (unsigned i = 0; i < 1000; i++)
            assert_int_equal(inputs[i], values[999 - i]);
        OK(cede_future_release(f, first));
    }
    OK(STATS(future, f).missing);
    close_map(f);
}

/* Resolved inputs: 0 for a symbol without a value, which is `missing` then. */
static void resolved(struct cede_futures *f, int64_t *inputs, const int64_t *want, int64_t missing)
{
    const struct cede_future_array in = array(inputs, 4, 8, 0);
    OK(cede_future_resolve(f, NULL, &in));
    fake_drain();
    assert_memory_equal(inputs, want, 4 * sizeof(*want));
    assert_int_equal(STATS(future, f).missing, missing);
}

TEST(symbols_without_a_value)
{
    struct cede_futures *f = map_of(4, 0);
    int32_t values[4] = {10, 11, 12, 13};
    int64_t first, second;
    struct cede_future_array v = array(values, 4, 4, 0);
    cede_future_reserve(f, 4, &first);
    v.n = 1; /* the second is not stored */
    cede_future_store(f, NULL, &v, first);
    resolved(f, (int64_t[]){first, 5, first - 1, 6}, (int64_t[]){10, 5, 0, 6}, first - 1);
    /* a symbol of before, whose slot another has now */
    cede_future_release(f, first);
    cede_future_reserve(f, 4, &second);
    v.n = 4;
    cede_future_store(f, NULL, &v, second);
    resolved(f, (int64_t[]){first, 5, 0, 6}, (int64_t[]){0, 5, 0, 6}, first);
    /* a graph with room for more values than there are this time */
    cede_future_release(f, second);
    cede_future_reserve(f, 4, &first);
    cede_future_place(f, NULL, first, 2);
    cede_future_store_placed(f, NULL, &v);
    resolved(f, (int64_t[]){first - 1, 5, first - 2, 6}, (int64_t[]){11, 5, 0, 6}, first - 2);
    resolved(f, (int64_t[]){INT64_MIN, 5, 0, 6}, (int64_t[]){0, 5, 0, 6}, INT64_MIN);
    close_map(f);
}

/* One graph, launched for blocks at other places and of other sizes, several of them waiting at a
 * time: of everything that changes, nothing is in the graph. */
TEST(graphs)
{
    struct cede_futures *f = map_of(8, 0);
    int32_t values[4], inputs[4], expected[3][4];
    int32_t staged[3][2][4];
    int64_t first[3];
    struct cede_future_array v = array(values, 4, 4, 0), in = array(inputs, 4, 4, 0);
    struct fake_graph *g = fake_capture();
    cede_future_resolve(f, NULL, &in);
    cede_future_store_placed(f, NULL, &v);
    fake_capture_end();
    for (unsigned round = 0; round < 50; round++) {
        for (unsigned k = 0; k < 3; k++) {
            unsigned n = 1 + (round + k) % 2;
            cede_future_reserve(f, n, &first[k]);
            for (unsigned i = 0; i < 4; i++) {
                staged[k][0][i] = (int32_t)(round * 100 + k * 10 + i);
                bool symbol = k > 0 && i < 1 + (round + k - 1) % 2;
                staged[k][1][i] =
                    symbol ? (int32_t)cede_future_symbol(first[k - 1], i) : (int32_t)i;
                expected[k][i] = symbol ? staged[k - 1][0][i] : (int32_t)i;
            }
            cuMemcpyHtoDAsync_v2((uint64_t)(uintptr_t)values, staged[k][0], sizeof(values), NULL);
            cuMemcpyHtoDAsync_v2((uint64_t)(uintptr_t)inputs, staged[k][1], sizeof(inputs), NULL);
            OK(cede_future_place(f, NULL, first[k], n));
            fake_replay(g);
        }
        for (unsigned k = 0; k < 3; k++) {
            fake_run(5); /* two copies, place, resolve, store */
            assert_memory_equal(inputs, expected[k], sizeof(inputs));
        }
        for (unsigned k = 0; k < 3; k++)
            OK(cede_future_release(f, first[k]));
    }
    assert_int_equal(STATS(future, f).missing, 0);
    fake_graph_free(g);
    close_map(f);
}

int main(void)
{
    fake_cuda.current = context;
    return test_run(NULL, NULL);
}
