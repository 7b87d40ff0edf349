/* See table.h: open addressing with linear probing, at most half full. */
#include "gate/opencl/table.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static size_t table_stride(const struct table *t)
{
    return sizeof(void *) + (t->value_size + sizeof(void *) - 1) / sizeof(void *) * sizeof(void *);
}

static const void **handle_at(const struct table *t, size_t i)
{
    return (const void **)(void *)(t->slots + i * table_stride(t));
}

static void *value_at(const struct table *t, size_t i)
{
    return t->slots + i * table_stride(t) + sizeof(void *);
}

static size_t table_home(const struct table *t, const void *handle)
{
    return (size_t)(((uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15ULL) >> 32) & (t->cap - 1);
}

/* The slot of a handle, or the free one where it would go. */
static size_t table_seek(const struct table *t, const void *handle)
{
    size_t i = table_home(t, handle);
    while (*handle_at(t, i) && *handle_at(t, i) != handle)
        i = (i + 1) & (t->cap - 1);
    return i;
}

static bool table_grow(struct table *t)
{
    struct table bigger = *t;
    bigger.cap = t->cap ? t->cap * 2 : 16;
    bigger.slots = calloc(bigger.cap, table_stride(t));
    if (!bigger.slots)
        return false;
    for (size_t i = 0; i < t->cap; i++) {
        const void *handle = *handle_at(t, i);
        if (!handle)
            continue;
        size_t k = table_seek(&bigger, handle);
        *handle_at(&bigger, k) = handle;
        memcpy(value_at(&bigger, k), value_at(t, i), t->value_size);
    }
    free(t->slots);
    t->slots = bigger.slots;
    t->cap = bigger.cap;
    return true;
}

bool table_put(struct table *t, const void *handle, const void *value)
{
    pthread_mutex_lock(&t->lock);
    bool ok = handle && ((t->n + 1) * 2 <= t->cap || table_grow(t));
    if (ok) {
        size_t i = table_seek(t, handle);
        t->n += !*handle_at(t, i);
        *handle_at(t, i) = handle;
        memcpy(value_at(t, i), value, t->value_size);
    }
    pthread_mutex_unlock(&t->lock);
    return ok;
}

bool table_get(struct table *t, const void *handle, void *value)
{
    pthread_mutex_lock(&t->lock);
    size_t i = t->cap && handle ? table_seek(t, handle) : 0;
    bool found = t->cap && handle && *handle_at(t, i);
    if (found)
        memcpy(value, value_at(t, i), t->value_size);
    pthread_mutex_unlock(&t->lock);
    return found;
}

static void table_erase(struct table *t, size_t i)
{
    t->n--;
    *handle_at(t, i) = NULL;
    /* Entries behind it that would not be found any more move up. */
    for (size_t k = (i + 1) & (t->cap - 1); *handle_at(t, k); k = (k + 1) & (t->cap - 1)) {
        const void *moved = *handle_at(t, k);
        *handle_at(t, k) = NULL;
        size_t to = table_seek(t, moved);
        *handle_at(t, to) = moved;
        if (to != k)
            memcpy(value_at(t, to), value_at(t, k), t->value_size);
    }
}

bool table_remove(struct table *t, const void *handle, void *value)
{
    pthread_mutex_lock(&t->lock);
    size_t i = t->cap && handle ? table_seek(t, handle) : 0;
    bool found = t->cap && handle && *handle_at(t, i);
    if (found && value)
        memcpy(value, value_at(t, i), t->value_size);
    if (found)
        table_erase(t, i);
    pthread_mutex_unlock(&t->lock);
    return found;
}

size_t table_take(struct table *t, const void **v, size_t max, void (*keep)(const void *handle))
{
    size_t n = 0;
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->cap && n < max;) {
        if (!*handle_at(t, i)) {
            i++;
            continue;
        }
        v[n] = *handle_at(t, i);
        keep(v[n++]);
        table_erase(t, i); /* another may take its place */
    }
    pthread_mutex_unlock(&t->lock);
    return n;
}

void table_reset(struct table *t)
{
    pthread_mutex_init(&t->lock, NULL);
    t->slots = NULL;
    t->n = t->cap = 0;
}
