/* libcede: the handles of cede/memory.h, and their locks; see memory.h. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

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

void cede_memory_add(char *text, size_t size, size_t *at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = *at < size ? vsnprintf(text + *at, size - *at, format, args) : 0;
    va_end(args);
    *at += n > 0 ? (size_t)n : 0;
}

void cede_memory_describe(const struct cede_memory *m, char *text, size_t size, size_t *at)
{
    const struct rooms_view w = cede_rooms_view(m->rooms);
    cede_memory_add(
        text, size, at,
        "GPU %d: there is room for %.2f GiB of %.2f GiB: %.2f GiB are free, %.2f GiB of them "
        "are the reserve and %.2f GiB are promised; %u threads wait; this process allocated "
        "%.2f GiB here",
        m->config.device, MEMORY_GIB(w.available_bytes), MEMORY_GIB(m->config.total_bytes),
        MEMORY_GIB(w.free_bytes), MEMORY_GIB(m->config.reserve_bytes), MEMORY_GIB(w.promised_bytes),
        w.waiting, MEMORY_GIB(w.allocated_bytes));
}

/* A failure in words; see error.h. With the lock held. */
static int memory_say(const struct cede_memory *m, int r)
{
    char text[320];
    size_t at = 0;
    if (r == -ESHUTDOWN && !m->open)
        return cede_memory_closed();
    if (r == -ENOMEM) {
        cede_memory_describe(m, text, sizeof(text), &at);
        return cede_fail(r, "%s; cede_memory_text() says which programs have it", text);
    }
    return SAY(r, {-ENOSPC, "there are `capacity` reservations and waits: release some"},
               {-ESTALE, "the reservation is not of this handle, or was released: release it once"},
               {-ENODEV, "no GPU is used: allocate from one"}, {-EIO, m->error.text});
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

int cede_memory_leave(struct cede_memory *m, int r)
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
    r = memory_say(m, r);
    pthread_mutex_unlock(&m->lock);
    return r;
}
