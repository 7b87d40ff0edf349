/* The HIP gate, preloaded into unmodified programs on the stand-in library: what is held and what
 * never is, that order and results stay, that the limit is kept, and that without a scheduler
 * nothing is added. Times are the stand-in's. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
// cmocka wants the four above
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page.h"

struct world {
    char dir[64];
    struct page *page;
    pid_t pid;
    int to, from;
};

static void path_in(const struct world *w, const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s", w->dir, name);
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    char path[128];
    strcpy(w->dir, "/tmp/cede-hip-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    path_in(w, "page", path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, sizeof(*w->page)), 0);
    w->page = mmap(NULL, sizeof(*w->page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(w->page, MAP_FAILED);
    close(fd);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    static const char *const names[] = {"page", "log.a", "log.b", "out.a", "out.b"};
    struct world *w = *state;
    char path[128];
    if (w->pid > 0) {
        kill(w->pid, SIGKILL);
        waitpid(w->pid, NULL, 0);
    }
    munmap(w->page, sizeof(*w->page));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        path_in(w, names[i], path);
        unlink(path);
    }
    rmdir(w->dir);
    free(w);
    return 0;
}

/* run: "a" without the gate, "b" under it. */
static void start(struct world *w, const char *run, const char *program, const char *what,
                  const char *arg)
{
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    w->pid = fork();
    assert_true(w->pid >= 0);
    if (w->pid == 0) {
        char path[128], name[16];
        snprintf(name, sizeof(name), "log.%s", run);
        path_in(w, name, path);
        setenv("TOY_LOG", path, 1);
        snprintf(name, sizeof(name), "out.%s", run);
        path_in(w, name, path);
        int out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(out, 1);
        if (run[0] == 'b') {
            path_in(w, "page", path);
            setenv("CEDE_TEST_PAGE", path, 1);
            setenv("LD_PRELOAD", getenv("GATE"), 1);
        }
        int in3 = fcntl(to[0], F_DUPFD, 20), out4 = fcntl(from[1], F_DUPFD, 20);
        dup2(in3, 3);
        dup2(out4, 4);
        for (int fd = 5; fd < 64; fd++)
            close(fd);
        alarm(20);
        execl(program, program, what, arg, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    w->to = to[1];
    w->from = from[0];
}

static int finish(struct world *w)
{
    int status;
    close(w->to);
    close(w->from);
    assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
    w->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool byte(const struct world *w, int ms)
{
    char c;
    struct pollfd p = {.fd = w->from, .events = POLLIN};
    return poll(&p, 1, ms) == 1 && read(w->from, &c, 1) == 1;
}

static char *slurp(const struct world *w, const char *name)
{
    char path[128];
    path_in(w, name, path);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    text[fread(text, 1, (1 << 20) - 1, f)] = '\0';
    fclose(f);
    return text;
}

struct summary {
    char *order; /* what ran on which stream, without times */
    unsigned long long inflight, end;
    unsigned lines, gate_calls, violations;
};

static struct summary summarize(const struct world *w, const char *name)
{
    struct summary s = {.order = calloc(1, 1 << 20)};
    char *text = slurp(w, name), *save = NULL;
    size_t n = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *times = strstr(line, " | ");
        unsigned long long at, inflight;
        assert_non_null(times);
        assert_int_equal(sscanf(times, " | %llu %*u %*u %llu", &at, &inflight), 2);
        if (sscanf(line, "end %u %u", &s.gate_calls, &s.violations) == 2) {
            s.end = at;
            continue;
        }
        s.inflight = inflight > s.inflight ? inflight : s.inflight;
        n += (size_t)snprintf(s.order + n, (1 << 20) - n, "%.*s\n", (int)(times - line), line);
        s.lines++;
    }
    free(text);
    return s;
}

static const char *prog(void)
{
    return getenv("PROG");
}

/* Programs with and without the gate do the same and see the same. */
static void compare(struct world *w, const char *seed, struct summary *a, struct summary *b)
{
    start(w, "a", prog(), "mix", seed);
    assert_int_equal(finish(w), 0);
    start(w, "b", prog(), "mix", seed);
    assert_int_equal(finish(w), 0);
    *a = summarize(w, "log.a");
    *b = summarize(w, "log.b");
    char *seen_a = slurp(w, "out.a"), *seen_b = slurp(w, "out.b");
    assert_true(a->lines > 1000);
    assert_string_equal(a->order, b->order);
    assert_string_equal(seen_a, seen_b);
    assert_non_null(strstr(seen_a, "error 1 1"));
    assert_int_equal(b->violations, 0);
    free(seen_a);
    free(seen_b);
    free(a->order);
    free(b->order);
}

static void test_no_scheduler(void **state)
{
    struct world *w = *state;
    struct summary a, b;
    compare(w, "1", &a, &b);
    assert_int_equal(b.gate_calls, 0);
    assert_true(a.end == b.end);
    assert_int_equal(w->page->passed, 0);
}

static void test_limit(void **state)
{
    struct world *w = *state;
    const unsigned long long limit = 1000000,
                             longest = 1200000; /* five kernels of a graph, twice */
    w->page->control.any = 1;
    w->page->limit_ns = limit;
    for (int seed = 2; seed < 8; seed++) {
        struct summary a, b;
        char text[8];
        snprintf(text, sizeof(text), "%d", seed);
        setenv("TOY_ERRORS", seed % 2 ? "old" : "new", 1);
        compare(w, text, &a, &b);
        assert_true(b.gate_calls > 0);
        assert_true(a.inflight > 4 * limit); /* there was something to limit */
        assert_in_range(b.inflight, 1, 2 * limit + longest);
        assert_true(b.end < 2 * a.end); /* and the device did not stand idle for it */
    }
    unsetenv("TOY_ERRORS");
}

/* Nothing lost, each thread's work in its order, and the limit kept over all of them. */
static void test_threads(void **state)
{
    struct world *w = *state;
    enum { THREADS = 4, LAUNCHES = 300 };
    unsigned next[THREADS + 1] = {0}, lines = 0;
    char *save = NULL;
    w->page->control.any = 1;
    w->page->limit_ns = 500000;
    start(w, "b", prog(), "threads", NULL);
    assert_int_equal(finish(w), 0);
    struct summary b = summarize(w, "log.b");
    for (char *l = strtok_r(b.order, "\n", &save); l; l = strtok_r(NULL, "\n", &save), lines++) {
        unsigned number;
        assert_int_equal(sscanf(l, "kernel %*d %u", &number), 1);
        assert_in_range(number / 100000, 1, THREADS);
        assert_int_equal(number % 100000, next[number / 100000]++);
    }
    assert_int_equal(lines, THREADS * LAUNCHES);
    assert_in_range(b.inflight, 1, 2 * 500000 + THREADS * 16 * 20000);
    free(b.order);
}

static void hold_each(struct world *w, const char *program, const char *what)
{
    unsigned n = 0;
    w->page->control.any = 1;
    w->page->closed = 1;
    start(w, "b", program, what, NULL);
    for (;; n++) {
        while (!w->page->waiting && waitpid(w->pid, NULL, WNOHANG) == 0) {
            assert_false(byte(w, 0)); /* it came through */
            usleep(200);
        }
        if (!w->page->waiting)
            break;
        assert_false(byte(w, 0));
        w->page->closed = 0;
        assert_true(byte(w, 10000));
        w->page->closed = 1;
        assert_int_equal(write(w->to, "g", 1), 1);
    }
    w->pid = 0;
    close(w->to);
    close(w->from);
#define CALL(name) +1
    unsigned calls = 0
#include "held_calls.h"
        ;
    assert_int_equal(n, calls);
}

static void test_each_is_held(void **state)
{
    hold_each(*state, prog(), "each");
}

static void test_lookups(void **state)
{
    hold_each(*state, getenv("PROG_LOOKUP"), "lookup");
}

static void test_never_held(void **state)
{
    struct world *w = *state;
    w->page->control.any = 1;
    w->page->closed = 1;
    start(w, "b", prog(), "never", NULL);
    assert_true(byte(w, 10000));
    assert_int_equal(finish(w), 0);
    assert_int_equal(w->page->passed, 0);
    struct summary s = summarize(w, "log.b");
    assert_int_equal(s.violations, 0);
    free(s.order);
}

/* A capture may come at any moment of a submission in another thread. */
static void test_captures(void **state)
{
    struct world *w = *state;
    w->page->control.any = 1;
    w->page->limit_ns = 1000000;
    for (int i = 0; i < 10; i++) {
        start(w, "b", prog(), "captures", NULL);
        assert_int_equal(finish(w), 0);
        struct summary s = summarize(w, "log.b");
        assert_true(s.gate_calls > 0);
        assert_int_equal(s.violations, 0);
        free(s.order);
    }
}

static void interrupt(struct world *w, const char *how, const char *what)
{
    w->page->control.any = 1;
    w->page->limit_ns = 1000000;
    setenv("TOY_EVENT", how, 1);
    start(w, "b", prog(), what, NULL);
    unsetenv("TOY_EVENT");
    assert_int_equal(finish(w), 0);
    struct summary s = summarize(w, "log.b");
    assert_true(s.gate_calls > 0);
    assert_int_equal(s.violations, 0);
    free(s.order);
}

static void test_forks(void **state)
{
    interrupt(*state, "fork", "threads");
}

static void test_library_calls_itself(void **state)
{
    interrupt(*state, "reenter", "threads");
}

static void test_cancelled(void **state)
{
    interrupt(*state, "cancel", "cancelled");
}

static void test_errno(void **state)
{
    interrupt(*state, "errno", "cancelled");
}

static void test_killed_while_held(void **state)
{
    struct world *w = *state;
    w->page->control.any = 1;
    w->page->closed = 1;
    start(w, "b", prog(), "each", NULL);
    while (!w->page->waiting)
        usleep(200);
    kill(w->pid, SIGTERM);
    assert_int_equal(finish(w), 128 + SIGTERM);
}

/* hipcc's programs, where there is a hipcc. */
static void test_compiled(void **state)
{
    struct world *w = *state;
    const char *program = getenv("HIP_PROGRAM");
    if (!program || !program[0])
        skip();
    w->page->control.any = 1;
    w->page->limit_ns = 1000000;
    start(w, "a", program, "x", NULL);
    assert_int_equal(finish(w), 0);
    start(w, "b", program, "x", NULL);
    assert_int_equal(finish(w), 0);
    struct summary a = summarize(w, "log.a"), b = summarize(w, "log.b");
    assert_true(a.lines > 100);
    assert_string_equal(a.order, b.order);
    assert_true(w->page->passed > 100);
    assert_true(a.inflight > 4000000 && b.inflight < 3000000);
    free(a.order);
    free(b.order);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_no_scheduler),
        T(test_limit),
        T(test_each_is_held),
        T(test_lookups),
        T(test_never_held),
        T(test_killed_while_held),
        T(test_compiled),
        T(test_threads),
        T(test_captures),
        T(test_forks),
        T(test_library_calls_itself),
        T(test_cancelled),
        T(test_errno),
    };
    if (!getenv("GATE") || !prog() || !getenv("PROG_LOOKUP"))
        return 77; /* `meson test` says where they are */
    cmocka_set_test_filter(getenv("FILTER"));
    return cmocka_run_group_tests_name("gate_hip", tests, NULL, NULL);
}
