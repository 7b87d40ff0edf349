/* What an acquire that need not wait, and its release, cost from one thread, without a GPU: the
 * stream is there already on a real one too. Medians over rounds.
 *
 * usage: bench_lease_cost */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "cede/lease.h"
#include "lib/util.h"

#define ROUNDS 101
#define CALLS  10000

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One pair of calls; beside: leases that are out meanwhile. */
static double ns_each(unsigned devices, int device, unsigned beside, double max_slowdown)
{
    static double v[ROUNDS];
    struct cede_pool_config c;
    struct cede_pool *p;
    struct cede_shape shape = {.blocks = 64, .threads = 256};
    struct cede_lease l;
    bool ok = true;
    cede_pool_defaults(&c);
    c.flags = CEDE_POOL_NO_GPU;
    c.devices = devices;
    c.max_slowdown = max_slowdown;
    if (cede_pool_open(&c, &p) || cede_pool_occupancy(p, "gemm", 0.01))
        return -1;
    for (unsigned i = 0; i < beside; i++)
        ok &= cede_acquire(p, device, "gemm", &shape, 0, &l) == 0;
    for (unsigned k = 0; k < ROUNDS; k++) {
        uint64_t t = monotonic_ns();
        for (int i = 0; i < CALLS; i++) {
            ok &= cede_acquire(p, device, "gemm", &shape, 1000, &l) == 0;
            ok &= cede_release(&l) == 0;
        }
        v[k] = (double)(monotonic_ns() - t) / CALLS;
    }
    cede_pool_close(p);
    qsort(v, ROUNDS, sizeof(*v), compare);
    return ok ? v[ROUNDS / 2] : -1;
}

int main(void)
{
    double one = ns_each(1, 0, 0, 0), beside = ns_each(1, 0, 10, 0), adaptive = ns_each(1, 0, 0, 2),
           eight = ns_each(8, CEDE_ANY_DEVICE, 80, 0);
    printf("{\"pairs\":%d,\"rounds\":%d,\"one_gpu_ns\":%.1f,\"ten_beside_ns\":%.1f,"
           "\"adaptive_ns\":%.1f,\"any_of_eight_ns\":%.1f}\n",
           CALLS, ROUNDS, one, beside, adaptive, eight);
    return one > 0 && beside > 0 && adaptive > 0 && eight > 0 ? 0 : 1;
}
