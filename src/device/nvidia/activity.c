/* Who has the compute engines: device_ops.activity and switches, by the driver's trace (trace.h).
 */
#include <errno.h>
#include <string.h>

#include "device/nvidia/nvidia.h"

/* Only GPUs on which something was found are traced: the others may be switched off. An error only
 * if none can be traced: gaps in the record of the others are reported with it. The driver traces
 * instances for profilers that subscribe to them, which no cede has tried: they have gaps, too. */
static int trace_used_gpus(struct nv_driver *d, struct error *err)
{
    int result = 0;
    bool any = false;
    bool used[DEVICE_GPUS_MAX] = {false};
    for (size_t i = 0; i < d->scanner.nprocs; i++) {
        const struct nv_process *p = &d->scanner.procs[i];
        for (size_t k = 0; k < p->nclients; k++) {
            for (size_t g = 0; g < p->clients[k].groups.n; g++)
                used[p->clients[k].groups.v[g].gpu % DEVICE_GPUS_MAX] = true;
        }
    }
    for (unsigned i = 0; i < d->gpus.n; i++) {
        int r = used[i] && !d->gpus.part[i].gpu[0]
                    ? nv_trace_start(&d->trace, &d->gpus, i, result ? NULL : err)
                    : 0;
        result = result < 0 ? result : r;
        any |= used[i] && r == 0;
    }
    return any ? 0 : result;
}

static int trace_begin(struct nv_driver *d, struct error *err)
{
    if (!d->io->same_pids())
        return error_set(err, -ENOTSUP,
                         "the driver's trace of context switches has the process numbers of the "
                         "first pid namespace, and this is another");
    return trace_used_gpus(d, err);
}

/* begun: trace_begin()'s; what other GPUs' traces have is there even so. */
static int trace_end(int begun, int read, struct error *err)
{
    return read < 0 ? error_set(err, read, "reading the driver's trace of context switches: %s",
                                strerror(-read))
                    : begun;
}

int nv_activity(struct device_driver *base, struct activity_list *out, struct error *err)
{
    struct nv_driver *d = (struct nv_driver *)(void *)base;
    int r = trace_begin(d, err);
    return r == -ENOTSUP ? r : trace_end(r, nv_trace_read(&d->trace, out), err);
}

int nv_switches(struct device_driver *base, struct switch_list *out, struct error *err)
{
    struct nv_driver *d = (struct nv_driver *)(void *)base;
    int r = out ? trace_begin(d, err) : 0;
    return r == -ENOTSUP ? r : trace_end(r, nv_trace_switches(&d->trace, out), err);
}
