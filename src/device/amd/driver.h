/* The driver for AMD GPUs behind the upstream compute driver. */
#ifndef CEDE_DEVICE_AMD_DRIVER_H
#define CEDE_DEVICE_AMD_DRIVER_H

#include "device/ops.h"

extern const struct device_ops device_amd;

#endif
