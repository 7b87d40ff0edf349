/* Fuzz target for what an API server answers about pods: whatever it is, what comes out are few
 * plain facts and paths below the root, and the search for values finds what a parser finds. */
#include <jansson.h>

#include "agents/kubernetes/answers.h"
#include "base/text.h"
#include "fuzz.h"

static void check_pod(const struct kube_pod *pod)
{
    static const char allowed[] =
        "/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    char text[IDENTITY_FACTS];
    const struct pairs facts = {text, kube_pod_facts(pod, text)};
    const char *name, *value;
    char group[IDENTITY_CGROUP];
    require(pod->nfacts > 0 && pod->nfacts <= sizeof(pod->facts) && pairs_valid(facts));
    for (unsigned i = 0; i < pod->claims.n; i++)
        require(pod->claims.name[i][0] && !strpbrk(pod->claims.name[i], "/?#% ") &&
                !strstr(pod->claims.name[i], "/."));
    for (size_t at = 0; pairs_next(facts, &at, &name, &value);)
        require(text_plain(value) && strlen(value) <= 253 && text_plain(name));
    for (unsigned i = 0; kube_pod_cgroup(pod, KUBE_EITHER, "/r", i, group); i++)
        require(strncmp(group, "/r/kubepods", 11) == 0 && strspn(group, allowed) == strlen(group) &&
                !strstr(group, ".."));
}

static void check_pods(const struct kube_pods *t)
{
    for (unsigned i = 0; i < t->end; i++) {
        if (t->v[i].uid[0])
            check_pod(&t->v[i]);
        for (unsigned k = 0; k < i; k++)
            require(!t->v[i].uid[0] || strcmp(t->v[i].uid, t->v[k].uid) != 0);
    }
}

static bool same(struct span s, const json_t *v)
{
    json_t *found = json_loadb(s.at, s.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    const bool is = found && json_equal(found, v);
    json_decref(found);
    return is;
}

/* Text that a parser takes, and that names nothing in two ways. */
static void check_scan(struct span text)
{
    const char *key;
    json_t *v, *o = json_loadb(text.at, text.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    struct span one;
    size_t at = 0, n = 0;
    if (memchr(text.at, '\\', text.n)) {
        json_decref(o);
        return;
    }
    require(!o || span_whole(text));
    json_object_foreach (o, key, v) {
        require(same(span_member(text, key), v));
    }
    while (json_is_array(o) && span_next(text, &at, &one))
        require(same(one, json_array_get(o, n++)));
    require(n == json_array_size(o));
    json_decref(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct kube_pods t;
    const struct span text = {(const char *)data, size};
    struct kube_page page = {.version = ""};
    struct kube_pod pod;
    struct promise p = {.class = ""};
    if (!size)
        return 0;
    memset(&t, 0, sizeof(t.v[0]) * t.end);
    t.end = 0;
    kube_pods_begin(&t);
    if (kube_list_read(&t, "n1", text, &page) == 0)
        require(strlen(page.version) < sizeof(page.version) &&
                strlen(page.next) < sizeof(page.next));
    kube_pods_end(&t);
    for (size_t from = 0, end; from < size; from = end + 1) {
        const char *line = memchr(text.at + from, '\n', size - from);
        end = line ? (size_t)(line - text.at) : size;
        (void)kube_event_read(&t, NULL, (struct span){text.at + from, end - from});
    }
    if (kube_pod_read(text, NULL, &pod) == 0)
        check_pod(&pod);
    (void)kube_claim_read(text, &p);
    check_pods(&t);
    check_scan(text);
    return 0;
}
