/* What a request costs in libcede's queue: submit, next and done, from one thread, with so many
 * others waiting, and deadlines in no order. Medians over rounds.
 *
 * usage: bench_queue_cost */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/cost.h"
#include "cede/queue.h"

#define CALLS 2000

struct round {
    struct cede_queue *q;
    unsigned batch;
    uint32_t random;
};

static void submit(struct round *r)
{
    struct cede_queue_request request = {0};
    r->random = r->random * 1664525 + 1013904223;
    request.deadline_us = 3600ULL * 1000000 + r->random / 4096;
    cede_queue_submit(r->q, &request, NULL);
}

static void queue_round(void *arg)
{
    struct round *r = arg;
    struct cede_queue_batch b;
    for (unsigned i = 0; i < CALLS / r->batch; i++) {
        for (unsigned n = 0; n < r->batch; n++)
            submit(r);
        cede_queue_next(r->q, 0, 0, &b);
        cede_queue_done(r->q, &b, 0);
    }
}

static double ns_each(unsigned waiting, unsigned batch, int admit, struct cede *cede)
{
    struct cede_queue_config c;
    struct round r = {.batch = batch, .random = 1};
    cede_queue_defaults(&c);
    c.batch_max = batch;
    c.batch_wait_us = 0;
    c.admit = admit;
    c.client = cede;
    c.expected_us = 1;
    if (cede_queue_open(&c, &r.q) < 0)
        return -1;
    for (unsigned i = 0; i < waiting; i++)
        submit(&r);
    double ns = cost_of_call(queue_round, &r, CALLS / batch * batch);
    cede_queue_close(r.q);
    return ns;
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
           COST_ROUNDS, ns_each(0, 1, 0, NULL), ns_each(0, 1, 0, cede), ns_each(16, 1, 0, NULL),
           ns_each(256, 1, 0, NULL), ns_each(16, 1, 1, NULL), ns_each(0, 8, 0, NULL),
           ns_each(16, 8, 1, NULL));
    cede_close(cede);
    rmdir(dir);
    return 0;
}
