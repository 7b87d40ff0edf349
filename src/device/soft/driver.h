/* The driver for the software GPU. */
#ifndef CEDE_DEVICE_SOFT_DRIVER_H
#define CEDE_DEVICE_SOFT_DRIVER_H

#include "device/ops.h"

extern const struct device_ops device_soft;

#endif
