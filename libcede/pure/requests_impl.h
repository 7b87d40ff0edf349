/* Inside requests.c (order, admission, placement) and requests_batch.c (what runs together). Nobody
 * else includes it. */
#ifndef CEDE_LIBCEDE_PURE_REQUESTS_IMPL_H
#define CEDE_LIBCEDE_PURE_REQUESTS_IMPL_H

#include "libcede/pure/requests.h"

struct node {
    struct request q;
    uint32_t next;
};

struct device {
    uint32_t first, last; /* last: of a queue that is not empty */
    bool running;
    uint64_t end_ns;    /* of the running ones, by their estimates */
    uint64_t queued_ns; /* sum of the estimates of those waiting */
};

struct requests {
    struct requests_params p;
    struct device *devices;
    struct node *nodes;
    uint32_t unused;   /* first of the free nodes */
    uint64_t worst_ns; /* how late the latest of late are */
};

static inline uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static inline uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* A walk through a queue: when each would end if all ran in this order from t_ns on, neighbours
 * that may run together doing so while that makes none of them late. */
struct plan {
    uint64_t t_ns, end_ns; /* of the batch that the last one is in: begin, end */
    uint64_t due_ns;       /* of those in it that will be met: the earliest */
    uint64_t group;
    uint32_t n, max;   /* in that batch; may be in it */
    uint64_t slack_ns; /* so much later it may all begin and still meet what it meets now */
};
void cede_requests_plan(struct plan *p, uint64_t t_ns);
/* The next in order: whether it is met. A later one never changes that. */
bool cede_requests_plan_step(struct plan *p, const struct request *q);
uint64_t cede_requests_plan_slack(const struct plan *p);

/* The queue that a free device takes from: its own, or the longest of the others. NULL: all are
 * empty. */
struct device *cede_requests_source(struct requests *r, struct device *d);
/* The link to the one that runs next of a queue that is not empty. */
uint32_t *cede_requests_choose(struct requests *r, struct device *d, uint64_t now_ns);
/* One begins that will be so late. */
void cede_requests_late(struct requests *r, uint64_t late_ns);
struct request cede_requests_take(struct requests *r, struct device *d, uint32_t *at);

#endif
