/* Which slots of a future map are free. Blocks of slots are reserved at the head of a ring and free
 * again at its tail, in the same order, whatever the order of their release. Deterministic: no
 * system call, no allocation after cede_slots_new().
 *
 * Not thread-safe. */
#ifndef CEDE_LIBCEDE_PURE_FUTURE_SLOTS_H
#define CEDE_LIBCEDE_PURE_FUTURE_SLOTS_H

#include <stdint.h>

/* Open to tests, which begin near the last position. Of head and tail the lower 30 bits are the
 * position. */
struct future_slots {
    uint64_t head, tail;
    uint32_t slots;
    uint32_t blocks[]; /* at a block's first slot: its length, and SLOTS_RELEASED; else 0 */
};

/* slots: a power of two, at most CEDE_FUTURE_SLOTS_MAX. 0 or -ENOMEM. */
int cede_slots_new(uint32_t slots, struct future_slots **out);

static inline uint32_t slots_free(const struct future_slots *s)
{
    return s->slots - (uint32_t)(s->head - s->tail);
}

/* n: 1 or more. 0, or -EAGAIN: so many are not free. */
int cede_slots_reserve(struct future_slots *s, uint32_t n, uint32_t *position);
/* 0, or -ENOENT: no reserved block begins there. */
int cede_slots_release(struct future_slots *s, uint32_t position);

#endif
