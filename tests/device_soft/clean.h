/* What the tests of the software GPU let go of at the end of a scope. */
#ifndef TESTS_DEVICE_SOFT_CLEAN_H
#define TESTS_DEVICE_SOFT_CLEAN_H

#include "base/util.h"
#include "gpu/ops.h"
#include "gpu/soft/client.h"
#include "softgpu/engine.h"

static inline void client_close_p(struct soft_client **c)
{
    soft_client_close(*c);
}

static inline void driver_close_p(struct device_driver **d)
{
    device_close(*d);
}

static inline void engine_free_p(struct softgpu **e)
{
    softgpu_free(*e);
}

#define _cleanup_client_ _cleanup_(client_close_p)
#define _cleanup_driver_ _cleanup_(driver_close_p)
#define _cleanup_engine_ _cleanup_(engine_free_p)

#endif
