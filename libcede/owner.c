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

static struct owner_waker *wakers;

void cede_owner_add_waker(struct owner_waker *w)
{
    w->next = wakers;
    wakers = w;
}

void cede_owner_wake_all(void)
{
    for (const struct owner_waker *w = wakers; w; w = w->next)
        w->wake();
}
