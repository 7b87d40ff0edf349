/* See claims.h. The fields are those of resource.k8s.io/v1. */
#include "agents/kubernetes/claims.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agents/kubernetes/promises.h"
#include "base/util.h"

#define DRIVER      "gpu.nvidia.com"
#define LISTED_MAX  32  /* claims in a pod's lists that are looked at */
#define RESULTS_MAX 128 /* devices of a claim */

/* A DNS name, of which no character means anything in an address. */
static bool is_name(const char *s)
{
    return *s && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") == strlen(s) && s[0] != '.';
}

static void add_claims(struct span list, struct kube_claims *out)
{
    struct span one;
    size_t at = 0;
    for (unsigned i = 0; i < LISTED_MAX && out->n < KUBE_CLAIMS_MAX && span_next(list, &at, &one);
         i++) {
        char *name = out->name[out->n];
        if (span_text(span_member(one, "resourceClaimName"), name, KUBE_NAME_MAX) && is_name(name))
            out->n++;
        else
            name[0] = '\0';
    }
}

void kube_claims_read(struct span pod, struct kube_claims *out)
{
    *out = (struct kube_claims){.n = 0};
    const struct span namespace = span_member(span_member(pod, "metadata"), "namespace");
    if (!span_text(namespace, out->namespace, sizeof(out->namespace)) || !is_name(out->namespace))
        return;
    add_claims(span_member(span_member(pod, "spec"), "resourceClaims"), out);
    add_claims(span_member(span_member(pod, "status"), "resourceClaimStatuses"), out);
}

static bool capacity(struct span result, const char *name, double *out)
{
    char text[32];
    const struct span all = span_member(result, "consumedCapacity");
    return span_text(span_member(all, name), text, sizeof(text)) && kube_quantity(text, out);
}

/* Of a device that several claims share: each share is worth the weight of one job. The driver
 * counts memory and enforces none. */
static void add_device(struct span result, struct promise *p)
{
    struct promise one = {.class = ""};
    double v;
    if (!span_is(span_member(result, "driver"), DRIVER))
        return;
    if (capacity(result, "shares", &v) && v >= 1)
        one.weight = (uint32_t)min_u64((uint64_t)v * WEIGHT_DEFAULT, WEIGHT_MAX);
    if (capacity(result, "memory", &v) && v >= 1)
        one.memory.bytes = one.memory_max.bytes = (uint64_t)v;
    kube_promise_join(p, &one);
}

int kube_claim_read(struct span claim, struct promise *p)
{
    const struct span allocation = span_member(span_member(claim, "status"), "allocation");
    const struct span list = span_member(span_member(allocation, "devices"), "results");
    struct span one;
    size_t at = 0;
    if (!span_whole(claim) || !claim.n || claim.at[0] != '{')
        return -EPROTO;
    if (!allocation.n)
        return -EAGAIN;
    for (unsigned i = 0; i < RESULTS_MAX && span_next(list, &at, &one); i++)
        add_device(one, p);
    return 0;
}
