/* cede-load: the workload generator that demo, doctor, tests and benches share. */
#ifndef CEDE_BENCH_LOAD_LOAD_H
#define CEDE_BENCH_LOAD_LOAD_H

#include <stddef.h>

#include "base/util.h"

/* `cede-load ROLE [options]`; returns the exit status. */
int load_main(int argc, char **argv);

/* The OpenCL device that `--device opencl` would use, and its driver's version, for people.
 * -ENODEV: there is none. */
int load_opencl_name(char *device, size_t size, char *version, size_t version_size,
                     struct error *err);

#endif
