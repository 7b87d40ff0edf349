/* One of two programs of a loop, on the software GPU: waits for its turn, takes the GPU back, does
 * some work, gives the GPU away and passes the turn on. A turn is a line on standard input, with
 * the sum so far; passing it on one on standard output. Each ended kernel adds its number to the
 * sum. usage: loop BYTES ROUNDS MS     ends with status 0 after so many turns; MS of work in each
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cede/cede.h"
#include "gpu/soft/client.h"

static void fail(const char *what, int r)
{
    fprintf(stderr, "%s: %d\n", what, r);
    exit(1);
}

static void must(const char *what, int r)
{
    if (r)
        fail(what, r);
}

/* Adds the numbers of the kernels that ended, in the order in which they have to. */
static unsigned long work(struct soft_client *gpu, unsigned ms, unsigned long long *cookie)
{
    unsigned long sum = 0;
    for (unsigned i = 0; i < ms; i++) {
        struct soft_kernel k = {.duration_ns = 1000000, .sm_fraction = 1, .cookie = ++*cookie};
        must("submit", soft_client_submit(gpu, &k));
    }
    for (unsigned i = 0; i < ms; i++) {
        struct soft_completion done;
        must("wait", soft_client_wait(gpu, 200000000000, &done));
        if (done.cookie != *cookie - ms + 1 + i)
            fail("out of order", (int)i);
        sum += done.cookie;
    }
    return sum;
}

int main(int argc, char **argv)
{
    cede_handle *c;
    struct soft_client *gpu;
    unsigned long sum, rounds;
    unsigned long long cookie = 0;
    if (argc != 4)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    must("connect", cede_connect(&c));
    rounds = strtoul(argv[2], NULL, 10);
    for (unsigned long i = 0; i < rounds; i++) {
        if (scanf("%lu", &sum) != 1)
            fail("no turn", (int)i);
        if (i == 0) {
            must("open", soft_client_open(NULL, 0, NULL, &gpu));
            must("alloc", soft_client_alloc(gpu, strtol(argv[1], NULL, 10)));
        }
        must("acquire", cede_job_acquire(c, 200000000));
        sum += work(gpu, (unsigned)strtoul(argv[3], NULL, 10), &cookie);
        int r;
        while ((r = cede_job_yield(c, CEDE_YIELD_MEMORY)) == -ENOTCONN)
            ; /* the next daemon is slow to come */
        must("yield", r);
        printf("%lu\n", sum);
    }
    must("acquire",
         cede_job_acquire(c, 200000000)); /* the last turn of the other is over by then */
    work(gpu, 1, &cookie);
    soft_client_close(gpu);
    cede_close(c);
    return 0;
}
