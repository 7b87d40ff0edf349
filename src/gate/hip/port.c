/* The HIP library's port on the gate: all GPUs of the process are one device there. The daemon is
 * asked for at the first submission. */
#include "gate/hip/port.h"

#include "gate/gate.h"

#define LEVEL_GATE 1 /* device_level */

static int device = -2; /* -2: not asked for, -1: none */

bool port_active(void)
{
    int d = __atomic_load_n(&device, __ATOMIC_RELAXED);
    if (__builtin_expect(d == -2, 0)) {
        d = gate_device_add("AMD GPU (HIP)", "hip", LEVEL_GATE);
        __atomic_store_n(&device, d, __ATOMIC_RELAXED);
    }
    return gate_active() && d >= 0;
}

void port_pass(void)
{
    gate_pass(device);
}

uint64_t port_limit_ns(void)
{
    uint64_t ns = gate_limit_ns(device);
    return ns == UINT64_MAX ? 0 : ns;
}

void port_inflight(uint64_t ns)
{
    gate_queued(device, ns);
}

void port_ended(void)
{
    gate_ended(device);
}
