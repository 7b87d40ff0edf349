/* Names and values in one block of bytes, "NAME\0VALUE\0...": for facts that pass between processes
 * and are looked up a few times. Pure, no allocation. */
#ifndef CEDE_LIB_PAIRS_H
#define CEDE_LIB_PAIRS_H

#include <stdbool.h>
#include <stddef.h>

struct pairs {
    const char *text;
    size_t n; /* bytes; 0: none, and then text may be NULL */
};

/* Appends to buf, of which *n bytes are in use. -ENOSPC: it does not fit, and nothing is changed.
 */
int pairs_put(char *buf, size_t size, size_t *n, const char *name, const char *value);

/* Whether these bytes are pairs at all; the other functions want that. */
bool pairs_valid(struct pairs p);

/* NULL: no such name. */
const char *pairs_get(struct pairs p, const char *name);

/* The pair at *at, which moves on; false at the end. */
bool pairs_next(struct pairs p, size_t *at, const char **name, const char **value);

#endif
