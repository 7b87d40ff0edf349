/* slice_spin.ptx as a text. */
#ifndef CEDE_BENCH_SLICE_COST_H
#define CEDE_BENCH_SLICE_COST_H

extern const char slice_spin_ptx[];

#endif
