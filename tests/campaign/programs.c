/* The campaign's programs: loads, and with --program one of somebody's own. Whether they work is
 * read from their output where a driver does not count work exactly. See campaign.h. */
#include "campaign.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define REPORT_MS "20"
#define LOOK_MS   300 /* ends long after what was in flight when a program was suspended */

static bool program_is_there(void)
{
    bool is = false;
    for (const struct load *l = c.loads; l < c.loads + LOADS; l++)
        is |= l->pid && l->foreign;
    return is;
}

/* One in three is a client of the same MPS server. */
static void choose_server(void)
{
    mkdir(harness_file("mps"), 0700);
    if (!c.real && draw(3) == 0)
        setenv("CUDA_MPS_PIPE_DIRECTORY", harness_file("mps"), 1);
}

#define WORKER                                                                                     \
    "$CEDE_EXE load batch --device soft --memory 33554432 --report " REPORT_MS " --kernel-us "     \
    "2000 "

/* Some programs overwrite their arguments and environment, as setproctitle does. */
static const char *title(void)
{
    return getenv("CEDE_FAULTS_LIBRARY") && draw(2) ? "LD_PRELOAD=$CEDE_FAULTS_LIBRARY " TITLE_ENV
                                                      "=titled "
                                                    : "";
}

/* A job of two processes, which are swapped together or not at all; half of them wait for their
 * hosts. */
static void start_pair(struct load *l)
{
    char command[768];
    snprintf(command, sizeof(command),
             "load=\"" WORKER "--verify --name %s %s\"; env %s %s $load > $CEDE_DIR/%s-2.out & "
             "exec env %s $load",
             l->name, draw(2) ? "--burst 1 --host-us 5000" : "", title(), draw(2) ? "setsid" : "",
             l->name, title());
    l->pid = SPAWN(l->name, "sh", "-c", command);
    if (!EVENTUALLY(children_of(l->pid, &l->second, 1) == 1 && all_have_contexts(&l->second, 1)))
        fail_msg("the second process of %s opens no context", l->name);
}

/* The GPU process that the launcher has beside pid. */
static pid_t worker_of(const struct load *l)
{
    pid_t v[16];
    struct proc_stat st;
    const size_t n = children_of(l->launcher, v, ARRAY_SIZE(v));
    for (size_t i = 0; i < n && i < ARRAY_SIZE(v); i++) {
        if (v[i] != l->pid && proc_stat_read(v[i], &st) == 0 && strcmp(st.comm, l->name) == 0 &&
            all_have_contexts(&v[i], 1))
            return v[i];
    }
    return 0;
}

/* One job by CEDE_CLASS, whose workers come together or one long after the other. */
static void start_launcher(struct load *l)
{
    char command[768];
    snprintf(command, sizeof(command),
             "load=\"" WORKER "--verify --name %s\"; env %s $load & "
             "while [ ! -e $CEDE_DIR/%s-more ]; do sleep 0.05; done; env %s %s $load > "
             "$CEDE_DIR/%s-2.out & wait; wait",
             l->name, title(), l->name, title(), draw(2) ? "setsid" : "", l->name);
    setenv("CEDE_CLASS", "batch", 1);
    l->launcher = SPAWN(l->name, "sh", "-c", command);
    unsetenv("CEDE_CLASS");
    pid_t worker = 0;
    if (!EVENTUALLY((worker = worker_of(l))))
        fail_msg("the worker of %s opens no context", l->name);
    l->pid = worker;
    snprintf(l->words.class, sizeof(l->words.class), "batch");
    if (draw(2))
        start_worker(l);
}

void start_worker(struct load *l)
{
    char more[32];
    snprintf(more, sizeof(more), "%s-more", l->name);
    _cleanup_close_ int fd =
        open(harness_file(more), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return;
    l->joined = false;
    l->apart |= c.ruled;
    if (fd < 0 || !EVENTUALLY((l->second = worker_of(l))))
        fail_msg("the second worker of %s opens no context", l->name);
    note(" second worker of %s pid %d", l->name, (int)l->second);
}

void kill_launcher(struct load *l)
{
    const pid_t pid = l->launcher;
    l->launcher = 0;
    kill_program(pid);
    note(" the launcher of %s killed", l->name);
}

void start_program_of_load(struct load *l)
{
    static const char *const roles[][12] = {
        {"latency", "--memory", "33554432"},
        {"latency", "--memory", "33554432", "--period-us", "0", "--kernels", "50", "--launch-us",
         "50", "--kernel-us", "10"},
        {"batch", "--memory", "33554432", "--depth", "4"},
    };
    const char *argv[16];
    size_t n = 0, role = draw(ARRAY_SIZE(roles));
    if (c.program && !program_is_there()) {
        char command[4096]; /* the process with the context is the child */
        snprintf(command, sizeof(command), "exec %s", c.program);
        l->foreign = true;
        l->pid = SPAWN(l->name, "sh", "-c", command);
        return;
    }
    for (; roles[role][n]; n++)
        argv[n] = roles[role][n];
    if (c.real) {
        argv[n++] = "--report";
        argv[n++] = REPORT_MS;
    }
    const uint64_t kind = strcmp(c.device, "soft") == 0 ? draw(4) : 3;
    if (kind < 2) {
        kind ? start_pair(l) : start_launcher(l);
        return;
    }
    if (strcmp(c.device, "nvidia") == 0) { /* or it would measure, and would have to be alone */
        argv[n++] = "--iterations-per-us";
        argv[n++] = "5";
    }
    argv[n] = NULL;
    choose_server();
    l->pid = load_start(l->name, argv);
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
}

/* Kernels or requests by the last whole line of a load; bytes that another program has printed. */
static long long work_of(const struct load *l, const char *suffix)
{
    char path[128], *end;
    snprintf(path, sizeof(path), "%s%s.out", l->name, suffix);
    if (l->foreign) {
        struct stat st;
        return stat(harness_file(path), &st) == 0 ? (long long)st.st_size : 0;
    }
    static char text[OUTPUT_MAX];
    snprintf(text, sizeof(text), "%s", contents(path));
    if (!(end = strrchr(text, '\n')))
        return 0;
    *end = '\0';
    char *line = strrchr(text, '\n');
    json_t *o = json_loads(line ? line + 1 : text, 0, NULL);
    const json_t *n = json_object_get(o, "kernels");
    long long v = json_integer_value(n ? n : json_object_get(o, "requests"));
    json_decref(o);
    return v;
}

/* Of a pair that of the one that did less. */
static long long work_done(const struct load *l)
{
    long long first = work_of(l, ""), second = l->second ? work_of(l, "-2") : first;
    return first < second ? first : second;
}

void await_work(void)
{
    long long before[LOADS][2] = {0};
    for (size_t i = 0; i < LOADS; i++) {
        const struct load *l = &c.loads[i];
        before[i][0] = l->pid ? work_of(l, "") : 0;
        before[i][1] = l->pid && l->second ? work_of(l, "-2") : 0;
    }
    for (size_t i = 0; i < LOADS; i++) {
        const struct load *l = &c.loads[i];
        if (l->pid && !l->off &&
            !EVENTUALLY(work_of(l, "") > before[i][0] &&
                        (!l->second || work_of(l, "-2") > before[i][1])))
            fail_msg("%s (process %d) does not get the GPU: done %lld, before %lld and %lld; "
                     "ps: %s",
                     l->name, (int)l->pid, work_done(l), before[i][0], before[i][1], ps_text());
    }
}

bool works_while_off(void)
{
    long long before[LOADS] = {0};
    bool any = false;
    for (size_t i = 0; i < LOADS; i++)
        before[i] = c.loads[i].pid ? work_done(&c.loads[i]) : 0;
    nap_ms(LOOK_MS);
    for (size_t i = 0; i < LOADS; i++) {
        const struct load *l = &c.loads[i];
        any |= l->pid && l->off && !l->foreign && work_done(l) != before[i];
    }
    return any;
}

static void end_worker(const char *name, pid_t pid)
{
    c.wrong++; /* unless the next call returns */
    json_decref(load_end(name, pid));
    c.wrong--;
    c.verified++;
}

void end_load(struct load *l)
{
    if (!l->foreign) {
        char second[32];
        snprintf(second, sizeof(second), "%s-2", l->name);
        if (l->launcher)
            kill_launcher(l);
        end_worker(l->name, l->pid);
        if (l->second)
            end_worker(second, l->second);
        return;
    }
    kill(l->pid, SIGTERM);
    int status = await_child(l->pid);
    c.wrong += status != 0;
    if (status) {
        char file[80];
        snprintf(file, sizeof(file), "%s.err", l->name);
        fail_msg("%s (--program) ended with %d: %s", l->name, status, contents(file));
    }
    c.verified++;
}
