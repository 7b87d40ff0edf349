/* See fake_engine.h. */
#include "fake_engine.h"

#include <errno.h>
#include <string.h>

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

void engine_submit(struct engine *m, struct command *c)
{
    struct command **link = &m->first;
    while (*link)
        link = &(*link)->next;
    c->next = NULL;
    *link = c;
}

bool engine_pending(const struct engine *m)
{
    return m->first != NULL;
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

bool engine_loses_in_space(const struct engine *m, uint32_t slot)
{
    (void)m, (void)slot;
    return false;
}

bool engine_user_full(const struct engine *m, uid_t account)
{
    uint32_t own = 0, users = 0;
    for (uint32_t i = 0; i < m->end; i++) {
        own += m->jobs[i].number && m->jobs[i].job.account_uid == account;
        users += m->jobs[i].number && (account == 0 || m->jobs[i].job.uid != 0);
    }
    return own >= USER_JOBS_MAX || users >= USERS_JOBS_MAX;
}

bool engine_view(const struct engine *m, uint32_t job, struct job_view *out)
{
    uint32_t cursor = job;
    return engine_next_job(m, &cursor, out) && cursor == job + 1;
}

uint32_t engine_job_with(const struct engine *m, pid_t pid)
{
    for (uint32_t i = 0; i < m->end; i++) {
        if (m->jobs[i].number && m->jobs[i].job.root.pid == pid)
            return i;
    }
    return SLOT_NONE;
}

uint32_t engine_job_of(const struct engine *m, pid_t pid)
{
    return engine_job_with(m, pid);
}

int engine_job_find(const struct engine *m, pid_t pid, uint32_t *job)
{
    *job = engine_job_with(m, pid);
    return 0;
}

uint32_t engine_job_by_number(const struct engine *m, uint64_t number)
{
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
    m->jobs[*job].job.account_uid = spec->account_uid;
    m->jobs[*job].job.gpu_min = spec->terms.gpu_min;
    m->jobs[*job].job.gpu_max = spec->terms.gpu_max;
    m->jobs[*job].job.preempt = spec->terms.preempt;
    m->jobs[*job].job.source = spec->source;
    m->jobs[*job].job.deadline_us = spec->deadline_us;
    m->jobs[*job].job.laxity_us = spec->laxity_us;
    m->jobs[*job].job.may_promote = spec->may_promote;
    return 0;
}

int engine_change(struct engine *m, uint32_t job, const struct job_terms *terms, struct error *err)
{
    (void)err;
    m->jobs[job].job.budget_us = terms->budget_us;
    m->jobs[job].job.class = terms->class;
    m->jobs[job].job.weight = terms->weight;
    m->jobs[job].job.gpu_min = terms->gpu_min;
    m->jobs[job].job.gpu_max = terms->gpu_max;
    m->jobs[job].job.preempt = terms->preempt;
    return 0;
}

void engine_accounts_forget(struct engine *m)
{
    m->naccounts = 0;
}

void engine_account_set(struct engine *m, const char *name, const struct job_terms *terms)
{
    (void)terms;
    snprintf(m->account, sizeof(m->account), "%s", name);
    m->naccounts++;
}

int engine_set_deadline(struct engine *m, uint32_t job, uint32_t deadline_us, uint32_t laxity_us,
                        bool may_promote)
{
    m->jobs[job].job.deadline_us = deadline_us;
    m->jobs[job].job.laxity_us = laxity_us;
    m->jobs[job].job.may_promote = may_promote;
    return 0;
}

struct room_wanted engine_room_wanted(const struct engine *m)
{
    return (struct room_wanted){{m->room_class}};
}

bool engine_job_wanted(const struct engine *m, uint32_t job, const struct room_wanted *w)
{
    return w->class[0] < m->jobs[job].job.class;
}

uint32_t engine_job_share(const struct engine *m, uint32_t job, pid_t pid)
{
    return m->jobs[job].job.root.pid == pid ? m->share : 0;
}

uint64_t engine_report(struct engine *m, uint32_t job, const struct report *t)
{
    m->told[job] = *t;
    return m->report_again_ns;
}

void engine_room(struct engine *m, uint32_t job, unsigned gpu, uint64_t bytes, uint64_t until_ns)
{
    m->room[job][gpu] = bytes;
    m->room_until[job][gpu] = until_ns;
}

int engine_pause(struct engine *m, uint32_t job, bool paused, uid_t by)
{
    m->jobs[job].job.paused = paused;
    m->jobs[job].job.paused_by = paused ? by : 0;
    return 0;
}

int engine_may_pause(const struct engine *m, uint32_t job, struct error *err)
{
    return m->withheld & GPU_CAP_SUSPEND ? error_set(err, -ENOTSUP, "made-up") : 0;
}

int engine_may_record(struct engine *m, uint32_t job, struct error *err)
{
    (void)job;
    return m->unrecorded ? error_set(err, m->unrecorded, "made-up journal") : 0;
}

void engine_record(struct engine *m)
{
    m->recorded = m->jobs[0].job.paused ? 2 : 1;
}

uint32_t engine_gpu_caps(const struct engine *m, unsigned gpu, uint32_t *withheld, const char **why)
{
    *withheld = m->withheld;
    *why = m->withheld ? "made-up" : "";
    return GPU_CAP_PLACE & ~m->withheld;
}

bool engine_gpu_idle(const struct engine *m, unsigned gpu, uint64_t *ns)
{
    (void)m;
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

int engine_need(struct engine *m, uint32_t job, uint64_t bytes, uint32_t gpu, struct error *err)
{
    if (gpu > 1)
        return error_set(err, -EINVAL, "there is no GPU %u", gpu);
    m->jobs[job].job.memory_bytes = bytes;
    m->jobs[job].job.memory_gpu = gpu;
    return 0;
}

void engine_started(struct engine *m, uint32_t job)
{
    m->jobs[job].job.room = ROOM_NONE;
}

bool engine_user_waits_full(const struct engine *m, uid_t account)
{
    return m->waits_full && account != 0;
}

int engine_place(struct engine *m, uint32_t job, const struct place_wish *w, struct error *err)
{
    m->jobs[job].job.placed = w->ngpus == 1 ? w->candidates & -w->candidates : w->candidates;
    m->jobs[job].placed_why = PLACE_IDLE;
    return m->status ? error_set(err, m->status, "made-up trouble") : 0;
}

int engine_swap_in(struct engine *m, uint32_t job)
{
    m->jobs[job].swap = "swapping-in";
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
    if (what & YIELD_MEMORY)
        m->jobs[job].swap = "swapping-out";
    return 0;
}

int engine_yielded(const struct engine *m, uint32_t job, struct error *err)
{
    return strcmp(m->jobs[job].swap, "swapping-out") == 0 ? -EINPROGRESS
           : m->jobs[job].swap[0]                         ? 0
                                                          : error_set(err, -EIO, "made-up trouble");
}

void engine_acquire(struct engine *m, uint32_t job, uint64_t wait_us)
{
    struct journal_job *j = &m->jobs[job].job;
    m->wait_us = wait_us;
    if (j->yielded & YIELD_CLASS)
        j->class = j->yielded_class;
    if (!(j->yielded & YIELD_MEMORY))
        j->yielded = 0;
}

void engine_yield_forget(struct engine *m, uint32_t job, unsigned what)
{
    m->jobs[job].job.yielded &= ~what;
}

int engine_swap_in_process(struct engine *m, struct proc_id proc, uint32_t *job, struct error *err)
{
    *job = engine_job_with(m, proc.pid);
    return *job == SLOT_NONE ? -ESRCH : -EEXIST;
}

int engine_resume_unmanaged(struct engine *m, struct proc_id proc, struct error *err)
{
    return error_set(err, -ENODEV, "process %d is in no job", (int)proc.pid);
}

void engine_distrust(struct engine *m, struct proc_id proc)
{
}

void engine_release(struct engine *m, uint32_t job)
{
    m->jobs[job].number = 0;
}

void engine_told(struct engine *m, uint32_t job)
{
    m->askers[job]++;
}

void engine_untold(struct engine *m, uint32_t job)
{
    if (--m->askers[job] == 0)
        engine_release(m, job);
}

int engine_job_status(const struct engine *m, uint32_t job, struct error *err)
{
    return m->status ? error_set(err, m->status, "made-up trouble") : 0;
}

void engine_watch(struct engine *m)
{
    m->watched++;
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

const struct sched_params *engine_params(const struct engine *m)
{
    return &m->params;
}

const char *engine_policy(const struct engine *m)
{
    return m->policy;
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

void engine_switches_end(struct engine *m)
{
    fake_recording = false;
}

int engine_counters(struct engine *m, unsigned gpu, struct gpu_counters *out)
{
    return -ENOTSUP;
}

void engine_totals(const struct engine *m, uint64_t out[3])
{
    (void)m;
    out[0] = 3;
    out[1] = 2;
    out[2] = 1;
}

struct device_driver *engine_driver(const struct engine *m)
{
    return &fake_driver;
}

void engine_look_for_jobs(struct engine *m, bool anew)
{
    m->looks += anew;
}

void engine_facts_came(struct engine *m)
{
    m->facts_came++;
}
