/* See names.h. The lists are of OpenCL C 1.0 to 3.0 and of extensions whose functions only compute.
 * A function that is not here is not taken for harmless. */
#include "gate/opencl/names.h"

#include <stdlib.h>
#include <string.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define NAME_MAX_LEN  63

/* clang-format off */
/* Sorted by strcmp. Types stand without a vector's length, functions without what
 * `before` and `behind` hold. */
static const char *const harmless[] = {
    "CHAR_BIT", "INFINITY", "MAXFLOAT", "NAN", "_Bool", "__ENDIAN_LITTLE__",
    "__FAST_RELAXED_MATH__", "__FILE__", "__IMAGE_SUPPORT__", "__LINE__", "__NV_CL_C_VERSION",
    "__OPENCL_C_VERSION__", "__OPENCL_VERSION__", "__VA_ARGS__", "__attribute", "__attribute__",
    "__const", "__const__", "__constant", "__func__", "__generic", "__global", "__inline",
    "__inline__", "__kernel", "__private", "__read_only", "__read_write", "__restrict",
    "__restrict__", "__write_only", "abs", "abs_diff", "acos", "acosh", "acospi", "add_sat",
    "aligned", "all", "always_inline", "amd_bfe", "amd_bfm", "amd_bitalign", "amd_bytealign",
    "amd_max3", "amd_median3", "amd_min3", "any", "asin", "asinh", "asinpi", "atan", "atan2",
    "atan2pi", "atanh", "atanpi", "bit_reverse", "bitfield_extract_signed",
    "bitfield_extract_unsigned", "bitfield_insert", "bitselect", "bool", "break", "case", "cbrt",
    "ceil", "char", "clamp", "clz", "const", "constant", "continue", "copysign", "cos", "cosh",
    "cospi", "cross", "ctz", "default", "defined", "degrees", "distance", "divide", "do", "dot",
    "double", "else", "endian", "enum", "erf", "erfc", "exp", "exp10", "exp2", "expm1", "extern",
    "fabs", "fast_distance", "fast_length", "fast_normalize", "fdim", "float", "floor", "fma",
    "fmax", "fmin", "fmod", "for", "fract", "frexp", "generic", "get_global_id",
    "get_image_array_size", "get_image_channel_data_type", "get_image_channel_order",
    "get_image_depth", "get_image_dim", "get_image_height", "get_image_num_mip_levels",
    "get_image_num_samples", "get_image_width", "get_work_dim", "global", "goto", "hadd", "half",
    "hypot", "if", "ilogb", "inline", "int", "intptr_t", "isequal", "isfinite", "isgreater",
    "isgreaterequal", "isinf", "isless", "islessequal", "islessgreater", "isnan", "isnormal",
    "isnotequal", "isordered", "isunordered", "kernel", "ldexp", "length", "lgamma", "lgamma_r",
    "log", "log10", "log1p", "log2", "logb", "long", "mad", "mad24", "mad_hi", "mad_sat", "max",
    "max_constant_size", "maxmag", "may_alias", "min", "minmag", "mix", "modf", "mul24", "mul_hi",
    "nan", "nextafter", "noinline", "normalize", "nosvm", "opencl_unroll_hint", "overloadable",
    "packed", "popcount", "pow", "pown", "powr", "prefetch", "private", "ptrdiff_t", "pure",
    "radians", "read_imagef", "read_imageh", "read_imagei", "read_imageui", "read_only",
    "read_write", "recip", "register", "remainder", "remquo", "restrict", "return", "rhadd", "rint",
    "rootn", "rotate", "round", "rsqrt", "sampler_t", "select", "short", "shuffle", "sign",
    "signbit", "signed", "sin", "sincos", "sinh", "sinpi", "size_t", "sizeof", "smoothstep", "sqrt",
    "static", "step", "struct", "sub_sat", "switch", "tan", "tanh", "tanpi", "tgamma", "to_global",
    "to_local", "to_private", "trunc", "typedef", "typeof", "uchar", "uint", "uintptr_t", "ulong",
    "union", "unsigned", "unused", "upsample", "ushort", "vec_step", "vec_type_hint", "vload",
    "vload_half", "vloada_half", "void", "vstore", "vstore_half", "vstorea_half", "while",
    "write_imagef", "write_imageh", "write_imagei", "write_imageui", "write_only",
};
/* clang-format on */

/* In front of, or behind, a name of the list above. */
static const char *const before[] = {"native_", "half_"};
static const char *const behind[] = {"_rte", "_rtz", "_rtp", "_rtn"};
/* Any name that begins so is a conversion, or one of an extension that only computes. */
static const char *const families[] = {"convert_", "as_", "dot_acc_sat_", "dot_4x8packed_"};

/* clang-format off */
static const char *const of_groups[] = {
    "__local", "async_work_group_copy", "async_work_group_strided_copy", "barrier", "get_local_id",
    "get_local_linear_id", "get_local_size", "local", "reqd_work_group_size", "wait_group_events",
    "work_group_all", "work_group_any", "work_group_barrier", "work_group_broadcast",
    "work_group_size_hint",
};
/* clang-format on */
static const char *const of_groups_families[] = {"work_group_reduce_", "work_group_scan_inclusive_",
                                                 "work_group_scan_exclusive_"};

#define RANGE   "which is of the whole ND-range"
#define WAITING "with which work-groups may wait for each other"
#define ORDER   "which is seen outside in the order of work-groups"
#define DEVICE  "which starts work on the device"
#define HIDDEN  "which is not OpenCL C"

enum match { ANYWHERE, WHOLE, FRONT };
static const struct {
    const char *text;
    enum match match;
    const char *why;
} bad[] = {
    {"get_global_size", ANYWHERE, RANGE},
    {"get_num_groups", ANYWHERE, RANGE},
    {"get_group_id", ANYWHERE, RANGE},
    {"get_global_linear_id", ANYWHERE, RANGE},
    {"get_global_offset", ANYWHERE, RANGE},
    {"get_enqueued_", ANYWHERE, RANGE},
    {"_global_size_", ANYWHERE, RANGE},
    {"_num_groups_", ANYWHERE, RANGE},
    {"_group_id_", ANYWHERE, RANGE},
    {"_global_offset_", ANYWHERE, RANGE},
    {"sub_group", ANYWHERE, RANGE},
    {"atomic", ANYWHERE, WAITING},
    {"atom_", FRONT, WAITING},
    {"mem_fence", ANYWHERE, WAITING},
    {"CLK_GLOBAL_MEM_FENCE", WHOLE, WAITING},
    {"CLK_IMAGE_MEM_FENCE", WHOLE, WAITING},
    {"memory_scope_", ANYWHERE, WAITING},
    {"memory_order_", ANYWHERE, WAITING},
    {"volatile", WHOLE, WAITING},
    {"__volatile", FRONT, WAITING},
    {"clock_read_", ANYWHERE, ORDER},
    {"printf", ANYWHERE, ORDER},
    {"pipe", WHOLE, ORDER},
    {"_pipe", ANYWHERE, ORDER},
    {"reserve_id", ANYWHERE, ORDER},
    {"enqueue_", ANYWHERE, DEVICE},
    {"ndrange", ANYWHERE, DEVICE},
    {"queue_t", WHOLE, DEVICE},
    {"clk_event_t", WHOLE, DEVICE},
    {"asm", WHOLE, HIDDEN},
    {"intel_", FRONT, HIDDEN},
    {"pocl_", ANYWHERE, HIDDEN},
    {"_cl_", FRONT, HIDDEN},
};

static int name_compare(const void *key, const void *element)
{
    return strcmp(key, *(const char *const *)element);
}

static bool among(const char *name, const char *const *v, size_t n)
{
    return bsearch(name, v, n, sizeof(*v), name_compare);
}

static bool name_begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static bool begins_with_any(const char *name, const char *const *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (name_begins(name, v[i]))
            return true;
    }
    return false;
}

static bool is_harmless(char *name)
{
    size_t n = strlen(name);
    if (among(name, harmless, ARRAY_SIZE(harmless)) ||
        begins_with_any(name, families, ARRAY_SIZE(families)))
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(before); i++) {
        if (name_begins(name, before[i]))
            return among(name + strlen(before[i]), harmless, ARRAY_SIZE(harmless));
    }
    /* image2d_t, image2d_array_depth_t... */
    if (name_begins(name, "image") && n > 2 && strcmp(name + n - 2, "_t") == 0)
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(behind); i++) {
        if (n > 4 && strcmp(name + n - 4, behind[i]) == 0)
            name[n -= 4] = '\0';
    }
    while (n && name[n - 1] >= '0' && name[n - 1] <= '9') /* float4, vload16, vstore_half8 */
        name[--n] = '\0';
    return among(name, harmless, ARRAY_SIZE(harmless));
}

enum name_kind name_kind(const char *name, size_t n, const char **why)
{
    char s[NAME_MAX_LEN + 1];
    *why = "whose name is too long";
    if (n > NAME_MAX_LEN)
        return NAME_BAD;
    memcpy(s, name, n);
    s[n] = '\0';
    bool plain = !strchr(s, '_'); /* as most are, unlike most of the list */
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (plain && strchr(bad[i].text, '_'))
            continue;
        *why = bad[i].why;
        if (bad[i].match == WHOLE   ? strcmp(s, bad[i].text) == 0
            : bad[i].match == FRONT ? name_begins(s, bad[i].text)
                                    : strstr(s, bad[i].text) != NULL)
            return NAME_BAD;
    }
    if (among(s, of_groups, ARRAY_SIZE(of_groups)) ||
        begins_with_any(s, of_groups_families, ARRAY_SIZE(of_groups_families)))
        return NAME_LOCAL;
    if (is_harmless(s))
        return NAME_HARMLESS;
    return NAME_UNKNOWN;
}
