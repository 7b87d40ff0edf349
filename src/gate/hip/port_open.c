/* Nobody schedules: everything passes. */
#include "gate/hip/port.h"

bool port_active(void)
{
    return false;
}

void port_pass(void)
{
}

uint64_t port_limit_ns(void)
{
    return 0;
}

void port_inflight(uint64_t ns)
{
}
