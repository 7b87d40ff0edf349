/* AMD's compute driver (KFD) as its user space interface defines it: the few ioctls that this
 * driver issues, the process and topology trees in sysfs, and the system calls behind struct
 * kfd_io, which tests replace. Source: include/uapi/linux/kfd_ioctl.h and kfd_sysfs.h,
 * drivers/gpu/drm/amd/amdkfd. The types are declared here because distributions' headers are older
 * than the debug interface (1.13); tests/device_amd compares them with the header where it can.
 *
 * No other ioctl is ever issued. Of the upstream ones only the debug trap preempts queues of
 * another process. */
#ifndef CEDE_GPU_AMD_KFD_H
#define CEDE_GPU_AMD_KFD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include "base/util.h"
#include "gpu/ops.h"
#include "who/procfs.h"

#define KFD_PATH  "/dev/kfd"
#define KFD_SYSFS "/sys/class/kfd/kfd"

struct kfd_version {
    uint32_t major, minor;
};
#define KFD_DEBUG_MINOR 13U /* of major 1: the first with the debug trap */

enum kfd_trap_op {
    KFD_TRAP_ENABLE = 0,
    KFD_TRAP_DISABLE = 1, /* resumes all queues; the caller need not be the tracer */
    KFD_TRAP_SUSPEND_QUEUES = 6,
    KFD_TRAP_RESUME_QUEUES = 7,
    KFD_TRAP_QUEUE_SNAPSHOT = 13,
};

struct kfd_trap {
    uint32_t pid, op;
    union {
        struct {
            uint64_t exceptions; /* 0: faults still go to the program's runtime */
            uint64_t runtime;    /* struct kfd_runtime * */
            uint32_t runtime_size, event_fd;
        } enable;
        struct {
            uint64_t clear, queues; /* exceptions to clear; uint32_t * */
            uint32_t count, grace;  /* grace: 1000 GPU clocks */
        } suspend;
        struct {
            uint64_t queues;
            uint32_t count, pad;
        } resume;
        struct {
            uint64_t clear, entries; /* struct kfd_queue_entry * */
            uint32_t count, entry_size;
        } snapshot;
    };
};

struct kfd_runtime {
    uint64_t r_debug;
    uint32_t state, ttmp;
};
enum kfd_runtime_state {
    KFD_RUNTIME_DISABLED = 0, /* the program's runtime has not announced itself */
    KFD_RUNTIME_ENABLED = 1,
    KFD_RUNTIME_BUSY = 2, /* this GPU debugs one process at a time, at present another one */
    KFD_RUNTIME_ERROR = 3,
};

/* Flags that the kernel ors into the number of a queue that it did not suspend or resume. */
#define KFD_QUEUE_ERROR   (1U << 30)
#define KFD_QUEUE_INVALID (1U << 31) /* gone, going, or new (KFD_EXCEPTION_NEW not cleared) */
#define KFD_QUEUE_NUMBER  (~(KFD_QUEUE_ERROR | KFD_QUEUE_INVALID))

#define KFD_EXCEPTION_NEW (1ULL << 30) /* code 31, EC_QUEUE_NEW */

struct kfd_queue_entry {
    uint64_t exceptions, ring, write_pointer, read_pointer, save_area;
    uint32_t number, gpu_id, ring_size, type, save_area_size, reserved;
};

#define KFD_IOC_VERSION _IOR('K', 0x01, struct kfd_version)
#define KFD_IOC_TRAP    _IOWR('K', 0x26, struct kfd_trap)

/* From inside a process, for its own queues: 0 % takes a queue off the hardware. */
struct kfd_update_queue {
    uint64_t ring;
    uint32_t number, ring_size, percentage, priority;
};
#define KFD_IOC_UPDATE_QUEUE _IOW('K', 0x07, struct kfd_update_queue)

/* "capability" of a node */
#define KFD_CAP_TRAP_DEBUG     0x00008000U
#define KFD_CAP_DEBUG_FIRMWARE 0x20000000U

/* "type" of a queue in sysfs: the kernel's own numbers, not those of the ioctl */
enum kfd_queue_type { KFD_COMPUTE = 0, KFD_SDMA = 1, KFD_HIQ = 2, KFD_DIQ = 3, KFD_SDMA_XGMI = 4 };

struct kfd_io {
    const char *sysfs;                                  /* KFD_SYSFS */
    int (*open)(void);                                  /* descriptor, or -errno */
    int (*ioctl)(int fd, unsigned long cmd, void *arg); /* >= 0, or -errno */
    void (*close)(int fd);
    /* Calls fn while the caller traces the process's first thread without stopping it, and returns
     * its result. -EPERM: no right, or another process traces it; -ESRCH. */
    int (*traced)(struct proc_id proc, int (*fn)(void *arg), void *arg);
    bool (*alive)(struct proc_id proc);
};
extern const struct kfd_io kfd_io_system;

/* The process that traces this one; 0: none, or not known. */
pid_t kfd_tracer(pid_t pid);

/* ---- sysfs.c ---- */

struct kfd_gpu {
    struct gpu_info info; /* caps: those that the topology shows */
    uint32_t gpu_id;
};
struct kfd_gpus {
    unsigned n;
    struct kfd_gpu v[DEVICE_GPUS_MAX];
};

/* Parses a node's lines "key value\n", without unknown keys and malformed lines. */
void kfd_parse_node(const char *text, struct kfd_gpu *out);
/* Parses one decimal number, which only a newline may follow: 0 or -EINVAL. */
int kfd_parse_number(const char *text, uint64_t *out);

void kfd_gpus_read(const char *sysfs, struct kfd_gpus *out);
/* Lists the processes that have at least one queue. 0 or -errno. */
int kfd_processes(const char *sysfs, struct pid_list *out);

#define KFD_QUEUES_MAX 1024 /* of one process: the kernel's limit */
struct kfd_queue {
    uint32_t number, gpu;
    bool copies; /* else it computes */
};
struct kfd_queues {
    uint32_t n;
    struct kfd_queue v[KFD_QUEUES_MAX];
};
/* Lists a process's queues in ascending order. 0 or -errno. */
int kfd_queues(const char *sysfs, const struct kfd_gpus *gpus, pid_t pid, struct kfd_queues *out);
uint64_t kfd_memory(const char *sysfs, pid_t pid, uint32_t gpu_id);

/* ---- amd.c ---- */

int kfd_driver_open(const struct kfd_io *io, struct device_driver **out, struct error *err);

#endif
