/* A stand-in for the software GPU's client side: kernels end at once, in virtual time that only
 * submitting moves. FAKE_SOFT in the environment says what shall go wrong. */
#include "gpu/soft/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RING = 1024, OVERHEAD_NS = 25000 };

struct soft_client {
    struct soft_completion ring[RING];
    uint64_t submitted, completed, now_ns;
};

static int fault(const char *what)
{
    const char *s = getenv("FAKE_SOFT");
    return s && strcmp(s, what) == 0;
}

int soft_client_open(const char *path, unsigned gpu, const struct soft_gang *gang,
                     struct soft_client **out)
{
    if (fault("absent"))
        return -ENOENT;
    if (gpu > 0)
        return -EINVAL;
    *out = calloc(1, sizeof(**out));
    (*out)->now_ns = 1000000000;
    return 0;
}

void soft_client_close(struct soft_client *c)
{
    free(c);
}

int soft_client_submit(struct soft_client *c, const struct soft_kernel *k)
{
    if (c->submitted - c->completed == RING)
        return -EAGAIN;
    uint64_t submit = c->now_ns, start = submit + OVERHEAD_NS;
    c->now_ns = start + k->duration_ns;
    c->ring[c->submitted++ % RING] = (struct soft_completion){k->cookie, submit, start, c->now_ns};
    return 0;
}

int soft_client_wait(struct soft_client *c, uint64_t timeout_ns, struct soft_completion *out)
{
    if (fault("gone") && c->completed == 5)
        return -EPIPE;
    if (c->completed == c->submitted)
        return -ETIMEDOUT;
    *out = c->ring[c->completed++ % RING];
    if (fault("twice") && c->completed == 7)
        out->cookie--;
    if (fault("short") && c->completed == 7)
        out->end_ns -= 2;
    return 0;
}

int soft_client_uses(struct soft_client *c, const float uses[GPU_PARTS])
{
    return uses[PART_DRAM] == 0.25F && uses[PART_TENSOR_FP16] == 1 && uses[PART_FP32] == 0
               ? 0
               : -EINVAL;
}

int soft_client_alloc(struct soft_client *c, int64_t bytes)
{
    return bytes > 1000 ? -ENOMEM : 0;
}

int soft_default_path(char *buf, unsigned long size)
{
    snprintf(buf, size, "/made-up/socket");
    return 0;
}
