/* A random sequence of what people, programs and the kernel do to ceded: verbs, loads that come,
 * end and are killed, kill -9 of ceded and of its restorer at any moment, clients that send
 * rubbish. All through it, what cede promises has to hold: see check(). Asserts no times.
 *
 * CEDE_CHAOS_SEED and CEDE_CHAOS_STEPS choose another sequence; a failure prints both and what was
 * done. What is done follows from the seed and what it meets from real time, so a repetition is as
 * near as that allows. CEDE_CHAOS_HOLD: after a failure all is left as it is until a signal. */
#include "chaos.h"
#include "journal/journal.h"

#define SEED     1
#define STEPS    60  /* 4 to 8 s */
#define LONG_RUN 200 /* steps; in shorter ones nothing takes seconds */

/* ---- loads ---- */

static struct load *free_load(void)
{
    for (size_t i = 0; i < LOADS; i++) {
        if (!chaos.loads[i].pid)
            return &chaos.loads[i];
    }
    return NULL;
}

/* Its name if it is a job, or its pid. */
static const char *target(const struct load *l)
{
    return l->root && l->named && l->known && draw(2) ? l->name : pid_text(l->pid);
}

static const char *any_class(const struct load *l)
{
    static const char *const classes[] = {"batch", "normal", "latency"};
    return classes[draw(l->requests ? 3 : 2)]; /* who wants all of a GPU must not go first */
}

/* By a verb that named its pid; a rule may have been faster. */
static void adopted(struct load *l)
{
    l->root = l->pid;
    l->named = true;
    l->known = !chaos.rules;
}

static void start_plain(struct load *l)
{
    l = free_load();
    if (!l)
        return;
    launch(l, NULL);
    await_context(l);
    done(" %s pid %d", l->name, (int)l->pid);
    if (!chaos.up || draw(4) == 0)
        return;
    became_job(l, any_class(l), 100);
    VERB(true, "set", pid_text(l->pid), "-c", l->class);
    adopted(l);
}

static void start_run(struct load *l)
{
    l = free_load();
    if (!l || !chaos.up)
        return;
    const char *class = draw(2) ? "batch" : "normal";
    launch(l, class);
    became_job(l, class, 100);
    assert_true(find_program(l));
    l->root = l->runner;
    l->named = true;
    await_context(l);
    /* Until it was seen there, its job lives no longer than its runner. */
    AWAIT(job_int(l->name, "processes") == 1);
    done(" %s pid %d", l->name, (int)l->pid);
}

static void gone(struct load *l)
{
    l->pid = l->runner = 0;
}

/* Ends it; who is off the GPU cannot prove its work. */
static void end_load(struct load *l)
{
    if (l->out && !chaos.up)
        return;
    if (l->out)
        VERB(true, "swap-in", pid_text(l->pid));
    l->out = false;
    bool able = l->known && is_able(l) && (chaos.up || chaos.clean);
    pid_t pid = l->runner ? l->runner : l->pid;
    kid(pid)->may_end = true;
    kill(pid, SIGTERM);
    int status = finish(pid);
    done(" %s%s", l->name, able ? "" : " (off the GPU)");
    if (status)
        fail_msg("%s ended with %d", l->name, status);
    json_t *o = load_final(l->name), *verified = json_object_get(o, "verified");
    if (!json_is_true(verified) && (able || !json_is_null(verified)))
        fail_msg("%s: %s", l->name, json_dumps(o, 0));
    json_decref(o);
    gone(l);
}

static void kill_load(struct load *l)
{
    done(" %s", l->name);
    if (l->runner) { /* which ends as its program does */
        kid(l->runner)->doomed = true;
        kill(l->pid, SIGKILL);
        assert_int_equal(finish(l->runner), 1000 + SIGKILL);
    } else {
        slay(l->pid);
    }
    gone(l);
}

static void kill_runner(struct load *l)
{
    if (!l->runner)
        return;
    done(" %s", l->name);
    watch(l->pid, l->name);
    slay(l->runner);
    l->runner = 0;
    if (!chaos.up)
        ceded_gone(chaos.clean); /* the next one does not know the job */
}

/* ---- actions ---- */

static void change(struct load *l)
{
    char weight[16];
    const char *to = target(l);
    long long w = 80 + (long long)draw(200);
    snprintf(weight, sizeof(weight), "%lld", w);
    done(" %s", l->name);
    if (l->out && !l->root)
        return;
    if (!l->root) {
        became_job(l, any_class(l), w);
        VERB(true, "set", to, "-c", l->class, "-w", weight);
        adopted(l);
        return;
    }
    switch (draw(chaos.up ? 5 : 2)) {
    case 0:
        became_job(l, any_class(l), l->weight);
        VERB(true, "set", to, "-c", l->class);
        break;
    case 1:
        l->weight = w;
        VERB(true, "set", to, "-w", weight);
        break;
    case 2:
        if (strcmp(l->class, "latency") == 0)
            VERB(true, "set", to, "--budget", draw(2) ? "2ms" : "0");
        else
            VERB(true, "set", to, "--deadline", draw(2) ? "500ms" : "0");
        break;
    default:
        if (VERB(!l->out, "set", to, "-c", "none") == 0)
            in_no_job(l);
    }
}

static void pause_or_resume(struct load *l)
{
    const char *to = target(l);
    bool pause = !l->paused || draw(4) == 0;
    done(" %s", l->name);
    VERB(true, pause ? "pause" : "resume", to);
    l->paused = pause;
    if (l->root)
        return;
    became_job(l, "normal", 100);
    adopted(l);
}

/* Refused if another one moves, or if its program has ended just now. */
static void swap(struct load *l)
{
    const char *to = target(l);
    done(" %s", l->name);
    if (!chaos.up)
        return;
    if (!l->out && VERB(false, "swap-out", to) == 0) {
        l->out = true;
        if (l->root)
            return;
        became_job(l, "normal", 100);
        adopted(l);
    } else if (l->out) {
        VERB(true, "swap-in", to);
        l->out = false;
    } else {
        l->known = false;
    }
}

static void policy(struct load *l)
{
    static const char *const what[] = {"laxity",    "edf",     "priority",
                                       "shares",    "laxity",  "rotation_us=30000",
                                       "floor=0.3", "edf_k=2", "laxity"};
    if (chaos.up)
        VERB(true, "policy", what[draw(ARRAY_SIZE(what))]);
}

static void reload(struct load *l)
{
    if (!chaos.up || chaos.transient) /* which has no file that says to keep a floor */
        return;
    write_config();
    if (draw(4) == 0)
        configure(0, "rubbish\n");
    kill(chaos.d.pid, SIGHUP);
}

/* Stopped for a moment, in which something is asked. */
static void stop_load(struct load *l)
{
    kill(l->pid, SIGSTOP);
    await_state(l->pid, "T");
    switch (draw(3)) {
    case 0:
        change(l);
        break;
    case 1:
        pause_or_resume(l);
        break;
    default:
        nap_ms((unsigned)draw(100));
    }
    kill(l->pid, SIGCONT);
}

static void stop_ceded(struct load *l)
{
    bool hangs = chaos.steps >= LONG_RUN && draw(20) == 0;
    if (!chaos.up)
        return;
    kill(chaos.d.pid, SIGSTOP);
    await_state(chaos.d.pid, "T");
    if (hangs && helper("cede-restore")) {
        done(" (hangs)");
        AWAIT(!somebody_suspended());
    } else {
        nap_ms((unsigned)draw(200));
    }
    kill(chaos.d.pid, SIGCONT);
}

static void kill_restorer(struct load *l)
{
    pid_t pid = chaos.up ? helper("cede-restore") : 0;
    if (pid)
        kill_helper(pid);
}

/* A swap that is begun and not waited for; then perhaps its swapper is killed. */
static void torn_swap(struct load *l)
{
    char text[96];
    if (!chaos.up || !l->root)
        return;
    snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"swap-%s\",\"target\":\"%d\"}",
             l->out ? "in" : "out", (int)l->pid);
    done(" %s", l->name);
    json_decref(ask(text));
    usleep((useconds_t)draw(120000));
    l->known = false;
    pid_t swapper = draw(2) ? helper("cede-swap") : 0;
    if (swapper) {
        done(" swapper");
        kill_helper(swapper);
    }
    if (draw(4) == 0)
        kill_load(l);
    if (draw(3) == 0)
        kill_ceded(draw(2));
}

/* `cede run` while ceded dies: it starts a scheduler of its own, or comes to nothing. */
static void torn_run(struct load *l)
{
    bool stays = draw(2);
    l = free_load();
    if (!l || !chaos.up)
        return;
    launch(l, "batch");
    usleep((useconds_t)draw(chaos.verb_us * 2));
    kill(chaos.d.pid, SIGKILL);
    kid(chaos.d.pid)->doomed = true;
    finish(chaos.d.pid);
    assert_true(find_program(l));
    await_context(l);
    json_t *all = NULL;
    AWAIT((reap(), orphans() == 0 || (all = ask_jobs())));
    pid_t other = (pid_t)json_integer_value(json_object_get(all, "pid"));
    json_decref(all);
    for (size_t i = 0; i < LOADS; i++)
        chaos.loads[i].known = false;
    ceded_gone(false);
    if (!other)
        return;
    done(" transient %d", (int)other);
    chaos.d = (struct ceded){.pid = other};
    watch(other, "transient ceded")->may_end = true;
    chaos.up = chaos.transient = true;
    if (stays) {
        check_ps();
        VERB(true, "policy", "floor=0.2");
    } else {
        stop();
    }
}

/* Killed while it begins. */
static void kill_newborn(struct load *l)
{
    char file[96];
    if (chaos.up)
        return;
    write_config();
    snprintf(file, sizeof(file), "%s/cede.conf", harness_dir());
    pid_t pid = SPAWN("ceded", "cede", "daemon", "--config", file, "--dir", cede_home());
    watch(pid, "newborn ceded");
    usleep((useconds_t)draw(chaos.verb_us * 2));
    slay(pid);
    await_orphans();
    chaos.clean = false;
    for (size_t i = 0; i < LOADS; i++) /* its restorer may have brought in */
        chaos.loads[i].known &= !chaos.loads[i].out && (chaos.loads[i].root || !chaos.rules);
}

static void kill_one(struct load *l)
{
    if (chaos.up)
        kill_ceded(false);
    check();
}

static void kill_two(struct load *l)
{
    if (chaos.up)
        kill_ceded(true);
    check();
}

static bool journal_is_complete(void)
{
    struct journal *j;
    assert_int_equal(journal_open_readonly(cede_home(), &j, NULL), 0);
    bool is = journal_incomplete(j) == 0;
    journal_close(j);
    return is;
}

/* While nobody holds it: the next one knows no job, and has to find what was changed. It may be
 * killed while it looks, so that the next but one has to. */
static void lose_journal(struct load *l)
{
    char path[96];
    if (!chaos.up)
        return;
    kill_ceded(true);
    snprintf(path, sizeof(path), "%s/journal", cede_home());
    assert_int_equal(draw(2) ? unlink(path) : truncate(path, 0), 0);
    chaos.odd_slices = true;
    while (draw(2))
        kill_newborn(l);
    start();
    AWAIT((reap(), journal_is_complete()));
    for (size_t i = 0; i < LOADS; i++)
        chaos.loads[i].known = false;
    check();
}

static void restart(struct load *l)
{
    stop();
    check();
    start();
}

/* Killed while it leaves. */
static void kill_leaving(struct load *l)
{
    if (!chaos.up)
        return;
    pid_t restorer = helper("cede-restore");
    struct kid *k = kid(chaos.d.pid);
    kill(chaos.d.pid, SIGTERM);
    k->may_end = true;
    usleep((useconds_t)draw(chaos.verb_us));
    slay(chaos.d.pid);
    await_orphans();
    ceded_gone(restorer > 0 || (k->status == 0));
    check();
}

/* ---- the sequence ---- */

static const struct action {
    const char *name;
    void (*act)(struct load *l);
    unsigned often;
    bool needs_load;
} actions[] = {
    {"start", start_plain, 10, false},
    {"run", start_run, 8, false},
    {"change", change, 10, true},
    {"pause", pause_or_resume, 10, true},
    {"swap", swap, 5, true},
    {"policy", policy, 4, false},
    {"reload", reload, 3, false},
    {"end", end_load, 4, true},
    {"kill", kill_load, 4, true},
    {"kill-run", kill_runner, 3, true},
    {"kill-ceded", kill_one, 4, false},
    {"kill-both", kill_two, 3, false},
    {"restorer", kill_restorer, 2, false},
    {"lose-journal", lose_journal, 2, false},
    {"stop-load", stop_load, 3, true},
    {"stop-ceded", stop_ceded, 2, false},
    {"kill-leaving", kill_leaving, 2, false},
    {"restart", restart, 2, false},
    {"rubbish", rubbish, 4, false},
    {"silence", silence, 3, false},
    {"torn", torn, 8, true},
    {"crowd", crowd, 3, true},
    {"torn-swap", torn_swap, 4, true},
    {"torn-run", torn_run, 2, false},
    {"newborn", kill_newborn, 2, false},
};

static void act(void)
{
    look();
    unsigned sum = 0;
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
        sum += actions[i].often;
    unsigned left = (unsigned)draw(sum);
    const struct action *a = actions;
    for (; left >= a->often; a++)
        left -= a->often;
    struct load *l = any_load();
    if (a->needs_load && !l)
        a = &actions[0];
    /* What is not known has to be asked, of a ceded. */
    if (a->needs_load && !l->known) {
        start();
        check_ps();
    }
    done("\n%llu %s:", (unsigned long long)chaos.step, a->name);
    a->act(l);
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    uint64_t v = otherwise;
    if (text && parse_u64(text, 0, UINT32_MAX, &v) < 0)
        fail_msg("%s is no number: %s", name, text);
    return v;
}

static int chaos_end(void **state);

TEST_WITH(everything_at_once, e2e_begin, chaos_end)
{
    slay_child(gpu_pid());
    pid_t gpus = SPAWN("gpus", "cede", "softgpu", "--gpus", "2");
    AWAIT(strstr(contents("gpus.out"), "listening"));
    watch(gpus, "the software GPU");
    chaos.seed = setting("CEDE_CHAOS_SEED", SEED);
    chaos.steps = setting("CEDE_CHAOS_STEPS", STEPS);
    chaos.rng.state = chaos.seed + 1;
    start();
    AWAIT(helper("cede-restore"));
    chaos.bare = descriptors(chaos.d.pid);
    uint64_t before = monotonic_ns();
    VERB(true, "ps");
    chaos.verb_us = (unsigned)((monotonic_ns() - before) / NSEC_PER_USEC);

    for (chaos.step = 0; chaos.step < chaos.steps; chaos.step++) {
        /* What one step draws is not to change what the next is. */
        chaos.rng.state = (chaos.seed + 1) * 0x9e3779b97f4a7c15 + chaos.step * 0xd1342543de82ef95;
        for (int i = 0; i < 4; i++)
            draw(2);
        if (!chaos.up && draw(2))
            start();
        act();
        if (chaos.step % 4 == 3)
            check();
    }

    done("\nend:");
    start();
    check();
    for (size_t i = 0; i < LOADS; i++) {
        struct load *l = &chaos.loads[i];
        if (l->pid && l->paused)
            pause_or_resume(l);
        if (l->pid)
            end_load(l);
    }
    check();
    stop();
    check();
    assert_int_equal(children_of(getpid(), NULL, 0), 1); /* the software GPU */
    chaos.over = true;
}

static int chaos_end(void **state)
{
    if (!chaos.over) {
        fprintf(stderr, "CEDE_CHAOS_SEED=%llu CEDE_CHAOS_STEPS=%llu\n",
                (unsigned long long)chaos.seed, (unsigned long long)chaos.steps);
        fprintf(stderr, "done:%s\n", chaos.history);
        const char *log = contents("ceded.err");
        size_t n = strlen(log);
        fprintf(stderr, "ceded said last:\n%s\n", log + (n > 6000 ? n - 6000 : 0));
        if (getenv("CEDE_CHAOS_HOLD")) {
            fprintf(stderr, "held in %s by pid %d\n", harness_dir(), (int)getpid());
            pause();
        }
    }
    return e2e_end(state);
}
