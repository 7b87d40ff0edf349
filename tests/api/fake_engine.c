/* See fake_engine.h. */
#include "fake_engine.h"

#include <string.h>

#include "memory/yield.h"

uint32_t fake_gates;

static unsigned fake_gpus(struct device_driver *d)
{
    return 2;
}

static int fake_info(struct device_driver *d, unsigned gpu, struct gpu_info *out)
{
    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "Made-up \"%u\"", gpu);
    snprintf(out->uuid, sizeof(out->uuid), "GPU-%u", gpu);
    out->caps = fake_gates >> gpu & 1 ? GPU_CAP_GATE : GPU_CAP_PLACE;
    return 0;
}

struct switch_list fake_switches;
bool fake_recording;
unsigned fake_lookups;
int fake_switches_code;

static const struct device_ops fake_ops = {.name = "fake", .gpus = fake_gpus, .info = fake_info};
static struct device_driver fake_driver = {&fake_ops};

struct engine *fake_engine_new(void)
{
    struct engine *m = calloc(1, sizeof(*m));
    if (m) {
        m->next_number = 1;
        snprintf(m->policy, sizeof(m->policy), "priority");
        params_default(&m->params);
        m->room_class = CLASS_COUNT;
    }
    return m;
}

uint32_t fake_engine_put(struct engine *m, pid_t pid, uid_t uid, enum job_class class,
                         uint32_t weight, const char *name)
{
    uint32_t slot = 0;
    while (slot < FAKE_JOBS && m->jobs[slot].number)
        slot++;
    if (slot == FAKE_JOBS)
        return SLOT_NONE;
    struct job_view *v = &m->jobs[slot];
    *v = (struct job_view){.number = m->next_number++, .busy = -1};
    v->job = (struct journal_job){
        .root = {.pid = pid}, .class = class, .weight = weight, .uid = uid, .number = v->number};
    snprintf(v->job.name, sizeof(v->job.name), "%s", name);
    m->askers[slot] = 1;
    m->end = slot >= m->end ? slot + 1 : m->end;
    return slot;
}

struct model *engine_model(const struct engine *m)
{
    return (struct model *)m; /* whose functions are below */
}

static struct engine *fake_of(const struct model *x)
{
    return (struct engine *)x;
}

/* Functions that say no more than this. */
#define FAKE(function, ...)                                                                        \
    function                                                                                       \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }
FAKE(bool engine_pending(const struct engine *m), return m->first != NULL)
FAKE(bool engine_loses_in_space(const struct engine *m, uint32_t slot), return false)
FAKE(uint32_t engine_job_of(const struct engine *m, pid_t pid),
     return model_job_with(engine_model(m), pid))
FAKE(void model_accounts_forget(struct model *x), fake_of(x)->naccounts = 0)
FAKE(struct room_wanted engine_room_wanted(const struct engine *m),
     return (struct room_wanted){{m->room_class}})
FAKE(bool engine_job_wanted(const struct engine *m, uint32_t job, const struct room_wanted *w),
     return m->jobs[job].job.class > w->class[0])
FAKE(uint32_t engine_job_share(const struct engine *m, uint32_t job, pid_t pid),
     return m->jobs[job].job.root.pid == pid ? m->share : 0)
FAKE(int engine_may_pause(const struct engine *m, uint32_t job, struct error *err),
     return m->withheld & GPU_CAP_SUSPEND ? error_set(err, -ENOTSUP, "made-up") : 0)
FAKE(int engine_may_record(struct engine *m, uint32_t job, struct error *err),
     return m->unrecorded ? error_set(err, m->unrecorded, "made-up journal") : 0)
FAKE(int engine_records(struct engine *m, struct error *err),
     return m->unrecorded == -EIO ? engine_may_record(m, SLOT_NONE, err) : 0)
FAKE(void engine_record(struct engine *m), m->recorded = m->jobs[0].job.paused ? 2 : 1)
FAKE(void autoswap_started(struct model *x, uint32_t job),
     fake_of(x)->jobs[job].job.room = ROOM_NONE)
FAKE(bool model_user_waits_full(const struct model *x, uid_t principal),
     return fake_of(x)->waits_full && principal != 0)
FAKE(void yield_forget(struct model *x, uint32_t job, unsigned what),
     fake_of(x)->jobs[job].job.yielded &= ~what)
FAKE(int engine_resume_unmanaged(struct engine *m, struct proc_id proc, struct error *err),
     return error_set(err, -ENODEV, "process %d is in no job", (int)proc.pid))
FAKE(void engine_release(struct engine *m, uint32_t job), m->jobs[job].number = 0)
FAKE(void engine_told(struct engine *m, uint32_t job), m->askers[job]++)
FAKE(int engine_job_status(const struct engine *m, uint32_t job, struct error *err),
     return m->status ? error_set(err, m->status, "made-up trouble") : 0)
FAKE(void engine_watch(struct engine *m), m->watched++)
FAKE(const struct sched_params *engine_params(const struct engine *m), return &m->params)
FAKE(const char *engine_policy(const struct engine *m), return m->policy)
FAKE(void engine_switches_end(struct engine *m), fake_recording = false)
FAKE(int engine_counters(struct engine *m, unsigned gpu, struct gpu_counters *out), return -ENOTSUP)
FAKE(struct device_driver *engine_driver(const struct engine *m), return &fake_driver)
FAKE(void engine_look_for_jobs(struct engine *m, bool anew), m->looks += anew)
FAKE(void engine_facts_came(struct engine *m, const struct identities *reports), m->facts_came++)

void engine_submit(struct engine *m, struct command *c)
{
    struct command **link = &m->first;
    while (*link)
        link = &(*link)->next;
    c->next = NULL;
    *link = c;
}

void fake_engine_tick(struct engine *m)
{
    struct command *first = m->first;
    if (!first)
        return;
    m->first = NULL;
    for (struct command *c = first; c; c = c->next)
        c->code = c->run(c, m);
    m->applied++;
    m->applied_paused = 0;
    for (uint32_t i = 0; i < m->end; i++) {
        if (m->ends_when_applied)
            m->jobs[i].number = 0;
        m->applied_paused += m->jobs[i].number && m->jobs[i].job.paused;
    }
    if (m->on_apply)
        m->on_apply(m->arg);
    for (struct command *c = first, *next; c; c = next) {
        next = c->next;
        c->answer(c, m, c->code);
    }
}

bool model_user_full(const struct model *x, uid_t principal)
{
    struct engine *m = fake_of(x);
    uint32_t own = 0, users = 0;
    for (uint32_t i = 0; i < m->end; i++) {
        own += m->jobs[i].number && m->jobs[i].job.principal == principal;
        users += m->jobs[i].number && (principal == 0 || m->jobs[i].job.uid != 0);
    }
    return own >= USER_JOBS_MAX || users >= USERS_JOBS_MAX;
}

bool engine_view(const struct engine *m, uint32_t job, struct job_view *out)
{
    uint32_t cursor = job;
    return engine_next_job(m, &cursor, out) && cursor == job + 1;
}

uint32_t model_job_with(const struct model *x, pid_t pid)
{
    struct engine *m = fake_of(x);
    for (uint32_t i = 0; i < m->end; i++) {
        if (m->jobs[i].number && m->jobs[i].job.root.pid == pid)
            return i;
    }
    return SLOT_NONE;
}

int model_job_of(const struct model *x, pid_t pid, uint32_t *job)
{
    struct engine *m = fake_of(x);
    *job = model_job_with(engine_model(m), pid);
    return 0;
}

int model_job_pids(const struct model *x, uint32_t job, pid_t *from, struct pid_list *out)
{
    const pid_t root = fake_of(x)->jobs[job].job.root.pid;
    const int r = root < *from ? 0 : pid_list_push(out, root);
    *from = 0;
    return r;
}

uint32_t model_job_by_number(const struct model *x, uint64_t number)
{
    struct engine *m = fake_of(x);
    fake_lookups++;
    for (uint32_t i = 0; i < m->end; i++) {
        if (m->jobs[i].number == number)
            return i;
    }
    return SLOT_NONE;
}

int engine_add(struct engine *m, struct proc_id root, const struct job_spec *spec, uint32_t *job,
               struct error *err)
{
    *job = engine_job_of(m, root.pid);
    if (*job != SLOT_NONE)
        return error_set(err, -EEXIST, "process %d is already a job", root.pid);
    *job =
        fake_engine_put(m, root.pid, spec->uid, spec->terms.class, spec->terms.weight, spec->name);
    if (*job == SLOT_NONE)
        return error_set(err, -ENOSPC, "too many jobs");
    m->jobs[*job].job.root = root;
    m->jobs[*job].job.principal = spec->principal;
    m->jobs[*job].job.terms = spec->terms;
    m->jobs[*job].job.source = spec->source;
    return 0;
}

int engine_change(struct engine *m, uint32_t job, const struct job_terms *terms, struct error *err)
{
    m->jobs[job].job.terms = *terms;
    return 0;
}

void engine_rename(struct engine *m, uint32_t job, const char *name)
{
    snprintf(m->jobs[job].job.name, sizeof(m->jobs[job].job.name), "%s", name);
}

void model_account_set(struct model *x, const char *name, const struct job_terms *terms)
{
    struct engine *m = fake_of(x);
    snprintf(m->account, sizeof(m->account), "%s", name);
    m->naccounts++;
}

uint64_t deadlines_report(struct model *x, uint32_t job, const struct report *t)
{
    struct engine *m = fake_of(x);
    m->told[job] = *t;
    return m->report_again_ns;
}

void engine_room(struct engine *m, uint32_t job, unsigned gpu, uint64_t bytes, uint64_t until_ns)
{
    m->room[job][gpu] = bytes;
    m->room_until[job][gpu] = until_ns;
}

int engine_try(struct engine *m, uint32_t job, const struct job_trial *t, uint64_t for_ns,
               uint32_t together, struct error *err)
{
    m->tried[job] = *t;
    m->tried[job].until_ns = for_ns;
    m->together = together;
    return 0;
}

void engine_try_no_more(struct engine *m, uint64_t connection)
{
    m->untried = connection;
}

int engine_pause(struct engine *m, uint32_t job, bool paused, uid_t by)
{
    m->jobs[job].job.paused = paused;
    m->jobs[job].job.paused_by = paused ? by : 0;
    return 0;
}

uint32_t engine_gpu_caps(const struct engine *m, unsigned gpu, uint32_t *withheld, const char **why)
{
    *withheld = m->withheld;
    *why = m->withheld ? "made-up" : "";
    return GPU_CAP_PLACE & ~m->withheld;
}

bool engine_gpu_idle(const struct engine *m, unsigned gpu, uint64_t *ns)
{
    *ns = 1500000000ULL;
    return gpu == 0;
}

int engine_swap_out(struct engine *m, uint32_t job, uid_t by, struct error *err)
{
    if (m->status)
        return error_set(err, m->status, "made-up trouble");
    m->jobs[job].swap = "swapping-out";
    m->jobs[job].swap_by_user = true;
    m->jobs[job].swap_uid = by;
    return 0;
}

void swap_set_author(struct model *x, uint32_t job, bool by_user, uid_t uid)
{
    fake_of(x)->jobs[job].swap_by_user = by_user;
    fake_of(x)->jobs[job].swap_uid = uid;
}

int engine_need(struct engine *m, uint32_t job, uint64_t bytes, uint32_t gpu, struct error *err)
{
    if (gpu > 1)
        return error_set(err, -EINVAL, "there is no GPU %u", gpu);
    m->jobs[job].job.memory_bytes = bytes;
    m->jobs[job].job.memory_gpu = gpu;
    return 0;
}

int engine_place(struct engine *m, uint32_t job, const struct place_need *need, struct error *err)
{
    m->jobs[job].job.placed =
        need->ngpus == 1 ? need->candidates & -need->candidates : need->candidates;
    m->jobs[job].placed_why = PLACE_IDLE;
    return m->status ? error_set(err, m->status, "made-up trouble") : 0;
}

int swap_in(struct model *x, uint32_t job)
{
    fake_of(x)->jobs[job].swap = "swapping-in";
    return 0;
}

int engine_yield(struct engine *m, uint32_t job, unsigned what, uid_t by, bool over,
                 struct error *err)
{
    struct journal_job *j = &m->jobs[job].job;
    if (m->status)
        return error_set(err, m->status, "made-up trouble");
    if (over || !j->yielded)
        j->yielded_by = by;
    if (!(j->yielded & YIELD_CLASS))
        j->yielded_class = j->class;
    j->yielded |= what;
    j->class = CLASS_BATCH;
    return what & YIELD_MEMORY ? engine_swap_out(m, job, by, err) : 0;
}

int yield_outcome(const struct model *x, uint32_t job, struct error *err)
{
    struct engine *m = fake_of(x);
    return strcmp(m->jobs[job].swap, "swapping-out") == 0 ? -EINPROGRESS
           : m->jobs[job].swap[0]                         ? 0
                                                          : error_set(err, -EIO, "made-up trouble");
}

void yield_acquire(struct model *x, uint32_t job, uint64_t wait_ns)
{
    struct engine *m = fake_of(x);
    struct journal_job *j = &m->jobs[job].job;
    m->wait_us = wait_ns / NSEC_PER_USEC;
    if (j->yielded & YIELD_CLASS)
        j->class = j->yielded_class;
    if (!(j->yielded & YIELD_MEMORY))
        j->yielded = 0;
}

int swap_adopt(struct model *x, struct proc_id proc, bool must, uint32_t *job, struct error *err)
{
    struct engine *m = fake_of(x);
    *job = model_job_with(engine_model(m), proc.pid);
    return *job == SLOT_NONE ? -ESRCH : -EEXIST;
}

void engine_untold(struct engine *m, uint32_t job)
{
    if (--m->askers[job] == 0)
        engine_release(m, job);
}

struct proc_id engine_member(const struct engine *m, uint32_t job)
{
    return m->jobs[job].job.root;
}

const struct journal_job *engine_next_record(const struct engine *m, uint32_t *cursor)
{
    static struct journal_job rec;
    struct job_view v;
    if (!engine_next_job(m, cursor, &v))
        return NULL;
    rec = v.job;
    rec.number = v.number;
    return &rec;
}

bool engine_next_job(const struct engine *m, uint32_t *cursor, struct job_view *out)
{
    while (*cursor < m->end && !m->jobs[*cursor].number)
        ++*cursor;
    if (*cursor >= m->end)
        return false;
    *out = m->jobs[(*cursor)++];
    out->member = out->job.root;
    return true;
}

bool engine_next_unmanaged(const struct engine *m, uint32_t *cursor, struct unmanaged *out)
{
    if (*cursor >= m->nunmanaged)
        return false;
    *out = m->unmanaged[(*cursor)++];
    return true;
}

int engine_set_policy(struct engine *m, const char *name)
{
    if (strcmp(name, "priority") != 0 && strcmp(name, "shares") != 0)
        return -EINVAL;
    snprintf(m->policy, sizeof(m->policy), "%s", name);
    return 0;
}

int engine_set_params(struct engine *m, const struct sched_params *params)
{
    m->params = *params;
    return 0;
}

int engine_switches(struct engine *m, struct switch_list *out)
{
    *out = (struct switch_list){0};
    for (size_t i = 0; i < fake_switches.n; i++) {
        if (switch_list_push(out, &fake_switches.v[i]) < 0)
            return -ENOMEM;
    }
    fake_switches.n = 0;
    fake_recording = true;
    return fake_switches_code;
}

void engine_totals(const struct engine *m, uint64_t out[3])
{
    out[0] = 3;
    out[1] = 2;
    out[2] = 1;
}
