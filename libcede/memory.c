/* libcede: opens and closes handles of a GPU's memory, and says what there is; see cede/memory.h,
 * memory.h. */
#include "libcede/memory.h"

#include <errno.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel_guard.h"
#include "libcede/api.h"
#include "libcede/clock.h"
#include "libcede/error.h"

#define USERS_MAX 256U

static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;

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
    m->gpu = NULL;
    m->rooms = NULL;
    m->data = NULL;
    m->nallocations = 0;
    m->needs = (struct needs){0};
    m->sampling = m->stale = m->asked = false;
    m->sampled_ns = m->ask_ns = m->daemon_asked = 0;
    m->pressure = 0;
    m->prefetched_ranges = m->prefetched_bytes = m->skipped_ranges = 0;
    m->skipped[0] = m->error.text[0] = '\0';
}

/* The parent's locks and memory are not the child's: its handles are closed. */
static void memory_in_child(void)
{
    pthread_mutex_init(&handles_lock, NULL);
    for (struct cede_memory *m = cede_memory_table; m < cede_memory_table + CEDE_MEMORIES_MAX;
         m++) {
        *m = (struct cede_memory){.generation = m->generation + 1};
        pthread_mutex_init(&m->lock, NULL);
        pthread_cond_init(&m->left, NULL);
    }
}

static bool memory_config_valid(const struct cede_memory_config *c)
{
    return SIZED(c->size, *c) &&
           SETTINGS(FLAGS(c, CEDE_MEMORY_NO_GPU), SETTING(c, device, 0, INT_MAX),
                    SETTING(c, capacity, 1, ROOMS_CAPACITY_MAX),
                    SETTING(c, block_timeout_us, 0, INT64_MAX),
                    SETTING(c, polling_us, 1, UINT64_MAX),
                    SETTING(c, reserve_fraction, 0, 0.999999), SETTING(c, high, 1e-6, 1),
                    SETTING(c, critical, c->high, 1));
}

static int memory_fill(struct cede_memory *m)
{
    struct cede_memory_config *c = &m->config;
    int r =
        c->flags & CEDE_MEMORY_NO_GPU ? -ENODEV : cede_gpus_open_one(c->device, &m->gpu, &m->error);
    if (r && m->error.text[0] && (r != -ENODEV || !c->total_bytes))
        return cede_fail(r, "%s", m->error.text);
    if (r && (r != -ENODEV || !c->total_bytes))
        return SAY(r, {-ENODEV, "total_bytes is 0, and no GPU is used: set it"});
    uint64_t there = m->gpu ? cede_gpus_memory(m->gpu, 0) : c->total_bytes;
    struct rooms_config rooms = {.total_bytes =
                                     c->total_bytes ? min_u64(c->total_bytes, there) : there,
                                 .capacity = c->capacity,
                                 .high = c->high,
                                 .critical = c->critical};
    rooms.reserve_bytes = c->reserve_bytes
                              ? c->reserve_bytes
                              : (uint64_t)((double)rooms.total_bytes * c->reserve_fraction);
    if (rooms.reserve_bytes >= rooms.total_bytes)
        return cede_fail(-EINVAL, "reserve_bytes is %llu: there are %llu bytes",
                         (unsigned long long)rooms.reserve_bytes,
                         (unsigned long long)rooms.total_bytes);
    r = cede_rooms_new(&rooms, &m->rooms);
    if (r)
        return r;
    c->total_bytes = rooms.total_bytes;
    c->reserve_bytes = rooms.reserve_bytes;
    m->data = calloc(c->capacity, sizeof(*m->data));
    return m->data ? 0 : -ENOMEM;
}

CEDE_API int cede_memory_open(const struct cede_memory_config *config, struct cede_memory **out)
{
    static bool watching; /* forks */
    struct cede_memory_config c;
    struct cede_memory *m = cede_memory_table;
    int r = 0;
    WHOLE_CALL;
    CALL(GIVEN(out));
    *out = NULL;
    cede_memory_defaults(&c);
    c = config ? *config : c;
    if (!memory_config_valid(&c))
        return -EINVAL;
    pthread_mutex_lock(&handles_lock);
    while (m < cede_memory_table + CEDE_MEMORIES_MAX && m->open) /* written under both locks */
        m++;
    if (m == cede_memory_table + CEDE_MEMORIES_MAX)
        r = -EMFILE;
    else if (!watching)
        r = -pthread_atfork(NULL, NULL, memory_in_child);
    watching |= r == 0;
    if (r == 0) {
        m->config = c;
        r = memory_fill(m);
        if (r)
            memory_empty(m);
    }
    if (r == 0) {
        pthread_mutex_lock(&m->lock);
        m->generation++;
        m->open = true;
        cede_memory_sample(m, true);
        m->pressure = cede_rooms_view(m->rooms).pressure;
        pthread_mutex_unlock(&m->lock);
        *out = m;
    }
    pthread_mutex_unlock(&handles_lock);
    return SAY(r, {-EMFILE, "CEDE_MEMORIES_MAX are open: close one"});
}

CEDE_API int cede_memory_close(struct cede_memory *m)
{
    WHOLE_CALL;
    CALL(ALWAYS);
    pthread_mutex_lock(&handles_lock);
    if (cede_memory_enter(m) < 0) {
        pthread_mutex_unlock(&handles_lock);
        return -EINVAL;
    }
    m->open = false;
    m->generation++;
    for (uint32_t i = 0; i < m->config.capacity; i++) {
        if (m->data[i].waiter)
            pthread_cond_signal(&m->data[i].waiter->cond);
    }
    while (m->inside)
        pthread_cond_wait(&m->left, &m->lock);
    pthread_mutex_unlock(&m->lock);
    memory_empty(m);
    pthread_mutex_unlock(&handles_lock);
    return 0;
}

/* ---- what there is --------------------------------------------------------------------------- */

CEDE_API int cede_memory_pressure(struct cede_memory *m)
{
    WHOLE_CALL;
    CALL(ALWAYS);
    int r = cede_memory_enter(m);
    if (r)
        return r;
    cede_memory_sample(m, false);
    r = m->open ? cede_rooms_view(m->rooms).pressure : -ESHUTDOWN;
    return cede_memory_leave(m, r);
}

CEDE_API int cede_memory_get_statistics(struct cede_memory *m, struct cede_memory_statistics *out,
                                        size_t size)
{
    CALL(GIVEN(out) && SIZED(size, *out));
    int r = cede_memory_enter(m);
    if (r)
        return r;
    struct rooms_view v = cede_rooms_view(m->rooms);
    *out = (struct cede_memory_statistics){
        .has_gpu = m->gpu != NULL,
        .pressure = v.pressure,
        .waiting = v.waiting,
        .reservations = v.reservations,
        .allocations = m->nallocations,
        .total_bytes = m->config.total_bytes,
        .free_bytes = v.free_bytes,
        .reserve_bytes = m->config.reserve_bytes,
        .promised_bytes = v.promised_bytes,
        .allocated_bytes = v.allocated_bytes,
        .available_bytes = v.available_bytes,
        .granted = v.granted,
        .timed_out = v.timed_out,
        .waited = v.waited,
        .longest_wait_us = v.longest_wait_ns / NSEC_PER_USEC,
        .daemon_asked = m->daemon_asked,
        .prefetched_ranges = m->prefetched_ranges,
        .prefetched_bytes = m->prefetched_bytes,
        .skipped_ranges = m->skipped_ranges,
    };
    memcpy(out->skipped, m->skipped, sizeof(out->skipped));
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
    cede_memory_step_out(m);
    int n = m->gpu ? cede_gpus_users(m->gpu, v, USERS_MAX) : -ENOTSUP;
    for (int i = 0; i < n && i < (int)USERS_MAX; i++) {
        v[i].ours = v[i].pid == (int)getpid();
        memory_name(&v[i]);
    }
    if (n > 0)
        qsort(v, min_u64((uint64_t)n, USERS_MAX), sizeof(*v), memory_by_size);
    cede_memory_step_in(m);
    return n;
}

CEDE_API int cede_memory_users(struct cede_memory *m, struct cede_memory_user *users, unsigned n)
{
    struct cede_memory_user v[USERS_MAX];
    WHOLE_CALL;
    CALL(n == 0 || GIVEN(users));
    int r = cede_memory_enter(m);
    if (r)
        return r;
    r = memory_users(m, v);
    if (r > 0 && n)
        memcpy(users, v, min_u64(min_u64((uint64_t)r, n), USERS_MAX) * sizeof(*v));
    pthread_mutex_unlock(&m->lock);
    return SAY(r, {-ENOTSUP, "libnvidia-ml does not say which processes have memory"});
}

CEDE_API int cede_memory_text(struct cede_memory *m, char *text, size_t size)
{
    struct cede_memory_user v[USERS_MAX];
    size_t at = 0;
    WHOLE_CALL;
    CALL(GIVEN(text) && IS(size, "size is 0: give that of the text"));
    int r = cede_memory_enter(m);
    if (r)
        return r;
    cede_memory_sample(m, false);
    int n = m->open ? memory_users(m, v) : 0;
    bool open = m->open;
    if (open)
        cede_memory_describe(m, text, size, &at);
    pthread_mutex_unlock(&m->lock);
    if (!open)
        return cede_memory_closed();
    for (int i = 0; i < n && i < (int)USERS_MAX; i++) {
        cede_memory_add(text, size, &at, "%s%s (pid %d%s) has ", i ? ", " : "; ",
                        v[i].name[0] ? v[i].name : "a process", v[i].pid,
                        v[i].ours ? ", this process" : "");
        if (v[i].bytes == UINT64_MAX)
            cede_memory_add(text, size, &at, "an unknown amount");
        else
            cede_memory_add(text, size, &at, "%.2f GiB", MEMORY_GIB(v[i].bytes));
    }
    return 0;
}
