/* Who may do what over the control socket: one pure function over facts. Like nice(1): everyone may
 * lower what is their own and cannot raise it again; administrators may do anything. */
#ifndef CEDE_CONTROL_RIGHTS_H
#define CEDE_CONTROL_RIGHTS_H

#include <stdbool.h>
#include <sys/types.h>

#include "control/proto.h"
#include "lib/pidns.h"
#include "lib/util.h"
#include "sched/sched.h"

#define UID_OUTSIDE    ((uid_t)-3) /* somebody outside of the caller's container */
#define ADMIN_NO_GROUP ((gid_t)-1) /* no group has the rights of an administrator */

struct caller {
    uid_t uid;
    uid_t account; /* by whom limits are counted: lib/account.h */
    pid_t pid;
    bool admin;
    bool guest;           /* came by the socket for containers: guest.h */
    struct pidns ns;      /* in which it runs; a guest's is known */
    uint64_t connection;  /* its number, never used again */
    uint64_t since_ticks; /* when that began, as proc_stat_read() tells times */
};

/* What the request is about, as it is now. */
struct subject {
    uid_t owner;
    bool managed; /* in a job; then: */
    enum job_class class;
    uint32_t weight;
    uint32_t gpu_min, gpu_max; /* percent; 0: none */
    bool paused;
    uid_t paused_by;
    uint32_t budget_us;
    uint32_t min_speed, default_speed; /* percent, of a latency job */
    bool swapped;
    bool swapped_by_user; /* else for a latency job, which must not lose its room again */
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
