/* See gates.h. Programs on a machine without such a device must not change. The OpenCL loader reads
 * its variable only in programs that use OpenCL. */
#include "cli/gates.h"

#include <errno.h>
#include <string.h>

#include "base/paths.h"
#include "base/util.h"

#define KFD_DEVICE "/dev/kfd" /* AMD GPUs */

static bool list_has(const char *list, const char *separators, const char *library)
{
    size_t n = strlen(library);
    for (const char *p = list + strspn(list, separators); *p; p += strspn(p, separators)) {
        size_t k = strcspn(p, separators);
        if (k == n && memcmp(p, library, n) == 0)
            return true;
        p += k;
    }
    return false;
}

int gates_list_add(const char *variable, const char *separators, const char *library)
{
    const char *before = getenv(variable);
    if (access(library, R_OK) < 0 || strpbrk(library, separators))
        return 0;
    if (!before || !*before)
        return setenv(variable, library, 1) < 0 ? -ENOMEM : 0;
    if (list_has(before, separators, library))
        return 0;
    _cleanup_free_ char *list = NULL;
    if (asprintf(&list, "%s:%s", library, before) < 0) {
        list = NULL;
        return -ENOMEM;
    }
    return setenv(variable, list, 1) < 0 ? -ENOMEM : 0;
}

bool gates_opencl(char path[static GATES_PATH])
{
    return cede_find("gate/opencl/libcede-opencl.so", "lib/cede/libcede-opencl.so",
                     GATE_DIR "/libcede-opencl.so", path, GATES_PATH);
}

static bool gates_hip(char path[static GATES_PATH])
{
    return cede_find("gate/hip/libcede-hip.so", "lib/cede/libcede-hip.so",
                     GATE_DIR "/libcede-hip.so", path, GATES_PATH);
}

int gates_enter(const char *socket)
{
    char gate[256], path[GATES_PATH];
    const char *slash = strrchr(socket, '/');
    snprintf(gate, sizeof(gate), "%.*s/gate", slash ? (int)(slash - socket) : 0, socket);
    if (!slash || access(gate, F_OK) < 0)
        return 0;
    int r = 0;
    if (gates_opencl(path))
        r = gates_list_add("OPENCL_LAYERS", ":", path);
    if (r == 0 && access(KFD_DEVICE, F_OK) == 0 && gates_hip(path))
        r = gates_list_add("LD_PRELOAD", ": \t\n", path);
    return r == 0 && setenv("CEDE_GATE", gate, 1) < 0 ? -ENOMEM : r;
}
