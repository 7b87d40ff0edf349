/* Finding the real HIP functions, and answering look-ups with the gate's.
 *
 * A program that is linked with libamdhip64 finds the gate's unversioned symbols first because the
 * gate is preloaded. One that looks functions up by handle would miss them, so dlsym() is
 * interposed as well: an answer out of libamdhip64 is replaced where there is a wrapper, anything
 * else is passed on by a jump, since RTLD_NEXT depends on who calls.
 *
 * This library is in every program that `cede run` starts, also those without HIP: it does nothing
 * until a HIP function is called or looked up, and never ends or delays a program. */
#include "gate/hip/hip.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libamdhip64.so"

static void *(*real_dlsym)(void *handle, const char *name);

static void *find_dlsym(void)
{
    if (!__atomic_load_n(&real_dlsym, __ATOMIC_ACQUIRE)) {
        /* x86-64 before and since glibc 2.34, aarch64 before */
        static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.17"};
        void *f = NULL;
        for (size_t i = 0; !f && i < sizeof(versions) / sizeof(versions[0]); i++)
            f = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
        __atomic_store_n((void **)&real_dlsym, f, __ATOMIC_RELEASE);
    }
    return (void *)real_dlsym;
}

static bool is_hip_library(const char *path)
{
    const char *base = path ? strrchr(path, '/') : NULL;
    base = base ? base + 1 : path;
    return base && strncmp(base, LIBRARY, sizeof(LIBRARY) - 1) == 0;
}

static int look_at_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    char *path = arg;
    if (!is_hip_library(info->dlpi_name))
        return 0;
    snprintf(path, 4096, "%s", info->dlpi_name);
    return 1;
}

void *hip_real(const char *name, void **slot)
{
    void *f = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (f || !find_dlsym())
        return f;
    f = real_dlsym(RTLD_NEXT, name);
    if (!f) { /* loaded with RTLD_LOCAL */
        char path[4096] = "";
        void *handle = NULL;
        if (dl_iterate_phdr(look_at_object, path))
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
    static const struct {
        const char *name;
        void **slot;
    } names[] = {
        {"hipEventCreateWithFlags", (void **)&calls.event_create},
        {"hipEventRecord", (void **)&calls.event_record},
        {"hipEventQuery", (void **)&calls.event_query},
        {"hipEventElapsedTime", (void **)&calls.event_elapsed},
        {"hipStreamIsCapturing", (void **)&calls.is_capturing},
        {"hipPeekAtLastError", (void **)&calls.peek_error},
        {"hipGetLastError", (void **)&calls.get_error},
        {"hipGetDevice", (void **)&calls.get_device},
    };
    int s = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    if (s == 0) {
        s = 1;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            if (!hip_real(names[i].name, names[i].slot))
                s = 2;
        }
        __atomic_store_n(&state, s, __ATOMIC_RELEASE);
    }
    return s == 1 ? &calls : NULL;
}

/* What dlsym() should answer instead, or NULL. RTLD_NEXT's meaning depends on the caller, and
 * RTLD_DEFAULT finds the wrapper by itself. */
__attribute__((visibility("hidden"), used)) void *cede_hip_lookup(void *handle, const char *name)
{
    if (!find_dlsym() || !name || !strstr(name, "hip") || handle == RTLD_NEXT ||
        handle == RTLD_DEFAULT)
        return NULL;
    void *wrapper = hip_wrapper(name);
    void *f = wrapper ? real_dlsym(handle, name) : NULL;
    Dl_info info;
    return f && dladdr(f, &info) && is_hip_library(info.dli_fname) ? wrapper : NULL;
}

__attribute__((visibility("hidden"), used)) void *cede_hip_dlsym(void)
{
    return find_dlsym();
}

#if defined(__x86_64__)
/* The stack is kept 16-byte aligned for the calls: 8 (return address) + 2 * 8 + 8. */
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        "  endbr64\n"
        "  push %rdi\n"
        "  push %rsi\n"
        "  sub $8, %rsp\n"
        "  call cede_hip_lookup\n"
        "  add $8, %rsp\n"
        "  pop %rsi\n"
        "  pop %rdi\n"
        "  test %rax, %rax\n"
        "  jnz 1f\n"
        "  push %rdi\n"
        "  push %rsi\n"
        "  sub $8, %rsp\n"
        "  call cede_hip_dlsym\n"
        "  add $8, %rsp\n"
        "  pop %rsi\n"
        "  pop %rdi\n"
        "  test %rax, %rax\n"
        "  jz 1f\n"
        "  jmp *%rax\n"
        "1: ret\n"
        ".size dlsym, . - dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        "dlsym:\n"
        "  hint #34\n" /* bti c */
        "  stp x29, x30, [sp, #-32]!\n"
        "  mov x29, sp\n"
        "  stp x0, x1, [sp, #16]\n"
        "  bl cede_hip_lookup\n"
        "  cbnz x0, 1f\n"
        "  bl cede_hip_dlsym\n"
        "  mov x16, x0\n"
        "  ldp x0, x1, [sp, #16]\n"
        "  ldp x29, x30, [sp], #32\n"
        "  cbz x16, 2f\n"
        "  br x16\n"
        "1: ldp x29, x30, [sp], #32\n"
        "  ret\n"
        "2: mov x0, #0\n"
        "  ret\n"
        ".size dlsym, . - dlsym\n");
#endif
