/* The host's side of what cede-load computes: what the GPU's results are compared with has to be
 * right itself. */
#include "../test.h"
#include "bench/load/kernels.h"
#include "bench/load/ops.h"
#include "bench/load/works.h"

#include <math.h>

TEST(prices)
{
    /* Spot 100, strike 100, one year, 3 %, 25 %: from the formula's tables. */
    double call, put;
    works_price(100, 100, 1, &call, &put);
    assert_true(fabs(call - 11.348) < 1e-3 && fabs(put - 8.393) < 1e-3);
    for (uint32_t i = 0; i < 100000; i += 7) {
        float s, x, t;
        works_option(i, &s, &x, &t);
        assert_true(s >= 10 && s < 110 && x >= 10 && x < 110 && t >= 0.1f && t < 2.2f);
        works_price((double)s, (double)x, (double)t, &call, &put);
        /* Put-call parity, and nothing is worth less than nothing. */
        double later = (double)x * exp(-0.03 * (double)t);
        assert_true(fabs(call - put - ((double)s - later)) < 1e-9 * (double)s);
        assert_true(call >= -1e-9 && put >= -1e-9 && call <= (double)s && put <= later + 1e-9);
    }
}

enum { N = 48 };
static float cells[2][N * N][4];

static void sums(const float (*q)[4], double out[4])
{
    memset(out, 0, 4 * sizeof(*out));
    for (int i = 0; i < N * N; i++) {
        assert_true(q[i][0] > 0 && q[i][3] > 0);
        for (int k = 0; k < 4; k++)
            out[k] += (double)q[i][k];
    }
}

TEST(fluid)
{
    double before[4], after[4], moved = 0;
    works_euler_fill(cells[0], N);
    sums((const float(*)[4])cells[0], before);
    float first = cells[0][N * N / 4][2];
    for (int step = 0; step < 400; step++)
        works_euler_step((const float(*)[4])cells[step % 2], cells[1 - step % 2], N);
    sums((const float(*)[4])cells[0], after);
    for (int k = 0; k < 4; k++)
        assert_true(fabs(after[k] - before[k]) < 1e-4 * before[0]);
    moved = fabs((double)(cells[0][N * N / 4][2] - first));
    assert_true(moved > 1e-3);

    /* What is the same everywhere stays as it is. */
    for (int i = 0; i < N * N; i++) {
        const float q[4] = {1, 0.5f, -0.25f, 3};
        memcpy(cells[0][i], q, sizeof(q));
    }
    works_euler_step((const float(*)[4])cells[0], cells[1], N);
    assert_memory_equal(cells[0], cells[1], sizeof(cells[0]));
}

TEST(names)
{
    assert_non_null(load_work("euler"));
    assert_non_null(load_work("blackscholes"));
    assert_null(load_work("spin")); /* is not a work of its own */
    assert_null(load_work(""));
}

TEST(chain_is_the_loop)
{
    uint32_t x = 12345;
    for (uint64_t n = 0; n < 3000; n++) {
        struct load_map m = load_chain(n);
        assert_int_equal(12345 * m.mul + m.add, x);
        x = x * SPIN_MUL + SPIN_ADD;
    }
    /* Full period: 2^32 steps lead back, fewer powers of two do not. */
    struct load_map m = load_chain(1ULL << 32), half = load_chain(1ULL << 31);
    assert_true(m.mul == 1 && m.add == 0);
    assert_true(half.mul != 1 || half.add != 0);
}

TEST(ptx_is_what_is_checked)
{
    char step[64], threads[32];
    snprintf(step, sizeof(step), "mad.lo.u32 %%x, %%x, %u, %u;", SPIN_MUL, SPIN_ADD);
    snprintf(threads, sizeof(threads), ".maxntid %u, 1, 1\n", SPIN_THREADS);
    assert_non_null(strstr(spin_ptx, step));
    assert_non_null(strstr(spin_ptx, threads));
    assert_non_null(strstr(spin_ptx, ".entry " SPIN_ENTRY "("));
    snprintf(step, sizeof(step), "x = x * %uU + %uU;", SPIN_MUL, SPIN_ADD);
    assert_non_null(strstr(spin_cl, step));
    assert_non_null(strstr(spin_cl, "__kernel void " SPIN_ENTRY "("));
}
