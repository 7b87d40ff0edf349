/* What the layer knows of the program's OpenCL objects, by handle. Thread-safe; values are copies,
 * so that no thread uses an entry that another one removes. */
#ifndef CEDE_GATE_OPENCL_TABLE_H
#define CEDE_GATE_OPENCL_TABLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct table {
    pthread_mutex_t lock;
    size_t value_size; /* set where it is defined */
    void *root;        /* NULL: empty */
};
#define TABLE(type)                                                                                \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER, .value_size = sizeof(type)                              \
    }

/* Puts or replaces; false: out of memory. */
bool table_put(struct table *t, const void *handle, const void *value);
bool table_get(struct table *t, const void *handle, void *value);
/* value (may be NULL) gets what was removed. */
bool table_remove(struct table *t, const void *handle, void *value);
/* Takes out up to max handles; how many. keep is called on each with the lock held: a caller that
 * removes an entry before its object ends knows that keep is done with it, or will not begin. */
size_t table_take(struct table *t, const void **v, size_t max, void (*keep)(const void *handle));
/* In a child of fork(): empty and unlocked, whatever another thread was doing. Frees nothing. */
void table_reset(struct table *t);

#endif
