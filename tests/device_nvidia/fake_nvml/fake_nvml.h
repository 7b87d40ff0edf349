/* The vendor's management library in memory, as the driver asks it. What it shows is in this table,
 * which a test finds by the name fake_nvml in the library that it opens. */
#ifndef CEDE_TESTS_FAKE_NVML_H
#define CEDE_TESTS_FAKE_NVML_H

#include <stdbool.h>

struct fake_nvml_process {
    unsigned pid;
    unsigned long long bytes;
};

/* A GPU, or an instance of one. */
struct fake_nvml_gpu {
    struct fake_nvml_process running[128], mps[128];
    unsigned nrunning, nmps;
    struct fake_nvml_busy {
        unsigned pid, percent;
    } samples[32];
    unsigned nsamples, percent; /* of processes; of the whole device */
    bool no_rates;
    bool mig;         /* a GPU in MIG mode */
    int compute_mode; /* 3: for one process */
    /* Of instances: */
    bool there;
    const char *name, *uuid;
    unsigned gpu_instance, compute_instance, sms;
    unsigned long long mib;
    /* Counters: percent since the last sample, by NVML's number; a negative one answers an error.
     */
    double metrics[32];
    bool no_metrics;
    unsigned clock_mhz; /* 0: the highest, 2000 */
};

#define FAKE_NVML_GPUS      4
#define FAKE_NVML_INSTANCES 24
struct fake_nvml {
    struct fake_nvml_gpu gpus[FAKE_NVML_GPUS];
    struct fake_nvml_gpu instances[FAKE_NVML_GPUS][FAKE_NVML_INSTANCES];
    unsigned n;
    bool lists_all; /* an instance's list of processes is that of all the GPU's */
    bool grows;     /* the list of clients has one more whenever it is asked for */
    /* Faults. */
    int mps_status; /* the answer of the list of clients */
    /* What was asked. */
    unsigned opened, closed, asked_mps, asked_mode, samples;
};

#endif
