/* The vendor's management library in memory, as the driver asks it. What it shows is in this table,
 * which a test finds by the name fake_nvml in the library that it opens. */
#ifndef CEDE_TESTS_FAKE_NVML_H
#define CEDE_TESTS_FAKE_NVML_H

struct fake_nvml_process {
    unsigned pid;
    unsigned long long bytes;
};

struct fake_nvml_gpu {
    struct fake_nvml_process running[128], mps[128];
    unsigned nrunning, nmps;
};

struct fake_nvml {
    struct fake_nvml_gpu gpus[4];
    unsigned n;
    /* Faults. */
    int mps_status; /* the answer of the list of clients */
    /* What was asked. */
    unsigned asked_mps;
};

#endif
