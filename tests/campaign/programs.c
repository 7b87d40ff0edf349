/* The campaign's programs: loads, and with --program one of somebody's own. Whether they work is
 * read from their output where a driver does not count work exactly. See campaign.h. */
#include "campaign.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define REPORT_MS "20"
#define LOOK_MS   300 /* ends long after what was in flight when a program was suspended */

static bool program_is_there(void)
{
    bool is = false;
    for (size_t i = 0; i < LOADS; i++)
        is |= c.loads[i].pid && c.loads[i].foreign;
    return is;
}

/* One in three is a client of the same MPS server. */
static void choose_server(void)
{
    char dir[96];
    snprintf(dir, sizeof(dir), "%s/mps", harness_dir());
    mkdir(dir, 0700);
    if (!c.real && draw(3) == 0)
        setenv("CUDA_MPS_PIPE_DIRECTORY", dir, 1);
}

/* A job of two processes, which are swapped together or not at all; half of them wait for their
 * hosts. */
static void start_pair(struct load *l)
{
    char command[512];
    snprintf(command, sizeof(command),
             "load=\"$CEDE_EXE load batch --device soft --memory 33554432 --report " REPORT_MS
             " --kernel-us 2000 %s\"; %s $load --verify > $CEDE_DIR/%s-2.out & "
             "exec $load --verify --name %s",
             draw(2) ? "--burst 1 --host-us 5000" : "", draw(2) ? "setsid" : "", l->name, l->name);
    l->pid = SPAWN(l->name, "sh", "-c", command);
    if (!EVENTUALLY(children_of(l->pid, &l->second, 1) == 1 && all_have_contexts(&l->second, 1)))
        fail_msg("the second process of %s opens no context", l->name);
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
    l->second = 0;
    if (strcmp(c.device, "soft") == 0 && draw(3) == 0) {
        start_pair(l);
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
        snprintf(path, sizeof(path), "%s/%s.out", harness_dir(), l->name);
        return stat(path, &st) == 0 ? (long long)st.st_size : 0;
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
    long long before[LOADS] = {0};
    for (size_t i = 0; i < LOADS; i++) {
        const struct load *l = &c.loads[i];
        before[i] = l->pid ? work_of(l, "") : 0;
        if (l->pid && l->second && work_of(l, "-2") > before[i])
            before[i] = work_of(l, "-2");
    }
    for (size_t i = 0; i < LOADS; i++) {
        const struct load *l = &c.loads[i];
        if (l->pid && !l->off && !EVENTUALLY(work_done(l) > before[i])) {
            json_t *all = ask("{\"v\":1,\"op\":\"ps\"}");
            char *text = all ? json_dumps(all, 0) : NULL;
            fail_msg("%s (process %d) does not get the GPU: done %lld, before %lld; ps: %s",
                     l->name, (int)l->pid, work_done(l), before[i], text ? text : "none");
        }
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

void end_load(struct load *l)
{
    if (!l->foreign) {
        c.wrong++; /* unless the next call returns */
        json_decref(load_end(l->name, l->pid));
        c.wrong--;
        c.verified++;
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
