/* The verbs with a real daemon, or none, on the software GPU. Only what becomes of jobs is looked
 * at; how well they are scheduled is shown elsewhere. */
#include <jansson.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"

static struct result r;

static pid_t gpu;

static int begin(void **state)
{
    char line[128];
    int out;
    if (harness_begin(state) < 0)
        return -1;
    gpu = start_program(&out, (const char *const[]){"cede", "softgpu", NULL});
    read_line(out, line, sizeof(line)); /* it listens */
    return 0;
}

static int end(void **state)
{
    kill(gpu, SIGTERM);
    return harness_end(state);
}

/* The jobs as `cede ps --json` has them; the caller's reference. */
static json_t *jobs(void)
{
    RUN_OK("cede", "ps", "--json");
    json_t *all = json_loads(r.out, 0, NULL), *list = json_object_get(all, "jobs");
    assert_true(json_is_array(list));
    json_incref(list);
    json_decref(all);
    return list;
}

static bool is(const char *name, const char *key, const char *value)
{
    json_t *list = jobs();
    const json_t *job;
    size_t i;
    bool yes = false;
    json_array_foreach(list, i, job)
    {
        const char *n = NULL, *v = NULL;
        (void)json_unpack((json_t *)job, "{s?s, s?s}", "name", &n, key, &v);
        yes |= n && strcmp(n, name) == 0 && v && strcmp(v, value) == 0;
    }
    json_decref(list);
    return yes;
}

static void await(const char *name, const char *key, const char *value)
{
    for (int i = 0; i < 400; i++) {
        if (is(name, key, value))
            return;
        nanosleep(&(struct timespec){.tv_nsec = 25000000}, NULL);
    }
    fail_msg("%s: %s did not become %s:\n%s", name, key, value, r.out);
}

static pid_t daemon_pid(void)
{
    RUN_OK("cede", "ps", "--json");
    json_t *all = json_loads(r.out, 0, NULL);
    pid_t pid = (pid_t)json_integer_value(json_object_get(all, "pid"));
    json_decref(all);
    return pid;
}

static pid_t start_job(const char *name, const char *class)
{
    int out; /* stays open: the program's output has to go somewhere */
    return start_program(&out,
                         (const char *const[]){"cede", "run", "--strict", "--gpu-device", "soft",
                                               "-c", class, "-n", name, "--", harness_exe(), "load",
                                               "batch", "--device", "soft", NULL});
}

static void end_job(pid_t runner)
{
    kill(runner, SIGTERM);
    ends_with(runner, 0); /* cede-load ends well on SIGTERM */
}

/* A verb that finds no daemon starts one, which goes with the last of what it made jobs.
 * The first test: a daemon that came second may wait a while for its chance. */
TEST(begun_by_a_verb)
{
    int out;
    char pid[16], other[16];
    /* A program's name may hold what a terminal obeys. */
    const char *const load[] = {"cede", "load", "batch", "--device", "soft", NULL};
    const char *const load_odd[] = {"cede", "load",   "batch",    "--device",
                                    "soft", "--name", "\033[31m", NULL};
    pid_t program = start_program(&out, load), second = start_program(&out, load_odd);
    snprintf(pid, sizeof(pid), "%d", (int)program);
    snprintf(other, sizeof(other), "%d", (int)second);
    for (int i = 0; i < 400; i++) {
        RUN_OK("cede", "ps", "-a");
        if (strstr(r.out, pid) && strstr(r.out, other))
            break;
        nanosleep(&(struct timespec){.tv_nsec = 25000000}, NULL);
    }
    assert_non_null(strstr(r.out, pid));

    SAYS(&r, 0, ": batch, weight 100\n", NULL, "cede", "set", "-c", "batch", pid);
    assert_string_equal(r.err, "");
    RUN_OK("cede", "pause", pid, other);
    SAYS(&r, 0, "paused", NULL, "cede", "ps", pid);
    RUN_OK("cede", "resume", other);
    RUN_OK("cede", "ps", other);
    assert_null(strstr(r.out, "paused"));
    /* All are tried. */
    SAYS(&r, 1, NULL, NULL, "cede", "resume", "2147483647", "%999", pid);
    assert_string_equal(r.err, "cede: 2147483647: there is no process 2147483647\n"
                               "cede: %999: there is no job #999; `cede ps` lists them\n");
    SAYS(&r, 1, NULL, "cede: 2147483647: there is no process", "cede", "swap-in", "nosuchjob",
         "2147483647");
    assert_non_null(strstr(r.err, "cede: nosuchjob: "));
    SAYS(&r, 0, "running", NULL, "cede", "ps", pid);
    SAYS(&r, 0, "_[31m: batch", NULL, "cede", "set", other, "-c", "batch", "-w", "5");
    pid_t daemon = daemon_pid();
    RUN_OK("cede", "set", pid, other, "-c", "none");
    ends_with(daemon, 0);
    RUN_OK("cede", "ps");
    assert_string_equal(r.out, "no jobs\n");
    /* By another daemon, as by one that leaves when it is asked. */
    SAYS(&r, 1, NULL, "is in no job", "cede", "set", pid, "-c", "none");
    SAYS(&r, 0, ": batch, weight 100\n", NULL, "cede", "set", "--others", "-c", "batch");
    daemon = daemon_pid();
    RUN_OK("cede", "set", pid, other, "-c", "none");
    RUN_OK("cede", "set", "-c", "batch", pid);
    ends_with(daemon, 0);
    daemon = daemon_pid();
    kill(program, SIGTERM);
    kill(second, SIGTERM);
    waitpid(program, NULL, 0);
    waitpid(second, NULL, 0);
    ends_with(daemon, 0);
}

/* Several at once start one daemon; it goes with the last of them. */
TEST(transient_daemon)
{
    enum { N = 4 };
    static const char *const names[N] = {"a", "b", "c", "d"};
    pid_t runners[N];
    /* Of a service that starts programs by `cede run`: its state is not the daemon's to tell. */
    char told[64];
    struct sockaddr_un notify = {.sun_family = AF_UNIX};
    snprintf(notify.sun_path, sizeof(notify.sun_path), "%s/notify", harness_dir());
    int service = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(service, (struct sockaddr *)&notify, sizeof(notify)), 0);
    setenv("NOTIFY_SOCKET", notify.sun_path, 1);
    for (int i = 0; i < N; i++)
        runners[i] = start_job(names[i], i ? "batch" : "latency");
    for (int i = 0; i < N; i++)
        await(names[i], "class", i ? "batch" : "latency");
    await("a", "state", "running");
    pid_t daemon = daemon_pid();
    assert_true(daemon > 1);
    assert_int_not_equal(process_parent(daemon), runners[0]);

    await("b", "source", "run");
    RUN_OK("cede", "pause", "b");
    assert_string_equal(strchr(r.out, ' '), " b: paused\n");
    assert_true(is("b", "state", "paused"));
    RUN_OK("cede", "set", "b", "-c", "latency", "-w", "7");
    assert_true(is("b", "class", "latency"));
    assert_true(is("b", "state", "paused"));
    RUN_OK("cede", "resume", "b");
    await("b", "state", "running");
    RUN_OK("cede", "load", "calibrate", "--device", "soft");
    RUN_OK("cede", "policy", "shares");
    for (int i = 1; i < N; i++)
        await(names[i], "state", "running");
    SAYS(&r, 2, NULL, NULL, "cede", "policy", "nonsense");
    RUN_OK("cede", "policy", "timeslice_share_us=5000");
    SAYS(&r, 0, "  timeslice_share_us=5000      slice of ", NULL, "cede", "policy");
    SAYS(&r, 2, NULL, NULL, "cede", "policy", "timeslice_share_us=0");

    for (int i = 0; i < N; i++)
        end_job(runners[i]);
    ends_with(daemon, 0); /* the harness takes in what has no parent */
    unsetenv("NOTIFY_SOCKET");
    assert_int_equal(recv(service, told, sizeof(told), MSG_DONTWAIT), -1);
    close(service);
    RUN_OK("cede", "ps");
    assert_string_equal(r.out, "no jobs\n");
}

/* A killed runner's program stays a job until somebody lets go of it. */
TEST(survives)
{
    pid_t runner = start_job("left", "batch");
    await("left", "state", "running");
    json_t *list = jobs();
    pid_t root = (pid_t)json_integer_value(json_object_get(json_array_get(list, 0), "pid"));
    json_decref(list);
    assert_int_equal(root, runner);
    kill(runner, SIGKILL);
    assert_int_equal(waitpid(runner, NULL, 0), runner);
    pid_t other = start_job("other", "batch");
    await("other", "class", "batch");
    assert_true(is("left", "class", "batch"));
    pid_t daemon = daemon_pid();
    RUN_OK("cede", "set", "left", "-c", "none");
    assert_false(is("left", "class", "batch"));
    end_job(other);
    ends_with(daemon, 0);
}

/* A daemon that is to stay takes over from a transient one, with its jobs. */
TEST(relieved)
{
    int out;
    pid_t job = start_job("a", "batch");
    await("a", "state", "running");
    RUN_OK("cede", "pause", "a");
    const pid_t transient = daemon_pid();
    pid_t stays = start_program(&out, (const char *const[]){"cede", "daemon", "--device", "soft",
                                                            "--dir", getenv("CEDE_DIR"), NULL});
    ends_with(transient, 0);
    for (int i = 0; i < 400 && daemon_pid() != stays; i++)
        nanosleep(&(struct timespec){.tv_nsec = 25000000}, NULL);
    assert_int_equal(daemon_pid(), stays);
    await("a", "state", "paused");
    RUN_OK("cede", "resume", "a");
    end_job(job);
    kill(stays, SIGTERM);
    ends_with(stays, 0);
}

int main(void)
{
    return test_run(begin, end);
}
