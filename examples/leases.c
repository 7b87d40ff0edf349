/* Threads that share the GPUs by leases, in a scope: the first failure cancels all tasks. See
 * cede_acquire(3) and cede_scope_open(3). Runs without a GPU too: streams are NULL then. A sleep
 * stands for the work.
 *
 *     cc leases.c $(pkg-config --cflags --libs cede) -o leases */
#include <cede/scope.h>
#include <stdio.h>
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
    if (cede_pool_open(&config, &pool) < 0 || cede_scope_open(&s, NULL, 8, 10000000) < 0) {
        fprintf(stderr, "%s\n", cede_error_text());
        return 1;
    }
    cede_pool_occupancy(pool, "gemm", 0.3); /* or cede_pool_kernel() with its CUfunction */
    for (int i = 0; i < 100; i++)
        if (cede_scope_fork(s, infer, i % 10 ? NULL : &pool) < 0)
            cede_scope_cancel(s);
    int r = cede_scope_join(s);
    if (r < 0)
        fprintf(stderr, "%s\n", cede_error_text()); /* why the first task failed */
    cede_scope_close(s);
    cede_pool_get_statistics(pool, 0, &st, sizeof(st));
    printf("%llu leases on the first of %u GPUs%s, %s\n", (unsigned long long)st.started,
           st.devices, st.has_gpu ? "" : " (none is there)", r < 0 ? "failed" : "ok");
    cede_pool_close(pool);
    return r < 0;
}
