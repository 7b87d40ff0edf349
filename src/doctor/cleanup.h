/* Private directories, and the end of all children, so that no process and no file is left behind.
 * The test bed (testbed.h) and the tests' harness share it; it knows nothing of cede. */
#ifndef CEDE_DOCTOR_CLEANUP_H
#define CEDE_DOCTOR_CLEANUP_H

#include <sys/types.h>

#include "base/util.h"

/* A new directory PREFIXxxxxxx. -errno. */
int process_make_dir(const char *prefix, char *buf, size_t size);
void process_remove_dir(const char *dir);

/* Waits up to patience_ns for all children of this process, including orphans that it has as their
 * subreaper, then kills the rest. */
void process_end_all(uint64_t patience_ns);

#endif
