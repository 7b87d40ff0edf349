/* See trace_tracks.h. */
#include "cli/trace_tracks.h"

#include <string.h>

#include "base/gpu_parts.h"
#include "base/hints_proto.h"
#include "base/json_text.h"
#include "base/text.h"
#include "gpu/ops.h"

#define JOBS   4096U /* slots of jobs, by number; a job replaces an older one in its slot */
#define LANES  16U   /* most requests of a job that are shown at the same time */
#define CHOSEN 1024U

/* Kinds of tracks; track_of() makes a track's number of kind, owner and lane. */
enum track {
    TRACK_GPU = 1,
    TRACK_PART,
    TRACK_MESSAGES,
    TRACK_JOB,
    TRACK_STATE,
    TRACK_WHY,
    TRACK_MEMORY,
    TRACK_BUSY,
    TRACK_REQUEST,
    TRACK_LEAD,
    TRACK_LEASE,
};
#define OF_MAX ((1ULL << 48) - 1)

struct tracked_job {
    uint64_t number; /* 0: none */
    char label[TRACE_TEXT + 32];
    char pod[TRACE_POD_NAMES][TRACE_TEXT];
    bool shown, in_state;
    /* ns; 0: no such track yet */
    uint64_t busy_until[LANES], leads_until[LANES], leases_until[LANES];
};

struct tracks {
    struct perfetto *out;
    uint64_t last_ns, lost, flows;
    bool cut, messages, chooses;
    char note[TRACE_TEXT]; /* ceded's last note; "": none */
    uint64_t chosen[CHOSEN];
    size_t nchosen;
    bool gpu_known[DEVICE_GPUS_MAX], gpu_busy[DEVICE_GPUS_MAX], parts[DEVICE_GPUS_MAX];
    struct tracked_job jobs[JOBS];
};

static uint64_t track_of(enum track what, uint64_t of, unsigned lane)
{
    return (uint64_t)what << 56 | (of & OF_MAX) << 8 | lane;
}

struct tracks *tracks_new(struct perfetto *p, const json_t *jobs)
{
    struct tracks *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->out = p;
    t->chooses = jobs != NULL;
    for_each_json (job, jobs) {
        if (t->nchosen < CHOSEN)
            t->chosen[t->nchosen++] = (uint64_t)json_get_int(job, "number");
    }
    return t;
}

void tracks_free(struct tracks *t)
{
    free(t);
}

static bool is_chosen(const struct tracks *t, uint64_t number)
{
    for (size_t i = 0; i < t->nchosen; i++) {
        if (t->chosen[i] == number)
            return true;
    }
    return !t->chooses;
}

/* ---- jobs ---- */

static void job_close(struct tracks *t, struct tracked_job *j, uint64_t at_ns)
{
    if (j->in_state)
        perfetto_end(t->out, track_of(TRACK_STATE, j->number, 0), at_ns);
    j->in_state = false;
}

/* Begins a job. name: NULL: not known; "": ceded does not show it. */
static void job_begin(struct tracks *t, struct tracked_job *j, uint64_t number, const char *name,
                      uint64_t at_ns)
{
    static const struct {
        enum track what;
        const char *name, *unit;
    } parts[] = {
        {TRACK_STATE, "state", NULL},
        {TRACK_WHY, "decisions", NULL},
        {TRACK_MEMORY, "GPU memory", "bytes"},
        {TRACK_BUSY, "share of GPU time", "%"},
    };
    unsigned long long n = number;
    job_close(t, j, at_ns);
    *j = (struct tracked_job){.number = number, .shown = is_chosen(t, number)};
    if (!name)
        snprintf(j->label, sizeof(j->label), "job #%llu", n);
    else if (!name[0])
        snprintf(j->label, sizeof(j->label), "another job (#%llu)", n);
    else
        snprintf(j->label, sizeof(j->label), "%s (#%llu)", name, n);
    if (!j->shown)
        return;
    perfetto_track(t->out, track_of(TRACK_JOB, number, 0), 0, j->label, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        perfetto_track(t->out, track_of(parts[i].what, number, 0), track_of(TRACK_JOB, number, 0),
                       parts[i].name, parts[i].unit);
}

static struct tracked_job *job_of_event(struct tracks *t, const struct trace_event *ev)
{
    struct tracked_job *j = &t->jobs[ev->job % JOBS];
    if (j->number != ev->job)
        job_begin(t, j, ev->job, NULL, ev->at_ns);
    return j;
}

static void take_state(struct tracks *t, struct tracked_job *j, const struct trace_event *ev)
{
    job_close(t, j, ev->at_ns);
    perfetto_begin(t->out, &(struct perfetto_event){.at_ns = ev->at_ns,
                                                    .track = track_of(TRACK_STATE, j->number, 0),
                                                    .name = ev->text});
    j->in_state = true;
}

static void take_why(struct tracks *t, const struct tracked_job *j, const struct trace_event *ev)
{
    struct perfetto_arg args[4] = {{"GPU", NULL, ev->gpu}};
    size_t n = 1;
    const struct tracked_job *other = &t->jobs[ev->v[0] % JOBS];
    if (ev->v[0] && other->number == ev->v[0])
        args[n++] = (struct perfetto_arg){"job", other->label, 0};
    if (ev->v[1])
        args[n++] = (struct perfetto_arg){"more before it", NULL, ev->v[1]};
    if (ev->v[2] != UINT64_MAX)
        args[n++] = (struct perfetto_arg){"us at most", NULL, ev->v[2]};
    perfetto_instant(t->out, &(struct perfetto_event){.at_ns = ev->at_ns,
                                                      .track = track_of(TRACK_WHY, j->number, 0),
                                                      .name = ev->text,
                                                      .args = args,
                                                      .nargs = n});
}

/* The names are shown once all have come. */
static void take_pod(struct tracks *t, struct tracked_job *j, const struct trace_event *ev)
{
    if (ev->v[0] >= TRACE_POD_NAMES)
        return;
    memcpy(j->pod[ev->v[0]], ev->text, TRACE_TEXT);
    if (ev->v[0] + 1 < TRACE_POD_NAMES)
        return;
    const struct perfetto_arg args[] = {{"namespace", j->pod[TRACE_NAMESPACE], 0},
                                        {"pod", j->pod[TRACE_POD_NAME], 0},
                                        {"container", j->pod[TRACE_CONTAINER], 0}};
    perfetto_instant(t->out, &(struct perfetto_event){.at_ns = ev->at_ns,
                                                      .track = track_of(TRACK_STATE, j->number, 0),
                                                      .name = "pod",
                                                      .args = args,
                                                      .nargs = j->pod[TRACE_CONTAINER][0] ? 3 : 2});
}

/* ---- requests ---- */

/* The first track that is free for a request, since slices of one track must nest and requests may
 * overlap. LANES: none is free. */
static unsigned lane_for(struct tracks *t, uint64_t *until, enum track what, uint64_t job,
                         const char *name, uint64_t from_ns, uint64_t to_ns)
{
    for (unsigned i = 0; i < LANES; i++) {
        if (until[i] > from_ns)
            continue;
        if (!until[i])
            perfetto_track(t->out, track_of(what, job, i), track_of(TRACK_JOB, job, 0), name, NULL);
        until[i] = max_u64(to_ns, 1);
        return i;
    }
    t->lost++;
    return LANES;
}

static void put_slice(struct tracks *t, uint64_t track, const char *name, uint64_t from_ns,
                      uint64_t to_ns, uint64_t flow)
{
    perfetto_begin(t->out, &(struct perfetto_event){
                               .at_ns = from_ns, .track = track, .name = name, .flow = flow});
    perfetto_end(t->out, track, to_ns);
}

static void take_request(struct tracks *t, struct tracked_job *j, const struct trace_event *ev)
{
    uint64_t end_ns = max_u64(ev->v[0], ev->at_ns), lead_ns = ev->v[1],
             lead_end_ns = max_u64(ev->v[2], lead_ns), flow = lead_ns ? ++t->flows : 0;
    unsigned lane =
        lane_for(t, j->busy_until, TRACK_REQUEST, j->number, "requests", ev->at_ns, end_ns);
    if (lane == LANES)
        return;
    put_slice(t, track_of(TRACK_REQUEST, j->number, lane), "request", ev->at_ns, end_ns, flow);
    if (!lead_ns)
        return;
    lane = lane_for(t, j->leads_until, TRACK_LEAD, j->number, "leads", lead_ns, lead_end_ns);
    if (lane < LANES)
        put_slice(t, track_of(TRACK_LEAD, j->number, lane), "lead", lead_ns, lead_end_ns, flow);
}

static void take_lease(struct tracks *t, struct tracked_job *j, const struct trace_event *ev)
{
    const uint64_t end_ns = max_u64(ev->v[0], ev->at_ns), what = ev->v[1];
    if (hints_lease_why(what) >= HINTS_WAITS)
        return;
    unsigned lane =
        lane_for(t, j->leases_until, TRACK_LEASE, j->number, "lease waits", ev->at_ns, end_ns);
    if (lane == LANES)
        return;
    const struct perfetto_arg args[] = {
        {"waited for", hints_wait_names[hints_lease_why(what)], 0},
        {"result", hints_lease_failed(what) ? "no lease" : "started", 0},
        {"device", NULL, hints_lease_device(what)},
        {"occupancy, per million", NULL, hints_lease_occupancy(what)}};
    const uint64_t track = track_of(TRACK_LEASE, j->number, lane);
    const char *name = ev->text[0] ? ev->text : "lease";
    perfetto_begin(t->out, &(struct perfetto_event){ev->at_ns, track, name, 0, args, 4});
    perfetto_end(t->out, track, end_ns);
}

static void take_of_job(struct tracks *t, const struct trace_event *ev)
{
    struct tracked_job *j = job_of_event(t, ev);
    if (!j->shown)
        return;
    switch (ev->kind) {
    case TRACE_JOB_END:
        job_close(t, j, ev->at_ns);
        break;
    case TRACE_STATE:
        take_state(t, j, ev);
        break;
    case TRACE_POD:
        take_pod(t, j, ev);
        break;
    case TRACE_WHY:
        take_why(t, j, ev);
        break;
    case TRACE_MEMORY:
        perfetto_value(t->out, track_of(TRACK_MEMORY, j->number, 0), ev->at_ns, (double)ev->v[0]);
        break;
    case TRACE_BUSY:
        perfetto_value(t->out, track_of(TRACK_BUSY, j->number, 0), ev->at_ns,
                       (double)ev->v[0] / 1e4);
        break;
    case TRACE_REQUEST:
        take_request(t, j, ev);
        break;
    case TRACE_LEASE:
        take_lease(t, j, ev);
        break;
    default:
        break;
    }
}

/* ---- GPUs ---- */

static void gpu_begin(struct tracks *t, unsigned gpu, const char *text)
{
    char name[TRACE_TEXT + 24];
    snprintf(name, sizeof(name), "GPU %u%s%s", gpu, text[0] ? ": " : "", text);
    perfetto_track(t->out, track_of(TRACK_GPU, gpu, 0), 0, name, NULL);
    t->gpu_known[gpu] = true;
}

static void take_switch(struct tracks *t, const struct trace_event *ev)
{
    static const char *const others[] = {
        [TRACE_NO_JOB] = "a program in no job", [TRACE_UNKNOWN] = "not known"};
    const unsigned gpu = ev->gpu;
    const uint64_t track = track_of(TRACK_GPU, gpu, 0);
    if (t->gpu_busy[gpu])
        perfetto_end(t->out, track, ev->at_ns);
    t->gpu_busy[gpu] = ev->job || ev->v[0] != TRACE_NOBODY;
    if (!t->gpu_busy[gpu])
        return;
    const char *name = others[ev->v[0] == TRACE_NO_JOB ? TRACE_NO_JOB : TRACE_UNKNOWN];
    if (ev->job) {
        const struct tracked_job *j = job_of_event(t, ev);
        name = j->shown ? j->label : "another job";
    }
    perfetto_begin(t->out, &(struct perfetto_event){ev->at_ns, track, name, 0, NULL, 0});
}

static void take_part(struct tracks *t, const struct trace_event *ev)
{
    static const char *const names[GPU_PARTS] = {
        [PART_INTEGER] = "integer units",    [PART_TENSOR_FP64] = "tensor units, FP64",
        [PART_TENSOR_FP16] = "tensor units", [PART_TENSOR_INTEGER] = "tensor units, integer",
        [PART_FP64] = "FP64 units",          [PART_FP32] = "FP32 units",
        [PART_FP16] = "FP16 units",          [PART_DRAM] = "memory bandwidth"};
    const unsigned gpu = ev->gpu;
    if (ev->v[0] >= GPU_PARTS)
        return;
    for (unsigned p = 0; p < GPU_PARTS && !t->parts[gpu]; p++)
        perfetto_track(t->out, track_of(TRACK_PART, gpu, p), track_of(TRACK_GPU, gpu, 0), names[p],
                       "%");
    t->parts[gpu] = true;
    perfetto_value(t->out, track_of(TRACK_PART, gpu, (unsigned)ev->v[0]), ev->at_ns,
                   (double)ev->v[1] / 1e4);
}

static void take_of_gpu(struct tracks *t, const struct trace_event *ev)
{
    if (ev->gpu >= DEVICE_GPUS_MAX)
        return;
    if (ev->kind == TRACE_GPU || !t->gpu_known[ev->gpu])
        gpu_begin(t, ev->gpu, ev->kind == TRACE_GPU ? ev->text : "");
    if (ev->kind == TRACE_SWITCH)
        take_switch(t, ev);
    if (ev->kind == TRACE_PART)
        take_part(t, ev);
}

/* ---- all ---- */

static void put_message(struct tracks *t, uint64_t at_ns, const char *text)
{
    const uint64_t track = track_of(TRACK_MESSAGES, 0, 0);
    if (!t->messages)
        perfetto_track(t->out, track, 0, "cede trace", NULL);
    t->messages = true;
    perfetto_instant(t->out, &(struct perfetto_event){at_ns, track, text, 0, NULL, 0});
}

static void take_lost(struct tracks *t, const struct trace_event *ev)
{
    char text[64];
    t->lost += ev->v[0];
    t->cut |= ev->v[1] == 1;
    snprintf(text, sizeof(text), "%llu events lost%s", (unsigned long long)ev->v[0],
             ev->v[1] == 1 ? ", and all from here on" : "");
    put_message(t, ev->at_ns, text);
}

void tracks_take(struct tracks *t, const struct trace_event *in)
{
    struct trace_event ev = *in;
    ev.text[TRACE_TEXT - 1] = '\0';
    text_show(ev.text);
    t->last_ns = max_u64(t->last_ns, ev.at_ns);
    switch (ev.kind) {
    case TRACE_GPU:
    case TRACE_SWITCH:
    case TRACE_PART:
        take_of_gpu(t, &ev);
        break;
    case TRACE_LOST:
        take_lost(t, &ev);
        break;
    case TRACE_NOTE:
        put_message(t, ev.at_ns, ev.text);
        snprintf(t->note, sizeof(t->note), "%s", ev.text);
        break;
    case TRACE_JOB:
        job_begin(t, &t->jobs[ev.job % JOBS], ev.job, ev.text, ev.at_ns);
        break;
    default:
        if (ev.kind < TRACE_KINDS)
            take_of_job(t, &ev);
    }
}

void tracks_end(struct tracks *t, uint64_t now_ns)
{
    now_ns = max_u64(now_ns, t->last_ns);
    for (unsigned i = 0; i < DEVICE_GPUS_MAX; i++) {
        if (t->gpu_busy[i])
            perfetto_end(t->out, track_of(TRACK_GPU, i, 0), now_ns);
    }
    for (unsigned i = 0; i < JOBS; i++)
        job_close(t, &t->jobs[i], now_ns);
}

uint64_t tracks_lost(const struct tracks *t, bool *cut)
{
    *cut = t->cut;
    return t->lost;
}

const char *tracks_note(const struct tracks *t)
{
    return t->note[0] ? t->note : NULL;
}
