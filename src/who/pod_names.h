/* The names by which Kubernetes knows a program: namespace, pod and container, as root's agents
 * report them. Pure, no allocation. */
#ifndef CEDE_WHO_POD_NAMES_H
#define CEDE_WHO_POD_NAMES_H

#include "base/pairs.h"

#define POD_NAME_MAX 254 /* with a terminating zero, as for the others */
#define POD_PART_MAX 64
/* A report about a pod has a fact "container:ID" for each container that runs; its value is the
 * container's name. ID: the first digits of the id that is in the path of its control group. */
#define CONTAINER_FACT   "container:"
#define CONTAINER_DIGITS 16

/* Each is "" if it is not known. */
struct pod_names {
    char namespace[POD_PART_MAX], pod[POD_NAME_MAX], container[POD_PART_MAX];
};

/* The name of the container with this id, by the facts about its pod; NULL: there is none. */
const char *pod_container(struct pairs told, const char *id);
/* Gets the names from facts about a control group. id: of the container; "": none. */
void pod_names_read(struct pairs told, const char *id, struct pod_names *out);

#endif
