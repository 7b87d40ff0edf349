/* See report.h. */
#include "cli/report.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "lib/procfs.h"
#include "lib/util.h"
#include "lib/version.h"
#include "testbed/machine.h"

bool report_may_show(const char *finding)
{
    /* Their texts are built of fixed words, numbers, versions and GPU models. */
    static const char *const shown[] = {"kernel",  "container",  "rights",  "ptrace_scope",
                                        "driver",  "nvml",       "mig",     "compute mode",
                                        "gpu",     "timeslices", "suspend", "latency",
                                        "preempt", "activity",   "libcede"};
    for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
        if (strcmp(finding, shown[i]) == 0)
            return true;
    return false;
}

/* PRETTY_NAME of /etc/os-release. */
static void report_distribution(char *buf, size_t size)
{
    char line[256];
    FILE *f = fopen("/etc/os-release", "re");
    snprintf(buf, size, "unknown");
    for (unsigned i = 0; f && i < 64 && fgets(line, sizeof(line), f); i++) {
        char *value = line + strlen("PRETTY_NAME=");
        if (strncmp(line, "PRETTY_NAME=", strlen("PRETTY_NAME=")) != 0)
            continue;
        value += *value == '"';
        value[strcspn(value, "\"\n")] = '\0';
        snprintf(buf, size, "%s", value);
        break;
    }
    if (f)
        fclose(f);
}

static const char *report_library(const char *name)
{
    void *lib = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (lib)
        dlclose(lib);
    return lib ? "found" : "not found";
}

json_t *report_machine(void)
{
    char distribution[128], driver[32], scope[16] = "none";
    struct utsname u;
    uname(&u);
    report_distribution(distribution, sizeof(distribution));
    if (machine_driver_version(driver, sizeof(driver)) < 0)
        snprintf(driver, sizeof(driver), "none");
    if (machine_yama_scope() >= 0)
        snprintf(scope, sizeof(scope), "%d", machine_yama_scope());
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "cede",
                     build_version(), "kernel", u.release, "machine", u.machine, "distribution",
                     distribution, "nvidia", driver, "ptrace_scope", scope, "cgroup",
                     access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0 ? "v2" : "v1 or none",
                     "cap_sys_ptrace", machine_can_ptrace_all() ? "yes" : "no", "mps",
                     machine_find_process("nvidia-cuda-mps") ? "runs" : "does not run", "libcuda",
                     report_library("libcuda.so.1"), "libnvidia_ml",
                     report_library("libnvidia-ml.so.1"));
}

void report_clean(json_t *measured)
{
    const char *key;
    json_t *part;
    json_object_foreach(measured, key, part)
    {
        const char *text = json_string_value(json_object_get(part, "error"));
        if (text && text[0])
            json_object_set_new(part, "error", json_string("not shown in a report"));
    }
}

void report_print(const json_t *report)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)report, key, value)
    {
        printf("%-18s %s\n", key, json_string_value(value));
    }
}
