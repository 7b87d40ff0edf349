/* What serve.c and serve.cpp serve; your model goes in its place. A row becomes a pseudo-random
 * number, by a kernel on a GPU, and by a sleep and arithmetic without one. C11 and C++17. */
#ifndef SERVE_MODEL_H
#define SERVE_MODEL_H
#include <cede/lease.h>
#ifdef __cplusplus
extern "C" {
#endif

#define MODEL_BATCH 16 /* rows at a time */
extern const struct cede_shape model_row_shape;
struct model_row {
    unsigned input, output;
};

/* First; 0 also without a GPU. Registers the kernel with the pool, as "model". */
int model_open(struct cede_pool *pool);
extern void *model_stream;              /* to capture graphs on; NULL: no GPU */
struct model_row *model_rows(void);     /* of a batch; the GPU can use them too */
unsigned model_input(const char *text); /* in place of a tokenizer */
int model_thread(void);                 /* first in further threads; 0, or CUDA's error */
int model_step(void *rows, void *stream, unsigned n); /* queues n rows; 0, or CUDA's error */
int model_wait(void *stream);                         /* for what is queued; 0, or CUDA's error */

#ifdef __cplusplus
}
#endif
#endif
