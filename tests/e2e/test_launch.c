/* What one thing has started is one job: workers of a launcher that opens no GPU itself, by a word
 * in its environment or by a rule. */
#include "fixture.h"

/* Starts two workers, and one more on each SIGUSR1, each in a session of its own; `env` stands
 * before each. */
static pid_t launcher(const char *file, const char *env)
{
    char script[512];
    snprintf(script, sizeof(script),
             "w() { setsid sh -c 'echo $$ >> $CEDE_DIR/workers; exec %s $CEDE_EXE load batch "
             "--device soft --kernel-us 2000 --name w' & }; "
             "trap w USR1; w; w; while :; do sleep 0.05; done",
             env);
    return SPAWN(file, "sh", "-c", script);
}

static size_t jobs_of(const char *name, long long processes)
{
    json_t *all = ask_jobs(), *j;
    size_t i, n = 0;
    json_array_foreach(json_object_get(all, "jobs"), i, j)
    {
        n += strcmp(json_string_value(json_object_get(j, "name")), name) == 0 &&
             json_integer_value(json_object_get(j, "processes")) == processes;
    }
    json_decref(all);
    return n;
}

static void workers_end(const char *name, const pid_t *launchers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        slay_child(launchers[i]);
    }
    for (const char *at = contents("workers"); *at; at = strchr(at, '\n') + 1)
        kill((pid_t)strtol(at, NULL, 10), SIGKILL);
    AWAIT(job_gone(name));
}

static void by_word(const char *env)
{
    configure(200, "");
    struct ceded d = ceded_start();
    setenv("CEDE_CLASS", "batch", 1);
    setenv("CEDE_NAME", "train", 1);
    pid_t v[2] = {launcher("a", env), launcher("b", env)};
    unsetenv("CEDE_CLASS");
    unsetenv("CEDE_NAME");
    AWAIT(jobs_of("train", 2) == 2);
    kill(v[0], SIGUSR1); /* a worker comes later */
    AWAIT(jobs_of("train", 3) == 1 && jobs_of("train", 2) == 1);
    /* The job stays when its launcher and the daemon end, and when a worker comes to it then. */
    slay_child(v[1]);
    ceded_kill(&d);
    d = ceded_start();
    AWAIT(jobs_of("train", 3) == 1 && jobs_of("train", 2) == 1);
    kill(v[0], SIGUSR1);
    AWAIT(jobs_of("train", 4) == 1 && jobs_of("train", 2) == 1);
    workers_end("train", v, 1);
    ceded_stop(&d);
}

E2E(word_of_a_launcher)
{
    by_word("");
}

/* As of sudo, su -, or a program that writes over its environment. */
E2E(word_that_workers_lack)
{
    by_word("env -u CEDE_CLASS -u CEDE_NAME");
}

E2E(rule_for_workers)
{
    static const struct {
        const char *group;
        size_t pairs, singles;
    } cases[] = {{"", 2, 0}, {"group = process\n", 0, 4}, {"group = session\n", 0, 4}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char rule[128];
        snprintf(rule, sizeof(rule), "[rule w]\nexe = cede\nclass = batch\nname = w\n%s",
                 cases[i].group);
        configure(200, rule);
        struct ceded d = ceded_start();
        pid_t v[2] = {launcher("a", ""), launcher("b", "")};
        AWAIT(jobs_of("w", 2) == cases[i].pairs && jobs_of("w", 1) == cases[i].singles);
        workers_end("w", v, 2);
        ceded_stop(&d);
    }
}
