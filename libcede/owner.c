/* See owner.h. */
#include "libcede/owner.h"

/* initial-exec: other models call the dynamic linker, and libcede needs libc alone. */
_Thread_local const struct owner_frame *cede_owner_frames
    __attribute__((tls_model("initial-exec")));

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
