/* The user by whom limits are counted, called a principal here. A uid is not enough: a user has
 * 65,536 of them in its range of /etc/subuid, and takes any in a user namespace that it makes. So a
 * peer's principal is
 *   1. the user who made its user namespace, if that is below ours, which is certain; else
 *   2. the user in whose range of /etc/subuid its uid is (its process may be gone by now); else
 *   3. its uid.
 * Where that user is root (containers), each 65,536 uids are a principal. /proc/PID/loginuid is not
 * used, because a process that has none yet may set it to another user's, who would then be
 * refused. No directory service is asked; the files are read again when they have changed. */
#ifndef CEDE_BASE_PRINCIPAL_H
#define CEDE_BASE_PRINCIPAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct subuid_range {
    char name[32];
    uid_t first, owner;
    uint32_t count;
};

struct principals {
    const char *subuid, *passwd; /* paths; NULL: the files in /etc */
    struct subuid_range *v;
    size_t n;
    struct stat subuid_was, passwd_was;
    uint64_t checked_ns;
    dev_t ns_dev; /* of our user namespace; 0: not known yet */
    ino_t ns_ino;
};

/* pid 0: not known. Root is a principal by itself. */
uid_t principal_of(struct principals *a, uid_t uid, pid_t pid);
/* That of a caller in a container, in which it may take any uid: the user who made its user
 * namespace, else the container itself, by the number of its outermost pid namespace. Such numbers
 * begin at PRINCIPAL_CONTAINER, as no user's. In our pid namespace it is principal_of(). */
#define PRINCIPAL_CONTAINER 0xf0000000U
uid_t principal_of_guest(struct principals *a, uid_t uid, pid_t pid);
static inline bool principal_is_container(uid_t principal)
{
    return principal >= PRINCIPAL_CONTAINER;
}
void principals_free(struct principals *a);

#endif
