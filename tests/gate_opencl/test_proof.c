/* Which kernels may be cut: a table of programs as they are met, and of ways to hide a call. */
#include "../test.h"
#include "gate/opencl/proof.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* Rows end where the rest is NULL. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
struct row {
    const char *source;
    const char *expected; /* "": may be cut; "local": with its own work-groups; else why not */
    const char *options;
    const char *kernel; /* NULL: k */
};

static void check(const struct row *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct proof p;
        proof_of(v[i].source, v[i].options, v[i].kernel ? v[i].kernel : "k", &p);
        bool local = strcmp(v[i].expected, "local") == 0, yes = local || !v[i].expected[0];
        if (p.sliceable != yes || (yes && p.needs_local_size != local) ||
            p.sliceable == !!*p.reason || (!yes && !strstr(p.reason, v[i].expected)))
            fail_msg("row %zu: expected '%s', got sliceable %d, local %d, '%s' of\n%s", i,
                     v[i].expected, p.sliceable, p.needs_local_size, p.reason, v[i].source);
    }
}

#define K "__kernel void k(__global float *a, int n) "

TEST(as_they_are_met)
{
    static const struct row rows[] = {
        /* sums, and the like */
        {K "{ int i = get_global_id(0); if (i < n) a[i] = sqrt(a[i]) * 2.0f; }", ""},
        {"/* in 3.0e+5 pieces */\n"
         "#pragma OPENCL EXTENSION cl_khr_global_int32_base_atomics : enable\n"
         "#if defined(cl_khr_fp64) && __OPENCL_VERSION__ >= 120\n"
         "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\ntypedef double real;\n"
         "#else\ntypedef float real;\n#endif\n"
         "kernel void k(global real *restrict y, const global real *restrict x, real a)\n"
         "{\n    const size_t i = get_global_id(0) + get_global_id(1) * 1024;\n"
         "    y[i] = fma((real)a, x[i], y[i]);\n}\n",
         "", "-cl-mad-enable -cl-std=CL1.2 -DN=4 -I /usr/include -w"},
        /* a loop over the whole range */
        {K "{ for (int i = get_global_id(0); i < n; i += get_global_size(0)) a[i] += 1; }",
         "k uses get_global_size"},
        /* matrices by tiles */
        {"#define TS 16\n"
         "__kernel __attribute__((reqd_work_group_size(TS, TS, 1)))\n"
         "void gemm(const int M, const int N, const int K_,\n"
         "          const __global float *A, const __global float *B, __global float *C)\n"
         "{\n"
         "    __local float As[TS][TS], Bs[TS][TS + 1];\n"
         "    const int r = get_local_id(0), c = get_local_id(1);\n"
         "    const int row = get_global_id(0), col = get_global_id(1);\n"
         "    float sum = 0.0f;\n"
         "    for (int t = 0; t < K_ / TS; t++) {\n"
         "        As[c][r] = A[(TS * t + c) * M + row];\n"
         "        Bs[c][r] = B[col * K_ + TS * t + r];\n"
         "        barrier(CLK_LOCAL_MEM_FENCE);\n"
         "        for (int k = 0; k < TS; k++) sum = mad(As[k][r], Bs[c][k], sum);\n"
         "        barrier(CLK_LOCAL_MEM_FENCE);\n"
         "    }\n"
         "    C[col * M + row] = sum;\n"
         "}\n",
         "local", NULL, "gemm"},
        /* the same with the group's number, as most are written */
        {"#define WGS 64\n" K "{ a[WGS * get_group_id(0) + get_local_id(0)] = 0; }",
         "get_group_id"},
        /* a reduction: a sum of each group, where the last warp takes care of itself */
        {"kernel void k(const global float *in, global float *out, volatile __local float *s)\n"
         "{\n    size_t l = get_local_id(0), i = get_global_id(0);\n    s[l] = in[i];\n"
         "    for (size_t d = get_local_size(0) / 2; d; d >>= 1) {\n"
         "        barrier(CLK_LOCAL_MEM_FENCE);\n        if (l < d) s[l] += s[l + d];\n    }\n"
         "    if (!l) out[i / get_local_size(0)] = s[0];\n}\n",
         "local"},
        {"kernel void k(global float *a) { a[get_global_id(0)] = work_group_reduce_add(1.0f); }",
         "local", "-cl-std=CL2.0"},
        {K "{ float s = sub_group_reduce_add(a[0]); a[0] = s; }", "sub_group"},
        /* histograms */
        {"kernel void k(global const uchar *p, global uint *h)\n"
         "{ atomic_inc(&h[p[get_global_id(0)]]); }",
         "atomic_inc"},
        {"kernel void k(global const uchar *p, global uint *h) { atom_inc(&h[p[0]]); }",
         "atom_inc"},
        {"kernel void k(global atomic_int *h) { atomic_fetch_add(h, 1); }", "atomic_"},
        /* the last group adds up, a flag is waited for */
        {K "{ while (((volatile __global int *)a)[0] == 0); }", "volatile"},
        {K "{ while (a[0] == 0) mem_fence(CLK_GLOBAL_MEM_FENCE); }", "mem_fence"},
        {K "{ a[n] = 0; barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE); }",
         "CLK_GLOBAL_MEM_FENCE"},
        /* a stencil on a grid whose size is given, or asked for */
        {"#define AT(x, y) in[(y) * w + (x)]\n"
         "kernel void k(global const float *in, global float *out, int w, int h) {\n"
         "    int x = get_global_id(0), y = get_global_id(1);\n"
         "    if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;\n"
         "    out[y * w + x] = 0.2f * (AT(x, y) + AT(x - 1, y) + AT(x + 1, y) + AT(x, y - 1) +\n"
         "                             AT(x, y + 1));\n}\n",
         ""},
        {"kernel void k(global float *a) { int w = get_global_size(0); a[0] = w; }",
         "get_global_size"},
        /* images */
        {"__constant sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_FILTER_NEAREST;\n"
         "__constant float weights[] = { 0.25f, 0.5f, 0.25f };\n"
         "static float4 blur(read_only image2d_t in, int2 at) {\n"
         "    float4 sum = (float4)(0.0f);\n    #pragma unroll\n"
         "    for (int i = -1; i <= 1; i++)\n"
         "        sum += read_imagef(in, s, at + (int2)(i, 0)) * weights[i + 1];\n"
         "    return sum;\n}\n"
         "__kernel void k(__read_only image2d_t in, __write_only image2d_t out) {\n"
         "    int2 at = (int2)(get_global_id(0), get_global_id(1));\n"
         "    if (any(at >= get_image_dim(out))) return;\n"
         "    write_imagef(out, at, clamp(blur(in, at), 0.0f, 1.0f));\n}\n",
         ""},
        /* vectors, conversions, structs */
        {"typedef struct { float4 p, v; } __attribute__((packed, aligned(16))) body;\n"
         "enum { STEPS = 4 };\n"
         "inline float4 pull(float4 a, float4 b)\n{ float4 d = b - a; d.w = 0;\n"
         "  return d * native_rsqrt(dot(d, d) + 0x1p-10f) * convert_float4_rte(as_int4(a)); }\n"
         "kernel void k(global body *b, int n) { size_t i = get_global_id(0);\n"
         "  for (int j = 0; j < n; j++) b[i].v += pull(b[i].p, vload4(j, (global float *)b));\n"
         "  vstore_half8(vload8(0, (global float *)b), i, (global half *)b); }\n",
         ""},
        /* what device-side OpenCL has */
        {K "{ printf(\"%d\", n); }", "printf"},
        {K "{ enqueue_kernel(get_default_queue(), 0, ndrange_1D(1), ^{ }); }", "enqueue_"},
        {"kernel void k(read_only pipe int p) { int v; read_pipe(p, &v); }", "pipe"},
        {"global int done;\n" K "{ if (!done) a[n] = done = 1; }", "a variable of all work-groups",
         "-cl-std=CL2.0"},
        {"int done = 0;\n" K "{ a[n] = done++; }", "a variable of all work-groups",
         "-cl-std=CL3.0"},
        {"constant int2 t[2] = {(int2)(0, 1), (int2)(2, 3)}; typedef __global float *g; struct "
         "s;\n" K "{ a[0] = t[n].x; }",
         ""},
    };
    check(rows, ARRAY_SIZE(rows));
}

/* Kernels of one program have nothing to do with each other, where that can be seen. */
TEST(each_by_itself)
{
    static const char program[] =
        "#define LINEAR (get_global_linear_id())\n"
        "#define TWICE(x) (2 * (x))\n"
        "float inner(float x) { return TWICE(x); }\n"
        "float outer(__local float *s) { return inner(s[get_local_id(0)]); }\n"
        "float whole(void) { return get_num_groups(0); }\n"
        "kernel void good(global float *a) { a[get_global_id(0)] = inner(1); }\n"
        "kernel void local_(global float *a, local float *s) { a[0] = outer(s); }\n"
        "kernel void bad(global float *a) { a[0] = whole(); }\n"
        "kernel void worse(volatile global float *a) { a[0] = 0; }\n"
        "kernel void worst(global float *a) { a[0] = LINEAR; }\n"
        "#ifdef X\nkernel void two(global float *a) { a[0] = 1; }\n"
        "#else\nkernel void two(global float *a) { a[0] = whole(); }\n#endif\n";
    static const struct row rows[] = {
        {program, "", "", "good"},
        {program, "local", NULL, "local_"},
        {program, "whole uses get_num_groups", NULL, "bad"},
        {program, "worse uses volatile", NULL, "worse"},
        {program, "macro LINEAR uses get_global_linear_id", NULL, "worst"},
        {program, "whole uses get_num_groups", NULL, "two"},
        {program, "uses", NULL, "nowhere"},
        /* a helper that is defined after its use, and by a prototype first */
        {"float f(float x);\nkernel void k(global float *a) { a[0] = f(1); }\n"
         "float f(float x) { return x * get_group_id(0); }\nkernel void other() { }\n",
         "f uses get_group_id"},
        {"float f(float x);\nkernel void k(global float *a) { a[0] = f(1); }\n"
         "float f(float x) { return x; }\n",
         ""},
        {"float f(float x);\nkernel void k(global float *a) { a[0] = f(1); }\n",
         "f, which is not known"},
    };
    check(rows, ARRAY_SIZE(rows));
}

TEST(hidden)
{
    static const struct row rows[] = {
        {"#define S get_global_size\n" K "{ a[0] = S(0); }", "get_global_size"},
        {"#define T S\n#define S get_global_size(0)\n" K "{ a[0] = T; }", "macro S uses"},
        {K "{ a[0] = S(0); }", "get_global_size", "-DS=get_global_size"},
        {K "{ a[0] = S; }", "get_global_size", "-D S=get_global_size(0)"},
        {"#define get_global_id(x) get_global_size(x)\n" K "{ a[0] = get_global_id(0); }",
         "get_global_size"},
        {"#define P(x) get_##x##_size\n" K "{ a[0] = P(global)(0); }", "parts of names"},
        {"#define A(f) f(0)\n" K "{ a[0] = A(vendor_group); }", "macro is given"},
        {"#define V vendor_group\n" K "{ a[0] = V(0); }", "not known"},
        {"#define ARGS (0)\n" K "{ a[0] = vendor_group ARGS; }", "not known"},
        {K "{ a[0] = vendor_group(0); }", "vendor_group, which is not known"},
        {K "{ a[0] = get_size(0); }", "get_size, which is not known"},
        {K "{ a[0] = __builtin_amdgcn_workgroup_id_x(); }", "not"},
        {"uint _Z14get_num_groupsj(uint);\n" K "{ a[0] = _Z14get_num_groupsj(0); }",
         "get_num_groups"},
        {"extern size_t _num_groups_x;\n" K "{ a[0] = _num_groups_x; }", "_num_groups_x"},
        {K "{ int x; asm(\"mov.u32 %0, %%nctaid.x;\" : \"=r\"(x)); a[0] = x; }", "asm"},
        {"uint f(uint) __attribute__((alias(\"get_global_size\")));\n" K "{ a[0] = f(0); }",
         "uses"},
        {"#include \"common.h\"\n" K "{ a[0] = 0; }", "includes"},
        {" # /**/ include <x>\n" K "{ a[0] = 0; }", "includes"},
        {"#pragma redefine_extname f get_x\n" K "{ a[0] = 0; }", "directive"},
        {"extern \"C++\" { }\n" K "{ a[0] = 0; }", "a string"},
        /* lines, comments, quotes */
        {K "{ a[0] = get_glo\\\nbal_size(0); }", "get_global_size"},
        {K "{ a[0] = get_glo\\\r\nbal_size(0); }", "get_global_size"},
        {K "{ // \\\n a[0] = get_global_size(0);\n }", ""},
        {K "{ // \\ \n a[0] = get_global_size(0);\n }", "blanks between"},
        {K "{ // \r a[0] = get_global_size(0);\n }", "carriage return"},
        {K "{ //\?\?/\n a[0] = get_global_size(0);\n }", "trigraph"},
        {K "{ a[0] = '\"'; a[1] = get_global_size(0); a[0] = '\"'; }", "get_global_size"},
        {K "{ a[0] = '/*'; a[1] = get_global_size(0); /* */ }", "get_global_size"},
        {K "{ /* get_global_size(0) \" ' */ a[0] = '\\''; } // get_global_size", ""},
        {K "{ /\\\n* get_global_size(0) *\\\n/ a[0] = 1; }", ""},
        {"#error don't, get_global_size\n" K "{ a[0] = 1; }", ""},
        {"#warning /*\n" K "{ a[0] = get_global_size(0); } //*/ ", "directive"},
        {"#error /*\n" K "{ a[0] = get_global_size(0); } //*/ ", "a comment in"},
        {K "{ a[0] = 1; } /* ", "does not end"},
        {K "{ a[0] = 'x; }", "not closed"},
        {K "{ a[0] = get_\\u0067lobal_size(0); }", "not C's"},
        {K "{ float \xc3\xa4 = 1; }", "not C's"},
        {"%:define S x\n" K "{ a[0] = 1; }", "digraph"},
        /* branches that are not taken, heads that are chosen, brackets that do not match */
        {"#if 0\nfloat x() { return get_global_size(0); }\n#endif\n" K "{ a[0] = 1; }", ""},
        {K "{\n#ifdef Q\n}\nkernel void other() {\n#endif\n int x = get_group_id(0); }",
         "get_group_id"},
        {K "{\n#ifdef Q\n for (;;) {\n#else\n {\n#endif\n a[0] = 1; } }\n"
           "kernel void other() { int x = get_group_id(0); }",
         "uses"},
        {"kernel void\n#ifdef X\nk\n#else\nother\n#endif\n(int x) { x = get_group_id(0); }\n"
         "#ifndef X\nkernel void k() { }\n#endif\n",
         "get_group_id"},
        {"#define OPEN {\n#define CLOSE }\nkernel void k() OPEN CLOSE\n"
         "void f() { get_group_id(0); }\n",
         "uses"},
        {"#define f g\nvoid f(int x) { get_group_id(0); }\nvoid g(float x) { }\n" K "{ g(1); }",
         "get_group_id"},
        {"#define MAKE(f) void f(int x) { x = get_group_id(0); }\nMAKE(h);\nvoid h(float x) { }\n" K
         "{ h(1); }",
         "macro MAKE uses"},
        {"#define HEAD void h(int x)\nHEAD { x = get_group_id(0); }\nvoid h(float x) { }\n" K
         "{ h(1); }",
         "get_group_id"},
        {"#define ATTR(x)\nvoid h(int x) ATTR(1) { x = get_group_id(0); }\nvoid h(float x) { }\n" K
         "{ h(1); }",
         "get_group_id"},
        {"void h(float x) { }\nvoid h(x) int x; { get_group_id(0); }\n" K "{ h(1); }",
         "get_group_id"},
        /* options */
        {K "{ a[0] = 1; }", "option", "-cl-std=CLC++2021"},
        {K "{ a[0] = 1; }", "option", "-x clc++"},
        {K "{ a[0] = 1; }", "option", "-include evil.h"},
        {K "{ a[0] = 1; }", "build options", "-DX=\"a b\""},
        {K "{ a[0] = 1; }", "build options", "-DX=//"},
        {K "{ a[0] = 1; }", "without a name", "-D"},
        {"", ""},
    };
    check(rows, ARRAY_SIZE(rows));
}

/* What is too much is refused, and quickly. */
TEST(limits)
{
    const size_t size = 3U << 20;
    char *s = malloc(size), *to = s;
    assert_non_null(s);
    struct proof p;
    memset(s, '(', size - 1);
    s[size - 1] = '\0';
    proof_of(s, NULL, "k", &p);
    assert_string_equal(p.reason, "its source is too long");
    for (int i = 0; i < 600; i++)
        to += sprintf(to, "void f%d() {}\n", i);
    proof_of(s, NULL, "f1", &p);
    assert_string_equal(p.reason, "it has too many functions and macros");
    to = s;
    for (int i = 0; i < 70; i++)
        to += sprintf(to, "#if 1\n");
    proof_of(s, NULL, "k", &p);
    assert_string_equal(p.reason, "its conditionals are too deep");
    to = s + sprintf(s, "#define M(a");
    for (int i = 0; i < 40; i++)
        to += sprintf(to, ", a%d", i);
    sprintf(to, ") 1\n");
    proof_of(s, NULL, "k", &p);
    assert_string_equal(p.reason, "it has a macro with too many parameters");
    snprintf(s, size, "%s%0100d", K "{ a", 1);
    proof_of(s, NULL, "k", &p);
    assert_non_null(strstr(p.reason, "too long"));
    free(s);
}
