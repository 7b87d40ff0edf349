/* See chaos.h. */
#include "chaos.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "journal/journal.h"

#define MEMORY "33554432" /* moves in 0.1 s */

struct chaos chaos;

uint64_t draw(uint64_t n)
{
    return rng_below(&chaos.rng, n);
}

void done(const char *fmt, ...)
{
    char *to = chaos.history + chaos.history_end;
    size_t room = sizeof(chaos.history) - chaos.history_end;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(to, room, fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t)n < room)
        chaos.history_end += (size_t)n;
}

/* ---- processes ---- */

struct kid *kid(pid_t pid)
{
    for (size_t i = 0; i < ARRAY_SIZE(chaos.kids); i++) {
        if (chaos.kids[i].pid == pid)
            return &chaos.kids[i];
    }
    return NULL;
}

struct kid *watch(pid_t pid, const char *what)
{
    struct kid *k = kid(0);
    assert_non_null(k);
    *k = (struct kid){.pid = pid};
    snprintf(k->what, sizeof(k->what), "%s", what);
    return k;
}

/* Nobody ends but as the test wants it. */
/* Who is killed while LeakSanitizer looks leaves its tracer, which ends so. */
static bool is_tracer(int status)
{
    return SANITIZED && (status == 3 || status == 4 || status == 1000 + SIGKILL);
}

void reap(void)
{
    int st;
    for (pid_t pid; (pid = waitpid(-1, &st, WNOHANG)) > 0;) {
        struct kid *k = kid(pid);
        int status = status_of(st);
        bool expected = status == 0 || status == 1 || is_tracer(status);
        /* What reads the configuration ends so with its ceded, and nothing else is sent that. */
        expected |= status == 1000 + SIGTERM;
        for (size_t i = 0; i < chaos.nkilled; i++)
            expected |= chaos.killed[i] == pid;
        if (k) {
            expected = k->doomed || k->may_end;
            k->ended = true;
            k->status = status;
        }
        if (!expected)
            fail_msg("%s (pid %d) has ended: %d", k ? k->what : "an orphan", (int)pid, status);
    }
}

int finish(pid_t pid)
{
    struct kid *k = kid(pid);
    assert_non_null(k);
    k->may_end = true;
    if (!EVENTUALLY((reap(), k->ended)))
        fail_msg("%s (pid %d, state %c) does not end", k->what, (int)pid, process_state(pid));
    k->pid = 0;
    return k->status;
}

void slay(pid_t pid)
{
    struct kid *k = kid(pid);
    assert_non_null(k);
    bool may_end = k->may_end;
    k->doomed = true;
    kill(pid, SIGKILL);
    int status = finish(pid);
    if (status != 1000 + SIGKILL && !(may_end && status < 2))
        fail_msg("%s was killed, and ended with %d", k->what, status);
}

/* Whose end belongs to no entry above: what a killed ceded leaves. */
unsigned orphans(void)
{
    pid_t v[64];
    unsigned n = 0;
    size_t all = children_of(getpid(), v, ARRAY_SIZE(v));
    assert_true(all <= ARRAY_SIZE(v));
    for (size_t i = 0; i < all; i++)
        n += !kid(v[i]);
    return n;
}

void await_orphans(void)
{
    if (!EVENTUALLY((reap(), orphans() == 0)))
        fail_msg("%u processes of a killed ceded do not end", orphans());
}

/* ceded's living child of that name; 0: none. */
pid_t helper(const char *name)
{
    pid_t v[16], found = 0;
    /* Until each is what it is to become. */
    AWAIT(({
        size_t n = children_of(chaos.d.pid, v, ARRAY_SIZE(v));
        bool all = true;
        found = 0;
        for (size_t i = 0; i < n && i < ARRAY_SIZE(v); i++) {
            struct proc_stat st;
            if (proc_stat_read(v[i], &st) < 0 || st.state == 'Z')
                continue;
            all &= strncmp(st.comm, "cede-", 5) == 0;
            found = strcmp(st.comm, name) == 0 ? v[i] : found;
        }
        all;
    }));
    return found;
}

void kill_helper(pid_t pid)
{
    assert_true(chaos.nkilled < ARRAY_SIZE(chaos.killed));
    chaos.killed[chaos.nkilled++] = pid;
    kill(pid, SIGKILL);
    AWAIT(!process_state(pid) || process_state(pid) == 'Z');
}

/* ---- what they say ---- */

static void no_complaint(const char *file)
{
    static const char *const words[] = {"Sanitizer", "runtime error:", "is damaged", "assertion"};
    const char *text = contents(file), *p;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if ((p = strstr(text, words[i])))
            fail_msg("%s: %.3000s", file, p);
    }
    for (p = text; (p = strstr(p, "the restorer (pid ")); p++) {
        int pid = atoi(p + strlen("the restorer (pid "));
        bool ours = false;
        for (size_t i = 0; i < chaos.nkilled; i++)
            ours |= chaos.killed[i] == pid;
        if (!ours)
            fail_msg("%.200s", p);
    }
}

void no_complaints(void)
{
    DIR *dir = opendir(harness_dir());
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir));) {
        const char *dot = strrchr(e->d_name, '.');
        assert_string_not_equal(e->d_name, "journal.bad");
        if ((dot && strcmp(dot, ".err") == 0) || strcmp(e->d_name, "log") == 0)
            no_complaint(e->d_name);
    }
    closedir(dir);
}

int verb(bool must, const char *const argv[])
{
    char path[96];
    snprintf(path, sizeof(path), "%s/verb.err", harness_dir());
    unlink(path);
    chaos.clean &= chaos.up; /* without ceded the verb does it by itself */
    pid_t pid = spawn("verb", argv);
    watch(pid, argv[1]);
    int status = finish(pid);
    no_complaint("verb.err");
    done(" %s=%d", argv[1], status);
    if (status > 1 || (must && status))
        fail_msg("cede %s: status %d: %s", argv[1], status, contents("verb.err"));
    return status;
}
/* ---- loads ---- */

static size_t pids_of(pid_t v[LOADS], bool (*want)(const struct load *l))
{
    size_t n = 0;
    for (size_t i = 0; i < LOADS; i++) {
        if (chaos.loads[i].pid && want(&chaos.loads[i]))
            v[n++] = chaos.loads[i].pid;
    }
    return n;
}

static bool everyone(const struct load *l)
{
    return l->pid != 0;
}

static bool rests(const struct load *l)
{
    return !is_able(l);
}

static bool is_free(const struct load *l)
{
    return !l->root;
}

void in_no_job(struct load *l)
{
    l->root = 0;
    l->paused = l->out = false;
}

void became_job(struct load *l, const char *class, long long weight)
{
    snprintf(l->class, sizeof(l->class), "%s", class);
    l->weight = weight;
}

bool find_program(struct load *l)
{
    bool started = false;
    AWAIT(({
        struct proc_stat st;
        started = children_of(l->runner, &l->pid, 1) == 1 && proc_stat_read(l->pid, &st) == 0 &&
                  strcmp(st.comm, l->name) == 0;
        started || process_state(l->runner) == 'Z';
    }));
    return started;
}

static void add(const char *argv[], size_t *n, const char *const more[])
{
    for (; *more; more++)
        argv[(*n)++] = *more;
}
#define ADD(...) add(argv, &n, (const char *const[]){__VA_ARGS__, NULL})

void launch(struct load *l, const char *class)
{
    const char *argv[40];
    size_t n = 0;
    *l = (struct load){.requests = draw(2), .gpu = (unsigned)draw(2), .known = true};
    snprintf(l->name, sizeof(l->name), "l%u", ++chaos.started);
    if (class)
        ADD("cede", "run", "--gpu-device", "soft", "-c", class, "-n", l->name, "--");
    ADD(class ? harness_exe() : "cede", "load", l->requests ? "latency" : "batch", "--verify");
    ADD("--device", "soft", "--name", l->name, "--gpu", l->gpu ? "1" : "0", "--memory", MEMORY);
    if (draw(4) == 0)
        ADD("--contexts", "2");
    if (!l->requests)
        ADD("--kernel-us", "2000", "--depth", "4");
    else if (draw(2))
        ADD("--deadline-us", "50000");
    argv[n] = NULL;
    pid_t pid = spawn(l->name, argv);
    watch(pid, l->name);
    *(class ? &l->runner : &l->pid) = pid;
}

void await_context(const struct load *l)
{
    if (!EVENTUALLY((reap(), all_have_contexts(&l->pid, 1))))
        fail_msg("%s opens no context", l->name);
}

/* ---- ceded ---- */

void hang_up(void)
{
    for (size_t i = 0; i < SILENT; i++) {
        if (chaos.silent[i] > 0)
            close(chaos.silent[i]);
        chaos.silent[i] = 0;
    }
}

/* Turns and a floor that let everybody do some work within the 2 s in which a load that is asked to
 * end has to: a turn of one not seen working is longer than the slices of two classes together. */
void write_config(void)
{
    static const char *const names[] = {"laxity", "edf", "priority", "shares"};
    char path[96];
    bool rules = draw(4) == 0;
    snprintf(path, sizeof(path), "%s/cede.conf", harness_dir());
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f, "[daemon]\ndevice = soft\nswap_start = 0\n[policy]\nname = %s\n", names[draw(4)]);
    fprintf(f, "rotation_us = %u\nprobe_us = 20000\nfloor = 0.%u\n",
            (unsigned)(20000 + draw(15000)), (unsigned)(3 + draw(2)));
    fputs(rules ? "[rule all]\nexe = *\nclass = batch\n" : "", f);
    assert_int_equal(fclose(f), 0);
    chaos.rules |= rules; /* nobody knows when it is read */
}

void look(void)
{
    pid_t v[LOADS];
    reap();
    if (!chaos.up || !chaos.transient || pids_of(v, is_free) < pids_of(v, everyone))
        return;
    int status = finish(chaos.d.pid);
    if (status)
        fail_msg("a transient ceded ended with %d: %s", status, contents("log"));
    await_orphans();
    ceded_gone(true);
    done(" (left)");
}

void start(void)
{
    look();
    if (chaos.up)
        return;
    chaos.rules = false;
    write_config();
    chaos.d = ceded_start();
    watch(chaos.d.pid, "ceded");
    done(" ceded %d", (int)chaos.d.pid);
    chaos.up = true;
    chaos.clean = false;
}

/* undone: the restorer, or ceded itself, has done its work. A job whose root has ended is forgotten
 * with the ceded that knew it. */
void ceded_gone(bool undone)
{
    chaos.up = chaos.transient = false;
    chaos.clean = undone;
    for (size_t i = 0; i < LOADS; i++) {
        struct load *l = &chaos.loads[i];
        bool lost = l->pid && l->root && !process_state(l->root);
        if (undone)
            l->out = false;
        if (lost && l->out)
            l->known = false; /* somebody has to bring it back: a new job */
        else if (lost)
            in_no_job(l);
        if (!l->root && chaos.rules)
            l->known = false;
    }
}

/* kill -9, its restorer too if that is asked for; whether the restorer was left to do its work. */
void kill_ceded(bool both)
{
    pid_t restorer = helper("cede-restore");
    bool at_work = draw(2);
    if (both && restorer && !at_work) { /* nothing between the one kill and the other */
        kill(restorer, SIGSTOP);
        await_state(restorer, "TZ");
    }
    slay(chaos.d.pid);
    if (both && at_work)
        usleep((useconds_t)draw(3000));
    if (both && restorer)
        kill_helper(restorer);
    await_orphans();
    for (size_t i = 0; both && i < LOADS; i++) /* it may have brought in */
        chaos.loads[i].known &= !chaos.loads[i].out;
    ceded_gone(restorer && !both);
    done(" %s", chaos.clean ? "undone" : "left as it was");
}

void stop(void)
{
    if (!chaos.up)
        return;
    kill(chaos.d.pid, SIGTERM);
    int status = finish(chaos.d.pid);
    if (status)
        fail_msg("ceded was to stop, and ended with %d: %s", status, contents("ceded.err"));
    await_orphans();
    ceded_gone(true);
}

/* ---- what has to hold ---- */

static void check_down(void)
{
    pid_t v[LOADS];
    size_t n = pids_of(v, everyone);
    if (!chaos.clean)
        return;
    if (records(NULL) || swap_records(NULL))
        fail_msg("%u groups and %u processes are on record still", records(NULL),
                 swap_records(NULL));
    if (!chaos.odd_slices && !all_slices_default(v, n))
        fail_msg("without ceded, some timeslices are not the default");
    await_progress(v, n);
}

static json_t *job_of(json_t *all, const struct load *l)
{
    json_t *job;
    size_t i;
    json_array_foreach(json_object_get(all, "jobs"), i, job)
    {
        json_int_t pid = json_integer_value(json_object_get(job, "pid"));
        if (pid == l->pid || (pid == l->root && pid) || (pid == l->runner && pid))
            return job;
    }
    return NULL;
}

static bool paused_on_record(pid_t root)
{
    struct journal *j;
    bool paused = false;
    assert_int_equal(journal_open_readonly(cede_home(), &j, NULL), 0);
    for (uint32_t i = 0; i < journal_jobs_end(j); i++) {
        const struct journal_job *job = journal_job(j, i);
        paused |= job && job->root.pid == root && job->paused;
    }
    journal_close(j);
    return paused;
}

static void learn(struct load *l, const json_t *job)
{
    const char *state = json_string_value(json_object_get(job, "state"));
    l->known = true;
    if (!job) {
        in_no_job(l);
        return;
    }
    l->root = (pid_t)json_integer_value(json_object_get(job, "pid"));
    l->named = strcmp(json_string_value(json_object_get(job, "name")), l->name) == 0;
    l->out = strcmp(state, "swapped") == 0;
    l->paused = paused_on_record(l->root); /* ps does not tell it of one that is swapped */
    became_job(l, json_string_value(json_object_get(job, "class")),
               json_integer_value(json_object_get(job, "weight")));
    done(" (%s is %s %s)", l->name, l->class, state);
}

/* "", or in what ps and the test differ. */
static const char *difference(json_t *all)
{
    static char text[256];
    size_t jobs = 0;
    for (size_t i = 0; i < LOADS; i++) {
        struct load *l = &chaos.loads[i];
        json_t *job = l->pid ? job_of(all, l) : NULL;
        const char *state = json_string_value(json_object_get(job, "state"));
        if (!l->pid)
            continue;
        if (state && strncmp(state, "swapping", 8) == 0) {
            snprintf(text, sizeof(text), "%s is %s", l->name, state);
            return text;
        }
        if (!l->known || (chaos.rules && job && !l->root))
            learn(l, job);
        jobs += job != NULL;
        const char *want = l->out ? "swapped" : l->paused ? "paused" : "running waiting";
        const char *class = json_string_value(json_object_get(job, "class"));
        long long weight = json_integer_value(json_object_get(job, "weight"));
        if (!job != !l->root ||
            (job && (!strstr(want, state) || strcmp(class, l->class) != 0 || weight != l->weight ||
                     paused_on_record(l->root) != l->paused))) {
            snprintf(text, sizeof(text), "%s is %s %s weight %lld, not %s %s %s %lld", l->name,
                     job ? state : "in no job", job ? class : "", weight,
                     l->root ? "" : "in no job", want, l->class, l->weight);
            return text;
        }
    }
    snprintf(text, sizeof(text), "%zu jobs, not %zu", json_array_size(json_object_get(all, "jobs")),
             jobs);
    return json_array_size(json_object_get(all, "jobs")) == jobs ? "" : text;
}

/* What ps says is what the verbs have asked for. */
void check_ps(void)
{
    char text[256] = "ps does not answer";
    if (!EVENTUALLY(({
            json_t *all = ask_jobs();
            if (all) {
                assert_int_equal(json_integer_value(json_object_get(all, "pid")), chaos.d.pid);
                snprintf(text, sizeof(text), "%s", difference(all));
            }
            json_decref(all);
            reap();
            !text[0];
        })))
        fail_msg("%s", text);
}

static double gets(const pid_t *v, size_t n)
{
    double busy[LOADS] = {0}, sum = 0;
    measure(v, n, 20, busy);
    for (size_t i = 0; i < n; i++)
        sum += busy[i];
    return sum;
}

static void check_up(void)
{
    pid_t v[LOADS];
    check_ps();
    VERB(true, "ps", "-a");
    await_progress(v, pids_of(v, is_able));
    size_t n = pids_of(v, rests);
    if (n && (!EVENTUALLY(gets(v, n) == 0) || gets(v, n) > 0))
        fail_msg("one of %zu jobs that are paused or swapped out gets the GPU", n);
    n = pids_of(v, is_free);
    if (n && !chaos.rules && !chaos.odd_slices && !EVENTUALLY(all_slices_default(v, n)))
        fail_msg("of %zu programs in no job, one has a timeslice of %llu us", n,
                 (unsigned long long)odd_slice(v, n));
    hang_up();
    /* Of a job its root and two processes; a program may be a client, with a page. */
    size_t loads = pids_of(v, everyone), jobs = loads - n;
    size_t most = chaos.bare + jobs * 3 + loads * 2 + 2 * chaos.transient, open = 0;
    if (chaos.bare && !EVENTUALLY((open = descriptors(chaos.d.pid)) <= most))
        fail_msg("ceded has %zu descriptors, %zu at most are its own or its %zu jobs'", open, most,
                 jobs);
    if (!EVENTUALLY(helper("cede-restore")))
        fail_msg("ceded has no restorer");
}

void check(void)
{
    look();
    no_complaints();
    if (chaos.up)
        check_up();
    else
        check_down();
    done(" ok");
}

struct load *any_load(void)
{
    size_t first = draw(LOADS);
    for (size_t i = 0; i < LOADS; i++) {
        struct load *l = &chaos.loads[(first + i) % LOADS];
        if (l->pid)
            return l;
    }
    return NULL;
}
