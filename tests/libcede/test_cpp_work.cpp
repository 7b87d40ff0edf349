/* cede/slice.hpp, graph.hpp, future.hpp and step.hpp on the stand-in for libcuda, whose folder has
 * to be in LD_LIBRARY_PATH: the program's functions, and what becomes of that which they throw or
 * return. Not what the calls of libcede do: the tests in C have that. */
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include "cede/cede.hpp"
#include "check.hpp"

/* The stand-in's, and its errors. */
extern "C" int cuCtxPushCurrent_v2(void *context);
extern "C" int cuStreamCreate(void **stream, unsigned flags);
extern "C" int cuStreamDestroy_v2(void *stream);
extern "C" int cuStreamSynchronize(void *stream);
extern "C" int cuMemAllocAsync(unsigned long long *p, std::size_t bytes, void *stream);
extern "C" char fake_contexts[2];

using namespace std::chrono_literals;

static_assert(move_only<cede::graph_cache> && move_only<cede::futures>);
static_assert(move_only<cede::step_loop<int>> && move_only<cede::memory_lease>);

/* ---- slices ---------------------------------------------------------------------------------- */

static cede::slice_run small_run(std::uint64_t count)
{
    cede::slice_run run;
    run.config.flags = CEDE_SLICE_NO_GPU;
    run.config.count = count;
    return run;
}

static void slices_run_to_their_end()
{
    std::uint64_t sum = 0, next = 0, saved = 0;
    auto launch = [&](std::uint64_t first, std::uint64_t count, void *stream) {
        CHECK(first == next && !stream);
        for (; next < first + count; next++)
            sum += next;
    };
    auto save = [&](std::uint64_t done) { saved = done; };
    cede::slice_run run = small_run(1000);
    run.config.timeout_us = 0;
    CHECK(!run(launch, save) && run.try_run(launch, save) == std::errc::timed_out && next == 0);
    run.config.timeout_us = CEDE_TIMEOUT_FOREVER;
    CHECK(run(launch, save) && sum == 499500 && saved == 1000 && run.progress.saved == 1000);
    CHECK(!run.try_run(launch, save) && !run.try_run(launch) && sum == 499500);

    cede::slice_run bad = small_run(10), in = small_run(10), displaced = small_run(10);
    enum driver { refused = 7 };
    fails(std::errc::io_error, "`launch` returned 7",
          [&] { small_run(1)([](std::uint64_t, std::uint64_t, void *) { return refused; }); });
    cede::scope tasks(0);
    tasks.fork([] { return refused; });
    fails(std::errc::io_error, "returned 7: no errno value: see that", [&] { tasks.join(); });
    bad.config.depth = 99;
    fails(std::errc::invalid_argument, "cede_slice_run: depth is ", [&] { bad(launch); });
    cede::scope over(0);
    over.cancel();
    in.config.scope = over.handle();
    fails(std::errc::operation_canceled, "the scope is cancelled", [&] { in(launch); });

    cede::pool_config one;
    one.flags = CEDE_POOL_NO_GPU;
    one.max_concurrent_streams = 1;
    cede::pool pool(one);
    cede::lease mine = pool.acquire(), urgent;
    cede::shape now;
    now.due = 1us;
    displaced.config.lease = mine.handle();
    displaced.config.timeout_us = 1000; /* the deadline ends it before the patience does */
    displaced.config.patience_us = CEDE_TIMEOUT_FOREVER;
    CHECK(!displaced([&](std::uint64_t, std::uint64_t, void *) {
        urgent = pool.acquire(nullptr, now);
        CHECK(mine.wanted());
    }));
    CHECK(displaced.progress.done == 1);
}

static void what_slices_throw_comes_out()
{
    std::uint64_t ran = 0;
    int broken = 1;
    auto launch = [&](std::uint64_t, std::uint64_t count, void *) {
        if (broken == 1)
            throw 1;
        ran += count;
    };
    auto save = [&](std::uint64_t) {
        if (broken)
            throw 2;
    };
    cede::slice_run run = small_run(100);
    throws(1, [&] { run(launch, save); });
    CHECK(run.try_run(launch, save) == std::errc::io_error);
    broken = 2;
    throws(2, [&] { run(launch, save); });
    CHECK(run.progress.done == 100 && run.progress.saved == 0);
    broken = 0;
    CHECK(run(launch, save) && ran == 100 && run.progress.saved == 100);

    cede::slice_run codes = small_run(100);
    CHECK(codes.try_run([](std::uint64_t, std::uint64_t, void *) { return -ENOSPC; }) ==
          std::errc::no_space_on_device);
    CHECK(codes.try_run([](std::uint64_t, std::uint64_t, void *) { throw std::bad_alloc(); }) ==
          std::errc::not_enough_memory);
    fails(std::errc::no_space_on_device, "`launch` returned -28 for 1 elements from 0 on", [&] {
        codes([](std::uint64_t, std::uint64_t, void *) {
            return std::make_error_code(std::errc::no_space_on_device);
        });
    });
    cede::slice_run outer = small_run(1);
    throws(1, [&] { /* one run within another: each has its own */
                    outer([&](std::uint64_t, std::uint64_t, void *) {
                        cede::slice_run inner = small_run(1);
                        throws(2, [&] {
                            inner([](std::uint64_t, std::uint64_t, void *) { throw 2; });
                        });
                        throw 1;
                    });
    });
}

static void checkpoints_are_whole()
{
    char path[] = "/tmp/cede-cpp-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0 && unlink(path) == 0);
    int state[2] = {3, 4}, back[2] = {};
    std::error_code why;
    cede::checkpoint file(path, 7), other(path, 8), nowhere(std::string(path) + "/x", 1);
    CHECK(!file.read(back, sizeof(back)) && !file.try_read(back, sizeof(back), &why));
    CHECK(why == std::errc::no_such_file_or_directory);
    file.write(9, state, sizeof(state));
    CHECK(file.read(back, sizeof(back)) == 9U && back[1] == 4);
    fails(std::errc(ESTALE), "cede_checkpoint_read: ", [&] { other.read(back, sizeof(back)); });
    CHECK(nowhere.try_write(1, state, sizeof(state)) == std::errc::not_a_directory);
    fails(std::errc::not_a_directory,
          "cede_checkpoint_write: ", [&] { nowhere.write(1, state, sizeof(state)); });
    unlink(path);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static void *steps; /* the stream of all of them */

static int queue_node(void *stream)
{
    unsigned long long p;
    return cuMemAllocAsync(&p, 1, stream);
}

static void a_step_becomes_graphs()
{
    unsigned calls = 0, last = 0;
    cede::graph_config c, bad;
    c.max_batch = 4;
    bad.warmups = 1001;
    auto step = [&](void *s, unsigned n) {
        CHECK(s == steps);
        calls++;
        last = n;
        return queue_node(s);
    };
    std::error_code why;
    fails(std::errc::invalid_argument,
          "cede_graph_open: ", [&] { cede::graph_cache g(step, bad); });
    CHECK(!cede::graph_cache::try_open(step, bad, &why) && why);
    cede::graph_cache g(step, c);
    CHECK(g.launch(steps, 3) == 0 && last == 4 && g.launch(steps, 3) == 4 && g.bucket(3)->captured);
    g.prepare(steps);
    unsigned took = 99, before = calls;
    CHECK(g.statistics().graphs == 3 && !g.try_launch(steps, 1, &took) && took == 1 &&
          calls == before);
    g.changed();
    CHECK(!g.try_prepare(steps, 1) && calls == before + 1 && !g.bucket(5));
    fails(std::errc::invalid_argument, "n is 0", [&] { g.launch(steps, 0); });
    fails(std::errc::invalid_argument, "n is 5: give 0 to 4", [&] { g.prepare(steps, 5); });
    cede::graph_cache moved = std::move(g);
    CHECK(moved.launch(steps, 1) == 1 && !g.bucket(1));
    fails(std::errc::invalid_argument, "g is NULL", [&] { g.statistics(); });
    fails(std::errc::invalid_argument, "g is NULL", [&] { g.launch(steps, 1); });

    /* Another takes its place: its graphs go before its step does, with what is in that. */
    unsigned left = 99;
    cede::graph_cache *cache = nullptr;
    std::shared_ptr<void> kernels(nullptr, [&](void *) { left = cache->statistics().graphs; });
    cede::graph_cache first([kernels](void *s, unsigned) { return queue_node(s); }, c);
    cache = &first;
    kernels.reset();
    first.prepare(steps);
    CHECK(first.statistics().graphs == 3 && left == 99);
    first = cede::graph_cache(step, c);
    CHECK(left == 0);

    /* A driver's error, as an enum of it is, gives a refusal its reason. */
    enum result { ok };
    cede::graph_cache waits([](void *s, unsigned) {
        int r = queue_node(s);
        return result(r ? r : cuStreamSynchronize(s));
    });
    waits.prepare(steps, 1);
    CHECK(waits.bucket(1)->refused == CEDE_GRAPH_SYNCHRONIZES && waits.launch(steps, 1) == 0);
}

static void what_a_step_throws_comes_out()
{
    int what = 0;
    cede::graph_cache g([&](void *s, unsigned) {
        if (what)
            throw what;
        if (queue_node(s))
            throw std::runtime_error("not thrown here");
    });
    what = 1;
    throws(1, [&] { g.launch(steps, 1); });
    what = 2;
    throws(2, [&] { g.prepare(steps, 1); });
    CHECK(g.try_launch(steps, 1) == std::errc::io_error &&
          g.try_prepare(steps) == std::errc::io_error);
    what = 3; /* in a capture: it is warm */
    throws(3, [&] { g.launch(steps, 1); });
    what = 0;
    CHECK(g.launch(steps, 1) == 1);

    /* An exception in a capture that the driver refuses is not the launch's: that runs eagerly. */
    bool warm = false;
    cede::graph_cache refused([&](void *s, unsigned) -> int {
        if (warm)
            throw cuStreamSynchronize(s) ? 4 : 5;
        return queue_node(s);
    });
    CHECK(refused.launch(steps, 1) == 0);
    warm = true;
    throws(5, [&] { refused.launch(steps, 1); });
    CHECK(refused.bucket(1)->refused != CEDE_GRAPH_NOT_REFUSED);
    cede::graph_cache codes(
        [](void *, unsigned) { return std::make_error_code(std::errc::no_space_on_device); });
    fails(std::errc::no_space_on_device, "cannot run the step for a batch of 1: it returned -28",
          [&] { codes.launch(steps, 1); });
    cede::graph_cache *self = nullptr;
    cede::graph_cache inner([&](void *, unsigned) { self->launch(steps, 1); });
    self = &inner;
    fails(std::errc::device_or_resource_busy, "the step itself", [&] { inner.launch(steps, 1); });
}

/* ---- the loop -------------------------------------------------------------------------------- */

struct asked {
    std::uint64_t id = 0;
    std::int64_t input = 1; /* of the next step: a value, or a symbol of one */
    std::vector<std::int64_t> values;
    int left = 1;
};

/* For loops, where a function has nothing to do. */
constexpr auto nothing = [](auto &) {};

static cede::step_config loop_config()
{
    cede::step_config c;
    c.flags = CEDE_STEP_NO_GPU;
    return c;
}

/* Doubles each request's value, in a step of all that have joined. */
struct doubling {
    cede::futures futures;
    std::vector<asked> all;
    std::vector<std::int64_t> inputs;
    int fail = 0, errors = 0; /* which function throws: 1 to 4 */
    std::unique_ptr<cede::step_loop<asked>> loop;

    explicit doubling(unsigned n, cede::scope *in = nullptr) : futures(no_gpu()), all(n)
    {
        cede::step_config c = loop_config();
        c.batch = c.requests = n;
        c.futures = futures.handle();
        c.scope = in ? in->handle() : nullptr;
        loop = std::make_unique<cede::step_loop<asked>>(
            c, [this](cede::step<asked> &) { return schedule(); },
            [this](cede::step<asked> &s) { return launch(s); },
            [this](cede::step<asked> &s) { finish(s); },
            [this](asked *a, int reason) {
                a->left = reason;
                throw_if(4);
            });
        for (asked &a : all)
            a.id = loop->join(&a);
    }
    static cede::futures_config no_gpu()
    {
        cede::futures_config c;
        c.flags = CEDE_FUTURE_NO_GPU;
        return c;
    }
    void throw_if(int function) const
    {
        if (fail == function)
            throw function;
    }
    cede_future_array array()
    {
        return {reinterpret_cast<std::uintptr_t>(inputs.data()), 0, unsigned(inputs.size()), 8};
    }
    bool schedule()
    {
        inputs.clear();
        for (asked &a : all) {
            if (auto symbol = loop->try_add(a.id))
                inputs.push_back(*symbol ? *symbol : a.input);
        }
        throw_if(1);
        return !inputs.empty();
    }
    std::error_code launch(cede::step<asked> &s)
    {
        CHECK(s.size() == inputs.size() && s[0]->id && s.symbol(1) == s.symbol() - 1);
        throw_if(2);
        std::error_code c = futures.try_resolve(s.stream(), array());
        for (std::int64_t &i : inputs)
            i *= 2;
        return c ? c : futures.try_store(s.stream(), array(), s.symbol());
    }
    void finish(cede::step<asked> &s)
    {
        errors += bool(s.error());
        for (unsigned i = 0; i < s.size(); i++) {
            if (s.error() || s.surplus(i))
                continue;
            s[i]->values.push_back(s[i]->input = s.result(i));
            if (s[i]->values.size() == 5)
                CHECK(loop->leave(s[i]->id));
        }
        throw_if(3);
    }
};

static void the_loop_runs_steps()
{
    const std::vector<std::int64_t> powers = {2, 4, 8, 16, 32};
    doubling d(3);
    d.loop->run();
    for (asked &a : d.all)
        CHECK(a.values == powers && a.left == 0);
    cede_step_statistics s = d.loop->statistics();
    CHECK(s.joined == 3 && s.left == 3 && s.failed == 0 && s.results - s.surplus == 15);
    CHECK(d.loop->try_leave(d.all[0].id) == std::errc::no_such_file_or_directory);
    bool did = true;
    CHECK(!d.loop->once() && !d.loop->try_once(&did) && !did);

    std::error_code why;
    CHECK(!d.loop->try_add(d.all[0].id, &why) && why == std::errc::operation_not_permitted);
    cede::scope scope(0);
    asked more[4];
    for (int i = 0; i < 3; i++)
        d.loop->join(&more[i], &scope);
    fails(std::errc::no_space_on_device, "`requests` have joined", [&] { d.loop->join(more); });
    scope.cancel();
    d.loop->once();
    CHECK(more[0].left == -ECANCELED && more[3].left == 1);
    fails(std::errc::invalid_argument, "-1 us is negative",
          [&] { d.loop->join(&more[3], nullptr, -1us); });
    CHECK(d.loop->try_join(&more[3], nullptr, cede::timeout_now));
    d.loop->once();
    CHECK(more[3].left == -ETIMEDOUT);
    d.loop->join(&more[2]);
    more[2].left = 1;
    {
        cede::step_loop<asked> moved = std::move(*d.loop);
        fails(std::errc::invalid_argument, "l is NULL", [&] { d.loop->once(); });
        CHECK(moved.handle() && !d.loop->handle() && more[2].left == 1);
    }
    CHECK(more[2].left == -ECANCELED);
}

static void what_functions_of_the_loop_throw_comes_out()
{
    for (int function = 1; function <= 4; function++) {
        doubling d(2);
        d.fail = function;
        throws(function, [&] { d.loop->run(); });
        CHECK(d.errors == (function == 2)); /* `finish` has the failed step */
        d.fail = 0;
        d.loop->run();
        for (asked &a : d.all)
            CHECK(function == 2 ? a.left == -EIO : a.values.size() == 5 && a.left == 0);
        d.fail = function;
        d.all[0].id = d.loop->join(&d.all[0]);
        CHECK(function == 4 || d.loop->try_once() == std::errc::io_error ||
              (function == 3 && d.loop->try_once() == std::errc::io_error));
    } /* with 4 the destructor swallows it */
    cede::scope over(0);
    doubling d(1, &over);
    over.cancel();
    fails(std::errc::operation_canceled, "the scope is cancelled, ", [&] { d.loop->run(); });

    cede::step_config c = loop_config();
    cede::step_loop<int> *self = nullptr;
    cede::step_loop<int> inner(
        c, [&](cede::step<int> &) { return self->once(); }, nothing, nothing);
    self = &inner;
    fails(std::errc::resource_deadlock_would_occur, "a function of the program calls it",
          [&] { inner.once(); });
    cede::step_loop<int> codes(
        c, [](cede::step<int> &) { return -ENOSPC; }, nothing, nothing);
    fails(std::errc::no_space_on_device, "`schedule` returned -28", [&] { codes.once(); });
    int result = -ENOSPC;
    cede::step_loop<int> launches(
        c, [](cede::step<int> &) { return true; }, [&](cede::step<int> &) { return result; },
        nothing);
    fails(std::errc::no_space_on_device, "`launch` returned -28", [&] { launches.once(); });
    result = -ETIMEDOUT;
    fails(std::errc::io_error, "`launch` returned -110", [&] { launches.run(); });
    c.depth = 99;
    fails(std::errc::invalid_argument, "cede_step_open: depth is 99: give 1 to 4", [&] {
        cede::step_loop<int>(
            c, [](cede::step<int> &) { return false; }, nothing, nothing);
    });
}

static void futures_give_symbols()
{
    std::error_code why;
    cede::futures_config bad = doubling::no_gpu(), c = bad;
    bad.slots = 3;
    c.slots = 2;
    fails(std::errc::invalid_argument, "cede_future_open: ", [&] { cede::futures f(bad); });
    CHECK(!cede::futures::try_open(bad, &why) && why == std::errc::invalid_argument);
    auto f = cede::futures::try_open(c, &why);
    CHECK(f && !why && f->statistics().slots == 2);
    auto symbol = f->try_reserve(2);
    CHECK(symbol && !f->try_reserve(1, &why));
    CHECK(why == std::errc::resource_unavailable_try_again);
    std::int64_t values[2] = {5, 6}, out[2] = {cede_future_symbol(*symbol, 1), 3};
    const cede_future_array from = {reinterpret_cast<std::uintptr_t>(values), 0, 2, 8};
    const cede_future_array to = {reinterpret_cast<std::uintptr_t>(out), 0, 2, 8};
    CHECK(!f->try_place(nullptr, *symbol, 2) && !f->try_store_placed(nullptr, from));
    CHECK(!f->try_resolve(nullptr, to) && out[0] == 6 && out[1] == 3);
    CHECK(!f->try_release(*symbol) &&
          f->try_release(*symbol) == std::errc::no_such_file_or_directory);
    cede::futures moved = std::move(*f);
    CHECK(f->try_resolve(nullptr, to) == std::errc::invalid_argument);
}

/* A loop that takes its requests from a queue, until that is shut down. */
static void a_loop_serves_a_queue()
{
    struct guest {
        std::uint64_t id = 0;
        int steps = 0, reason = -1;
    } all[5];
    cede::queue_config qc;
    qc.batches = 2;
    cede::queue<guest> queue(qc);
    cede::step_config c = loop_config();
    c.queue = queue.handle();
    cede::step_loop<guest> *loop = nullptr;
    int gone = 0;
    cede::step_loop<guest> l(
        c,
        [&](cede::step<guest> &) {
            bool any = false;
            for (guest &a : all)
                any |= a.id && a.reason < 0 && loop->try_add(a.id);
            return any;
        },
        nothing,
        [&](cede::step<guest> &s) {
            for (unsigned i = 0; i < s.size(); i++) {
                if (!s.surplus(i) && ++s[i]->steps == 2)
                    loop->leave(s[i]->id);
            }
        },
        [&](guest *a, int reason) {
            a->reason = reason;
            if (++gone == 5)
                queue.shutdown();
        },
        [&](guest *a, std::uint64_t id, const cede_queue_batch &b) {
            a->id = id;
            CHECK(b.n == 1);
            if (a == all)
                throw 7;
        });
    loop = &l;
    for (guest &a : all)
        queue.submit(&a);
    throws(7, [&] { l.run(); });
    l.run();
    CHECK(gone == 5);
    for (const guest &a : all)
        CHECK(a.steps == 2 && a.reason == 0);
    CHECK(queue.statistics().ended == 5);
}

int main()
{
    CHECK(cuCtxPushCurrent_v2(&fake_contexts[0]) == 0 && cuStreamCreate(&steps, 1) == 0);
    slices_run_to_their_end();
    what_slices_throw_comes_out();
    checkpoints_are_whole();
    a_step_becomes_graphs();
    what_a_step_throws_comes_out();
    CHECK(cuStreamDestroy_v2(steps) == 0);
    futures_give_symbols();
    the_loop_runs_steps();
    what_functions_of_the_loop_throw_comes_out();
    a_loop_serves_a_queue();
    return 0;
}
