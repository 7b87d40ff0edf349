/* Claims of Kubernetes' Dynamic Resource Allocation: which of them a pod has, and what one got of
 * NVIDIA's driver. A claim has its devices before its pod is bound to a node, and keeps them. No
 * I/O. */
#ifndef CEDE_AGENTS_KUBERNETES_CLAIMS_H
#define CEDE_AGENTS_KUBERNETES_CLAIMS_H

#include "agents/kubernetes/scan.h"
#include "who/promise.h"

#define KUBE_CLAIMS_MAX 4   /* claims of a pod that are read */
#define KUBE_NAME_MAX   254 /* bytes of a name, with a terminating zero */

struct kube_claims {
    char namespace[64];
    char name[KUBE_CLAIMS_MAX][KUBE_NAME_MAX];
    unsigned n;
};

/* Reads which claims a pod has. Names that are none are left out, as they go into an address. */
void kube_claims_read(struct span pod, struct kube_claims *out);

/* Adds what a claim got. 0; -EAGAIN: it has no devices yet; -EPROTO: this is no claim. */
int kube_claim_read(struct span claim, struct promise *p);

#endif
