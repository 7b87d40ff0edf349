/* `cede bench cells DEVICE PROGRAMS`, which `cede bench` starts, and which runs without it too:
 * sessions (plan.h) on standard input, one line of JSON each, and on standard output a line about
 * the machine, then one for each session, in the same order:
 *
 *   {"gpu", "version", "memory_mib", "gpus"}     0: not known
 *   {"cells": [...], "clocks": {...}}            cell.h; the clocks of GPU 0 where NVML tells them
 *   {"error", "signal"}                          instead of the one or the other, and the last
 *
 * PROGRAMS is the directory of "@/...". Numbers have all their digits. */
#ifndef CEDE_BENCH_RUNNER_CELLS_H
#define CEDE_BENCH_RUNNER_CELLS_H

/* The exit status: 0; 1; 2: not a plan, or no such device; 128 and the signal that asked us to end.
 */
int cells_serve(const char *device, const char *programs);

#endif
