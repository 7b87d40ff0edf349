/* The kernel of bench/memory_cost.c, as text; made from memory_touch.ptx. */
#ifndef CEDE_BENCH_MEMORY_TOUCH_H
#define CEDE_BENCH_MEMORY_TOUCH_H

extern const char memory_touch_ptx[];

#endif
