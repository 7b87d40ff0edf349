/* The roles' schedules, counts and output on a made-up GPU in virtual time. */
#include "../test.h"
#include "bench/load/ops.h"
#include "child.h"

#include <math.h>

#define T0 (7 * NSEC_PER_SEC)
#define US NSEC_PER_USEC
#define MS NSEC_PER_MSEC

enum { PIECES = 8192 };

/* Runs pieces one after the other; time passes only when somebody waits. */
struct fake {
    struct load_gpu base;
    uint64_t now_ns, stop_ns; /* stop_ns: when the stop request comes */
    uint64_t kernel_ns, oversleep_ns;
    uint64_t slow_piece, slow_ns;   /* this piece takes so long instead */
    uint64_t suspend_ns, resume_ns; /* nothing runs in between */
    int wrong;                      /* what verify answers */
    uint64_t n, head, most_in_flight;
    struct load_piece pieces[PIECES];
    uint64_t submit_ns[PIECES], end_ns[PIECES];
};

static int fake_submit(struct load_gpu *g, const struct load_piece *p, struct error *err)
{
    struct fake *f = (struct fake *)g;
    assert_true(f->n < PIECES);
    uint64_t start = f->now_ns;
    if (f->n && f->end_ns[f->n - 1] > start)
        start = f->end_ns[f->n - 1];
    uint64_t need = f->n == f->slow_piece && f->slow_ns ? f->slow_ns : p->kernels * f->kernel_ns;
    uint64_t end = start + need;
    if (start < f->resume_ns && end > f->suspend_ns)
        end += f->resume_ns - max_u64(start, f->suspend_ns);
    f->pieces[f->n] = *p;
    f->submit_ns[f->n] = f->now_ns;
    f->end_ns[f->n] = end;
    f->n++;
    f->most_in_flight = max_u64(f->most_in_flight, f->n - f->head);
    return 0;
}

static int fake_wait(struct load_gpu *g, uint64_t timeout_ns, struct load_done *out,
                     struct error *err)
{
    struct fake *f = (struct fake *)g;
    assert_true(f->head < f->n);
    uint64_t limit = f->now_ns + timeout_ns;
    if (f->end_ns[f->head] > limit) {
        f->now_ns = limit;
        return -ETIMEDOUT;
    }
    f->now_ns = max_u64(f->now_ns, f->end_ns[f->head]);
    *out = (struct load_done){f->submit_ns[f->head], f->end_ns[f->head]};
    f->head++;
    return 0;
}

static int fake_verify(struct load_gpu *g, struct error *err)
{
    int r = ((struct fake *)g)->wrong;
    return r ? error_set(err, r, "made wrong") : 0;
}

static const struct load_ops fake_ops = {
    .name = "fake", .submit = fake_submit, .wait = fake_wait, .verify = fake_verify};

static uint64_t fake_now(void *arg)
{
    return ((struct fake *)arg)->now_ns;
}

static bool fake_stopped(void *arg)
{
    struct fake *f = arg;
    return f->now_ns >= f->stop_ns;
}

static void fake_sleep(void *arg, uint64_t ns)
{
    struct fake *f = arg;
    assert_true(ns > f->now_ns); /* no busy loop */
    f->now_ns = ns + f->oversleep_ns;
}

static struct fake the_fake, *const f = &the_fake; /* of the test that runs */
static json_t *lines;                              /* that its last run put out */

static int renew(void **state)
{
    json_decref(lines);
    lines = NULL;
    the_fake = (struct fake){.base = {.ops = &fake_ops, .depth = 8},
                             .now_ns = T0,
                             .stop_ns = UINT64_MAX,
                             .kernel_ns = 100 * US};
    return 0;
}

/* All lines of output as an array; the last is the final object. */
static void run_wrong(const struct load_options *o, int want, struct load_run *out)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    const struct load_env env = {fake_now, fake_sleep, fake_stopped, f, file};
    struct load_run r = {.o = o, .gpu = &f->base, .env = &env};
    struct error err = {""};
    int got = o->role == LOAD_LATENCY ? load_run_latency(&r, &err) : load_run_batch(&r, &err);
    fclose(file);
    assert_int_equal(got, want);
    assert_true((got == 0) == (err.text[0] == '\0'));
    json_decref(lines);
    lines = json_array();
    for (char *save = NULL, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        json_t *line = json_loads(l, 0, NULL);
        assert_non_null(line);
        json_array_append_new(lines, line);
    }
    free(text);
    assert_true(json_array_size(lines) > 0);
    if (out)
        *out = r;
}

#define LATENCY  .role = LOAD_LATENCY, .kernel_us = 100, .sm_fraction = 1
#define PERIODIC LATENCY, .period_us = 1000, .kernels = 1
#define BATCH    .role = LOAD_BATCH, .sm_fraction = 1
#define RUN(...) run_wrong(&(struct load_options){__VA_ARGS__}, 0, NULL)

static const json_t *last(void)
{
    return json_array_get(lines, json_array_size(lines) - 1);
}

/* Equal but for what adding and printing in decimal may lose. */
static bool near(double a, double b)
{
    return fabs(a - b) < 1e-6;
}

static void told(const char *says)
{
    json_says(last(), says);
}

#define LOAD_TEST(name) TEST_WITH(name, renew, renew)

/* One request takes 5 ms, and those that were due meanwhile queue up behind it. */
LOAD_TEST(open_loop_keeps_the_schedule)
{
    f->slow_piece = 3;
    f->slow_ns = 5 * MS;
    RUN(PERIODIC, .open = true, .requests = 20);
    assert_int_equal(f->n, 20);
    for (uint64_t i = 0; i < f->n; i++)
        assert_int_equal(f->submit_ns[i], T0 + i * MS);
    assert_int_equal(f->most_in_flight, 5);
    /* 5000, and behind it 4100, 3200, 2300, 1400, 500; the rest 100. */
    told("max_us 5000 p50_us 100 mean_us 895 late 5");
}

/* The schedule is the seed's alone: a GPU that answers late changes when nothing is due. */
LOAD_TEST(poisson_arrivals)
{
    enum { REQUESTS = 4000 };
    static uint64_t first[REQUESTS];
    for (int i = 0; i < 3; i++) {
        renew(fixture);
        f->kernel_ns = i == 1 ? 500 * US : 1 * US;
        RUN(PERIODIC, .open = true, .poisson = true, .requests = REQUESTS, .seed = i == 2);
        assert_int_equal(f->n, REQUESTS);
        double sum = 0, squares = 0;
        for (uint64_t j = 1; j < f->n; j++) {
            double gap = (double)(f->submit_ns[j] - f->submit_ns[j - 1]) / (double)MS;
            sum += gap;
            squares += gap * gap;
        }
        /* An exponential distribution: mean 1 ms, mean square 2. */
        assert_true(fabs(sum / REQUESTS - 1) < 0.08 && fabs(squares / REQUESTS - 2) < 0.4);
        if (i == 0)
            memcpy(first, f->submit_ns, sizeof(first));
        assert_int_equal(memcmp(first, f->submit_ns, sizeof(first)) == 0, i != 2);
        assert_int_equal(first[REQUESTS - 1] == f->submit_ns[REQUESTS - 1], i != 2);
        /* Of a queue at half load (M/D/1): 500 us of service and 250 of waiting on average. */
        if (i == 1)
            assert_true(fabs(json_number(last(), "mean_us") - 750) < 75);
    }
}

LOAD_TEST(histogram_holds_every_request)
{
    f->slow_piece = 30;
    f->slow_ns = 900 * US;
    RUN(PERIODIC, .requests = 50);
    const json_t *h = json_object_get(last(), "histogram");
    assert_int_equal(json_array_size(h), 2);
    for (size_t i = 0; i < 2; i++) {
        double bound = json_number_value(json_array_get(json_array_get(h, i), 0));
        double value = i ? 900 : 100;
        assert_int_equal(json_integer_value(json_array_get(json_array_get(h, i), 1)), i ? 1 : 49);
        assert_true(value < bound && bound <= value * 17 / 16);
    }
}

TEST(percentiles)
{
    int64_t v[1000];
    for (int i = 0; i < 1000; i++)
        v[i] = i + 1;
    static const struct {
        size_t n;
        unsigned permille;
        int64_t rank;
    } t[] = {
        {1, 1, 1},       {1, 500, 1},      {1, 1000, 1},     {2, 500, 1},        {2, 501, 2},
        {5, 500, 3},     {10, 900, 9},     {10, 990, 10},    {100, 990, 99},     {100, 999, 100},
        {101, 990, 100}, {1000, 999, 999}, {1000, 990, 990}, {1000, 1000, 1000},
    };
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        const struct load_samples s = {.v = v, .n = t[i].n};
        assert_int_equal(load_percentile(&s, t[i].permille), t[i].rank);
    }
}

LOAD_TEST(one_request_a_period)
{
    RUN(PERIODIC, .requests = 10, .name = "web");
    assert_int_equal(f->n, 10);
    for (uint64_t i = 0; i < f->n; i++)
        assert_int_equal(f->submit_ns[i], T0 + i * MS);
    assert_int_equal(json_array_size(lines), 1);
    static const char *const texts[][2] = {
        {"role", "latency"}, {"device", "fake"}, {"name", "web"}};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        assert_string_equal(json_string_value(json_object_get(last(), texts[i][0])), texts[i][1]);
    assert_true(json_is_null(json_object_get(last(), "verified")));
    told("p50_us 100 p90_us 100 p99_us 100 p999_us 100 max_us 100 mean_us 100");
    told("requests 10 late 0 seconds 0.0091");
}

/* A slow request delays those due meanwhile; they follow without a pause, each counted from its
 * own issue, until the schedule is caught up with. */
LOAD_TEST(closed_loop_catches_up)
{
    f->slow_piece = 2;
    f->slow_ns = 3500 * US; /* from 2000 to 5500: requests 3, 4 and 5 wait */
    RUN(PERIODIC, .requests = 10);
    static const uint64_t issued_us[] = {0, 1000, 2000, 5500, 5600, 5700, 6000, 7000, 8000, 9000};
    for (size_t i = 0; i < ARRAY_SIZE(issued_us); i++)
        assert_int_equal(f->submit_ns[i], T0 + issued_us[i] * US);
    told("late 3 p90_us 100 max_us 3500");
}

LOAD_TEST(kernels_and_gaps)
{
#define COPIES LATENCY, .period_us = 1000, .requests = 10, .kernels = 3, .copy_bytes = 4096
    f->oversleep_ns = 30 * US;
    RUN(COPIES, .gap_us = 50);
    assert_int_equal(f->n, 30);
    for (uint64_t i = 0; i < 30; i++) {
        assert_int_equal(f->pieces[i].kernels, 1);
        assert_int_equal(f->pieces[i].copy_in, i % 3 == 0);
        assert_int_equal(f->pieces[i].copy_out, i % 3 == 2);
    }
    assert_int_equal(f->submit_ns[1] - f->end_ns[0], 80 * US);
    /* 3 kernels and 2 gaps as asked for, however late the host woke up. */
    told("max_us 400 p50_us 400");

    renew(fixture);
    RUN(COPIES);
    assert_int_equal(f->n, 10);
    assert_true(f->pieces[9].kernels == 3 && f->pieces[9].copy_in && f->pieces[9].copy_out);
    told("p50_us 300");
}

/* Steps of a launch-bound program: one piece each, whose host's work begins when the step before
 * has ended. */
LOAD_TEST(closed_loop_of_launches)
{
    f->slow_piece = 4;
    f->slow_ns = 900 * US;
    RUN(LATENCY, .requests = 10, .kernels = 3, .launch_us = 40);
    assert_int_equal(f->n, 10);
    for (uint64_t i = 0; i < f->n; i++) {
        assert_int_equal(f->pieces[i].kernels, 3);
        assert_int_equal(f->pieces[i].launch_ns, 40 * US);
        assert_int_equal(f->pieces[i].from_ns, i ? f->end_ns[i - 1] : T0);
    }
    told("p50_us 300 max_us 900 late 0");
    assert_true(near(json_number(last(), "rate"), 10 / 3.6e-3));
}

LOAD_TEST(latency_live_lines)
{
    RUN(PERIODIC, .seconds = 0.1, .report_ms = 7);
    size_t seen = 0;
    assert_int_equal(json_array_size(lines), 14 + 1);
    for (size_t i = 0; i < 14; i++) {
        const json_t *l = json_array_get(lines, i), *list = json_object_get(l, "latencies_us");
        seen += json_array_size(list);
        assert_int_equal(seen, 7 * (i + 1));
        assert_int_equal(json_number(l, "requests"), seen);
        assert_true(near(json_number(l, "t"), 7.0 + 0.007 * (double)(i + 1)));
        assert_true(near(json_number_value(json_array_get(list, 0)), 100));
    }
    told("requests 100"); /* none at the very end */
}

LOAD_TEST(nothing_measured_is_null)
{
    f->stop_ns = T0;
    RUN(PERIODIC, .requests = 10);
    told("requests 0");
    assert_true(json_is_null(json_object_get(last(), "p50_us")));
    assert_true(json_is_null(json_object_get(last(), "mean_us")));
}

LOAD_TEST(batch_keeps_the_queue_filled)
{
    RUN(BATCH, .kernel_us = 100, .seconds = 0.1, .depth = 5);
    assert_int_equal(f->most_in_flight, 5);
    for (uint64_t i = 1; i < f->n; i++)
        assert_int_equal(f->end_ns[i] - f->end_ns[i - 1], f->kernel_ns);
    told("rate 1");
    assert_int_equal(json_number(last(), "kernels"), f->n);
    assert_true(near(json_number(last(), "work_us"), 100 * (double)f->n));
    assert_true(json_number(last(), "seconds") >= 0.1);

    renew(fixture);
    RUN(BATCH, .kernel_us = 100, .seconds = 0.1);
    assert_int_equal(f->most_in_flight, f->base.depth);
}

/* Each line's count is what had ended by its time; suspended time shows as no progress, and the
 * lines go on. */
LOAD_TEST(batch_live_lines_are_exact)
{
    f->kernel_ns = 130 * US;
    f->suspend_ns = T0 + 200 * MS;
    f->resume_ns = T0 + 600 * MS;
    RUN(BATCH, .kernel_us = 130, .seconds = 1, .report_ms = 10);
    size_t n = json_array_size(lines) - 1, idle = 0;
    assert_int_equal(n, 100);
    uint64_t before = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *l = json_array_get(lines, i);
        uint64_t t = T0 + (i + 1) * 10 * MS, ended = 0;
        assert_true(near(json_number(l, "t"), (double)t / 1e9));
        while (ended < f->n && f->end_ns[ended] <= t)
            ended++;
        assert_int_equal(json_number(l, "kernels"), ended);
        assert_true(near(json_number(l, "work_us"), 130 * (double)ended));
        idle += ended == before;
        before = ended;
    }
    assert_int_equal(idle, 40);
    double rate = json_number(last(), "rate");
    assert_true(rate > 0.59 && rate < 0.61);
}

/* All of a burst at once, nothing before it has ended and the host has done its work; lines go on
 * through that. */
LOAD_TEST(batch_in_bursts)
{
    RUN(BATCH, .kernel_us = 100, .seconds = 0.1, .burst = 4, .depth = 4, .host_us = 1600,
        .report_ms = 10);
    assert_int_equal(f->most_in_flight, 4);
    for (uint64_t i = 0; i < f->n; i++)
        assert_int_equal(f->submit_ns[i], T0 + i / 4 * 2 * MS);
    assert_int_equal(json_array_size(lines), 10);
    for (size_t i = 0; i < 9; i++)
        assert_int_equal(json_number(json_array_get(lines, i), "rounds"), 5 * (i + 1));
    told("rounds 50 kernels 200");
}

LOAD_TEST(stop_drains)
{
    struct load_run r;
    f->stop_ns = T0 + 5 * MS + 1;
    run_wrong(&(struct load_options){BATCH, .kernel_us = 100, .verify = true}, 0, &r);
    assert_false(r.abandoned);
    assert_int_equal(f->head, f->n);
    assert_int_equal(f->n, 50 + 8);
    assert_true(json_is_true(json_object_get(last(), "verified")));
}

/* A program that is suspended for good still ends soon after it is told to. */
LOAD_TEST(stop_while_suspended)
{
    static const struct load_options roles[] = {
        {LATENCY, .kernels = 1, .period_us = 300, .verify = true},
        {BATCH, .kernel_us = 100, .verify = true}};
    for (int i = 0; i < 2; i++) {
        struct load_run r;
        renew(fixture);
        f->suspend_ns = T0 + 10 * MS;
        f->resume_ns = T0 + 3600 * NSEC_PER_SEC;
        f->stop_ns = T0 + 100 * MS;
        run_wrong(&roles[i], 0, &r);
        assert_true(r.abandoned);
        assert_true(f->now_ns <= f->stop_ns + 2 * NSEC_PER_SEC + 200 * MS);
        assert_true(json_is_null(json_object_get(last(), "verified")));
        assert_true(json_number(last(), i ? "kernels" : "requests") > 0);
    }
}

LOAD_TEST(wrong_result_is_told)
{
    f->wrong = -EBADMSG;
    run_wrong(&(struct load_options){PERIODIC, .requests = 10, .verify = true}, -EBADMSG, NULL);
    assert_true(json_is_false(json_object_get(last(), "verified")));
}

LOAD_TEST(full_disk_is_an_error)
{
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    const struct load_env env = {fake_now, fake_sleep, fake_stopped, f, full};
    const struct load_options o = {BATCH, .kernel_us = 100, .seconds = 0.1, .report_ms = 10};
    struct load_run r = {.o = &o, .gpu = &f->base, .env = &env};
    struct error err = {""};
    assert_int_equal(load_run_batch(&r, &err), -EIO);
    assert_non_null(strstr(err.text, "standard output"));
    fclose(full);
}
