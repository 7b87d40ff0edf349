/* Messages between cede and ceded, as proto.h describes them. Everything that a stranger may send
 * is checked here; no I/O. */
#include "control/proto.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "lib/json_text.h"

/* Fields of requests besides v and op. */
enum {
    F_PID = 1 << 0,
    F_TARGET = 1 << 1,
    F_CLASS = 1 << 2,
    F_WEIGHT = 1 << 3,
    F_NAME = 1 << 4,
    F_RUN = 1 << 5,
    F_AFTER = 1 << 6,
    F_BUDGET = 1 << 7,
    F_PARAMS = 1 << 8,
    F_MEMORY = 1 << 9,
    F_GPU = 1 << 10,
    F_DEADLINE = 1 << 11,
    F_LAXITY = 1 << 12,
};

static const struct {
    const char *name;
    unsigned allowed, needed;
    const char *fields; /* for people */
} ops[] = {
    [OP_ADD] =
        {"add",
         F_PID | F_CLASS | F_WEIGHT | F_BUDGET | F_NAME | F_RUN | F_MEMORY | F_GPU | F_DEADLINE |
             F_LAXITY,
         F_PID,
         "pid, class, weight, budget_us, deadline_us, laxity_us, name, run, memory_bytes, gpu"},
    [OP_SET] = {"set", F_TARGET | F_CLASS | F_WEIGHT | F_BUDGET | F_DEADLINE | F_LAXITY, F_TARGET,
                "target, class, weight, budget_us, deadline_us, laxity_us"},
    [OP_PAUSE] = {"pause", F_TARGET, F_TARGET, "target"},
    [OP_RESUME] = {"resume", F_TARGET, F_TARGET, "target"},
    [OP_PS] = {"ps", F_AFTER, 0, "after"},
    [OP_POLICY] = {"policy", F_NAME | F_PARAMS, 0, "name, params"},
    [OP_SWAP_OUT] = {"swap-out", F_TARGET, F_TARGET, "target"},
    [OP_SWAP_IN] = {"swap-in", F_TARGET, F_TARGET, "target"},
    [OP_HINTS] = {"hints", 0, 0, "nothing"},
};

/* One code point of UTF-8 at *s; advances. -1: not UTF-8 (overlong, surrogate, cut, too large). */
static int32_t utf8_next(const unsigned char **s)
{
    const unsigned char *p = *s;
    if (p[0] < 0x80) {
        *s = p + 1;
        return p[0];
    }
    unsigned more = p[0] >= 0xf0 ? 3 : p[0] >= 0xe0 ? 2 : 1;
    static const int32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return -1;
    int32_t c = p[0] & (0x3f >> more);
    for (unsigned i = 1; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80) /* also ends at the terminator */
            return -1;
        c = (c << 6) | (p[i] & 0x3f);
    }
    if (c < least[more] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return -1;
    *s = p + 1 + more;
    return c;
}

bool proto_name_ok(const char *name)
{
    size_t n = strnlen(name, JOB_NAME_MAX);
    if (n == 0 || n == JOB_NAME_MAX || name[0] == '#' || strspn(name, "0123456789") == n)
        return false;
    for (const unsigned char *s = (const unsigned char *)name; *s;) {
        int32_t c = utf8_next(&s);
        /* Controls, and those that change the direction or end the line of what follows: names are
         * shown in tables. */
        if (c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x2028 && c <= 0x202e) ||
            (c >= 0x2066 && c <= 0x2069))
            return false;
    }
    return true;
}

static int bad_name(struct error *err, const char *field)
{
    return error_set(err, -EINVAL,
                     "%s: a name has 1 to %d bytes of printable UTF-8, does not start with # and "
                     "is not a number",
                     field, JOB_NAME_MAX - 1);
}

int proto_target(const char *text, struct request *out, struct error *err)
{
    out->pid = 0;
    out->number = 0;
    out->name[0] = '\0';
    uint64_t v;
    if (text[0] == '#') {
        if (parse_u64(text + 1, 1, INT64_MAX, &v) < 0)
            return error_set(err, -EINVAL, "target: after # a job's number is needed, as in #12");
        out->number = v;
        return 0;
    }
    if (*text && strspn(text, "0123456789") == strlen(text)) {
        if (parse_u64(text, 1, INT32_MAX, &v) < 0)
            return error_set(err, -EINVAL, "target: a pid is 1 to %d", INT32_MAX);
        out->pid = (pid_t)v;
        return 0;
    }
    if (!proto_name_ok(text))
        return error_set(err, -EINVAL,
                         "target: a pid, a job's number as in #12, or its name of 1 to %d bytes",
                         JOB_NAME_MAX - 1);
    snprintf(out->name, sizeof(out->name), "%s", text);
    return 0;
}

static int get_int(const json_t *v, const char *field, int64_t lo, int64_t hi, int64_t *out,
                   struct error *err)
{
    json_int_t i = json_integer_value(v);
    if (!json_is_integer(v) || i < lo || i > hi)
        return error_set(err, -EINVAL, "%s: a whole number from %lld to %lld is needed", field,
                         (long long)lo, (long long)hi);
    *out = i;
    return 0;
}

static int get_class(const json_t *v, struct request *out, struct error *err)
{
    const char *s = json_string_value(v);
    if (s && strcmp(s, "none") == 0 && out->op == OP_SET) {
        out->release = true;
        return 0;
    }
    if (!s || job_class_parse(s, &out->class) < 0)
        return error_set(err, -EINVAL, "class: latency, normal or batch is needed%s",
                         out->op == OP_SET ? ", or none to let go of the job" : "");
    out->has_class = true;
    return 0;
}

/* Text of others in an error: short, and without what a terminal would obey. */
static void quote(char buf[static 40], const char *s)
{
    size_t len = strlen(s), n = min_u64(len, 32);
    for (size_t i = 0; i < n; i++)
        buf[i] = isgraph((unsigned char)s[i]) ? s[i] : '?';
    snprintf(buf + n, 40 - n, "%s", n < len ? "..." : "");
}

int request_param(struct request *r, const char *name, double value, struct error *err)
{
    const struct param *f = param_find(name);
    if (!f) {
        char q[40], known[400] = "";
        quote(q, name);
        for (unsigned i = 0; param_at(i); i++) {
            size_t n = strlen(known);
            snprintf(known + n, sizeof(known) - n, "%s%s", n ? ", " : "", param_at(i)->name);
        }
        return error_set(err, -EINVAL, "there is no parameter %s; there are %s", q, known);
    }
    struct sched_params scratch;
    if (param_set(&scratch, f, value) < 0)
        return error_set(err, -EINVAL, "%s: a whole number is needed: %s", name, f->allowed);
    ptrdiff_t i = f - param_at(0);
    r->params |= 1U << i;
    r->param[i] = value;
    return 0;
}

static int get_params(const json_t *v, struct request *out, struct error *err)
{
    if (!json_is_object(v))
        return error_set(err, -EINVAL, "params: an object of parameters and numbers is needed");
    const char *key;
    json_t *x;
    json_object_foreach((json_t *)v, key, x)
    {
        /* What is no number is NaN here, and no parameter takes that. */
        int r = request_param(out, key, json_is_number(x) ? json_number_value(x) : NAN, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int get_field(unsigned field, const char *name, const json_t *v, struct request *out,
                     struct error *err)
{
    int64_t i = 0;
    int r = 0;
    switch (field) {
    case F_PID:
        r = get_int(v, name, 1, INT32_MAX, &i, err);
        if (r == 0)
            out->pid = (pid_t)i;
        return r;
    case F_TARGET:
        if (json_is_string(v))
            return proto_target(json_string_value(v), out, err);
        if (!json_is_integer(v))
            return error_set(err, -EINVAL,
                             "target: a pid, a job's number as in \"#12\", or its name is needed");
        r = get_int(v, name, 1, INT32_MAX, &i, err);
        if (r == 0)
            out->pid = (pid_t)i;
        return r;
    case F_CLASS:
        return get_class(v, out, err);
    case F_WEIGHT:
        r = get_int(v, name, WEIGHT_MIN, WEIGHT_MAX, &i, err);
        if (r == 0) {
            out->weight = (uint32_t)i;
            out->has_weight = true;
        }
        return r;
    case F_BUDGET:
        r = get_int(v, name, 0, BUDGET_MAX_US, &i, err);
        if (r == 0) {
            out->budget_us = (uint32_t)i;
            out->has_budget = true;
        }
        return r;
    case F_DEADLINE:
    case F_LAXITY:
        r = get_int(v, name, 0, DEADLINE_MAX_US, &i, err);
        if (r == 0 && field == F_DEADLINE && i && i < DEADLINE_MIN_US)
            r = error_set(err, -EINVAL, "%s: at least %u is needed, or 0 for none", name,
                          DEADLINE_MIN_US);
        if (r == 0) {
            *(field == F_DEADLINE ? &out->deadline_us : &out->laxity_us) = (uint32_t)i;
            *(field == F_DEADLINE ? &out->has_deadline : &out->has_laxity) = true;
        }
        return r;
    case F_NAME:
        if (!json_is_string(v) || !proto_name_ok(json_string_value(v)))
            return bad_name(err, name);
        snprintf(out->name, sizeof(out->name), "%s", json_string_value(v));
        return 0;
    case F_RUN:
        if (!json_is_boolean(v))
            return error_set(err, -EINVAL, "run: true or false is needed");
        out->run = json_is_true(v);
        return 0;
    case F_AFTER:
        r = get_int(v, name, 0, INT64_MAX, &i, err);
        if (r == 0)
            out->number = (uint64_t)i;
        return r;
    case F_MEMORY:
        r = get_int(v, name, 1, PROTO_BYTES_MAX, &i, err);
        if (r == 0)
            out->memory_bytes = (uint64_t)i;
        return r;
    case F_GPU:
        r = get_int(v, name, 0, DEVICE_GPUS_MAX - 1, &i, err);
        if (r == 0)
            out->gpu = (uint32_t)i;
        return r;
    case F_PARAMS:
        return get_params(v, out, err);
    default:
        return error_set(err, -EINVAL, "unknown field");
    }
}

static const struct {
    const char *name;
    unsigned field;
} fields[] = {
    {"pid", F_PID},          {"target", F_TARGET},       {"class", F_CLASS},
    {"weight", F_WEIGHT},    {"name", F_NAME},           {"run", F_RUN},
    {"after", F_AFTER},      {"budget_us", F_BUDGET},    {"params", F_PARAMS},
    {"gpu", F_GPU},          {"memory_bytes", F_MEMORY}, {"deadline_us", F_DEADLINE},
    {"laxity_us", F_LAXITY},
};

static int parse_object(const json_t *o, struct request *out, struct error *err)
{
    char q[40];
    json_t *v = json_object_get(o, "v");
    if (!v)
        return error_set(err, -EPROTO, "field v is missing: this side speaks version %d",
                         PROTO_VERSION);
    if (!json_is_integer(v) || json_integer_value(v) != PROTO_VERSION)
        return error_set(err, -EPROTO,
                         "other version of the protocol: this side speaks version %d; use cede "
                         "and ceded of the same release",
                         PROTO_VERSION);
    const char *op = json_string_value(json_object_get(o, "op"));
    size_t k = 0;
    while (op && k < ARRAY_SIZE(ops) && strcmp(op, ops[k].name) != 0)
        k++;
    if (!op || k == ARRAY_SIZE(ops)) {
        quote(q, op ? op : "");
        return error_set(
            err, -EINVAL,
            "op: '%s' is not one of add, set, pause, resume, ps, policy, swap-out, swap-in, "
            "hints",
            q);
    }
    out->op = (enum proto_op)k;

    unsigned seen = 0;
    const char *key;
    json_object_foreach((json_t *)o, key, v)
    {
        if (strcmp(key, "v") == 0 || strcmp(key, "op") == 0)
            continue;
        size_t f = 0;
        while (f < ARRAY_SIZE(fields) && strcmp(key, fields[f].name) != 0)
            f++;
        if (f == ARRAY_SIZE(fields) || !(ops[k].allowed & fields[f].field)) {
            quote(q, key);
            return error_set(err, -EINVAL, "unknown field '%s': %s takes %s", q, ops[k].name,
                             ops[k].fields);
        }
        int r = get_field(fields[f].field, key, v, out, err);
        if (r < 0)
            return r;
        seen |= fields[f].field;
    }
    if (ops[k].needed & ~seen)
        return error_set(err, -EINVAL, "%s: field %s is missing", ops[k].name,
                         ops[k].needed & F_PID ? "pid" : "target");
    if (out->op == OP_SET && !(seen & (F_CLASS | F_WEIGHT | F_BUDGET | F_DEADLINE | F_LAXITY)))
        return error_set(err, -EINVAL, "set: class, weight or budget_us is missing");
    int r = request_deadline(out, out->has_class ? out->class : CLASS_NORMAL, err);
    if (r < 0)
        return r;
    if (out->memory_bytes && (!out->has_class || out->class != CLASS_LATENCY))
        return error_set(err, -EINVAL, "add: memory_bytes takes class latency");
    if ((seen & F_GPU) && !out->memory_bytes)
        return error_set(err, -EINVAL, "add: gpu takes memory_bytes");
    if (out->release && (out->has_weight || out->has_budget || out->has_deadline))
        return error_set(err, -EINVAL,
                         "set: class none takes no weight, no budget and no deadline");
    return 0;
}

int proto_parse(const char *text, size_t n, struct request *out, struct error *err)
{
    memset(out, 0, sizeof(*out));
    if (n > PROTO_MESSAGE_MAX)
        return error_set(err, -EMSGSIZE, "message of more than %d bytes", PROTO_MESSAGE_MAX);
    json_error_t e;
    json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!o) {
        char q[sizeof(e.text)];
        size_t i = 0;
        for (; e.text[i]; i++)
            q[i] = isprint((unsigned char)e.text[i]) ? e.text[i] : '?';
        q[i] = '\0';
        return error_set(err, -EINVAL, "not JSON at byte %d: %s", e.position, q);
    }
    int r = json_is_object(o) ? parse_object(o, out, err)
                              : error_set(err, -EINVAL, "a message is a JSON object");
    json_decref(o);
    if (r < 0)
        memset(out, 0, sizeof(*out));
    return r;
}

static json_t *param_json(unsigned i, double v)
{
    return param_at(i)->real ? json_real(v) : json_integer((json_int_t)v);
}

char *proto_format(const struct request *r)
{
    json_t *o = json_pack("{s:i, s:s}", "v", PROTO_VERSION, "op", ops[r->op].name);
    if (!o)
        return NULL;
    unsigned allowed = ops[r->op].allowed;
    int bad = 0;
    if (allowed & F_PID)
        bad |= json_object_set_new(o, "pid", json_integer(r->pid));
    if (allowed & F_TARGET) {
        char number[24];
        snprintf(number, sizeof(number), "#%llu", (unsigned long long)r->number);
        bad |= json_object_set_new(o, "target",
                                   r->pid      ? json_integer(r->pid)
                                   : r->number ? json_string(number)
                                               : json_text(r->name));
    }
    if ((allowed & F_CLASS) && (r->has_class || r->release))
        bad |= json_object_set_new(o, "class",
                                   json_string(r->release ? "none" : job_class_name(r->class)));
    if ((allowed & F_WEIGHT) && r->has_weight)
        bad |= json_object_set_new(o, "weight", json_integer(r->weight));
    if ((allowed & F_BUDGET) && r->has_budget)
        bad |= json_object_set_new(o, "budget_us", json_integer(r->budget_us));
    if ((allowed & F_DEADLINE) && r->has_deadline)
        bad |= json_object_set_new(o, "deadline_us", json_integer(r->deadline_us));
    if ((allowed & F_LAXITY) && r->has_laxity)
        bad |= json_object_set_new(o, "laxity_us", json_integer(r->laxity_us));
    if ((allowed & F_NAME) && r->name[0])
        bad |= json_object_set_new(o, "name", json_text(r->name));
    if ((allowed & F_RUN) && r->run)
        bad |= json_object_set_new(o, "run", json_true());
    if ((allowed & F_MEMORY) && r->memory_bytes) {
        bad |= json_object_set_new(o, "memory_bytes", json_integer((json_int_t)r->memory_bytes));
        bad |= json_object_set_new(o, "gpu", json_integer(r->gpu));
    }
    if ((allowed & F_AFTER) && r->number)
        bad |= json_object_set_new(o, "after", json_integer((json_int_t)r->number));
    json_t *params = (allowed & F_PARAMS) && r->params ? json_object() : NULL;
    for (unsigned i = 0; params && i < PARAMS_COUNT; i++) {
        if (r->params & 1U << i)
            bad |= json_object_set_new(params, param_at(i)->name, param_json(i, r->param[i]));
    }
    if (params)
        bad |= json_object_set_new(o, "params", params);
    char *text = bad ? NULL : json_dumps(o, JSON_COMPACT);
    json_decref(o);
    return text;
}

json_t *proto_params(const struct sched_params *p)
{
    json_t *o = json_object();
    for (unsigned i = 0; i < PARAMS_COUNT; i++) {
        const struct param *f = param_at(i);
        json_object_set_new(o, f->name, param_json(i, param_get(p, f)));
    }
    return o;
}

int request_budget(const struct request *r, enum job_class class, uint32_t now_us, uint32_t *out,
                   struct error *err)
{
    if (r->has_budget && r->budget_us && class != CLASS_LATENCY)
        return error_set(err, -EINVAL,
                         "a budget is what a latency job can bear, and this is a %s job: give it "
                         "class latency too",
                         job_class_name(class));
    *out = r->has_budget ? r->budget_us : class == CLASS_LATENCY ? now_us : 0;
    return 0;
}

int request_deadline(const struct request *r, enum job_class class, struct error *err)
{
    if (r->deadline_us && class == CLASS_LATENCY)
        return error_set(err, -EINVAL,
                         "a deadline takes a batch or normal job before its like, and this is a "
                         "latency job, which goes before them anyway");
    if (r->has_laxity && !r->has_deadline)
        return error_set(err, -EINVAL, "a laxity is a part of a deadline: give that too");
    if (r->laxity_us && r->laxity_us >= r->deadline_us)
        return error_set(err, -EINVAL,
                         "the laxity is what of the deadline can be spared, so it has to be "
                         "shorter");
    return 0;
}

static const char *job_state(const struct job_view *v)
{
    if (v->swap && v->swap[0])
        return v->swap;
    if (v->job.paused)
        return "paused";
    if (v->groups == 0)
        return "starting";
    if (v->runnable_groups)
        return "running";
    return v->throttled ? "resting" : "waiting";
}

/* NULL: nothing is due. */
static json_t *due_json(const struct job_view *v)
{
    json_t *needs = v->due_needs_ns == TIME_NEVER
                        ? json_null()
                        : json_integer((json_int_t)(v->due_needs_ns / NSEC_PER_USEC));
    json_t *o = json_pack("{s:I, s:o, s:b, s:b}", "in_us",
                          (json_int_t)(v->due_in_ns / (int64_t)NSEC_PER_USEC), "needs_us", needs,
                          "first", v->due_first, "risen", v->due_risen);
    if (v->due)
        return o;
    json_decref(o);
    return NULL;
}

json_t *proto_job(const struct job_view *v)
{
    static const char *const sources[] = {
        [JOB_RUN] = "run", [JOB_PID] = "pid", [JOB_RULE] = "rule"};
    json_t *gpus = json_array(), *levels = json_array();
    unsigned least = 0;
    for (uint32_t i = 0; i < 32; i++) {
        unsigned level = i < DEVICE_GPUS_MAX ? v->level[i] : 0;
        if (!(v->gpus & (1U << i)))
            continue;
        json_array_append_new(gpus, json_integer(i));
        json_array_append_new(levels, json_integer(level));
        least = level && (!least || level < least) ? level : least;
    }
    const char *level = device_level_name(least);
    /* o steals; a NULL among the values makes the whole NULL. */
    return json_pack(
        "{s:I, s:o, s:s, s:I, s:I, s:o*, s:o*, s:I, s:I, s:s, s:s, s:I, s:o, s:I, s:o, s:I, s:o*, "
        "s:o*, s:o*, "
        "s:o*, s:o*, s:o, s:o, s:o}",
        "number", (json_int_t)v->number, "name", json_text(v->job.name), "class",
        job_class_name((enum job_class)v->job.class), "weight", (json_int_t)v->job.weight,
        "budget_us", (json_int_t)v->job.budget_us, "deadline_us",
        v->job.deadline_us ? json_integer(v->job.deadline_us) : NULL, "laxity_us",
        v->job.laxity_us ? json_integer(v->job.laxity_us) : NULL, "pid",
        (json_int_t)v->job.root.pid, "uid", (json_int_t)v->job.uid, "source",
        v->job.source < ARRAY_SIZE(sources) ? sources[v->job.source] : "?", "state", job_state(v),
        "processes", (json_int_t)v->processes, "gpus", gpus, "timeslice_us",
        (json_int_t)v->timeslice_us, "busy", v->busy >= 0 ? json_real(v->busy) : json_null(),
        "memory_bytes", (json_int_t)v->memory_bytes, "error",
        v->error[0]        ? json_text(v->error)
        : v->swap_error[0] ? json_text(v->swap_error)
                           : NULL,
        "swap_error", v->swap_error[0] ? json_text(v->swap_error) : NULL, "swapped_bytes",
        v->swapped_bytes ? json_integer((json_int_t)v->swapped_bytes) : NULL, "room",
        v->needs ? json_boolean(v->room) : NULL, "due", due_json(v), "level",
        level ? json_integer(least) : json_null(), "level_name",
        level ? json_string(level) : json_null(), "levels", levels);
}

json_t *proto_error(int code, const struct error *err)
{
    return json_pack("{s:i, s:b, s:i, s:o}", "v", PROTO_VERSION, "ok", 0, "errno", -code, "error",
                     json_text(err->text[0] ? err->text : strerror(-code)));
}
