/* What a control group's path says of a workload: which systemd unit, container, Kubernetes pod or
 * Slurm job it is. Pure: reads no file. The path is foreign: whoever may make control groups
 * chooses names in it, so what is found is a claim, good for showing and for rules about programs
 * of the same owner. Thread-safe.
 *
 * Both drivers of container runtimes are known, systemd's and cgroupfs, of Docker, Podman, CRI-O
 * and containerd. A pod's Kubernetes namespace is not in the path. Sources: kubelet's
 * cgroup_manager_linux.go and pod_container_manager_linux.go, systemd.slice(5) and
 * systemd-escape(1), Slurm's cgroup/v1 and cgroup/v2 plugins. */
#ifndef CEDE_LIB_WORKLOAD_H
#define CEDE_LIB_WORKLOAD_H

#include <stdint.h>

#define WORKLOAD_UNIT      96
#define WORKLOAD_CONTAINER 65
#define WORKLOAD_POD       37
#define WORKLOAD_STEP      16

struct workload {
    char unit[WORKLOAD_UNIT];           /* innermost service or scope of systemd; "": none */
    char container[WORKLOAD_CONTAINER]; /* id, 64 hexadecimal digits; "": none */
    char pod[WORKLOAD_POD];             /* uid; "": none */
    uint64_t slurm_job;                 /* 0: none */
    char slurm_step[WORKLOAD_STEP];     /* "0", "batch", ...; "": none is known */
};

/* path: "/a/b", as in /proc/PID/cgroup; any bytes. The innermost of each kind counts, except that
 * a container's scope is no unit. */
void workload_read(const char *path, struct workload *out);

#endif
