/* The order of overlapped steps: whether one more may be scheduled, which is finished next, which
 * requests each has, which of its results are surplus, and which blocks of results nobody can read
 * any more. Deterministic: no clock, no system call, no allocation after cede_order_new(). It calls
 * nothing and waits for nothing: the caller says what happened.
 *
 * A step is begun, gets requests, and is launched or abandoned. Up to `depth` steps are launched
 * and not finished; they are finished in order. The result of step N is a symbol for every step
 * that is scheduled until N is finished, so its block is free when the last of those has run.
 *
 * Not thread-safe. */
#ifndef CEDE_LIBCEDE_PURE_STEP_ORDER_H
#define CEDE_LIBCEDE_PURE_STEP_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct cede_scope;
struct step_order;

/* Within the limits of cede/step.h. 0 or -ENOMEM. */
int cede_order_new(unsigned depth, unsigned batch, unsigned requests, struct step_order **out);
void cede_order_free(struct step_order *o);

/* ---- requests -------------------------------------------------------------------------------- */

/* deadline_ns: TIME_NEVER: none. scope: for cede_order_expire(); NULL: none. 0 or -ENOSPC. */
int cede_order_join(struct step_order *o, void *user, const struct cede_scope *scope,
                    uint64_t deadline_ns, uint64_t *id);
/* 0 or -ENOENT. */
int cede_order_leave(struct step_order *o, uint64_t id, int reason);
/* Requests whose deadline has passed leave with -ETIMEDOUT, those whose scope has stopped with
 * -ECANCELED. */
void cede_order_expire(struct step_order *o, uint64_t now_ns,
                       int (*stopped)(const struct cede_scope *scope));
void cede_order_leave_all(struct step_order *o, int reason);
/* Forgets a request that has left and that no step has. *slot: of its id. False: there is none. */
bool cede_order_take_left(struct step_order *o, void **user, int *reason, uint32_t *slot);
unsigned cede_order_requests(const struct step_order *o);
/* An id's own slot, from 0 to `requests` - 1, until cede_order_take_left(). */
static inline uint32_t order_slot(uint64_t id)
{
    return (uint32_t)id - 1;
}

/* ---- steps ----------------------------------------------------------------------------------- */

struct order_step {
    uint64_t number; /* from 1 */
    unsigned n;
    int64_t symbol; /* of its block; 0: none */
    void **user;    /* n of them */
    unsigned char *surplus;
    uint32_t *member;
};

/* Steps launched and not finished. */
unsigned cede_order_running(const struct step_order *o);

/* Fewer than `depth` may run then. */
struct order_step *cede_order_begin(struct step_order *o);
/* *symbol: of its latest result; 0: that is finished, or there is none. 0, -EALREADY, -ENOENT or
 * -ENOSPC. */
int cede_order_add(struct step_order *o, uint64_t id, int64_t *symbol);
void cede_order_abandon(struct step_order *o);
/* symbol: of the block for its results; 0: none. */
void cede_order_launched(struct step_order *o, int64_t symbol);

/* The step to be finished next; NULL: none runs. */
struct order_step *cede_order_oldest(const struct step_order *o);
/* It has run: says what is surplus. error: its other requests leave with it. */
void cede_order_finish(struct step_order *o, int error);
/* The caller has no more use of it. */
void cede_order_finished(struct step_order *o);
/* A block that is free, once. False: there is none. */
bool cede_order_take_free(struct step_order *o, int64_t *symbol);

#endif
