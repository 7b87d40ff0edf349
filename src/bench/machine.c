/* See machine.h. */
#include "bench/machine.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/registry.h"
#include "lib/procfs.h"
#include "lib/util.h"

#define CAP_SYS_PTRACE_BIT 19 /* linux/capability.h */

/* A word of digits with one or two points in it. */
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

static int read_text(const char *path, char *buf, size_t size)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return -errno;
    buf[fread(buf, 1, size - 1, f)] = '\0';
    fclose(f);
    return 0;
}

int machine_driver_version(char *buf, size_t size)
{
    char text[512] = "";
    int r = read_text("/proc/driver/nvidia/version", text, sizeof(text));
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
        return error_set(err, r, "cannot tell what GPU 0 is: %s", strerror(-r));
    snprintf(gpu, gpu_size, "%s", info.name);
    if (soft || machine_driver_version(version, size) < 0)
        snprintf(version, size, "%s", soft ? "cede " CEDE_VERSION : "unknown");
    return 0;
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
    if (r == 0 && read_text("/proc/meminfo", text, sizeof(text)) == 0)
        at = strstr(text, "MemAvailable:");
    if (!at)
        return 0;
    uint64_t host = strtoull(at + strlen("MemAvailable:"), NULL, 10) >> 10;
    return host < info.memory_bytes >> 20 ? host : info.memory_bytes >> 20;
}

int machine_pidfd_getfd(void)
{
    /* A descriptor that cannot be: whoever knows the call says EBADF. */
    long r = syscall(SYS_pidfd_getfd, -1, 0, 0);
    return r < 0 && errno != EBADF ? -errno : 0;
}

bool machine_can_ptrace_all(void)
{
    char text[4096];
    if (read_text("/proc/self/status", text, sizeof(text)) < 0)
        return false;
    const char *line = strstr(text, "\nCapEff:");
    return line && (strtoull(line + 8, NULL, 16) >> CAP_SYS_PTRACE_BIT & 1);
}

int machine_yama_scope(void)
{
    char text[16];
    uint64_t v;
    if (read_text("/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text)) < 0)
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
        if (proc_stat_read(pids[i], &st) == 0 && strcmp(st.comm, comm) == 0)
            return pids[i];
    }
    return 0;
}

/* From NVML's reference: only what is asked here. */
enum { NVML_EXCLUSIVE_THREAD = 1, NVML_PROHIBITED = 2, NVML_EXCLUSIVE_PROCESS = 3 };
struct nvml_gpu;

void machine_ask_nvml(struct machine_nvml *out)
{
    memset(out, 0, sizeof(*out));
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return;
    int (*init)(void), (*end)(void), (*count)(unsigned *);
    int (*get)(unsigned, struct nvml_gpu **);
    int (*mig)(struct nvml_gpu *, unsigned *now, unsigned *pending);
    int (*mode)(struct nvml_gpu *, unsigned *);
#define SYMBOL(f, name) (*(void **)(void *)&(f) = dlsym(lib, name))
    if (SYMBOL(init, "nvmlInit_v2") && SYMBOL(end, "nvmlShutdown") &&
        SYMBOL(count, "nvmlDeviceGetCount_v2") && SYMBOL(get, "nvmlDeviceGetHandleByIndex_v2") &&
        SYMBOL(mig, "nvmlDeviceGetMigMode") && SYMBOL(mode, "nvmlDeviceGetComputeMode") &&
        init() == 0) {
        out->found = count(&out->gpus) == 0;
        for (unsigned i = 0; out->found && i < out->gpus; i++) {
            struct nvml_gpu *gpu;
            unsigned now, pending;
            if (get(i, &gpu) != 0)
                continue;
            out->mig += mig(gpu, &now, &pending) == 0 && now;
            out->exclusive +=
                mode(gpu, &now) == 0 && (now == NVML_EXCLUSIVE_THREAD || now == NVML_PROHIBITED ||
                                         now == NVML_EXCLUSIVE_PROCESS);
        }
        end();
    }
#undef SYMBOL
    dlclose(lib);
}
