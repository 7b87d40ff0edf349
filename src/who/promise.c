/* See promise.h. */
#include "who/promise.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

#define FACT "promise:"

enum kind { CLASS, WEIGHT, PERCENT, MEMORY };
static const struct row {
    const char *name;
    enum kind kind;
    size_t at;
} rows[] = {
    {FACT "class", CLASS, offsetof(struct promise, class)},
    {FACT "weight", WEIGHT, offsetof(struct promise, weight)},
    {FACT "gpu-min", PERCENT, offsetof(struct promise, gpu_min)},
    {FACT "gpu-max", PERCENT, offsetof(struct promise, gpu_max)},
    {FACT "memory", MEMORY, offsetof(struct promise, memory)},
    {FACT "memory-max", MEMORY, offsetof(struct promise, memory_max)},
};

bool promise_is_fact(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (strcmp(name, rows[i].name) == 0)
            return true;
    }
    return false;
}

/* "16G" or "25%". 0; -EINVAL, -ERANGE. */
static int gpu_memory_parse(const char *text, struct gpu_memory *out)
{
    char number[24];
    double percent;
    const size_t n = strlen(text);
    *out = (struct gpu_memory){.bytes = 0};
    if (!n || text[n - 1] != '%')
        return parse_bytes(text, MEMORY_MAX_BYTES, &out->bytes);
    if (n > sizeof(number))
        return -EINVAL;
    snprintf(number, sizeof(number), "%.*s", (int)(n - 1), text);
    const int r = parse_double(number, 0, 100, &percent);
    out->part = r == 0 ? percent / 100 : 0;
    return r;
}

uint64_t gpu_memory_bytes(struct gpu_memory m, uint64_t gpu_bytes)
{
    return m.part > 0 ? (uint64_t)(m.part * (double)gpu_bytes) : m.bytes;
}

/* "": nothing is promised. */
static void write_value(const struct promise *p, const struct row *r, char *text, size_t size)
{
    const void *at = (const char *)p + r->at;
    const struct gpu_memory *m = at;
    text[0] = '\0';
    if (r->kind == CLASS)
        snprintf(text, size, "%s", (const char *)at);
    else if (r->kind != MEMORY && *(const uint32_t *)at)
        snprintf(text, size, "%u", *(const uint32_t *)at);
    else if (r->kind == MEMORY && m->part > 0)
        snprintf(text, size, "%.8g%%", m->part * 100);
    else if (r->kind == MEMORY && m->bytes)
        snprintf(text, size, "%llu", (unsigned long long)m->bytes);
}

int promise_put(const struct promise *p, char *buf, size_t size, size_t *n)
{
    char text[32];
    int result = 0;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        write_value(p, &rows[i], text, sizeof(text));
        const int r = text[0] ? pairs_put(buf, size, n, rows[i].name, text) : 0;
        result = r < 0 ? r : result;
    }
    return result;
}

static bool read_value(const struct row *r, const char *text, void *at)
{
    uint64_t v = 0;
    if (r->kind == CLASS) {
        snprintf(at, sizeof(((struct promise *)0)->class), "%s", text);
        return true;
    }
    if (r->kind == MEMORY)
        return gpu_memory_parse(text, at) == 0;
    if (parse_u64(text, 1, r->kind == WEIGHT ? WEIGHT_MAX : 100, &v) < 0)
        return false;
    *(uint32_t *)at = (uint32_t)v;
    return true;
}

bool promise_get(struct pairs facts, struct promise *out)
{
    bool any = false;
    *out = (struct promise){.class = ""};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *text = pairs_get(facts, rows[i].name);
        any |= text && read_value(&rows[i], text, (char *)out + rows[i].at);
    }
    return any;
}

const char *promise_text(struct pairs facts, char *buf, size_t size)
{
    char one[64];
    buf[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *text = pairs_get(facts, rows[i].name);
        snprintf(one, sizeof(one), "%s %.24s", rows[i].name + strlen(FACT), text ? text : "");
        if (text)
            list_add(buf, size, one);
    }
    return buf;
}
