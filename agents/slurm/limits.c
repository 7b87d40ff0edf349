/* See limits.h. */
#include "limits.h"

#include <errno.h>
#include <string.h>

#include "plan/sched.h"

static const char *const words[] = {[LIMIT_PARTITION] = "partition", [LIMIT_QOS] = "qos"};

/* Reads the end of a key: "", ":partition:NAME" or ":qos:NAME". */
static int read_where(struct limit *l, const char *where, const char *argument, struct error *err)
{
    if (!*where)
        return 0;
    for (enum limit_of of = LIMIT_PARTITION; of <= LIMIT_QOS; of++) {
        const size_t n = strlen(words[of]);
        if (strncmp(where + 1, words[of], n) == 0 && where[1 + n] == ':' && where[2 + n] &&
            strlen(where + 2 + n) < sizeof(l->name)) {
            l->of = of;
            snprintf(l->name, sizeof(l->name), "%s", where + 2 + n);
            return 0;
        }
    }
    return error_set(err, -EINVAL, "%s: after the key :partition:NAME or :qos:NAME may follow",
                     argument);
}

static int read_value(struct limit *l, const char *key, const char *value, struct error *err)
{
    uint64_t weight;
    if (strcmp(key, "max_weight") == 0) {
        l->kind = LIMIT_WEIGHT;
        if (parse_u64(value, WEIGHT_MIN, WEIGHT_MAX, &weight) < 0)
            return error_set(err, -EINVAL, "max_weight: '%s' is not a number from %u to %u", value,
                             WEIGHT_MIN, WEIGHT_MAX);
        l->weight = (uint32_t)weight;
        return 0;
    }
    l->kind = strcmp(key, "max") == 0 ? LIMIT_CLASS : LIMIT_DEFAULT;
    if (l->kind == LIMIT_DEFAULT && strcmp(value, "none") == 0)
        l->class = LIMIT_CLASS_NOT;
    else if (job_class_parse(value, &l->class) < 0)
        return error_set(err, -EINVAL, "%s: '%s' is not latency, normal or batch%s", key, value,
                         l->kind == LIMIT_DEFAULT ? ", nor none" : "");
    return 0;
}

int limits_read(struct limits *l, const char *argument, struct error *err)
{
    char key[LIMIT_NAME_MAX + 32];
    struct limit one = {.of = LIMIT_ALL};
    const char *value = strchr(argument, '=');
    if (!value || (size_t)(value - argument) >= sizeof(key))
        return error_set(err, -EINVAL, "'%.80s' is not KEY=VALUE", argument);
    snprintf(key, sizeof(key), "%.*s", (int)(value++ - argument), argument);
    if (strcmp(key, "dir") == 0 || strcmp(key, "cede") == 0) {
        if (value[0] != '/')
            return error_set(err, -EINVAL, "%s: '%s' is not an absolute path", key, value);
        *(key[0] == 'd' ? &l->dir : &l->cede) = value;
        return 0;
    }
    if (strcmp(key, "required") == 0) {
        l->required = strcmp(value, "yes") == 0;
        return l->required || strcmp(value, "no") == 0
                   ? 0
                   : error_set(err, -EINVAL, "required: '%s' is not yes or no", value);
    }
    char *where = key + strcspn(key, ":");
    int r = read_where(&one, where, argument, err);
    *where = '\0';
    if (r == 0 && strcmp(key, "default") != 0 && strcmp(key, "max") != 0 &&
        strcmp(key, "max_weight") != 0)
        r = error_set(err, -EINVAL,
                      "there is no argument %s; there are default, max, max_weight, required, dir "
                      "and cede",
                      key);
    if (r == 0)
        r = read_value(&one, key, value, err);
    if (r == 0 && l->n == LIMITS_MAX)
        r = error_set(err, -ENOSPC, "more than %d limits", LIMITS_MAX);
    if (r == 0)
        l->v[l->n++] = one;
    return r;
}

bool limits_differ(const struct limits *l)
{
    for (unsigned i = 0; i < l->n; i++) {
        if (l->v[i].of != LIMIT_ALL)
            return true;
    }
    return false;
}

/* The limits of a job. By default a user gets no more than without Slurm. */
struct terms {
    enum job_class fallback, max;
    uint32_t max_weight;
};

static bool is_about(const struct limit *one, const char *partition, const char *qos)
{
    return one->of == LIMIT_ALL ||
           (one->of == LIMIT_PARTITION && strcmp(one->name, partition) == 0) ||
           (one->of == LIMIT_QOS && qos && strcmp(one->name, qos) == 0);
}

static struct terms terms_for(const struct limits *l, const char *partition, const char *qos)
{
    struct terms t = {LIMIT_CLASS_NOT, CLASS_NORMAL, WEIGHT_DEFAULT};
    for (enum limit_of of = LIMIT_ALL; of <= LIMIT_QOS; of++) {
        for_each (one, l->v, l->n) {
            /* While the partition is not known, limits of partitions and QOSes only allow more, and
             * their defaults have no effect. */
            const bool counts = partition || one->of == LIMIT_ALL;
            if (one->of != of || (partition && !is_about(one, partition, qos)))
                continue;
            if (one->kind == LIMIT_DEFAULT && counts)
                t.fallback = one->class;
            else if (one->kind == LIMIT_CLASS)
                t.max = counts || one->class < t.max ? one->class : t.max;
            else if (one->kind == LIMIT_WEIGHT)
                t.max_weight = counts || one->weight > t.max_weight ? one->weight : t.max_weight;
        }
    }
    return t;
}

/* Lists where limits allow the class or weight: "; it is allowed in partition prod, qos high". */
static void list_allowed(const struct limits *l, enum job_class class, uint32_t weight, char *buf,
                         size_t size)
{
    char name[LIMIT_NAME_MAX + 16];
    for_each (one, l->v, l->n) {
        if (one->of == LIMIT_ALL || (weight ? one->kind != LIMIT_WEIGHT || one->weight < weight
                                            : one->kind != LIMIT_CLASS || one->class > class))
            continue;
        snprintf(name, sizeof(name), "%s%s %s", buf[0] ? "" : "; it is allowed in ", words[one->of],
                 one->name);
        list_add(buf, size, name);
    }
}

static int check(const struct limits *l, const struct limits_options *o, const struct terms *t,
                 const char *partition, struct error *err)
{
    static const char *const up_to[] = {"latency, normal and batch are", "normal and batch are",
                                        "batch is"};
    char where[LIMIT_NAME_MAX + 32] = "", allowed[200] = "";
    if (partition && *partition)
        snprintf(where, sizeof(where), " in partition %s", partition);
    if (o->has_class && o->class < t->max) {
        list_allowed(l, o->class, 0, allowed, sizeof(allowed));
        return error_set(err, -EPERM, "--gpu-class=%s is not allowed%s: %s%s",
                         job_class_name(o->class), where, up_to[t->max], allowed);
    }
    if (o->weight > t->max_weight) {
        list_allowed(l, CLASS_COUNT, o->weight, allowed, sizeof(allowed));
        return error_set(err, -EPERM, "--gpu-weight=%u is not allowed%s: at most %u is%s",
                         o->weight, where, t->max_weight, allowed);
    }
    return 0;
}

int limits_apply(const struct limits *l, const struct limits_options *o, const char *partition,
                 const char *qos, enum job_class *class, uint32_t *weight, struct error *err)
{
    const struct terms t = terms_for(l, partition, qos);
    if (o->pool && o->has_class && o->class != CLASS_BATCH)
        return error_set(err, -EINVAL,
                         "--gpu-pool is for batch jobs: give --gpu-class=batch, or "
                         "leave out one of the two");
    int r = check(l, o, &t, partition, err);
    const bool asked = o->has_class || o->weight || o->pool;
    *class = o->has_class                             ? o->class
             : o->pool                                ? CLASS_BATCH
             : t.fallback == LIMIT_CLASS_NOT && asked ? CLASS_NORMAL
             : t.fallback == LIMIT_CLASS_NOT          ? LIMIT_CLASS_NOT
                                                      : t.fallback;
    if (*class < t.max) /* a default above the highest class is lowered, too */
        *class = t.max;
    *weight = o->weight ? o->weight : (uint32_t)min_u64(WEIGHT_DEFAULT, t.max_weight);
    return r;
}
