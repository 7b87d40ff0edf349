/* See rule_conditions.h. */
#include "who/rule_conditions.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "who/pod_names.h"

#define HEX "0123456789abcdef"
/* Ids of runtimes have 64 digits; shorter words of hexadecimal digits occur in other names. */
#define ID_DIGITS_MIN 32

static const char *const names[CONDITIONS] = {
    [COND_UID] = "uid",
    [COND_GROUP] = "group",
    [COND_EXE] = "exe",
    [COND_ARGUMENTS] = "arguments",
    [COND_ENVIRONMENT] = "environment",
    [COND_CGROUP] = "cgroup",
    [COND_CONTAINER] = "container",
    [COND_UNIT] = "unit",
    [COND_CONTAINER_NAME] = "container_name",
    [COND_IMAGE] = "image",
    [COND_POD] = "pod",
    [COND_NAMESPACE] = "namespace",
    [COND_PRIORITY_CLASS] = "priority_class",
    [COND_LABEL] = "label",
    [COND_SLURM_JOB] = "slurm_job",
    [COND_PARTITION] = "partition",
    [COND_QOS] = "qos",
};

const char *condition_name(enum condition_kind k)
{
    return names[k];
}

bool rule_is_container_id(const char *s)
{
    return *s && strspn(s, HEX) == strlen(s);
}

/* ---- matching ---- */

static bool container_matches(const char *want, const char *cgroup)
{
    bool is_id = rule_is_container_id(want);
    size_t n = strlen(want);
    for (const char *p = cgroup; *p;) {
        if (is_id) {
            size_t run = strspn(p, HEX);
            if (run >= ID_DIGITS_MIN && run >= n && strncmp(p, want, n) == 0)
                return true;
            p += run ? run : strcspn(p, HEX);
            continue;
        }
        p += strspn(p, "/");
        size_t len = strcspn(p, "/");
        char part[256]; /* longest name of a cgroup: 255 */
        if (len > 0 && len < sizeof(part)) {
            memcpy(part, p, len);
            part[len] = '\0';
            if (fnmatch(want, part, 0) == 0)
                return true;
        }
        p += len;
    }
    return false;
}

static const char *last_part(const char *pattern, const char *exe)
{
    const char *last = strrchr(exe, '/');
    return last && !strchr(pattern, '/') ? last + 1 : exe;
}

static bool in_group(const struct rule_facts *f, gid_t gid)
{
    for (size_t i = 0; i < f->ngroups; i++) {
        if (f->groups[i] == gid)
            return true;
    }
    return false;
}

/* The fact, if it is a text. NULL: it is not known or, if *pending, not known yet. */
static const char *fact_text(const struct condition *c, const struct rule_facts *f,
                             char buf[static RULE_KEY_MAX + 16], bool *pending)
{
    const struct workload *w = f->workload;
    const char *text;
    *pending = false;
    switch (c->kind) {
    case COND_EXE:
        return last_part(c->pattern, f->exe);
    case COND_CGROUP:
        return f->cgroup;
    case COND_UNIT:
        return w ? w->unit : NULL;
    case COND_SLURM_JOB:
        snprintf(buf, 24, "%llu", w ? (unsigned long long)w->slurm_job : 0ULL);
        return w && w->slurm_job ? buf : NULL;
    case COND_LABEL:
        snprintf(buf, RULE_KEY_MAX + 16, "label:%s", c->key);
        return pairs_get(f->told, buf);
    case COND_PRIORITY_CLASS:
    case COND_PARTITION:
    case COND_QOS:
        return pairs_get(f->told, names[c->kind]);
    case COND_CONTAINER_NAME:
    case COND_IMAGE:
    case COND_POD:
    case COND_NAMESPACE:
        text = pairs_get(f->told, names[c->kind]);
        if (!text && w && c->kind == COND_CONTAINER_NAME)
            text = pod_container(f->told, w->container);
        if (text || !w || !w->container[0]) /* only processes in containers have these facts */
            return text;
        break;
    default:
        break;
    }
    *pending = f->pending;
    return f->pending ? NULL : pairs_get(f->read, condition_wants(c, buf));
}

enum verdict condition_holds(const struct condition *c, const struct rule_facts *f)
{
    char buf[RULE_KEY_MAX + 16];
    bool pending;
    if (c->kind == COND_UID)
        return !c->nobody && c->id == f->uid ? VERDICT_YES : VERDICT_NO;
    if (c->kind == COND_GROUP)
        return !c->nobody && in_group(f, c->id) ? VERDICT_YES : VERDICT_NO;
    if (c->kind == COND_CONTAINER)
        return container_matches(c->pattern, f->cgroup) ? VERDICT_YES : VERDICT_NO;
    if (c->kind == COND_POD && f->workload && f->workload->pod[0] &&
        fnmatch(c->pattern, f->workload->pod, 0) == 0)
        return VERDICT_YES;
    const char *text = fact_text(c, f, buf, &pending);
    if (pending)
        return VERDICT_PENDING;
    /* A variable or a label may have the value ""; any other empty fact is not known. */
    const bool may_be_empty = c->kind == COND_ENVIRONMENT || c->kind == COND_LABEL;
    return text && (*text || may_be_empty) && fnmatch(c->pattern, text, 0) == 0 ? VERDICT_YES
                                                                                : VERDICT_NO;
}

const char *condition_seen(const struct condition *c, const struct rule_facts *f,
                           char buf[static CONDITION_SEEN])
{
    char key[RULE_KEY_MAX + 16];
    bool pending;
    buf[0] = '\0';
    if (c->kind == COND_UID)
        snprintf(buf, CONDITION_SEEN, "%u", f->uid);
    for (size_t i = 0; c->kind == COND_GROUP && i < f->ngroups; i++) {
        snprintf(key, sizeof(key), "%u", f->groups[i]);
        list_add(buf, CONDITION_SEEN, key);
    }
    if (c->kind == COND_UID || c->kind == COND_GROUP)
        return buf;
    const char *text = c->kind == COND_CONTAINER ? f->cgroup : fact_text(c, f, key, &pending);
    if (!text && c->kind == COND_POD && f->workload)
        text = f->workload->pod;
    snprintf(buf, CONDITION_SEEN, "%s", text ? text : "");
    return buf;
}

const char *condition_wants(const struct condition *c, char buf[static RULE_KEY_MAX + 16])
{
    switch (c->kind) {
    case COND_ENVIRONMENT:
        snprintf(buf, RULE_KEY_MAX + 16, "environment:%s", c->key);
        return buf;
    case COND_ARGUMENTS:
    case COND_CONTAINER_NAME:
    case COND_IMAGE:
    case COND_POD:
    case COND_NAMESPACE:
        return names[c->kind];
    default:
        return "";
    }
}

/* ---- comparing conditions ---- */

static bool is_literal(const char *pattern)
{
    return !strpbrk(pattern, "*?[\\");
}

static bool same_subject(const struct condition *a, const struct condition *b)
{
    return a->kind == b->kind && strcmp(a->key, b->key) == 0;
}

bool condition_covers(const struct condition *wide, const struct condition *narrow)
{
    const char *w = wide->pattern, *n = narrow->pattern;
    if (!same_subject(wide, narrow) || wide->nobody)
        return false;
    if (wide->kind == COND_UID || wide->kind == COND_GROUP)
        return !narrow->nobody && wide->id == narrow->id;
    if (strcmp(w, n) == 0)
        return true;
    if (wide->kind == COND_CONTAINER && (rule_is_container_id(w) || rule_is_container_id(n)))
        return rule_is_container_id(w) && rule_is_container_id(n) && strncmp(n, w, strlen(w)) == 0;
    if (is_literal(n))
        return fnmatch(w, wide->kind == COND_EXE ? last_part(w, n) : n, 0) == 0;
    /* "prefix*" covers every pattern with that prefix; for "exe" only if both are paths, or both
     * are not. */
    const size_t prefix = strcspn(w, "*?[\\");
    if (w[prefix] != '*' || w[prefix + 1])
        return false;
    if (wide->kind == COND_EXE && prefix && !strchr(w, '/') != !strchr(n, '/'))
        return false;
    return strncmp(w, n, prefix) == 0;
}

bool condition_excludes(const struct condition *a, const struct condition *b)
{
    if (!same_subject(a, b) || a->kind == COND_GROUP || a->kind == COND_CONTAINER ||
        a->kind == COND_POD)
        return false;
    if (a->kind == COND_UID)
        return a->id != b->id;
    if (is_literal(a->pattern) && is_literal(b->pattern))
        return strcmp(a->pattern, b->pattern) != 0;
    if (is_literal(a->pattern))
        return fnmatch(b->pattern, a->pattern, 0) != 0;
    return is_literal(b->pattern) && fnmatch(a->pattern, b->pattern, 0) != 0;
}

const char *condition_impossible(const struct condition *c)
{
    if (c->nobody)
        return c->kind == COND_UID ? "there is no such user" : "there is no such group";
    const bool of_path = c->kind == COND_CGROUP || (c->kind == COND_EXE && strchr(c->pattern, '/'));
    if (of_path && !strchr("/*?[\\", c->pattern[0]))
        return "paths begin with /";
    if (c->kind == COND_SLURM_JOB && is_literal(c->pattern) &&
        strspn(c->pattern, "0123456789") != strlen(c->pattern))
        return "a job of Slurm has a number";
    return NULL;
}
