/* The pages by which programs report their requests (lib/hints_proto.h): who has one, and what
 * they say of a job. A program that lies makes its own job's line of `cede ps` wrong, and gains by
 * its deadlines what the scheduler allows any (sched/boost.h). A page lives as long as the
 * connection it was asked for on. Not thread-safe. */
#ifndef CEDE_CONTROL_HINTS_H
#define CEDE_CONTROL_HINTS_H

#include <jansson.h>
#include <sys/types.h>

#include "control/rights.h"
#include "engine/engine.h"

#define HINTS_PAGES_MAX      256
#define HINTS_PAGES_PER_USER 64 /* unless administrator; all users together: USERS_PART */

struct hints;

struct hints *hints_new(void); /* NULL: no memory */
void hints_free(struct hints *h);

/* A page for the process that made this connection: *fd is for it, the caller's. -EALREADY (it has
 * one), -EUSERS (too many), -ESRCH (it is gone; another that has its pid now does not count),
 * -ENOMEM. */
int hints_open(struct hints *h, const struct caller *who, int *fd, struct error *err);
void hints_close(struct hints *h, uint64_t connection);
unsigned hints_count(const struct hints *h);

/* That process's job waits for `bytes` (0: no longer) to be free on the GPU of that UUID ("": the
 * only one): forgotten after 5 s, or when the connection closes. -ENOTCONN: the connection has no
 * page. -ESRCH: the process is in no job. -EPERM: the job is not of class latency. -EINVAL: no such
 * GPU, or it is not that large. */
int hints_room(struct hints *h, struct engine *e, const struct caller *who, const char *uuid,
               uint64_t bytes, struct error *err);

/* What rates are made of: about once a second while there are pages. */
void hints_sample(struct hints *h, uint64_t now_ns);

/* Reports to the engine when requests are due. Returns when to do so again, TIME_NEVER without
 * pages. h: may be NULL, as for the next one.
 */
uint64_t hints_report(struct hints *h, struct engine *e, uint64_t now_ns);

/* After each decision: says to programs that look whether a job of a higher class waits for theirs.
 */
void hints_tell_wanted(struct hints *h, struct engine *e, uint64_t now_ns);

/* About once a second: says to programs that look how much of the GPU they can expect. Returns when
 * to do so again, TIME_NEVER while none looks. h: may be NULL. */
uint64_t hints_tell_share(struct hints *h, struct engine *e, uint64_t now_ns);

/* Requests that have ended since the last call, of all programs; the first call, or one that comes
 * after more than HINTS_DONE requests of a program, has not all. fn NULL: skips them. */
struct hints_request {
    uint64_t begun_ns, ended_ns;
    uint64_t lead_ns, lead_end_ns; /* 0: no lead; else between the two above */
};
void hints_requests(struct hints *h,
                    void (*fn)(void *arg, uint64_t job, const struct hints_request *q), void *arg);

/* Before hints_of(): which page belongs to which job now. */
void hints_assign(struct hints *h, struct engine *e, uint64_t now_ns);
/* What the programs of a job say together: {"programs":, "begun":, "ended":, "open":, "per_s":,
 * "due":, "met":, "next_due_us":N|null}. NULL: none reports anything. */
json_t *hints_of(const struct hints *h, uint64_t job, uint64_t now_ns);

/* For accounts. What ended, of that what had a deadline, and met it. */
struct hints_sums {
    uint64_t ended, due, met;
};
/* Adds those of the job's pages. */
void hints_sum(const struct hints *h, uint64_t job, struct hints_sums *sums);
/* Calls `closed` with those of a page that is dropped, and its job. NULL: no more. */
void hints_on_close(struct hints *h,
                    void (*closed)(void *arg, uint64_t job, const struct hints_sums *sums),
                    void *arg);
/* Whether it is not known of a new page which job it belongs to: hints_assign() is due. */
bool hints_unassigned(const struct hints *h);

#endif
