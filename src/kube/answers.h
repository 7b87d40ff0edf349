/* What an API server or kubelet answers, taken into the table of pods. A pod that cannot be read is
 * left out, and costs no other one its place. No I/O. */
#ifndef CEDE_KUBE_ANSWERS_H
#define CEDE_KUBE_ANSWERS_H

#include "kube/pods.h"

struct kube_page {
    char version[64]; /* from which a watch goes on */
    char next[512];   /* asks for the next page; "": this is the last */
};

/* A list of pods, or a page of one, between kube_pods_begin() and _end(). 0; -ENOSPC: some pods had
 * no room; -EPROTO: this is no list, or not all of it; -EMSGSIZE: what asks for the next page is
 * too long. */
int kube_list_read(struct kube_pods *t, const char *node, struct span text, struct kube_page *page);

/* A line of a watch. 0; -ENOSPC; -ESTALE: it does not go on, and a list is needed. */
int kube_event_read(struct kube_pods *t, const char *node, struct span line);

#endif
