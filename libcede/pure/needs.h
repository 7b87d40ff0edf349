/* How much memory leases of a kernel and shape take, from what earlier ones took. Deterministic; no
 * allocation. The expected need is the most that one took, and follows by an eighth a time when
 * later ones take less. Of two keys that fall on one slot the later stays. Not thread-safe. */
#ifndef CEDE_LIBCEDE_PURE_NEEDS_H
#define CEDE_LIBCEDE_PURE_NEEDS_H

#include <stdint.h>

#define NEEDS 1024U /* a power of 2 */

struct needs {
    struct {
        uint64_t key, bytes;
    } v[NEEDS];
};

/* Of a kernel's name (NULL: none) and numbers of its shape; never 0. */
uint64_t cede_needs_key(const char *kernel, const uint64_t *shape, unsigned n);
/* 0: not known. */
uint64_t cede_needs_get(const struct needs *n, uint64_t key);
void cede_needs_learn(struct needs *n, uint64_t key, uint64_t bytes);

#endif
