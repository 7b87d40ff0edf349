/* A resource manager in memory, with processes, for tests of the nvidia driver without a GPU. It
 * answers as an H200 with driver 580.159.04 was seen to answer, and counts what it is asked.
 * Programming errors of a test abort; nothing here touches the real system. */
#ifndef CEDE_TESTS_FAKE_RM_H
#define CEDE_TESTS_FAKE_RM_H

#include "gpu/nvidia/nvidia.h"
#include "gpu/ops.h"

struct fake_object {
    uint32_t handle, class, parent;
    uint64_t timeslice_us; /* of groups */
    uint32_t number;       /* of groups: unique but for the clients of one MPS server */
    unsigned gpu;          /* of devices and subdevices */
    const char *uuid;      /* of subscriptions to a compute instance */
    unsigned disabled;     /* so many times; of channels */
    bool block_ends;       /* of groups: preempted there */
};

struct fake_client {
    uint32_t handle;
    int file; /* the open file it answers on */
    uint32_t next_library, next_own;
    struct fake_object *objects;
    size_t nobjects, cap;
    uint32_t hints[65536]; /* by handle: 1 + where its object probably is; 0: it has none */
};

/* Context-switch trace of one reader: its client's objects, by handle, and its memory. */
struct fake_trace {
    uint32_t client; /* 0: free */
    unsigned gpu;
    uint32_t device, subdevice, memory[2], buffer;
    size_t bytes[2];
    void *pages[2];
    bool mapped[2];
    uint32_t count;
    bool bound, enabled;
    uint16_t seqno;
};

struct fake_process {
    struct proc_id id;
    bool alive;
    struct fake_fd {
        int number, file; /* file < 0: not the driver's */
    } fds[64];
    size_t nfds;
    uint64_t plain; /* descriptors besides, of other files */
    uint32_t ngpu;
    bool forbidden;
    int full_at; /* of this number no copy is had: our descriptors are used up; 0: none */
};

struct fake_rm {
    uint64_t now_ns;
    uint64_t gpu_clock_ns; /* the GPU's clock, minus now_ns; 0: it cannot be read */
    uint32_t counter;      /* clients ever allocated */
    int next_file, next_fd;
    struct fake_client *clients;
    size_t nclients, cap;
    struct fake_process procs[64];
    size_t nprocs;
    struct fake_open { /* our own descriptors */
        int fd, file;  /* file < 0: pidfd of procs[-file - 1] */
    } open[32];
    size_t nopen;
    unsigned gpus;
    struct fake_trace traces[4];
    struct { /* file prepared for mapping */
        int file;
        void *pages;
    } maps[4];
    uint32_t groups; /* ever made */
    bool nvml;       /* the driver may use the vendor's library */
    bool instances;  /* the driver shows that some GPU has MIG instances */
    bool other_pids; /* we are in a pid namespace */
    unsigned gpus_open;
    bool no_own_names;   /* an RM that names nothing itself */
    const char *release; /* of the driver; NULL: "" */
    bool unloaded;       /* there is no driver: nothing can be opened */
    bool old_kernel;     /* does not tell the number of descriptors */

    /* Faults. */
    uint32_t fail_cmd, fail_status; /* this control answers so */
    uint32_t fail_class;            /* this class cannot be allocated */
    bool own_lists;                 /* lists are refused from another client's first channel on */
    unsigned disables_max;          /* > 0: disabling after so many is refused for want of rights */
    int die_after;                  /* > 0: after so many ioctls procs[die_who] is gone */
    size_t die_who;

    /* What was asked. */
    unsigned ioctls, disables, max_disabled, allocs, listed, counted, numbers, preempts;
};

void fake_init(struct fake_rm *rm, unsigned gpus);
void fake_free(struct fake_rm *rm);
extern struct fake_rm *fake_machine; /* what the driver calls: that of the last fake_init() */
/* The driver on it; `known` of its GPUs are told beforehand. */
struct device_driver *fake_driver(struct fake_rm *rm, unsigned known);

struct fake_process *fake_process(struct fake_rm *rm);
/* One more open descriptor, of that file; file < 0: not the driver's. */
void fake_fd(struct fake_process *p, int number, int file);
/* A new open /dev/nvidiactl with a client; returns the client's handle. */
uint32_t fake_client(struct fake_rm *rm, struct fake_process *p);
/* Devices and subdevice of a GPU, as cuInit makes them; returns the device's handle. */
uint32_t fake_device(struct fake_rm *rm, uint32_t client, unsigned gpu);
/* The device's subscription to a MIG instance, named by RM itself or by the library. */
void fake_subscribe(struct fake_rm *rm, uint32_t client, uint32_t device, const char *uuid,
                    bool own);
/* A context: 1 compute group of 8 channels and 3 copy groups of 4. Returns its compute group. */
uint32_t fake_context(struct fake_rm *rm, struct fake_process *p, uint32_t client, uint32_t device);
void fake_context_free(struct fake_rm *rm, struct fake_process *p, uint32_t client, uint32_t group);
/* `n` allocations, the last `keep` of which stay. */
void fake_malloc(struct fake_rm *rm, uint32_t client, uint32_t device, unsigned n, unsigned keep);
struct fake_process *fake_fork(struct fake_rm *rm, const struct fake_process *parent);
/* Process gone; its clients too, unless another process has the file open. */
void fake_exit(struct fake_rm *rm, struct fake_process *p);
void fake_close(struct fake_rm *rm, struct fake_process *p, int number);

/* The engine's switch as every reader of that GPU's trace is told it. */
void fake_switch(struct fake_rm *rm, unsigned gpu, uint8_t tag, uint32_t pid, uint64_t ns);
unsigned fake_traces(const struct fake_rm *rm); /* bound and enabled */

struct fake_client *fake_client_at(struct fake_rm *rm, uint32_t handle);
struct fake_object *fake_object_at(struct fake_rm *rm, uint32_t client, uint32_t handle);

#endif
