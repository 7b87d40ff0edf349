/* What cede-identify is asked about processes, and what it has answered. Bounded, also for each
 * user: programs that delay their own answers delay only those of the same user. Nothing here
 * blocks: the caller asks again for an answer that is not there yet, and goes on without one after
 * LOOKUP_MAX_NS. Not thread-safe. No I/O but by `send`. */
#ifndef CEDE_CONTROL_LOOKUPS_H
#define CEDE_CONTROL_LOOKUPS_H

#include <stdbool.h>

#include "identify/identify.h"
#include "lib/util.h"

#define LOOKUPS_MAX         256
#define LOOKUPS_PER_ACCOUNT 64
#define LOOKUPS_SENT        16 /* at the same time */
#define LOOKUPS_SENT_EACH   4  /* of one account */
#define LOOKUP_MAX_NS       (IDENTIFY_S * NSEC_PER_SEC)

struct lookups;

/* send: one message to cede-identify; < 0: not now. NULL: no memory. */
struct lookups *lookups_new(int (*send)(void *arg, const void *message, size_t n), void *arg);
void lookups_free(struct lookups *l);

/* Names, as in identify.h, that are asked for from now on. */
void lookups_want(struct lookups *l, struct pairs wanted);

struct lookup_key {
    struct proc_id proc;
    struct proc_image image; /* the program that it runs now: another one is asked about anew */
    uid_t account;
    const char *container; /* its id, or "" */
};
/* 0: *out has what is known, valid until the next call. -EAGAIN: it is being asked for, or will be
 * when there is room. Else
 * nothing is known of its own words; *out has none. *origin goes with *out. */
int lookups_get(struct lookups *l, const struct lookup_key *k, uint64_t now_ns, struct pairs *out,
                struct identify_origin *origin);

/* Whether lookups_get() would say -EAGAIN of a process by this number, told without looking at it.
 */
bool lookups_waits(struct lookups *l, pid_t pid, uint64_t now_ns);

/* An answer. True: it comes after lookups_get() has said that there will be none. */
bool lookups_take(struct lookups *l, const struct identify_answer *a, size_t n, uint64_t now_ns);
/* cede-identify has ended: what it was asked is asked again, by the next lookups_get(). */
void lookups_again(struct lookups *l);

#endif
