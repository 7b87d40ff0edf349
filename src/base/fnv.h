/* FNV-1a of 64 bits, http://www.isthe.com/chongo/tech/comp/fnv. Only for values that nobody chooses
 * so that they collide. Pure. */
#ifndef CEDE_BASE_FNV_H
#define CEDE_BASE_FNV_H

#include <stddef.h>
#include <stdint.h>

#define FNV_START 14695981039346656037ULL

/* hash: the result for the bytes before these, or FNV_START. */
static inline uint64_t fnv(uint64_t hash, const void *bytes, size_t n)
{
    for (const unsigned char *b = bytes; n > 0; n--)
        hash = (hash ^ *b++) * 1099511628211ULL;
    return hash;
}

#endif
