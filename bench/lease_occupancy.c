/* See lease_work.h. Kernels with as many registers and as much static shared memory as wanted are
 * written as PTX, one at a time, and loaded; the driver and libcede then both say how many blocks
 * of each an SM holds, for many block sizes and amounts of dynamic shared memory. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "bench/graph_rig.h"
#include "bench/lease_work.h"
#include "libcede/gpus.h"

enum { FUNCTION_SHARED = 1, FUNCTION_REGISTERS = 4, FUNCTION_DYNAMIC = 8 };
enum { SHOWN = 20, TEXT = 65536 };

static const unsigned values[] = {1, 12, 24, 40, 56, 80, 110, 160, 235}; /* kept in registers */
static const unsigned fixed[] = {0, 1000, 8192, 40000};
static const unsigned sizes[] = {32, 64, 96, 128, 192, 256, 320, 512, 768, 1024};
static const unsigned dynamic[] = {0, 1, 1000, 4096, 16384, 32768, 65536, 100000, 200000};

static struct {
    int (*load)(void **module, const void *image);
    int (*unload)(void *module);
    int (*function)(void **f, void *module, const char *name);
    int (*get)(int *v, int attribute, void *f);
    int (*set)(void *f, int attribute, int v);
    int (*blocks)(int *blocks, void *f, int threads, size_t shared_bytes);
} cu;

static bool occupancy_load(void)
{
    static const struct symbol s[] = {
        {"cuModuleLoadData", 0},
        {"cuModuleUnload", sizeof(void *)},
        {"cuModuleGetFunction", 2 * sizeof(void *)},
        {"cuFuncGetAttribute", 3 * sizeof(void *)},
        {"cuFuncSetAttribute", 4 * sizeof(void *)},
        {"cuOccupancyMaxActiveBlocksPerMultiprocessor", 5 * sizeof(void *)}};
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    return lib && !symbols_find(lib, s, ARRAY_SIZE(s), &cu);
}

/* All values live across a loop, so that each has a register. */
static void occupancy_text(char *out, unsigned n, unsigned bytes)
{
    char *p = out, *end = out + TEXT;
    p += snprintf(p, (size_t)(end - p),
                  ".version 6.0\n.target sm_60\n.address_size 64\n"
                  ".visible .entry many(.param .u64 q, .param .u32 turns)\n{\n"
                  ".reg .b32 %%r<%u>, %%n, %%x, %%s;\n.reg .b64 %%q;\n.reg .pred %%p;\n",
                  n);
    if (bytes)
        p += snprintf(p, (size_t)(end - p), ".shared .align 4 .b8 fixed[%u];\n", bytes);
    p += snprintf(p, (size_t)(end - p), "ld.param.u64 %%q, [q];\nld.param.u32 %%n, [turns];\n");
    if (bytes)
        p += snprintf(p, (size_t)(end - p),
                      "mov.u32 %%s, fixed;\nst.volatile.shared.u32 [%%s], %%n;\n");
    for (unsigned i = 0; i < n; i++)
        p += snprintf(p, (size_t)(end - p), "ld.volatile.global.u32 %%r%u, [%%q+%u];\n", i, 4 * i);
    p += snprintf(p, (size_t)(end - p), "again:\n");
    for (unsigned i = 0; i < n; i++)
        p += snprintf(p, (size_t)(end - p), "mad.lo.u32 %%r%u, %%r%u, %%r%u, %%n;\n", i, i,
                      (i + 1) % n);
    p += snprintf(p, (size_t)(end - p),
                  "sub.u32 %%n, %%n, 1;\nsetp.ne.u32 %%p, %%n, 0;\n@%%p bra again;\n");
    for (unsigned i = 0; i < n; i++)
        p += snprintf(p, (size_t)(end - p), "st.volatile.global.u32 [%%q+%u], %%r%u;\n", 4 * i, i);
    snprintf(p, (size_t)(end - p), "ret;\n}\n");
}

/* One kernel, all block sizes. The SM's limits are asked once, through libcede. */
static int occupancy_kernel(FILE *f, struct cede_gpus *g, void *function, unsigned *cases,
                            unsigned *differ)
{
    static struct sm_limits sm;
    int registers = 0, bytes = 0;
    struct gpu_profile p;
    struct gpu_error e;
    if (cu.get(&registers, FUNCTION_REGISTERS, function) ||
        cu.get(&bytes, FUNCTION_SHARED, function))
        return -EIO;
    if (cede_gpus_profile(g, NULL, function, 32, 0, &p, &e) == 0)
        sm = p.sm;
    if (p.registers != (unsigned)registers || p.shared_bytes != (unsigned)bytes)
        return -EIO;
    for (unsigned d = 0; d < ARRAY_SIZE(dynamic); d++) {
        if (cu.set(function, FUNCTION_DYNAMIC, (int)dynamic[d]))
            continue; /* more than a block may have */
        for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
            int theirs = 0;
            if (cu.blocks(&theirs, function, (int)sizes[i], dynamic[d]))
                continue;
            enum cede_limit limit;
            unsigned ours = cede_occupancy_blocks(&sm, sizes[i], (unsigned)registers,
                                                  (unsigned)bytes + dynamic[d], &limit);
            if (ours != (unsigned)theirs && (*differ)++ < SHOWN)
                fprintf(f,
                        "%s{\"threads\":%u,\"registers\":%d,\"static\":%d,\"dynamic\":%u,"
                        "\"driver\":%d,\"libcede\":%u}",
                        *differ > 1 ? ",\n  " : "", sizes[i], registers, bytes, dynamic[d], theirs,
                        ours);
            ++*cases;
        }
    }
    if (*cases && !sm.threads)
        return -EIO;
    return 0;
}

int occupancy_check(FILE *f, unsigned *cases)
{
    struct cede_gpus *g = NULL;
    struct gpu_error e = {""};
    char *text = malloc(TEXT);
    unsigned differ = 0;
    int r = text && occupancy_load() ? cede_gpus_open_one(-1, &g, &e) : -ENOMEM;
    fputs("\"occupancy\":{\"differ\":[", f);
    for (unsigned n = 0; !r && n < ARRAY_SIZE(values) * ARRAY_SIZE(fixed); n++) {
        void *module = NULL, *function = NULL;
        occupancy_text(text, values[n / ARRAY_SIZE(fixed)], fixed[n % ARRAY_SIZE(fixed)]);
        r = cu.load(&module, text) ? -EIO : 0;
        if (!r)
            r = cu.function(&function, module, "many")
                    ? -EIO
                    : occupancy_kernel(f, g, function, cases, &differ);
        if (module)
            cu.unload(module);
    }
    fprintf(f, "],\"differing\":%u,\"cases\":%u,\"failed\":%s,\"error\":\"%s\"}", differ, *cases,
            r ? "true" : "false", e.text);
    cede_gpus_close(g);
    free(text);
    return r ? r : (int)differ;
}
