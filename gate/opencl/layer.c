/* Entry of the OpenCL layer: the loader (OPENCL_LAYERS) hands over a table of calls, and uses the
 * one that it is given back. Calls that the layer does not stand for go where they went before. */
#include "gate/opencl/layer.h"

#include <CL/cl_layer.h>
#include <pthread.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static cl_icd_dispatch layer_calls;

/* ---- extensions: calls that a program looks up by name --------------------------------------- */

static bool is_command_buffer(const char *name)
{
    return name && strcmp(name, "clEnqueueCommandBufferKHR") == 0;
}

static void *extension(const char *name, void *real, void *buffer_info)
{
    if (real && is_command_buffer(name))
        return enqueue_command_buffer(real, buffer_info);
    if (real && name && strcmp(name, "clCreateCommandQueueWithPropertiesKHR") == 0 &&
        next->clCreateCommandQueueWithProperties)
        return (void *)layer_calls.clCreateCommandQueueWithProperties;
    return real;
}

#define BUFFER_INFO "clGetCommandBufferInfoKHR"

void *CL_API_CALL my_clGetExtensionFunctionAddressForPlatform(cl_platform_id platform,
                                                              const char *name)
{
    void *(CL_API_CALL * look_up)(cl_platform_id, const char *) =
        next->clGetExtensionFunctionAddressForPlatform;
    return extension(name, look_up(platform, name),
                     is_command_buffer(name) ? look_up(platform, BUFFER_INFO) : NULL);
}

void *CL_API_CALL my_clGetExtensionFunctionAddress(const char *name)
{
    void *(CL_API_CALL * look_up)(const char *) = next->clGetExtensionFunctionAddress;
    return extension(name, look_up(name), is_command_buffer(name) ? look_up(BUFFER_INFO) : NULL);
}

/* ---- entry ----------------------------------------------------------------------------------- */

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

/* What the parent's threads were doing with the tables is not known. */
static void layer_in_child(void)
{
    queues_in_child();
    programs_in_child();
    events_in_child();
    enqueue_in_child();
}

/* A loader may begin anew after it was closed; but listed twice, the layer would call itself. */
EXPORT cl_int clInitLayer(cl_uint n, const cl_icd_dispatch *target, cl_uint *n_ret,
                          const cl_icd_dispatch **ret)
{
    /* A loader with a shorter table knows fewer calls than the layer would stand for. */
    if (!target || !ret || !n_ret || n < sizeof(layer_calls) / sizeof(void *))
        return CL_INVALID_VALUE;
    if (layer_calls.clFlush && target->clFlush == layer_calls.clFlush)
        return CL_INVALID_VALUE;
    if (!next && pthread_atfork(NULL, NULL, layer_in_child) != 0)
        return CL_OUT_OF_HOST_MEMORY;
    memcpy(&layer_calls, target, sizeof(layer_calls));
    next = target;
    cl_icd_dispatch *d = &layer_calls;
    LAYER_CALLS(TAKE)
    enqueue_fill(d);
    *n_ret = sizeof(layer_calls) / sizeof(void *);
    *ret = &layer_calls;
    return CL_SUCCESS;
}
