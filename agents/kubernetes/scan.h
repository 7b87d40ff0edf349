/* Finds values in JSON text without building a tree, so that the rest of an answer costs no memory,
 * and a pod that no parser accepts does not affect others. It checks only as much as it needs to
 * find the end of a value. Pure. */
#ifndef CEDE_AGENTS_KUBERNETES_SCAN_H
#define CEDE_AGENTS_KUBERNETES_SCAN_H

#include <stdbool.h>
#include <stddef.h>

struct span {
    const char *at;
    size_t n; /* 0: there is no value */
};

/* Whether s is one value and nothing more, as far as that is checked. */
bool span_whole(struct span s);

/* The value of the first member of that name; n is 0 if there is none, or o is no object. A name
 * that is written with escapes is not found. */
struct span span_member(struct span o, const char *name);

/* Copies the text of a string that has no escapes. False, and "": it is none, or does not fit. */
bool span_text(struct span s, char *out, size_t size);
/* Whether it is that string. */
bool span_is(struct span s, const char *text);

/* Gives the array's value at *at (0: the first) and advances *at. False: there are no more values,
 * or list is no array. */
bool span_next(struct span list, size_t *at, struct span *out);

#endif
