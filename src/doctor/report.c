/* See report.h. */
#include "doctor/report.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/json_text.h"
#include "base/util.h"
#include "base/version.h"
#include "doctor/machine.h"

bool report_may_show(const char *finding)
{
    /* The texts of these consist of fixed words, numbers, versions and GPU models. */
    static const char *const shown[] = {"kernel",  "container",  "rights",  "ptrace_scope",
                                        "driver",  "nvml",       "mig",     "compute mode",
                                        "gpu",     "timeslices", "suspend", "latency",
                                        "preempt", "activity",   "libcede", "check"};
    for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
        if (strcmp(finding, shown[i]) == 0)
            return true;
    return false;
}

/* PRETTY_NAME of /etc/os-release. */
static void report_distribution(char *buf, size_t size)
{
    char line[256];
    _cleanup_fclose_ FILE *f = fopen("/etc/os-release", "re");
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
}

static void report_modes(char *mig, char *compute, size_t size)
{
    struct machine_nvml n;
    machine_ask_nvml(&n);
    snprintf(mig, size, n.found ? "off" : "unknown");
    snprintf(compute, size, n.found ? "default" : "unknown");
    if (n.mig)
        snprintf(mig, size, "on for %u of %u GPUs, %u instances", n.mig, n.gpus, n.instances);
    if (n.exclusive)
        snprintf(compute, size, "exclusive or prohibited on %u of %u GPUs", n.exclusive, n.gpus);
}

static const char *report_library(const char *name)
{
    return machine_has_library(name) ? "found" : "not found";
}

json_t *report_machine(void)
{
    char distribution[128], driver[32], firmware[32], scope[16] = "none", mig[64], compute[64],
                                                      capabilities[24];
    struct utsname u;
    uname(&u);
    report_distribution(distribution, sizeof(distribution));
    report_modes(mig, compute, sizeof(mig));
    if (machine_driver_version(driver, sizeof(driver)) < 0)
        snprintf(driver, sizeof(driver), "none");
    if (machine_firmware(firmware, sizeof(firmware)) < 0)
        snprintf(firmware, sizeof(firmware), "unknown");
    if (machine_yama_scope() >= 0)
        snprintf(scope, sizeof(scope), "%d", machine_yama_scope());
    snprintf(capabilities, sizeof(capabilities), "%016llx",
             (unsigned long long)machine_capabilities());
    const struct {
        const char *key, *value;
    } all[] = {
        {"cede", build_version()},
        {"kernel", u.release},
        {"machine", u.machine},
        {"distribution", distribution},
        {"container", machine_container() ? machine_container() : "no"},
        {"nvidia", driver},
        {"nvidia_modules", strcmp(driver, "none") == 0 ? "none"
                           : machine_modules_open()    ? "open"
                                                       : "proprietary"},
        {"gsp_firmware", firmware},
        {"mig", mig},
        {"compute_mode", compute},
        {"mps", machine_find_process("nvidia-cuda-mps") ? "runs" : "does not run"},
        {"libcuda", report_library("libcuda.so.1")},
        {"libnvidia_ml", report_library("libnvidia-ml.so.1")},
        {"ptrace_scope", scope},
        {"cap_sys_ptrace", machine_can_ptrace_all() ? "yes" : "no"},
        {"capabilities", capabilities},
        {"cgroup", access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0 ? "v2" : "v1 or none"},
    };
    json_t *o = json_object();
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        json_object_set_new(o, all[i].key, json_text(all[i].value));
    return o;
}

void report_clean(json_t *measured)
{
    const char *key;
    json_t *part;
    json_object_foreach (measured, key, part) {
        const char *text = json_string_value(json_object_get(part, "error"));
        if (text && text[0])
            json_object_set_new(part, "error", json_string("not shown in a report"));
    }
}

void report_print(const json_t *report)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)report, key, value) {
        printf("%-18s %s\n", key, json_string_value(value));
    }
}
