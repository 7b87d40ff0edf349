/* See fixture.h. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

struct result result;

static pid_t gpu, last_ceded;
const char *e2e_driver = "soft";
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
    char file[96];
    snprintf(file, sizeof(file), "%s%s", name, suffix);
    int fd = open(in_dir(file), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
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

pid_t in_a_child(void (*what)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        what();
        _exit(0);
    }
    return pid;
}

const char *contents(const char *file)
{
    static char text[OUTPUT_MAX];
    text[0] = '\0';
    _cleanup_close_ int fd = open(in_dir(file), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return text;
    /* The end is what matters. */
    off_t size = lseek(fd, 0, SEEK_END), room = (off_t)sizeof(text) - 1;
    ssize_t n = pread(fd, text, sizeof(text) - 1, size > room ? size - room : 0);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

pid_t pid_in(const char *file)
{
    AWAIT(strchr(contents(file), '\n'));
    return (pid_t)strtol(contents(file), NULL, 10);
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

void slay_child(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(await_child(pid), 1000 + SIGKILL);
}

/* /proc/PID/task/PID/children leaves out one when another ends while it is read. */
size_t children_of(pid_t pid, pid_t *v, size_t n)
{
    _cleanup_free_ pid_t *all = NULL;
    size_t found = 0, nall = 0;
    assert_int_equal(proc_list(&all, &nall), 0);
    for (size_t i = 0; i < nall; i++) {
        struct proc_stat st;
        if (proc_stat_read(all[i], &st) == 0 && st.ppid == pid && found++ < n)
            v[found - 1] = all[i];
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
    e2e_driver = name;
}

int e2e_begin(void **state)
{
    if (harness_begin(state) < 0)
        return -1;
    setenv("CEDE_SOFT_SOCKET", in_dir("gpu"), 1);
    set_cede_home(harness_dir());
    set_device(e2e_driver);
    set_accounts(false);
    configure(20, "");
    if (strcmp(e2e_driver, "soft") != 0) {
        (void)all_have_contexts(
            NULL, 0); /* before there are programs: it then knows which contexts came later */
        return 0;
    }
    gpu = ANOTHER_GPU("softgpu", NULL);
    return 0;
}

int e2e_end(void **state)
{
    int st = 0;
    bool well = true;
    if (last_ceded && waitpid(last_ceded, &st, WNOHANG) == 0) {
        kill(last_ceded, SIGTERM);
        well = EVENTUALLY(waitpid(last_ceded, &st, WNOHANG) != 0) && st == 0;
        if (!well)
            print_error("ceded did not end well: %s\n", contents("ceded.err"));
    }
    last_ceded = 0;
    return harness_end(state) < 0 || !well ? -1 : 0;
}

int e2e_at_once(void)
{
    size_t n;
    const struct CMUnitTest *tests = test_list(&n);
    pid_t pids[20];
    int failed = 0, status;
    assert_in_range(n, 1, ARRAY_SIZE(pids));
    const size_t most = SANITIZED ? 8 : n; /* these compute for longer, and wait less */
    fflush(NULL);
    for (size_t i = 0; i < n + most; i++) {
        if (i >= most)
            failed += waitpid(pids[i - most], &status, 0) != pids[i - most] || status != 0;
        if (i >= n)
            continue;
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            exit(_cmocka_run_group_tests(tests[i].name, &tests[i], 1, NULL, NULL) != 0);
    }
    return failed;
}

pid_t gpu_pid(void)
{
    return gpu;
}

pid_t another_gpu(const char *name, const char *const options[])
{
    const char *argv[16] = {"cede", "softgpu"};
    char out[40];
    for (size_t i = 0; options[i] && i + 3 < ARRAY_SIZE(argv); i++)
        argv[i + 2] = options[i];
    snprintf(out, sizeof(out), "%s.out", name);
    pid_t pid = spawn(name, argv);
    AWAIT(strstr(contents(out), "listening"));
    return pid;
}

pid_t replace_gpu(const char *const options[])
{
    static unsigned count;
    char name[32];
    snprintf(name, sizeof(name), "softgpu%u", ++count);
    slay_child(gpu);
    gpu = another_gpu(name, options);
    return gpu;
}

void small_gpu(const char *bytes)
{
    REPLACE_GPU("--memory", bytes);
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

const char *in_dir(const char *name)
{
    static char text[4][256];
    static unsigned next;
    char *t = text[next++ % ARRAY_SIZE(text)];
    snprintf(t, sizeof(text[0]), "%s/%s", harness_dir(), name);
    return t;
}

void touch(const char *name)
{
    int fd = open(in_dir(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

/* ---- the daemon ---- */

void set_accounts(bool kept)
{
    accounts = kept;
}

void configure(unsigned rotation_ms, const char *more)
{
    FILE *f = fopen(in_dir("cede.conf"), "we");
    assert_non_null(f);
    const bool starts = strncmp(more, "swap_start", 10) == 0; /* else nobody waits for them */
    fprintf(f,
            "[daemon]\ndevice = %s\naccounts = %s\n%s%s\n[policy]\nrotation_us = %u\nprobe_us = "
            "5000\n%s\n",
            device, accounts ? "yes" : "no",
            strcmp(e2e_driver, "soft") == 0 ? "" : "driver_check = never\n",
            starts ? more : "swap_start = 0", rotation_ms * 1000, starts ? "" : more);
    assert_int_equal(fclose(f), 0);
}

/* One that `cede run` has started ends a moment after it. */
static bool nobody_answers(void)
{
    json_t *answer = ask_jobs();
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
    struct ceded d;
    json_t *answer = NULL;
    AWAIT(nobody_answers());
    d.pid = last_ceded =
        SPAWN("ceded", "cede", "daemon", "--config", in_dir("cede.conf"), "--dir", home);
    bool up =
        EVENTUALLY((answer = ask_jobs()) || !process_state(d.pid) || process_state(d.pid) == 'Z');
    if (!up || !answer)
        fail_msg("ceded does not start: %s", contents("ceded.err"));
    assert_int_equal(json_integer_value(json_object_get(answer, "pid")), d.pid);
    json_decref(answer);
    AWAIT((d.restorer = restorer_of(d.pid)) != 0);
    return d;
}

void ceded_kill(struct ceded *d)
{
    slay_child(d->pid);
    assert_int_equal(await_child(d->restorer), 0); /* an orphan of ours now */
}

void ceded_kill_both(struct ceded *d)
{
    kill(d->restorer, SIGSTOP);
    await_state(d->restorer, "T");
    slay_child(d->pid);
    slay_child(d->restorer); /* an orphan of ours now */
}

void ceded_stop(struct ceded *d)
{
    assert_int_equal(kill(d->pid, SIGTERM), 0);
    if (await_child(d->pid) != 0)
        fail_msg("ceded did not end well: %s", contents("ceded.err"));
}

int connect_raw(int flags)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/socket", home);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

json_t *ask(const char *text)
{
    static char buf[70000];
    const struct timeval patience = {.tv_sec = 10};
    _cleanup_close_ int fd = connect_raw(0);
    if (fd < 0)
        return NULL;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        return NULL;
    ssize_t n = recv(fd, buf, sizeof(buf), 0);
    return n > 0 ? json_loadb(buf, (size_t)n, 0, NULL) : NULL;
}

json_t *ask_jobs(void)
{
    return ask("{\"v\":1,\"op\":\"ps\"}");
}

json_t *job_named(const char *name)
{
    json_t *all = ask_jobs(), *job, *found = NULL;
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

json_t *value_at(json_t *o, const char *path)
{
    char key[32];
    while (o && *path) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof(key), "%.*s", (int)n, path);
        o = json_is_array(o) ? json_array_get(o, strtoul(key, NULL, 10)) : json_object_get(o, key);
        path += n + (path[n] == '.');
    }
    return o;
}

bool job_is(const char *name, const char *path, const char *value)
{
    json_t *job = job_named(name);
    const char *v = json_string_value(value_at(job, path));
    bool is = v && strcmp(v, value) == 0;
    json_decref(job);
    return is;
}

double job_number(const char *name, const char *path)
{
    json_t *job = job_named(name);
    const json_t *v = value_at(job, path);
    double number = json_is_true(v) ? 1 : json_number_value(v);
    json_decref(job);
    return number;
}

long long job_int(const char *name, const char *path)
{
    return (long long)job_number(name, path);
}

size_t job_count(const char *name, const char *path)
{
    json_t *job = job_named(name);
    size_t n = json_array_size(value_at(job, path));
    json_decref(job);
    return n;
}

/* ---- loads ---- */

pid_t load_start(const char *name, const char *const role_and_more[])
{
    const char *const *more = role_and_more + 1;
    const char *argv[32] = {"cede",   "load", role_and_more[0], "--device", e2e_driver,
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

void mps_server(const char *name)
{
    if (!name) {
        unsetenv("CUDA_MPS_PIPE_DIRECTORY");
        return;
    }
    mkdir(in_dir(name), 0700);
    setenv("CUDA_MPS_PIPE_DIRECTORY", in_dir(name), 1);
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

void loads_start(size_t n, const char *const names[], pid_t pids[])
{
    for (size_t i = 0; i < n; i++)
        pids[i] =
            strcmp(names[i], "lat") == 0 ? LOAD(names[i], "latency") : LOAD(names[i], "batch");
    AWAIT(all_have_contexts(pids, n));
}

void become_jobs(size_t n, const char *const names[], const pid_t pids[])
{
    for (size_t i = 0; i < n; i++)
        CEDE("set", pid_text(pids[i]), "-c", strcmp(names[i], "lat") == 0 ? "latency" : "batch");
}

void loads_end(size_t n, const char *const names[], const pid_t pids[])
{
    for (size_t i = 0; i < n; i++)
        json_decref(load_end(names[i], pids[i]));
}

pid_t job_start(const char *name, const char *class, const char *const more[])
{
    const char *argv[32] = {"cede",     "run",  "--gpu-device", "soft",        "-c",   class,
                            "-n",       name,   "--",           harness_exe(), "load", "batch",
                            "--device", "soft", "--verify",     "--kernel-us", "2000"};
    for (size_t i = 0; more[i] && i + 18 < ARRAY_SIZE(argv); i++)
        argv[i + 17] = more[i];
    return spawn(name, argv);
}

pid_t program_below(pid_t runner)
{
    pid_t pid = 0;
    AWAIT(children_of(runner, &pid, 1) == 1);
    return pid;
}
