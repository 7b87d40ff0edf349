/* Replies with jobs, unmanaged programs and policies. Changes nothing. */
#ifndef CEDE_API_REPLIES_H
#define CEDE_API_REPLIES_H

#include <jansson.h>

#include "api/hints.h"
#include "api/job_sums.h"
#include "api/rights.h"
#include "api/rules/rules.h"
#include "engine/engine.h"

/* "running" and others, see cede-json(5). */
const char *job_state(const struct job_view *v);
/* JOB_SUMS: without `why`, and with the part of `counts` that cede top shows; JOB_BRIEF: without
 * `counts` too. */
enum job_detail { JOB_WHOLE, JOB_SUMS, JOB_BRIEF };
/* A job as cede-json(5) describes it. NULL, as from all functions here: no memory. */
json_t *job_json(const struct job_view *v, enum job_detail detail);
/* [0, 2] for 5. */
json_t *bits_json(uint32_t bits);
json_t *reply_job(const struct job_view *v, const char *note);
/* Jobs with numbers above `after`, as many as fit, as text; the first page also has what
 * reply_add_unmanaged() adds. hints may be NULL. Only JOB_WHOLE has requests. sums: instead of jobs
 * their sums, in the same way; NULL: jobs. */
char *reply_ps(struct engine *e, struct hints *hints, struct job_sums *sums,
               const struct caller *who, uint64_t after, uint64_t job_of, enum job_detail detail);
/* The processes of the job v from pid `from` on (model_job_pids()). *code: 0, or -errno. */
json_t *reply_pids(const struct engine *e, const struct caller *who, struct job_view *v, pid_t from,
                   const char *note, int *code);
/* Adds "unmanaged", and "unmanaged_more" where there are more than UNMANAGED_MAX: the programs that
 * the caller may set come first, those that a person detached last. */
#define UNMANAGED_MAX 64
void reply_add_unmanaged(json_t *reply, const struct engine *e, const struct caller *who);
/* Adds "pool", for a program that is about to run: whether the configuration (l, or NULL) wants
 * this batch job in a pool, whether latency jobs may join that, and its part of the SMs there;
 * whether the devices allow a pool; and whether the job did less in it (speeds_lose()). */
void reply_add_pool(json_t *reply, struct device_driver *d, const struct rule_list *l, bool batch,
                    bool loses);
/* The administrators' group is named by its number where the text is about it, as the client can
 * wait for a directory service. */
char *reply_refusal(int code, const struct error *err, gid_t admin_gid);
json_t *reply_policy(const struct engine *e);
json_t *policies_json(void); /* [{"name":, "summary":}, ...] */
/* "laxity, edf, ..."; returns buf. */
const char *reply_policy_names(char *buf, size_t size);

#endif
