/* cede/cede.hpp on stand-ins for libcuda and libnvidia-ml, whose folder has to be in
 * LD_LIBRARY_PATH: what is given back and when, moved-from objects, what exceptions say, hostile
 * values. Not what the calls of libcede do: the tests in C have that. */
#include "cede/cede.hpp"

#include <atomic>
#include <climits>
#include <ios>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "check.hpp"

using namespace std::chrono_literals;

static_assert(move_only<cede::client> && move_only<cede::pool> && move_only<cede::lease>);
static_assert(move_only<cede::queue<int>> && move_only<cede::batch<int>> && move_only<cede::scope>);
static_assert(!std::is_move_constructible_v<cede::request>);
static_assert(!std::is_polymorphic_v<cede::client> && !std::is_polymorphic_v<cede::scope>);
static_assert(sizeof(cede::pool) == sizeof(void *) && sizeof(cede::lease) == sizeof(::cede_lease));
static_assert(std::is_base_of_v<std::system_error, cede::refused>);

static cede::pool_config small_pool(unsigned leases)
{
    cede::pool_config c;
    c.devices = 1;
    c.max_concurrent_streams = leases;
    c.target_utilization_percent = 100;
    return c;
}

static cede::memory_config small_memory()
{
    cede::memory_config c;
    c.flags = CEDE_MEMORY_NO_GPU;
    c.total_bytes = 1000;
    return c;
}

static unsigned held(const cede::pool &p)
{
    return p.statistics().active;
}

static void requests_end_with_their_block()
{
    cede::client c;
    throws(1, [&] {
        cede::request r(c, 1ms, 1h);
        CHECK(c.statistics().begun == 1 && c.statistics().ended == 0);
        throw 1;
    });
    CHECK(c.statistics().ended == 1 && c.statistics().deadlines_met == 1);
    std::optional<cede::request> r;
    r.emplace(c, 0us, -1us); /* has passed, which is not `none` */
    CHECK(!r->try_queued() && !r->try_end() && r->try_end() == std::errc::invalid_argument);
    r.reset();
    CHECK(c.statistics().ended == 2 && c.statistics().with_deadline == 2);
    fails(std::errc::invalid_argument, "cede_set_weight: weight is 0: give 1 to 10000",
          [&] { c.set_weight(0); });
    fails(std::errc::invalid_argument, "cede_set_class: cls is 77: give ",
          [&] { c.set_class(cede::job_class(77)); });
    CHECK(!c.try_set_class(cede::job_class::batch) && !c.connected() && !c.wanted());
    CHECK(c.share() == 1);
    CHECK(c.try_job_yield(CEDE_YIELD_MEMORY) == std::errc::not_connected);
    CHECK(!c.try_job_acquire());
    c.job_acquire(0us); /* nothing is withheld */
    cede::client d = std::move(c);
    CHECK(d.statistics().ended == 2 && c.handle() == nullptr && c.statistics().ended == 0);
    cede::request on_nothing(c);
    CHECK(!c.try_set_class(cede::job_class::latency));
    CHECK(cede::client::try_connect().has_value());
}

static void leases_are_given_back_on_exceptions()
{
    cede::pool p(small_pool(1));
    throws(1, [&] {
        cede::lease l = p.acquire();
        CHECK(held(p) == 1 && l && l.device() == 0 && l.stream());
        throw 1;
    });
    CHECK(held(p) == 0);
    std::error_code why;
    cede::lease a = p.acquire();
    CHECK(!p.try_acquire(nullptr, {}, 0, -5s, &why) && why == std::errc::invalid_argument);
    CHECK(!p.try_acquire(nullptr, {}, 0, cede::timeout_now, &why));
    CHECK(why == std::errc::resource_unavailable_try_again);
    CHECK(!p.try_acquire(nullptr, {}, 0, 1ms, &why) && why == std::errc::timed_out);
    cede::lease b = std::move(a);
    CHECK(!a && a.device() == -1 && !a.stream() && held(p) == 1);
    fails(std::errc::invalid_argument, "the lease is all 0", [&] { a.release(); });
    cede::lease &same = b;
    b = std::move(same);
    CHECK(b && held(p) == 1);
    b = cede::lease();
    CHECK(!b && held(p) == 0);
    std::vector<cede::lease> some;
    some.push_back(p.acquire());
    some.reserve(100);
    CHECK(held(p) == 1 && some[0]);
}

static void a_lease_may_outlive_its_pool()
{
    std::optional<cede::pool> p(small_pool(1));
    cede::lease late = p->acquire();
    p.reset();
    p.emplace(small_pool(1)); /* has the place of the former one */
    cede::lease now = p->acquire();
    CHECK(late && late.try_release() == std::errc(ESTALE) && held(*p) == 1);
    cede::pool moved = std::move(*p);
    CHECK(held(moved) == 1);
    fails(std::errc::invalid_argument, "is no pool", [&] { p->statistics(); });
    fails(std::errc::invalid_argument, "is no pool", [&] { auto l = p->acquire(); });
}

static void memory_is_given_back()
{
    cede::memory_config bad;
    bad.reserve_fraction = 2;
    fails(std::errc::invalid_argument, "cede_memory_open: ", [&] { cede::memory m(bad); });
    cede::reservation late;
    {
        cede::memory m(small_memory());
        CHECK(m.can_allocate(900) && !m.can_allocate(901) && m.pressure() == CEDE_PRESSURE_LOW);
        CHECK(!cede::memory::try_open(bad) && !m.try_allocate(1));
        throws(1, [&] {
            cede::reservation r = m.reserve(800, 0us);
            CHECK(r && r.bytes() == 800 && m.statistics().promised_bytes == 800);
            CHECK(!m.try_reserve(200) && m.pressure() == CEDE_PRESSURE_HIGH);
            fails(std::errc::not_enough_memory,
                  "cede_memory_reserve: no room for 200 bytes (there is 100 bytes, ",
                  [&] { auto none = m.reserve(200, 0us); });
            fails(std::errc::not_enough_memory,
                  "never room for 2.00 KiB: ask for at most 900 bytes; GPU 0: there is ",
                  [&] { auto none = m.reserve(2048, 0us); });
            cede::reservation moved = std::move(r);
            CHECK(!r && moved);
            throw 1;
        });
        CHECK(m.can_allocate(900));
        fails(std::errc::no_such_device, "cede_memory_allocate", [&] { auto a = m.allocate(10); });
        late = m.reserve(100);
        cede::memory other = std::move(m);
        CHECK(!m.can_allocate(1) && other.can_allocate(800));
    }
    CHECK(late.try_release().value() == ESTALE && late.try_release().value() == EINVAL);
    CHECK(!cede::allocation());
}

static void a_lease_has_its_memory()
{
    cede::memory m(small_memory());
    cede::pool p(small_pool(1));
    cede::shape large, small;
    large.memory_bytes = 800;
    small.memory_bytes = 100; /* of which there is enough; of leases there is not */
    std::error_code why;
    cede::memory_lease kept;
    CHECK(!kept.lease && !kept.room);
    throws(1, [&] {
        cede::memory_lease l = m.acquire(p, nullptr, large, {{4096, 50, CEDE_RANGE_READ_MOSTLY}});
        CHECK(l.lease.stream() && l.room.bytes() == 800 && held(p) == 1);
        CHECK(m.statistics().promised_bytes == 800 && m.statistics().skipped_ranges == 1);
        fails(std::errc::not_enough_memory, "cede_memory_acquire: no room for 800 bytes (",
              [&] { auto none = m.acquire(p, nullptr, large, {}, 0us); });
        CHECK(!m.try_acquire(p, nullptr, small, {}, 0us, &why));
        CHECK(why == std::errc::resource_unavailable_try_again);
        kept = std::move(l);
        CHECK(!l.lease && !l.room);
        throw 1;
    });
    CHECK(held(p) == 1 && m.statistics().promised_bytes == 800);
    kept = {};
    CHECK(held(p) == 0 && m.statistics().promised_bytes == 0);
    fails(std::errc::invalid_argument, "CEDE_RANGES_MAX",
          [&] { auto none = m.acquire(p, nullptr, {}, std::vector<cede_range>(65)); });
    cede::memory other = std::move(m);
    fails(std::errc::invalid_argument, "is no handle", [&] { auto none = m.acquire(p); });
    CHECK(other.try_acquire(p) && other.need(nullptr) == 0);
}

/* A queue whose batches get no lease has more to say than that it has no batch. */
static void a_queue_says_what_its_pool_lacks()
{
    cede::pool_config one_lease = small_pool(2);
    one_lease.capacity = 1;
    cede::pool p(one_lease);
    cede::queue_config c;
    c.pool = p.handle();
    cede::queue<int> q(c);
    int one = 1;
    std::error_code why;
    fails(std::errc::no_such_file_or_directory, "the pool knows no kernel 'gem': register it first",
          [&] { q.set_lease(0, "gem"); });
    p.occupancy("gem", 0.3);
    q.set_lease(0, "gem");
    q.submit(&one);
    {
        cede::lease only = p.acquire();
        fails(std::errc::no_space_on_device, "cede_queue_next: ", [&] { q.next(); });
        CHECK(!q.try_next(0, 0us, &why) && why == std::errc::no_space_on_device);
    }
    auto b = q.next();
    void *stream = b->stream();
    cede::batch<int> moved = std::move(*b);
    CHECK(stream && !b->stream() && moved.stream() == stream);
    *b = std::move(moved);
    CHECK(b->stream() == stream && !moved.stream() && !b->try_done() && !b->stream());
}

static void errors_say_what_was_wrong()
{
    cede::pool_config many = small_pool(1), none;
    many.devices = 3;
    none.size = 7;
    std::error_code why;
    fails(std::errc::no_such_device, "devices is 3: give 0 to 2, ", [&] { cede::pool p(many); });
    CHECK(!cede::pool::try_open(none, &why) && why == std::errc::invalid_argument);
    auto p = cede::pool::try_open(small_pool(2), &why);
    CHECK(p && !why);
    p->occupancy("gemm", 0.3);
    p->kernel("conv", reinterpret_cast<void *>(2));
    CHECK(p->profile("gemm").occupancy > 0.29 && p->profile("gemm").occupancy < 0.31);
    fails(std::errc::no_such_file_or_directory, "cede_pool_profile",
          [&] { (void)p->profile("x"); });
    fails(std::errc::invalid_argument, "cede_pool_occupancy", [&] { p->occupancy("x", 1.1); });
    fails(std::errc::invalid_argument, "cede_pool_kernel", [&] { p->kernel(nullptr, nullptr); });
    fails(std::errc::no_such_file_or_directory, "the pool knows no kernel 'gem'",
          [&] { auto l = p->acquire("gem"); });
    fails(std::errc::invalid_argument, "without threads", [&] { auto l = p->acquire("conv"); });
    for (int device : {1, cede::only_device(-1), cede::only_device(0x10000)})
        CHECK(!p->try_acquire("gemm", {}, device, 0us, &why) && why == std::errc::invalid_argument);
    cede::shape due;
    due.due = -1us;
    cede::lease first = p->acquire(), urgent = p->acquire("gemm", due);
    CHECK(urgent.urgent() && !urgent.wanted() && !cede::lease().wanted());
}

static void a_scope_waits_for_its_tasks()
{
    cede::pool p(small_pool(4));
    std::atomic<int> ran{0};
    cede::scope s(2);
    auto only_moved = std::make_unique<int>(5);
    s.fork([&ran, n = std::move(only_moved)] { ran += *n; });
    s.fork([&] { s.fork([&] { ran += 100; }); });
    s.fork([&] {
        cede::lease l = p.acquire();
        std::thread([kept = std::move(l)] {}).join();
        ran += held(p) == 0 ? 1000 : 0;
    });
    s.fork([&]() -> std::error_code { return s.try_join(); }); /* EDEADLK: fails, does not hang */
    fails(std::errc::io_error, "cede_scope_join: ", [&] { s.join(); });
    CHECK(s.try_join() == std::errc::io_error);
    fails(std::errc::device_or_resource_busy, "was joined", [&] { s.fork([] {}); });

    cede::scope t(0);
    t.fork([&ran] { ran = 1; });
    cede::scope u = std::move(t);
    t.join();
    CHECK(t.try_fork([] {}) == std::errc::invalid_argument && !t.cancelled());
    u.join();
    CHECK(ran == 1);
    cede::lease left;
    cede::scope v(0);
    v.fork([&] { left = p.acquire(); });
    v.join();
    CHECK(left.try_release() == std::errc(ESTALE) && held(p) == 0);
}

static void the_first_exception_comes_out()
{
    std::atomic<int> alive{0}, ran{0};
    auto counted = [](std::atomic<int> *n) {
        ++*n;
        return std::unique_ptr<std::atomic<int>, void (*)(std::atomic<int> *)>(
            n, [](std::atomic<int> *c) { --*c; });
    };
    cede::scope s(0);
    s.fork([c = counted(&alive)] { throw std::string("the model is gone"); });
    for (int i = 0; i < 5; i++)
        s.fork([&ran, c = counted(&alive)] { ran++; });
    CHECK(alive == 6);
    for (int i = 0; i < 2; i++) {
        throws(std::string("the model is gone"), [&] { s.join(); });
        CHECK(alive == 0 && ran == 0); /* those that never began are gone too */
    }
    cede::scope forks(1);
    throws(std::string("the model is gone"), [&] {
        for (;;)
            forks.fork([] { throw std::string("the model is gone"); });
    });
    cede::scope deadlock(0);
    deadlock.fork([&] { deadlock.join(); });
    fails(std::errc::resource_deadlock_would_occur, "a task of the scope calls it",
          [&] { deadlock.join(); });
    cede::scope other(0);
    other.fork([] { return std::error_code(ENOSPC, std::iostream_category()); });
    CHECK(other.try_join() == std::errc::io_error); /* a value of another category */
    for (int r : {-ENOSPC, -EDEADLK, INT_MIN}) {
        cede::scope x(0);
        x.fork([r] { return r; });
        CHECK(x.try_join() == (r == -ENOSPC ? std::errc::no_space_on_device : std::errc::io_error));
    }
}

static void a_scope_that_goes_cancels_its_children()
{
    cede::pool p(small_pool(1));
    cede::lease all = p.acquire();
    std::atomic<bool> began{false};
    std::error_code why;
    throws(1, [&] {
        cede::scope parent(1);
        parent.fork([&] {
            cede::scope child(parent, 0);
            child.fork([&] {
                began = true;
                static_cast<void>(p.try_acquire(nullptr, {}, 0, cede::timeout_forever, &why));
            });
            static_cast<void>(child.try_join());
        });
        while (!began)
            std::this_thread::yield();
        throw 1;
    });
    CHECK(why == std::errc::operation_canceled && held(p) == 1);

    fails(std::errc::invalid_argument, "threads is 1025: give at most 1024",
          [] { cede::scope s(1025); });
    fails(std::errc::invalid_argument, "-5 us is negative", [] { cede::scope s(0, -5us); });
    CHECK(!cede::scope::try_open(nullptr, 1025) &&
          std::strstr(cede_error_text(), "threads is 1025"));
    cede::scope from(0), to = std::move(from);
    fails(std::errc::invalid_argument, "the parent is empty", [&] { cede::scope s(from, 0); });
    CHECK(!cede::scope::try_open(&from, 0, cede::timeout_forever, &why) && why);
    fails(std::errc::invalid_argument, "cede_scope_fork: s is NULL", [&] { from.fork([] {}); });
    static_cast<void>(cede::scope(0, cede::timeout_default).try_join());
    cede::scope late(0, cede::timeout_now);
    fails(std::errc::timed_out, "time-out has passed", [&] { late.fork([] {}); });
    CHECK(late.try_join() == std::errc::timed_out);
    to.cancel();
    CHECK(to.cancelled());
    fails(std::errc::operation_canceled, "cancelled", [&] { to.join(); });
}

static void the_queue_hands_back_what_was_submitted()
{
    cede::queue_config c, bad;
    bad.quantile = 2;
    c.admit = 1;
    c.capacity = 2;
    c.batch_wait_us = 0;
    c.expected_us = 1000;
    std::error_code why;
    fails(std::errc::invalid_argument, "cede_queue_open", [&] { cede::queue<int> q(bad); });
    cede::queue<int> q(c);
    int one = 1, two = 2, three = 3;
    cede::admission a, tight;
    tight.deadline = -1s;
    q.submit(&one); /* an idle queue would take it all the same */
    fails(std::errc::device_or_resource_busy, "even if it ran at once",
          [&] { q.submit(&one, tight); });
    try {
        q.submit(&one, tight);
    } catch (const cede::refused &e) {
        CHECK(e.answer() == CEDE_QUEUE_ALONE);
    }
    auto second = q.submit(&two, a);
    auto full = q.try_submit(&three, a, &why);
    CHECK(full && full->id == 0 && full->answer == CEDE_QUEUE_FULL);
    CHECK(why == std::errc::device_or_resource_busy);
    a.device = 64;
    fails(std::errc::invalid_argument, "cede_queue_submit: ", [&] { q.submit(&three, a); });
    CHECK(!q.try_submit(&three, a, &why) && why == std::errc::invalid_argument);
    fails(std::errc::invalid_argument, "device is 1: give 0", [&] { q.next(1); });
    CHECK(q.cancel(second) && q.try_cancel(second) == std::errc::no_such_file_or_directory);
    throws(1, [&] {
        auto b = q.next();
        CHECK(b && b->size() == 1);
        for (int *i : *b)
            CHECK(i == &one);
        cede::batch<int> moved = std::move(*b);
        CHECK(b->size() == 0 && b->try_done() == std::errc::invalid_argument && moved.size() == 1);
        CHECK(q.statistics().running == 1 && !q.try_next(0, 0us, &why));
        throw 1;
    });
    CHECK(q.statistics().failed == 1 && q.statistics().running == 0);
    q.submit(&two);
    auto b = q.next();
    CHECK(b && !b->try_done() && b->try_done() && q.statistics().ended == 1);
    q.submit(&two);
    CHECK(!q.next()->try_done(true) && q.statistics().failed == 2);
    q.submit(&three);
    q.shutdown();
    fails(std::errc(ESHUTDOWN), "shut down", [&] { q.submit(&one); });
    int *left = nullptr;
    q.reclaim([&](int *i) { left = i; });
    CHECK(left == &three && !q.next());
    cede::queue<int> r = std::move(q);
    CHECK(r.statistics().ended == 1);
    fails(std::errc::invalid_argument, "q is NULL", [&] { q.submit(&one); });
    fails(std::errc::invalid_argument, "cede_queue_next: q is NULL", [&] { q.next(); });
}

/* Destructors leave alone there what the parent's threads use. */
static void a_child_may_leave_the_block()
{
    ::pid_t child;
    {
        cede::queue<int> q;
        cede::scope s(1);
        std::atomic<bool> asks{false};
        s.fork([&] {
            asks = true;
            q.next();
        });
        while (!asks)
            std::this_thread::yield();
        std::this_thread::sleep_for(1ms); /* it waits there */
        child = ::fork();
        child ? q.shutdown() : static_cast<void>(::alarm(5));
    }
    if (!child)
        ::_exit(0);
    int status = 1;
    CHECK(::waitpid(child, &status, 0) == child && status == 0);
}

int main()
{
    requests_end_with_their_block();
    leases_are_given_back_on_exceptions();
    memory_is_given_back();
    a_lease_has_its_memory();
    a_lease_may_outlive_its_pool();
    a_queue_says_what_its_pool_lacks();
    errors_say_what_was_wrong();
    a_scope_waits_for_its_tasks();
    the_first_exception_comes_out();
    a_scope_that_goes_cancels_its_children();
    the_queue_hands_back_what_was_submitted();
    a_child_may_leave_the_block();
    return 0;
}
