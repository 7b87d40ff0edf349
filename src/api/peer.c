/* See peer.h. */
#include "api/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/rights.h"
#include "who/procfs.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

bool peer_is_admin(int fd, const struct ucred *cred, gid_t admin_gid)
{
    if (rights_admin(cred->uid, geteuid(), admin_gid, cred->gid, NULL, 0))
        return true;
    if (admin_gid == ADMIN_NO_GROUP)
        return false;
    gid_t few[64];
    socklen_t len = sizeof(few);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, few, &len) == 0)
        return rights_admin(cred->uid, geteuid(), admin_gid, cred->gid, few, len / sizeof(*few));
    _cleanup_free_ gid_t *many = errno == ERANGE ? malloc(len) : NULL;
    return many && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, many, &len) == 0 &&
           rights_admin(cred->uid, geteuid(), admin_gid, cred->gid, many, len / sizeof(*many));
}

int peer_pidns(int fd, const struct ucred *cred, struct pidns *out)
{
    int pidfd = -1;
    socklen_t len = sizeof(pidfd);
    const bool known = getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) == 0;
    if (!known && errno != ENOPROTOOPT)
        return -errno;
    int r = pidns_of(cred->pid, out);
    if (known && r == 0 && !pidfd_alive(pidfd))
        r = -ESRCH;
    if (known)
        close(pidfd);
    return r;
}
