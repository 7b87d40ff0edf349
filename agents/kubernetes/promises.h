/* Reads what cluster schedulers promise a pod and do not enforce themselves: KAI-Scheduler's
 * annotations and HAMi's resources; what a claim of NVIDIA's DRA driver got is in claims.h. The
 * names are those projects'; docs/kubernetes.md has what becomes of each. No I/O. */
#ifndef CEDE_AGENTS_KUBERNETES_PROMISES_H
#define CEDE_AGENTS_KUBERNETES_PROMISES_H

#include <jansson.h>

#include "agents/kubernetes/scan.h"
#include "who/promise.h"

/* Reads what the pod's annotations and its containers' limits say. A promise to one of several
 * containers counts for the pod: of two the higher limit and the lower guarantee. */
void kube_promise_read(struct span spec, const json_t *notes, struct promise *out);
/* Adds a second promise to the same pod, likewise. */
void kube_promise_join(struct promise *p, const struct promise *more);

/* A quantity of Kubernetes, such as "4Gi", "3k", "0.5" or "1e3". False: it is none, or negative. */
bool kube_quantity(const char *text, double *out);

#endif
