/* Entry of the OpenCL layer: the loader (OPENCL_LAYERS) hands us the table of calls, and uses the
 * one we hand back. Calls that we do not stand for go where they went before. */
#include "gate/opencl/layer.h"

#include <CL/cl_layer.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

const cl_icd_dispatch *next;
static cl_icd_dispatch ours;

EXPORT cl_int clGetLayerInfo(cl_layer_info what, size_t size, void *value, size_t *size_ret)
{
    static const char name[] = "cede";
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    const void *from = what == CL_LAYER_API_VERSION ? (const void *)&version
                       : what == CL_LAYER_NAME      ? (const void *)name
                                                    : NULL;
    size_t n = what == CL_LAYER_API_VERSION ? sizeof(version) : sizeof(name);
    if (!from || (value && size < n))
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, from, n);
    if (size_ret)
        *size_ret = n;
    return CL_SUCCESS;
}

EXPORT cl_int clInitLayer(cl_uint n, const cl_icd_dispatch *target, cl_uint *n_ret,
                          const cl_icd_dispatch **ret)
{
    /* A loader with a shorter table than ours knows fewer calls than we would stand for. */
    if (!target || !ret || !n_ret || n < sizeof(ours) / sizeof(void *))
        return CL_INVALID_VALUE;
    memcpy(&ours, target, sizeof(ours));
    next = target;
    objects_fill(&ours);
    enqueue_fill(&ours);
    slice_fill(&ours);
    *n_ret = sizeof(ours) / sizeof(void *);
    *ret = &ours;
    return CL_SUCCESS;
}
