/* Sums of jobs by what Prometheus gets as labels: name, class, user and pod. Jobs that have ended
 * stay in the sum, so that it never falls, as long as jobs with the same labels run and for an hour
 * after the last of them. When a job's labels change, what it had stays with the old ones. */
#ifndef CEDE_API_JOB_SUMS_H
#define CEDE_API_JOB_SUMS_H

#include "api/hints.h"
#include "api/json_pages.h"
#include "api/rights.h"
#include "engine/engine.h"

/* Without room the sum that was left first is dropped. A job for which no sum can be dropped is
 * only counted. */
#define JOB_SUMS_MAX      1024
#define JOB_SUMS_PER_USER 256 /* of a principal (base/principal.h) other than root */

struct job_sums;

/* next: is called by job_sums_changed(), too; NULL: nobody. NULL: no memory. */
struct job_sums *
job_sums_new(void (*next)(void *arg, uint32_t job, const struct job_view *v, bool ends), void *arg);
void job_sums_free(struct job_sums *s);
/* Adds requests and leases. h may be NULL. */
void job_sums_use_hints(struct job_sums *s, const struct hints *h);
/* The job_changed of struct engine_options; arg: the sums. */
void job_sums_changed(void *arg, uint32_t job, const struct job_view *v, bool ends);

/* What all sums are at one moment. A guest gets the jobs that it reaches, without those that have
 * ended. NULL: no memory. */
struct job_sums_now *job_sums_collect(struct job_sums *s, struct engine *e,
                                      const struct caller *who);
void job_sums_done(struct job_sums_now *now);
/* Adds "states", {CLASS:{STATE:N}}, and "omitted", the number of jobs in no sum. */
void job_sums_add_states(const struct job_sums_now *now, json_t *reply);
/* Puts sums with numbers above `after` into the page; returns whether there are more. */
bool job_sums_put(const struct job_sums_now *now, uint64_t after, struct json_page *to);

#endif
