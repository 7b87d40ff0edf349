/* What the layer knows of the program's OpenCL objects, by handle. Thread-safe; values are copies,
 * so that nobody holds on to an entry that another thread removes. */
#ifndef CEDE_GATE_OPENCL_TABLE_H
#define CEDE_GATE_OPENCL_TABLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct table {
    pthread_mutex_t lock;
    size_t value_size, n, cap; /* value_size: set by whoever defines it */
    char *slots;               /* cap times a handle and a value */
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
/* Takes out all there is and calls f on each, with the lock: who removes an entry before its object
 * ends knows that f is not at it. */
void table_drain(struct table *t, void (*f)(const void *handle, void *value));

#endif
