/* Kernels as texts: the .ptx files of this folder and contend.ptx, made into C by
 * load/kernels/embed.awk. */
#ifndef CEDE_BENCH_KERNELS_H
#define CEDE_BENCH_KERNELS_H

extern const char contend_ptx[], lease_work_ptx[], memory_touch_ptx[], slice_spin_ptx[];

#endif
