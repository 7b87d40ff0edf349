/* Limits the rate of each user's requests, as a token bucket in units of time: each request has a
 * cost, and debts are paid off as time passes. When the table is full, the user whose debt was paid
 * off first is forgotten. */
#ifndef CEDE_BASE_QUOTA_H
#define CEDE_BASE_QUOTA_H

#include <stdint.h>
#include <sys/types.h>

#define QUOTA_USERS 64

/* The part of every table, and of the descriptors, that all users but root may use together. */
#define USERS_PART(n) ((n) / 4 * 3)

struct quota {
    uid_t uid;
    uint64_t paid_ns;  /* when all is paid off, as monotonic_ns() */
    uint32_t left_out; /* kept by the caller: the number of refusals since then */
};

struct quotas {
    struct quota v[QUOTA_USERS];
};

struct quota *quota_of(struct quotas *q, uid_t uid);
void quota_charge(struct quota *u, uint64_t now_ns, uint64_t cost_ns);

#endif
