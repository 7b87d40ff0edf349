/* cede-load on AMD GPUs: what differs from the NVIDIA back end (cuda.h). The library is
 * libamdhip64, opened at run time, and the kernel is compiled at run time by HIP's compiler
 * (hiprtc) for the GPU that is there, so that nothing of ROCm is needed to build.
 *
 * This has never run on AMD hardware (docs/amd.md): numbers and arguments are from HIP 5.2's
 * headers, and tests/load runs it on a stand-in. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "base/symbols.h"
#include "bench/load/cuda.h"
#include "bench/load/kernels.h"

enum { ROCM_NEWEST = 9, ROCM_OLDEST = 5 }; /* major versions, which are the libraries' too */

typedef struct hiprtc *hiprtc_program;

/* Results are enum hiprtcResult, 0 for success. */
#define HIPRTC_CALLS(X)                                                                            \
    X(create, "hiprtcCreateProgram",                                                               \
      (hiprtc_program * p, const char *text, const char *name, int n, const char **headers,        \
       const char **names))                                                                        \
    X(compile, "hiprtcCompileProgram", (hiprtc_program p, int n, const char **options))            \
    X(log_size, "hiprtcGetProgramLogSize", (hiprtc_program p, size_t * bytes))                     \
    X(log, "hiprtcGetProgramLog", (hiprtc_program p, char *log))                                   \
    X(code_size, "hiprtcGetCodeSize", (hiprtc_program p, size_t * bytes))                          \
    X(code, "hiprtcGetCode", (hiprtc_program p, char *code))                                       \
    X(destroy, "hiprtcDestroyProgram", (hiprtc_program * p))

struct hip {
    struct cuda c;
    const char *(*error_name)(cu_result r), *(*error_text)(cu_result r);
    struct {
#define X(field, symbol, args) int(*field) args;
        HIPRTC_CALLS(X)
#undef X
    } rtc;
};

static const struct cuda_advice hip_advice[] = {
    {CU_OUT_OF_MEMORY, "the GPU's memory is taken: see rocm-smi --showpids for by whom"},
    {100, "no GPU is visible: check rocminfo, HIP_VISIBLE_DEVICES, and the right to open /dev/kfd "
          "(group render)"},
    {101, "no such GPU, or none that may be used: rocminfo lists them, --gpu counts from 0, and "
          "/dev/kfd takes a right (group render)"},
    {0, "see dmesg | grep amdgpu"},
};

static void hip_words(struct cuda *g, cu_result r, const char **name, const char **text)
{
    const struct hip *h = (struct hip *)g;
    *name = h->error_name(r);
    *text = h->error_text(r);
}

static void *hip_open_library(const char *name, int major)
{
    char file[32];
    snprintf(file, sizeof(file), "%s.so.%d", name, major);
    return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

/* The compiler is in a library of its own, and in old versions in libamdhip64. Neither is closed:
 * they leave threads and exit handlers behind. */
static int hip_load_library(struct cuda *g)
{
    static const struct symbol calls[] = {
#define X(field, nvidia, amd, args) {amd, offsetof(struct hip, c.cu.field)},
        CUDA_CALLS(X)
#undef X
            {"hipGetErrorName", offsetof(struct hip, error_name)},
        {"hipGetErrorString", offsetof(struct hip, error_text)},
    };
    static const struct symbol rtc_calls[] = {
#define X(field, symbol, args) {symbol, offsetof(struct hip, rtc.field)},
        HIPRTC_CALLS(X)
#undef X
    };
    void *lib = NULL;
    int major = ROCM_NEWEST + 1;
    while (!lib && major > ROCM_OLDEST)
        lib = hip_open_library("libamdhip64", --major);
    if (!lib)
        return g->s.failed = error_set(g->s.err, -ENODEV,
                                       "cannot open HIP's library: %s: install ROCm's HIP runtime "
                                       "(Debian: libamdhip64-5)",
                                       dlerror());
    void *rtc = hip_open_library("libhiprtc", major);
    const char *missing = symbols_find(lib, calls, ARRAY_SIZE(calls), g);
    if (!missing)
        missing = symbols_find(rtc ? rtc : lib, rtc_calls, ARRAY_SIZE(rtc_calls), g);
    return g->s.failed = missing ? error_set(g->s.err, -ENOTSUP,
                                             "libamdhip64.so.%d has no %s: cede-load was "
                                             "tried with ROCm 5",
                                             major, missing)
                                 : 0;
}

static void hip_say_log(struct hip *h, hiprtc_program p)
{
    size_t bytes = 0;
    _cleanup_free_ char *log = h->rtc.log_size(p, &bytes) == 0 ? calloc(1, bytes + 1) : NULL;
    if (log && h->rtc.log(p, log) == 0 && log[0]) {
        log[strcspn(log, "\n")] = '\0';
        error_prefix(h->c.s.err, h->c.s.failed, "%s", log);
    }
}

/* Without options it compiles for the current device. */
static void *hip_compile(struct cuda *g, const char *text)
{
    struct hip *h = (struct hip *)g;
    hiprtc_program p = NULL;
    void *code = NULL;
    size_t bytes = 0;
    if (g->s.failed)
        return NULL;
    int r = h->rtc.create(&p, text, "cede_spin.hip", 0, NULL, NULL);
    if (r == 0)
        r = h->rtc.compile(p, 0, NULL);
    if (r == 0)
        r = h->rtc.code_size(p, &bytes);
    if (r == 0 && (code = malloc(bytes)))
        r = h->rtc.code(p, code);
    if (r || !code) {
        g->s.failed = error_set(g->s.err, r ? -EIO : -ENOMEM,
                                "cannot compile a kernel: hiprtc reports %d: is ROCm's compiler "
                                "(libamd_comgr) of the same version?",
                                r);
        if (p)
            hip_say_log(h, p);
        free(code);
        code = NULL;
    }
    if (p)
        h->rtc.destroy(&p);
    return code;
}

static const struct cuda_kind hip_kind = {
    .size = sizeof(struct hip),
    .init = "initialise the HIP runtime (hipInit)",
    .sms_attribute = 63, /* hipDeviceAttributeMultiprocessorCount */
    .advice = hip_advice,
    .load_library = hip_load_library,
    .error_words = hip_words,
    .spin = spin_hip,
    .compile = hip_compile,
};

static int hip_open(const struct load_options *o, struct load_gpu **out, struct error *err)
{
    const char *no = o->memory          ? "--memory"
                     : o->work          ? "--work"
                     : o->hint_us       ? "--hint-us"
                     : o->contexts != 1 ? "--contexts"
                                        : NULL;
    return no ? error_set(err, -ENOTSUP, "there is no %s on HIP devices: leave it out", no)
              : cuda_open(&hip_kind, &load_hip, o, out, err);
}

const struct load_ops load_hip = {
    .name = "hip",
    .open = hip_open,
    .close = cuda_close,
    .submit = spin_submit,
    .wait = spin_wait,
    .verify = spin_verify,
};
