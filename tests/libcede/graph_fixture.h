/* A cache of graphs on the stand-in for libcuda, in virtual time, a step that counts, and main().
 */
#ifndef CEDE_TESTS_LIBCEDE_GRAPH_FIXTURE_H
#define CEDE_TESTS_LIBCEDE_GRAPH_FIXTURE_H

#include "bench/graph_add.h"
#include "bench/graph_rig.h"
#include "cede/graph.h"
#include "fake_gpu.h"
#include "fixture.h"
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

/* The cache of a test, with its configuration, step and stream. set_up() makes the stream, and
 * tear_down() closes all; everything has been given back then. */
struct fixture {
    struct cede_graph_config c;
    struct step s;
    void *stream;
    struct cede_graph *g;
};
extern struct fixture f;
int set_up(void **state);
int tear_down(void **state);
void open_cache(unsigned max_batch, unsigned warmups);
/* Another one begins anew, with another word to count in. */
void reopen_cache(unsigned word);

struct cede_graph_statistics statistics(void);
struct cede_graph_bucket bucket(unsigned n);
/* Succeeds. The bucket that was taken; 0: it ran eagerly. */
unsigned launch(unsigned n);
/* Launches batches of these sizes, and says what was taken for each in the same form: "1 2 0". */
const char *launches(const char *sizes);

#endif
