/* See answers.h. */
#include "agents/kubernetes/answers.h"

#include <errno.h>
#include <string.h>

/* Copies a token, which goes back to the server unchanged. -EMSGSIZE: too long, or has escapes. */
static int copy_token(struct span s, char *out, size_t size)
{
    return span_text(s, out, size) || !s.n || s.at[0] != '"' ? 0 : -EMSGSIZE;
}

int kube_list_read(struct kube_pods *t, const char *node, struct span text, struct kube_page *page)
{
    const struct span meta = span_member(text, "metadata"), items = span_member(text, "items");
    struct kube_pod pod;
    struct span one;
    int full = 0;
    const bool null = items.n == 4 && memcmp(items.at, "null", 4) == 0; /* Go's empty list */
    if (!span_whole(text) || !items.n || (items.at[0] != '[' && !null))
        return -EPROTO;
    for (size_t at = 0; span_next(items, &at, &one);) {
        const int r = kube_pod_read(one, node, &pod);
        if (r == -ESTALE)
            kube_pods_remove(t, &pod);
        else if (r == 0 && kube_pods_put(t, &pod) < 0)
            full = -ENOSPC;
    }
    if (copy_token(span_member(meta, "resourceVersion"), page->version, sizeof(page->version)) < 0)
        return -EPROTO;
    const int r = copy_token(span_member(meta, "continue"), page->next, sizeof(page->next));
    return r < 0 ? r : full;
}

int kube_event_read(struct kube_pods *t, const char *node, struct span line)
{
    const struct span type = span_member(line, "type");
    struct kube_pod pod;
    if (type.n <= 2 || type.at[0] != '"' || span_is(type, "ERROR"))
        return -ESTALE;
    const int r = kube_pod_read(span_member(line, "object"), node, &pod);
    if (span_is(type, "DELETED") || r == -ESTALE)
        kube_pods_remove(t, &pod);
    else if (r == 0)
        return kube_pods_put(t, &pod);
    return 0;
}
