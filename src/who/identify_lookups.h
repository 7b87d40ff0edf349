/* Asks cede-identify about processes and keeps its answers. The table is bounded, also for each
 * user, so that programs that delay their own answers delay only those of the same user. Nothing
 * here blocks: the caller asks again for an answer that is not there yet, and goes on without one
 * after LOOKUP_MAX_NS. Not thread-safe. All I/O is done by `send`. */
#ifndef CEDE_WHO_IDENTIFY_LOOKUPS_H
#define CEDE_WHO_IDENTIFY_LOOKUPS_H

#include <stdbool.h>

#include "base/util.h"
#include "who/identify.h"

#define LOOKUPS_MAX           256
#define LOOKUPS_PER_PRINCIPAL 64
#define LOOKUPS_SENT          16 /* questions without an answer at the same time */
#define LOOKUPS_SENT_EACH     4  /* those of one principal */
#define LOOKUP_MAX_NS         (IDENTIFY_S * NSEC_PER_SEC)

struct lookups;

/* send() sends one message to cede-identify; < 0: not now. NULL: no memory. */
struct lookups *lookups_new(int (*send)(void *arg, const void *message, size_t n), void *arg);
void lookups_free(struct lookups *l);

/* Sets the names, of identify.h, that are asked for from now on. */
void lookups_want(struct lookups *l, struct pairs wanted);

struct lookup_key {
    struct proc_id proc;
    struct proc_image image; /* the program that it runs now; an answer holds for one program */
    uid_t principal;
    const char *container; /* its id, or "" */
};
/* 0: *out has the answer, valid until the next call. -EAGAIN: the question is under way, or will be
 * sent when there is room. Another error: the program's words could not be read. *origin belongs to
 * *out. */
int lookups_get(struct lookups *l, const struct lookup_key *k, uint64_t now_ns, struct pairs *out,
                struct identify_origin *origin);

/* Whether lookups_get() would return -EAGAIN for this pid, found without a look at the process. */
bool lookups_waits(struct lookups *l, pid_t pid, uint64_t now_ns);

/* Takes an answer. True: it comes late, after lookups_get() has given it up. */
bool lookups_take(struct lookups *l, const struct identify_answer *a, size_t n, uint64_t now_ns);
/* Called when cede-identify has ended: its questions are sent again by the next lookups_get(). */
void lookups_again(struct lookups *l, uint64_t now_ns);

#endif
