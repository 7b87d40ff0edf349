/* The driver for NVIDIA GPUs behind the stock driver. */
#ifndef CEDE_DEVICE_NVIDIA_DRIVER_H
#define CEDE_DEVICE_NVIDIA_DRIVER_H

#include "device/ops.h"

extern const struct device_ops device_nvidia;

#endif
