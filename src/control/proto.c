/* Messages between cede and ceded, as proto.h describes them. Everything that an untrusted peer may
 * send is checked here; no I/O. */
#include "control/proto.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "lib/json_text.h"

/* How a field of a request is written. */
enum field_kind { KIND_INT, KIND_TARGET, KIND_CLASS, KIND_NAME, KIND_BOOL, KIND_PARAMS };

/* Fields of requests besides v and op, in the order in which messages name them. */
enum {
    F_PID,
    F_TARGET,
    F_CLASS,
    F_WEIGHT,
    F_BUDGET,
    F_DEADLINE,
    F_LAXITY,
    F_NAME,
    F_RUN,
    F_MEMORY,
    F_GPU,
    F_AFTER,
    F_PARAMS,
    FIELDS
};

struct field {
    const char *name;
    enum field_kind kind;
    size_t at, size; /* in struct request */
    size_t has;      /* of a bool there; 0: the field is given if it is not zero */
    int64_t lo, hi;  /* KIND_INT */
    int64_t least;   /* unless it is 0, which means none */
};

#define AT(member)                                                                                 \
    .at = offsetof(struct request, member), .size = sizeof(((struct request *)0)->member)
#define HAS(member)                  .has = offsetof(struct request, member)
#define NUMBER(n, member, low, high) .name = n, .kind = KIND_INT, AT(member), .lo = low, .hi = high

static const struct field fields[FIELDS] = {
    [F_PID] = {NUMBER("pid", pid, 1, INT32_MAX)},
    [F_TARGET] = {.name = "target", .kind = KIND_TARGET},
    [F_CLASS] = {.name = "class", .kind = KIND_CLASS},
    [F_WEIGHT] = {NUMBER("weight", weight, WEIGHT_MIN, WEIGHT_MAX), HAS(has_weight)},
    [F_BUDGET] = {NUMBER("budget_us", budget_us, 0, BUDGET_MAX_US), HAS(has_budget)},
    [F_DEADLINE] = {NUMBER("deadline_us", deadline_us, 0, DEADLINE_MAX_US), HAS(has_deadline),
                    .least = DEADLINE_MIN_US},
    [F_LAXITY] = {NUMBER("laxity_us", laxity_us, 0, DEADLINE_MAX_US), HAS(has_laxity)},
    [F_NAME] = {.name = "name", .kind = KIND_NAME},
    [F_RUN] = {.name = "run", .kind = KIND_BOOL, AT(run)},
    [F_MEMORY] = {NUMBER("memory_bytes", memory_bytes, 1, PROTO_BYTES_MAX)},
    [F_GPU] = {NUMBER("gpu", gpu, 0, DEVICE_GPUS_MAX - 1)},
    [F_AFTER] = {NUMBER("after", number, 0, INT64_MAX)},
    [F_PARAMS] = {.name = "params", .kind = KIND_PARAMS},
};

#define BIT(f)   (1U << (f))
#define CHANGES  (BIT(F_CLASS) | BIT(F_WEIGHT) | BIT(F_BUDGET) | BIT(F_DEADLINE) | BIT(F_LAXITY))
#define BY_NAME  BIT(F_TARGET), BIT(F_TARGET)
#define NO_FIELD FIELDS

static const struct {
    const char *name;
    unsigned allowed, needed;
} ops[] = {
    [OP_ADD] = {"add", BIT(F_PID) | CHANGES | BIT(F_NAME) | BIT(F_RUN) | BIT(F_MEMORY) | BIT(F_GPU),
                BIT(F_PID)},
    [OP_SET] = {"set", BIT(F_TARGET) | CHANGES, BIT(F_TARGET)},
    [OP_PAUSE] = {"pause", BY_NAME},
    [OP_RESUME] = {"resume", BY_NAME},
    [OP_PS] = {"ps", BIT(F_AFTER), 0},
    [OP_POLICY] = {"policy", BIT(F_NAME) | BIT(F_PARAMS), 0},
    [OP_SWAP_OUT] = {"swap-out", BY_NAME},
    [OP_SWAP_IN] = {"swap-in", BY_NAME},
    [OP_HINTS] = {"hints", 0, 0},
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

/* A number into its place, of 32 or 64 bits. */
static void field_put(const struct field *f, struct request *out, uint64_t v)
{
    char *at = (char *)out + f->at;
    uint32_t small = (uint32_t)v;
    memcpy(at, f->size == sizeof(small) ? (const void *)&small : &v, f->size);
    if (f->has)
        *(bool *)((char *)out + f->has) = true;
}

static uint64_t number_of(const struct field *f, const struct request *r)
{
    uint32_t small;
    uint64_t v;
    memcpy(f->size == sizeof(small) ? (void *)&small : &v, (const char *)r + f->at, f->size);
    return f->size == sizeof(small) ? small : v;
}

static bool is_given(const struct field *f, const struct request *r)
{
    return f->has ? *(const bool *)((const char *)r + f->has) : number_of(f, r) != 0;
}

static int get_int(const struct field *f, const json_t *v, struct request *out, struct error *err)
{
    json_int_t i = json_integer_value(v);
    if (!json_is_integer(v) || i < f->lo || i > f->hi)
        return error_set(err, -EINVAL, "%s: a whole number from %lld to %lld is needed", f->name,
                         (long long)f->lo, (long long)f->hi);
    if (i && i < f->least)
        return error_set(err, -EINVAL, "%s: at least %lld is needed, or 0 for none", f->name,
                         (long long)f->least);
    field_put(f, out, (uint64_t)i);
    return 0;
}

static int get_target(const json_t *v, struct request *out, struct error *err)
{
    const struct field pid = {NUMBER("target", pid, 1, INT32_MAX)};
    if (json_is_string(v))
        return proto_target(json_string_value(v), out, err);
    if (!json_is_integer(v))
        return error_set(err, -EINVAL,
                         "target: a pid, a job's number as in \"#12\", or its name is needed");
    return get_int(&pid, v, out, err);
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
                         out->op == OP_SET ? ", or none to detach the job" : "");
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

static int get_field(const struct field *f, const json_t *v, struct request *out, struct error *err)
{
    switch (f->kind) {
    case KIND_INT:
        return get_int(f, v, out, err);
    case KIND_TARGET:
        return get_target(v, out, err);
    case KIND_CLASS:
        return get_class(v, out, err);
    case KIND_NAME:
        if (!json_is_string(v) || !proto_name_ok(json_string_value(v)))
            return bad_name(err, f->name);
        snprintf(out->name, sizeof(out->name), "%s", json_string_value(v));
        return 0;
    case KIND_BOOL:
        if (!json_is_boolean(v))
            return error_set(err, -EINVAL, "%s: true or false is needed", f->name);
        *(bool *)((char *)out + f->at) = json_is_true(v);
        return 0;
    default:
        return get_params(v, out, err);
    }
}

/* "pid, class, ...", or "nothing". */
static const char *field_names(unsigned mask, char *buf, size_t size)
{
    snprintf(buf, size, "%s", mask ? "" : "nothing");
    for (unsigned f = 0; f < FIELDS; f++) {
        size_t n = strlen(buf);
        if (mask & BIT(f))
            snprintf(buf + n, size - n, "%s%s", n ? ", " : "", fields[f].name);
    }
    return buf;
}

static unsigned field_find(const char *name)
{
    unsigned f = 0;
    while (f < FIELDS && strcmp(name, fields[f].name) != 0)
        f++;
    return f;
}

static int parse_fields(const json_t *o, struct request *out, unsigned *seen, struct error *err)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)o, key, v)
    {
        unsigned f = field_find(key);
        if (strcmp(key, "v") == 0 || strcmp(key, "op") == 0)
            continue;
        if (f == NO_FIELD || !(ops[out->op].allowed & BIT(f))) {
            char q[40], names[160];
            quote(q, key);
            return error_set(err, -EINVAL, "unknown field '%s': %s takes %s", q, ops[out->op].name,
                             field_names(ops[out->op].allowed, names, sizeof(names)));
        }
        int r = get_field(&fields[f], v, out, err);
        if (r < 0)
            return r;
        *seen |= BIT(f);
    }
    return 0;
}

/* What fields take or exclude each other. */
static int check_request(const struct request *r, unsigned seen, struct error *err)
{
    if (ops[r->op].needed & ~seen)
        return error_set(err, -EINVAL, "%s: field %s is missing", ops[r->op].name,
                         ops[r->op].needed & BIT(F_PID) ? "pid" : "target");
    if (r->op == OP_SET && !(seen & CHANGES))
        return error_set(err, -EINVAL, "set: class, weight, budget_us or deadline_us is missing");
    int code = request_deadline(r, r->has_class ? r->class : CLASS_NORMAL, err);
    if (code < 0)
        return code;
    if (r->memory_bytes && (!r->has_class || r->class != CLASS_LATENCY))
        return error_set(err, -EINVAL, "add: memory_bytes needs class latency");
    if ((seen & BIT(F_GPU)) && !r->memory_bytes)
        return error_set(err, -EINVAL, "add: gpu needs memory_bytes");
    if (r->release && (r->has_weight || r->has_budget || r->has_deadline))
        return error_set(err, -EINVAL,
                         "set: class none takes no weight, no budget and no deadline");
    return 0;
}

static int parse_object(const json_t *o, struct request *out, struct error *err)
{
    const json_t *v = json_object_get(o, "v");
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
        char q[40];
        quote(q, op ? op : "");
        return error_set(
            err, -EINVAL,
            "op: '%s' is not one of add, set, pause, resume, ps, policy, swap-out, swap-in, "
            "hints",
            q);
    }
    out->op = (enum proto_op)k;
    unsigned seen = 0;
    int r = parse_fields(o, out, &seen, err);
    return r < 0 ? r : check_request(out, seen, err);
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

static json_t *target_json(const struct request *r)
{
    char number[24];
    snprintf(number, sizeof(number), "#%llu", (unsigned long long)r->number);
    return r->pid ? json_integer(r->pid) : r->number ? json_string(number) : json_text(r->name);
}

static json_t *params_json(const struct request *r)
{
    json_t *params = json_object();
    for (unsigned i = 0; i < PARAMS_COUNT; i++) {
        if (r->params & 1U << i)
            json_object_set_new(params, param_at(i)->name, param_json(i, r->param[i]));
    }
    return params;
}

/* NULL: the request does not have it. */
static json_t *field_json(const struct field *f, const struct request *r)
{
    switch (f->kind) {
    case KIND_INT:
        return is_given(f, r) ? json_integer((json_int_t)number_of(f, r)) : NULL;
    case KIND_TARGET:
        return target_json(r);
    case KIND_CLASS:
        return r->release     ? json_string("none")
               : r->has_class ? json_string(job_class_name(r->class))
                              : NULL;
    case KIND_NAME:
        return r->name[0] ? json_text(r->name) : NULL;
    case KIND_BOOL:
        return *(const bool *)((const char *)r + f->at) ? json_true() : NULL;
    default:
        return r->params ? params_json(r) : NULL;
    }
}

char *proto_format(const struct request *r)
{
    json_t *o = json_pack("{s:i, s:s}", "v", PROTO_VERSION, "op", ops[r->op].name);
    bool bad = !o;
    for (unsigned f = 0; f < FIELDS; f++) {
        json_t *v = ops[r->op].allowed & BIT(f) ? field_json(&fields[f], r) : NULL;
        bad |= v && json_object_set_new(o, fields[f].name, v) < 0;
    }
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
        return error_set(
            err, -EINVAL,
            "only a latency job has a budget, and this is a %s job: give it class latency "
            "too",
            job_class_name(class));
    *out = r->has_budget ? r->budget_us : class == CLASS_LATENCY ? now_us : 0;
    return 0;
}

int request_deadline(const struct request *r, enum job_class class, struct error *err)
{
    if (r->deadline_us && class == CLASS_LATENCY)
        return error_set(
            err, -EINVAL,
            "a deadline lifts a normal or batch job, and this is a latency job, which runs "
            "before them anyway");
    if (r->has_laxity && !r->has_deadline)
        return error_set(err, -EINVAL, "a laxity is a part of a deadline: give the deadline too");
    if (r->laxity_us && r->laxity_us >= r->deadline_us)
        return error_set(
            err, -EINVAL,
            "the laxity, which is the slack in the deadline, has to be shorter than it");
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
    return v->throttled ? "throttled" : "waiting";
}

/* NULL: nothing is due. */
static json_t *due_json(const struct job_view *v)
{
    json_t *needs = v->due_needs_ns == TIME_NEVER
                        ? json_null()
                        : json_integer((json_int_t)(v->due_needs_ns / NSEC_PER_USEC));
    json_t *o = json_pack("{s:I, s:o, s:b, s:b}", "in_us",
                          (json_int_t)(v->due_in_ns / (int64_t)NSEC_PER_USEC), "needs_us", needs,
                          "first", v->due_first, "promoted", v->due_promoted);
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
