/* A driver without a device: groups in memory for processes that the test forks. Keeps a log of
 * what it was told, can be made to fail, and complains of what must never happen. */
#ifndef CEDE_TESTS_ENGINE_MOCK_DRIVER_H
#define CEDE_TESTS_ENGINE_MOCK_DRIVER_H

#include "gpu/ops.h"
#include "journal/journal.h"

#define MOCK_GROUPS 2048

struct mock_group {
    struct device_group dg; /* proc.pid 0: free */
    uint64_t timeslice_us;
    unsigned suspended; /* so many times: each needs its resumption */
    bool block_ends;    /* as set_preempt() was told */
    double busy;        /* what usage() tells of its process */
    uint32_t bursts;    /* what activity() tells each time, unless it is suspended all the time */
    uint64_t busy_ns;
    bool ran;
    uint64_t memory_bytes; /* 0: 1 MiB */
    double uses[GPU_PARTS],
        together; /* what counters() tells of it alone; its speed beside others */
};

struct mock_driver {
    struct device_driver base;
    struct mock_group g[MOCK_GROUPS];
    unsigned ngpus;
    const pid_t *idle; /* processes that have the device open and no group */
    size_t nidle;
    /* errno to answer, 0: work */
    int fail_timeslice, fail_suspend, fail_resume, fail_scan, fail_processes, fail_preempt,
        fail_counters;
    const uint64_t *clock; /* for counters */
    uint64_t counted_ns;
    double nonsense; /* all counters say, unless 0 */
    /* Calls with groups of several processes, or of this one, fail when half of them are done. */
    bool fail_several;
    pid_t fail_pid;
    struct journal **journal; /* that has to have a record of what is suspended; NULL: not looked */
    bool resumes_recorded;    /* of what is resumed, too */
    bool partial;             /* what fails is done nevertheless; suspending, for the first group */
    uint64_t scan_ns;         /* so long does a scan take */
    unsigned preempt_calls, timeslice_calls, suspend_calls, resume_calls, scans;
    unsigned run_groups; /* that calls were to suspend or resume */
    uint64_t control_ns; /* so long does a call for timeslices take */
    uint32_t gates;      /* bit mask of GPUs that are slots of a gate */
    bool has_usage, has_activity, incomplete, has_counters;
    unsigned activity_calls, usage_calls, switches_calls, memory_calls;
    bool has_switches, recording;
    struct switch_list record; /* what switches() tells next */
    bool no_swap;              /* in its caps */
    uint64_t free_bytes;       /* what memory_free() tells */
    bool free_unknown;
    uint32_t small; /* GPUs with half the memory, a bit map */
};

/* Each channel group of the contexts that there are. */
#define for_each_context(d, x)                                                                     \
    for (struct mock_group *x = (d)->g; x < (d)->g + MOCK_GROUPS; x++)                             \
        if (!x->dg.proc.pid) {                                                                     \
        } else

void mock_init(struct mock_driver *d, unsigned ngpus);
/* A context: one compute group and ncopy copy groups. Returns the index of the compute group. */
unsigned mock_context(struct mock_driver *d, pid_t pid, unsigned gpu, unsigned ncopy);
void mock_exit(struct mock_driver *d, pid_t pid);
/* Its compute groups are those of every process that has this number: a client of an MPS server. */
void mock_share(struct mock_driver *d, pid_t pid, uint32_t number);
struct mock_group *mock_compute(struct mock_driver *d, pid_t pid, unsigned gpu);

#endif
