/* Who had the software GPUs: device_ops.switches, from the server's record. */
#include <errno.h>

#include "device/soft/driver.h"

#define SWITCH_ASKS 512U /* messages of one call and GPU: twice what the server keeps */

/* What happened before the record began is not known: of the first there is, who had it before. */
static int soft_switches_of(struct soft_driver *d, unsigned gpu, struct switch_list *out,
                            struct error *err)
{
    for (unsigned i = 0; i < SWITCH_ASKS; i++) {
        struct soft_msg m = {
            .type = SOFT_SWITCHES,
            .u.switches = {.gpu = gpu, .on = out != NULL, .first = d->switch_next[gpu]}};
        int r = soft_ask(d, &m, SOFT_SWITCHES, err);
        if (r < 0 || !out)
            return r;
        uint32_t n = m.u.switches.n;
        if (n > ARRAY_SIZE(m.u.switches.v))
            return soft_no_server(d, -EPROTO, err);
        bool begins = !d->recording[gpu], lost = m.u.switches.first != d->switch_next[gpu];
        d->recording[gpu] = true;
        if (begins) { /* older ones are another reader's */
            d->switch_next[gpu] = m.u.switches.end;
            d->switch_ns[gpu] = 0;
            return 0;
        }
        for (uint32_t k = 0; k < n && r == 0; k++) {
            const struct soft_switch *v = &m.u.switches.v[k];
            if (lost) /* since the last one that is known */
                r = switch_list_push(
                    out, &(struct gpu_switch){d->switch_ns[gpu] ? d->switch_ns[gpu] : v->ns,
                                              GPU_UNKNOWN, gpu});
            lost = false;
            if (r == 0)
                r = switch_list_push(out, &(struct gpu_switch){v->ns, v->pid, gpu});
            d->switch_ns[gpu] = v->ns;
        }
        if (n) /* else it is asked for again, so that what is lost is seen */
            d->switch_next[gpu] = m.u.switches.first + n;
        if (r < 0 || n < ARRAY_SIZE(m.u.switches.v))
            return r;
    }
    return 0;
}

int soft_switches(struct device_driver *base, struct switch_list *out, struct error *err)
{
    struct soft_driver *d = soft(base);
    int r = 0;
    for (unsigned i = 0; i < d->gpus && r == 0; i++) {
        if (out || d->recording[i])
            r = soft_switches_of(d, i, out, err);
        d->recording[i] &= out != NULL;
    }
    return r;
}
