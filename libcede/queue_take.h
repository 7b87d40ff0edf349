/* Inside libcede: what the overlap loop does with a queue. */
#ifndef CEDE_LIBCEDE_QUEUE_TAKE_H
#define CEDE_LIBCEDE_QUEUE_TAKE_H

#include <stdbool.h>

#include "cede/queue.h"

/* cede_queue_next() for batches of at most `most` requests. */
int cede_queue_take(struct cede_queue *q, unsigned device, uint32_t most, cede_timeout timeout_us,
                    struct cede_queue_batch *b);

/* cede_queue_done() of the batch with that id on that device. */
int cede_queue_end(struct cede_queue *q, uint64_t batch, unsigned device, bool failed);

#endif
