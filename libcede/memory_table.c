/* libcede: the handles of cede/memory.h, and their locks; see memory.h. */
#include <errno.h>

#include "libcede/error.h"
#include "libcede/memory.h"

struct cede_memory cede_memory_table[CEDE_MEMORIES_MAX] = {
    [0 ... CEDE_MEMORIES_MAX - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                     .left = PTHREAD_COND_INITIALIZER}};

int cede_memory_compare(const void *a, const void *b)
{
    const struct allocation *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

static bool memory_valid(const struct cede_memory *m)
{
    return m >= cede_memory_table && m < cede_memory_table + CEDE_MEMORIES_MAX;
}

int cede_memory_closed(void)
{
    return cede_fail(-ESHUTDOWN, "the handle is closed, in a forked child too: open another");
}

int cede_memory_enter(struct cede_memory *m)
{
    if (!memory_valid(m))
        return cede_fail(-EINVAL, "%p is no handle: give what cede_memory_open() has set",
                         (void *)m);
    pthread_mutex_lock(&m->lock);
    if (m->open)
        return 0;
    pthread_mutex_unlock(&m->lock);
    return cede_memory_closed();
}

void cede_memory_step_out(struct cede_memory *m)
{
    m->inside++;
    pthread_mutex_unlock(&m->lock);
}

void cede_memory_step_in(struct cede_memory *m)
{
    pthread_mutex_lock(&m->lock);
    if (--m->inside == 0)
        pthread_cond_broadcast(&m->left);
}

void cede_memory_leave(struct cede_memory *m)
{
    void (*call)(void *arg, enum cede_pressure now) = NULL;
    void *arg = m->config.arg;
    int now = m->open ? cede_rooms_view(m->rooms).pressure : m->pressure;
    if (now != m->pressure)
        call = m->config.on_pressure;
    m->pressure = now;
    if (call) {
        cede_memory_step_out(m);
        call(arg, (enum cede_pressure)now);
        cede_memory_step_in(m);
    }
    pthread_mutex_unlock(&m->lock);
}
