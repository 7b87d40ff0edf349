/* The trace of context switches of the resource manager in memory: for fake_rm.c. */
#ifndef CEDE_TESTS_FAKE_TRACE_H
#define CEDE_TESTS_FAKE_TRACE_H

#include "fake_rm.h"

struct fake_trace *fake_trace_at(struct fake_rm *rm, uint32_t client);
void fake_trace_free(struct fake_trace *t);
/* Statuses. */
uint32_t fake_trace_alloc(struct fake_rm *rm, struct fake_trace *t, const struct rm_ioctl_alloc *a);
uint32_t fake_trace_control(struct fake_trace *t, const struct rm_ioctl_control *a, void *params);
uint32_t fake_trace_map(struct fake_rm *rm, const struct rm_ioctl_map *m);
/* Of struct rm_io. */
int fake_trace_io_map(int fd, size_t size, const void **out);
void fake_trace_io_unmap(const void *p, size_t size);

/* fake_rm.c: the open file behind a descriptor of ours. */
int fake_file_of(struct fake_rm *rm, int fd);

#endif
