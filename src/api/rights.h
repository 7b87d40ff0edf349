/* Rights on the control socket, as a pure function over facts. As with nice(1), users may lower
 * their own programs and cannot raise them again; administrators may do anything. */
#ifndef CEDE_API_RIGHTS_H
#define CEDE_API_RIGHTS_H

#include <stdbool.h>
#include <sys/types.h>

#include "api/proto.h"
#include "base/util.h"
#include "plan/sched.h"
#include "who/pidns.h"

#define UID_OUTSIDE    ((uid_t)-3) /* stands for any user outside of the caller's container */
#define ADMIN_NO_GROUP ((gid_t)-1) /* no group has the rights of an administrator */

struct caller {
    uid_t uid;
    uid_t principal; /* the uid for which limits are counted: base/principal.h */
    pid_t pid;
    bool admin;
    gid_t admin_gid;      /* of the group that has these rights; ADMIN_NO_GROUP: none has */
    bool guest;           /* it connected to the socket for containers: guest.h */
    struct pidns ns;      /* in which it runs; always known for a guest */
    uint64_t connection;  /* number of the connection, never used again */
    uint64_t since_ticks; /* when the connection began, in the ticks of proc_stat_read() */
};

/* The present state of the program that a request is about. */
struct subject {
    uid_t owner;
    bool managed; /* it is in a job, which the other members describe */
    union {
        struct job_terms;
        struct job_terms terms;
    };
    uint32_t default_speed; /* percent, for latency jobs without min_speed */
    bool paused;
    uid_t paused_by;
    bool swapped;
    bool swapped_by_user; /* else for a latency job, which must keep its room */
    uid_t swapped_by;
    bool yielded;
    uid_t yielded_by;
};

/* Root, the daemon's own user, and members of the group (ADMIN_NO_GROUP: none). */
bool rights_admin(uid_t uid, uid_t daemon_uid, gid_t admin_gid, gid_t gid, const gid_t *groups,
                  size_t ngroups);

/* 0, or -EPERM with what this caller may do. subject may be NULL for ps and policy. */
int rights_check(const struct caller *who, const struct request *want,
                 const struct subject *subject, struct error *err);

#endif
