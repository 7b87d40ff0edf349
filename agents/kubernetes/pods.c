/* See pods.h. */
#include "agents/kubernetes/pods.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "agents/kubernetes/promises.h"
#include "base/json_text.h"
#include "base/pairs.h"
#include "base/text.h"
#include "who/pod_names.h"
#include "who/rule_conditions.h"

#define PREFIX    "cede.io/"
#define VALUE_MAX 253
#define MAP_MAX   (2U << 20) /* bytes of labels or annotations: 256 KiB, each byte as \u00XX */
#define STATIC    "kubernetes.io/config."

/* uid becomes part of a path: digits, letters and hyphens only. */
static bool is_uid(const char *uid, size_t size)
{
    const size_t n = uid ? strlen(uid) : 0;
    return n > 0 && n < size && strspn(uid, "0123456789abcdefABCDEF-") == n;
}

static bool is_key(const char *key)
{
    if (strlen(key) >= RULE_KEY_MAX)
        return false;
    for (; *key; key++) {
        if (!isalnum((unsigned char)*key) && !strchr("-_./", *key))
            return false;
    }
    return true;
}

static bool is_value(const char *text)
{
    return text && strlen(text) <= VALUE_MAX && text_plain(text);
}

/* Parses a value of max bytes at most, so that no parser gets more than a pod can have. NULL: there
 * is no value, or it cannot be read. */
static json_t *value_json(struct span s, size_t max)
{
    return s.n && s.n <= max ? json_loadb(s.at, s.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
}

/* The text of a JSON string; NULL: it is no string, or has a NUL, at which C would cut it. */
static const char *whole_text(const json_t *o)
{
    const char *text = json_string_value(o);
    return text && strlen(text) == json_string_length(o) ? text : NULL;
}

/* The text of a member; "": there is none, or it does not fit, and so is none that counts. */
static void member_text(struct span o, const char *name, char *out, size_t size)
{
    _cleanup_json_ json_t *v = value_json(span_member(o, name), 6 * size);
    const char *text = whole_text(v);
    snprintf(out, size, "%s", text && strlen(text) < size ? text : "");
}

static void pod_put_fact(struct kube_pod *pod, const char *name, const char *value)
{
    size_t n = pod->nfacts;
    if (!is_value(value) || pairs_get((struct pairs){pod->facts, n}, name))
        return;
    if (pairs_put(pod->facts, sizeof(pod->facts), &n, name, value) == 0)
        pod->nfacts = (uint32_t)n;
}

/* Labels that cede itself reads (by_pod() in api/rules/match.c has the same keys) come first, so
 * that other labels cannot take their room. */
static void pod_put_known_labels(struct kube_pod *pod, const json_t *from)
{
    static const char *const known[] = {"class",   "weight",     "gpu-min",
                                        "gpu-max", "memory-max", "pool"};
    char key[64], name[80];
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        snprintf(key, sizeof(key), PREFIX "%s", known[i]);
        snprintf(name, sizeof(name), "label:%s", key);
        const char *value = whole_text(json_object_get(from, key));
        if (value && *value)
            pod_put_fact(pod, name, value);
    }
}

static void pod_put_labels(struct kube_pod *pod, json_t *from)
{
    char name[RULE_KEY_MAX + 16];
    unsigned n = 0;
    const char *key;
    json_t *value;
    json_object_foreach (from, key, value) {
        if (strncmp(key, PREFIX, strlen(PREFIX)) != 0 || !is_key(key) || n++ >= KUBE_LABELS_MAX)
            continue;
        snprintf(name, sizeof(name), "label:%s", key);
        pod_put_fact(pod, name, whole_text(value));
    }
}

/* The names of containers that run, by the first digits of their ids, "containerd://ID". */
static void put_containers(struct span status, struct kube_pod *pod)
{
    static const char *const lists[] = {"containerStatuses", "initContainerStatuses",
                                        "ephemeralContainerStatuses"};
    char id[128], name[POD_PART_MAX], fact[sizeof(CONTAINER_FACT) + CONTAINER_DIGITS];
    struct span one;
    unsigned n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        const struct span list = span_member(status, lists[i]);
        for (size_t at = 0; n < KUBE_CONTAINERS_MAX && span_next(list, &at, &one);) {
            member_text(one, "containerID", id, sizeof(id));
            member_text(one, "name", name, sizeof(name));
            const char *digits = strstr(id, "://");
            digits = digits ? digits + 3 : "";
            if (!span_member(span_member(one, "state"), "running").n || !name[0] ||
                strspn(digits, "0123456789abcdef") < CONTAINER_DIGITS)
                continue;
            snprintf(fact, sizeof(fact), CONTAINER_FACT "%.*s", CONTAINER_DIGITS, digits);
            pod_put_fact(pod, fact, name);
            n++;
        }
    }
}

static int read_qos(struct span status, char out[static 16])
{
    static const struct {
        const char *class, *part;
    } known[] = {
        {"Guaranteed", ""},
        {"Burstable", "burstable"},
        {"BestEffort", "besteffort"},
    };
    char class[16];
    member_text(status, "qosClass", class, sizeof(class));
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        if (strcmp(class, known[i].class) != 0)
            continue;
        snprintf(out, 16, "%s", known[i].part);
        return 0;
    }
    return -EINVAL;
}

/* The API knows a static pod by its mirror, whose uid is in no path: the kubelet names the control
 * group by the hash of the pod's manifest, and writes the hash into the mirror. The kubelet runs no
 * pod with the annotation `mirror`, so a pod with `config.hash` alone is found by its uid. A hash
 * has no hyphens, so it cannot be another pod's uid. */
static int read_static(const json_t *notes, struct kube_pod *out)
{
    const char *mirror = whole_text(json_object_get(notes, STATIC "mirror"));
    const char *hash = whole_text(json_object_get(notes, STATIC "hash"));
    if (!json_object_get(notes, STATIC "mirror"))
        return 0;
    if (!mirror || !hash || strcmp(mirror, hash) != 0 || strlen(hash) != 32 ||
        strspn(hash, "0123456789abcdef") != 32)
        return -EINVAL;
    memcpy(out->uid, hash, 33);
    return 0;
}

static void read_facts(struct span pod, json_t *notes, json_t *labels, struct kube_pod *out)
{
    static const char *const of_meta[][2] = {{"pod", "name"}, {"namespace", "namespace"}};
    char text[VALUE_MAX + 1];
    for (size_t i = 0; i < ARRAY_SIZE(of_meta); i++) {
        member_text(span_member(pod, "metadata"), of_meta[i][1], text, sizeof(text));
        if (text[0])
            pod_put_fact(out, of_meta[i][0], text);
    }
    member_text(span_member(pod, "spec"), "priorityClassName", text, sizeof(text));
    if (text[0])
        pod_put_fact(out, "priority_class", text);
    pod_put_known_labels(out, notes);
    pod_put_known_labels(out, labels);
    put_containers(span_member(pod, "status"), out);
    pod_put_labels(out, notes);
    pod_put_labels(out, labels);
}

int kube_pod_read(struct span pod, const char *node, struct kube_pod *out)
{
    const struct span meta = span_member(pod, "metadata"), spec = span_member(pod, "spec");
    const struct span status = span_member(pod, "status");
    char of[VALUE_MAX + 1], phase[16];
    *out = (struct kube_pod){.uid = ""};
    member_text(spec, "nodeName", of, sizeof(of));
    member_text(meta, "uid", out->api_uid, sizeof(out->api_uid));
    if ((node && of[0] && strcmp(of, node) != 0) || !is_uid(out->api_uid, sizeof(out->api_uid)))
        return -EINVAL;
    _cleanup_json_ json_t *notes = value_json(span_member(meta, "annotations"), MAP_MAX);
    _cleanup_json_ json_t *labels = value_json(span_member(meta, "labels"), MAP_MAX);
    memcpy(out->uid, out->api_uid, sizeof(out->uid));
    member_text(status, "phase", phase, sizeof(phase));
    int r = read_static(notes, out);
    if (r == 0 && (strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0))
        r = -ESTALE;
    if (r == 0)
        r = read_qos(status, out->qos);
    if (r == 0) {
        read_facts(pod, notes, labels, out);
        kube_promise_read(spec, notes, &out->promise);
        kube_claims_read(pod, &out->claims);
    }
    return r < 0 ? r : out->nfacts ? 0 : -EINVAL;
}

static struct kube_pod *find_pod(struct kube_pods *t, const char *uid)
{
    for (unsigned i = 0; i < t->end; i++) {
        if (strcmp(t->v[i].uid, uid) == 0)
            return &t->v[i];
    }
    return NULL;
}

/* All that is promised, as facts; returns the bytes. */
static size_t promised_facts(const struct kube_pod *pod, char out[static IDENTITY_FACTS])
{
    struct promise all = pod->promise;
    size_t n = 0;
    kube_promise_join(&all, &pod->claimed);
    (void)promise_put(&all, out, IDENTITY_FACTS, &n); /* six short facts always have room */
    return n;
}

uint32_t kube_pod_facts(const struct kube_pod *pod, char out[static IDENTITY_FACTS])
{
    size_t n = promised_facts(pod, out);
    const char *name, *value;
    for (size_t at = 0; pairs_next((struct pairs){pod->facts, pod->nfacts}, &at, &name, &value);)
        (void)pairs_put(out, IDENTITY_FACTS, &n, name, value);
    return (uint32_t)n;
}

static bool same_facts(const struct kube_pod *a, const struct kube_pod *b)
{
    char of_a[IDENTITY_FACTS], of_b[IDENTITY_FACTS];
    const uint32_t n = kube_pod_facts(a, of_a);
    return n == kube_pod_facts(b, of_b) && memcmp(of_a, of_b, n) == 0;
}

void kube_pod_claimed(struct kube_pod *pod, const struct promise *p)
{
    const struct kube_pod before = *pod;
    pod->claimed = *p;
    pod->claims_read = true;
    pod->sent &= same_facts(&before, pod);
}

/* Keeps what is known of the claims, which do not change while the pod has them. */
static void keep_claims(struct kube_pod *pod, const struct kube_pod *before)
{
    if (strcmp(pod->uid, before->uid) != 0 ||
        memcmp(&pod->claims, &before->claims, sizeof(pod->claims)) != 0)
        return;
    pod->claimed = before->claimed;
    pod->claims_read = before->claims_read;
    pod->claims_at_ns = before->claims_at_ns;
}

int kube_pods_put(struct kube_pods *t, const struct kube_pod *pod)
{
    struct kube_pod *p = find_pod(t, pod->uid);
    if (p && p->seen && !p->gone && strcmp(p->api_uid, pod->api_uid) != 0)
        return 0;
    if (!p)
        p = find_pod(t, "");
    if (!p && t->end < KUBE_PODS_MAX)
        p = &t->v[t->end++];
    if (!p)
        return -ENOSPC;
    struct kube_pod now = *pod;
    keep_claims(&now, p);
    const bool same = strcmp(p->uid, pod->uid) == 0 && !p->gone && strcmp(p->qos, pod->qos) == 0 &&
                      same_facts(p, &now);
    const bool sent = same && p->sent;
    const uint64_t reported_ns = strcmp(p->uid, pod->uid) == 0 ? p->reported_ns : 0;
    *p = now;
    p->seen = true;
    p->sent = sent;
    p->reported_ns = reported_ns;
    return 0;
}

static void pod_gone(struct kube_pod *p)
{
    if (p->gone)
        return;
    p->gone = true;
    p->sent = false;
}

void kube_pods_remove(struct kube_pods *t, const struct kube_pod *pod)
{
    struct kube_pod *p = pod->uid[0] ? find_pod(t, pod->uid) : NULL;
    if (p && strcmp(p->api_uid, pod->api_uid) == 0)
        pod_gone(p);
}

void kube_pods_begin(struct kube_pods *t)
{
    for (unsigned i = 0; i < t->end; i++)
        t->v[i].seen = false;
}

void kube_pods_end(struct kube_pods *t)
{
    for (unsigned i = 0; i < t->end; i++) {
        if (t->v[i].uid[0] && !t->v[i].seen)
            pod_gone(&t->v[i]);
    }
}

void kube_pods_send_again(struct kube_pods *t)
{
    for (unsigned i = 0; i < t->end; i++) {
        t->v[i].sent = false;
        t->v[i].reported_ns = 0;
    }
}

static bool systemd_group(const struct kube_pod *pod, const char *root,
                          char out[static IDENTITY_CGROUP])
{
    char uid[sizeof(pod->uid)], parent[128] = "", prefix[96] = "";
    snprintf(uid, sizeof(uid), "%s", pod->uid);
    for (char *p = uid; *p; p++)
        *p = *p == '-' ? '_' : *p;
    /* The name of a slice begins with its parent's name: kubelet-kubepods.slice. */
    const char *last = strrchr(root, '/');
    const size_t n = last ? strlen(last + 1) : 0;
    if (n > 6 && n < 80 && strcmp(last + 1 + n - 6, ".slice") == 0)
        snprintf(prefix, sizeof(prefix), "%.*s-", (int)(n - 6), last + 1);
    if (pod->qos[0])
        snprintf(parent, sizeof(parent), "/%skubepods-%s.slice", prefix, pod->qos);
    const int len =
        snprintf(out, IDENTITY_CGROUP, "%s/%skubepods.slice%s/%skubepods%s%s-pod%s.slice", root,
                 prefix, parent, prefix, pod->qos[0] ? "-" : "", pod->qos, uid);
    return len > 0 && len < IDENTITY_CGROUP;
}

bool kube_pod_cgroup(const struct kube_pod *pod, enum kube_driver driver, const char *root,
                     unsigned i, char out[static IDENTITY_CGROUP])
{
    if (i > (driver == KUBE_EITHER ? 1 : 0))
        return false;
    if (driver == KUBE_SYSTEMD || (driver == KUBE_EITHER && i == 0))
        return systemd_group(pod, root, out);
    const int len = snprintf(out, IDENTITY_CGROUP, "%s/kubepods%s%s/pod%s", root,
                             pod->qos[0] ? "/" : "", pod->qos, pod->uid);
    return len > 0 && len < IDENTITY_CGROUP;
}
