/* Finding the library's own functions, behind the gate's of the same names. Nothing is looked for
 * until a HIP function is called or looked up. */
#include "gate/hip/hip.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libamdhip64.so"

static hip_dlsym real_dlsym;

hip_dlsym hip_real_dlsym(void)
{
    if (!__atomic_load_n(&real_dlsym, __ATOMIC_ACQUIRE)) {
        /* x86-64 before and since glibc 2.34, aarch64 before */
        static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.17"};
        void *f = NULL;
        for (size_t i = 0; !f && i < sizeof(versions) / sizeof(versions[0]); i++)
            f = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
        __atomic_store_n((void **)&real_dlsym, f, __ATOMIC_RELEASE);
    }
    return real_dlsym;
}

bool hip_is_library(const char *path)
{
    const char *base = path ? strrchr(path, '/') : NULL;
    base = base ? base + 1 : path;
    return base && strncmp(base, LIBRARY, sizeof(LIBRARY) - 1) == 0;
}

static int find_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    char *path = arg;
    if (!hip_is_library(info->dlpi_name))
        return 0;
    snprintf(path, 4096, "%s", info->dlpi_name);
    return 1;
}

void *hip_real(const char *name, void **slot)
{
    void *f = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (f || !hip_real_dlsym())
        return f;
    f = real_dlsym(RTLD_NEXT, name);
    if (!f) { /* loaded with RTLD_LOCAL */
        char path[4096] = "";
        void *handle = NULL;
        if (dl_iterate_phdr(find_library, path))
            handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
        if (handle) {
            f = real_dlsym(handle, name);
            dlclose(handle);
        }
    }
    __atomic_store_n(slot, f, __ATOMIC_RELEASE);
    return f;
}

const struct hip_calls *hip_calls(void)
{
    static struct hip_calls calls;
    static int state; /* 0: not looked, 1: there, 2: not */
    int s = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    if (s == 0) {
        s = 1;
#define X(field, symbol, params)                                                                   \
    if (!hip_real(symbol, (void **)&calls.field))                                                  \
        s = 2;
        HIP_CALLS(X)
#undef X
        __atomic_store_n(&state, s, __ATOMIC_RELEASE);
    }
    return s == 1 ? &calls : NULL;
}
