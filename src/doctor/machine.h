/* Properties and rights of this machine that matter for steering NVIDIA GPUs from outside. The
 * functions read /proc and ask NVML, and change nothing. */
#ifndef CEDE_DOCTOR_MACHINE_H
#define CEDE_DOCTOR_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

/* The kernel driver's version, e.g. "580.159.04". -ENOENT: none is loaded; -EPROTO. */
int machine_driver_version(char *buf, size_t size);
/* The same from the text of /proc/driver/nvidia/version. */
int machine_parse_version(const char *text, char *buf, size_t size);

/* The device that is here: "nvidia" or "amd" by its device files, else "soft" where a software GPU
 * answers, and where it listens, which is "" otherwise, else "nvidia". */
const char *machine_device(char *where, size_t size);

/* GPU 0 of a device ("nvidia", "soft"): its name, and its driver's version. */
int machine_describe(const char *device, char *gpu, size_t gpu_size, char *version, size_t size,
                     struct error *err);

/* Memory of GPU 0 of a device, or the host's free memory if that is less, MiB. 0: unknown. */
uint64_t machine_memory_mib(const char *device);

/* 0 if pidfd_getfd(2) works; -ENOSYS: kernel before 5.6; -EPERM: a filter forbids it. */
int machine_pidfd_getfd(void);

/* Firmware of the first GPU's system processor (GSP), "580.159.04" or "N/A". -ENOENT, -EPROTO. */
int machine_firmware(char *buf, size_t size);
/* The same from the text of /proc/driver/nvidia/gpus/BUS/information. */
int machine_parse_firmware(const char *text, char *buf, size_t size);
bool machine_modules_open(void); /* whether the open kernel modules are loaded */

uint64_t machine_capabilities(void);          /* the effective ones, a bit mask */
bool machine_can_ptrace_all(void);            /* CAP_SYS_PTRACE, as root has */
int machine_yama_scope(void);                 /* kernel.yama.ptrace_scope; -1: not there */
pid_t machine_find_process(const char *comm); /* 0: none */

/* The runtime of the container around this process, such as "podman", or "unknown". NULL: there is
 * no container, or one with the machine's pids, in which cede works as outside. */
const char *machine_container(void);
bool machine_root_outside(void); /* uid 0 here is another user's number outside */
bool machine_has_library(const char *name);

struct machine_nvml {
    bool found;
    unsigned gpus;
    unsigned mig;       /* GPUs with MIG on */
    unsigned instances; /* MIG instances of these GPUs */
    unsigned exclusive; /* GPUs whose compute mode admits one process, or none */
};
void machine_ask_nvml(struct machine_nvml *out);

/* Of GPU 0, at this moment. */
struct machine_clocks {
    bool known;
    unsigned sm_mhz, sm_max_mhz, memory_mhz, memory_max_mhz;
};
void machine_ask_clocks(struct machine_clocks *out);

#endif
