/* A cache of graphs on the stand-in for libcuda, in virtual time, and a step that counts. */
#ifndef CEDE_TESTS_LIBCEDE_GRAPH_FIXTURE_H
#define CEDE_TESTS_LIBCEDE_GRAPH_FIXTURE_H

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench/graph_add.h"
#include "bench/graph_rig.h"
#include "cede/graph.h"
#include "fake_gpu.h"
#include "libcede/clock.h"

#define FREE_BYTES (1 << 20)

static struct fake_cuda *const gpu = &fake_cuda;
extern struct rig rig;
extern atomic_uint_least64_t tick_ns; /* that each look at the clock takes */
extern atomic_uint allocations;       /* by libcede and the test */

#define GOES_WELL 1 /* in a script */

struct step {
    struct cede_graph *g;
    unsigned word, each; /* adds 1 to it, with `each` kernels for each row */
    unsigned calls, last_n;
    int error, inner; /* to return; what a call of the cache from here returned */
    bool calls_cache, changes, uses_pool;
    const int *script; /* NULL, or errors that the calls return one after the other, up to a 0 */
};
int step(void *arg, void *stream, unsigned n);

struct cede_graph_config configured(unsigned max_batch, unsigned warmups);
void *make_stream(void);
struct cede_graph *open_cache(const struct cede_graph_config *c, void *stream, struct step *s);
/* With the stream; everything has been given back. */
void close_cache(struct cede_graph *g, void *stream);

struct cede_graph_statistics statistics(struct cede_graph *g);
struct cede_graph_bucket bucket(struct cede_graph *g, unsigned n);
/* Succeeds. The bucket that was taken; 0: it ran eagerly. */
unsigned launch(struct cede_graph *g, unsigned n);

int set_up(void **state);
int run_graph_tests(const struct CMUnitTest *tests, size_t n);

#endif
