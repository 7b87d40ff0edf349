/* A campaign against fail-open: programs on a software GPU, some of them clients of one MPS server,
 * a ceded that schedules them while its system calls fail at random (faults.c), and everything
 * killed, stopped or damaged that can be; programs write over their environment, launchers die, the
 * disk is full, the clock jumps, the driver hangs or is replaced, and as root other users attack.
 * After each step the faults cease, and then: ceded answers or can be started; who is in no job,
 * and who is not paused, gets the GPU; nobody is paused whom nobody paused; each job is the one
 * that it was, with the class, the weight and the pause of the last verb that said that it did
 * that; accounts have lost nothing; without ceded everything is as the programs had it. At the end
 * of each round the programs' results are right. Asserts no times but "within 40 s" (verbs: 120).
 *
 * usage: campaign [--minutes N] [--steps N] [--seed N] [--device NAME [--program CMD] [--no-swap]]
 * --device nvidia: on a GPU of this machine, or soft in the same way: no call fails, each step
 * begins with a kill, and a program's work is what it reports. CMD is one program more, a single
 * command: it prints something for each step of its work, and on SIGTERM ends with status 0 if its
 * results are right. A round is one seed and 25 steps; the next round has the next seed. A failure
 * prints the seed. */
#include "campaign.h"

#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUND_STEPS 25
#define STEPS       300
#define NUMBER(n)   ((unsigned long long)(n))

struct campaign c = {.seed = 1, .steps = STEPS, .device = "soft"};

#define X(name, text) text,
static const char *const killed_names[] = {KILLED_KINDS(X)};
static const char *const moment_names[] = {MOMENT_KINDS(X)};
static const char *const fault_names[] = {FAULT_KINDS(X)};
#undef X

uint64_t draw(uint64_t n)
{
    return rng_below(&c.rng, n);
}

void note(const char *fmt, ...)
{
    size_t room = sizeof(c.history) - c.history_end;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(c.history + c.history_end, room, fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t)n < room)
        c.history_end += (size_t)n;
}

/* ---- processes ---- */

static bool is_ours(pid_t pid)
{
    bool ours = pid == c.ceded || pid == gpu_pid() || pid == c.attacker;
    for (size_t i = 0; i < LOADS; i++)
        ours |= c.loads[i].pid == pid || c.loads[i].second == pid || c.loads[i].launcher == pid;
    return ours;
}

bool alive(pid_t pid)
{
    const char state = process_state(pid);
    return state && state != 'Z';
}

void kill_program(pid_t pid)
{
    kill_it(KILLED_PROGRAM, pid);
    if (process_parent(pid) == getpid())
        assert_int_equal(await_child(pid), 1000 + SIGKILL);
    else if (!EVENTUALLY(!alive(pid)))
        fail_msg("process %d does not end", (int)pid);
}

/* Waits for what a ceded that is gone has left: its restorer, swappers, readers of the
 * configuration. Whatever they end with. A transient ceded, which a verb has started meanwhile,
 * leaves when it is asked; helpers ignore that. */
void await_orphans(void)
{
    pid_t v[32];
    bool none = EVENTUALLY(({
        size_t n = children_of(getpid(), v, ARRAY_SIZE(v)), left = 0;
        for (size_t i = 0; i < n && i < ARRAY_SIZE(v); i++) {
            if (is_ours(v[i]))
                continue;
            kill(v[i], SIGCONT);
            kill(v[i], SIGTERM);
            left += waitpid(v[i], NULL, WNOHANG) == 0;
        }
        left == 0;
    }));
    if (!none)
        fail_msg("a process of a ceded that is gone does not end");
}

pid_t helper(const char *name)
{
    pid_t v[16];
    size_t n = c.ceded ? children_of(c.ceded, v, ARRAY_SIZE(v)) : 0;
    for (size_t i = 0; i < n && i < ARRAY_SIZE(v); i++) {
        struct proc_stat st;
        if (proc_stat_read(v[i], &st) == 0 && st.state != 'Z' && strcmp(st.comm, name) == 0)
            return v[i];
    }
    return 0;
}

void kill_it(enum killed_kind kind, pid_t pid)
{
    if (!pid)
        return;
    kill(pid, SIGKILL);
    c.killed[kind]++;
    note(" %s killed", killed_names[kind]);
}

bool has_ended(void)
{
    if (!c.ceded || waitpid(c.ceded, NULL, WNOHANG) == 0)
        return !c.ceded;
    note(" (ceded ended)");
    c.ceded = 0;
    return true;
}

/* Not a transient one, which a verb starts while ceded starts anew. */
bool answers(void)
{
    json_t *all = ask("{\"v\":1,\"op\":\"ps\"}");
    const bool ours = json_integer_value(json_object_get(all, "pid")) == c.ceded;
    json_decref(all);
    return ours;
}

const char *ps_text(void)
{
    json_t *all = c.ceded ? ask("{\"v\":1,\"op\":\"ps\"}") : NULL;
    return all ? json_dumps(all, JSON_COMPACT) : "none";
}

static void faults(uint32_t per_million)
{
    atomic_store(&c.faults->seed, c.seed * 1000003 + c.step % ROUND_STEPS); /* as --seed alone */
    atomic_store(&c.faults->kinds, draw(3) ? UINT32_MAX : 1U << draw(FAULT_COUNT));
    atomic_store(&c.faults->per_million, per_million);
}

void spawn_ceded(void)
{
    c.ceded = SPAWN("ceded", "cede", "daemon", "--config", harness_file("cede.conf"), "--dir",
                    cede_home());
}

/* Whether it has come up: it need not while its calls fail. */
static bool try_start(void)
{
    if (!c.real) {
        setenv("LD_PRELOAD", getenv("CEDE_FAULTS_LIBRARY"), 1);
        setenv(FAULTS_ENV, harness_file("faults"), 1);
    }
    c.ruled = false;
    spawn_ceded();
    unsetenv("LD_PRELOAD");
    unsetenv(FAULTS_ENV);
    if (!EVENTUALLY(has_ended() || answers()))
        fail_msg("ceded neither answers nor ends");
    return c.ceded != 0;
}

void start(void)
{
    if (c.ceded)
        return;
    /* A job is resumed whether or not that could be recorded. */
    for (struct load *l = c.loads; l < c.loads + LOADS; l++) {
        if (l->resumed == c.step + 1 && l->words.paused == NOT_PAUSED) {
            l->words.paused = PERHAPS_PAUSED;
            l->pause_wanted = true;
        }
    }
    await_orphans();
    uint32_t often = atomic_exchange(&c.faults->per_million, draw(3) ? 0 : 20000);
    bool up = try_start();
    if (!up) {
        c.starts_failed++;
        await_orphans();
        atomic_store(&c.faults->per_million, 0);
        atomic_store(&c.faults->full, 0);
        if (!try_start())
            fail_msg("ceded does not start: %s", contents("ceded.err"));
    }
    atomic_store(&c.faults->per_million, often);
    note(" ceded %d", (int)c.ceded);
}

void kill_ceded(bool both)
{
    pid_t restorer = both ? helper("cede-restore") : 0;
    if (!c.ceded)
        return;
    if (draw(2))
        kill_it(KILLED_RESTORER, restorer);
    kill_it(KILLED_CEDED, c.ceded);
    kill_it(KILLED_RESTORER, restorer);
    await_child(c.ceded);
    c.ceded = 0;
}

/* ---- a step ---- */

static void stop(void)
{
    kill(c.ceded, SIGTERM);
    int status = await_child(c.ceded);
    c.ceded = 0;
    note(" stopped");
    if (status)
        fail_msg("ceded was to stop, and ended with %d: %s", status, contents("ceded.err"));
}

/* The faults are over. A ceded that lived through them is asked first; then perhaps it ends, well
 * or by kill -9, and its restorer does the rest. */
static void check(void)
{
    end_attack();
    atomic_store(&c.faults->per_million, 0);
    atomic_store(&c.faults->full, 0);
    if (!has_ended() && !EVENTUALLY(has_ended() || answers()))
        fail_msg("ceded neither answers nor ends, though no call fails any more");
    start();
    nap_ms(60); /* what could not be written is written as soon as it can, before both are killed */
    check_up();
    const uint64_t end = draw(4);
    if (end == 0)
        stop();
    else if (end == 1)
        kill_ceded(false);
    if (end < 2)
        check_down();
    note(" ok");
}

/* ---- a round ---- */

static void map_page(void)
{
    _cleanup_close_ int fd = open(harness_file("faults"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, sizeof(*c.faults)), 0);
    c.faults = mmap(NULL, sizeof(*c.faults), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(c.faults != MAP_FAILED);
}

void open_to_users(void)
{
    if (!c.real && geteuid() == 0) {
        assert_int_equal(chmod(harness_dir(), 0711), 0);
        assert_int_equal(chmod(harness_file("gpu"), 0666), 0);
    }
}

static void round_begin(void)
{
    void *state = NULL;
    assert_int_equal(e2e_begin(&state), 0);
    open_to_users();
    map_page();
    memset(c.loads, 0, sizeof(c.loads));
    c.ceded = 0;
    c.odd_slices = c.measured = false;
    c.rows = -1;
    c.history_end = 0;
    c.rng.state = c.seed * 0x9e3779b97f4a7c15 + 1;
    if (!c.real && draw(2)) {
        setenv("CEDE_STATE_DIR", harness_file("state"), 1);
        set_accounts(true);
        c.rows = 0;
    }
    configure(20, "floor = 0.3");
    for (int i = 0; i < 4; i++)
        draw(2);
    start_load();
}

static void round_end(void)
{
    void *state = NULL;
    if (c.ceded)
        stop();
    check_down();
    for (struct load *l = c.loads; l < c.loads + LOADS; l++) {
        if (l->pid)
            end_load(l);
    }
    for (size_t i = 0; i < FAULT_COUNT; i++) {
        c.calls[i] += atomic_load(&c.faults->calls[i]);
        c.failed[i] += atomic_load(&c.faults->failed[i]);
    }
    munmap(c.faults, sizeof(*c.faults));
    assert_int_equal(e2e_end(&state), 0);
}

static void report(void)
{
    printf("{\"ok\": %s, \"device\": \"%s\", \"seconds\": %llu, \"steps\": %llu, \"kills\": {",
           c.over ? "true" : "false", c.device,
           NUMBER((monotonic_ns() - c.begun_ns) / NSEC_PER_SEC), NUMBER(c.step));
    uint64_t all = 0;
    for (size_t i = 0; i < KILLED_COUNT; i++) {
        printf("\"%s\": %llu, ", killed_names[i], NUMBER(c.killed[i]));
        all += c.killed[i];
    }
    printf("\"all\": %llu}, \"stops\": %llu, \"journals_damaged\": %llu, \"starts_failed\": %llu, "
           "\"programs_verified\": %llu, \"programs_lost\": %llu, \"results_wrong\": %llu, "
           "\"calls_failed\": {",
           NUMBER(all), NUMBER(c.stops), NUMBER(c.losses), NUMBER(c.starts_failed),
           NUMBER(c.verified), NUMBER(c.lost), NUMBER(c.wrong));
    for (size_t i = 0; i < FAULT_COUNT; i++)
        printf("%s\"%s\": [%llu, %llu]", i ? ", " : "", fault_names[i], NUMBER(c.failed[i]),
               NUMBER(c.calls[i]));
    printf("}, ");
    for (size_t k = 0; k < MOMENT_COUNT; k++)
        printf("\"%s\": %llu%s", moment_names[k], NUMBER(c.moments[k]),
               k + 1 < MOMENT_COUNT ? ", " : "}\n");
}

static const char *end_of(const char *text, size_t most)
{
    const size_t n = strlen(text);
    return text + (n > most ? n - most : 0);
}

static int campaign_end(void **state)
{
    if (!c.over) {
        fprintf(stderr, "round of --seed %llu:%s\nceded said last:\n%s\nps: %s\n", NUMBER(c.seed),
                c.history, end_of(contents("ceded.err"), 6000), ps_text());
        fprintf(stderr, "verbs said last:\n%s\n", end_of(contents("verb.err"), 2000));
    }
    report();
    return c.over ? 0 : e2e_end(state);
}

TEST_WITH(campaign, NULL, campaign_end)
{
    static const uint32_t often[] = {0, 1000, 10000, 50000, 200000};
    uint64_t end = c.minutes ? monotonic_ns() + c.minutes * 60 * NSEC_PER_SEC : UINT64_MAX;
    for (c.step = 0; c.minutes ? monotonic_ns() < end : c.step < c.steps; c.step++) {
        if (c.step % ROUND_STEPS == 0)
            round_begin();
        note("\n%llu:", (unsigned long long)c.step);
        start();
        faults(often[draw(ARRAY_SIZE(often))]);
        if (c.real)
            kill_something();
        for (uint64_t n = c.real ? draw(3) : 1 + draw(4); n; n--)
            act();
        check();
        if (c.step % ROUND_STEPS == ROUND_STEPS - 1) {
            round_end();
            c.seed++;
        }
    }
    if (c.step % ROUND_STEPS)
        round_end();
    c.over = true;
}

static uint64_t number(const char *text)
{
    uint64_t v;
    if (parse_u64(text, 1, UINT32_MAX, &v) < 0) {
        fprintf(stderr, "campaign: '%s' is not a whole number from 1\n", text);
        exit(2);
    }
    return v;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"minutes", required_argument, NULL, 'm'},
                                            {"steps", required_argument, NULL, 'n'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"device", required_argument, NULL, 'd'},
                                            {"program", required_argument, NULL, 'p'},
                                            {"no-swap", no_argument, NULL, 'w'},
                                            {NULL, 0, NULL, 0}};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == '?')
            return 2;
        if (o == 'd') {
            c.device = optarg;
            c.real = true;
        } else if (o == 'p') {
            c.program = optarg;
        } else if (o == 'w') {
            c.no_swap = true;
        } else {
            *(o == 'm' ? &c.minutes : o == 'n' ? &c.steps : &c.seed) = number(optarg);
        }
    }
    if (c.program && !c.real) {
        fprintf(stderr, "campaign: --program goes with --device alone: add it\n");
        return 2;
    }
    use_driver(c.device);
    c.begun_ns = monotonic_ns();
    return test_run(NULL, NULL);
}
