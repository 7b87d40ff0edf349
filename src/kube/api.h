/* GET over HTTPS by libcurl, which is opened at run time. Follows no redirection, keeps no state
 * between calls, and sends the token only over TLS. */
#ifndef CEDE_KUBE_API_H
#define CEDE_KUBE_API_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/util.h"

struct kube_api {
    const char *base;                                     /* "https://HOST:PORT" */
    const char *token_file, *ca;                          /* NULL: none */
    bool (*take)(void *arg, const char *bytes, size_t n); /* false: end it */
    void (*tick)(void *arg);                              /* about once per second while it lasts */
    void *arg;
};

/* 0: libcurl is there. */
int kube_api_open(struct error *err);
/* It ends after max_s. 0: the answer was 200 and is complete; -ETIMEDOUT, -ECANCELED (by take),
 * -EIO. */
int kube_api_get(const struct kube_api *api, const char *path, unsigned max_s, struct error *err);

#endif
