/* Finds the channel groups of a process through its /dev/nvidiactl descriptors, and remembers them,
 * so that the next scan is cheap. Nothing of a process is changed here, and none of its descriptors
 * is kept after a call. */
#ifndef CEDE_GPU_NVIDIA_SCAN_H
#define CEDE_GPU_NVIDIA_SCAN_H

#include "gpu/nvidia/rm.h"
#include "gpu/ops.h"

#define NV_UUID_BYTES sizeof(((struct gpu_info *)0)->uuid)

/* A device that is an instance of a GPU in MIG mode. */
struct nv_part {
    char gpu[NV_UUID_BYTES]; /* the GPU's UUID; "": the device is a whole GPU */
    uint32_t gpu_instance, compute_instance;
};

/* The devices, in the order of their bus ids. Instances stand for a GPU in MIG mode. */
struct nv_gpus {
    struct gpu_info v[DEVICE_GPUS_MAX];
    struct nv_part part[DEVICE_GPUS_MAX];
    unsigned n;
    /* GPUs in MIG mode. One that had no instance when the driver was opened is a device itself, but
     * none of its processes is steered. */
    char divided[DEVICE_GPUS_MAX][NV_UUID_BYTES];
    unsigned ndivided;
    bool instances; /* some GPU has instances; only NVML knows which one */
};
/* Index of the GPU with this uuid, or else with this bus id ("" matches nothing). A GPU that was
 * not known is added at the end, because in a container the libraries may show fewer GPUs than
 * programs use. -ENOENT: both are "", the table is full, or the GPU's instances are the devices. */
int nv_gpu_index(struct nv_gpus *gpus, const char *uuid, const char *bus_id);
/* Index of the device with this uuid, or -ENOENT. */
int nv_device_by_uuid(const struct nv_gpus *gpus, const char *uuid);
/* Whether the GPU is in MIG mode. */
bool nv_gpu_divided(const struct nv_gpus *gpus, const char *uuid);

struct nv_device {
    uint32_t device, subdevice; /* handles; subdevice 0: none found */
    int gpu;                    /* index, or < 0 */
};

struct nv_client {
    uint32_t handle;
    int32_t fd;        /* descriptor number in the process */
    bool elsewhere;    /* the descriptor is inherited, the groups count as another process's */
    bool unlocated;    /* it has groups in an instance that is not known */
    uint32_t own_next; /* one past the last handle seen in RM's range */
    uint64_t discovered_ns;
    struct nv_device devices[DEVICE_GPUS_MAX];
    uint32_t ndevices;
    struct group_list groups;
    struct group_list fresh; /* not reported yet: see debounce() in objects.c */
    uint64_t fresh_ns;       /* since when they look the same */
};

/* The state of the search for a descriptor's clients: see search.c. */
enum nv_search {
    NV_SEARCH_UNKNOWN, /* nothing was asked yet */
    NV_SEARCH_NEAR,    /* down to the process's start */
    NV_SEARCH_FAR,     /* no client there: down to the oldest position */
    NV_SEARCH_CLUSTER, /* a client was found: around it */
    NV_SEARCH_NEWER,   /* down to the last search */
    NV_SEARCH_DONE,    /* all clients below `searched` are known */
};

struct nv_fd {
    int32_t number;
    enum nv_search state;
    uint64_t next, end; /* the next position to ask, and the lowest of this state */
    uint64_t top;       /* the first position of this search */
    uint64_t searched;
    uint32_t misses; /* since the last client, in CLUSTER */
};

struct nv_process {
    struct proc_id id;
    struct rm_fds fds;     /* as they were at listed_ns */
    struct rm_fds listing; /* an unfinished listing; .next 0: none */
    uint64_t listed_ns;
    bool dirty;     /* a control failed, so that everything has to be looked at again */
    bool looked;    /* a scan has been finished */
    bool searching; /* the last scan was not finished */
    struct nv_fd fd[RM_CTL_FDS_MAX];
    uint32_t nfd;
    struct nv_client *clients;
    size_t nclients;
};

#define NV_MARKS 32
struct nv_scanner {
    const struct rm_io *io;
    int ctl_fd; /* our /dev/nvidiactl; the driver closes it */
    struct nv_gpus *gpus;
    struct nv_process *procs;
    size_t nprocs, cap;
    uint32_t asked, looked;    /* questions about clients, and about objects, in this scan */
    uint32_t list_left;        /* descriptors that this scan may still list */
    struct pid_list mps;       /* clients of MPS servers, whose compute groups are shared */
    struct usage_list located; /* processes in instances; empty where no GPU is divided */
    /* The clients' counter, with its wraps counted, now and at some earlier times: a process cannot
     * own a client that is older than itself (unless it inherited the descriptor). */
    uint64_t position;
    struct {
        uint64_t ns, position;
    } marks[NV_MARKS];
    unsigned nmarks;
    uint64_t ticks_per_s;
};

/* search.c */
int nv_counter_update(struct nv_scanner *s, struct error *err);
bool nv_client_answers(struct nv_scanner *s, int fd, uint32_t client);
/* Finds unknown clients of one borrowed descriptor. 0, -ENOMEM, or -EAGAIN: the search goes on at
 * the next scan. */
int nv_search(struct nv_scanner *s, struct nv_process *p, int fd, struct nv_fd *x);

struct nv_look { /* one client, read through its borrowed descriptor */
    struct nv_scanner *s;
    struct nv_process *p;
    struct nv_client *c;
    int fd;
};
/* Finds all groups of the client again. `deep`: the process has opened or closed GPUs; `wait`: new
 * groups may be incomplete and wait before they are reported. 0 or -ENOMEM. */
int nv_client_discover(const struct nv_look *l, bool deep, bool wait);
/* Whether all known groups of the client exist and RM has named no new object. */
bool nv_client_unchanged(const struct nv_look *l);
/* Sets device_group.shared of the compute groups that have none yet. */
void nv_client_share(const struct nv_look *l);

int nv_scanner_init(struct nv_scanner *s, const struct rm_io *io, int ctl_fd, struct nv_gpus *gpus,
                    struct error *err);
void nv_scanner_free(struct nv_scanner *s);

/* Appends the groups of the process. See device_ops.scan. */
int nv_scan(struct nv_scanner *s, struct proc_id proc, struct group_list *out, struct error *err);
void nv_forget(struct nv_scanner *s, pid_t pid);

/* Makes the next scan look at everything of this process, because something has changed. */
void nv_distrust(struct nv_scanner *s, pid_t pid);

#endif
