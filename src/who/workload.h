/* Finds the systemd unit, container, Kubernetes pod or Slurm job of a workload in the path of its
 * control group. A user who may make control groups chooses their names, so the result is a claim,
 * good for display and for rules about programs of the same owner. Pure, thread-safe.
 *
 * Paths of both cgroup drivers, systemd's and cgroupfs, of Docker, Podman, CRI-O and containerd are
 * known. A pod's Kubernetes namespace is not in the path. Sources: kubelet's
 * cgroup_manager_linux.go and pod_container_manager_linux.go, systemd.slice(5) and
 * systemd-escape(1), Slurm's cgroup/v1 and cgroup/v2 plugins. */
#ifndef CEDE_WHO_WORKLOAD_H
#define CEDE_WHO_WORKLOAD_H

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

/* path: "/a/b", as in /proc/PID/cgroup; any bytes. The innermost of each kind counts, but a
 * container's scope is no unit. */
void workload_read(const char *path, struct workload *out);

#endif
