/* See job_sums.h. A sum is an array of numbers, each modulo 2^64: while a job lives, its numbers
 * are added when somebody asks, and they are added for good when it ends. */
#include "api/job_sums.h"

#include <math.h>
#include <string.h>

#include "api/guest.h"
#include "api/replies.h"
#include "base/json_text.h"

#define NONE    UINT32_MAX
#define KEPT_NS (3600 * NSEC_PER_SEC) /* after its last job; longer than scrapers look back */

/* Both have sums of 64 bits and nothing else. */
struct totals {
    struct job_totals counts;
    struct hints_sums requests;
};

struct sum {
    uint64_t id; /* 0: free */
    char name[JOB_NAME_MAX];
    enum job_class class;
    uid_t uid, principal;
    struct pod_names pod;
    uint32_t living;
    uint64_t left_ns; /* when a job last left it */
    struct totals v;
};

struct job_sums {
    struct sum sums[JOB_SUMS_MAX];
    struct {
        uint64_t number; /* 0: none in this slot */
        uint32_t sum;    /* NONE: it is only counted */
    } jobs[JOURNAL_JOBS];
    uint64_t last_id;
    const struct hints *hints;
    void (*next)(void *arg, uint32_t job, const struct job_view *v, bool ends);
    void *arg;
};

struct job_sums *
job_sums_new(void (*next)(void *arg, uint32_t job, const struct job_view *v, bool ends), void *arg)
{
    struct job_sums *s = calloc(1, sizeof(*s));
    if (s) {
        s->next = next;
        s->arg = arg;
    }
    return s;
}

void job_sums_free(struct job_sums *s)
{
    free(s);
}

/* ---- which sum a job is in ---- */

static bool is_of(const struct sum *x, const struct job_view *v)
{
    return x->id && x->class == v->job.class && x->uid == v->job.uid &&
           strcmp(x->name, v->job.name) == 0 && strcmp(x->pod.pod, v->pod.pod) == 0 &&
           strcmp(x->pod.namespace, v->pod.namespace) == 0 &&
           strcmp(x->pod.container, v->pod.container) == 0;
}

static uint32_t sum_for(struct job_sums *s, const struct job_view *v)
{
    uint32_t own = 0, oldest = NONE, oldest_own = NONE, room = NONE;
    for (uint32_t i = 0; i < JOB_SUMS_MAX; i++) {
        const struct sum *x = &s->sums[i];
        if (is_of(x, v))
            return i;
        if (!x->id) {
            room = room == NONE ? i : room;
            continue;
        }
        const bool mine = x->principal == v->job.principal;
        own += mine;
        if (x->living)
            continue;
        if (oldest == NONE || x->left_ns < s->sums[oldest].left_ns)
            oldest = i;
        if (mine && (oldest_own == NONE || x->left_ns < s->sums[oldest_own].left_ns))
            oldest_own = i;
    }
    if (v->job.principal != 0 && own >= JOB_SUMS_PER_USER)
        room = oldest_own;
    else if (room == NONE)
        room = oldest;
    if (room == NONE)
        return NONE;
    s->sums[room] = (struct sum){.id = ++s->last_id,
                                 .class = (enum job_class)v->job.class,
                                 .uid = v->job.uid,
                                 .principal = v->job.principal,
                                 .pod = v->pod};
    memcpy(s->sums[room].name, v->job.name, sizeof(v->job.name));
    return room;
}

/* times: 1, or -1 to take them away. */
static void totals_add(struct totals *to, const struct totals *more, int times)
{
    uint64_t *a = (uint64_t *)to;
    const uint64_t *b = (const uint64_t *)more;
    for (size_t i = 0; i < sizeof(*to) / sizeof(*a); i++)
        a[i] += b[i] * (uint64_t)times;
}

static struct totals totals_of(const struct job_sums *s, uint32_t job, const struct job_view *v)
{
    return (struct totals){v->counts, hints_sum(s->hints, job, v->number)};
}

static void sum_leave(struct job_sums *s, uint32_t sum, const struct totals *had)
{
    if (sum == NONE)
        return;
    totals_add(&s->sums[sum].v, had, 1);
    s->sums[sum].living--;
    s->sums[sum].left_ns = monotonic_ns();
}

/* The sum in which the job is now. What it had before it came there does not count there. */
static uint32_t sum_of(struct job_sums *s, uint32_t job, const struct job_view *v,
                       const struct totals *has)
{
    const bool known = s->jobs[job].number == v->number;
    const uint32_t was = known ? s->jobs[job].sum : NONE;
    if (was != NONE && is_of(&s->sums[was], v))
        return was;
    const uint32_t now = sum_for(s, v);
    sum_leave(s, was, has);
    s->jobs[job].number = v->number;
    s->jobs[job].sum = now;
    if (now == NONE)
        return now;
    s->sums[now].living++;
    if (known)
        totals_add(&s->sums[now].v, has, -1);
    return now;
}

void job_sums_changed(void *arg, uint32_t job, const struct job_view *v, bool ends)
{
    struct job_sums *s = arg;
    const struct totals has = totals_of(s, job, v);
    const uint32_t sum = sum_of(s, job, v, &has);
    if (ends) {
        sum_leave(s, sum, &has);
        s->jobs[job].number = 0;
    }
    if (s->next)
        s->next(s->arg, job, v, ends);
}

void job_sums_use_hints(struct job_sums *s, const struct hints *h)
{
    s->hints = h;
}

/* ---- what they are now ---- */

struct now {
    uint64_t id;
    uint32_t jobs;
    struct job_view v; /* sums, of what is no counter; the least or the most where that says more */
    struct totals sum;
    uint64_t open;
    json_t *states;
};

struct job_sums_now {
    struct now *v; /* in the order of their ids */
    size_t n;
    json_t *states;
    uint64_t omitted;
};

static void count_state(json_t *states, const char *state)
{
    json_object_set_new(states, state, json_integer(json_get_int(states, state) + 1));
}

static void now_add(struct now *x, const struct job_view *v)
{
    struct job_view *sum = &x->v;
    if (!x->jobs++) {
        sum->busy = -1;
        sum->job.deadline_us = v->job.deadline_us;
        sum->speed = INFINITY;
        sum->due_in_ns = INT64_MAX;
    }
    sum->processes += v->processes;
    sum->memory_bytes += v->memory_bytes;
    sum->swapped_bytes += v->swapped_bytes;
    if (v->busy >= 0)
        sum->busy = fmax(sum->busy, 0) + v->busy;
    if (v->job.deadline_us && (!sum->job.deadline_us || v->job.deadline_us < sum->job.deadline_us))
        sum->job.deadline_us = v->job.deadline_us;
    if (v->due && v->due_in_ns < sum->due_in_ns)
        sum->due_in_ns = v->due_in_ns;
    sum->due |= v->due;
    if (v->speed_told && v->speed < sum->speed) {
        sum->is_client = sum->speed_told = true;
        sum->speed = v->speed;
        sum->speed_error = v->speed_error;
    }
    x->states = x->states ? x->states : json_object();
    count_state(x->states, job_state(v));
}

/* A program that reports less than before may bring a sum below 0. */
static void floor_at_0(struct totals *t)
{
    uint64_t *v = (uint64_t *)t;
    for (size_t i = 0; i < sizeof(*t) / sizeof(*v); i++)
        v[i] = v[i] > INT64_MAX ? 0 : v[i];
}

/* Adds all jobs to sums, which are in the order of s->sums. */
static void collect_jobs(struct job_sums *s, struct engine *e, const struct caller *who,
                         struct job_sums_now *now)
{
    struct job_view v;
    for (uint32_t cursor = 0; engine_next_job(e, &cursor, &v);) {
        if (!guest_reaches(who, v.member))
            continue;
        const struct totals has = totals_of(s, cursor - 1, &v);
        const uint32_t sum = sum_of(s, cursor - 1, &v, &has);
        const char *class = job_class_name((enum job_class)v.job.class);
        if (!json_object_get(now->states, class))
            json_object_set_new(now->states, class, json_object());
        count_state(json_object_get(now->states, class), job_state(&v));
        if (sum == NONE) {
            now->omitted++;
            continue;
        }
        now_add(&now->v[sum], &v);
        now->v[sum].open += has.requests.open;
        totals_add(&now->v[sum].sum, &has, 1);
    }
}

struct job_sums_now *job_sums_collect(struct job_sums *s, struct engine *e,
                                      const struct caller *who)
{
    struct job_sums_now *now = calloc(1, sizeof(*now));
    size_t n = JOB_SUMS_MAX;
    uint32_t cursor = 0;
    while (n > 0 && !s->sums[n - 1].id)
        n--;
    for (n += !n; n < JOB_SUMS_MAX && engine_next_record(e, &cursor);)
        n++; /* collect_jobs() may begin a sum for each job, in the first free place */
    if (!now || !(now->v = calloc(n, sizeof(*now->v)))) {
        free(now);
        return NULL;
    }
    now->states = json_object();
    collect_jobs(s, e, who, now);
    const uint64_t ns = monotonic_ns();
    for (uint32_t i = 0; i < n; i++) {
        struct sum *x = &s->sums[i];
        struct now *to = &now->v[i];
        if (x->id && !x->living && ns - x->left_ns > KEPT_NS)
            x->id = 0;
        to->id = to->jobs || !who->guest ? x->id : 0;
        memcpy(to->v.job.name, x->name, sizeof(x->name));
        to->v.job.class = x->class;
        to->v.job.uid = x->uid;
        to->v.pod = x->pod;
        if (!who->guest)
            totals_add(&to->sum, &x->v, 1);
        floor_at_0(&to->sum);
    }
    now->n = n;
    qsort(now->v, now->n, sizeof(*now->v), compare_u64);
    return now;
}

void job_sums_done(struct job_sums_now *now)
{
    for (size_t i = 0; now && i < now->n; i++)
        json_decref(now->v[i].states);
    if (now) {
        json_decref(now->states);
        free(now->v);
    }
    free(now);
}

void job_sums_add_states(const struct job_sums_now *now, json_t *reply)
{
    json_object_set(reply, "states", now->states);
    json_object_set_new(reply, "omitted", json_integer((json_int_t)now->omitted));
}

static json_t *requests_json(const struct now *x)
{
    const struct hints_sums *r = &x->sum.requests;
    return !r->begun ? NULL
                     : json_pack("{s:I, s:I, s:I, s:I, s:I}", "begun", (json_int_t)r->begun,
                                 "ended", (json_int_t)r->ended, "due", (json_int_t)r->due, "met",
                                 (json_int_t)r->met, "open", (json_int_t)x->open);
}

/* The sum as a job with these fields. */
static json_t *sum_json(const struct now *x)
{
    static const char *const shown[] = {"number",      "name",         "class",     "uid",
                                        "namespace",   "pod",          "container", "processes",
                                        "busy",        "memory_bytes", "counts",    "swapped_bytes",
                                        "deadline_us", "due",          "mps"};
    struct job_view v = x->v;
    v.number = x->id;
    v.counts = x->sum.counts;
    _cleanup_json_ json_t *whole = job_json(&v, JOB_WHOLE);
    json_t *o =
        json_pack("{s:i, s:O*, s:o*, s:o*}", "jobs", (int)x->jobs, "states", x->states, "requests",
                  requests_json(x), "leases", hints_leases_json(&x->sum.requests));
    for (size_t i = 0; i < ARRAY_SIZE(shown); i++) {
        json_t *field = json_object_get(whole, shown[i]);
        if (field)
            json_object_set(o, shown[i], field);
    }
    return o;
}

bool job_sums_put(const struct job_sums_now *now, uint64_t after, struct json_page *to)
{
    for (size_t i = 0; i < now->n; i++) {
        if (now->v[i].id > after && !json_page_add(to, sum_json(&now->v[i])))
            return true;
    }
    return false;
}
