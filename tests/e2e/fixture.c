/* See fixture.h. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "device/registry.h"
#include "recovery/journal.h"

struct result result;

static pid_t gpu;
static const char *driver_name = "soft";
static char home[80], device[256];
static bool accounts;

void nap_ms(unsigned ms)
{
    nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

/* xorshift64*: S. Vigna, "An experimental exploration of Marsaglia's xorshift generators". */
uint64_t rng_below(struct rng *r, uint64_t n)
{
    r->state ^= r->state >> 12;
    r->state ^= r->state << 25;
    r->state ^= r->state >> 27;
    return (r->state * 2685821657736338717ULL >> 33) % n;
}

/* ---- programs ---- */

static int open_output(const char *name, const char *suffix)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s%s", harness_dir(), name, suffix);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

pid_t spawn(const char *name, const char *const argv[])
{
    int out = open_output(name, ".out"), err = open_output(name, ".err");
    pid_t pid = harness_start(argv, -1, out, err, true);
    close(out);
    close(err);
    return pid;
}

const char *contents(const char *file)
{
    static char text[OUTPUT_MAX];
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", harness_dir(), file);
    text[0] = '\0';
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return text;
    /* The end is what matters. */
    off_t size = lseek(fd, 0, SEEK_END), room = (off_t)sizeof(text) - 1;
    ssize_t n = pread(fd, text, sizeof(text) - 1, size > room ? size - room : 0);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

int await_child(pid_t pid)
{
    int st = 0;
    pid_t got = 0;
    if (!EVENTUALLY((got = waitpid(pid, &st, WNOHANG)) != 0))
        fail_msg("process %d does not end", (int)pid);
    assert_int_equal(got, pid);
    return status_of(st);
}

size_t children_of(pid_t pid, pid_t *v, size_t n)
{
    char path[64];
    size_t found = 0;
    int child;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    for (; f && fscanf(f, "%d", &child) == 1; found++) {
        if (found < n)
            v[found] = child;
    }
    return found;
}

struct named children_named(pid_t parent, const char *name)
{
    pid_t v[64];
    struct named found = {0};
    size_t n = children_of(parent, v, ARRAY_SIZE(v));
    for (size_t i = 0; i < n && i < ARRAY_SIZE(v); i++) {
        struct proc_stat st;
        if (proc_stat_read(v[i], &st) < 0 || strcmp(st.comm, name) != 0)
            continue;
        found.n++;
        found.living += st.state != 'Z';
        found.pid = st.state != 'Z' ? v[i] : found.pid;
    }
    return found;
}

void use_driver(const char *name)
{
    driver_name = name;
}

/* A software GPU may be another one since the last look. A real one is not, and its driver knows by
 * now where to look for a program's contexts, which takes seconds the first time. */
static struct device_driver *test_driver(void)
{
    static struct device_driver *d;
    struct error err = {""};
    if (d && strcmp(driver_name, "soft") == 0) {
        device_close(d);
        d = NULL;
    }
    if (!d && device_open(driver_name, NULL, &d, &err) < 0)
        fail_msg("%s", err.text);
    return d;
}

int e2e_begin(void **state)
{
    char path[96];
    if (harness_begin(state) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/gpu", harness_dir());
    setenv("CEDE_SOFT_SOCKET", path, 1);
    set_cede_home(harness_dir());
    set_device(driver_name);
    set_accounts(false);
    configure(20, "");
    if (strcmp(driver_name, "soft") != 0) {
        test_driver(); /* before there are programs: it then knows which contexts came later */
        return 0;
    }
    gpu = SPAWN("softgpu", "cede", "softgpu");
    assert_true(EVENTUALLY(strstr(contents("softgpu.out"), "listening")));
    return 0;
}

int e2e_end(void **state)
{
    return harness_end(state);
}

int e2e_at_once(const struct CMUnitTest *tests, size_t n)
{
    pid_t pids[16];
    int failed = 0, status;
    assert_in_range(n, 1, ARRAY_SIZE(pids));
    fflush(NULL);
    for (size_t i = 0; i < n; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            exit(_cmocka_run_group_tests(tests[i].name, &tests[i], 1, NULL, NULL) != 0);
    }
    for (size_t i = 0; i < n; i++)
        failed += waitpid(pids[i], &status, 0) != pids[i] || status != 0;
    return failed;
}

pid_t gpu_pid(void)
{
    return gpu;
}

void replace_gpu(const char *const argv[])
{
    static unsigned count;
    char name[32], out[40];
    snprintf(name, sizeof(name), "softgpu%u", ++count);
    snprintf(out, sizeof(out), "%s.out", name);
    kill(gpu, SIGKILL);
    assert_int_equal(await_child(gpu), 1000 + SIGKILL);
    gpu = spawn(name, argv);
    assert_true(EVENTUALLY(strstr(contents(out), "listening")));
}

void small_gpu(const char *bytes)
{
    replace_gpu((const char *const[]){"cede", "softgpu", "--memory", bytes, NULL});
}

const char *cede_home(void)
{
    return home;
}

void set_cede_home(const char *dir)
{
    snprintf(home, sizeof(home), "%s", dir);
    setenv("CEDE_DIR", home, 1);
}

void set_device(const char *list)
{
    snprintf(device, sizeof(device), "%s", list);
}

const char *pid_text(pid_t pid)
{
    static char text[4][16];
    static unsigned next;
    char *t = text[next++ % ARRAY_SIZE(text)];
    snprintf(t, sizeof(text[0]), "%d", (int)pid);
    return t;
}

/* ---- the daemon ---- */

void set_accounts(bool kept)
{
    accounts = kept;
}

void configure(unsigned rotation_ms, const char *more)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/cede.conf", harness_dir());
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    const bool starts = strncmp(more, "swap_start", 10) == 0; /* else nobody waits for them */
    fprintf(f,
            "[daemon]\ndevice = %s\naccounts = %s\n%s%s\n[policy]\nrotation_us = %u\nprobe_us = "
            "5000\n%s\n",
            device, accounts ? "yes" : "no",
            strcmp(driver_name, "soft") == 0 ? "" : "driver_check = never\n",
            starts ? more : "swap_start = 0", rotation_ms * 1000, starts ? "" : more);
    assert_int_equal(fclose(f), 0);
}

/* One that `cede run` has started ends a moment after it. */
static bool nobody_answers(void)
{
    json_t *answer = ask("{\"v\":1,\"op\":\"ps\"}");
    json_decref(answer);
    return !answer;
}

pid_t restorer_of(pid_t ceded)
{
    const struct named c = children_named(ceded, "cede-restore");
    return c.n == 1 ? c.pid : 0;
}

struct ceded ceded_start(void)
{
    char config[96];
    struct ceded d;
    json_t *answer = NULL;
    assert_true(EVENTUALLY(nobody_answers()));
    snprintf(config, sizeof(config), "%s/cede.conf", harness_dir());
    d.pid = SPAWN("ceded", "cede", "daemon", "--config", config, "--dir", home);
    bool up = EVENTUALLY((answer = ask("{\"v\":1,\"op\":\"ps\"}")) || !process_state(d.pid) ||
                         process_state(d.pid) == 'Z');
    if (!up || !answer)
        fail_msg("ceded does not start: %s", contents("ceded.err"));
    assert_int_equal(json_integer_value(json_object_get(answer, "pid")), d.pid);
    json_decref(answer);
    assert_true(EVENTUALLY((d.restorer = restorer_of(d.pid)) != 0));
    return d;
}

void ceded_kill(struct ceded *d)
{
    assert_int_equal(kill(d->pid, SIGKILL), 0);
    assert_int_equal(await_child(d->pid), 1000 + SIGKILL);
    assert_int_equal(await_child(d->restorer), 0); /* an orphan of ours now */
}

void ceded_stop(struct ceded *d)
{
    assert_int_equal(kill(d->pid, SIGTERM), 0);
    if (await_child(d->pid) != 0)
        fail_msg("ceded did not end well: %s", contents("ceded.err"));
}

json_t *ask(const char *text)
{
    static char buf[70000];
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = 10};
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/socket", home);
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
        send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        return NULL;
    ssize_t n = recv(fd, buf, sizeof(buf), 0);
    return n > 0 ? json_loadb(buf, (size_t)n, 0, NULL) : NULL;
}

json_t *job_named(const char *name)
{
    json_t *all = ask("{\"v\":1,\"op\":\"ps\"}"), *job, *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(all, "jobs"), i, job)
    {
        const char *n = json_string_value(json_object_get(job, "name"));
        if (n && strcmp(n, name) == 0 && !found)
            found = json_incref(job);
    }
    json_decref(all);
    return found;
}

bool job_gone(const char *name)
{
    json_t *job = job_named(name);
    json_decref(job);
    return !job;
}

bool job_is(const char *name, const char *key, const char *value)
{
    json_t *job = job_named(name);
    const char *v = json_string_value(json_object_get(job, key));
    bool is = v && strcmp(v, value) == 0;
    json_decref(job);
    return is;
}

long long job_int(const char *name, const char *key)
{
    json_t *job = job_named(name);
    long long v = json_integer_value(json_object_get(job, key));
    json_decref(job);
    return v;
}

/* ---- loads ---- */

pid_t load_start(const char *name, const char *const role_and_more[])
{
    const char *const *more = role_and_more + 1;
    const char *argv[32] = {"cede",   "load", role_and_more[0], "--device", driver_name,
                            "--name", name,   "--verify"};
    size_t n = 8;
    if (strcmp(role_and_more[0], "batch") == 0) {
        argv[n++] = "--kernel-us";
        argv[n++] = "2000";
    }
    for (size_t i = 0; more[i] && n + 1 < ARRAY_SIZE(argv); i++)
        argv[n++] = more[i];
    return spawn(name, argv);
}

json_t *load_final(const char *name)
{
    char file[80];
    snprintf(file, sizeof(file), "%s.out", name);
    const char *text = contents(file);
    size_t n = strlen(text);
    assert_true(n > 0 && text[n - 1] == '\n');
    const char *line = text + n - 1;
    while (line > text && line[-1] != '\n')
        line--;
    json_t *o = json_loads(line, 0, NULL);
    assert_non_null(o);
    assert_non_null(json_object_get(o, "role"));
    return o;
}

json_t *load_end(const char *name, pid_t pid)
{
    kill(pid, SIGTERM);
    assert_int_equal(await_child(pid), 0);
    json_t *o = load_final(name);
    if (!json_is_true(json_object_get(o, "verified")))
        fail_msg("%s: %s", name, json_dumps(o, 0));
    return o;
}

/* ---- the device ---- */

static struct group_list groups_of(struct device_driver *d, pid_t pid)
{
    struct group_list l = {0};
    struct proc_stat st;
    struct error err = {""};
    int r = 0;
    assert_int_equal(proc_stat_read(pid, &st), 0);
    /* A look at a process takes several steps; it may have done before all of them. */
    bool done = EVENTUALLY(({
        group_list_free(&l);
        l = (struct group_list){0};
        r = d->ops->scan(d, st.id, &l, &err);
        r != -EAGAIN || l.n;
    }));
    if (!done || (r < 0 && r != -EAGAIN))
        fail_msg("%s", err.text);
    return l;
}

bool all_have_contexts(const pid_t *v, size_t n)
{
    struct device_driver *d = test_driver();
    bool all = true;
    for (size_t i = 0; i < n; i++) {
        struct group_list l = groups_of(d, v[i]);
        all &= l.n > 0;
        group_list_free(&l);
    }
    return all;
}

uint64_t odd_slice(const pid_t *v, size_t n)
{
    struct device_driver *d = test_driver();
    uint64_t odd = 0;
    for (size_t i = 0; i < n; i++) {
        struct group_list l = {0};
        /* One that comes back from host memory has none for a moment. */
        bool back = EVENTUALLY(({
            group_list_free(&l);
            l = groups_of(d, v[i]);
            l.n > 0;
        }));
        if (!back)
            fail_msg("process %d has nothing on the GPU", (int)v[i]);
        for (size_t k = 0; k < l.n && !odd; k++)
            odd = l.v[k].timeslice_now_us == SLICE_DEFAULT_US || l.v[k].kind != GROUP_COMPUTE
                      ? 0
                      : l.v[k].timeslice_now_us;
        group_list_free(&l);
    }
    return odd;
}

bool all_slices_default(const pid_t *v, size_t n)
{
    return odd_slice(v, n) == 0;
}

static void add_usage(struct device_driver *d, const pid_t *v, size_t n, double *busy)
{
    struct usage_list u = {0};
    assert_int_equal(d->ops->usage(d, &u, NULL), 0);
    for (size_t k = 0; k < u.n; k++) {
        for (size_t i = 0; i < n; i++) {
            if (u.v[k].pid == v[i] && u.v[k].busy > 0)
                busy[i] += u.v[k].busy;
        }
    }
    usage_list_free(&u);
}

void await_progress(const pid_t *v, size_t n)
{
    struct device_driver *d = test_driver();
    double busy[32] = {0};
    size_t done = 0;
    assert_true(n <= ARRAY_SIZE(busy));
    bool all = EVENTUALLY(({
        add_usage(d, v, n, busy);
        while (done < n && busy[done] > 0)
            done++;
        done == n;
    }));
    if (!all)
        fail_msg("process %d does not get the GPU", (int)v[done]);
}

void measure(const pid_t *v, size_t n, unsigned ms, double *busy)
{
    struct device_driver *d = test_driver();
    struct usage_list u = {0};
    assert_int_equal(d->ops->usage(d, &u, NULL), 0); /* the time counts from here */
    usage_list_free(&u);
    nap_ms(ms);
    memset(busy, 0, n * sizeof(*busy));
    add_usage(d, v, n, busy);
}

/* Group records of one process, or of all (pid 0). */
static unsigned count(pid_t pid, unsigned *suspended_of)
{
    struct journal *j;
    unsigned n = 0, s = 0;
    if (journal_open_readonly(home, &j, NULL) == 0) {
        for (uint32_t i = 0; i < journal_groups_end(j); i++) {
            uint32_t flags;
            const struct device_group *g = journal_group(j, i, &flags);
            if (!g || (pid && g->proc.pid != pid))
                continue;
            n++;
            s += (flags & JG_SUSPENDED) != 0;
        }
        journal_close(j);
    }
    if (suspended_of)
        *suspended_of = s;
    return n;
}

unsigned records(unsigned *suspended_of)
{
    return count(0, suspended_of);
}

unsigned swap_records(pid_t *swapper)
{
    struct journal *j;
    unsigned n = 0;
    if (swapper)
        *swapper = 0;
    if (journal_open_readonly(cede_home(), &j, NULL) < 0)
        return 0;
    for (uint32_t i = 0; i < JOURNAL_SWAPS; i++) {
        const struct journal_swap *s = journal_swap(j, i);
        n += s != NULL;
        if (swapper && s && s->swapper.pid && proc_alive(s->swapper))
            *swapper = s->swapper.pid;
    }
    journal_close(j);
    return n;
}

bool somebody_suspended(void)
{
    unsigned s;
    count(0, &s);
    return s > 0;
}

bool suspended(pid_t pid)
{
    unsigned s;
    count(pid, &s);
    return s > 0;
}

static unsigned suspended_of(const pid_t *v, size_t n)
{
    unsigned all = 0;
    for (size_t i = 0; i < n; i++)
        all += suspended(v[i]);
    return all;
}

bool runs_on(const pid_t *v, size_t n)
{
    bool runs = EVENTUALLY(suspended_of(v, n) == 0);
    for (int i = 0; i < 50 && runs; i++) {
        nap_ms(5);
        runs = suspended_of(v, n) == 0;
    }
    return runs;
}
