/* See owner.h. */
#include "libcede/owner.h"

#include <errno.h>

#include "libcede/error.h"

/* initial-exec: other models call the dynamic linker, and libcede needs libc alone. */
_Thread_local const struct owner_frame *cede_owner_frames
    __attribute__((tls_model("initial-exec")));

int cede_owner_fail(const struct lease_owner *o, int r)
{
    const int why = r == -ETIMEDOUT || r == -ECANCELED ? owner_stopped(o) : 0;
    if (why != -ETIMEDOUT && why != -ECANCELED)
        return why ? why : r;
    return cede_fail(-ECANCELED, "%s: return",
                     why == -ECANCELED ? "the scope is cancelled"
                                       : "the scope's time-out has passed");
}
