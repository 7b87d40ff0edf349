/* An OpenCL that tests make up: one device that does one command after another, each in a fixed
 * time, and writes down what it was given and when. */
#ifndef CEDE_TESTS_FAKE_OPENCL_H
#define CEDE_TESTS_FAKE_OPENCL_H

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl_layer.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_NVIDIA      ((cl_device_id)0x3000)
#define FAKE_PROCESSOR   ((cl_device_id)0x3008)
#define FAKE_PLATFORM(n) ((cl_platform_id)(uintptr_t)(0x4000 + 8 * (n)))

struct fake_event {
    bool done;
    uint64_t from, to;
    void(CL_CALLBACK *f[4])(cl_event, cl_int, void *);
    void *arg[4];
    unsigned nf;
};
struct fake_command {
    struct fake_event *e;
    uint64_t ns;
};

struct fake {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct fake_command v[4096];
    unsigned first, n;
    uint64_t ns; /* of each command, or for each of `items` work items */
    uint64_t items;
    unsigned most; /* queued at once, ever */
    unsigned long submitted, ended;
    size_t covered[256]; /* by kernels: how often each work item */
    unsigned kernels;
    cl_queue_properties made[16]; /* what the last queue was asked with */
    bool refuses_hints;
    bool old;             /* OpenCL 1.0 */
    uintptr_t next_queue; /* handle of the one that is made next */
    cl_uint queue_references;
    cl_command_queue flushed; /* last */
    void (*in_flush)(void), (*in_retain)(void);
    atomic_int retained; /* queues, by the layer */
};
extern struct fake fake;

/* Whose kernels may be cut, may not, and may with the local size that they require. */
extern const char *const fake_sources[3];

/* Fills the table and starts the device. */
void fake_begin(cl_icd_dispatch *d);

#endif
