/* A driver that ceded does not know, shown by the software GPU: it is checked before any program is
 * steered, what has no effect stays off, and nothing is left of a check however it ends. The tests
 * mostly wait, so they run at the same time. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "daemon/findings.h"
#include "fixture.h"

#define BEGINS "is checked before any program is steered"
#define WORKS  "timeslices and suspension have their effect"
#define ALWAYS "swap_start = 0\ndriver_check = always"
#define NEVER  "swap_start = 0\ndriver_check = never"

/* In place of the one that is there. */
static void gpu_with(const char *driver, const char *inert, const char *gpus)
{
    REPLACE_GPU("--gpus", gpus, "--driver", driver, inert ? "--inert" : NULL, inert);
}

static unsigned said(const char *text)
{
    unsigned n = 0;
    for (const char *at = contents("ceded.err"); (at = strstr(at, text)); at += strlen(text))
        n++;
    return n;
}

static void await_said(const char *text)
{
    if (!EVENTUALLY(said(text)))
        fail_msg("ceded does not say '%s' but: %s", text, contents("ceded.err"));
}

static bool has_ended(pid_t pid)
{
    return !process_state(pid) || process_state(pid) == 'Z';
}

static uint64_t slice_of(pid_t pid)
{
    return odd_slice(&pid, 1);
}

static const char *const names[] = {"lat", "batch", "other_batch"};

/* The check's process, both of its programs at work, and their directory. */
struct under_way {
    pid_t check, programs[2];
    char dir[64];
    int dir_fd; /* it may be in a /tmp of ceded's alone */
};

static bool is_removed(int dir_fd)
{
    struct stat st;
    return fstat(dir_fd, &st) == 0 && st.st_nlink == 0;
}

static struct under_way await_check(const struct ceded *d)
{
    struct under_way u;
    char link[96], log[128];
    AWAIT((u.check = children_named(d->pid, "cede-check").pid) != 0);
    AWAIT(children_of(u.check, u.programs, 2) == 2);
    AWAIT(all_have_contexts(u.programs, 2));
    snprintf(link, sizeof(link), "/proc/%d/fd/2", (int)u.programs[0]);
    ssize_t n = readlink(link, log, sizeof(log) - 1);
    assert_true(n > 0);
    log[n] = '\0';
    *strrchr(log, '/') = '\0';
    snprintf(u.dir, sizeof(u.dir), "%s", log);
    snprintf(link, sizeof(link), "/proc/%d/root%s", (int)u.programs[0], u.dir);
    u.dir_fd = open(link, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(u.dir_fd >= 0 && !is_removed(u.dir_fd));
    return u;
}

static bool is_asked_to_end(pid_t pid)
{
    char path[32], line[128];
    unsigned long long pending = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    while (f && !pending && fgets(line, sizeof(line), f))
        (void)sscanf(line, "ShdPnd: %llx", &pending);
    return pending >> (SIGTERM - 1) & 1;
}

static void nothing_is_left(struct under_way *u, bool directory)
{
    AWAIT(has_ended(u->check));
    AWAIT(has_ended(u->programs[0]) && has_ended(u->programs[1]));
    if (directory)
        AWAIT(is_removed(u->dir_fd));
    else
        RUN(&result, "rm", "-rf", u->dir);
    close(u->dir_fd);
}

/* ---- tests ---- */

/* A latency and a batch job: neither is steered while the check is under way. Its finding is kept.
 */
E2E(works)
{
    struct under_way u;
    char pid[16];
    gpu_with("999.1", NULL, "1");
    pid_t v[2];
    loads_start(2, names, v);
    struct ceded d = ceded_start();
    u = await_check(&d);
    close(u.dir_fd);
    kill(u.check, SIGSTOP); /* it takes as long as this does */
    become_jobs(2, names, v);
    FAILS(1, "its driver is being checked", "pause", pid_text(v[1]));
    CEDE("ps");
    assert_non_null(strstr(result.err, "note: off on GPU 0: timeslice, suspend, swap, preempt (its "
                                       "driver is being checked); `cede doctor` measures them"));
    assert_null(strstr(result.err, "not scheduled")); /* nor the check's programs */
    CEDE("ps", "-a");
    snprintf(pid, sizeof(pid), " %d ", (int)u.programs[0]);
    assert_null(strstr(result.out, pid));
    assert_true(all_slices_default(v, 2));
    kill(u.check, SIGCONT);
    await_said(WORKS);
    AWAIT(slice_of(v[1]) == 1);
    CEDE("pause", pid_text(v[1]));
    CEDE("resume", pid_text(v[1]));
    CEDE("ps");
    assert_null(strstr(result.err, "off on GPU"));
    ceded_stop(&d);
    assert_int_equal(said(BEGINS), 1);

    d = ceded_start();
    await_said("(checked at an earlier start): " WORKS);
    ceded_stop(&d);
    assert_int_equal(said(BEGINS), 1);

    configure(20, ALWAYS);
    d = ceded_start();
    u = await_check(&d);
    assert_int_equal(said(BEGINS), 2);
    ceded_stop(&d);
    nothing_is_left(&u, true);
    loads_end(2, names, v);
}

E2E(without_suspension)
{
    gpu_with("999.1", "suspend", "2");
    pid_t v[3];
    loads_start(3, names, v);
    struct ceded d = ceded_start();
    await_said("off: suspension (a suspended program worked on)");
    assert_int_equal(said(BEGINS), 1); /* two GPUs, one check */
    become_jobs(3, names, v);
    AWAIT(slice_of(v[1]) == 1 && slice_of(v[2]) == 1);
    assert_true(runs_on(v, 3));
    FAILS(1,
          "cannot be paused: suspension is off on GPU 0: a suspended "
          "program worked on",
          "pause", pid_text(v[1]));
    CEDE("ps");
    assert_non_null(strstr(result.err, "off on GPU 0, 1: suspend (a suspended program worked on)"));
    RUN(&result, "cede", "doctor", "--device", "soft");
    assert_non_null(strstr(result.out, "warn  check        ceded does not use suspend on GPU 0: a "
                                       "suspended program worked on\n"));
    RUN(&result, "cede", "doctor", "--device", "soft", "--report");
    assert_non_null(strstr(result.out, "ceded does not use suspend on GPU 1\n"));
    ceded_kill(&d);
    d = ceded_start();
    AWAIT(slice_of(v[1]) == 1); /* the finding is in force at once */
    assert_int_equal(said(BEGINS), 1);
    assert_true(runs_on(v, 3));
    ceded_stop(&d);
    loads_end(3, names, v);
}

/* Batch jobs take turns, and one can be paused. */
E2E(without_timeslices)
{
    gpu_with("999.1", "timeslice", "1");
    pid_t v[3];
    loads_start(3, names, v);
    struct ceded d = ceded_start();
    await_said("off: timeslices (exchanging timeslices");
    become_jobs(3, names, v);
    AWAIT(somebody_suspended());
    CEDE("pause", pid_text(v[1]));
    assert_true(suspended(v[1]));
    CEDE("resume", pid_text(v[1]));
    ceded_stop(&d);
    loads_end(3, names, v);
}

E2E(resumes_nothing)
{
    gpu_with("999.1", "resume,timeslice", "1");
    ceded_start();
    await_said("off: timeslices, suspension (exchanging");
    assert_int_equal(said("a resumed program did not work on"), 1);
}

/* A program that once did no work while it was suspended may have had no processor. */
E2E(suspends_at_times)
{
    gpu_with("999.1", "second-suspend", "1");
    ceded_start();
    await_said("off: suspension (a suspended program worked on)");
}

/* kill -9 of ceded, of the check, and ceded's own end, all in the middle. */
E2E(killed)
{
    gpu_with("999.1", NULL, "1");
    struct ceded d = ceded_start();
    struct under_way u = await_check(&d);
    kill(u.check, SIGSTOP);
    ceded_kill(&d);
    AWAIT(is_asked_to_end(u.check)); /* rather than ending later by itself */
    kill(u.check, SIGCONT);
    nothing_is_left(&u, true);

    d = ceded_start();
    u = await_check(&d);
    ceded_stop(&d);
    nothing_is_left(&u, true);

    d = ceded_start();
    u = await_check(&d);
    kill(u.check, SIGKILL);
    nothing_is_left(&u, false);
    await_said("off: timeslices, suspension, preemption at block ends, swapping (the check ended "
               "without a result)");
    assert_int_equal(children_named(d.pid, "cede-check").n, 0);
    assert_int_equal(access(in_dir(FINDINGS_FILE), F_OK), -1); /* no result, nothing kept */
    await_said(WORKS);                                         /* it is repeated 10 s later */
    ceded_stop(&d);
}

/* One that hangs is killed, and ceded answers meanwhile. */
E2E(hangs)
{
    gpu_with("999.1", NULL, "1");
    struct ceded d = ceded_start();
    struct under_way u = await_check(&d);
    kill(u.check, SIGSTOP);
    CEDE("ps");
    await_said("(the check did not end in time)");
    nothing_is_left(&u, false);
}

/* One that was measured on such a GPU is not checked, and no other one if that is configured. */
static void not_checked(const char *driver, const char *more)
{
    gpu_with(driver, NULL, "1");
    configure(20, more);
    pid_t v[2];
    loads_start(2, names, v);
    struct ceded d = ceded_start();
    become_jobs(2, names, v);
    AWAIT(slice_of(v[1]) == 1);
    assert_int_equal(said(BEGINS), 0);
    ceded_stop(&d);
    loads_end(2, names, v);
}

E2E(known)
{
    not_checked("580.159.04", "");
}

E2E(never)
{
    not_checked("999.1", NEVER);
}

/* The driver is replaced while ceded runs. */
E2E(comes_back_as_another)
{
    gpu_with("580.159.04", NULL, "1");
    struct ceded d = ceded_start();
    pid_t job = SPAWN("job", "cede", "run", "-c", "batch", "-n", "job", "--", "sleep", "1000");
    AWAIT(job_is("job", "class", "batch"));
    gpu_with("999.1", "suspend", "1");
    await_said("another release than before");
    await_said("off: suspension (a suspended program worked on)");
    AWAIT(job_is("job", "class", "batch")); /* it is a job as before */

    pid_t batch = LOAD("batch", "batch");
    AWAIT(all_have_contexts(&batch, 1));
    CEDE("set", pid_text(batch), "-c", "batch");
    FAILS(1, "suspension is off on GPU 0", "pause", pid_text(batch));
    kill(job, SIGTERM);
    await_child(job);
    d.restorer = children_named(d.pid, "cede-restore").pid;
    ceded_stop(&d);
    json_decref(load_end("batch", batch));
}

/* The calls of the driver hang. What a verb was refused does not happen later, and a program is
 * started all the same. */
E2E(answers_late)
{
    struct ceded d = ceded_start();
    pid_t batch = LOAD("batch", "batch");
    AWAIT(all_have_contexts(&batch, 1));
    CEDE("set", pid_text(batch), "-c", "batch");
    CEDE("set", pid_text(batch), "-w", "50");
    kill(gpu_pid(), SIGSTOP);
    RUN(&result, "cede", "ps"); /* by now the daemon waits for the driver */
    FAILS(1, "gave no answer", "pause", pid_text(batch));
    RUN(&result, "cede", "run", "-c", "batch", "--", "sh", "-c", "echo started");
    assert_int_equal(status_of(result.status), 0);
    assert_string_equal(result.out, "started\n");
    assert_non_null(strstr(result.err, "runs unscheduled"));
    kill(gpu_pid(), SIGCONT);
    await_said("pause: dropped");
    await_said("add: dropped");
    CEDE("ps", pid_text(batch));
    assert_null(strstr(result.out, "paused"));
    assert_int_equal(said("paused #1"), 0);
    json_decref(load_end("batch", batch));
    d.restorer = children_named(d.pid, "cede-restore").pid;
}

static unsigned sockets_of(pid_t pid)
{
    char path[64], text[64];
    unsigned n = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        ssize_t length = readlinkat(dirfd(d), e->d_name, text, sizeof(text));
        n += length > 7 && strncmp(text, "socket:", 7) == 0;
    }
    closedir(d);
    return n;
}

/* The restorer has a driver open while it may have to undo something, and only then: one that
 * somebody has open cannot be unloaded. */
E2E(held_while_needed)
{
    struct ceded d = ceded_start();
    AWAIT(sockets_of(d.restorer) == 0);
    pid_t latency = LOAD("latency", "latency"), batch = LOAD("batch", "batch");
    AWAIT(all_have_contexts((pid_t[]){latency, batch}, 2));
    assert_int_equal(sockets_of(d.restorer), 0);
    CEDE("set", pid_text(latency), "-c", "latency");
    CEDE("set", pid_text(batch), "-c", "batch");
    AWAIT(sockets_of(d.restorer) == 1);
    json_decref(load_end("latency", latency));
    json_decref(load_end("batch", batch));
    AWAIT(sockets_of(d.restorer) == 0);
}

int main(void)
{
    return e2e_at_once();
}
