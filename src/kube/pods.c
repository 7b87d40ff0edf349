/* See pods.h. */
#include "kube/pods.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "control/conditions.h"
#include "lib/json_text.h"
#include "lib/pairs.h"
#include "lib/text.h"

#define PREFIX    "cede.io/"
#define VALUE_MAX 253

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

static void pod_put_fact(struct kube_pod *pod, const char *name, const char *value)
{
    size_t n = pod->nfacts;
    if (!is_value(value) || pairs_get((struct pairs){pod->facts, n}, name))
        return;
    if (pairs_put(pod->facts, sizeof(pod->facts), &n, name, value) == 0)
        pod->nfacts = (uint32_t)n;
}

/* What cede itself reads comes first, so that no other label crowds it out. */
static void pod_put_known_labels(struct kube_pod *pod, const json_t *from)
{
    static const char *const known[] = {"class", "weight", "gpu-min", "gpu-max", "pool"};
    char key[64], name[80];
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        snprintf(key, sizeof(key), PREFIX "%s", known[i]);
        snprintf(name, sizeof(name), "label:%s", key);
        const char *value = json_string_value(json_object_get(from, key));
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
    json_object_foreach(from, key, value)
    {
        if (strncmp(key, PREFIX, strlen(PREFIX)) != 0 || !is_key(key) || n++ >= KUBE_LABELS_MAX)
            continue;
        snprintf(name, sizeof(name), "label:%s", key);
        pod_put_fact(pod, name, json_string_value(value));
    }
}

static int read_qos(const json_t *status, char out[static 16])
{
    static const struct {
        const char *class, *part;
    } known[] = {
        {"Guaranteed", ""},
        {"Burstable", "burstable"},
        {"BestEffort", "besteffort"},
    };
    const char *class = json_get_text(status, "qosClass");
    for (size_t i = 0; class && i < ARRAY_SIZE(known); i++) {
        if (strcmp(class, known[i].class) != 0)
            continue;
        snprintf(out, 16, "%s", known[i].part);
        return 0;
    }
    return -EINVAL;
}

int kube_pod_read(const json_t *o, struct kube_pod *out)
{
    const json_t *meta = json_object_get(o, "metadata"), *spec = json_object_get(o, "spec");
    const json_t *status = json_object_get(o, "status");
    json_t *notes = json_object_get(meta, "annotations"), *labels = json_object_get(meta, "labels");
    const char *uid = json_get_text(meta, "uid"), *phase = json_get_text(status, "phase");
    const char *priority = json_get_text(spec, "priorityClassName");
    *out = (struct kube_pod){.uid = ""};
    if (!is_uid(uid, sizeof(out->uid)))
        return -EINVAL;
    snprintf(out->uid, sizeof(out->uid), "%s", uid);
    if (phase && (strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0))
        return -ESTALE;
    if (read_qos(status, out->qos) < 0)
        return -EINVAL;
    pod_put_fact(out, "pod", json_get_text(meta, "name"));
    pod_put_fact(out, "namespace", json_get_text(meta, "namespace"));
    if (priority && *priority)
        pod_put_fact(out, "priority_class", priority);
    pod_put_known_labels(out, notes);
    pod_put_known_labels(out, labels);
    pod_put_labels(out, notes);
    pod_put_labels(out, labels);
    return out->nfacts ? 0 : -EINVAL;
}

static struct kube_pod *find_pod(struct kube_pods *t, const char *uid)
{
    for (unsigned i = 0; i < t->end; i++) {
        if (strcmp(t->v[i].uid, uid) == 0)
            return &t->v[i];
    }
    return NULL;
}

int kube_pods_put(struct kube_pods *t, const struct kube_pod *pod)
{
    struct kube_pod *p = find_pod(t, pod->uid);
    if (!p)
        p = find_pod(t, "");
    if (!p && t->end < KUBE_PODS_MAX)
        p = &t->v[t->end++];
    if (!p)
        return -ENOSPC;
    const bool same = strcmp(p->uid, pod->uid) == 0 && !p->gone && p->nfacts == pod->nfacts &&
                      strcmp(p->qos, pod->qos) == 0 &&
                      memcmp(p->facts, pod->facts, pod->nfacts) == 0;
    const bool sent = same && p->sent;
    *p = *pod;
    p->seen = true;
    p->sent = sent;
    return 0;
}

void kube_pods_remove(struct kube_pods *t, const char *uid)
{
    struct kube_pod *p = *uid ? find_pod(t, uid) : NULL;
    if (!p || p->gone)
        return;
    p->gone = true;
    p->sent = false;
}

void kube_pods_begin(struct kube_pods *t)
{
    for (unsigned i = 0; i < t->end; i++)
        t->v[i].seen = false;
}

void kube_pods_end(struct kube_pods *t)
{
    for (unsigned i = 0; i < t->end; i++) {
        if (!t->v[i].seen)
            kube_pods_remove(t, t->v[i].uid);
    }
}

void kube_pods_send_again(struct kube_pods *t)
{
    for (unsigned i = 0; i < t->end; i++)
        t->v[i].sent = false;
}

static bool systemd_group(const struct kube_pod *pod, const char *root,
                          char out[static IDENTITY_CGROUP])
{
    char uid[sizeof(pod->uid)], parent[128] = "", prefix[96] = "";
    snprintf(uid, sizeof(uid), "%s", pod->uid);
    for (char *p = uid; *p; p++)
        *p = *p == '-' ? '_' : *p;
    /* A slice below another one has that one's name before its own: kubelet-kubepods.slice. */
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
