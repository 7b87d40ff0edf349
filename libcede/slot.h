/* Inside libcede: what pools and handles of memory begin with. Both are slots of a table, which are
 * never freed, and a lease or reservation names its slot and the generation: so it can outlive
 * what it is of, and releasing it is an error and not a crash. Nothing that may take time is asked
 * of the driver or the daemon with a slot's lock held. Order of locks: table, then a slot's. */
#ifndef CEDE_LIBCEDE_SLOT_H
#define CEDE_LIBCEDE_SLOT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct slot {
    pthread_mutex_t lock;
    pthread_cond_t left; /* no thread is inside any more */
    bool open;           /* while it is not, the table's lock suffices for what follows */
    uint64_t generation;
    unsigned inside; /* threads that wait, or call the driver or the daemon */
};

#define SLOT(handle) ((struct slot *)(handle))
#define SLOTS(n)                                                                                   \
    {                                                                                              \
        [0 ...(n) - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = PTHREAD_COND_INITIALIZER }    \
    }

/* True: it is open, and its lock is held. */
static inline bool slot_enter(struct slot *s)
{
    pthread_mutex_lock(&s->lock);
    const bool open = s->open;
    if (!open)
        pthread_mutex_unlock(&s->lock);
    return open;
}

static inline void slot_step_out(struct slot *s)
{
    s->inside++;
    pthread_mutex_unlock(&s->lock);
}

static inline void slot_left(struct slot *s)
{
    if (--s->inside == 0)
        pthread_cond_broadcast(&s->left);
}

static inline void slot_step_in(struct slot *s)
{
    pthread_mutex_lock(&s->lock);
    slot_left(s);
}

/* A call without the lock. The slot may be closed meanwhile, but what it has stays until then. */
#define OUTSIDE(handle, call)                                                                      \
    ({                                                                                             \
        slot_step_out(SLOT(handle));                                                               \
        const __auto_type outside_ = call;                                                         \
        slot_step_in(SLOT(handle));                                                                \
        outside_;                                                                                  \
    })

/* The parent's lock and memory are not the child's: the slot is closed, what it had is left alone.
 */
static inline void slot_in_child(struct slot *s, size_t size)
{
    const uint64_t generation = s->generation + 1;
    memset(s, 0, size);
    s->generation = generation;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->left, NULL);
}

/* Wakes the threads that wait; owned: only those that wait for an owner. */
#define SLOT_WAKE(handle, owned)                                                                   \
    for (uint32_t i_ = 0; i_ < (handle)->config.capacity; i_++)                                    \
        if ((handle)->data[i_].waiter && (!(owned) || (handle)->data[i_].waiter->owner))           \
    pthread_cond_signal(&(handle)->data[i_].waiter->cond)

#endif
