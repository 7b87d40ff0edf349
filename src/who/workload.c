/* See workload.h. */
#include "who/workload.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

#define COMPONENT_MAX 256 /* NAME_MAX and a terminating zero */
#define ID_DIGITS     64U

static const char *after(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(text, prefix, n) == 0 ? text + n : NULL;
}

/* Removes the suffix. False: the text does not end so, or is nothing else. */
static bool strip(char *text, const char *suffix)
{
    size_t n = strlen(text), k = strlen(suffix);
    if (n <= k || strcmp(text + n - k, suffix) != 0)
        return false;
    text[n - k] = '\0';
    return true;
}

static bool read_id(const char *text, char out[static WORKLOAD_CONTAINER])
{
    if (strlen(text) != ID_DIGITS || strspn(text, "0123456789abcdef") != ID_DIGITS)
        return false;
    memcpy(out, text, ID_DIGITS + 1);
    return true;
}

/* The uid of a pod: 8-4-4-4-12 hexadecimal digits, whose dashes systemd's driver writes as
 * underscores; or, of a static pod, the 32 digits of its file's hash. */
static bool read_pod(const char *text, char out[static WORKLOAD_POD])
{
    static const char shape[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    const size_t n = strlen(text);
    const bool hash = n == 32;
    char uid[WORKLOAD_POD] = "";
    if (!hash && n != sizeof(shape) - 1)
        return false;
    for (size_t i = 0; i < n; i++) {
        const bool dash = !hash && shape[i] == '-';
        if (dash ? text[i] != '-' && text[i] != '_' : !isxdigit((unsigned char)text[i]))
            return false;
        uid[i] = dash ? '-' : text[i];
    }
    memcpy(out, uid, sizeof(uid));
    return true;
}

/* Reads "kubepods-burstable-podUID.slice", "kubepods-podUID.slice" or, `below` kubelet's directory,
 * "podUID". A cluster's name may precede "kubepods-". */
static bool is_pod(const char *name, bool below, char out[static WORKLOAD_POD])
{
    char text[COMPONENT_MAX];
    const char *uid = below ? after(name, "pod") : NULL;
    if (uid && read_pod(uid, out))
        return true;
    snprintf(text, sizeof(text), "%s", name);
    if (!strip(text, ".slice"))
        return false;
    const char *k = strstr(text, "kubepods-");
    uid = k ? strstr(k, "-pod") : NULL;
    return uid && read_pod(uid + strlen("-pod"), out);
}

/* Reads "docker-ID.scope", "cri-containerd-ID.scope", "crio-ID.scope", "libpod-ID.scope" or,
 * `below` the directory of a pod or a runtime, "ID". */
static bool is_container(const char *name, bool below, char out[static WORKLOAD_CONTAINER])
{
    static const char *const runtimes[] = {"cri-containerd-", "docker-", "crio-",   "libpod-",
                                           "containerd-",     "podman-", "nerdctl-"};
    char text[COMPONENT_MAX];
    snprintf(text, sizeof(text), "%s", name);
    const bool scope = strip(text, ".scope");
    if (!scope && below && read_id(text, out))
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(runtimes); i++) {
        const char *id = after(text, runtimes[i]);
        if (id && read_id(id, out)) /* CRI-O with cgroupfs has no .scope */
            return true;
    }
    return false;
}

static bool is_unit(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && dot != name && (strcmp(dot, ".service") == 0 || strcmp(dot, ".scope") == 0) &&
           !after(name, "libpod-conmon-") && !after(name, "crio-conmon-");
}

/* Reads "job_123". */
static bool is_slurm_job(const char *name, uint64_t *out)
{
    const char *number = after(name, "job_");
    return number && isdigit((unsigned char)*number) &&
           parse_u64(number, 1, UINT64_MAX >> 1, out) == 0;
}

void workload_read(const char *path, struct workload *out)
{
    bool kube = false, runtime = false, slurm = false;
    *out = (struct workload){.slurm_job = 0};
    while (*path) {
        char name[COMPONENT_MAX];
        path += strspn(path, "/");
        size_t n = strcspn(path, "/");
        snprintf(name, sizeof(name), "%.*s", (int)min_u64(n, sizeof(name)), path);
        path += n;
        if (!n || n >= sizeof(name)) /* no group of the kernel has a longer name */
            continue;
        const bool pod = is_pod(name, kube, out->pod);
        runtime |= pod; /* a runtime that uses cgroupfs has "ID" below it */
        if (pod || is_container(name, runtime, out->container))
            continue;
        kube |= strncmp(name, "kubepods", 8) == 0;
        runtime |= strcmp(name, "docker") == 0 || strcmp(name, "libpod_parent") == 0 ||
                   strcmp(name, "k8s.io") == 0 || strcmp(name, "moby") == 0;
        /* "/slurm/uid_0/job_1/step_0", "/slurm_NODE/...", "system.slice/slurmstepd.scope/job_1",
         * "system.slice/NODE_slurmstepd.scope/job_1" */
        slurm |= strcmp(name, "slurm") == 0 || after(name, "slurm_") ||
                 strcmp(name, "slurmstepd.scope") == 0 || strstr(name, "_slurmstepd.scope");
        if (slurm && is_slurm_job(name, &out->slurm_job))
            continue;
        const char *step = out->slurm_job ? after(name, "step_") : NULL;
        if (step && !out->slurm_step[0] && strlen(step) < sizeof(out->slurm_step))
            memcpy(out->slurm_step, step, strlen(step) + 1);
        if (is_unit(name) && n < sizeof(out->unit))
            memcpy(out->unit, name, n + 1);
    }
}
