/* By whom limits are counted. A uid is not a person: an account has 65,536 of them in its range of
 * /etc/subuid, and takes any in a user namespace of its own. So a peer's account is
 *   1. who made the user namespace that it is in, below ours: that tells it for certain;
 *   2. else whose range of /etc/subuid its uid is in (its process may be gone by now);
 *   3. else its uid.
 * What root made a namespace or keeps a range for (containers) is one account for each 65,536 uids.
 * Not /proc/PID/loginuid: a process that has none yet may set it to anybody's, who would be refused
 * then. Asks no directory service, and reads the files again when they have changed. */
#ifndef CEDE_LIB_ACCOUNT_H
#define CEDE_LIB_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct subuid_range {
    char name[32];
    uid_t first, owner;
    uint32_t count;
};

struct accounts {
    const char *subuid, *passwd; /* files; NULL: those in /etc */
    struct subuid_range *v;
    size_t n;
    struct stat subuid_was, passwd_was;
    uint64_t checked_ns;
    dev_t ns_dev; /* of our user namespace; 0: not known yet */
    ino_t ns_ino;
};

/* pid 0: not known. Root is its own account. */
uid_t account_of(struct accounts *a, uid_t uid, pid_t pid);
/* Of a caller in a container, who may take any uid in there: the user who made its user namespace,
 * else the container itself, by the number of its pid namespace (ACCOUNT_CONTAINER and up: no
 * user's). A pid namespace within a container's is no other one. In ours it is account_of(). */
#define ACCOUNT_CONTAINER 0xf0000000U
uid_t account_of_guest(struct accounts *a, uid_t uid, pid_t pid);
static inline bool account_is_container(uid_t account)
{
    return account >= ACCOUNT_CONTAINER;
}
void accounts_free(struct accounts *a);

#endif
