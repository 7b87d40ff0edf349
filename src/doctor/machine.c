/* See machine.h. */
#include "doctor/machine.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "base/version.h"
#include "gpu/nvidia/nvml.h"
#include "gpu/registry.h"
#include "who/procfs.h"

#define CAP_SYS_PTRACE_BIT 19 /* linux/capability.h */

/* Whether a word consists of digits and one or two points. */
static bool is_version(const char *s, size_t n)
{
    unsigned points = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '.')
            points++;
        else if (!isdigit((unsigned char)s[i]))
            return false;
    }
    return n && isdigit((unsigned char)s[0]) && (points == 1 || points == 2);
}

int machine_parse_version(const char *text, char *buf, size_t size)
{
    while (*text && *text != '\n') {
        size_t n = strcspn(text, " \t\n");
        if (is_version(text, n) && n < size) {
            memcpy(buf, text, n);
            buf[n] = '\0';
            return 0;
        }
        text += n;
        text += strspn(text, " \t");
    }
    return -EPROTO;
}

static int machine_text(const char *path, char *buf, size_t size)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    if (!f)
        return -errno;
    buf[fread(buf, 1, size - 1, f)] = '\0';
    return 0;
}

const char *machine_container(void)
{
    if (getenv("APPTAINER_CONTAINER") || getenv("SINGULARITY_CONTAINER"))
        return "apptainer"; /* these containers have the machine's pids */
    if (proc_sees_all())
        return NULL;
    return access("/run/.containerenv", F_OK) == 0 ? "podman"
           : access("/.dockerenv", F_OK) == 0      ? "docker"
           : getenv("KUBERNETES_SERVICE_HOST")     ? "kubernetes"
                                                   : "unknown";
}

bool machine_root_outside(void)
{
    unsigned inside = 0, outside = 0;
    _cleanup_fclose_ FILE *f = fopen("/proc/self/uid_map", "re");
    return f && fscanf(f, "%u %u", &inside, &outside) == 2 && inside == 0 && outside != 0;
}

bool machine_has_library(const char *name)
{
    void *lib = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (lib)
        dlclose(lib);
    return lib != NULL;
}

int machine_driver_version(char *buf, size_t size)
{
    char text[512] = "";
    int r = machine_text("/proc/driver/nvidia/version", text, sizeof(text));
    return r < 0 ? r : machine_parse_version(text, buf, size);
}

int machine_describe(const char *device, char *gpu, size_t gpu_size, char *version, size_t size,
                     struct error *err)
{
    struct device_driver *driver;
    struct gpu_info info;
    bool soft = strcmp(device, "soft") == 0;
    int r = device_open(device, NULL, &driver, err);
    if (r < 0)
        return r;
    r = driver->ops->info(driver, 0, &info);
    device_close(driver);
    if (r < 0)
        return error_set(err, r, "cannot identify GPU 0: %s", strerror(-r));
    snprintf(gpu, gpu_size, "%s", info.name);
    if (soft)
        snprintf(version, size, "cede %s", build_version());
    else if (machine_driver_version(version, size) < 0)
        snprintf(version, size, "unknown");
    return 0;
}

const char *machine_device(char *where, size_t size)
{
    struct device_driver *driver;
    struct device_address address;
    where[0] = '\0';
    if (access("/dev/nvidiactl", F_OK) == 0)
        return "nvidia";
    if (access("/dev/kfd", F_OK) == 0)
        return "amd";
    if (device_open_list("soft", NULL, NULL, &driver, &address, NULL) < 0)
        return "nvidia";
    device_close(driver);
    snprintf(where, size, "%s", address.where);
    return "soft";
}

uint64_t machine_memory_mib(const char *device)
{
    struct device_driver *driver;
    struct gpu_info info = {.memory_bytes = 0};
    char text[4096];
    const char *at = NULL;
    if (device_open(device, NULL, &driver, NULL) < 0)
        return 0;
    int r = driver->ops->info(driver, 0, &info);
    device_close(driver);
    if (r == 0 && machine_text("/proc/meminfo", text, sizeof(text)) == 0)
        at = strstr(text, "MemAvailable:");
    if (!at)
        return 0;
    uint64_t host = strtoull(at + strlen("MemAvailable:"), NULL, 10) >> 10;
    return host < info.memory_bytes >> 20 ? host : info.memory_bytes >> 20;
}

int machine_pidfd_getfd(void)
{
    /* With an impossible descriptor a kernel that has the call answers EBADF. */
    long r = syscall(SYS_pidfd_getfd, -1, 0, 0);
    return r < 0 && errno != EBADF ? -errno : 0;
}

int machine_parse_firmware(const char *text, char *buf, size_t size)
{
    static const char key[] = "GPU Firmware:";
    const char *at = strstr(text, key);
    at = at ? at + strlen(key) + strspn(at + strlen(key), " \t") : "";
    size_t n = strcspn(at, " \t\n");
    bool none = n == 3 && strncmp(at, "N/A", n) == 0;
    if ((!none && !is_version(at, n)) || n >= size)
        return -EPROTO;
    snprintf(buf, size, "%.*s", (int)n, at);
    return 0;
}

int machine_firmware(char *buf, size_t size)
{
    glob_t g;
    char text[2048] = "";
    int r = glob("/proc/driver/nvidia/gpus/*/information", 0, NULL, &g) == 0
                ? machine_text(g.gl_pathv[0], text, sizeof(text))
                : -ENOENT;
    globfree(&g);
    return r < 0 ? r : machine_parse_firmware(text, buf, size);
}

bool machine_modules_open(void)
{
    char text[512] = "";
    return machine_text("/proc/driver/nvidia/version", text, sizeof(text)) == 0 &&
           strstr(text, "Open Kernel Module");
}

uint64_t machine_capabilities(void)
{
    char text[4096];
    if (machine_text("/proc/self/status", text, sizeof(text)) < 0)
        return 0;
    const char *line = strstr(text, "\nCapEff:");
    return line ? strtoull(line + 8, NULL, 16) : 0;
}

bool machine_can_ptrace_all(void)
{
    return machine_capabilities() >> CAP_SYS_PTRACE_BIT & 1;
}

int machine_yama_scope(void)
{
    char text[16];
    uint64_t v;
    if (machine_text("/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text)) < 0)
        return -1;
    text[strcspn(text, "\n")] = '\0';
    return parse_u64(text, 0, 3, &v) == 0 ? (int)v : -1;
}

pid_t machine_find_process(const char *comm)
{
    _cleanup_free_ pid_t *pids = NULL;
    size_t n;
    if (proc_list(&pids, &n) < 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        struct proc_stat st;
        if (proc_stat_read(pids[i], &st) == 0 && !proc_ended(&st) && strcmp(st.comm, comm) == 0)
            return pids[i];
    }
    return 0;
}

/* ---- NVML ---- */

enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2 };

static void close_nvml(struct nvml **n)
{
    nvml_close(*n);
}

void machine_ask_nvml(struct machine_nvml *out)
{
    _cleanup_(close_nvml) struct nvml *n = NULL;
    memset(out, 0, sizeof(*out));
    out->found = nvml_open(&n) == 0 && n->count(&out->gpus) == 0;
    for (unsigned i = 0; out->found && i < out->gpus; i++) {
        nvml_device gpu, instance;
        unsigned now = 0, pending, most;
        int mode;
        if (n->by_index(i, &gpu) != 0)
            continue;
        out->mig += n->mig_mode && n->mig_mode(gpu, &now, &pending) == 0 && now;
        most = nvml_instance_indices(n, gpu);
        for (unsigned k = 0; k < most; k++)
            out->instances += n->mig_by_index(gpu, k, &instance) == 0;
        out->exclusive +=
            n->compute_mode && n->compute_mode(gpu, &mode) == 0 && mode != NVML_COMPUTEMODE_DEFAULT;
    }
}

void machine_ask_clocks(struct machine_clocks *out)
{
    _cleanup_(close_nvml) struct nvml *n = NULL;
    nvml_device gpu;
    memset(out, 0, sizeof(*out));
    out->known = nvml_open(&n) == 0 && n->clock && n->clock_most && n->by_index(0, &gpu) == 0 &&
                 n->clock(gpu, NVML_CLOCK_SM, &out->sm_mhz) == 0 &&
                 n->clock_most(gpu, NVML_CLOCK_SM, &out->sm_max_mhz) == 0 &&
                 n->clock(gpu, NVML_CLOCK_MEMORY, &out->memory_mhz) == 0 &&
                 n->clock_most(gpu, NVML_CLOCK_MEMORY, &out->memory_max_mhz) == 0;
}
