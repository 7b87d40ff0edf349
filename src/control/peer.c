/* See peer.h. */
#include "control/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "control/rights.h"

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
    gid_t *many = errno == ERANGE ? malloc(len) : NULL;
    bool admin =
        many && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, many, &len) == 0 &&
        rights_admin(cred->uid, geteuid(), admin_gid, cred->gid, many, len / sizeof(*many));
    free(many);
    return admin;
}
