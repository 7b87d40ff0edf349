/* Threads that share the GPUs by leases, in a scope: the first failure cancels all tasks. See
 * cede_acquire(3) and cede_scope_open(3). Runs without a GPU too: streams are NULL then. A sleep
 * stands for the work.
 *
 *     cc leases.c $(pkg-config --cflags --libs cede) -o leases */
#include <cede/scope.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct cede_pool *pool;

static int infer(struct cede_scope *s, void *arg)
{
    const struct cede_shape shape = {.blocks = 64, .threads = 256, .priority = arg ? 1 : 0};
    struct cede_lease lease;
    int r = cede_acquire(pool, 0, "gemm", &shape, CEDE_TIMEOUT_DEFAULT, &lease);
    if (r < 0)
        return r;
    usleep(1000); /* in place of: cuCtxSetCurrent() of lease.device, cuLaunchKernel() on
                     lease.stream, cuStreamSynchronize() */
    return cede_release(&lease);
}

int main(void)
{
    struct cede_pool_config config;
    struct cede_pool_statistics st;
    struct cede_scope *s;
    cede_pool_defaults(&config);
    int r = cede_pool_open(&config, &pool);
    if (r < 0) {
        fprintf(stderr, "cannot open a pool: %s\n", strerror(-r));
        return 1;
    }
    cede_pool_occupancy(pool, "gemm", 0.3); /* or cede_pool_kernel() with its CUfunction */
    r = cede_scope_open(&s, NULL, 8, 10000000);
    for (int i = 0; r == 0 && i < 100; i++)
        r = cede_scope_fork(s, infer, i % 10 ? NULL : &pool);
    int failed = cede_scope_join(s);
    cede_scope_close(s);
    cede_pool_get_statistics(pool, 0, &st, sizeof(st));
    printf("%llu leases on the first of %u GPUs%s, %s\n", (unsigned long long)st.started,
           st.devices, st.has_gpu ? "" : " (none is there)",
           r || failed ? strerror(-(r ? r : failed)) : "ok");
    cede_pool_close(pool);
    return r || failed;
}
