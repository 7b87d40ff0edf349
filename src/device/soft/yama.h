/* A stand-in for Yama's rule where kernel.yama.ptrace_scope is 1 (Linux, security/yama/yama_lsm.c),
 * so that a test shows on any machine who may steer a program and who may not. Decides by /proc and
 * by a file of grants; private to src/device/soft. */
#ifndef CEDE_DEVICE_SOFT_YAMA_H
#define CEDE_DEVICE_SOFT_YAMA_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether `tracer` could reach into `tracee`: itself, an ancestor, or, by the tracee's last grant,
 * the process that it names or a descendant of that one, now. `grants` has lines "TRACEE TRACER
 * START", in the order in which they were made: TRACER 0 is any, -1 none; START is the tracer's
 * start time, because a grant ends with the process it names. */
bool yama_may_trace(const char *grants, pid_t tracer, pid_t tracee);

#endif
