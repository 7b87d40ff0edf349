#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define TS 16 /* of a tile */
#define AT(m, r, c) m[(r) * ld \
                      + (c)]
#if defined(DOUBLE)
typedef double real;
#else
typedef float real;
#endif
__constant real scale[] = { 1.0f, 0x1p-3f };
inline real twice(real x) { return 2 * x; } // 'quoted'
__kernel __attribute__((reqd_work_group_size(TS, TS, 1)))
void k(const int ld, __global const real *restrict a, __global real *c)
{
    __local real t[TS][TS];
    t[get_local_id(1)][get_local_id(0)] = AT(a, get_global_id(0), get_global_id(1));
    barrier(CLK_LOCAL_MEM_FENCE);
    AT(c, get_global_id(0), get_global_id(1)) = twice(t[0][0]) * scale['\1'];
}
