/* Reads the answers of an API server or kubelet into the table of pods. A pod that cannot be read
 * is left out and does not affect others. No I/O. */
#ifndef CEDE_AGENTS_KUBERNETES_ANSWERS_H
#define CEDE_AGENTS_KUBERNETES_ANSWERS_H

#include "agents/kubernetes/pods.h"

struct kube_page {
    char version[64]; /* resource version from which a watch goes on */
    char next[512];   /* token for the next page; "": this is the last page */
};

/* Reads a list of pods, or a page of one, between kube_pods_begin() and _end(). 0; -ENOSPC: some
 * pods had no room; -EPROTO: this is no list, or not complete; -EMSGSIZE: the token for the next
 * page is too long. */
int kube_list_read(struct kube_pods *t, const char *node, struct span text, struct kube_page *page);

/* Reads a line of a watch. 0; -ENOSPC; -ESTALE: the watch has ended, and a new list is needed. */
int kube_event_read(struct kube_pods *t, const char *node, struct span line);

#endif
