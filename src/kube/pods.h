/* The pods of one node, as far as ceded is to know them: which control group each is, and facts for
 * rules. Bounded. Texts of pods are their users': here they are checked, and never become anything
 * but values. No I/O. */
#ifndef CEDE_KUBE_PODS_H
#define CEDE_KUBE_PODS_H

#include <stdbool.h>

#include "control/identities.h"
#include "kube/scan.h"
#include "lib/util.h"

#define KUBE_PODS_MAX   500 /* with two control groups each, fewer than IDENTITIES_MAX */
#define KUBE_LABELS_MAX 16  /* of a pod, that begin with cede.io/ */

enum kube_driver { KUBE_EITHER, KUBE_SYSTEMD, KUBE_CGROUPFS };

struct kube_pod {
    char uid[64];     /* in the path of its control group; "": free */
    char api_uid[64]; /* for the API: another one if it is a static pod */
    char qos[16];     /* as in the group's path: "burstable", "besteffort"; "" guaranteed */
    bool seen;        /* in the list that is being read */
    bool gone, sent;
    uint64_t reported_ns; /* when that was; 0: not yet */
    uint32_t nfacts;      /* bytes of facts, as pairs of identities.h */
    char facts[IDENTITY_FACTS];
};

struct kube_pods {
    struct kube_pod v[KUBE_PODS_MAX];
    unsigned end; /* slots below may be in use */
};

/* node: pods of others are none (NULL: all are of this one). 0; -EINVAL: this is no pod, or one
 * whose uid or class of service is not known; -ESTALE: its programs have ended. out->uid is set if
 * it could be read. */
int kube_pod_read(struct span pod, const char *node, struct kube_pod *out);

/* The pod takes the place of what was known of it. Of two that would be the same static pod, the
 * first is it until it goes. -ENOSPC. */
int kube_pods_put(struct kube_pods *t, const struct kube_pod *pod);
void kube_pods_remove(struct kube_pods *t, const struct kube_pod *pod);
/* Around a whole list: what is not put between them is removed. */
void kube_pods_begin(struct kube_pods *t);
void kube_pods_end(struct kube_pods *t);
void kube_pods_send_again(struct kube_pods *t); /* ceded has forgotten all */

/* The i-th path that the pod's control group may have below `root` ("" or "/kubelet.slice", ...).
 * False: there are no more, or it is too long. */
bool kube_pod_cgroup(const struct kube_pod *pod, enum kube_driver driver, const char *root,
                     unsigned i, char out[static IDENTITY_CGROUP]);

#endif
