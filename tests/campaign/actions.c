/* What people, programs and broken disks do to ceded. See campaign.h. */
#include "campaign.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct load *some_load(void)
{
    size_t first = draw(LOADS);
    for (size_t i = 0; i < LOADS; i++) {
        struct load *l = &c.loads[(first + i) % LOADS];
        if (l->pid)
            return l;
    }
    return NULL;
}

/* REFUSED: whatever it was to do is not done, and is not done later. PERHAPS: ceded ended, or says
 * so. */
enum outcome { DONE, REFUSED, PERHAPS };

/* What it was to do may turn up. And jansson 2.14 leaves out a key for which there was no memory,
 * and says that all is well. */
static bool says_perhaps(void)
{
    const char *text = contents("verb.err"), *end = text + strlen(text);
    return strstr(text, "may find it done") ||
           (end - text > 40 && strstr(end - 40, "not an object in JSON"));
}

/* It has to end, with a status of a verb: within two minutes, because a swap waits 10 s for a
 * program to be locked, and undoes what it has begun. Where a fifth of all calls fail a swapper
 * hardly ever comes to its end, so no call fails any more after the first 40 s. */
static enum outcome verb(const char *const argv[])
{
    const bool daemon = c.ceded != 0;
    pid_t pid = spawn("verb", argv);
    siginfo_t ended = {.si_pid = 0};
    for (int i = 0; i < 2 && !ended.si_pid; i++) {
        if (i > 0)
            atomic_store(&c.faults->per_million, 0);
        (void)EVENTUALLY(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                         ended.si_pid);
    }
    int status = await_child(pid);
    note(" %s", argv[1]);
    for (size_t i = 2; argv[i]; i++)
        note(" %s", argv[i]);
    note("=%d", status);
    if (status > 2)
        fail_msg("cede %s ended with %d: %s", argv[1], status, contents("verb.err"));
    if (status == 0)
        return DONE;
    return says_perhaps() || (daemon && has_ended()) ? PERHAPS : REFUSED;
}
#define VERB(...) verb((const char *const[]){"cede", __VA_ARGS__, NULL})

void start_load(void)
{
    struct load *l = NULL;
    for (size_t i = 0; i < LOADS && !l; i++)
        l = c.loads[i].pid ? NULL : &c.loads[i];
    if (!l)
        return;
    *l = (struct load){.words.paused = NOT_PAUSED, .apart = c.ruled};
    snprintf(l->name, sizeof(l->name), "l%u", ++c.started);
    start_program_of_load(l);
    if (!EVENTUALLY(all_have_contexts(&l->pid, 1)))
        fail_msg("%s opens no context", l->name);
    note(" %s pid %d", l->name, (int)l->pid);
}

static void kill_load(void)
{
    struct load *l = some_load();
    if (!l)
        return;
    if (l->second && draw(2)) {
        kill_program(l->second);
        note(" the second process of %s killed", l->name);
        l->second = 0;
        return;
    }
    const bool goes_on = l->second && draw(2); /* the other, without it */
    if (l->launcher && !goes_on)
        kill_launcher(l); /* before it ends with its workers */
    kill_program(l->pid);
    note(" %s killed", l->name);
    if (goes_on) {
        l->pid = l->second;
        l->second = 0;
        if (l->apart || !l->joined)
            forget_job(l); /* it may have been in another, or not yet in one */
        snprintf(l->name + strlen(l->name), sizeof(l->name) - strlen(l->name), "-2");
        return;
    }
    if (l->second)
        kill_program(l->second);
    l->pid = l->second = 0;
}

static struct load *some_launched(void)
{
    for (struct load *l = c.loads; l < c.loads + LOADS; l++) {
        if (l->pid && l->launcher)
            return l;
    }
    return NULL;
}

static void more_workers(void)
{
    struct load *l = some_launched();
    if (l && !strchr(l->name, '-'))
        start_worker(l);
}

/* What started two processes that ceded has not seen together cannot be known any more. */
static void end_launcher(void)
{
    struct load *l = some_launched();
    if (!l)
        return;
    kill_launcher(l);
    l->apart |= l->second && !l->joined;
}

/* A verb may make a job of a process that was in none. */
static void by_hand(struct load *l)
{
    if (l->number)
        return;
    forget_job(l);
    l->apart = true;
}

struct order {
    const char *verb, *option, *value; /* these two may be NULL */
};

/* What the load's job shall be from now on. */
static void said(struct load *l, const struct order *w, enum outcome o)
{
    const bool pause = w->verb[0] == 'p', done = o == DONE;
    const bool none = w->value && strcmp(w->value, "none") == 0;
    if (o == REFUSED && !none) /* a job that was detached stays so, though nobody learns it */
        return;
    by_hand(l);
    if (w->verb[0] != 's') {
        l->pause_wanted |= pause;
        l->resumed = done && !pause ? c.step + 1 : 0;
        l->words.paused = !done ? PERHAPS_PAUSED : pause ? PAUSED : NOT_PAUSED;
    } else if (none) {
        forget_job(l);
        l->apart = true;
    } else if (w->option[1] == 'c') {
        snprintf(l->words.class, sizeof(l->words.class), "%s", done ? w->value : "");
    } else if (w->option[1] == 'w') {
        l->words.weight = done ? 300 : 0;
    }
}

static void order(const struct order *w)
{
    struct load *l = some_load();
    if (l)
        said(l, w, VERB(w->verb, pid_text(l->pid), w->option, w->value));
}

static void change(void)
{
    static const char *const options[][2] = {
        {"-c", "batch"},     {"-c", "normal"},       {"-c", "latency"},
        {"-c", "none"},      {"-w", "300"},          {"--gpu-max", "40%"},
        {"--gpu-max", "2%"}, {"--gpu-max", "0"},     {"--gpu-min", "30%"},
        {"--gpu-min", "0"},  {"--deadline", "0"},    {"--deadline", "500ms"},
        {"--budget", "2ms"}, {"--min-speed", "50%"}, {"--min-speed", "100%"},
    };
    const char *const *option = options[draw(ARRAY_SIZE(options))];
    order(&(struct order){"set", option[0], option[1]});
}

static void pause_load(void)
{
    order(&(struct order){.verb = "pause"});
}

static void resume_load(void)
{
    order(&(struct order){.verb = "resume"});
}

/* ceded or the driver hangs while a client asks for something; some clients give up. What was given
 * up is not done later. */
static void hang(enum moment_kind kind, pid_t pid)
{
    static const struct order what[] = {{.verb = "pause"},
                                        {.verb = "resume"},
                                        {"set", "-c", "latency"},
                                        {"set", "-c", "batch"},
                                        {"set", "-w", "300"}};
    const struct order *w = &what[draw(ARRAY_SIZE(what))];
    struct load *l = some_load();
    if (!l || !c.ceded || kill(pid, SIGSTOP) < 0)
        return;
    c.moments[kind]++;
    (void)EVENTUALLY(process_state(pid) == 'T');
    const bool gives_up = draw(8);
    pid_t asks = SPAWN("verb", "cede", w->verb, pid_text(l->pid), w->option, w->value);
    if (gives_up) {
        nap_ms((unsigned)draw(300));
        kill(asks, SIGKILL);
    }
    const int status = await_child(asks);
    kill(pid, SIGCONT);
    (void)EVENTUALLY(has_ended() || answers()); /* what was asked for is done, or taken back */
    note(" hang %d: %s %d %s=%d", (int)kind, w->verb, (int)l->pid, w->value ? w->value : "",
         status);
    const bool knows = (status <= 2 || kind == MOMENT_CEDED_HANGS) && !says_perhaps();
    said(l, w, status == 0 ? DONE : !knows || has_ended() ? PERHAPS : REFUSED);
}

static void hang_ceded(void)
{
    hang(MOMENT_CEDED_HANGS, c.ceded);
}

static void hang_driver(void)
{
    if (!c.real)
        hang(MOMENT_DRIVER_HANGS, gpu_pid());
}

static void end_all_programs(void)
{
    for (struct load *l = c.loads; l < c.loads + LOADS; l++) {
        pid_t v[2];
        const size_t n = processes_of(l, v);
        if (l->pid && l->launcher)
            kill_launcher(l);
        for (size_t k = n; k-- > 0;)
            kill_program(v[k]);
        *l = (struct load){.pid = 0};
    }
}

/* Another release is loaded, which nobody can do while programs use the driver. */
static void change_driver(void)
{
    static const char *const releases[] = {"580.159.04", "580.200.1", "999.1"};
    const char *release = releases[draw(ARRAY_SIZE(releases))];
    if (c.real)
        return;
    end_all_programs();
    const bool inert = draw(2) && release[0] == '9';
    replace_gpu(
        (const char *const[]){"--driver", release, inert ? "--inert" : NULL, "suspend", NULL});
    c.measured = release[0] == '9';
    open_to_users();
    c.moments[MOMENT_DRIVER_CHANGES]++;
    note(" driver %s%s", release, inert ? ", inert" : "");
    start_load();
    start_load();
}

static void fill_disk(void)
{
    if (c.real)
        return;
    atomic_store(&c.faults->full, 1);
    c.moments[MOMENT_FULL]++;
    note(" full");
}

static void step_clock(void)
{
    static const int64_t ahead_s[] = {0, -3 * 3600, -56LL * 365 * 86400, 30 * 86400, 4015 * 86400};
    const int64_t s = ahead_s[draw(ARRAY_SIZE(ahead_s))];
    if (c.real)
        return;
    atomic_store(&c.faults->clock_ahead_s, s);
    c.moments[MOMENT_CLOCK]++;
    note(" clock %lld", (long long)s);
}

/* Of users of the machine, during the step. What they run is another user's, and no concern of the
 * checks but that these hold. */
static void attack(void)
{
    static const char *const kinds[] = {"linger",   "memory",    "squat", "churn",
                                        "mps_name", "lookalike", "words"};
    const char *kind = kinds[draw(ARRAY_SIZE(kinds))], *script = getenv("CEDE_ATTACK");
    const unsigned user = 50000 + 2 * (unsigned)draw(100);
    char seed[16], uid[16];
    snprintf(seed, sizeof(seed), "%u", (unsigned)draw(1000000));
    snprintf(uid, sizeof(uid), "%u", user);
    if (c.real || geteuid() != 0 || !script || c.attacker)
        return;
    c.attacker = SPAWN("attack", script, kind, harness_dir(), seed, uid, harness_exe());
    c.moments[MOMENT_ATTACK]++;
    note(" attack %s", kind);
    nap_ms(50 + (unsigned)draw(400));
    if (strcmp(kind, "squat") != 0)
        return;
    snprintf(uid, sizeof(uid), "%u", user + 1);
    pid_t victim = SPAWN("victim", script, "victim", harness_dir(), seed, uid, harness_exe());
    if (await_child(victim) > 1)
        fail_msg("ps of a user whose place another one took: %s", contents("victim.err"));
}

void end_attack(void)
{
    if (!c.attacker)
        return;
    kill(-c.attacker, SIGKILL);
    await_child(c.attacker);
    c.attacker = 0;
}

/* One that is to leave the GPU. */
static struct load *some_load_off(void)
{
    struct load *l = some_load();
    if (l) {
        l->pause_wanted = true;
        by_hand(l);
    }
    return l;
}

/* Without the verb, and so without waiting. */
static void ask_for(const struct load *l, const char *op)
{
    char text[64];
    snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"%s\",\"target\":%d}", op, (int)l->pid);
    json_decref(ask(text));
}

static void swap_load(void)
{
    struct load *l = c.no_swap ? NULL : some_load_off();
    if (!l)
        return;
    VERB("swap-out", pid_text(l->pid));
    if (draw(2))
        VERB("swap-in", pid_text(l->pid));
}

/* Whether it comes, and what is killed meanwhile, is chance. */
static void yield_load(void)
{
    struct load *l = some_load_off();
    char text[96];
    if (!l)
        return;
    snprintf(text, sizeof(text),
             "{\"v\":1,\"op\":\"yield\",\"target\":%d,\"pause\":%s,\"memory\":%s}", (int)l->pid,
             draw(2) ? "true" : "false", !c.no_swap && draw(2) ? "true" : "false");
    json_decref(ask(text));
    l->words.class[0] = '\0';
    l->words.paused = PERHAPS_PAUSED;
    if (draw(2))
        nap_ms((unsigned)draw(300));
    if (draw(3) == 0)
        return;
    ask_for(l, "acquire");
}

static void change_policy(void)
{
    static const char *const what[] = {"laxity", "edf",       "priority",
                                       "shares", "floor=0.3", "rotation_us=30000"};
    VERB("policy", what[draw(ARRAY_SIZE(what))]);
}

static void reload(void)
{
    static const char *const what[] = {
        "rubbish",
        "floor = 0.3",
        "floor = 0.3\n[account all]\nuid = 0-4294967294\ngpu_max = 50%",
        "floor = 0.3\n[account all]\nuid = 0-4294967294\ngpu_min = 20%\nweight = 30",
        "floor = 0.3\n[rule loads]\nexe = cede\nclass = batch\ngpu_max = 30%",
        "floor = 0.3\n[rule words]\narguments = *load*\nenvironment = PATH\nclass = batch",
    };
    size_t k = draw(ARRAY_SIZE(what));
    configure(20, what[k]);
    c.ruled |= k >= 4;
    for (size_t i = 0; i < LOADS; i++)
        c.loads[i].apart |= c.ruled && !c.loads[i].joined;
    note(" reload %zu", k);
    if (c.ceded)
        kill(c.ceded, SIGHUP);
    nap_ms((unsigned)draw(30));
    configure(20, "floor = 0.3"); /* which the next start reads, or the next reload */
}

static void kill_restorer(void)
{
    kill_it(KILLED_RESTORER, helper("cede-restore"));
}

/* Of a move that is on its way. */
static void kill_swapper(void)
{
    struct load *l = c.no_swap ? NULL : some_load_off();
    if (!l)
        return;
    ask_for(l, "swap-out");
    nap_ms((unsigned)draw(100));
    kill_it(KILLED_SWAPPER, helper("cede-swap"));
}

static void stop_for_a_moment(void)
{
    static const char *const helpers[] = {"cede-restore", "cede-restore", "cede-identify"};
    pid_t pid = draw(2) ? c.ceded : helper(helpers[draw(ARRAY_SIZE(helpers))]);
    if (!pid)
        return;
    kill(pid, SIGSTOP);
    c.stops++;
    nap_ms((unsigned)draw(100));
    if (draw(4) == 0)
        kill_ceded(true);
    kill(pid, SIGCONT);
}

static void kill_one(void)
{
    kill_ceded(false);
    if (draw(2))
        start();
}

static void kill_both(void)
{
    kill_ceded(true);
}

static void kill_newborn(void)
{
    kill_ceded(draw(2));
    await_orphans();
    spawn_ceded();
    usleep((useconds_t)draw(30000));
    kill_ceded(draw(2));
}

/* Nobody holds it: removed, emptied, cut, zeroed behind its header, or some bytes changed. */
static void damage_journal(void)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/journal", cede_home());
    kill_ceded(true);
    await_orphans();
    _cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    if (size <= 0)
        return;
    unsigned how = (unsigned)draw(5);
    if (how == 0)
        assert_int_equal(unlink(path), 0);
    else if (how <= 3)
        assert_int_equal(ftruncate(fd, how == 1   ? 0
                                       : how == 2 ? (off_t)draw((uint64_t)size)
                                                  : 4096),
                         0);
    if (how == 3)
        assert_int_equal(ftruncate(fd, size), 0);
    for (int i = 0; how == 4 && i < 64; i++) {
        char byte = (char)draw(256);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)draw(draw(2) ? 4096 : (uint64_t)size)), 1);
    }
    c.losses++;
    c.odd_slices = true;
    for (struct load *l = c.loads; l < c.loads + LOADS; l++) {
        forget_job(l);
        l->joined = false;
        /* What is out of memory comes in, each process as a job. */
        l->apart |=
            l->pause_wanted || (l->second && !l->launcher && process_parent(l->second) != l->pid);
    }
    note(" damage %u", how);
}

static const struct {
    void (*act)(void);
    unsigned often;
} actions[] = {
    {start_load, 8},        {kill_load, 3},    {change, 12},       {pause_load, 8},
    {more_workers, 3},      {end_launcher, 2}, {resume_load, 6},   {swap_load, 3},
    {change_policy, 3},     {reload, 2},       {kill_restorer, 3}, {kill_swapper, 2},
    {stop_for_a_moment, 3}, {kill_one, 5},     {kill_both, 4},     {kill_newborn, 2},
    {damage_journal, 3},    {yield_load, 6},   {hang_ceded, 3},    {hang_driver, 3},
    {change_driver, 1},     {fill_disk, 3},    {step_clock, 3},    {attack, 5},
};

void act(void)
{
    unsigned sum = 0;
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
        sum += actions[i].often;
    unsigned left = (unsigned)draw(sum);
    size_t i = 0;
    for (; left >= actions[i].often; i++)
        left -= actions[i].often;
    actions[i].act();
    has_ended();
}

void kill_something(void)
{
    static void (*const kills[])(void) = {kill_load, kill_restorer, kill_both, kill_both,
                                          kill_one,  kill_one,      kill_one,  kill_one};
    const uint64_t k = draw(ARRAY_SIZE(kills));
    kills[k]();
    if (k == 0)
        start_load();
    has_ended();
}
