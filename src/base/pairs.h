/* Names and values in one block of bytes, "NAME\0VALUE\0...", for facts that pass between processes
 * and are looked up a few times. Pure, no allocation. */
#ifndef CEDE_BASE_PAIRS_H
#define CEDE_BASE_PAIRS_H

#include <stdbool.h>
#include <stddef.h>

struct pairs {
    const char *text;
    size_t n; /* bytes; 0: none, and then text may be NULL */
};

/* Appends to buf, of which *n bytes are in use. -ENOSPC: no room, nothing is changed. */
int pairs_put(char *buf, size_t size, size_t *n, const char *name, const char *value);

/* Whether these bytes are pairs, which the other functions take for granted. */
bool pairs_valid(struct pairs p);

/* NULL: no such name. */
const char *pairs_get(struct pairs p, const char *name);

/* Gets the pair at *at and advances *at; false at the end. */
bool pairs_next(struct pairs p, size_t *at, const char **name, const char **value);

#endif
