/* See identify_lookups.h. */
#include "who/identify_lookups.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_NS       (30 * NSEC_PER_SEC) /* for which an answer is kept */
#define SEND_AGAIN_NS (200 * NSEC_PER_MSEC)
#define TRIES_MAX     3                     /* for a process that has called exec(2) each time */
#define FAILED_NS     (200 * NSEC_PER_MSEC) /* between tries that failed for lack of memory, ... */
#define FAILED_MAX    150 /* such tries; then the program gets no answer, as one that hangs */

enum state { LOOKUP_FREE, LOOKUP_QUEUED, LOOKUP_SENT, LOOKUP_DONE };

struct lookup {
    enum state state;
    struct proc_id proc;
    uid_t principal;
    uint64_t id;
    uint64_t since_ns; /* of the question or, if LOOKUP_DONE, of the answer */
    unsigned tries, failed;
    char container[72];
    struct proc_image image; /* that of the answer; after an error, that of the question */
    struct identify_origin origin;
    int code;
    char *text; /* of n bytes; NULL: none */
    size_t n;
};

struct lookups {
    struct lookup v[LOOKUPS_MAX];
    uint64_t last_id;
    bool changed;     /* a question may be sent that could not be sent before */
    uint64_t send_at; /* nothing is sent before this time, after a failure */
    int (*send)(void *arg, const void *message, size_t n);
    void *arg;
    struct identify_ask ask; /* the next message; it keeps the names that are wanted */
};

struct lookups *lookups_new(int (*send)(void *arg, const void *message, size_t n), void *arg)
{
    struct lookups *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    l->send = send;
    l->arg = arg;
    return l;
}

static void lookup_free(struct lookup *x)
{
    free(x->text);
    *x = (struct lookup){.state = LOOKUP_FREE};
}

void lookups_free(struct lookups *l)
{
    for (size_t i = 0; l && i < LOOKUPS_MAX; i++)
        lookup_free(&l->v[i]);
    free(l);
}

void lookups_want(struct lookups *l, struct pairs wanted)
{
    l->ask.n = (uint32_t)min_u64(wanted.n, sizeof(l->ask.wanted));
    memcpy(l->ask.wanted, wanted.text, l->ask.n);
    for (size_t i = 0; i < LOOKUPS_MAX; i++) /* answers may lack a new name */
        lookup_free(&l->v[i]);
}

static unsigned count(const struct lookups *l, enum state from, const uid_t *of)
{
    unsigned n = 0;
    for_each (x, l->v, LOOKUPS_MAX)
        n += x->state >= from && x->state != LOOKUP_DONE && (!of || x->principal == *of);
    return n;
}

/* The question to send next: the oldest one of the principals with the fewest under way. */
static struct lookup *next_queued(struct lookups *l)
{
    struct lookup *next = NULL;
    unsigned least = LOOKUPS_SENT_EACH;
    for_each (x, l->v, LOOKUPS_MAX) {
        const unsigned n = x->state == LOOKUP_QUEUED ? count(l, LOOKUP_SENT, &x->principal) : least;
        if (x->state != LOOKUP_QUEUED || n > least || n == LOOKUPS_SENT_EACH ||
            (n == least && next && next->id < x->id))
            continue;
        least = n;
        next = x;
    }
    return next;
}

/* Sends as many questions as may be under way. */
static void pump(struct lookups *l, uint64_t now_ns)
{
    if (!l->changed || now_ns < l->send_at)
        return;
    l->changed = false;
    unsigned room = LOOKUPS_SENT - (unsigned)min_u64(count(l, LOOKUP_SENT, NULL), LOOKUPS_SENT);
    while (room-- > 0) {
        struct lookup *next = next_queued(l);
        if (!next)
            return;
        l->ask.id = next->id;
        l->ask.proc = next->proc;
        memcpy(l->ask.container, next->container, sizeof(l->ask.container));
        if (l->send(l->arg, &l->ask, offsetof(struct identify_ask, wanted) + l->ask.n) < 0) {
            l->changed = true;
            l->send_at = now_ns + SEND_AGAIN_NS;
            return;
        }
        next->state = LOOKUP_SENT;
    }
}

static void lookup_end(struct lookups *l, struct lookup *x, int code, uint64_t now_ns)
{
    l->changed = true;
    x->state = LOOKUP_DONE;
    x->code = code;
    x->since_ns = now_ns;
}

static struct lookup *lookup_find(struct lookups *l, struct proc_id proc)
{
    for (size_t i = 0; i < LOOKUPS_MAX; i++) {
        if (l->v[i].state != LOOKUP_FREE && proc_same(l->v[i].proc, proc))
            return &l->v[i];
    }
    return NULL;
}

/* Frees the latest question in the queue of the principal that has most there, if those are more
 * than this principal has; its caller will ask again. */
static struct lookup *take_from_most(struct lookups *l, uid_t principal)
{
    struct lookup *last = NULL;
    unsigned most = count(l, LOOKUP_QUEUED, &principal) + 1;
    for_each (x, l->v, LOOKUPS_MAX) {
        const unsigned n = x->state == LOOKUP_QUEUED ? count(l, LOOKUP_QUEUED, &x->principal) : 0;
        if (n > most || (n && last && last->principal == x->principal && last->id < x->id)) {
            most = n;
            last = x;
        }
    }
    if (last)
        lookup_free(last);
    return last;
}

/* Finds a free slot, that of the oldest answer, or that of a principal that has many. NULL: too
 * many questions are under way, none of them for longer than LOOKUP_MAX_NS. */
static struct lookup *find_room(struct lookups *l, uid_t principal, uint64_t now_ns)
{
    struct lookup *oldest = NULL;
    if (count(l, LOOKUP_QUEUED, &principal) >= LOOKUPS_PER_PRINCIPAL)
        return NULL;
    for_each (x, l->v, LOOKUPS_MAX) {
        if (x->state == LOOKUP_DONE && now_ns - x->since_ns > KEPT_NS)
            lookup_free(x);
        if (x->state == LOOKUP_FREE)
            return x;
        if (x->state == LOOKUP_DONE && (!oldest || x->since_ns < oldest->since_ns))
            oldest = x;
    }
    if (!oldest)
        return take_from_most(l, principal);
    lookup_free(oldest);
    return oldest;
}

static void enqueue(struct lookups *l, struct lookup *x, const struct lookup_key *k,
                    uint64_t now_ns)
{
    free(x->text);
    x->text = NULL;
    x->n = 0;
    l->changed = true;
    x->state = LOOKUP_QUEUED;
    x->id = ++l->last_id;
    x->since_ns = now_ns;
    x->image = k->image;
    snprintf(x->container, sizeof(x->container), "%s", k->container);
    x->tries++;
}

/* Whether the reason for the lack of an answer says nothing about the program, and may pass. */
static bool failed_in_passing(const struct lookup *x)
{
    return proc_unsure(x->code) && x->code != -EAGAIN && x->code != -ETIMEDOUT &&
           x->failed < FAILED_MAX;
}

/* Whether an answer is about what the process is now. */
static bool is_current(const struct lookup *x, const struct lookup_key *k)
{
    return strcmp(x->container, k->container) == 0 && proc_image_same(x->image, k->image);
}

int lookups_get(struct lookups *l, const struct lookup_key *k, uint64_t now_ns, struct pairs *out,
                struct identify_origin *origin)
{
    struct lookup *x = lookup_find(l, k->proc);
    *out = (struct pairs){.n = 0};
    *origin = (struct identify_origin){.speaker = k->proc};
    if (!x && !(x = find_room(l, k->principal, now_ns)))
        return -EAGAIN;
    if (x->state == LOOKUP_FREE) {
        *x = (struct lookup){.proc = k->proc, .principal = k->principal};
        enqueue(l, x, k, now_ns);
    } else if (x->state != LOOKUP_DONE && now_ns - x->since_ns > LOOKUP_MAX_NS) {
        lookup_end(l, x, -ETIMEDOUT, now_ns);
    } else if (x->state == LOOKUP_DONE && failed_in_passing(x)) {
        if (now_ns - x->since_ns < FAILED_NS)
            return -EAGAIN;
        x->failed++;
        enqueue(l, x, k, now_ns);
        x->tries--;
    } else if (x->state == LOOKUP_DONE && !is_current(x, k)) {
        if (x->tries < TRIES_MAX)
            enqueue(l, x, k, now_ns);
        else
            return -ESTALE;
    }
    if (x->state != LOOKUP_DONE) {
        pump(l, now_ns);
        return -EAGAIN;
    }
    *out = (struct pairs){x->text, x->n};
    *origin = x->origin;
    return x->code == -EAGAIN ? -ESTALE : x->code;
}

bool lookups_waits(struct lookups *l, pid_t pid, uint64_t now_ns)
{
    const struct lookup *x = l->v;
    while (x < l->v + LOOKUPS_MAX &&
           !((x->state == LOOKUP_QUEUED || x->state == LOOKUP_SENT) && x->proc.pid == pid))
        x++;
    if (x == l->v + LOOKUPS_MAX || now_ns - x->since_ns > LOOKUP_MAX_NS)
        return false;
    pump(l, now_ns);
    return true;
}

bool lookups_take(struct lookups *l, const struct identify_answer *a, size_t n, uint64_t now_ns)
{
    const size_t head = offsetof(struct identify_answer, text);
    struct lookup *x = NULL;
    bool late = false;
    if (n < head || a->n != n - head || !pairs_valid((struct pairs){a->text, a->n}))
        return false;
    for (size_t i = 0; i < LOOKUPS_MAX && !x; i++) {
        late = l->v[i].state == LOOKUP_DONE && l->v[i].code == -ETIMEDOUT;
        x = (l->v[i].state == LOOKUP_SENT || late) && l->v[i].id == a->id ? &l->v[i] : NULL;
    }
    if (!x)
        return false;
    x->text = a->n ? malloc(a->n) : NULL;
    x->n = x->text ? a->n : 0;
    if (x->text)
        memcpy(x->text, a->text, a->n);
    if (a->code >= 0)
        x->image = a->image;
    x->origin = a->origin;
    lookup_end(l, x, a->n && !x->text ? -ENOMEM : a->code, now_ns);
    pump(l, now_ns);
    return late;
}

void lookups_again(struct lookups *l, uint64_t now_ns)
{
    for (struct lookup *x = l->v; x < l->v + LOOKUPS_MAX; x++) {
        if (x->state != LOOKUP_SENT || x->failed++ >= FAILED_MAX)
            continue;
        x->state = LOOKUP_QUEUED;
        x->since_ns = now_ns;
    }
    l->changed = true;
}
