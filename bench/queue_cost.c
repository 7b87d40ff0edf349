/* What a request costs in libcede's queue: submit, next and done, from one thread, with so many
 * others waiting, and deadlines in no order. Medians over rounds.
 *
 * usage: bench_queue_cost */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cede/queue.h"
#include "lib/util.h"

#define ROUNDS 101
#define CALLS  2000

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double ns_each(unsigned waiting, unsigned batch, int admit, struct cede *cede)
{
    static double v[ROUNDS];
    struct cede_queue_config c;
    struct cede_queue_batch b;
    struct cede_queue *q;
    struct cede_queue_request r = {0};
    uint32_t random = 1;
    cede_queue_defaults(&c);
    c.batch_max = batch;
    c.batch_wait_us = 0;
    c.admit = admit;
    c.cede = cede;
    c.expected_us = 1;
    if (cede_queue_open(&c, &q) < 0)
        return -1;
    for (unsigned i = 0; i < waiting; i++) {
        r.deadline_us = 3600ULL * 1000000 + (random = random * 1664525 + 1013904223) / 4096;
        cede_queue_submit(q, &r, NULL);
    }
    for (unsigned k = 0; k < ROUNDS; k++) {
        uint64_t t = monotonic_ns();
        for (unsigned i = 0; i < CALLS / batch; i++) {
            for (unsigned n = 0; n < batch; n++) {
                r.deadline_us = 3600ULL * 1000000 + (random = random * 1664525 + 1013904223) / 4096;
                cede_queue_submit(q, &r, NULL);
            }
            cede_queue_next(q, 0, 0, &b);
            cede_queue_done(q, &b, 0);
        }
        v[k] = (double)(monotonic_ns() - t) / (CALLS / batch * batch);
    }
    cede_queue_close(q);
    qsort(v, ROUNDS, sizeof(*v), compare);
    return v[ROUNDS / 2];
}

int main(void)
{
    char dir[] = "/tmp/cede-bench-queue-XXXXXX";
    struct cede *cede;
    if (!mkdtemp(dir) || setenv("CEDE_DIR", dir, 1) < 0 || cede_connect(&cede) < 0)
        return 1;
    printf("{\"rounds\":%d,\"alone_ns\":%.0f,\"told_ns\":%.0f,\"waiting_16_ns\":%.0f,"
           "\"waiting_256_ns\":%.0f,\"admit_16_ns\":%.0f,\"batch_8_ns\":%.0f,"
           "\"batch_8_admit_16_ns\":%.0f}\n",
           ROUNDS, ns_each(0, 1, 0, NULL), ns_each(0, 1, 0, cede), ns_each(16, 1, 0, NULL),
           ns_each(256, 1, 0, NULL), ns_each(16, 1, 1, NULL), ns_each(0, 8, 0, NULL),
           ns_each(16, 8, 1, NULL));
    cede_close(cede);
    rmdir(dir);
    return 0;
}
