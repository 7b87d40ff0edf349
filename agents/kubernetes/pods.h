/* The pods of one node, with what ceded needs of them: the control group of each, and facts for
 * rules. The table is bounded. Texts of pods are written by their users, so they are checked here
 * and become nothing but values. No I/O. */
#ifndef CEDE_AGENTS_KUBERNETES_PODS_H
#define CEDE_AGENTS_KUBERNETES_PODS_H

#include <stdbool.h>

#include "agents/kubernetes/claims.h"
#include "agents/kubernetes/scan.h"
#include "base/util.h"
#include "who/agent_reports.h"

#define KUBE_PODS_MAX       500 /* with two control groups each, fewer than IDENTITIES_MAX */
#define KUBE_LABELS_MAX     16  /* labels of a pod that begin with cede.io/ */
#define KUBE_CONTAINERS_MAX 8   /* containers of a pod whose names are reported */

enum kube_driver { KUBE_EITHER, KUBE_SYSTEMD, KUBE_CGROUPFS };

struct kube_pod {
    char uid[64];     /* in the path of its control group; "": the slot is free */
    char api_uid[64]; /* in the API, which has another one for a static pod */
    char qos[16];     /* as in the group's path: "burstable", "besteffort"; "" guaranteed */
    bool seen;        /* in the list that is being read */
    bool gone, sent;
    uint64_t reported_ns;   /* when it was last reported; 0: not yet */
    struct promise promise; /* by its own object */
    struct kube_claims claims;
    struct promise claimed; /* by its claims */
    bool claims_read;
    uint64_t claims_at_ns; /* when they may be asked for again */
    uint32_t nfacts;       /* bytes of its other facts, as pairs of agent_reports.h */
    char facts[IDENTITY_FACTS];
};

struct kube_pods {
    struct kube_pod v[KUBE_PODS_MAX];
    unsigned end; /* slots below may be in use */
};

/* Reads a pod. node: pods of other nodes are refused (NULL: all are of this node). 0; -EINVAL: this
 * is no pod of the node, or its uid or QoS class is not known; -ESTALE: its programs have ended.
 * out->uid is set if it could be read. */
int kube_pod_read(struct span pod, const char *node, struct kube_pod *out);

/* Adds or replaces a pod. Of two pods that claim to be the same static pod, the first one counts
 * until it is gone. -ENOSPC. */
int kube_pods_put(struct kube_pods *t, const struct kube_pod *pod);
void kube_pods_remove(struct kube_pods *t, const struct kube_pod *pod);
/* Surround the reading of a complete list: pods that are not put in between are removed. */
void kube_pods_begin(struct kube_pods *t);
void kube_pods_end(struct kube_pods *t);
void kube_pods_send_again(struct kube_pods *t); /* for a new ceded, which knows no pods */

/* Writes all facts to report, those of promises first, as the rest is in the hands of the pod's
 * creator and may fill the room. Returns the bytes. */
uint32_t kube_pod_facts(const struct kube_pod *pod, char out[static IDENTITY_FACTS]);
/* The pod's claims are known now. */
void kube_pod_claimed(struct kube_pod *pod, const struct promise *p);

/* The i-th path that the pod's control group may have below `root` ("" or "/kubelet.slice", ...).
 * False: there are no more, or it is too long. */
bool kube_pod_cgroup(const struct kube_pod *pod, enum kube_driver driver, const char *root,
                     unsigned i, char out[static IDENTITY_CGROUP]);

#endif
