/* See promises.h. */
#include "api/rules/promises.h"

#include <string.h>

#include "who/promise.h"

static const struct {
    const char *key;
    uint32_t bit;
} keys[] = {
    {"class", TERM(class)},
    {"weight", TERM(weight)},
    {"gpu_min", TERM(gpu_min)},
    {"memory", PROMISED_MEMORY},
    {"memory_max", TERM(memory_max_mib)},
};

uint32_t promised_bit(const char *key)
{
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        if (strcmp(key, keys[i].key) == 0)
            return keys[i].bit;
    }
    return 0;
}

const char *promised_names(const struct rule *r, char *buf, size_t size)
{
    buf[0] = '\0';
    for (size_t i = 1; i < ARRAY_SIZE(keys); i++) {
        if (r->promised & keys[i].bit)
            list_add(buf, size, keys[i].key);
    }
    return buf;
}

bool promises_class(const struct rule_facts *f, enum job_class *out)
{
    struct promise p;
    return promise_get(f->told, &p) && job_class_parse(p.class, out) == 0;
}

static void lower_class(struct request *r, const struct promise *p)
{
    enum job_class class;
    if (job_class_parse(p->class, &class) < 0 || class <= r->class)
        return;
    r->class = class;
    r->given &= ~TERM(budget_us); /* of latency jobs only */
    r->budget_us = 0;
}

/* The limits, which take nothing from others. */
static void lower(const struct rule_list *l, struct request *r, const struct promise *p)
{
    const uint64_t mib = gpu_memory_bytes(p->memory_max, l->gpu_memory_bytes) >> 20;
    if (p->gpu_max && (!r->gpu_max || p->gpu_max < r->gpu_max)) {
        r->gpu_max = p->gpu_max;
        r->given |= TERM(gpu_max);
    }
    if (mib && (!r->memory_max_mib || mib < r->memory_max_mib)) {
        r->memory_max_mib = (uint32_t)min_u64(mib, MEMORY_MAX_MIB);
        r->given |= TERM(memory_max_mib);
    }
    if (r->gpu_max && r->gpu_min > r->gpu_max)
        r->gpu_min = r->gpu_max;
}

void promises_apply(const struct rule_list *l, const struct rule_facts *f, struct outcome *o)
{
    struct request *r = &o->request;
    struct promise p;
    if (!promise_get(f->told, &p) || (o->by == BY_NONE && !l->environment))
        return;
    if (o->by == BY_NONE) {
        o->by = BY_ENVIRONMENT;
        *r = (struct request){.given = TERM(class), .class = CLASS_NORMAL};
    }
    const uint32_t raises = o->by == BY_RULE ? o->rule->promised : 0;
    if (raises & TERM(class))
        (void)job_class_parse(p.class, &r->class);
    if (raises & TERM(weight) && p.weight) {
        r->weight = p.weight;
        r->given |= TERM(weight);
    }
    if (raises & TERM(gpu_min) && p.gpu_min) {
        r->gpu_min = p.gpu_min;
        r->given |= TERM(gpu_min);
    }
    if (raises & PROMISED_MEMORY)
        r->memory_bytes = gpu_memory_bytes(p.memory, l->gpu_memory_bytes);
    lower_class(r, &p);
    lower(l, r, &p);
}
