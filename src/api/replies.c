/* See replies.h. */
#include "api/replies.h"

#include <stdlib.h>
#include <string.h>

#include "api/guest.h"
#include "api/json_pages.h"
#include "api/proto.h"
#include "api/rules/job_spec.h"
#include "base/json_text.h"
#include "base/version.h"

/* A note for the user who steers a client of an MPS server. */
static const char *mps_note(const struct job_view *v, char buf[static 256])
{
    if (v->is_client && v->job.paused)
        return "a client of an MPS server: its processes are stopped (SIGSTOP), and what they had "
               "queued on the GPU ends first";
    if (v->left_alone)
        return "its MPS server has a client that is in no job: cede changes nothing for any of "
               "them until that is a job, too (cede ps -a shows it)";
    if (!v->unit)
        return NULL;
    snprintf(buf, 256,
             "a client of the same MPS server as %s: they run at the same time, all as %s, the "
             "best class among them",
             v->unit == v->number ? "others" : "an older job", job_class_name(v->unit_class));
    return buf;
}

json_t *reply_job(const struct job_view *v, const char *note)
{
    char buf[256];
    note = note ? note : mps_note(v, buf);
    return json_pack("{s:i, s:b, s:o, s:s*}", "v", PROTO_VERSION, "ok", 1, "job",
                     job_json(v, JOB_WHOLE), "note", note);
}

static json_t *caps_of(uint32_t caps)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } all[] = {{GPU_CAP_TIMESLICE, "timeslice"}, {GPU_CAP_SUSPEND, "suspend"},
               {GPU_CAP_USAGE, "usage"},         {GPU_CAP_ACTIVITY, "activity"},
               {GPU_CAP_SWAP, "swap"},           {GPU_CAP_GATE, "gate"},
               {GPU_CAP_POOL, "pool"},           {GPU_CAP_PREEMPT, "preempt"},
               {GPU_CAP_COUNTERS, "counters"},   {GPU_CAP_PLACE, "place"}};
    json_t *a = json_array();
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        if (caps & all[i].bit)
            json_array_append_new(a, json_string(all[i].name));
    }
    return a;
}

/* Asked each time, as the names of gated devices come from the programs that use them. */
static json_t *gpus_of(const struct engine *e)
{
    struct device_driver *d = engine_driver(e);
    json_t *a = json_array();
    for (unsigned i = 0; i < d->ops->gpus(d); i++) {
        struct gpu_info g;
        if (d->ops->info(d, i, &g) < 0 || !g.name[0])
            continue;
        unsigned level = g.caps & GPU_CAP_GATE ? LEVEL_GATE : LEVEL_QUEUE;
        if (!g.label[0])
            snprintf(g.label, sizeof(g.label), "%.12s%u", d->ops->name, i);
        uint32_t off;
        const char *why;
        engine_gpu_caps(e, i, &off, &why);
        json_t *gpu = json_pack("{s:i, s:s, s:s, s:s, s:s*, s:i, s:s, s:o}", "index", (int)i,
                                "label", g.label, "name", g.name, "uuid", g.uuid, "driver",
                                g.driver[0] ? g.driver : NULL, "level", (int)level, "level_name",
                                device_level_name(level), "caps", caps_of(g.caps & ~off));
        uint64_t idle_ns;
        if (engine_gpu_idle(e, i, &idle_ns))
            json_object_set_new(gpu, "idle_while_waiting_s", json_real((double)idle_ns / 1e9));
        if (off) {
            json_object_set_new(gpu, "off", caps_of(off));
            json_object_set_new(gpu, "off_why", json_string(why));
        }
        json_array_append_new(a, gpu);
    }
    return a;
}

struct numbered {
    uint64_t number;
    uint32_t slot;
};

/* The jobs with numbers above `after`, lowest first. */
static size_t numbered_jobs(const struct engine *e, uint64_t after, struct numbered *all)
{
    const struct journal_job *rec;
    size_t n = 0;
    for (uint32_t cursor = 0; n < JOURNAL_JOBS && (rec = engine_next_record(e, &cursor));) {
        if (rec->number > after)
            all[n++] = (struct numbered){rec->number, cursor - 1};
    }
    qsort(all, n, sizeof(*all), compare_u64);
    return n;
}

static json_t *job_and_requests(const struct job_view *view, const struct hints *hints,
                                uint64_t now_ns)
{
    struct hints_sums sum = {.begun = 0};
    json_t *job = job_json(view, JOB_WHOLE);
    json_t *requests = hints ? hints_of(hints, view->number, now_ns, &sum) : NULL;
    if (requests)
        json_object_set_new(job, "requests", requests);
    json_t *leases = hints_leases_json(&sum);
    if (leases)
        json_object_set_new(job, "leases", leases);
    return job;
}

/* Whether the caller may set an unmanaged program. A user's own daemon has no rights to programs of
 * others, even for an administrator. */
static bool may_set(const struct unmanaged *u, const struct caller *who)
{
    return u->uid == who->uid || (who->admin && geteuid() == 0);
}

static json_t *unmanaged_json(const struct unmanaged *u, pid_t number, bool may)
{
    char name[JOB_NAME_MAX];
    rules_job_name(name, u->comm, u->id.pid);
    return json_pack("{s:i, s:o, s:I, s:o, s:b, s:b}", "pid", (int)number, "name", json_text(name),
                     "uid", (json_int_t)u->uid, "gpus", bits_json(u->gpus), "detached", u->detached,
                     "may_set", may);
}

void reply_add_unmanaged(json_t *reply, const struct engine *e, const struct caller *who)
{
    json_t *all = json_array();
    json_int_t more = 0;
    for (int rank = 0; rank < 3; rank++) {
        struct unmanaged u;
        for (uint32_t cursor = 0; engine_next_unmanaged(e, &cursor, &u);) {
            bool may = may_set(&u, who);
            const pid_t number = guest_number(who, u.id); /* 0: it cannot be named there */
            if (!number || (u.detached ? 2 : may ? 0 : 1) != rank)
                continue;
            if (json_array_size(all) < UNMANAGED_MAX)
                json_array_append_new(all, unmanaged_json(&u, number, may));
            else
                more++;
        }
    }
    json_object_set_new(reply, "unmanaged", all);
    if (more)
        json_object_set_new(reply, "unmanaged_more", json_integer(more));
}

void reply_add_pool(json_t *reply, struct device_driver *d, const struct rule_list *l, bool batch,
                    bool loses)
{
    bool possible = false;
    for (unsigned i = 0; i < d->ops->gpus(d); i++) {
        struct gpu_info g;
        possible |= d->ops->info(d, i, &g) == 0 && (g.caps & GPU_CAP_POOL);
    }
    json_object_set_new(reply, "pool",
                        json_pack("{s:b, s:b, s:b, s:b, s:I}", "wanted",
                                  l && l->pool_batch && batch, "latency", l && l->pool_latency,
                                  "possible", possible, "loses", batch && loses, "latency_sm",
                                  l ? (json_int_t)l->pool_latency_sm : 100));
}

/* Pages go by number, which is not reused as slots are: a job that begins or ends between two pages
 * neither hides another nor shows it twice. all: room for JOURNAL_JOBS. Returns whether jobs are
 * left for another page. */
static bool add_jobs(struct json_page *to, const struct engine *e, const struct hints *hints,
                     const struct caller *who, uint64_t after, enum job_detail detail,
                     struct numbered *all)
{
    uint64_t now = monotonic_ns();
    size_t n = numbered_jobs(e, after, all);
    for (size_t i = 0; i < n; i++) {
        struct job_view view;
        if (!engine_view(e, all[i].slot, &view) || !guest_reaches(who, view.member))
            continue;
        view.job.root.pid = guest_number(who, view.job.root);
        if (!json_page_add(to,
                           detail ? job_json(&view, detail) : job_and_requests(&view, hints, now)))
            return true;
    }
    return false;
}

/* Jobs are formatted once, in their place at the end of the reply, because formatting takes most of
 * the time of a list of a thousand jobs. */
char *reply_ps(struct engine *e, struct hints *hints, struct job_sums *sums,
               const struct caller *who, uint64_t after, uint64_t job_of, enum job_detail detail)
{
    static const char end[] = "],\"more\":false}";
    struct device_driver *d = engine_driver(e);
    struct numbered *all = calloc(JOURNAL_JOBS, sizeof(*all));
    struct job_sums_now *sum = NULL;
    char *text = malloc(PROTO_MESSAGE_MAX);
    json_t *o =
        json_pack("{s:i, s:b, s:s, s:s, s:s, s:o, s:i}", "v", PROTO_VERSION, "ok", 1, "version",
                  build_version(), "policy", engine_policy(e), "device", device_name(d), "gpus",
                  gpus_of(e), "pid", who->ns.level > 1 ? 0 : (int)getpid());
    if (all && text && o) {
        engine_watch(e);
        if (hints)
            hints_assign(hints, e, monotonic_ns());
        sum = sums ? job_sums_collect(sums, e, who) : NULL;
        if (who->guest)
            json_object_set_new(o, "guest", json_true());
        if (job_of)
            json_object_set_new(o, "job_of", json_integer((json_int_t)job_of));
        if (!after)
            reply_add_unmanaged(o, e, who);
        if (!after && sum)
            job_sums_add_states(sum, o);
        json_object_set_new(o, "jobs", json_array());
    }
    const size_t head = o && text ? json_dumpb(o, text, PROTO_MESSAGE_MAX, JSON_COMPACT) : 0;
    json_decref(o);
    if (!all || !sum != !sums || !head || head + sizeof(end) > PROTO_MESSAGE_MAX) {
        free(text);
        text = NULL;
    } else {
        struct json_page jobs = {text + head - strlen("]}"), 0,
                                 PROTO_MESSAGE_MAX - head - sizeof(end)};
        const bool more = sum ? job_sums_put(sum, after, &jobs)
                              : add_jobs(&jobs, e, hints, who, after, detail, all);
        snprintf(jobs.text + jobs.n, sizeof(end), "],\"more\":%s}", more ? "true" : "false");
    }
    free(all);
    job_sums_done(sum);
    return text;
}

json_t *reply_pids(const struct engine *e, const struct caller *who, struct job_view *v, pid_t from,
                   const char *note, int *code)
{
    _cleanup_(pid_list_free) struct pid_list found = {0};
    const struct model *m = engine_model(e);
    const uint32_t slot = model_job_by_number(m, v->number);
    *code = slot == SLOT_NONE ? -ESRCH : model_job_pids(m, slot, &from, &found);
    if (*code < 0)
        return NULL;
    json_t *pids = json_array();
    for (size_t i = 0; i < found.n; i++) {
        struct proc_stat st;
        const pid_t number = proc_stat_read(found.v[i], &st) == 0 ? guest_number(who, st.id) : 0;
        if (number)
            json_array_append_new(pids, json_integer(number));
    }
    v->job.root.pid = guest_number(who, v->job.root);
    return json_pack("{s:i, s:b, s:o, s:o, s:o*, s:s*}", "v", PROTO_VERSION, "ok", 1, "job",
                     job_json(v, JOB_BRIEF), "pids", pids, "next", from ? json_integer(from) : NULL,
                     "note", note[0] ? note : NULL);
}

const char *reply_policy_names(char *buf, size_t size)
{
    const char *name, *summary;
    buf[0] = '\0';
    for (unsigned i = 0; sched_policy_at(i, &name, &summary); i++)
        list_add(buf, size, name);
    return buf;
}

static json_t *params_of(const struct sched_params *p)
{
    json_t *o = json_object();
    const struct param *f;
    for (unsigned i = 0; (f = param_at(i)); i++)
        json_object_set_new(o, f->name, proto_param(f, param_get(p, f)));
    return o;
}

json_t *policies_json(void)
{
    json_t *list = json_array();
    const char *name, *summary;
    for (unsigned i = 0; sched_policy_at(i, &name, &summary); i++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "summary", summary));
    return list;
}

json_t *reply_policy(const struct engine *e)
{
    uint64_t totals[3];
    engine_totals(e, totals);
    return json_pack("{s:i, s:b, s:s, s:o, s:o, s:I, s:I, s:I}", "v", PROTO_VERSION, "ok", 1,
                     "policy", engine_policy(e), "policies", policies_json(), "params",
                     params_of(engine_params(e)), "decisions", (json_int_t)totals[0], "controls",
                     (json_int_t)totals[1], "controls_failed", (json_int_t)totals[2]);
}

char *reply_refusal(int code, const struct error *err, gid_t admin_gid)
{
    _cleanup_json_ json_t *o =
        json_pack("{s:i, s:b, s:i, s:o}", "v", PROTO_VERSION, "ok", 0, "errno", -code, "error",
                  json_text(err->text[0] ? err->text : strerror(-code)));
    if (o && strstr(err->text, ADMINS_GROUP))
        json_object_set_new(o, "admin_gid",
                            admin_gid == ADMIN_NO_GROUP ? json_null() : json_integer(admin_gid));
    return o ? json_dumps(o, JSON_COMPACT) : NULL;
}
