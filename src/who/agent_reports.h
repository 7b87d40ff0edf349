/* Keeps what root's agents report about control groups: the pod, its PriorityClass, the partition
 * of Slurm. A report holds for the group and all below it. The table is bounded; groups that are
 * gone are forgotten when it is full. After a restart of ceded, agents report again. */
#ifndef CEDE_WHO_AGENT_REPORTS_H
#define CEDE_WHO_AGENT_REPORTS_H

#include <jansson.h>

#include "base/pairs.h"
#include "base/util.h"

#define IDENTITIES_MAX  1024
#define IDENTITY_CGROUP 512  /* bytes of a path */
#define IDENTITY_FACTS  2048 /* bytes of names and values */

struct identities;
struct identities *identities_new(void); /* NULL: no memory */
void identities_free(struct identities *t);

/* Replaces the facts about that group; without facts, forgets the group. 0, -ENOSPC, -ENOMEM. */
int identities_put(struct identities *t, const char *cgroup, struct pairs facts);

/* The facts about the innermost group, of those that /proc/PID/cgroup lists and all above them,
 * about which there is a report; no bytes: there is none. Valid until the next identities_put(). t
 * and number may be NULL; *number is the report's. */
struct pairs identities_find(const struct identities *t, const char *proc_cgroup, uint64_t *number);
/* The number of the latest report with new facts; 0: there was none. */
uint64_t identities_number(const struct identities *t);

/* Reads facts from an object of texts, as in a message: "pod", "namespace", "container_name",
 * "image", "priority_class", "partition", "qos", "label:KEY", "container:ID" (pod_names.h),
 * "promise:KEY" (promise.h). 0 or -EINVAL. */
int identities_parse(const json_t *o, char facts[static IDENTITY_FACTS], uint32_t *n,
                     struct error *err);
json_t *identities_json(struct pairs facts);

#endif
