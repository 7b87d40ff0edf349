/* See hints.h. The pages are sealed in size, so reading them never faults. Their contents may
 * change while they are read, so each word is read once and bounded. Two words are only written. */
#include "api/hints.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "api/guest.h"
#include "base/hints_proto.h"
#include "base/json_text.h"
#include "base/quota.h"
#include "base/shared_page.h"
#include "who/procfs.h"

#define COUNT_MAX (1ULL << 53) /* exact in JSON, and a sum of all pages fits */
#define SAMPLES   4            /* the rate is that of the last 3 to 4 s */
#define ASSIGN_NS (500 * NSEC_PER_MSEC)
/* Between looks for programs that begin to report deadlines. */
#define REPORT_OFF_NS (200 * NSEC_PER_MSEC)
#define SHARE_NS      NSEC_PER_SEC
#define ROOM_NS       (5 * NSEC_PER_SEC) /* a program that waits asks again once per second */

struct sample {
    uint64_t at_ns, ended;
};

struct page {
    struct hints_page *shared; /* NULL: free */
    uint64_t connection, job;  /* job 0: in none */
    uint32_t slot;             /* the job's at the last hints_assign(); SLOT_NONE: in none */
    struct proc_id proc;
    uid_t principal;
    bool admin;
    uint64_t ndone, nleases;                   /* that hints_requests() has seen */
    uint64_t room_job, room_bytes, room_until; /* the memory that it waits for */
    unsigned room_gpu;
    bool stopped; /* by ^Z or a debugger, so its deadline does not count */
    unsigned nsamples;
    struct sample samples[SAMPLES]; /* oldest first */
};

struct hints {
    unsigned n;
    uint64_t assigned_ns, share_ns; /* share_ns: when shares are written next */
    struct engine *asked;           /* the engine, once a page has asked for room */
    struct page pages[HINTS_PAGES_MAX];
    struct {
        uint64_t job;           /* 0: none */
        struct hints_sums sums; /* of its pages that were closed */
    } closed[JOURNAL_JOBS];     /* by the job's slot */
};

#define TIME_MAX (1ULL << 62)

static uint64_t time_word(const _Atomic uint64_t *w)
{
    return min_u64(atomic_load_explicit(w, memory_order_relaxed), TIME_MAX);
}

static uint64_t word(const _Atomic uint64_t *w)
{
    return min_u64(atomic_load_explicit(w, memory_order_relaxed), COUNT_MAX);
}

struct hints *hints_new(void)
{
    return calloc(1, sizeof(struct hints));
}

static void page_sum(const struct page *p, struct hints_sums *s)
{
    uint64_t begun = word(&p->shared->begun), ended = min_u64(word(&p->shared->ended), begun);
    uint64_t due = min_u64(word(&p->shared->due), ended);
    s->begun += begun;
    s->ended += ended;
    s->open += begun - ended;
    s->due += due;
    s->met += min_u64(word(&p->shared->met), due);
    for (unsigned w = 0; w < HINTS_WAITS; w++) {
        s->leases[w] += word(&p->shared->waits[w].leases);
        s->waited_us[w] += word(&p->shared->waits[w].total_us);
    }
}

struct hints_sums hints_sum(const struct hints *h, uint32_t slot, uint64_t job)
{
    struct hints_sums s = {.begun = 0};
    if (h && h->closed[slot].job == job)
        s = h->closed[slot].sums;
    for (unsigned i = 0; h && h->n && job && i < HINTS_PAGES_MAX; i++) {
        if (h->pages[i].shared && h->pages[i].job == job)
            page_sum(&h->pages[i], &s);
    }
    return s;
}

/* Keeps the numbers of a page for its job, unless a younger job is in the slot. */
static void keep_closed(struct hints *h, const struct page *p)
{
    if (!p->job || h->closed[p->slot].job > p->job)
        return;
    if (h->closed[p->slot].job < p->job)
        h->closed[p->slot].sums = (struct hints_sums){.begun = 0};
    h->closed[p->slot].job = p->job;
    page_sum(p, &h->closed[p->slot].sums);
    h->closed[p->slot].sums.open = 0;
}

bool hints_unassigned(const struct hints *h)
{
    return h->n && !h->assigned_ns;
}

/* Passes the memory that all programs of a job wait for together to the engine. */
static void room_sum(const struct hints *h, struct engine *e, uint64_t job, unsigned gpu)
{
    uint64_t now = monotonic_ns(), bytes = 0, until = 0;
    uint32_t slot = model_job_by_number(engine_model(e), job);
    for_each (p, h->pages, HINTS_PAGES_MAX) {
        if (!p->shared || p->room_job != job || p->room_gpu != gpu || p->room_until <= now)
            continue;
        bytes += min_u64(p->room_bytes, COUNT_MAX);
        until = max_u64(until, p->room_until);
    }
    if (slot != SLOT_NONE)
        engine_room(e, slot, gpu, bytes, until);
}

static int room_gpu(const struct engine *e, const char *uuid, uint64_t bytes, unsigned *gpu,
                    struct error *err)
{
    struct device_driver *d = engine_driver(e);
    struct gpu_info g;
    const unsigned n = d->ops->gpus(d);
    unsigned real = 0; /* GPUs that are no slot of a gate */
    for (unsigned i = 0; i < n; i++)
        real += d->ops->info(d, i, &g) == 0 && !(g.caps & GPU_CAP_GATE);
    for (*gpu = 0; *gpu < n; ++*gpu) {
        if (d->ops->info(d, *gpu, &g) < 0 || (g.caps & GPU_CAP_GATE) ||
            (*uuid ? strcasecmp(uuid, g.uuid) != 0 : real > 1))
            continue;
        return g.memory_bytes && bytes > g.memory_bytes
                   ? error_set(err, -EINVAL,
                               "GPU %u has %llu bytes of memory in all: %llu are too "
                               "many",
                               *gpu, (unsigned long long)g.memory_bytes, (unsigned long long)bytes)
                   : 0;
    }
    return error_set(err, -EINVAL, "there is no such GPU: give its UUID in name");
}

int hints_room(struct hints *h, struct engine *e, const struct caller *who, uint64_t page,
               const char *uuid, uint64_t bytes, struct error *err)
{
    struct page *p = h->pages;
    struct job_view v;
    unsigned gpu;
    while (p < h->pages + HINTS_PAGES_MAX && !(p->shared && p->connection == page))
        p++;
    if (p == h->pages + HINTS_PAGES_MAX || p->proc.pid != who->pid ||
        p->proc.start_ticks > who->since_ticks)
        return error_set(err, -ENOTCONN, "this process has no such page: ask for one first");
    if (p->room_until && !bytes) {
        p->room_until = 0;
        room_sum(h, e, p->room_job, p->room_gpu);
    }
    if (!bytes)
        return 0;
    uint32_t slot = proc_alive(p->proc) ? engine_job_of(e, p->proc.pid) : SLOT_NONE;
    if (slot == SLOT_NONE || !engine_view(e, slot, &v))
        return error_set(err, -ESRCH, "process %d is in no job", (int)p->proc.pid);
    if (v.job.class != CLASS_LATENCY)
        return error_set(err, -EPERM,
                         "job #%llu is in class %s: others make room for latency jobs only",
                         (unsigned long long)v.number, job_class_name((enum job_class)v.job.class));
    int r = room_gpu(e, uuid, bytes, &gpu, err);
    if (r < 0)
        return r;
    uint64_t before = p->room_job;
    unsigned there = p->room_gpu;
    p->room_job = v.number;
    p->room_gpu = gpu;
    p->room_bytes = bytes;
    p->room_until = monotonic_ns() + ROOM_NS;
    h->asked = e;
    if (before && (before != p->room_job || there != gpu))
        room_sum(h, e, before, there);
    room_sum(h, e, v.number, gpu);
    return 0;
}

static void drop(struct hints *h, struct page *p)
{
    keep_closed(h, p);
    const uint64_t job = p->room_job;
    const unsigned gpu = p->room_gpu;
    munmap(p->shared, HINTS_PAGE);
    memset(p, 0, sizeof(*p));
    h->n--;
    if (job && h->asked)
        room_sum(h, h->asked, job, gpu);
}

void hints_free(struct hints *h)
{
    for (unsigned i = 0; h && i < HINTS_PAGES_MAX; i++) {
        if (h->pages[i].shared) {
            h->pages[i].room_job = 0; /* the engine may have ended */
            drop(h, &h->pages[i]);
        }
    }
    free(h);
}

unsigned hints_count(const struct hints *h)
{
    return h->n;
}

int hints_open(struct hints *h, const struct caller *who, int *fd, struct error *err)
{
    struct page *p = NULL;
    struct proc_stat st;
    unsigned theirs = 0, users = 0;
    uid_t owner;
    for_each (q, h->pages, HINTS_PAGES_MAX) {
        if (q->shared && q->connection == who->connection)
            return error_set(err, -EALREADY, "this connection has its page already");
        theirs += q->shared && !q->admin && q->principal == who->principal;
        users += q->shared && !q->admin;
        p = p || q->shared ? p : q;
    }
    bool own = !who->admin && theirs >= HINTS_PAGES_PER_USER;
    if (!p || own || (!who->admin && users >= USERS_PART(HINTS_PAGES_MAX)))
        return error_set(err, -EUSERS, "too many programs%s report their requests already",
                         own ? " of yours" : "");
    if (proc_owner(who->pid, &owner) < 0 || (!who->admin && owner != who->uid) ||
        proc_stat_read(who->pid, &st) < 0 || st.id.start_ticks > who->since_ticks ||
        !guest_reaches(who, st.id))
        return error_set(err, -ESRCH, "cannot see the process that connected (pid %d)",
                         (int)who->pid);
    struct hints_page *shared = shared_page("cede-hints", HINTS_PAGE, SHARE_BOTH, fd);
    if (!shared)
        return error_set(err, -ENOMEM, "no memory or descriptors for a page");
    *p = (struct page){.shared = shared,
                       .connection = who->connection,
                       .proc = st.id,
                       .principal = who->principal,
                       .admin = who->admin};
    h->n++;
    h->assigned_ns = 0;
    return 0;
}

void hints_close(struct hints *h, uint64_t connection)
{
    for (unsigned i = 0; i < HINTS_PAGES_MAX; i++) {
        if (h->pages[i].shared && h->pages[i].connection == connection)
            drop(h, &h->pages[i]);
    }
}

void hints_sample(struct hints *h, uint64_t now_ns)
{
    for_each (p, h->pages, HINTS_PAGES_MAX) {
        if (!p->shared)
            continue;
        if (p->nsamples == SAMPLES)
            memmove(p->samples, p->samples + 1, (--p->nsamples) * sizeof(*p->samples));
        p->samples[p->nsamples++] = (struct sample){now_ns, word(&p->shared->ended)};
    }
}

void hints_assign(struct hints *h, struct engine *e, uint64_t now_ns)
{
    if (!h->n || (h->assigned_ns && now_ns - h->assigned_ns < ASSIGN_NS))
        return;
    h->assigned_ns = now_ns;
    for_each (p, h->pages, HINTS_PAGES_MAX) {
        struct job_view v;
        if (!p->shared)
            continue;
        uint32_t slot = proc_alive(p->proc) ? engine_job_of(e, p->proc.pid) : SLOT_NONE;
        p->stopped = proc_stopped(p->proc);
        p->job = slot != SLOT_NONE && engine_view(e, slot, &v) ? v.number : 0;
        p->slot = p->job ? slot : SLOT_NONE;
    }
}

static bool has_deadlines(const struct page *p)
{
    return p->shared && (time_word(&p->shared->earliest_ns) || word(&p->shared->due));
}

/* The report of all pages of a job together. */
static struct report report_of(const struct hints *h, uint64_t job, uint64_t now_ns)
{
    struct report t = {.now_ns = now_ns, .root = true};
    for_each (p, h->pages, HINTS_PAGES_MAX) {
        if (!p->shared || p->job != job)
            continue;
        uint64_t at = time_word(&p->shared->earliest_ns);
        int priority = atomic_load_explicit(&p->shared->priority, memory_order_relaxed);
        t.ended += word(&p->shared->ended);
        t.root &= p->admin;
        if (!at || p->stopped || (t.deadline_ns && at >= t.deadline_ns))
            continue;
        t.deadline_ns = at;
        t.need_ns = min_u64(word(&p->shared->need_us), COUNT_MAX / NSEC_PER_USEC) * NSEC_PER_USEC;
        t.priority = priority > 0 && !p->admin ? 0 : priority; /* users lower, as with classes */
    }
    return t;
}

uint64_t hints_report(struct hints *h, struct engine *e, uint64_t now_ns)
{
    bool any = false;
    for (unsigned i = 0; h && h->n && i < HINTS_PAGES_MAX; i++)
        any |= has_deadlines(&h->pages[i]);
    if (!any)
        return h && h->n ? now_ns + REPORT_OFF_NS : TIME_NEVER;
    hints_assign(h, e, now_ns);
    uint64_t again_ns = REPORT_OFF_NS;
    for (unsigned i = 0; i < HINTS_PAGES_MAX; i++) {
        const struct page *p = &h->pages[i];
        unsigned k = 0;
        if (!p->job || !has_deadlines(p))
            continue;
        while (k < i && (h->pages[k].job != p->job || !has_deadlines(&h->pages[k])))
            k++;
        if (k < i)
            continue;
        uint32_t slot = model_job_by_number(engine_model(e), p->job);
        struct report t = report_of(h, p->job, now_ns);
        if (slot != SLOT_NONE)
            again_ns = min_u64(again_ns, deadlines_report(engine_model(e), slot, &t));
    }
    return now_ns + again_ns;
}

static bool looks(const struct page *p, uint32_t at)
{
    return p->shared && (atomic_load_explicit(&p->shared->looks, memory_order_relaxed) & at);
}

uint64_t hints_tell_share(struct hints *h, struct engine *e, uint64_t now_ns)
{
    bool any = false;
    if (!h || !h->n)
        return TIME_NEVER;
    if (now_ns < h->share_ns)
        return h->share_ns;
    h->share_ns = now_ns + SHARE_NS;
    hints_assign(h, e, now_ns);
    for_each (p, h->pages, HINTS_PAGES_MAX) {
        if (!looks(p, HINTS_LOOKS_SHARE))
            continue;
        uint32_t share = p->job ? engine_job_share(e, p->slot, p->proc.pid) : 0;
        atomic_store_explicit(&p->shared->share, share ? hints_share_word(now_ns, share) : 0,
                              memory_order_relaxed);
        any = true;
    }
    if (any)
        engine_watch(e);
    return h->share_ns;
}

void hints_tell_wanted(struct hints *h, struct engine *e, uint64_t now_ns)
{
    struct room_wanted room = {{0}};
    bool any = false;
    for (unsigned i = 0; h && h->n && i < HINTS_PAGES_MAX; i++) {
        struct page *p = &h->pages[i];
        if (!looks(p, HINTS_LOOKS_WANTED))
            continue;
        if (!any) {
            hints_assign(h, e, now_ns);
            room = engine_room_wanted(e);
            any = true;
        }
        /* A search by number would look at all jobs. By slot, a program whose job has ended may get
         * the answer of the slot's new job until the next assignment. */
        atomic_store_explicit(&p->shared->wanted, p->job && engine_job_wanted(e, p->slot, &room),
                              memory_order_relaxed);
    }
}

/* False: the values are inconsistent, or the program has overwritten them meanwhile. */
static bool request_read(const struct page *p, uint64_t number, struct hints_request *out)
{
    const struct hints_done *d = &p->shared->done[number % HINTS_DONE];
    *out = (struct hints_request){time_word(&d->begun_ns), time_word(&d->ended_ns),
                                  time_word(&d->lead_ns), time_word(&d->lead_end_ns)};
    atomic_thread_fence(memory_order_acquire);
    if (time_word(&p->shared->ndone) >= number + HINTS_DONE || !out->begun_ns ||
        out->ended_ns < out->begun_ns)
        return false;
    if (out->lead_ns < out->begun_ns || out->lead_end_ns < out->lead_ns ||
        out->lead_end_ns > out->ended_ns)
        out->lead_ns = out->lead_end_ns = 0;
    return true;
}

/* The same of a lease that has waited. */
static bool lease_read(const struct page *p, uint64_t number, struct hints_wait *out)
{
    const struct hints_lease *d = &p->shared->leases[number % HINTS_LEASES];
    out->asked_ns = time_word(&d->asked_ns);
    out->ended_ns = time_word(&d->ended_ns);
    out->what = atomic_load_explicit(&d->what, memory_order_relaxed);
    for (unsigned i = 0; i < HINTS_KERNEL; i++)
        out->kernel[i] = atomic_load_explicit(&d->kernel[i], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    return time_word(&p->shared->nleases) < number + HINTS_LEASES && out->asked_ns &&
           out->ended_ns >= out->asked_ns;
}

/* The first entry of a ring that was not seen, and the end of those that are there. */
static uint64_t ring_next(const _Atomic uint64_t *count, uint64_t ring, uint64_t *seen,
                          uint64_t *end)
{
    uint64_t first = *seen;
    *end = *seen = min_u64(atomic_load_explicit(count, memory_order_acquire), TIME_MAX);
    return *end > first + ring ? *end - ring : first;
}

void hints_requests(struct hints *h, const struct hints_reader *to)
{
    uint64_t now = monotonic_ns(), end;
    for (unsigned i = 0; h->n && i < HINTS_PAGES_MAX; i++) {
        struct page *p = &h->pages[i];
        struct hints_request q;
        struct hints_wait w;
        if (!p->shared)
            continue;
        uint64_t at = ring_next(&p->shared->ndone, HINTS_DONE, &p->ndone, &end);
        for (; to && p->job && at < end; at++) {
            if (request_read(p, at, &q) && q.ended_ns <= now)
                to->request(to->arg, p->job, &q);
        }
        at = ring_next(&p->shared->nleases, HINTS_LEASES, &p->nleases, &end);
        for (; to && p->job && at < end; at++) {
            if (lease_read(p, at, &w) && w.ended_ns <= now)
                to->lease(to->arg, p->job, &w);
        }
    }
}

json_t *hints_leases_json(const struct hints_sums *s)
{
    _cleanup_json_ json_t *count = json_object();
    _cleanup_json_ json_t *waited = json_object();
    uint64_t all = 0;
    for (unsigned w = 0; w < HINTS_WAITS; w++) {
        all |= s->leases[w];
        json_object_set_new(count, hints_wait_names[w], json_integer((json_int_t)s->leases[w]));
        json_object_set_new(waited, hints_wait_names[w], json_real((double)s->waited_us[w] / 1e6));
    }
    return all ? json_pack("{s:O, s:O}", "count", count, "waited_s", waited) : NULL;
}

json_t *hints_of(const struct hints *h, uint64_t job, uint64_t now_ns, struct hints_sums *sum)
{
    uint64_t programs = 0, next = 0;
    double per_s = 0;
    *sum = (struct hints_sums){.begun = 0};
    for_each (p, h->pages, HINTS_PAGES_MAX) {
        if (!p->shared || p->job != job || !job)
            continue;
        const uint64_t before = sum->ended, at = time_word(&p->shared->earliest_ns);
        page_sum(p, sum);
        programs++;
        next = at && (!next || at < next) ? at : next;
        const struct sample *s = &p->samples[0];
        const uint64_t ended = sum->ended - before;
        if (p->nsamples && now_ns > s->at_ns + NSEC_PER_SEC / 2 && ended > s->ended)
            per_s += (double)(ended - s->ended) * 1e9 / (double)(now_ns - s->at_ns);
    }
    if (!programs)
        return NULL;
    json_t *left = !next ? json_null()
                         : json_integer(next > now_ns ? (json_int_t)((next - now_ns) / 1000) : 0);
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:o}", "programs", (json_int_t)programs,
                     "begun", (json_int_t)sum->begun, "ended", (json_int_t)sum->ended, "open",
                     (json_int_t)sum->open, "per_s", per_s, "due", (json_int_t)sum->due, "met",
                     (json_int_t)sum->met, "next_due_us", left);
}
