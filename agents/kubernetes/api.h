/* GET over HTTPS by libcurl, which is opened at run time. It follows no redirection, keeps no state
 * between calls, and sends the token only over TLS. */
#ifndef CEDE_AGENTS_KUBERNETES_API_H
#define CEDE_AGENTS_KUBERNETES_API_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

struct kube_api {
    const char *base;                                     /* "https://HOST:PORT" */
    const char *token_file, *ca;                          /* NULL: none */
    bool (*take)(void *arg, const char *bytes, size_t n); /* takes bytes; false ends the call */
    void (*tick)(void *arg); /* called about once per second meanwhile */
    void *arg;
};

/* Opens libcurl. */
int kube_api_open(struct error *err);
/* Gets a path, in at most max_s. 0: the answer was 200 and is complete; -EACCES, -ETIMEDOUT,
 * -ECANCELED (take() returned false), -EIO. */
int kube_api_get(const struct kube_api *api, const char *path, unsigned max_s, struct error *err);

#endif
