/* What an acquire that need not wait, and its release, cost from one thread, without a GPU: the
 * stream is there already on a real one too. Medians over rounds.
 *
 * usage: bench_lease_cost */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/cost.h"
#include "cede/lease.h"

#define CALLS 10000

struct pairs {
    struct cede_pool *pool;
    int device;
    bool failed;
};

static int acquire(const struct pairs *p, struct cede_lease *l, int64_t timeout_us)
{
    const struct cede_shape shape = {.blocks = 64, .threads = 256};
    return cede_acquire(p->pool, p->device, "gemm", &shape, timeout_us, l);
}

static void pairs_round(void *arg)
{
    struct pairs *p = arg;
    struct cede_lease l;
    for (int i = 0; i < CALLS; i++)
        p->failed |= acquire(p, &l, 1000) || cede_release(&l);
}

/* One pair of calls; beside: leases that are out meanwhile. */
static double ns_each(unsigned devices, int device, unsigned beside, double max_slowdown)
{
    struct cede_pool_config c;
    struct pairs p = {.device = device};
    struct cede_lease l;
    cede_pool_defaults(&c);
    c.flags = CEDE_POOL_NO_GPU;
    c.devices = devices;
    c.max_slowdown = max_slowdown;
    if (cede_pool_open(&c, &p.pool) || cede_pool_occupancy(p.pool, "gemm", 0.01))
        return -1;
    for (unsigned i = 0; i < beside; i++)
        p.failed |= acquire(&p, &l, 0) != 0;
    double ns = cost_of_call(pairs_round, &p, CALLS);
    cede_pool_close(p.pool);
    return p.failed ? -1 : ns;
}

int main(void)
{
    double one = ns_each(1, 0, 0, 0), beside = ns_each(1, 0, 10, 0), adaptive = ns_each(1, 0, 0, 2),
           eight = ns_each(8, CEDE_ANY_DEVICE, 80, 0);
    printf("{\"pairs\":%d,\"rounds\":%d,\"one_gpu_ns\":%.1f,\"ten_beside_ns\":%.1f,"
           "\"adaptive_ns\":%.1f,\"any_of_eight_ns\":%.1f}\n",
           CALLS, COST_ROUNDS, one, beside, adaptive, eight);
    return one > 0 && beside > 0 && adaptive > 0 && eight > 0 ? 0 : 1;
}
