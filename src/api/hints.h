/* The pages by which programs report their requests (base/hints_proto.h): their owners, and the
 * sums for a job. A program that lies spoils its own job's line of `cede ps`, and gains no more by
 * its deadlines than the scheduler allows any program (plan/boost.h). A page lives as long as the
 * connection on which it was asked for. Not thread-safe. */
#ifndef CEDE_API_HINTS_H
#define CEDE_API_HINTS_H

#include <jansson.h>
#include <sys/types.h>

#include "api/rights.h"
#include "base/hints_proto.h"
#include "engine/engine.h"

#define HINTS_PAGES_MAX      256
#define HINTS_PAGES_PER_USER 64 /* unless administrator; all users together: USERS_PART */

struct hints;

struct hints *hints_new(void); /* NULL: no memory */
void hints_free(struct hints *h);

/* Makes a page for the process that made this connection; the caller owns *fd. -EALREADY (it has
 * one), -EUSERS (too many), -ESRCH (it has ended, even if its pid is in use again), -ENOMEM. */
int hints_open(struct hints *h, const struct caller *who, int *fd, struct error *err);
void hints_close(struct hints *h, uint64_t connection);
unsigned hints_count(const struct hints *h);

/* The job of a process that has that page waits until `bytes` are free on the GPU of that UUID ("":
 * the only one). That ends after 5 s, with bytes = 0, or when the page's connection closes.
 * -ENOTCONN: the process has no such page. -ESRCH: the process is in no job. -EPERM: the job is not
 * of class latency. -EINVAL: no such GPU, or it is not that large. */
int hints_room(struct hints *h, struct engine *e, const struct caller *who, uint64_t page,
               const char *uuid, uint64_t bytes, struct error *err);

/* Takes samples for rates; called about once per second while there are pages. */
void hints_sample(struct hints *h, uint64_t now_ns);

/* Reports to the engine when requests are due. Returns when to do so again, TIME_NEVER without
 * pages. h may be NULL, as for the next one. */
uint64_t hints_report(struct hints *h, struct engine *e, uint64_t now_ns);

/* Writes for programs that look whether a job of a higher class waits for theirs; called after each
 * decision. */
void hints_tell_wanted(struct hints *h, struct engine *e, uint64_t now_ns);

/* Writes for programs that look the share of the GPU that they can expect, about once per second.
 * Returns when to do so again, TIME_NEVER without pages. h may be NULL. */
uint64_t hints_tell_share(struct hints *h, struct engine *e, uint64_t now_ns);

struct hints_request {
    uint64_t begun_ns, ended_ns;
    uint64_t lead_ns, lead_end_ns; /* 0: no lead; else between the two above */
};
struct hints_wait {
    uint64_t asked_ns, ended_ns, what, kernel[HINTS_KERNEL]; /* what, kernel: unchecked */
};
struct hints_reader {
    void (*request)(void *arg, uint64_t job, const struct hints_request *q);
    void (*lease)(void *arg, uint64_t job, const struct hints_wait *w);
    void *arg;
};
/* Calls these for requests of all programs that have ended since the last call, and for leases that
 * have waited; of a program with more than HINTS_DONE, HINTS_LEASES only for the last ones. to
 * NULL: skips them. */
void hints_requests(struct hints *h, const struct hints_reader *to);

/* Determines which job each page belongs to now; called before hints_of(). */
void hints_assign(struct hints *h, struct engine *e, uint64_t now_ns);
/* For accounting and metrics: requests that began, that ended, those of them with a deadline, and
 * those that met it; those in progress; and leases by what they waited for. Each member has 64 bits
 * (api/job_sums.c). */
struct hints_sums {
    uint64_t begun, ended, due, met, open;
    uint64_t leases[HINTS_WAITS], waited_us[HINTS_WAITS];
};
/* The numbers of all programs of the job in that slot, also of those that have disconnected. h may
 * be NULL. */
struct hints_sums hints_sum(const struct hints *h, uint32_t slot, uint64_t job);
/* The numbers of the job's connected programs, in *sum and as {"programs":, "begun":, "ended":,
 * "open":, "per_s":, "due":, "met":, "next_due_us":N|null}; NULL: none is connected. */
json_t *hints_of(const struct hints *h, uint64_t job, uint64_t now_ns, struct hints_sums *sum);
/* What leases waited for: {"count":, "waited_s":}, each an object with a number for each reason.
 * NULL: no lease was reported. */
json_t *hints_leases_json(const struct hints_sums *s);
/* Whether the job of a new page is not known yet, so that hints_assign() is due. */
bool hints_unassigned(const struct hints *h);

#endif
