/* Slices on the stand-in for libcuda, which runs what is in a stream as late as it may; runs that
 * fail anywhere; and, without a GPU, runs of several threads, cancelled from another one. */
#include <stdatomic.h>

#include "base/util.h"
#include "cede/slice.h"
#include "fake_gpu.h"
#include "fixture.h"

static char context[2];

/* Elements are summed up when the stream runs, each slice by one piece of work. */
struct program {
    atomic_ullong done, sum;
    uint64_t launched, saved, most_queued;
    struct cede_scope *cancels; /* after 1000 elements; NULL: none */
    bool at_once;               /* there is no GPU */
};

struct work {
    struct program *p;
    uint64_t first, count;
};

static void run_work(void *arg)
{
    struct work *w = arg;
    for (uint64_t i = w->first; i < w->first + w->count; i++)
        w->p->sum += i;
    w->p->done += w->count;
    free(w);
}

static int launch(void *arg, uint64_t first, uint64_t count, void *stream)
{
    struct program *p = arg;
    struct work *w = malloc(sizeof(*w));
    if (!w)
        return -ENOMEM;
    *w = (struct work){p, first, count};
    p->launched = first + count;
    p->most_queued = max_u64(p->most_queued, first - p->done);
    if (p->cancels && first > 1000)
        cede_scope_cancel(p->cancels);
    if (p->at_once) {
        run_work(w);
        return 0;
    }
    return cuLaunchHostFunc(stream, run_work, w) == 0 ? 0 : -EIO;
}

static int save(void *arg, uint64_t done)
{
    struct program *p = arg;
    assert_true(p->done == done && p->launched == done); /* all of it has run */
    assert_true(p->sum == done * (done - 1) / 2);
    p->saved = done;
    return 0;
}

/* Of the latest run of a thread. */
static _Thread_local struct cede_slice_progress progress;

#define RUN(p, elements, ...)                                                                      \
    ({                                                                                             \
        const struct cede_slice_config run_ = CONFIG(slice, .count = elements, .arg = p,           \
                                                     .launch = launch, .save = save, __VA_ARGS__); \
        progress = (struct cede_slice_progress){.done = 0};                                        \
        cede_slice_run(&run_, &progress);                                                          \
    })

static int begin_test(void **unused)
{
    memset(&fake_cuda, 0, sizeof(fake_cuda));
    fake_cuda.current = &context[0];
    return 0;
}

static int end_test(void **unused)
{
    fake_drain();
    OK(fake_cuda.streams | fake_cuda.events);
    assert_int_equal(fake_cuda.modules, 0); /* nothing of the future map was loaded */
    return 0;
}

TEST_WITH(runs, begin_test, end_test)
{
    for (unsigned depth = 1; depth <= CEDE_SLICE_DEPTH_MAX; depth++) {
        struct program p = {.saved = 0};
        /* the stand-in takes 1 us for each thing in a stream */
        OK(RUN(&p, 50000, .depth = depth, .target_us = 50));
        assert_int_equal(progress.done, 50000);
        assert_int_equal(p.saved, 50000);
        assert_true(progress.slices > 10 && progress.gpu_us >= progress.slices);
        assert_true(depth == 1 ? p.most_queued == 0 : p.most_queued > 0);
        assert_int_equal(fake_cuda.bad, 0);
    }
    struct program p = {.saved = 0}; /* into the program's own stream, which stays */
    char stream;
    OK(RUN(&p, 5000, .stream = &stream));
    assert_int_equal(fake_cuda.bad, 0);
}

/* The n-th thing that is made or waited for fails. */
TEST_WITH(fails_anywhere, begin_test, end_test)
{
    unsigned failed = 0;
    for (int at = 1; at < 60; at++) {
        for (int made = 0; made < 2; made++) {
            struct program p = {.saved = 0};
            begin_test(NULL);
            fake_cuda.fail_make = made ? at : 0;
            fake_cuda.fail_work = made ? 0 : at;
            int r = RUN(&p, 100000);
            assert_true(r == 0 || r == -EIO);
            failed += r < 0;
            assert_int_equal(progress.error[0] != '\0', r < 0);
            assert_int_equal(p.saved, r ? 0 : 100000);
            end_test(NULL);
        }
    }
    assert_true(failed > 40);
    struct program p = {.saved = 0};
    begin_test(NULL);
    fake_cuda.current = NULL;
    assert_int_equal(RUN(&p, 1000), -ENOSYS);
    assert_non_null(strstr(progress.error, "context"));
}

struct runner {
    pthread_t thread;
    struct program p;
    struct cede_scope *scope;
    struct cede *client;
    int result;
    uint64_t done;
};

static void *run_thread(void *arg)
{
    struct runner *r = arg;
    r->result =
        RUN(&r->p, 200000, .flags = CEDE_SLICE_NO_GPU, .scope = r->scope, .client = r->client);
    r->done = progress.done;
    return NULL;
}

/* Of four runs at once two are cancelled, each by another thread. */
TEST_WITH(threads, begin_test, end_test)
{
    static struct runner r[4];
    struct cede *client;
    memset(r, 0, sizeof(r));
    setenv("CEDE_DIR", "/nowhere-at-all", 1);
    OK(cede_connect(&client));
    for (unsigned i = 0; i < 4; i++)
        OK(cede_scope_open(&r[i].scope, NULL, 0, CEDE_TIMEOUT_FOREVER));
    for (unsigned i = 0; i < 4; i++) {
        r[i].client = client; /* of all */
        r[i].p.at_once = true;
        r[i].p.cancels = i % 2 ? r[(i + 2) % 4].scope : NULL;
        r[i].thread = start(run_thread, &r[i]);
    }
    for (unsigned i = 0; i < 4; i++) {
        result_of(r[i].thread);
        assert_true(r[i].result == 0 || (i % 2 && r[i].result == -ECANCELED));
        assert_true(r[i].p.saved == r[i].done && (r[i].result || r[i].done == 200000));
    }
    assert_true(r[1].result == -ECANCELED || r[3].result == -ECANCELED);
    for (unsigned i = 0; i < 4; i++)
        cede_scope_close(r[i].scope);
    cede_close(client);
}
