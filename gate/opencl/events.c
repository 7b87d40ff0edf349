/* Host events, which queued work may wait for, and callbacks, which the device may wait for:
 * nothing is held that could keep either. */
#include <stdlib.h>

#include "gate/gate.h"
#include "gate/opencl/layer.h"
#include "gate/opencl/table.h"

static struct table host_events = TABLE(char);

void events_in_child(void)
{
    table_reset(&host_events);
}

cl_event CL_API_CALL my_clCreateUserEvent(cl_context context, cl_int *ret)
{
    cl_event e = next->clCreateUserEvent(context, ret);
    if (e && table_put(&host_events, e, &(char){0}))
        gate_host_waits(1);
    return e;
}

static void host_event_over(cl_event e)
{
    if (table_remove(&host_events, e, NULL))
        gate_host_waits(-1);
}

cl_int CL_API_CALL my_clSetUserEventStatus(cl_event e, cl_int status)
{
    if (gate_active() && !gate_callback(0))
        gate_pass_all();
    host_event_over(e);
    return next->clSetUserEventStatus(e, status);
}

cl_int CL_API_CALL my_clReleaseEvent(cl_event e)
{
    cl_uint count = 0;
    if (host_events.root && table_get(&host_events, e, &(char){0}) &&
        next->clGetEventInfo(e, CL_EVENT_REFERENCE_COUNT, sizeof(count), &count, NULL) ==
            CL_SUCCESS &&
        count == 1)
        host_event_over(e);
    return next->clReleaseEvent(e);
}

struct callback {
    void(CL_CALLBACK *f)(cl_event, cl_int, void *);
    void *arg;
};

static void CL_CALLBACK event_called_back(cl_event e, cl_int status, void *arg)
{
    struct callback c = *(struct callback *)arg;
    free(arg);
    gate_callback(1);
    c.f(e, status, c.arg);
    gate_callback(-1);
}

cl_int CL_API_CALL my_clSetEventCallback(cl_event e, cl_int type,
                                         void(CL_CALLBACK *f)(cl_event, cl_int, void *), void *arg)
{
    struct callback *c = f ? malloc(sizeof(*c)) : NULL;
    if (!c)
        return next->clSetEventCallback(e, type, f, arg);
    *c = (struct callback){f, arg};
    cl_int r = next->clSetEventCallback(e, type, event_called_back, c);
    if (r != CL_SUCCESS)
        free(c);
    return r;
}
