/* The interface of the driver's resource manager (RM): the controls that cede uses, their parameter
 * blocks, and the functions that issue them.
 *
 * The table RM_CONTROLS is complete. A caller needs no privilege for them but the open file that
 * owns the client (only root gets the pids of other users in the trace of switches). Controls that
 * stop a channel for good, restart a runlist, make a group real-time, change the runlist's policy,
 * switch a group's scheduling off, or are marked privileged must never be added, because they
 * affect more than one program or can break it. The preemption mode can break a program too, so
 * that control is issued only where the program's owner has asked for it by name.
 *
 * Layouts and numbers: open kernel modules, tags 580.x, sdk/nvidia/inc (nvos.h, ctrl/...). */
#ifndef CEDE_GPU_NVIDIA_RM_H
#define CEDE_GPU_NVIDIA_RM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include "base/util.h"
#include "who/procfs.h"

#define RM_CTL_PATH  "/dev/nvidiactl"
#define RM_MAJOR     195U
#define RM_CTL_MINOR 255U

/* Handles. Those of clients are a counter of the whole machine, modulo 2^20. Objects that RM names
 * (such as a graphics context under every channel group) come from a counter of the client. The
 * range of objects that the compute library names was seen on 580.159.04 and is not guaranteed. */
#define RM_CLIENT_BASE  0xC1D00000U
#define RM_CLIENT_RANGE 0x100000U
#define RM_OWN_BASE     0xCAF00000U
#define RM_OWN_RANGE    0x80000U
#define RM_LIBRARY_BASE 0x5C000000U

enum rm_class {
    RM_CLASS_ROOT = 0x41, /* NV01_ROOT_CLIENT */
    RM_CLASS_DEVICE = 0x80,
    RM_CLASS_MEMORY_DEVICELESS = 0x90CE, /* system memory that the GPU does not see */
    RM_CLASS_EVENT_BUFFER = 0x90CD,
    RM_CLASS_SUBDEVICE = 0x2080,
    RM_CLASS_GPU_INSTANCE = 0xC637,     /* AMPERE_SMC_PARTITION_REF, child of a subdevice */
    RM_CLASS_COMPUTE_INSTANCE = 0xC638, /* AMPERE_SMC_EXEC_PARTITION_REF, child of that one */
    RM_CLASS_GROUP = 0xA06C,            /* KEPLER_CHANNEL_GROUP_A: a TSG */
    RM_CLASS_CONTEXT = 0x90,            /* KERNEL_GRAPHICS_CONTEXT, child of a TSG */
    RM_CLASS_CONTEXT_SHARE = 0x9067,    /* FERMI_CONTEXT_SHARE_A, child of a TSG */
};
/* Generations differ in the upper byte: 0xC86F is Hopper's channel. */
#define RM_IS_CHANNEL(class) (((class) & 0xFFU) == 0x6F && (class) > 0x6F)
#define RM_IS_COMPUTE(class) (((class) & 0xFFU) == 0xC0 && (class) > 0xFF)
#define RM_IS_COPY(class)    (((class) & 0xFFU) == 0xB5 && (class) > 0xFF)

struct rm_handle_info {
    uint32_t object;
    uint32_t index; /* RM_INFO_* */
    uint64_t result;
};
#define RM_INFO_PARENT 1U
#define RM_INFO_CLASS  2U

struct rm_timeslice {
    uint64_t us;
};

struct rm_group_info {
    uint32_t number; /* the group's number in the hardware's run list */
};

#define RM_DISABLE_MAX 64
struct rm_disable_channels {
    uint8_t disable;
    uint32_t count;
    uint8_t only_scheduling; /* 0: running work is preempted too */
    uint8_t rewind_put;      /* 0: queued work stays */
    uint64_t preempt_event;  /* kernel clients only: 0 */
    uint32_t client[RM_DISABLE_MAX];
    uint32_t channel[RM_DISABLE_MAX];
};

/* The preemption mode of the channel's compute group. On an H200 (driver 580.159.04, 2026-11-22)
 * the control changes a running program's mode in 0.5 to 0.9 ms, through any channel of the group;
 * programs begin with RM_PREEMPT_INSTRUCTION. With RM_PREEMPT_BLOCK_ENDS a program whose block does
 * not end within some 5 s while another program waits loses its channel (Xid 109; blocks of 3 s
 * survived, blocks of 12 s did not). Setting the other mode then does not save it: that call
 * returned after 2.5 s. */
struct rm_preemption_mode {
    uint32_t flags; /* RM_PREEMPT_COMPUTE: `compute` counts */
    uint32_t channel;
    uint32_t graphics, compute;
    uint32_t route_flags; /* 0: the channel determines the engine */
    uint64_t route;
};
#define RM_PREEMPT_COMPUTE     1U
#define RM_PREEMPT_BLOCK_ENDS  1U /* CTA */
#define RM_PREEMPT_INSTRUCTION 2U /* CILP */

struct rm_gid_info {
    uint32_t index;
    uint32_t flags; /* 0: text */
    uint32_t length;
    uint8_t data[256];
};

struct rm_instance_uuid {
    uint8_t bytes[16];
    char text[41]; /* "MIG-..." */
};

struct rm_gpu_id {
    uint32_t id;
};

struct rm_pci_info {
    uint32_t id;
    uint32_t domain;
    uint16_t bus, slot;
};

/* Parameters of an object to allocate: NV0080, NV_MEMORY, NV_EVENT_BUFFER. Zero: default. */
struct rm_device_params {
    uint32_t instance, share, target_client, target_device, flags;
    uint64_t va_size, va_start, va_limit;
    uint32_t va_mode;
};
#define RM_MEMORY_CACHED         (1U << 29) /* attr */
#define RM_MEMORY_USER_READ_ONLY (1U << 22) /* attr2 */
struct rm_memory_params {
    uint32_t owner, type, flags, width, height, pitch, attr, attr2, format, compression, zcull;
    uint64_t range_low, range_high, size, alignment, offset, limit, address;
    uint32_t tags, vaspace, internal, tag, node;
};
struct rm_event_buffer_params {
    uint64_t header_address, record_address;
    uint32_t record_size, record_count;
    uint64_t vardata_address;
    uint32_t vardata_size, records_threshold;
    uint64_t notification; /* 0: none, the reader polls */
    uint32_t vardata_threshold, subdevice, flags;
    uint32_t header_memory, record_memory, vardata_memory;
};
/* The memory of an event buffer. The kernel writes `put` and the records, user space only reads. */
struct rm_event_header {
    uint32_t get, put; /* equal: empty */
    uint64_t count, dropped, vardata_dropped;
};
struct rm_switch_record {
    uint16_t type, subtype; /* RM_RECORD_SWITCH */
    uint32_t vardata;
    uint8_t tag, vmid; /* RM_SWITCH_* */
    uint16_t seqno;    /* also counts dropped records */
    uint32_t context;  /* number of a channel of the group */
    uint32_t pid;      /* 0: of another user; UINT32_MAX: the kernel */
    uint16_t reserved;
    uint8_t gpu_instance, compute_instance;
    uint64_t ns; /* the GPU's clock */
};
#define RM_RECORD_SWITCH 2U
#define RM_SWITCH_START  6U /* the context has got the engine */
#define RM_SWITCH_END    7U /* the context's state is saved, it has lost the engine */

struct rm_bind_switches {
    uint32_t buffer, record_size;
    uint32_t detail, filter; /* for kernel clients */
    uint8_t all_users;
    uint32_t reason; /* out: of a refusal */
};
struct rm_enable_events {
    uint8_t enable;
    uint32_t flags; /* RM_EVENTS_* */
};
#define RM_EVENTS_KEEP_OLDEST 1U /* when full */
struct rm_update_get {
    uint32_t records, vardata;
};
struct rm_gpu_time {
    uint64_t ns; /* by the clock that records use */
};

/*   name                 control      parameters                 bytes   on, what for */
#define RM_CONTROLS(X)                                                                             \
    X(RM_SET_TIMESLICE, 0xA06C0103U, struct rm_timeslice, 8)              /* TSG */                \
    X(RM_GET_TIMESLICE, 0xA06C0104U, struct rm_timeslice, 8)              /* TSG */                \
    X(RM_GROUP_INFO, 0xA06C0106U, struct rm_group_info, 4)                /* TSG: its number */    \
    X(RM_DISABLE_CHANNELS, 0x2080110BU, struct rm_disable_channels, 536)  /* subdevice: suspend */ \
    X(RM_SET_PREEMPTION_MODE, 0x20801210U, struct rm_preemption_mode, 32) /* subdevice */          \
    X(RM_HANDLE_INFO, 0x00000D02U, struct rm_handle_info, 16)     /* client: class, parent */      \
    X(RM_GPU_UUID, 0x2080014AU, struct rm_gid_info, 268)          /* subdevice: which GPU */       \
    X(RM_INSTANCE_UUID, 0xC6380101U, struct rm_instance_uuid, 57) /* compute instance: which */    \
    X(RM_GPU_ID, 0x20800142U, struct rm_gpu_id, 4)                /* subdevice */                  \
    X(RM_GPU_PCI, 0x0000021BU, struct rm_pci_info, 12)            /* client: its PCI address */    \
    /* On objects of our own client: the trace of context switches. */                             \
    X(RM_BIND_SWITCHES, 0x20801238U, struct rm_bind_switches, 24) /* subdevice */                  \
    X(RM_GPU_TIME, 0x20800403U, struct rm_gpu_time, 8)            /* subdevice */                  \
    X(RM_ENABLE_EVENTS, 0x90CD0101U, struct rm_enable_events, 8)  /* event buffer */               \
    X(RM_UPDATE_GET, 0x90CD0102U, struct rm_update_get, 8)        /* event buffer */

enum rm_control_id {
#define X(name, cmd, type, bytes) name,
    RM_CONTROLS(X)
#undef X
        RM_CONTROL_COUNT
};

/* ioctl blocks */
struct rm_ioctl_control { /* NVOS54 */
    uint32_t client, object, cmd, flags;
    uint64_t params;
    uint32_t size, status;
};
struct rm_ioctl_alloc { /* NVOS21 */
    uint32_t root, parent, object, class;
    uint64_t params;
    uint32_t size, status;
};
struct rm_ioctl_free { /* NVOS00 */
    uint32_t root, parent, object, status;
};
struct rm_ioctl_map { /* NVOS33, and the descriptor that is to be mapped */
    uint32_t client, device, memory;
    uint64_t offset, length, address;
    uint32_t status, flags;
    int32_t fd;
};
#define RM_MAP_READ_ONLY 1U
#define RM_IOCTL_MAP     _IOWR('F', 0x4E, struct rm_ioctl_map)
#define RM_IOCTL_FREE    _IOWR('F', 0x29, struct rm_ioctl_free)
#define RM_IOCTL_CONTROL _IOWR('F', 0x2A, struct rm_ioctl_control)
#define RM_IOCTL_ALLOC   _IOWR('F', 0x2B, struct rm_ioctl_alloc)

#define RM_STATUS_INSUFFICIENT_PERMISSIONS 0x1BU
#define RM_STATUS_INVALID_CHANNEL          0x21U
#define RM_STATUS_INVALID_CLIENT           0x23U
#define RM_STATUS_INVALID_OBJECT           0x31U
#define RM_STATUS_INVALID_OBJECT_HANDLE    0x33U
#define RM_STATUS_OBJECT_NOT_FOUND         0x57U

/* A process's descriptors of the driver's device files. */
#define RM_CTL_FDS_MAX 32
struct rm_fds {
    int32_t ctl[RM_CTL_FDS_MAX]; /* numbers of its /dev/nvidiactl descriptors, rising */
    uint32_t nctl;
    uint32_t ngpu;     /* number of descriptors of /dev/nvidiaN, which each context adds to */
    uint64_t fd_count; /* of all descriptors; 0 where the kernel (< 6.2) does not report it */
    int64_t next;      /* position at which an unfinished listing goes on; else 0 */
};

/* The system calls that the driver makes, which tests replace. All return 0 (or a descriptor) or
 * -errno. */
struct rm_io {
    int (*open_ctl)(void);
    void (*close)(int fd);
    int (*ioctl)(int fd, unsigned long request, void *arg);
    /* Open a pidfd of exactly this process, and a copy of one of its descriptors of /dev/nvidiactl
     * (-EBADF if it is another file by now). */
    int (*pidfd)(struct proc_id proc);
    int (*getfd)(pid_t pid, int pidfd, int fd);
    /* Lists at most *left descriptors from io->next on (0: begins anew) and subtracts their number,
     * because a process can have a million. 0: the list is complete; -EAGAIN: there are more. */
    int (*fds)(pid_t pid, struct rm_fds *io, uint32_t *left);
    int (*fd_count)(pid_t pid, uint64_t *out);
    /* Opens a GPU, by its PCI address, which keeps it from being shut down. */
    int (*open_gpu)(const char *bus_id);
    /* Gets the release of the loaded driver, such as 580.159.04, or "unknown". */
    void (*release)(char *buf, size_t size);
    /* Maps, read-only, the memory that an RM_IOCTL_MAP has assigned to this descriptor. */
    int (*map)(int fd, size_t size, const void **out);
    void (*unmap)(const void *p, size_t size);
    /* Whether the kernel's pids are ours, which they are not in a pid namespace. */
    bool (*same_pids)(void);
    bool (*alive)(struct proc_id proc);
    int (*pids)(pid_t **pids, size_t *n); /* as proc_list() */
    uint64_t (*now_ns)(void);             /* CLOCK_BOOTTIME: comparable with proc_id.start_ticks */
};
extern const struct rm_io rm_io_system;

/* Issues one control, whose number and size are in the table. 0; -ENOENT: there is no such client,
 * object or channel behind this descriptor; -EPERM; -EIO: any other status; or ioctl's -errno. */
int rm_control(const struct rm_io *io, int fd, uint32_t client, uint32_t object,
               enum rm_control_id id, void *params, struct error *err);

/* Allocates an object of our client. With *client 0 and class RM_CLASS_ROOT it makes the client. 0,
 * -EIO or ioctl's -errno. Freeing the client, or closing its file, frees all of its objects. */
int rm_alloc(const struct rm_io *io, int fd, uint32_t *client, uint32_t parent, uint32_t object,
             uint32_t class, void *params, uint32_t size, struct error *err);
int rm_free(const struct rm_io *io, int fd, uint32_t client, uint32_t object);

/* Gets the class or the parent of an object. */
int rm_info(const struct rm_io *io, int fd, uint32_t client, uint32_t object, uint32_t index,
            uint32_t *out);

/* Gets the number of the next client, by allocating and freeing one on our /dev/nvidiactl. */
int rm_client_counter(const struct rm_io *io, int ctl_fd, uint32_t *index, struct error *err);

/* Writes why a descriptor could not be borrowed, with the right that is missing. Returns code. */
int rm_borrow_error(struct error *err, int code, pid_t pid);

#endif
