/* The overlap loop in virtual time: a clock that only the program's functions and waits move, and a
 * GPU that is a row of timers in place of libcuda. What is shown: the orderings of ways to run
 * steps, that overlap hides the work of the CPU, and that the counters are right. */
#include "../random.h"
#include "base/util.h"
#include "cede/step.h"
#include "fixture.h"
#include "libcede/future.h"
#include "libcede/queue_impl.h"
#include "timers.h"

/* ---- the clock and the GPU ------------------------------------------------------------------- */

/* An interval of the CPU's or the GPU's work. */
struct span {
    uint64_t from, to;
};
#define SPANS 65536U
static struct span cpu[SPANS], gpu[SPANS];
static unsigned ncpu, ngpu;

static void gpu_works(uint64_t ns)
{
    uint64_t from = max_u64(timers.now_ns, timers.busy_until_ns);
    assert_true(ngpu < SPANS);
    timers.busy_until_ns = from + ns;
    gpu[ngpu++] = (struct span){from, timers.busy_until_ns};
}

static void cpu_works(uint64_t ns)
{
    assert_true(ncpu < SPANS);
    cpu[ncpu++] = (struct span){timers.now_ns, timers.now_ns + ns};
    timers.now_ns += ns;
}

const char cede_future_ptx[] = ""; /* there is no map here */

int cede_scope_cancelled(const struct cede_scope *s)
{
    return 0;
}

int cede_queue_take(struct cede_queue *q, int device, uint32_t most, cede_timeout timeout_us,
                    struct cede_queue_batch *b)
{
    return -ESHUTDOWN;
}

int cede_queue_end(struct cede_queue *q, uint64_t batch, int device, bool failed)
{
    return 0;
}

/* ---- a program ------------------------------------------------------------------------------- */

struct program {
    uint64_t schedule_ns, launch_ns, step_ns, finish_ns;
    unsigned flags;           /* of the loop */
    unsigned kernels;         /* of a step; waited for one by one if `naive` */
    bool naive, vary;         /* each time something between 0 and what is given */
    unsigned left;            /* steps to run */
    uint64_t finished;        /* the last step */
    uint64_t gpu_us, idle_us; /* of all finished, as they say themselves */
};

static uint64_t varied(const struct program *p, uint64_t ns)
{
    return p->vary ? rnd(ns + 1) : ns;
}

static int schedule(void *arg, struct cede_step *s)
{
    struct program *p = arg;
    if (!p->left)
        return 0;
    p->left--;
    cpu_works(varied(p, p->schedule_ns));
    return 1;
}

static int launch(void *arg, struct cede_step *s)
{
    const struct program *p = arg;
    uint64_t step_ns = varied(p, p->step_ns);
    for (unsigned i = 0; i < p->kernels; i++) {
        cpu_works(varied(p, p->launch_ns / p->kernels));
        gpu_works(step_ns / p->kernels);
        timers.now_ns = p->naive ? timers.busy_until_ns : timers.now_ns;
    }
    return 0;
}

static int finish(void *arg, struct cede_step *s)
{
    struct program *p = arg;
    assert_int_equal(s->number, ++p->finished);
    p->gpu_us += s->gpu_us;
    p->idle_us += s->idle_us;
    cpu_works(varied(p, p->finish_ns));
    return 0;
}

static struct cede_step_loop *loop_of(struct program *p, unsigned depth)
{
    timers.now_ns = timers.busy_until_ns = 1000 * NSEC_PER_SEC;
    ncpu = ngpu = 0;
    return OPEN(step, .flags = p->flags, .depth = depth, .arg = p, .schedule = schedule,
                .launch = launch, .finish = finish);
}

/* What of the CPU's work was done while the GPU worked. */
static uint64_t overlap_ns(void)
{
    uint64_t sum = 0;
    unsigned g = 0;
    for (unsigned c = 0; c < ncpu; c++) {
        while (g < ngpu && gpu[g].to <= cpu[c].from)
            g++;
        for (unsigned k = g; k < ngpu && gpu[k].from < cpu[c].to; k++)
            sum += min_u64(gpu[k].to, cpu[c].to) - max_u64(gpu[k].from, cpu[c].from);
    }
    return sum;
}

#define STEPS 200U
#define MS    (1e-3 * (double)NSEC_PER_SEC)

struct run {
    double step_ms, hidden; /* from step to step; part of the CPU's time */
    struct cede_step_statistics s;
};

static struct run run_steps(struct program p, unsigned depth)
{
    struct run r;
    p.left = STEPS;
    struct cede_step_loop *l = loop_of(&p, depth);
    uint64_t from = timers.now_ns;
    OK(cede_step_run(l));
    assert_int_equal(p.finished, STEPS);
    r.s = STATS(step, l);
    OK(cede_step_close(l));
    uint64_t all_us = r.s.schedule_us + r.s.launch_us + r.s.finish_us;
    r.step_ms = (double)(timers.now_ns - from) / MS / STEPS;
    r.hidden = all_us ? (double)r.s.hidden_us / (double)all_us : 1;
    /* Of several kernels the first run while the others of the step are launched: no overlap. */
    if (p.kernels == 1)
        assert_in_range(r.s.hidden_us + 5, overlap_ns() / NSEC_PER_USEC,
                        overlap_ns() / NSEC_PER_USEC + 10);
    return r;
}

static struct program program(double schedule_ms, double launch_ms, double step_ms)
{
    return (struct program){.schedule_ns = (uint64_t)(schedule_ms * MS),
                            .launch_ns = (uint64_t)(launch_ms * MS),
                            .step_ns = (uint64_t)(step_ms * MS),
                            .finish_ns = (uint64_t)(0.2 * MS),
                            .kernels = 1};
}

/* The ways to run the same steps of 8 ms and 200 kernels, from the slowest to the fastest. To
 * launch the kernels one by one takes longer than to run them; a graph takes 10 us. */
TEST(speed_hierarchy)
{
    struct program eager = program(5, 9, 8), naive = eager, graph = program(5, 0.01, 8);
    naive.kernels = eager.kernels = 200;
    naive.naive = true;
    double naive_ms = run_steps(naive, 1).step_ms, eager_ms = run_steps(eager, 1).step_ms,
           graph_ms = run_steps(graph, 1).step_ms, overlap_ms = run_steps(eager, 2).step_ms,
           both_ms = run_steps(graph, 2).step_ms;
    print_message("ms a step: naive %.2f, eager %.2f, graph %.2f, overlap %.2f, both %.2f\n",
                  naive_ms, eager_ms, graph_ms, overlap_ms, both_ms);
    assert_true(naive_ms > 1.5 * eager_ms);
    assert_true(eager_ms > 1.05 * graph_ms && eager_ms >= overlap_ms);
    assert_true(graph_ms > 1.6 * both_ms && overlap_ms > 1.6 * both_ms);
    assert_true(both_ms < 1.01 * 8);
}

/* The modes of examples/decode, for steps as long as those of small and of large batches and for
 * scheduling work of 0, 2 and 5 ms: 88 kernels, launched in 10 us each by an interpreter, in 3 us
 * each, or as one graph. No mode is slower than one with a part less, whatever is the limit; but a
 * graph begins with its launch's end, and an eager step with its first kernel's. */
TEST(modes_of_a_decoder)
{
    enum { NAIVE, EAGER, GRAPHS, OVERLAP, ALL, MODES };
    static const double steps_ms[] = {0.2, 1, 8}, schedules_ms[] = {0, 2, 5};
    static const double launch_ms[MODES] = {0.88, 0.264, 0.01, 0.264, 0.01};
    for (size_t i = 0; i < ARRAY_SIZE(steps_ms) * ARRAY_SIZE(schedules_ms); i++) {
        const double step_ms = steps_ms[i / 3], schedule_ms = schedules_ms[i % 3];
        double ms[MODES];
        for (int mode = 0; mode < MODES; mode++) {
            struct program p = program(schedule_ms, launch_ms[mode], step_ms);
            p.kernels = mode == GRAPHS || mode == ALL ? 1 : 88;
            p.finish_ns = (uint64_t)(0.02 * MS);
            ms[mode] = run_steps(p, mode >= OVERLAP ? 2 : 1).step_ms;
        }
        print_message("step %.1f ms, schedule %.0f ms: naive %.2f, eager %.2f, graphs %.2f, "
                      "overlap %.2f, all %.2f ms\n",
                      step_ms, schedule_ms, ms[NAIVE], ms[EAGER], ms[GRAPHS], ms[OVERLAP], ms[ALL]);
        assert_true(ms[NAIVE] > ms[EAGER] && ms[EAGER] > ms[GRAPHS] - 0.01);
        assert_true(ms[GRAPHS] > ms[ALL] && ms[EAGER] > ms[OVERLAP]);
        assert_true(ms[OVERLAP] > 0.999 * ms[ALL]);
        /* What is left is the longer of the two, the step or the CPU's work. */
        assert_true(ms[ALL] < 1.01 * (step_ms > schedule_ms ? step_ms : schedule_ms + 0.03));
        /* Graphs are for steps that take longer to launch than to run: not for large batches. */
        assert_true(i != 0 || ms[EAGER] > 1.2 * ms[GRAPHS]);
        assert_true(step_ms < 5 || ms[EAGER] < 1.02 * ms[GRAPHS]);
    }
}

/* As long as a step is longer than the CPU's work for it, that work is free. */
TEST(overlap_hides_scheduling)
{
    static const double schedules_ms[] = {0, 2, 5};
    for (unsigned depth = 2; depth <= CEDE_STEP_DEPTH_MAX; depth++) {
        for (size_t i = 0; i < ARRAY_SIZE(schedules_ms); i++) {
            struct run off = run_steps(program(schedules_ms[i], 0.5, 8), 1);
            struct run on = run_steps(program(schedules_ms[i], 0.5, 8), depth);
            print_message("schedule %.0f ms, depth %u: %.2f ms a step, %.2f without\n",
                          schedules_ms[i], depth, on.step_ms, off.step_ms);
            assert_true(on.step_ms < 1.01 * 8);
            assert_true(on.hidden > 0.98 && on.s.idle_us == 0);
            assert_true(off.step_ms > 0.99 * (8 + schedules_ms[i] + 0.5 + 0.2));
            assert_true(off.hidden == 0);
            assert_int_equal(off.s.idle_us, (STEPS - 1) * (unsigned)(1000 * schedules_ms[i] + 200));
        }
    }
}

/* Beyond, the CPU is what there is too little of, and the step is hidden instead. */
TEST(a_slow_cpu_is_the_limit)
{
    struct run off = run_steps(program(12, 0.5, 8), 1), on = run_steps(program(12, 0.5, 8), 2);
    struct run deep = run_steps(program(12, 0.5, 8), 4);
    assert_true(off.step_ms > 20.6 && on.step_ms < 12.8 && on.step_ms > 12.6);
    assert_true(deep.step_ms < 12.8 && deep.step_ms > 12.6); /* depth does not help */
    assert_true(on.s.idle_us > STEPS * 3000 && on.hidden > 0.5 && on.hidden < 0.7);
}

/* Unequal steps: a deeper queue evens them out. The counters agree with what was done when; idle
 * time between runs is nobody's. */
TEST(counters_agree_with_what_was_done)
{
    for (unsigned run = 0; run < 200; run++) {
        struct program p = program(4, 0, 6);
        unsigned depth = 1 + run % 4;
        uint64_t gpu_ns = 0, work_ns = 0;
        state = run;
        p.vary = true;
        struct cede_step_loop *l = loop_of(&p, depth);
        unsigned runs = 1 + (unsigned)rnd(5);
        for (unsigned i = 0; i < runs; i++) {
            p.left = 1 + (unsigned)rnd(40);
            OK(cede_step_run(l));
            timers.now_ns += rnd(50 * NSEC_PER_MSEC);
        }
        const struct cede_step_statistics s = STATS(step, l);
        for (unsigned i = 0; i < ngpu; i++)
            gpu_ns += gpu[i].to - gpu[i].from;
        for (unsigned i = 0; i < ncpu; i++)
            work_ns += cpu[i].to - cpu[i].from;
        HAS(s, (steps, ngpu), (gpu_us, gpu_ns / NSEC_PER_USEC));
        assert_in_range(p.gpu_us, s.gpu_us - s.steps, s.gpu_us);
        assert_in_range(p.idle_us + s.steps, s.idle_us, s.idle_us + s.steps);
        assert_in_range(s.schedule_us + s.finish_us + 2, work_ns / NSEC_PER_USEC,
                        work_ns / NSEC_PER_USEC + 2);
        /* in each run, one call of finish() may begin while the last step runs and end after it */
        uint64_t hidden_us = overlap_ns() / NSEC_PER_USEC;
        assert_in_range(s.hidden_us + 2, hidden_us, hidden_us + 4 + 200 * runs);
        assert_true(depth > 1 || s.hidden_us <= 1);
        OK(cede_step_close(l));
    }
}

/* When a step has run, it is finished, also while more could be launched. */
TEST(results_do_not_wait_for_a_full_queue)
{
    struct program p = program(4, 0, 1);
    p.left = 10;
    struct cede_step_loop *l = loop_of(&p, 4);
    assert_int_equal(cede_step_once(l), 1);
    assert_int_equal(p.finished, 0);
    assert_int_equal(cede_step_once(l), 1); /* the first ran while the second was scheduled */
    assert_int_equal(p.finished, 1);
    OK(cede_step_close(l));
}

/* Also where finishing takes as long as a step: then two have run before the second is finished,
 * and the GPU would have nothing to do meanwhile. */
TEST(the_gpu_has_a_step_before_results_are_read)
{
    for (unsigned depth = 2; depth <= CEDE_STEP_DEPTH_MAX; depth++) {
        struct program p = program(0.1, 0.01, 2);
        p.finish_ns = (uint64_t)(2 * MS);
        struct run on = run_steps(p, depth);
        print_message("finishing as long as a step, depth %u: %.2f ms a step, idle %.2f\n", depth,
                      on.step_ms, (double)on.s.idle_us / 1000 / STEPS);
        assert_true(on.step_ms < 1.02 * (2 + 0.1 + 0.01));
        assert_true(on.s.idle_us < STEPS * 150 && on.hidden > 0.9);
    }
}

TEST(nothing_is_hidden_without_a_gpu)
{
    struct program p = program(4, 1, 0);
    p.flags = CEDE_STEP_NO_GPU;
    const struct cede_step_statistics s = run_steps(p, 2).s;
    assert_int_equal(s.schedule_us, STEPS * 4000);
    assert_int_equal(s.hidden_us + s.gpu_us + s.idle_us, 0);
}
