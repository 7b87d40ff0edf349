/* Pre-preemption: lets the GPU's switch to this program overlap with what a request does before its
 * first work is queued. A lead is a kernel of one thread, on a stream of its own, that waits for
 * the request's work; see lead.c. One lead per handle at a time. */
#ifndef CEDE_LIBCEDE_LEAD_H
#define CEDE_LIBCEDE_LEAD_H

#include <stdbool.h>
#include <stdint.h>

/* How long a lead stays after the work is queued: default and limit. */
#define LEAD_KEEP_US     100U
#define LEAD_KEEP_MAX_US 10000U

extern const char cede_lead_ptx[]; /* cede_lead.ptx */

struct lead;

/* In the calling thread's CUDA context. 0, -ENOSYS: no CUDA, or no context is current; -ENOMEM;
 * -EIO: the driver refused. */
int cede_lead_open(uint64_t keep_ns, struct lead **out);
/* forked: in a child, which has neither the thread nor the GPU. */
void cede_lead_close(struct lead *l, bool forked);

/* A number for the lead of this request; 0: it has none. May launch two kernels, or wake the thread
 * that will. */
uint32_t cede_lead_begin(struct lead *l, uint64_t now_ns, uint64_t expected_ns);
/* The request's work is queued. Returns when its lead was launched; 0: it has none, or not yet. */
uint64_t cede_lead_queued(struct lead *l, uint32_t number, uint64_t now_ns, uint64_t expected_ns);
/* queued: cede_lead_queued() was called for it. */
void cede_lead_end(struct lead *l, uint32_t number, bool queued);

#endif
