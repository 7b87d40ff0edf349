/* Replies that show much: all jobs, the policies. Changes nothing. */
#ifndef CEDE_CONTROL_REPLIES_H
#define CEDE_CONTROL_REPLIES_H

#include <jansson.h>

#include "control/hints.h"
#include "control/rights.h"
#include "control/rules.h"
#include "engine/engine.h"

/* "running", as proto.h has them. */
const char *job_state(const struct job_view *v);
/* All NULL without memory. */
/* As proto.h describes it. brief: without why it runs or waits, and of its counts only a part. */
json_t *job_json(const struct job_view *v, bool brief);
json_t *reply_job(const struct job_view *v, const char *note);
/* Jobs with numbers above `after`, as many as fit, as text; the first page also has what
 * reply_add_unmanaged() adds. hints: NULL: none.
 * brief: as in job_json(), and without requests. */
char *reply_ps(struct engine *e, struct hints *hints, const struct caller *who, uint64_t after,
               uint64_t job_of, bool brief);
/* Adds "unmanaged", and "unmanaged_more" where there are more than UNMANAGED_MAX: the programs that
 * the caller may set come first, those that a person detached last. */
#define UNMANAGED_MAX 64
void reply_add_unmanaged(json_t *reply, const struct engine *e, const struct caller *who);
/* Adds "pool", for a program that is about to run: whether the configuration (l; NULL: there is
 * none) wants this batch job in a pool, whether in one that latency jobs may join, and which part
 * of the SMs it has there; whether the devices allow one; whether the job did less in it. */
void reply_add_pool(json_t *reply, struct device_driver *d, const struct rule_list *l, bool batch,
                    bool loses);
/* A refusal that has nothing to do with a verb. */
char *reply_refusal(int code, const struct error *err);
json_t *reply_policy(const struct engine *e);
json_t *policies_json(void); /* [{"name":, "summary":}, ...] */
/* "laxity, edf, ..."; returns buf. */
const char *reply_policy_names(char *buf, size_t size);

#endif
