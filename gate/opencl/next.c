/* The table of calls below the layer. A file of its own because all others need it. */
#include "gate/opencl/layer.h"

const cl_icd_dispatch *next;
