/* The roles' schedules, counts and output on a made-up GPU in virtual time. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "load/ops.h"

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

static struct fake *new_fake(void)
{
    struct fake *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->base.ops = &fake_ops;
    f->base.depth = 8;
    f->now_ns = T0;
    f->stop_ns = UINT64_MAX;
    f->kernel_ns = 100 * US;
    return f;
}

/* Runs and returns all lines of output as an array; the last is the final object. */
static json_t *run(struct fake *f, const struct load_options *o, int want, struct load_run *out)
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
    json_t *lines = json_array();
    for (char *save = NULL, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        json_t *line = json_loads(l, 0, NULL);
        assert_non_null(line);
        json_array_append_new(lines, line);
    }
    free(text);
    assert_true(json_array_size(lines) > 0);
    if (out)
        *out = r;
    return lines;
}

static const json_t *last(const json_t *lines)
{
    return json_array_get(lines, json_array_size(lines) - 1);
}

static double number(const json_t *line, const char *key)
{
    const json_t *v = json_object_get(line, key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

/* Equal but for what adding and printing in decimal may lose. */
static bool near(double a, double b)
{
    return fabs(a - b) < 1e-6;
}

static struct load_options latency_options(void)
{
    return (struct load_options){.role = LOAD_LATENCY,
                                 .kernel_us = 100,
                                 .sm_fraction = 1,
                                 .period_us = 1000,
                                 .kernels = 1,
                                 .requests = 10};
}

/* One request takes 5 ms, and those that were due meanwhile queue up behind it. */
static void open_loop_keeps_the_schedule(void **state)
{
    struct fake *f = new_fake();
    struct load_options o = latency_options();
    o.open = true;
    o.requests = 20;
    f->slow_piece = 3;
    f->slow_ns = 5 * MS;
    json_t *lines = run(f, &o, 0, NULL);
    assert_int_equal(f->n, 20);
    for (uint64_t i = 0; i < f->n; i++)
        assert_int_equal(f->submit_ns[i], T0 + i * MS);
    assert_int_equal(f->most_in_flight, 5);
    /* 5000, and behind it 4100, 3200, 2300, 1400, 500; the rest 100. */
    assert_true(near(number(last(lines), "max_us"), 5000));
    assert_true(near(number(last(lines), "p50_us"), 100));
    assert_true(near(number(last(lines), "mean_us"),
                     (5000 + 4100 + 3200 + 2300 + 1400 + 500 + 1400) / 20.0));
    assert_true(near(number(last(lines), "late"), 5));
    json_decref(lines);
    free(f);
}

/* The schedule is the seed's alone: a GPU that answers late changes when nothing is due. */
static void poisson_arrivals(void **state)
{
    enum { N = 4000 };
    static uint64_t first[N];
    struct load_options o = latency_options();
    o.open = o.poisson = true;
    o.requests = N;
    for (int i = 0; i < 3; i++) {
        struct fake *f = new_fake();
        f->kernel_ns = i == 1 ? 500 * US : 1 * US;
        f->base.wake_ns = 0;
        o.seed = i == 2;
        json_t *lines = run(f, &o, 0, NULL);
        assert_int_equal(f->n, N);
        double sum = 0, squares = 0;
        for (uint64_t j = 1; j < N; j++) {
            double gap = (double)(f->submit_ns[j] - f->submit_ns[j - 1]) / (double)MS;
            sum += gap;
            squares += gap * gap;
        }
        /* An exponential distribution: mean 1 ms, mean square 2. */
        assert_true(fabs(sum / N - 1) < 0.08 && fabs(squares / N - 2) < 0.4);
        for (uint64_t j = 0; j < N; j++) {
            if (i == 0)
                first[j] = f->submit_ns[j];
            else if (i == 1)
                assert_int_equal(first[j], f->submit_ns[j]);
        }
        assert_true((f->submit_ns[N - 1] == first[N - 1]) == (i != 2));
        /* Of a queue at half load (M/D/1): 500 us of service and 250 of waiting on average. */
        if (i == 1)
            assert_true(fabs(number(last(lines), "mean_us") - 750) < 75);
        json_decref(lines);
        free(f);
    }
}

static void histogram_holds_every_request(void **state)
{
    struct fake *f = new_fake();
    struct load_options o = latency_options();
    o.requests = 50;
    f->slow_piece = 30;
    f->slow_ns = 900 * US;
    json_t *lines = run(f, &o, 0, NULL);
    const json_t *h = json_object_get(last(lines), "histogram");
    assert_int_equal(json_array_size(h), 2);
    for (size_t i = 0; i < 2; i++) {
        double bound = json_number_value(json_array_get(json_array_get(h, i), 0));
        assert_int_equal(json_integer_value(json_array_get(json_array_get(h, i), 1)), i ? 1 : 49);
        double value = i ? 900 : 100;
        assert_true(value < bound && bound <= value * 17 / 16);
    }
    json_decref(lines);
    free(f);
}

static struct load_options batch_options(void)
{
    return (struct load_options){
        .role = LOAD_BATCH, .kernel_us = 100, .sm_fraction = 1, .seconds = 0.1};
}

static void percentiles(void **state)
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

static void one_request_a_period(void **state)
{
    struct fake *f = new_fake();
    struct load_options o = latency_options();
    o.name = "web";
    json_t *lines = run(f, &o, 0, NULL);
    assert_int_equal(f->n, 10);
    for (uint64_t i = 0; i < f->n; i++)
        assert_int_equal(f->submit_ns[i], T0 + i * 1000 * US);
    const json_t *l = last(lines);
    assert_int_equal(json_array_size(lines), 1);
    assert_string_equal(json_string_value(json_object_get(l, "role")), "latency");
    assert_string_equal(json_string_value(json_object_get(l, "device")), "fake");
    assert_string_equal(json_string_value(json_object_get(l, "name")), "web");
    assert_true(json_is_null(json_object_get(l, "verified")));
    static const char *const points[] = {"p50_us",  "p90_us", "p99_us",
                                         "p999_us", "max_us", "mean_us"};
    for (size_t i = 0; i < ARRAY_SIZE(points); i++)
        assert_true(near(number(l, points[i]), 100));
    assert_int_equal(number(l, "requests"), 10);
    assert_int_equal(number(l, "late"), 0);
    assert_true(near(number(l, "seconds"), 0.0091));
    json_decref(lines);
    free(f);
}

/* A slow request delays those due meanwhile; they follow without a pause, each counted from its
 * own issue, until the schedule is caught up with. */
static void closed_loop_catches_up(void **state)
{
    struct fake *f = new_fake();
    f->slow_piece = 2;
    f->slow_ns = 3500 * US; /* from 2000 to 5500: requests 3, 4 and 5 wait */
    struct load_options o = latency_options();
    json_t *lines = run(f, &o, 0, NULL);
    static const uint64_t issued_us[] = {0, 1000, 2000, 5500, 5600, 5700, 6000, 7000, 8000, 9000};
    for (size_t i = 0; i < ARRAY_SIZE(issued_us); i++)
        assert_int_equal(f->submit_ns[i], T0 + issued_us[i] * US);
    assert_int_equal(number(last(lines), "late"), 3);
    assert_true(near(number(last(lines), "p90_us"), 100));
    assert_true(near(number(last(lines), "max_us"), 3500));
    json_decref(lines);
    free(f);
}

static void kernels_and_gaps(void **state)
{
    struct fake *f = new_fake();
    f->oversleep_ns = 30 * US;
    struct load_options o = latency_options();
    o.kernels = 3;
    o.gap_us = 50;
    o.copy_bytes = 4096;
    json_t *lines = run(f, &o, 0, NULL);
    assert_int_equal(f->n, 30);
    for (uint64_t i = 0; i < 30; i++) {
        assert_int_equal(f->pieces[i].kernels, 1);
        assert_int_equal(f->pieces[i].copy_in, i % 3 == 0);
        assert_int_equal(f->pieces[i].copy_out, i % 3 == 2);
    }
    assert_int_equal(f->submit_ns[1] - f->end_ns[0], 80 * US);
    /* 3 kernels and 2 gaps as asked for, however late the host woke up. */
    assert_true(near(number(last(lines), "max_us"), 400));
    assert_true(near(number(last(lines), "p50_us"), 400));
    json_decref(lines);
    free(f);

    f = new_fake();
    o.gap_us = 0;
    lines = run(f, &o, 0, NULL);
    assert_int_equal(f->n, 10);
    assert_true(f->pieces[9].kernels == 3 && f->pieces[9].copy_in && f->pieces[9].copy_out);
    assert_true(near(number(last(lines), "p50_us"), 300));
    json_decref(lines);
    free(f);
}

/* Steps of a launch-bound program: one piece each, whose host's work begins when the step before
 * has ended. */
static void closed_loop_of_launches(void **state)
{
    struct fake *f = new_fake();
    struct load_options o = latency_options();
    o.period_us = 0;
    o.kernels = 3;
    o.launch_us = 40;
    f->slow_piece = 4;
    f->slow_ns = 900 * US;
    json_t *lines = run(f, &o, 0, NULL);
    assert_int_equal(f->n, 10);
    for (uint64_t i = 0; i < f->n; i++) {
        assert_int_equal(f->pieces[i].kernels, 3);
        assert_int_equal(f->pieces[i].launch_ns, 40 * US);
        assert_int_equal(f->pieces[i].from_ns, i ? f->end_ns[i - 1] : T0);
    }
    assert_true(near(number(last(lines), "p50_us"), 300));
    assert_true(near(number(last(lines), "max_us"), 900));
    assert_true(near(number(last(lines), "rate"), 10 / 3.6e-3));
    assert_int_equal(number(last(lines), "late"), 0);
    json_decref(lines);
    free(f);
}

static void latency_live_lines(void **state)
{
    struct fake *f = new_fake();
    struct load_options o = latency_options();
    o.requests = 0;
    o.seconds = 0.1;
    o.report_ms = 7;
    json_t *lines = run(f, &o, 0, NULL);
    size_t n = json_array_size(lines), seen = 0;
    assert_int_equal(n, 14 + 1);
    for (size_t i = 0; i + 1 < n; i++) {
        const json_t *l = json_array_get(lines, i);
        const json_t *list = json_object_get(l, "latencies_us");
        seen += json_array_size(list);
        assert_int_equal(number(l, "requests"), seen);
        assert_true(near(number(l, "t"), 7.0 + 0.007 * (double)(i + 1)));
        assert_int_equal(seen, 7 * (i + 1));
        assert_true(near(json_number_value(json_array_get(list, 0)), 100));
    }
    assert_int_equal(number(last(lines), "requests"), 100); /* none at the very end */
    json_decref(lines);
    free(f);
}

static void nothing_measured_is_null(void **state)
{
    struct fake *f = new_fake();
    f->stop_ns = T0;
    struct load_options o = latency_options();
    json_t *lines = run(f, &o, 0, NULL);
    assert_int_equal(number(last(lines), "requests"), 0);
    assert_true(json_is_null(json_object_get(last(lines), "p50_us")));
    assert_true(json_is_null(json_object_get(last(lines), "mean_us")));
    json_decref(lines);
    free(f);
}

static void batch_keeps_the_queue_filled(void **state)
{
    struct fake *f = new_fake();
    struct load_options o = batch_options();
    o.depth = 5;
    json_t *lines = run(f, &o, 0, NULL);
    assert_int_equal(f->most_in_flight, 5);
    for (uint64_t i = 1; i < f->n; i++)
        assert_int_equal(f->end_ns[i] - f->end_ns[i - 1], f->kernel_ns);
    const json_t *l = last(lines);
    assert_int_equal(number(l, "kernels"), f->n);
    assert_true(near(number(l, "work_us"), 100 * (double)f->n));
    assert_true(near(number(l, "rate"), 1));
    assert_true(number(l, "seconds") >= 0.1);
    json_decref(lines);
    free(f);

    f = new_fake();
    o.depth = 0;
    json_decref(run(f, &o, 0, NULL));
    assert_int_equal(f->most_in_flight, f->base.depth);
    free(f);
}

/* Each line's count is what had ended by its time; suspended time shows as no progress, and the
 * lines go on. */
static void batch_live_lines_are_exact(void **state)
{
    struct fake *f = new_fake();
    f->kernel_ns = 130 * US;
    f->suspend_ns = T0 + 200 * MS;
    f->resume_ns = T0 + 600 * MS;
    struct load_options o = batch_options();
    o.kernel_us = 130;
    o.seconds = 1;
    o.report_ms = 10;
    json_t *lines = run(f, &o, 0, NULL);
    size_t n = json_array_size(lines) - 1, idle = 0;
    assert_int_equal(n, 100);
    uint64_t before = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *l = json_array_get(lines, i);
        uint64_t t = T0 + (i + 1) * 10 * MS, ended = 0;
        assert_true(near(number(l, "t"), (double)t / 1e9));
        while (ended < f->n && f->end_ns[ended] <= t)
            ended++;
        assert_int_equal(number(l, "kernels"), ended);
        assert_true(near(number(l, "work_us"), 130 * (double)ended));
        idle += ended == before;
        before = ended;
    }
    assert_int_equal(idle, 40);
    double rate = number(last(lines), "rate");
    assert_true(rate > 0.59 && rate < 0.61);
    json_decref(lines);
    free(f);
}

/* All of a burst at once, nothing before it has ended and the host has done its work; lines go on
 * through that. */
static void batch_in_bursts(void **state)
{
    struct fake *f = new_fake();
    struct load_options o = batch_options();
    o.burst = o.depth = 4;
    o.host_us = 1600;
    o.report_ms = 10;
    json_t *lines = run(f, &o, 0, NULL);
    assert_int_equal(f->most_in_flight, 4);
    for (uint64_t i = 0; i < f->n; i++)
        assert_int_equal(f->submit_ns[i], T0 + i / 4 * 2 * MS);
    for (size_t i = 0; i + 1 < json_array_size(lines); i++)
        assert_int_equal(number(json_array_get(lines, i), "rounds"), 5 * (i + 1));
    assert_int_equal(json_array_size(lines), 10);
    assert_int_equal(number(last(lines), "rounds"), 50);
    assert_int_equal(number(last(lines), "kernels"), 200);
    json_decref(lines);
    free(f);
}

static void stop_drains(void **state)
{
    struct fake *f = new_fake();
    f->stop_ns = T0 + 5 * MS + 1;
    struct load_options o = batch_options();
    struct load_run r;
    o.seconds = 0;
    o.verify = true;
    json_t *lines = run(f, &o, 0, &r);
    assert_false(r.abandoned);
    assert_int_equal(f->head, f->n);
    assert_int_equal(f->n, 50 + 8);
    assert_true(json_is_true(json_object_get(last(lines), "verified")));
    json_decref(lines);
    free(f);
}

/* A program that is suspended for good still ends soon after it is told to. */
static void stop_while_suspended(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct fake *f = new_fake();
        f->suspend_ns = T0 + 10 * MS;
        f->resume_ns = T0 + 3600 * NSEC_PER_SEC;
        f->stop_ns = T0 + 100 * MS;
        struct load_options o = i ? batch_options() : latency_options();
        struct load_run r;
        o.requests = 0;
        o.seconds = 0;
        o.period_us = 300;
        o.verify = true;
        json_t *lines = run(f, &o, 0, &r);
        assert_true(r.abandoned);
        assert_true(f->now_ns <= f->stop_ns + 2 * NSEC_PER_SEC + 200 * MS);
        assert_true(json_is_null(json_object_get(last(lines), "verified")));
        assert_true(number(last(lines), i ? "kernels" : "requests") > 0);
        json_decref(lines);
        free(f);
    }
}

static void wrong_result_is_told(void **state)
{
    struct fake *f = new_fake();
    f->wrong = -EBADMSG;
    struct load_options o = latency_options();
    o.verify = true;
    json_t *lines = run(f, &o, -EBADMSG, NULL);
    assert_true(json_is_false(json_object_get(last(lines), "verified")));
    json_decref(lines);
    free(f);
}

static void full_disk_is_an_error(void **state)
{
    struct fake *f = new_fake();
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    const struct load_env env = {fake_now, fake_sleep, fake_stopped, f, full};
    struct load_options o = batch_options();
    struct load_run r = {.o = &o, .gpu = &f->base, .env = &env};
    struct error err = {""};
    o.report_ms = 10;
    assert_int_equal(load_run_batch(&r, &err), -EIO);
    assert_non_null(strstr(err.text, "standard output"));
    fclose(full);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles),
        cmocka_unit_test(open_loop_keeps_the_schedule),
        cmocka_unit_test(poisson_arrivals),
        cmocka_unit_test(histogram_holds_every_request),
        cmocka_unit_test(one_request_a_period),
        cmocka_unit_test(closed_loop_catches_up),
        cmocka_unit_test(kernels_and_gaps),
        cmocka_unit_test(closed_loop_of_launches),
        cmocka_unit_test(latency_live_lines),
        cmocka_unit_test(nothing_measured_is_null),
        cmocka_unit_test(batch_keeps_the_queue_filled),
        cmocka_unit_test(batch_live_lines_are_exact),
        cmocka_unit_test(batch_in_bursts),
        cmocka_unit_test(stop_drains),
        cmocka_unit_test(stop_while_suspended),
        cmocka_unit_test(wrong_result_is_told),
        cmocka_unit_test(full_disk_is_an_error),
    };
    return cmocka_run_group_tests_name("load_roles", tests, NULL, NULL);
}
