/* What has to hold while ceded runs, and without it. See campaign.h. */
#include "campaign.h"

#include <signal.h>
#include <sys/wait.h>

#include "journal/journal.h"

#define PS "{\"v\":1,\"op\":\"ps\"}"

static bool journal_is_complete(void)
{
    struct journal *j;
    if (journal_open_readonly(cede_home(), &j, NULL) < 0)
        return false;
    bool is = journal_incomplete(j) == 0;
    journal_close(j);
    return is;
}

static void note_records(void)
{
    struct journal *j;
    if (journal_open_readonly(cede_home(), &j, NULL) < 0)
        return;
    for (uint32_t i = 0; i < journal_groups_end(j); i++) {
        uint32_t flags;
        const struct device_group *g = journal_group(j, i, &flags);
        if (g)
            note(" (record %u: process %d%s, flags %x)", i, (int)g->proc.pid,
                 proc_alive(g->proc) ? "" : ", which has ended", flags);
    }
    journal_close(j);
}

/* ---- jobs ---- */

uint64_t number_of(pid_t pid)
{
    char text[64];
    snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"ps\",\"pid\":%d,\"brief\":true}", (int)pid);
    json_t *all = ask(text);
    const uint64_t number = (uint64_t)json_integer_value(json_object_get(all, "job_of"));
    json_decref(all);
    return number;
}

void forget_job(struct load *l)
{
    l->number = 0;
    l->words = (struct words){.paused = PERHAPS_PAUSED};
}

static json_t *job_of(json_t *all, uint64_t number)
{
    json_t *job;
    size_t i;
    json_array_foreach(json_object_get(all, "jobs"), i, job)
    {
        if (number && json_integer_value(json_object_get(job, "number")) == (long long)number)
            return job;
    }
    return NULL;
}

static const char *state_of(json_t *all, uint64_t number)
{
    return json_string_value(json_object_get(job_of(all, number), "state"));
}

static bool is_off(const char *state)
{
    return state && (strcmp(state, "paused") == 0 || strncmp(state, "swap", 4) == 0);
}

/* The job is the one that it was, and that of both processes; a launcher has one by its word. */
static void find_job(struct load *l)
{
    uint64_t n = 0, second = 0;
    const bool must = l->number || (l->launcher && !l->apart);
    if (!EVENTUALLY((n = number_of(l->pid)) || !must))
        fail_msg("%s is in no job%s", l->name, l->number ? " any more" : "");
    if (l->number && n != l->number)
        fail_msg("%s is in job #%llu, and was in #%llu", l->name, (unsigned long long)n,
                 (unsigned long long)l->number);
    if (n && l->second && !l->apart && !EVENTUALLY((second = number_of(l->second)) == n))
        fail_msg("the second process of %s is in job #%llu, not in #%llu", l->name,
                 (unsigned long long)second, (unsigned long long)n);
    if (n != l->number)
        note(" %s=#%llu", l->name, (unsigned long long)n);
    l->joined |= n && second == n;
    l->number = n;
}

/* Until no memory is on its way. */
static json_t *settled(void)
{
    json_t *all = NULL;
    bool moves = true;
    if (!EVENTUALLY(({
            json_decref(all);
            all = ask(PS);
            moves = !all;
            for (size_t i = 0; i < LOADS; i++) {
                const char *s = c.loads[i].pid ? state_of(all, c.loads[i].number) : NULL;
                moves |= s && strncmp(s, "swapping", 8) == 0;
            }
            !moves;
        })))
        fail_msg("%s", all ? "a job's memory stays on its way" : "ceded does not answer");
    return all;
}

/* Which of its words differs from what the job has; NULL: none. What it yielded it may get back. */
static const char *wrong_word(const struct load *l, json_t *job)
{
    const struct words *w = &l->words;
    const char *class = json_string_value(json_object_get(job, "class"));
    const char *state = json_string_value(json_object_get(job, "state"));
    if (w->weight && json_integer_value(json_object_get(job, "weight")) != w->weight)
        return "weight";
    if (json_object_get(job, "yielded"))
        return NULL;
    if (w->class[0] && strcmp(class, w->class) != 0)
        return "class";
    if (w->paused == PAUSED ? !is_off(state)
                            : w->paused == NOT_PAUSED && strcmp(state, "paused") == 0)
        return "pause";
    return NULL;
}

static void check_words(struct load *l)
{
    json_t *all = NULL, *job = NULL;
    const char *wrong = NULL;
    if (c.measured) /* calls that fail may decide what the driver can */
        l->words.paused = PERHAPS_PAUSED;
    if (!EVENTUALLY(({
            json_decref(all);
            all = ask(PS);
            job = job_of(all, l->number);
            !job || !(wrong = wrong_word(l, job));
        })))
        fail_msg("%s shall have class %s, weight %lld, and be %s, by what verbs said that they "
                 "did: %s is not so: %s",
                 l->name, l->words.class, l->words.weight,
                 l->words.paused == PAUSED ? "paused" : "not paused", wrong,
                 json_dumps(job, JSON_COMPACT));
    if (job) {
        const bool yielded = json_object_get(job, "yielded") != NULL;
        const char *state = json_string_value(json_object_get(job, "state"));
        l->words.weight = json_integer_value(json_object_get(job, "weight"));
        if (!yielded)
            snprintf(l->words.class, sizeof(l->words.class), "%s",
                     json_string_value(json_object_get(job, "class")));
        /* One that is to be paused runs until the driver has done it. */
        if (!yielded && l->words.paused == PERHAPS_PAUSED && strcmp(state, "paused") == 0)
            l->words.paused = PAUSED;
    }
    json_decref(all);
}

/* ---- programs ---- */

size_t processes_of(const struct load *l, pid_t v[static 2])
{
    size_t n = 0;
    if (l->pid)
        v[n++] = l->pid;
    if (l->pid && l->second)
        v[n++] = l->second;
    return n;
}

static bool gets_gpu(const pid_t *v, size_t n)
{
    double busy[PROCESSES];
    bool is = false;
    if (c.real)
        return works_while_off();
    measure(v, n, 20, busy);
    for (size_t i = 0; i < n; i++)
        is |= busy[i] > 0;
    return is;
}

/* None has ended, and those that may get the GPU. */
static void await_programs(const pid_t *v, size_t n)
{
    for (struct load *l = c.loads; l < c.loads + LOADS; l++) {
        if (l->pid && (!alive(l->pid) || (l->second && !alive(l->second)))) {
            char file[80];
            snprintf(file, sizeof(file), "%s.err", l->name);
            c.lost++;
            fail_msg("%s has ended by itself: %s", l->name, contents(file));
        }
    }
    if (c.real)
        await_work();
    else
        await_progress(v, n);
}

/* Of the programs in no job, of which a rule may make jobs at any time; 0: none is odd. */
static uint64_t odd_slice_of_unmanaged(void)
{
    pid_t v[PROCESSES];
    size_t n = 0;
    for (const struct load *l = c.loads; l < c.loads + LOADS; l++) {
        if (l->pid && !number_of(l->pid) && !(l->second && number_of(l->second)))
            n += processes_of(l, v + n);
    }
    return odd_slice(v, n);
}

/* Rows of accounts stay, whatever the clock says and whether or not the disk is full. */
static void check_accounts(void)
{
    if (c.rows < 0)
        return;
    RUN(&result, "cede", "acct", "--json", "-S", "1970-01-02", "-E", "2090-01-01");
    json_t *all = json_loads(result.out, 0, NULL);
    const long long n = (long long)json_array_size(json_object_get(all, "jobs"));
    json_decref(all);
    if (n < c.rows)
        fail_msg("accounts had %lld jobs, and have %lld: %s", c.rows, n, result.err);
    c.rows = n;
}

void check_up(void)
{
    pid_t running[PROCESSES], off[PROCESSES];
    size_t nrunning = 0, noff = 0;
    uint64_t odd_us = 0;
    /* A check of the driver that hangs with it takes 34 s, in which nothing is looked for. */
    if (!EVENTUALLY(journal_is_complete()) && !EVENTUALLY(journal_is_complete()))
        fail_msg("the journal stays incomplete");
    for (struct load *l = c.loads; l < c.loads + LOADS; l++) {
        if (l->pid)
            find_job(l);
    }
    json_decref(settled());
    for (struct load *l = c.loads; l < c.loads + LOADS; l++) {
        if (l->number)
            check_words(l);
    }
    json_t *all = settled();
    for (struct load *l = c.loads; l < c.loads + LOADS; l++) {
        pid_t v[2];
        const size_t n = processes_of(l, v);
        bool any_off = false;
        for (size_t k = 0; k < n; k++) {
            const char *state = state_of(all, k && l->apart ? number_of(v[k]) : l->number);
            if (is_off(state) && !l->pause_wanted)
                fail_msg("%s is %s, and nobody asked for that", l->name, state);
            *(is_off(state) ? &off[noff++] : &running[nrunning++]) = v[k];
            any_off |= is_off(state);
        }
        l->off = is_off(state_of(all, l->number));
        l->pause_wanted &= any_off || c.measured || l->words.paused != NOT_PAUSED;
    }
    json_decref(all);
    await_programs(running, nrunning);
    /* What could not be suspended when a call failed is tried again. */
    if (noff && !EVENTUALLY(!gets_gpu(off, noff)))
        fail_msg("processes are off the GPU by what ps says, and get it");
    if (!c.odd_slices && !EVENTUALLY(!(odd_us = odd_slice_of_unmanaged())))
        fail_msg("a program in no job has a timeslice of %llu us", (unsigned long long)odd_us);
    if (!EVENTUALLY(helper("cede-restore")))
        fail_msg("ceded has no restorer");
    check_accounts();
}

/* Everything is as the programs had it. */
void check_down(void)
{
    pid_t v[PROCESSES];
    size_t n = 0;
    await_orphans();
    for (size_t i = 0; i < LOADS; i++)
        n += processes_of(&c.loads[i], v + n);
    if (records(NULL)) {
        note_records();
        fail_msg("%u groups are on record still", records(NULL));
    }
    if (n && !c.odd_slices && !all_slices_default(v, n))
        fail_msg("without ceded, a timeslice is %llu us", (unsigned long long)odd_slice(v, n));
    for (size_t i = 0; i < LOADS; i++)
        c.loads[i].off = false;
    await_programs(v, n);
}
