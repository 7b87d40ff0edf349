/* Shared by requests.c (order, admission, placement) and requests_batch.c (batches), and included
 * by no other file. */
#ifndef CEDE_LIBCEDE_PURE_REQUESTS_IMPL_H
#define CEDE_LIBCEDE_PURE_REQUESTS_IMPL_H

#include "libcede/pure/requests.h"
#include "libcede/pure/saturating.h"

struct node {
    struct request q;
    uint32_t next;
};

struct device {
    uint32_t first, last; /* last: valid while the queue is not empty */
    bool running;
    uint64_t end_ns;    /* of the running batch, by the estimates */
    uint64_t queued_ns; /* estimates of the waiting requests, summed up */
};

struct requests {
    struct requests_params p;
    struct device *devices;
    struct node *nodes;
    uint32_t unused;   /* first of the free nodes */
    uint64_t worst_ns; /* about the 99th percentile of the lateness */
};

/* A walk through a queue: when each request would end if all ran in this order from t_ns on.
 * Neighbours of one kind share a batch while that makes none of them late. */
struct requests_plan {
    uint64_t t_ns, end_ns; /* begin and end of the current batch */
    uint64_t due_ns;       /* earliest deadline that it meets */
    uint64_t kind;
    uint32_t n, max;   /* its size, and limit */
    uint64_t slack_ns; /* by which all may begin later without missing a deadline more */
};
void cede_requests_plan(struct requests_plan *p, uint64_t t_ns);
/* Adds the next request. True: it meets its deadline, whatever is added later. */
bool cede_requests_plan_step(struct requests_plan *p, const struct request *q);
uint64_t cede_requests_plan_slack(const struct requests_plan *p);

/* The device from whose queue a free device takes: itself, or the one with the longest queue. NULL:
 * all are empty. */
struct device *cede_requests_source(struct requests *r, struct device *d);
/* The link to the request that runs next, of a queue that is not empty. */
uint32_t *cede_requests_choose(struct requests *r, struct device *d, uint64_t now_ns);
/* Notes the lateness with which a request begins to run. */
void cede_requests_late(struct requests *r, uint64_t late_ns);
struct request cede_requests_take(struct requests *r, struct device *d, uint32_t *at);

#endif
