/* What root's agents say of control groups: which pod it is, of which PriorityClass, which
 * partition of Slurm. It holds for the group and all below it. Bounded; forgets groups that are
 * gone when there is no room. A restart of ceded forgets all: agents say it again. */
#ifndef CEDE_CONTROL_IDENTITIES_H
#define CEDE_CONTROL_IDENTITIES_H

#include <jansson.h>

#include "lib/pairs.h"
#include "lib/util.h"

#define IDENTITIES_MAX  1024
#define IDENTITY_CGROUP 512  /* bytes of a path */
#define IDENTITY_FACTS  2048 /* bytes of names and values */

struct identities;
struct identities *identities_new(void); /* NULL: no memory */
void identities_free(struct identities *t);

/* Takes the place of what was said of that group; without facts that is forgotten. -ENOSPC,
 * -ENOMEM. */
int identities_put(struct identities *t, const char *cgroup, struct pairs facts);

/* Of the process's groups, as /proc/PID/cgroup lists them, and those above: of the innermost that
 * somebody spoke of. Without bytes: none. Valid until the next identities_put(). t may be NULL.
 * *number (NULL: not wanted): of that report. */
struct pairs identities_find(const struct identities *t, const char *proc_cgroup, uint64_t *number);
/* Of the latest report that said anything new; 0: there was none. */
uint64_t identities_number(const struct identities *t);

/* An object of texts, as in a message: "pod", "namespace", "container_name", "image",
 * "priority_class", "partition", "qos", "label:KEY". -EINVAL. */
int identities_parse(const json_t *o, char facts[static IDENTITY_FACTS], uint32_t *n,
                     struct error *err);
json_t *identities_json(struct pairs facts);

#endif
