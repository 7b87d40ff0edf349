/* Inside the OpenCL layer. From the top; none uses one above it:
 *   layer.c     the Khronos layer interface: which calls come here
 *   slice.c     kernels: whole, or cut into pieces
 *   enqueue.c   commands that are held, counted and timed
 *   queues.c    queues and what is not flushed
 *   programs.c  programs, kernels, and which may be cut
 *   events.c    host events and callbacks
 *   next.c      where calls go on
 * Each function here has the signature and, to the program, the behaviour of the call it stands
 * for. */
#ifndef CEDE_GATE_OPENCL_LAYER_H
#define CEDE_GATE_OPENCL_LAYER_H

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl_icd.h>
#include <stdbool.h>
#include <stdint.h>

/* The calls that the layer stands for, besides those that enqueue_fill() knows. */
#define LAYER_CALLS(X)                                                                             \
    /* queues.c */                                                                                 \
    X(clCreateCommandQueue)                                                                        \
    X(clCreateCommandQueueWithProperties)                                                          \
    X(clReleaseCommandQueue)                                                                       \
    X(clGetCommandQueueInfo)                                                                       \
    X(clGetEventProfilingInfo)                                                                     \
    X(clFlush)                                                                                     \
    X(clFinish)                                                                                    \
    /* programs.c */                                                                               \
    X(clCreateProgramWithSource)                                                                   \
    X(clCreateProgramWithBinary)                                                                   \
    X(clCreateProgramWithBuiltInKernels)                                                           \
    X(clCreateProgramWithIL)                                                                       \
    X(clLinkProgram)                                                                               \
    X(clBuildProgram)                                                                              \
    X(clReleaseProgram)                                                                            \
    X(clCreateKernel)                                                                              \
    X(clCreateKernelsInProgram)                                                                    \
    X(clCloneKernel)                                                                               \
    X(clReleaseKernel)                                                                             \
    /* events.c */                                                                                 \
    X(clCreateUserEvent)                                                                           \
    X(clSetUserEventStatus)                                                                        \
    X(clReleaseEvent)                                                                              \
    X(clSetEventCallback)                                                                          \
    /* slice.c */                                                                                  \
    X(clEnqueueNDRangeKernel)                                                                      \
    X(clEnqueueTask)                                                                               \
    /* layer.c */                                                                                  \
    X(clGetExtensionFunctionAddressForPlatform)                                                    \
    X(clGetExtensionFunctionAddress)
#define X(name) __typeof__(*((cl_icd_dispatch *)NULL)->name) my_##name;
LAYER_CALLS(X)
#undef X
/* In a function that fills the table d: the layer's call, if there is one below. */
#define TAKE(name) d->name = d->name ? my_##name : NULL;

extern const cl_icd_dispatch *next; /* what would have been called; set by layer.c */

/* ---- queues.c ---- */

struct queue {
    int device;             /* of gate.h; -1: not counted */
    uint32_t compute_units; /* of the device; at least 1 */
    bool in_order;
    bool offsets;               /* the device takes ranges that begin elsewhere (OpenCL 1.1) */
    bool profiled;              /* the program asked for it; the layer always does */
    bool timed;                 /* and it was given */
    cl_queue_properties *asked; /* as the program gave them; NULL: none */
};
bool queue_get(cl_command_queue q, struct queue *out);
/* It has a command that the device may not have. */
void queue_submitted(cl_command_queue q);
/* Unless CEDE_GATE_SLICE=0. */
bool kernels_may_be_cut(void);
/* Hands over all of them. */
void queues_flush(void *unused);
void queues_in_child(void);

/* ---- programs.c ---- */

/* The same for kernels that take the same time; 0: not known. */
uint64_t kernel_hash(cl_kernel k);
/* Proven, see proof.h. needs_local_size: only with a work-group size that the program gives. */
bool kernel_sliceable(cl_kernel k, bool *needs_local_size);
void programs_in_child(void);

/* ---- events.c ---- */

void events_in_child(void);

/* ---- enqueue.c ---- */

/* One command on its way. */
struct command {
    bool counted;
    struct queue q;
    cl_command_queue queue;
    uint64_t key, est_ns;
    double part;  /* of the work that the key stands for; 1: all */
    cl_event own; /* the layer's, where the program wants none */
};
#define GUESS_NS 1000000ULL /* of a command that was never seen */

/* Before: waits for its turn; *event is never NULL afterwards if it is counted. */
void command_begin(struct command *c, cl_event **event);
/* In ns, of what the key stands for; 0: not known. */
uint64_t command_known(uint64_t key);
/* After. Returns r. */
cl_int command_end(struct command *c, cl_event *event, cl_int r);

void enqueue_fill(cl_icd_dispatch *d);
void enqueue_in_child(void);
/* clEnqueueCommandBufferKHR of a platform: what a program gets instead. info: that platform's
 * clGetCommandBufferInfoKHR, or NULL. */
void *enqueue_command_buffer(void *real, void *info);

#endif
