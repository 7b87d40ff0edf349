/* See table.h: a search tree of the C library's. */
#include "gate/opencl/table.h"

#include <search.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct table_entry {
    const void *handle;
    char value[];
};

static int entry_compare(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct table_entry *)a)->handle;
    uintptr_t y = (uintptr_t)((const struct table_entry *)b)->handle;
    return (x > y) - (x < y);
}

static struct table_entry *table_find_locked(const struct table *t, const void *handle)
{
    struct table_entry key = {handle}, **found = tfind(&key, &t->root, entry_compare);
    return found ? *found : NULL;
}

static struct table_entry *table_add_locked(struct table *t, const void *handle)
{
    struct table_entry *e = handle ? malloc(sizeof(*e) + t->value_size) : NULL;
    if (!e)
        return NULL;
    e->handle = handle;
    if (!tsearch(e, &t->root, entry_compare)) {
        free(e);
        return NULL;
    }
    return e;
}

bool table_put(struct table *t, const void *handle, const void *value)
{
    pthread_mutex_lock(&t->lock);
    struct table_entry *e = table_find_locked(t, handle);
    e = e ? e : table_add_locked(t, handle);
    if (e)
        memcpy(e->value, value, t->value_size);
    pthread_mutex_unlock(&t->lock);
    return e;
}

bool table_get(struct table *t, const void *handle, void *value)
{
    pthread_mutex_lock(&t->lock);
    const struct table_entry *e = table_find_locked(t, handle);
    if (e)
        memcpy(value, e->value, t->value_size);
    pthread_mutex_unlock(&t->lock);
    return e;
}

bool table_remove(struct table *t, const void *handle, void *value)
{
    pthread_mutex_lock(&t->lock);
    struct table_entry *e = table_find_locked(t, handle);
    if (e && value)
        memcpy(value, e->value, t->value_size);
    bool found = e;
    if (found)
        tdelete(e, &t->root, entry_compare);
    pthread_mutex_unlock(&t->lock);
    free(e);
    return found;
}

size_t table_take(struct table *t, const void **v, size_t max, void (*keep)(const void *handle))
{
    size_t n = 0;
    pthread_mutex_lock(&t->lock);
    for (; t->root && n < max; n++) {
        struct table_entry *e = *(struct table_entry **)t->root;
        v[n] = e->handle;
        keep(v[n]);
        tdelete(e, &t->root, entry_compare);
        free(e);
    }
    pthread_mutex_unlock(&t->lock);
    return n;
}

void table_reset(struct table *t)
{
    pthread_mutex_init(&t->lock, NULL);
    t->root = NULL;
}
