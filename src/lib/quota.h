/* What users owe for what they had done, in time: each thing costs some, and is paid for as time
 * passes. Of the users that are more than there is room for, the one that paid for all first is
 * forgotten. */
#ifndef CEDE_LIB_QUOTA_H
#define CEDE_LIB_QUOTA_H

#include <stdint.h>
#include <sys/types.h>

#define QUOTA_USERS 64

/* What all but root may have together: of every table, and of the descriptors. */
#define USERS_PART(n) ((n) / 4 * 3)

struct quota {
    uid_t uid;
    uint64_t paid_ns;  /* when all is paid for, as monotonic_ns() */
    uint32_t left_out; /* the caller's: what was refused since */
};

struct quotas {
    struct quota v[QUOTA_USERS];
};

struct quota *quota_of(struct quotas *q, uid_t uid);
void quota_charge(struct quota *u, uint64_t now_ns, uint64_t cost_ns);

#endif
