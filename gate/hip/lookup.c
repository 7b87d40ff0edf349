/* Answering look-ups of HIP functions with the gate's.
 *
 * A program that is linked with libamdhip64 finds the gate's unversioned symbols first because the
 * gate is preloaded. One that looks functions up by handle would miss them, so dlsym() is
 * interposed as well: an answer out of libamdhip64 is replaced where there is a wrapper, anything
 * else is passed on by a jump, since RTLD_NEXT depends on who calls.
 *
 * This library is in every program that `cede run` starts, also those without HIP: it must not do
 * anything before a HIP function is called or looked up, and never ends or delays a program. */
#include "gate/hip/hip.h"

#include <dlfcn.h>
#include <string.h>

/* Called by dlsym() below. */
void *cede_hip_lookup(void *handle, const char *name);
void *cede_hip_dlsym(void);

/* What dlsym() should answer instead of the truth, or NULL. RTLD_NEXT's meaning depends on the
 * caller, and RTLD_DEFAULT finds the wrapper by itself. */
__attribute__((visibility("hidden"), used)) void *cede_hip_lookup(void *handle, const char *name)
{
    if (!hip_real_dlsym() || !name || !strstr(name, "hip") || handle == RTLD_NEXT ||
        handle == RTLD_DEFAULT)
        return NULL;
    void *wrapper = hip_wrapper(name);
    void *f = wrapper ? hip_real_dlsym()(handle, name) : NULL;
    Dl_info info;
    return f && dladdr(f, &info) && hip_is_library(info.dli_fname) ? wrapper : NULL;
}

__attribute__((visibility("hidden"), used)) void *cede_hip_dlsym(void)
{
    return (void *)hip_real_dlsym();
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
