/* See agent_reports.h. */
#include "who/agent_reports.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json_text.h"
#include "base/text.h"
#include "who/pod_names.h"
#include "who/promise.h"
#include "who/rule_conditions.h"

#define VALUE_MAX 253 /* bytes of a name in Kubernetes */

struct identity {
    char *cgroup; /* NULL: a free slot. The facts are behind it in the same block */
    struct pairs facts;
    uint64_t number;
};

struct identities {
    struct identity v[IDENTITIES_MAX];
    unsigned end; /* slots below may be in use */
    uint64_t number;
};

struct identities *identities_new(void)
{
    return calloc(1, sizeof(struct identities));
}

static void identity_free(struct identity *i)
{
    free(i->cgroup);
    *i = (struct identity){.cgroup = NULL};
}

void identities_free(struct identities *t)
{
    for (unsigned i = 0; t && i < t->end; i++)
        identity_free(&t->v[i]);
    free(t);
}

static bool group_exists(const char *cgroup)
{
    static const char *const at[] = {"/sys/fs/cgroup",         "/sys/fs/cgroup/unified",
                                     "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/pids",
                                     "/sys/fs/cgroup/memory",  "/sys/fs/cgroup/cpuset"};
    char path[IDENTITY_CGROUP + 32];
    struct stat st;
    for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
        snprintf(path, sizeof(path), "%s%s", at[i], cgroup);
        if (stat(path, &st) == 0)
            return true;
    }
    return false;
}

static struct identity *find_slot(struct identities *t, const char *cgroup)
{
    struct identity *room = NULL;
    for (unsigned i = 0; i < t->end; i++) {
        if (!t->v[i].cgroup)
            room = room ? room : &t->v[i];
        else if (strcmp(t->v[i].cgroup, cgroup) == 0)
            return &t->v[i];
    }
    if (room || t->end < IDENTITIES_MAX)
        return room ? room : &t->v[t->end++];
    for (unsigned i = 0; i < t->end; i++) {
        if (group_exists(t->v[i].cgroup))
            continue;
        identity_free(&t->v[i]);
        room = &t->v[i];
    }
    return room;
}

int identities_put(struct identities *t, const char *cgroup, struct pairs facts)
{
    struct identity *i = find_slot(t, cgroup);
    const size_t n = strlen(cgroup) + 1;
    if (!i)
        return -ENOSPC;
    if (i->cgroup && i->facts.n == facts.n && memcmp(i->facts.text, facts.text, facts.n) == 0)
        return 0;
    char *block = facts.n ? malloc(n + facts.n) : NULL;
    if (facts.n && !block)
        return -ENOMEM;
    identity_free(i);
    if (!block)
        return 0;
    memcpy(block, cgroup, n);
    memcpy(block + n, facts.text, facts.n);
    *i = (struct identity){block, {block + n, facts.n}, ++t->number};
    return 0;
}

uint64_t identities_number(const struct identities *t)
{
    return t->number;
}

/* Whether the path is that of the group, or of one below. */
static bool is_in_group(const char *path, size_t n, const char *cgroup, size_t len)
{
    return len <= n && memcmp(path, cgroup, len) == 0 && (len == n || path[len] == '/');
}

struct pairs identities_find(const struct identities *t, const char *proc_cgroup, uint64_t *number)
{
    struct pairs best = {.n = 0};
    uint64_t found = 0;
    size_t longest = 0;
    for (const char *line = proc_cgroup, *next; t && t->end && *line; line = next) {
        const size_t all = strcspn(line, "\n"), skip = strcspn(line, "/");
        next = line + all + (line[all] == '\n');
        for (unsigned i = 0; skip < all && i < t->end; i++) {
            const char *g = t->v[i].cgroup;
            const size_t len = g ? strlen(g) : 0;
            if (len <= longest || !is_in_group(line + skip, all - skip, g, len))
                continue;
            longest = len;
            best = t->v[i].facts;
            found = t->v[i].number;
        }
    }
    if (number)
        *number = found;
    return best;
}

/* "container:ID" */
static bool is_container(const char *name)
{
    const size_t n = strlen(CONTAINER_FACT);
    return strncmp(name, CONTAINER_FACT, n) == 0 && strlen(name + n) == CONTAINER_DIGITS &&
           strspn(name + n, "0123456789abcdef") == CONTAINER_DIGITS;
}

static bool is_known(const char *name)
{
    static const enum condition_kind told[] = {
        COND_POD,       COND_NAMESPACE, COND_CONTAINER_NAME, COND_IMAGE,
        COND_PARTITION, COND_QOS,       COND_PRIORITY_CLASS};
    const size_t label = strlen("label:");
    for (size_t i = 0; i < ARRAY_SIZE(told); i++) {
        if (strcmp(name, condition_name(told[i])) == 0)
            return true;
    }
    return (strncmp(name, "label:", label) == 0 && name[label]) || is_container(name) ||
           promise_is_fact(name);
}

int identities_parse(const json_t *o, char facts[static IDENTITY_FACTS], uint32_t *n,
                     struct error *err)
{
    const char *key;
    json_t *v;
    char q[TEXT_QUOTE];
    size_t used = 0;
    if (!json_is_object(o))
        return error_set(err, -EINVAL, "facts: an object of texts is needed");
    json_object_foreach ((json_t *)o, key, v) {
        const char *text = json_string_value(v);
        if (!is_known(key))
            return error_set(err, -EINVAL,
                             "facts: '%s' is not one of pod, namespace, container_name, image, "
                             "priority_class, partition, qos, label:KEY, container:ID, promise:KEY",
                             text_quote(q, key));
        if (!text || (!*text && key[0] != 'l') || strlen(text) > VALUE_MAX || !text_plain(text))
            return error_set(err, -EINVAL, "facts: %s: a text of at most %d bytes is needed",
                             text_quote(q, key), VALUE_MAX);
        if (pairs_put(facts, IDENTITY_FACTS, &used, key, text) < 0)
            return error_set(err, -EINVAL, "facts: more than %d bytes", IDENTITY_FACTS);
    }
    *n = (uint32_t)used;
    return 0;
}

json_t *identities_json(struct pairs facts)
{
    json_t *o = json_object();
    const char *name, *value;
    for (size_t at = 0; pairs_next(facts, &at, &name, &value);)
        json_object_set_new(o, name, json_text(value));
    return o;
}
