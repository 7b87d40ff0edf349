/* What container runtimes say about a container: its name, image, pod and namespace. */
#ifndef CEDE_WHO_CONTAINER_H
#define CEDE_WHO_CONTAINER_H

#include "who/identify.h"

/* Reads facts from the files of containerd, CRI-O, Podman and Docker below root ("": the machine's)
 * and ignores files that are missing, not root's or no JSON. 0, or an error that says nothing about
 * the files (-EMFILE), with a part of the facts. */
int container_read(const char *root, const char *id, struct pairs wanted,
                   struct identify_answer *out);
/* The parsers, which take any text: of an OCI config.json, of Docker's config.v2.json, and of the
 * list of containers/storage, in which the container `id` is searched. */
void container_oci(const char *text, size_t n, struct pairs wanted, struct identify_answer *out);
void container_docker(const char *text, size_t n, struct pairs wanted, struct identify_answer *out);
void container_list(const char *text, size_t n, const char *id, struct pairs wanted,
                    struct identify_answer *out);

#endif
