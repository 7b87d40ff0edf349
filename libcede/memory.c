/* libcede: the handles of cede/memory.h, and what there is of a GPU's memory; see memory.h. */
#include "libcede/memory.h"

#include <errno.h>
#include <limits.h>
#include <search.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcede/clock.h"
#include "libcede/error.h"

#define USERS_MAX 256U

static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- locks, and failures in words -------------------------------------------------------------
 */

struct cede_memory cede_memory_table[CEDE_MEMORIES_MAX] = SLOTS(CEDE_MEMORIES_MAX);

int cede_memory_compare(const void *a, const void *b)
{
    const struct allocation *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

static int memory_closed(void)
{
    return cede_fail(-ESHUTDOWN, "the handle is closed, in a forked child too: open another");
}

int cede_memory_enter(struct cede_memory *m)
{
    if (m < cede_memory_table || m >= cede_memory_table + CEDE_MEMORIES_MAX)
        return cede_fail(-EINVAL, "%p is no handle: give what cede_memory_open() has set",
                         (void *)m);
    return slot_enter(SLOT(m)) ? 0 : memory_closed();
}

struct size_text {
    char s[24];
};

static struct size_text size_text(uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
    const unsigned unit = bytes >> 30 ? 3 : bytes >> 20 ? 2 : bytes >> 10 ? 1 : 0;
    struct size_text t;
    snprintf(t.s, sizeof(t.s), "%.*f %s", unit ? 2 : 0, (double)bytes / (double)(1U << 10 * unit),
             units[unit]);
    return t;
}

/* A failure in words; see error.h. With the lock held. */
static int memory_say(const struct cede_memory *m, int r, uint64_t bytes)
{
    if (r == -ESHUTDOWN && !m->open)
        return memory_closed();
    const uint64_t most = m->open ? m->s->total_bytes - m->s->reserve_bytes : 0;
    if (r == -ENOMEM && bytes > most)
        return cede_fail(r, "there is never room for %s: ask for at most %s", size_text(bytes).s,
                         size_text(most).s);
    if (r == -ENOMEM && bytes)
        return cede_fail(r,
                         "no room for %s (there is %s, and %u other threads wait): free some, or "
                         "wait longer; cede_memory_text() says which programs have it",
                         size_text(bytes).s, size_text(m->s->available_bytes).s, m->s->waiting);
    return SAY(r, {-ENOSPC, "there are `capacity` reservations and waits: release some"},
               {-ESTALE, "the reservation is not of this handle, or was released: release it once"},
               {-ENODEV, m->config.flags & CEDE_MEMORY_NO_GPU
                             ? "the handle has no GPU: open one without CEDE_MEMORY_NO_GPU"
                             : "no GPU was found: only reservations work"},
               {-EIO, m->error.text});
}

int cede_memory_leave(struct cede_memory *m, int r, uint64_t bytes)
{
    void (*call)(void *arg, enum cede_pressure now) = NULL;
    void *arg = m->config.arg;
    int now = m->open ? m->s->pressure : m->pressure;
    if (now != m->pressure)
        call = m->config.on_pressure;
    m->pressure = now;
    if (call) {
        slot_step_out(SLOT(m));
        call(arg, (enum cede_pressure)now);
        slot_step_in(SLOT(m));
    }
    r = memory_say(m, r, bytes);
    pthread_mutex_unlock(&m->lock);
    return r;
}

/* ---- what is free ---------------------------------------------------------------------------- */

void cede_memory_wake_first(struct cede_memory *m)
{
    uint64_t bytes, id = cede_rooms_first(m->rooms, &bytes);
    if (id && m->data[room_slot(id)].waiter)
        pthread_cond_signal(&m->data[room_slot(id)].waiter->cond);
}

void cede_memory_run_events(struct cede_memory *m, uint64_t now_ns)
{
    struct room_event e;
    bool any = false;
    while (m->open && cede_rooms_step(m->rooms, now_ns, &e)) {
        struct room_data *h = &m->data[room_slot(e.id)];
        h->waiter->granted = e.granted;
        h->waiter->done = true;
        pthread_cond_signal(&h->waiter->cond);
        h->waiter = NULL;
        any = true;
    }
    if (any)
        cede_memory_wake_first(m);
}

void cede_memory_sample(struct cede_memory *m, bool now)
{
    uint64_t bytes = 0, allocated = cede_rooms_allocated(m->rooms);
    struct gpu_error why;
    if (!m->gpu || m->sampling ||
        (!now && m->sampled_ns &&
         cede_clock_now_ns() < time_after(m->sampled_ns, m->config.polling_us, NSEC_PER_USEC)))
        return;
    m->sampling = true;
    m->stale = false;
    int r = OUTSIDE(m, cede_gpus_available(m->gpu, 0, &bytes, &why));
    m->sampling = false;
    m->sampled_ns = cede_clock_now_ns();
    if (r)
        m->error = why;
    else
        cede_rooms_set_free(m->rooms, bytes, allocated);
    if (m->open) {
        cede_memory_run_events(m, m->sampled_ns);
        cede_memory_wake_first(m);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

CEDE_API void cede_memory_defaults(struct cede_memory_config *c)
{
    *c = (struct cede_memory_config){
        .size = sizeof(*c),
        .capacity = 1024,
        .block_timeout_us = 5000000,
        .polling_us = 20000,
        .reserve_fraction = 0.1,
        .high = 0.75,
        .critical = 0.9,
    };
}

/* As before its first opening, but for the lock and the generation. */
static void memory_empty(struct cede_memory *m)
{
    struct gpu_error why;
    while (m->allocations) {
        struct allocation *a = *(struct allocation **)m->allocations;
        tdelete(a, &m->allocations, cede_memory_compare);
        if (m->gpu)
            cede_gpus_deallocate(m->gpu, a->address, &why);
        free(a);
    }
    cede_gpus_close(m->gpu);
    cede_rooms_free(m->rooms);
    free(m->data);
    memset(&m->config, 0, sizeof(*m) - offsetof(struct cede_memory, config));
}

static void memory_in_child(void)
{
    pthread_mutex_init(&handles_lock, NULL);
    for (struct cede_memory *m = cede_memory_table; m < cede_memory_table + CEDE_MEMORIES_MAX; m++)
        slot_in_child(SLOT(m), sizeof(*m));
}

static bool memory_config_valid(const struct cede_memory_config *c)
{
    return SIZED(c->size, *c) &&
           SETTINGS(FLAGS(c, CEDE_MEMORY_NO_GPU), SETTING(c, device, 0, INT_MAX / 2),
                    SETTING(c, capacity, 1, ROOMS_CAPACITY_MAX),
                    SETTING(c, polling_us, 1, UINT64_MAX),
                    SETTING(c, reserve_fraction, 0, 0.999999), SETTING(c, high, 1e-4, 1),
                    SETTING(c, critical, c->high, 1)) &&
           TIMEOUT_SETTING(c, block_timeout_us, false);
}

static int memory_fill(struct cede_memory *m)
{
    struct cede_memory_config *c = &m->config;
    int r =
        c->flags & CEDE_MEMORY_NO_GPU ? -ENODEV : cede_gpus_open_one(c->device, &m->gpu, &m->error);
    if (r && (r != -ENODEV || !c->total_bytes))
        return m->error.text[0] ? cede_fail(r, "%s", m->error.text)
                                : SAY(r, {-ENODEV, "there is no GPU: set total_bytes, of which "
                                                   "reservations are made"});
    uint64_t there = m->gpu ? cede_gpus_facts(m->gpu, 0)->memory_bytes : c->total_bytes;
    c->total_bytes = c->total_bytes ? min_u64(c->total_bytes, there) : there;
    if (!c->reserve_bytes)
        c->reserve_bytes = (uint64_t)((double)c->total_bytes * c->reserve_fraction);
    if (c->reserve_bytes >= c->total_bytes)
        return cede_fail(-EINVAL, "reserve_bytes is %llu: give less than %llu",
                         (unsigned long long)c->reserve_bytes, (unsigned long long)c->total_bytes);
    r = cede_rooms_new(c, &m->rooms);
    if (r)
        return r;
    m->s = cede_rooms_statistics(m->rooms);
    m->s->has_gpu = m->gpu != NULL;
    m->data = calloc(c->capacity, sizeof(*m->data));
    return m->data ? 0 : -ENOMEM;
}

CEDE_API int cede_memory_open(const struct cede_memory_config *config, struct cede_memory **out)
{
    static bool watching; /* forks */
    struct cede_memory_config c;
    struct cede_memory *m = cede_memory_table;
    LONG_CALL(GIVEN(out));
    *out = NULL;
    cede_memory_defaults(&c);
    c = config ? *config : c;
    if (!memory_config_valid(&c))
        return -EINVAL;
    HOLD(&handles_lock);
    while (m < cede_memory_table + CEDE_MEMORIES_MAX && m->open) /* written under both locks */
        m++;
    int r = m == cede_memory_table + CEDE_MEMORIES_MAX ? -EMFILE
            : watching                                 ? 0
                       : -pthread_atfork(NULL, NULL, memory_in_child);
    watching |= r == 0;
    if (r == 0) {
        m->config = c;
        r = memory_fill(m);
        if (r)
            memory_empty(m);
    }
    if (r)
        return SAY(r, {-EMFILE, "CEDE_MEMORIES_MAX are open: close one"});
    pthread_mutex_lock(&m->lock);
    m->generation++;
    m->open = true;
    cede_memory_sample(m, true);
    m->pressure = m->s->pressure;
    pthread_mutex_unlock(&m->lock);
    *out = m;
    return cede_succeed();
}

CEDE_API int cede_memory_close(struct cede_memory *m)
{
    LONG_CALL(ALWAYS);
    HOLD(&handles_lock);
    if (!m || cede_memory_enter(m) < 0)
        return m ? -EINVAL : 0;
    m->open = false;
    m->generation++;
    SLOT_WAKE(m, false);
    while (m->inside)
        pthread_cond_wait(&m->left, &m->lock);
    pthread_mutex_unlock(&m->lock);
    if (cede_owner_closed)
        cede_owner_closed(m);
    memory_empty(m);
    return 0;
}

/* ---- what there is --------------------------------------------------------------------------- */

CEDE_API int cede_memory_pressure(struct cede_memory *m)
{
    LONG_CALL(ALWAYS);
    ENTER(m);
    cede_memory_sample(m, false);
    r = m->open ? m->s->pressure : -ESHUTDOWN;
    return cede_memory_leave(m, r, 0);
}

CEDE_API int cede_memory_get_statistics(struct cede_memory *m, struct cede_memory_statistics *out,
                                        size_t size)
{
    CALL(GIVEN(out) && SIZED(size, *out));
    ENTER(m);
    *out = *m->s;
    _Static_assert(sizeof(out->error) == sizeof(m->error.text), "one length");
    memcpy(out->error, m->error.text, sizeof(out->error));
    pthread_mutex_unlock(&m->lock);
    return 0;
}

/* ---- processes ------------------------------------------------------------------------------- */

static int memory_by_size(const void *a, const void *b)
{
    const struct cede_memory_user *x = a, *y = b;
    if (x->ours != y->ours)
        return y->ours - x->ours;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : x->pid - y->pid;
}

static void memory_name(struct cede_memory_user *u)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d/comm", u->pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    if (!fgets(u->name, sizeof(u->name), f))
        u->name[0] = '\0';
    u->name[strcspn(u->name, "\n")] = '\0';
    fclose(f);
}

/* All that fit into v, in order. With the lock held; gives it up meanwhile. */
static int memory_users(struct cede_memory *m, struct cede_memory_user v[static USERS_MAX])
{
    slot_step_out(SLOT(m));
    int n = m->gpu ? cede_gpus_users(m->gpu, v, USERS_MAX) : -ENOTSUP;
    for (int i = 0; i < n && i < (int)USERS_MAX; i++) {
        v[i].ours = v[i].pid == (int)getpid();
        memory_name(&v[i]);
    }
    if (n > 0)
        qsort(v, min_u64((uint64_t)n, USERS_MAX), sizeof(*v), memory_by_size);
    slot_step_in(SLOT(m));
    return n;
}

CEDE_API int cede_memory_users(struct cede_memory *m, struct cede_memory_user *users, unsigned n)
{
    struct cede_memory_user v[USERS_MAX];
    LONG_CALL(n == 0 || GIVEN(users));
    ENTER(m);
    r = memory_users(m, v);
    if (r > 0 && n)
        memcpy(users, v, min_u64(min_u64((uint64_t)r, n), USERS_MAX) * sizeof(*v));
    pthread_mutex_unlock(&m->lock);
    return SAY(r, {-ENOTSUP, "libnvidia-ml does not list processes: see that it is installed"});
}

CEDE_API int cede_memory_text(struct cede_memory *m, char *text, size_t size)
{
    struct cede_memory_user v[USERS_MAX];
    LONG_CALL(GIVEN(text) && IS(size, "size is 0: give that of the text"));
    ENTER(m);
    HELD(&m->lock);
    cede_memory_sample(m, false);
    int n = m->open ? memory_users(m, v) : 0;
    if (!m->open)
        return memory_closed();
    FILE *f = fmemopen(text, size, "w");
    if (!f)
        return cede_no_memory();
    const struct cede_memory_statistics *s = m->s;
    fprintf(
        f,
        "GPU %d: there is room for %s of %s: %s are free, %s of them are the reserve and %s are "
        "promised; %u threads wait; this process allocated %s here",
        m->config.device, size_text(s->available_bytes).s, size_text(s->total_bytes).s,
        size_text(s->free_bytes).s, size_text(s->reserve_bytes).s, size_text(s->promised_bytes).s,
        s->waiting, size_text(s->allocated_bytes).s);
    for (int i = 0; i < n && i < (int)USERS_MAX; i++)
        fprintf(f, "%s%s (pid %d%s) has %s", i ? ", " : "; ",
                v[i].name[0] ? v[i].name : "a process", v[i].pid, v[i].ours ? ", this process" : "",
                v[i].bytes == UINT64_MAX ? "an unknown amount" : size_text(v[i].bytes).s);
    fclose(f);
    text[size - 1] = '\0'; /* where it is cut off */
    return 0;
}
