/* Watches a descriptor by a separately allocated handle, because libuv needs the handle for a while
 * after the descriptor was closed. */
#ifndef CEDE_BASE_LOOP_POLL_H
#define CEDE_BASE_LOOP_POLL_H

#include <errno.h>
#include <stdlib.h>
#include <uv.h>

static inline void loop_poll_free(uv_handle_t *h)
{
    free(h);
}

/* Afterwards the descriptor may be closed. *p NULL: nothing is watched. */
static inline void loop_poll_stop(uv_poll_t **p)
{
    if (*p)
        uv_close((uv_handle_t *)*p, loop_poll_free);
    *p = NULL;
}

/* cb finds `data` in the handle. 0, or -errno with *out NULL. */
static inline int loop_poll_start(uv_loop_t *loop, int fd, int events, uv_poll_cb cb, void *data,
                                  uv_poll_t **out)
{
    uv_poll_t *p = calloc(1, sizeof(*p));
    int r = p ? uv_poll_init(loop, p, fd) : -ENOMEM;
    *out = NULL;
    if (r < 0) {
        free(p);
        return r;
    }
    p->data = data;
    *out = p;
    r = uv_poll_start(p, events, cb);
    if (r < 0)
        loop_poll_stop(out);
    return r;
}

#endif
