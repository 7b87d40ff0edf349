/* A stand-in for libamdhip64.so.5: that for libcuda under HIP's names, with HIP's names of errors
 * and a compiler whose code is the text. FAKE_CUDA says what shall go wrong. */
#include "../fake_cuda/fake_cuda.c"
#include "bench/load/cuda.h"

#define X(field, nvidia, amd, args)                                                                \
    cu_result fake_##field args __asm__(amd) __attribute__((alias(nvidia)));
CUDA_CALLS(X)
#undef X

/* What the gate calls besides. */
CALL(hipEventElapsedTime, float *ms, const uint64_t *start, const uint64_t *stop)
{
    *ms = (float)((double)(*stop - *start) / 1e6);
    return OK;
}

CALL(hipStreamIsCapturing, void *s, int *status)
{
    *status = 0;
    return OK;
}

CALL(hipPeekAtLastError, void)
{
    return OK;
}

CALL(hipGetLastError, void)
{
    return OK;
}

CALL(hipGetDevice, int *d)
{
    *d = 0;
    return OK;
}

const char *hipGetErrorName(int r);
const char *hipGetErrorName(int r)
{
    return r == NO_GPU ? "hipErrorNoDevice" : "hipErrorUnknown";
}

const char *hipGetErrorString(int r);
const char *hipGetErrorString(int r)
{
    return "made up";
}

CALL(hiprtcCreateProgram, const char **p, const char *text, const char *name, int n,
     const char **headers, const char **names)
{
    *p = text;
    return n == 0 && !headers && !names ? OK : 4;
}

CALL(hiprtcCompileProgram, const char *p, int n, const char **options)
{
    return fault("compiler") || n || options ? 6 : OK;
}

CALL(hiprtcGetProgramLogSize, const char *p, size_t *bytes)
{
    *bytes = sizeof("first line\nsecond");
    return OK;
}

CALL(hiprtcGetProgramLog, const char *p, char *log)
{
    strcpy(log, "first line\nsecond");
    return OK;
}

CALL(hiprtcGetCodeSize, const char *p, size_t *bytes)
{
    *bytes = strlen(p) + 1;
    return OK;
}

CALL(hiprtcGetCode, const char *p, char *code)
{
    strcpy(code, p);
    return OK;
}

CALL(hiprtcDestroyProgram, const char **p)
{
    *p = NULL;
    return OK;
}
