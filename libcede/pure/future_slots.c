/* See future_slots.h. */
#include "libcede/pure/future_slots.h"

#include <errno.h>
#include <stdlib.h>

#include "cede/future.h"

#define SLOTS_RELEASED 0x80000000U
#define POSITION_MASK  ((uint64_t)CEDE_FUTURE_POSITIONS - 1)

int cede_slots_new(uint32_t slots, struct future_slots **out)
{
    struct future_slots *s = calloc(1, sizeof(*s) + slots * sizeof(s->blocks[0]));
    if (!s)
        return -ENOMEM;
    s->slots = slots;
    *out = s;
    return 0;
}

int cede_slots_reserve(struct future_slots *s, uint32_t n, uint32_t *position)
{
    if (n > slots_free(s))
        return -EAGAIN;
    s->blocks[s->head & (s->slots - 1)] = n;
    *position = (uint32_t)(s->head & POSITION_MASK);
    s->head += n;
    return 0;
}

int cede_slots_release(struct future_slots *s, uint32_t position)
{
    uint64_t offset = (position - s->tail) & POSITION_MASK;
    if (offset >= s->head - s->tail)
        return -ENOENT;
    uint32_t *block = &s->blocks[(s->tail + offset) & (s->slots - 1)];
    if (*block == 0 || *block & SLOTS_RELEASED)
        return -ENOENT;
    *block |= SLOTS_RELEASED;
    while (s->tail != s->head) {
        uint32_t *first = &s->blocks[s->tail & (s->slots - 1)];
        if (!(*first & SLOTS_RELEASED))
            break;
        s->tail += *first & ~SLOTS_RELEASED;
        *first = 0;
    }
    return 0;
}
