/* Inside the OpenCL layer.
 *   layer.c    the Khronos layer interface: which calls come here
 *   objects.c  queues, programs, kernels, host events: what is known of each
 *   enqueue.c  commands that are held, counted and timed
 *   slice.c    kernels: whole, or cut into pieces
 * Each function here has the signature and, to the program, the behaviour of the call it stands
 * for; `next` is whatever would have been called. */
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

extern const cl_icd_dispatch *next;

/* ---- objects.c ---- */

struct queue {
    int device;             /* of gate.h; -1: not counted */
    uint32_t compute_units; /* of the device; at least 1 */
    bool in_order;
    bool profiled;              /* the program asked for it; we always do */
    bool timed;                 /* and were given it */
    cl_queue_properties *asked; /* as the program gave them; NULL: none */
};
bool queue_get(cl_command_queue q, struct queue *out);

struct kernel {
    uint64_t name;         /* a hash */
    bool sliceable;        /* proven, see proof.h */
    bool needs_local_size; /* then only with the work-group size that the program gives */
};
bool kernel_get(cl_kernel k, struct kernel *out);

/* This thread runs a callback of the program, which the device may wait for. */
bool in_callback(void);

void objects_fill(cl_icd_dispatch *d);

/* ---- enqueue.c ---- */

/* One command on its way. */
struct command {
    bool counted;
    struct queue q;
    cl_command_queue queue;
    uint64_t key, est_ns;
    double part;  /* of the work that the key stands for; 1: all */
    cl_event own; /* ours, where the program wants none */
};
#define GUESS_NS 1000000ULL /* of a command that was never seen */

/* Before: waits for its turn; *event is never NULL afterwards if it is counted. */
void command_begin(struct command *c, cl_event **event);
/* In ns, of what the key stands for; 0: not known. */
uint64_t command_known(uint64_t key);
/* After. Returns r. */
cl_int command_end(struct command *c, cl_event *event, cl_int r);

void enqueue_fill(cl_icd_dispatch *d);
void enqueue_forget(cl_command_queue q);
/* Extension calls that a program asks for by name; NULL: it is none of ours. real: what it would
 * have got. */
void *enqueue_extension(const char *name, void *real);

/* ---- slice.c ---- */

void slice_fill(cl_icd_dispatch *d);

#endif
