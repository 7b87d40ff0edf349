/* The driver for programs that hold their own submissions back. */
#ifndef CEDE_DEVICE_GATE_DRIVER_H
#define CEDE_DEVICE_GATE_DRIVER_H

#include "device/ops.h"

extern const struct device_ops device_gate;

#endif
