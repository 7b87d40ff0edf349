/* The HIP gate, preloaded into unmodified programs on the stand-in library: what is held and what
 * never is, that order and results stay, that the limit is kept, and that without a scheduler
 * nothing is added. Times are the stand-in's. */
#include <signal.h>
#include <sys/mman.h>

#include "child.h"
#include "page.h"

struct world {
    char dir[64];
    struct page *page;
    struct child c;
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
    if (w->c.pid > 0) {
        kill(w->c.pid, SIGKILL);
        waitpid(w->c.pid, NULL, 0);
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

#define HIP_TEST(name) TEST_IN(name, struct world *w, set_up, tear_down)

/* run: "a" without the gate, "b" under it. */
static void start(struct world *w, const char *run, const char *program, const char *what,
                  const char *arg)
{
    char log[128], out[128], page[128], name[16];
    snprintf(name, sizeof(name), "log.%s", run);
    path_in(w, name, log);
    snprintf(name, sizeof(name), "out.%s", run);
    path_in(w, name, out);
    path_in(w, "page", page);
    setenv("TOY_LOG", log, 1);
    setenv("CEDE_TEST_PAGE", page, 1);
    w->c = child_start(program, what, arg, out, run[0] == 'b');
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
    static char orders[2][1 << 20]; /* without the gate, and under it */
    struct summary s = {.order = orders[strcmp(name, "log.a") != 0]};
    char *text = slurp(w, name), *save = NULL;
    size_t n = 0;
    s.order[0] = '\0';
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
        n += (size_t)snprintf(s.order + n, sizeof(orders[0]) - n, "%.*s\n", (int)(times - line),
                              line);
        s.lines++;
    }
    free(text);
    return s;
}

static const char *prog(void)
{
    return getenv("PROG");
}

static struct summary run(struct world *w, const char *run, const char *program, const char *what,
                          const char *arg)
{
    start(w, run, program, what, arg);
    assert_int_equal(child_end(&w->c), 0);
    return summarize(w, run[0] == 'a' ? "log.a" : "log.b");
}

/* Programs with and without the gate do the same and see the same. */
static void compare(struct world *w, const char *seed, struct summary *a, struct summary *b)
{
    *a = run(w, "a", prog(), "mix", seed);
    *b = run(w, "b", prog(), "mix", seed);
    char *seen_a = slurp(w, "out.a"), *seen_b = slurp(w, "out.b");
    assert_true(a->lines > 1000);
    assert_string_equal(a->order, b->order);
    assert_string_equal(seen_a, seen_b);
    assert_non_null(strstr(seen_a, "error 1 1"));
    assert_int_equal(b->violations, 0);
    free(seen_a);
    free(seen_b);
}

HIP_TEST(no_scheduler)
{
    struct summary a, b;
    compare(w, "1", &a, &b);
    assert_int_equal(b.gate_calls, 0);
    assert_true(a.end == b.end);
    assert_int_equal(w->page->passed, 0);
}

HIP_TEST(test_limit)
{
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
HIP_TEST(test_threads)
{
    enum { THREADS = 4, LAUNCHES = 300 };
    unsigned next[THREADS + 1] = {0}, lines = 0;
    char *save = NULL;
    w->page->control.any = 1;
    w->page->limit_ns = 500000;
    struct summary b = run(w, "b", prog(), "threads", NULL);
    for (char *l = strtok_r(b.order, "\n", &save); l; l = strtok_r(NULL, "\n", &save), lines++) {
        unsigned number;
        assert_int_equal(sscanf(l, "kernel %*d %u", &number), 1);
        assert_in_range(number / 100000, 1, THREADS);
        assert_int_equal(number % 100000, next[number / 100000]++);
    }
    assert_int_equal(lines, THREADS * LAUNCHES);
    assert_in_range(b.inflight, 1, 2 * 500000 + THREADS * 16 * 20000);
}

static void hold_each(struct world *w, const char *program, const char *what)
{
    unsigned n = 0;
    w->page->control.any = 1;
    w->page->closed = 1;
    start(w, "b", program, what, NULL);
    for (;; n++) {
        while (!w->page->waiting && waitpid(w->c.pid, NULL, WNOHANG) == 0) {
            assert_false(child_says(&w->c, 0)); /* it came through */
            usleep(200);
        }
        if (!w->page->waiting)
            break;
        assert_false(child_says(&w->c, 0));
        w->page->closed = 0;
        assert_true(child_says(&w->c, 10000));
        w->page->closed = 1;
        assert_int_equal(write(w->c.to, "g", 1), 1);
    }
    w->c.pid = 0;
    close(w->c.to);
    close(w->c.from);
#define CALL(name) +1
#define STUB(name) CALL(name)
    unsigned calls = 0
#include "held_calls.h"
        ;
    assert_int_equal(n, calls);
}

HIP_TEST(each_is_held)
{
    hold_each(w, prog(), "each");
}

HIP_TEST(lookups)
{
    hold_each(w, getenv("PROG_LOOKUP"), "lookup");
}

HIP_TEST(never_held)
{
    w->page->control.any = 1;
    w->page->closed = 1;
    start(w, "b", prog(), "never", NULL);
    assert_true(child_says(&w->c, 10000));
    assert_int_equal(child_end(&w->c), 0);
    assert_int_equal(w->page->passed, 0);
    assert_int_equal(summarize(w, "log.b").violations, 0);
}

/* A thread may fork or be cancelled, and a library may call itself or set errno, while the gate
 * makes an event; a capture may come at any moment of a submission in another thread. */
HIP_TEST(interrupted)
{
    static const struct {
        const char *how, *what;
        int times;
    } t[] = {{"fork", "threads", 1},
             {"reenter", "threads", 1},
             {"cancel", "cancelled", 1},
             {"errno", "cancelled", 1},
             {"none", "captures", 10}};
    w->page->control.any = 1;
    w->page->limit_ns = 1000000;
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        setenv("TOY_EVENT", t[i].how, 1);
        for (int k = 0; k < t[i].times; k++) {
            struct summary s = run(w, "b", prog(), t[i].what, NULL);
            assert_true(s.gate_calls > 0);
            assert_int_equal(s.violations, 0);
        }
        unsetenv("TOY_EVENT");
    }
}

HIP_TEST(killed_while_held)
{
    w->page->control.any = 1;
    w->page->closed = 1;
    start(w, "b", prog(), "each", NULL);
    while (!w->page->waiting)
        usleep(200);
    kill(w->c.pid, SIGTERM);
    assert_int_equal(child_end(&w->c), 128 + SIGTERM);
}

/* hipcc's programs, where there is a hipcc. */
HIP_TEST(compiled)
{
    const char *program = getenv("HIP_PROGRAM");
    if (!program || !program[0])
        skip();
    w->page->control.any = 1;
    w->page->limit_ns = 1000000;
    struct summary a = run(w, "a", program, "x", NULL), b = run(w, "b", program, "x", NULL);
    assert_true(a.lines > 100);
    assert_string_equal(a.order, b.order);
    assert_true(w->page->passed > 100);
    assert_true(a.inflight > 4000000 && b.inflight < 3000000);
}

int main(void)
{
    if (!getenv("GATE") || !prog() || !getenv("PROG_LOOKUP"))
        return 77; /* `meson test` says where they are */
    return test_run(NULL, NULL);
}
