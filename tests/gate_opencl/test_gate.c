/* Programs that hold their own submissions, real OpenCL ones, against the daemon's driver: whatever
 * the driver does and whenever either side is killed, no program hangs and every result is that of
 * a program that is not scheduled. Skipped where there is no OpenCL device. */
#include <sys/stat.h>

#include "../gate/driven.h"

#define PROGRAMS          4
#define SEEDS             250 /* of each: 1000 in all */
#define SEEDS_MAX         "250"
#define TIMEOUT_S         120
#define LAUNCHES_OF_ROUND 3 /* at most, launches.c */

static uint32_t rnd(uint32_t n)
{
    static uint64_t s = 88172645463325252ULL;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return (uint32_t)(s >> 20) % n;
}

static pid_t start_program(const char *program, const char *first, const char *count,
                           const char *out, bool gated)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(open(out, O_CREAT | O_TRUNC | O_WRONLY, 0600), 1);
        setenv("CEDE_GATE", socket_path, 1);
        if (gated)
            setenv("OPENCL_LAYERS", getenv("OPENCL_LAYER"), 1);
        execl(program, program, first, count, (char *)NULL);
        _exit(126);
    }
    return pid;
}

static pid_t start(const char *first, const char *count, const char *out, bool gated)
{
    return start_program(getenv("MIX"), first, count, out, gated);
}

static const char *in_dir(const char *name, unsigned i)
{
    static char path[2][128];
    static unsigned turn;
    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s%u", dir, name, i);
    return path[turn];
}

static bool begun(pid_t pid, struct device_driver *d)
{
    struct group_list l = {0};
    for (int i = 0; i < 10000 && !l.n; i++) {
        group_list_free(&l);
        usleep(1000);
        l = groups_of(d, pid);
    }
    bool any = l.n > 0;
    group_list_free(&l);
    return any;
}

/* Seeded mixes of queues and events, with devices that open and close and queues that shrink and
 * grow at random, and a daemon that now and then dies. */
TEST(interleavings)
{
    static const uint64_t slices[] = {0, 1, 200, 20000};
    char first[16];
    pid_t pids[PROGRAMS];
    for (unsigned i = 0; i < PROGRAMS; i++) {
        snprintf(first, sizeof(first), "%u", 1 + i * SEEDS);
        assert_int_equal(status_of_ended(start(first, SEEDS_MAX, in_dir("plain", i), false)), 0);
    }
    struct device_driver *d = driver();
    for (unsigned i = 0; i < PROGRAMS; i++) {
        snprintf(first, sizeof(first), "%u", 1 + i * SEEDS);
        pids[i] = start(first, SEEDS_MAX, in_dir("gated", i), true);
    }
    unsigned left = PROGRAMS, turns = 0;
    uint64_t deadline = monotonic_ns() + TIMEOUT_S * NSEC_PER_SEC, held = 0;
    for (; left; turns++) {
        unsigned i = rnd(PROGRAMS);
        if (pids[i]) {
            bool runs = rnd(3) > 0;
            set(d, pids[i], runs, slices[rnd(4)]);
            held += !runs;
        }
        struct demand_list wants = {0};
        assert_int_equal(d->ops->demand(d, &wants, NULL), 0);
        demand_list_free(&wants);
        if (rnd(2000) == 0) {
            device_close(d); /* as if it had been killed: its descriptors are closed */
            usleep(rnd(20000));
            d = driver();
        }
        usleep(rnd(2000));
        for (unsigned k = 0; k < PROGRAMS; k++) {
            int status;
            if (pids[k] && waitpid(pids[k], &status, WNOHANG) == pids[k]) {
                assert_int_equal(status, 0);
                pids[k] = 0;
                left--;
            }
        }
        assert_true(monotonic_ns() < deadline);
    }
    device_close(d);
    assert_true(turns > 100 && held > 20);
    for (unsigned i = 0; i < PROGRAMS; i++)
        same_text(in_dir("plain", i), in_dir("gated", i));
}

static unsigned kernels_run(const char *trace)
{
    unsigned n = 0;
    char line[512];
    FILE *f = fopen(trace, "r");
    while (f && fgets(line, sizeof(line), f))
        n += strstr(line, "ndrange_kernel | complete") != NULL;
    assert_true(f && fclose(f) == 0);
    return n;
}

/* Whatever a program launches, the device refuses and does the same with kernels in pieces. */
TEST(launches)
{
    static const char *const names[] = {"alone", "cut"};
    const char *seed = getenv("CEDE_LAUNCHES_SEED"), *program = getenv("LAUNCHES");
    char text[2][256];
    unsigned kernels[2], line = 0;
    const char *count = getenv("CEDE_LAUNCHES");
    seed = seed ? seed : "1";
    count = count ? count : "4000";
    print_message("CEDE_LAUNCHES_SEED=%s CEDE_LAUNCHES=%s\n", seed, count);
    setenv("POCL_TRACING", "text", 1);
    struct device_driver *d = driver();
    for (unsigned gated = 0; gated < 2; gated++) {
        setenv("POCL_TRACING_OPT", in_dir("trace", gated), 1);
        pid_t pid = start_program(program, seed, count, in_dir(names[gated], 0), gated);
        int status;
        while (waitpid(pid, &status, WNOHANG) == 0) {
            set(d, pid, true, 1);
            usleep(1000);
        }
        if (!gated && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) {
            print_message("skipped: the device breaks off by itself\n"); /* PoCL 5.0 asserts */
            unsetenv("POCL_TRACING");
            device_close(d);
            skip();
        }
        assert_int_equal(status, 0);
        kernels[gated] = kernels_run(in_dir("trace", gated));
    }
    unsetenv("POCL_TRACING");
    device_close(d);
    print_message("%u kernels, then %u\n", kernels[0], kernels[1]);
    FILE *a = fopen(in_dir(names[0], 0), "r"), *b = fopen(in_dir(names[1], 0), "r");
    assert_true(a && b);
    while (fgets(text[0], sizeof(text[0]), a)) {
        assert_non_null(fgets(text[1], sizeof(text[1]), b));
        assert_string_equal(text[0], text[1]);
        line++;
    }
    fclose(a);
    fclose(b);
    assert_true(line >= strtoul(count, NULL, 10) / LAUNCHES_OF_ROUND);
    assert_true(kernels[1] > kernels[0] + kernels[0] / 4); /* they were cut */
}

static void killed(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(status_of_ended(pid), 1000 + SIGKILL);
}

/* Held programs that are killed leave nothing, and do not keep the others. */
TEST(killed_programs)
{
    struct device_driver *d = driver();
    pid_t a = start("1", "100000", in_dir("a", 0), true),
          b = start("2", "100000", in_dir("b", 0), true);
    assert_true(begun(a, d) && begun(b, d));
    set(d, a, false, 1);
    killed(a);
    _cleanup_(pid_list_free) struct pid_list pids = {0};
    for (int i = 0; i < 1000 && pids.n != 1; i++) {
        usleep(1000);
        pids.n = 0;
        assert_int_equal(d->ops->processes(d, &pids, NULL), 0);
    }
    assert_int_equal(pids.n, 1);
    assert_int_equal(pids.v[0], b);
    killed(b);
    device_close(d);
}

static off_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : 0;
}

/* A held program does nothing; when the daemon dies, or hangs, it goes on. */
TEST(fails_open)
{
    for (int hangs = 0; hangs < 2; hangs++) {
        struct device_driver *d = driver();
        pid_t a = start("1", "100000", in_dir("open", 0), true);
        assert_true(begun(a, d));
        set(d, a, false, 1);
        usleep(300000); /* what was queued */
        off_t before = size_of(in_dir("open", 0));
        for (int i = 0; i < 30; i++) {
            set(d, a, false, 1); /* and the daemon lives */
            usleep(10000);
        }
        assert_int_equal(size_of(in_dir("open", 0)), before);
        if (!hangs)
            device_close(d);
        bool goes_on = false;
        for (int i = 0; i < 15000 && !goes_on; i++) {
            usleep(1000);
            goes_on = size_of(in_dir("open", 0)) > before;
        }
        assert_true(goes_on);
        if (hangs)
            device_close(d);
        killed(a);
    }
}

/* A new daemon finds those that are there. */
TEST(found_again)
{
    pid_t a = start("1", "100000", in_dir("again", 0), true);
    for (int i = 0; i < 2; i++) {
        struct device_driver *d = driver();
        assert_true(begun(a, d));
        struct gpu_info info;
        struct group_list l = groups_of(d, a);
        assert_int_equal(d->ops->info(d, l.v[0].gpu, &info), 0);
        assert_true(info.name[0] && info.caps & GPU_CAP_GATE);
        group_list_free(&l);
        device_close(d);
    }
    killed(a);
}

int main(void)
{
    if (!make_dir())
        return 1;
    setenv("POCL_CACHE_DIR", dir, 0);
    setenv("CEDE_GATE_CPU", "1", 1);
    int r = status_of_ended(start("1", "1", in_dir("try", 0), false));
    if (r == 77)
        fprintf(stderr, "no OpenCL device: apt-get install pocl-opencl-icd\n");
    else
        r = test_run(NULL, NULL);
    return remove_dir(r);
}
