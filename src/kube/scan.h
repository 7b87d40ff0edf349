/* Finds values in JSON text without building a tree of it: whatever else an answer holds costs no
 * memory, and a pod with text that no parser takes spoils no other pod. Checks no more than it has
 * to, to find where a value ends. Pure. */
#ifndef CEDE_KUBE_SCAN_H
#define CEDE_KUBE_SCAN_H

#include <stdbool.h>
#include <stddef.h>

struct span {
    const char *at;
    size_t n; /* 0: nothing */
};

/* Whether it is one value to its end, as far as is looked. */
bool span_whole(struct span s);

/* The value of the first member of that name; nothing: there is none, or o is no object. A name
 * that is written with escapes is not found. */
struct span span_member(struct span o, const char *name);

/* The array's value at *at (0: the first), which moves on. False: there are no more, or it is no
 * array. */
bool span_next(struct span list, size_t *at, struct span *out);

#endif
