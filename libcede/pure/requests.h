/* The next request of each of several devices, and which requests are refused at once because they
 * would be late. Deterministic: no clock, no system call, no allocation after cede_requests_new().
 * It starts nothing: the caller asks when a device is free and reports when a batch has ended.
 *
 * A device runs one batch at a time and to its end, or up to c.batches at a time, each in a slot.
 * Plans assume as many at a time as have run together since the device last had no room for one
 * more. A request waits in the queue
 * of one device: the preferred one while that has little more to do than the least loaded, else
 * the least loaded. A device whose queue is empty takes from the longest queue of the others.
 *
 * Not thread-safe. Times are nanoseconds of any monotonic clock. */
#ifndef CEDE_LIBCEDE_PURE_REQUESTS_H
#define CEDE_LIBCEDE_PURE_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/job_terms.h"
#include "cede/queue.h"

#define REQUESTS_DEVICES_MAX  64U
#define REQUESTS_CAPACITY_MAX (1U << 20)
#define REQUESTS_PREFER_NS    1000000U /* by which a preferred device may have more to do */

struct request {
    uint64_t id; /* a ticket, set by cede_requests_submit() */
    uint64_t arrival_ns;
    uint64_t deadline_ns; /* TIME_NEVER: none */
    uint64_t run_ns;      /* estimate, of the usual time */
    uint32_t margin;      /* thousandths by which it, or its batch, may take longer */
    uint64_t after_ns;    /* further work of the same client with the same deadline */
    enum job_class class;
    uint32_t preferred; /* device; SLOT_NONE: any */
    /* Requests of one model and shape may share a batch of up to batch_max (0, 1: none). A batch of
     * n runs for run_ns + (n - 1) each_ns, with each_ns <= run_ns. */
    uint32_t model, batch_max;
    uint64_t shape, each_ns;
    uint64_t wait_ns; /* it is held at most this long on a free device for others to join */
    void *user;       /* the caller's */
};

struct requests;

/* c: policy, devices, batches, capacity, k, admit, urgent_us, within their limits. prefer_ns:
 * REQUESTS_PREFER_NS. 0 or -ENOMEM. */
int cede_requests_new(const struct cede_queue_config *c, uint64_t prefer_ns, struct requests **out);
void cede_requests_free(struct requests *r);

/* The lower halves of all ids are below this. */
uint32_t cede_requests_slots(const struct requests *r);

/* No request comes any more, so no batch waits to be filled. */
void cede_requests_drain(struct requests *r);

/* 0; -EBUSY: refused, and out->answer is why; -EINVAL: class, device or run time out of range. */
int cede_requests_submit(struct requests *r, const struct request *q, uint64_t now_ns,
                         struct cede_queue_ticket *out);
/* The batch that a free device is to run now. out, *n: room, and the size of the batch. Its first
 * request is the policy's choice, the rest those that cede_batch_decide() takes (request_plan.h); a
 * smaller batch is taken where a larger one would make another request late. Requests are held on a
 * free device only while no other kind can run without harm, and no later than urgent_us before one
 * would be late by it. 0: it is in *slot, from device * c.batches on; -EBUSY: no slot is free;
 * -EAGAIN: *wake_ns is when to ask again if nothing arrives (TIME_NEVER: none waits); -EINVAL: no
 * such device, or no room. */
int cede_requests_next_batch(struct requests *r, uint32_t device, uint64_t now_ns,
                             struct request *out, uint32_t *n, uint32_t *slot, uint64_t *wake_ns);
/* Forgets one request of the batch that has ended. False: there is none left, and the slot is
 * free. To be called until then. */
bool cede_requests_end(struct requests *r, uint32_t slot, struct request *out);
/* The batch does not start after all: its requests wait again, where they waited. */
void cede_requests_put_back(struct requests *r, uint32_t slot);
/* The device has no room for more batches than run there now. */
void cede_requests_no_room(struct requests *r, uint32_t device);
/* Forgets a waiting request. 0, -EBUSY (it runs) or -ENOENT. */
int cede_requests_cancel(struct requests *r, uint64_t id);
/* Forgets any waiting request. False: none waits. */
bool cede_requests_reclaim(struct requests *r, struct request *out);
/* What a device still has to do, waiting and running, by the estimates. */
uint64_t cede_requests_backlog_ns(const struct requests *r, uint32_t device, uint64_t now_ns);

#endif
