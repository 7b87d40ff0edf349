/* A made-up device that refuses all that OpenCL lets a device refuse, does what it takes at once,
 * and counts what each work item did. */
#ifndef CEDE_TESTS_STRICT_OPENCL_H
#define CEDE_TESTS_STRICT_OPENCL_H

#include "fake.h"

#define STRICT_MAX 4096 /* work items of a group */
#define STRICT_X   256
#define STRICT_Y   8
#define STRICT_Z   8

struct strict_event {
    struct fake_event as_fake;
    bool failed;
};

extern struct strict {
    /* What differs between devices. */
    bool no_offsets;   /* OpenCL 1.0 */
    bool zero_is_fine; /* since OpenCL 2.1: nothing to do */
    bool remainders;   /* groups that are not full */
    unsigned refuses;  /* of the next calls, the one of this number, for want of memory; 0: none */
    cl_kernel four;    /* a kernel that requires groups of 4 */
    /* What was done. */
    unsigned char count[STRICT_Z][STRICT_Y][STRICT_X]; /* by work item, of the first ones */
    uint64_t items;
    unsigned calls;
} strict;

cl_int CL_API_CALL strict_nd(cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *offset,
                             const size_t *size, const size_t *local, cl_uint n,
                             const cl_event *wait, cl_event *event);

/* A launch of which nothing may be right. */
struct strict_launch {
    cl_command_queue q;
    cl_kernel k;
    cl_uint dims, n; /* n: events to wait for, as it says */
    size_t offset[5], size[5], local[5];
    bool offset_given, size_given, local_given, list_given, event_wanted;
    cl_event wait[2];
    unsigned refuses; /* which of its pieces the device has no memory for; 0: none */
};
void strict_seed(uint64_t seed);
/* The device's rules and a launch. queues: of a new device, and of one with OpenCL 1.0. */
void strict_choose(struct strict_launch *l, const cl_kernel kernels[3],
                   const cl_command_queue queues[2]);

#endif
