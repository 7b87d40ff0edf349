/* Messages between cede and ceded, as proto.h describes them. Everything that an untrusted peer may
 * send is checked here; no I/O. */
#include "control/proto.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "lib/json_text.h"
#include "lib/text.h"

/* How a field of a request is written. KIND_TIME, KIND_BYTES and KIND_PERCENT are whole numbers in
 * messages, and have units where people write them. */
enum field_kind {
    KIND_INT,
    KIND_TIME,
    KIND_BYTES,
    KIND_PERCENT,
    KIND_TARGET,
    KIND_CLASS,
    KIND_PREEMPT,
    KIND_NAME,
    KIND_VISIBLE,
    KIND_BOOL,
    KIND_PARAMS,
    KIND_CGROUP,
    KIND_FACTS
};

/* Fields of requests besides v and op, in the order in which messages name them. */
enum {
    F_PID,
    F_TARGET,
    F_CLASS,
    F_WEIGHT,
    F_BUDGET,
    F_GPU_MIN,
    F_GPU_MAX,
    F_DEADLINE,
    F_LAXITY,
    F_PREEMPT,
    F_MIN_SPEED,
    F_NAME,
    F_RUN,
    F_STARTED,
    F_MEMORY,
    F_GPU,
    F_GPUS,
    F_VISIBLE,
    F_PROGRAM,
    F_SLURM_JOB,
    F_AFTER,
    F_BRIEF,
    F_PAUSE,
    F_MEMORY_TOO,
    F_LOOK,
    F_WAIT,
    F_PARAMS,
    F_CGROUP,
    F_FACTS,
    FIELDS
};

struct field {
    const char *name;
    enum field_kind kind;
    size_t at, size;     /* in struct request */
    size_t has;          /* of a bool there; 0: the field is given if it is not zero */
    int64_t lo, hi;      /* of numbers */
    int64_t least;       /* unless it is 0, which means none */
    const char *word;    /* option or key by which people give it */
    const char *allowed; /* there */
};

#define AT(member)                                                                                 \
    .at = offsetof(struct request, member), .size = sizeof(((struct request *)0)->member)
#define HAS(member)                  .has = offsetof(struct request, member)
#define NUMBER(k, member, low, high) .kind = k, AT(member), .lo = low, .hi = high

static const struct field fields[FIELDS] = {
    [F_PID] = {"pid", NUMBER(KIND_INT, pid, 1, INT32_MAX)},
    [F_TARGET] = {"target", .kind = KIND_TARGET},
    [F_CLASS] = {"class", KIND_CLASS, .word = "class"},
    [F_WEIGHT] = {"weight", NUMBER(KIND_INT, weight, WEIGHT_MIN, WEIGHT_MAX), HAS(has_weight),
                  .word = "weight", .allowed = "a whole number from 1 to 10000"},
    [F_BUDGET] = {"budget_us", NUMBER(KIND_TIME, budget_us, 0, BUDGET_MAX_US), HAS(has_budget),
                  .word = "budget", .allowed = "a time up to 1s, such as 500us or 2ms"},
    [F_GPU_MIN] = {"gpu_min", NUMBER(KIND_PERCENT, gpu_min, 0, 100), HAS(has_gpu_min),
                   .word = "gpu-min", .allowed = "a percentage from 1% to 100%, or 0 for none"},
    [F_GPU_MAX] = {"gpu_max", NUMBER(KIND_PERCENT, gpu_max, 0, 100), HAS(has_gpu_max),
                   .word = "gpu-max", .allowed = "a percentage from 1% to 100%, or 0 for none"},
    [F_DEADLINE] = {"deadline_us", NUMBER(KIND_TIME, deadline_us, 0, DEADLINE_MAX_US),
                    HAS(has_deadline), .least = DEADLINE_MIN_US, .word = "deadline",
                    .allowed = "a time from 200ms to 3600s, such as 3s"},
    [F_LAXITY] = {"laxity_us", NUMBER(KIND_TIME, laxity_us, 0, DEADLINE_MAX_US), HAS(has_laxity),
                  .word = "laxity", .allowed = "a time below the deadline, such as 1.5s"},
    [F_PREEMPT] = {"preempt", KIND_PREEMPT, HAS(has_preempt), .word = "preempt"},
    [F_MIN_SPEED] = {"min_speed", NUMBER(KIND_PERCENT, min_speed, 0, 100), HAS(has_min_speed),
                     .word = "min-speed", .allowed = "a percentage from 1% to 100%, or 0 for none"},
    [F_NAME] = {"name", KIND_NAME, .word = "name"},
    [F_RUN] = {"run", KIND_BOOL, AT(run)},
    [F_STARTED] = {"started", KIND_BOOL, AT(started)},
    [F_MEMORY] = {"memory_bytes", NUMBER(KIND_BYTES, memory_bytes, 1, MEMORY_MAX_BYTES),
                  .word = "memory",
                  .allowed = "a size such as 500M or 40G, with @N for another GPU than 0"},
    [F_GPU] = {"gpu", NUMBER(KIND_INT, gpu, 0, DEVICE_GPUS_MAX - 1), HAS(has_gpu)},
    [F_GPUS] = {"gpus", NUMBER(KIND_INT, gpus, 1, DEVICE_GPUS_MAX), .word = "gpus",
                .allowed = "a number of GPUs from 1 to 16, or auto"},
    [F_VISIBLE] = {"visible", KIND_VISIBLE, HAS(has_visible)},
    [F_PROGRAM] = {"program", NUMBER(KIND_INT, program, 1, INT64_MAX)},
    [F_SLURM_JOB] = {"slurm_job", NUMBER(KIND_INT, slurm_job, 1, UINT32_MAX)},
    [F_AFTER] = {"after", NUMBER(KIND_INT, number, 0, INT64_MAX)},
    [F_BRIEF] = {"brief", KIND_BOOL, AT(brief)},
    [F_PAUSE] = {"pause", KIND_BOOL, AT(yields_pause)},
    [F_MEMORY_TOO] = {"memory", KIND_BOOL, AT(yields_memory)},
    [F_LOOK] = {"look", KIND_BOOL, AT(look)},
    [F_WAIT] = {"wait_us", NUMBER(KIND_INT, wait_us, 0, ACQUIRE_WAIT_US), HAS(has_wait)},
    [F_PARAMS] = {"params", .kind = KIND_PARAMS},
    [F_CGROUP] = {"cgroup", .kind = KIND_CGROUP},
    [F_FACTS] = {"facts", .kind = KIND_FACTS},
};

#define BIT(f) (1U << (f))
#define CHANGES                                                                                    \
    (BIT(F_CLASS) | BIT(F_WEIGHT) | BIT(F_BUDGET) | BIT(F_GPU_MIN) | BIT(F_GPU_MAX) |              \
     BIT(F_DEADLINE) | BIT(F_LAXITY) | BIT(F_PREEMPT) | BIT(F_MIN_SPEED))
#define BY_NAME  BIT(F_TARGET), BIT(F_TARGET)
#define NO_FIELD FIELDS

static const struct {
    const char *name;
    unsigned allowed, needed;
} ops[] = {
    [OP_ADD] = {"add",
                BIT(F_PID) | CHANGES | BIT(F_NAME) | BIT(F_RUN) | BIT(F_STARTED) | BIT(F_MEMORY) |
                    BIT(F_GPU) | BIT(F_GPUS) | BIT(F_VISIBLE) | BIT(F_PROGRAM) | BIT(F_SLURM_JOB),
                BIT(F_PID)},
    [OP_SET] = {"set", BIT(F_TARGET) | CHANGES, BIT(F_TARGET)},
    [OP_PAUSE] = {"pause", BY_NAME},
    [OP_RESUME] = {"resume", BY_NAME},
    [OP_PS] = {"ps", BIT(F_AFTER) | BIT(F_BRIEF) | BIT(F_PID), 0},
    [OP_POLICY] = {"policy", BIT(F_NAME) | BIT(F_PARAMS), 0},
    [OP_SWAP_OUT] = {"swap-out", BY_NAME},
    [OP_SWAP_IN] = {"swap-in", BY_NAME},
    [OP_YIELD] = {"yield", BIT(F_TARGET) | BIT(F_PAUSE) | BIT(F_MEMORY_TOO) | BIT(F_LOOK), 0},
    [OP_ACQUIRE] = {"acquire", BIT(F_TARGET) | BIT(F_WAIT), 0},
    [OP_HINTS] = {"hints", 0, 0},
    [OP_ROOM] = {"room", BIT(F_MEMORY) | BIT(F_NAME), 0},
    [OP_TRACE] = {"trace", 0, 0},
    [OP_RULES] = {"rules", BIT(F_PID) | BIT(F_AFTER), 0},
    [OP_IDENTITY] = {"identity", BIT(F_CGROUP) | BIT(F_FACTS), BIT(F_CGROUP)},
};

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
    const struct field pid = {"target", NUMBER(KIND_INT, pid, 1, INT32_MAX)};
    if (json_is_string(v))
        return proto_target(json_string_value(v), out, err);
    if (!json_is_integer(v))
        return error_set(err, -EINVAL,
                         "target: a pid, a job's number as in \"#12\", or its name is needed");
    return get_int(&pid, v, out, err);
}

static int put_class(const char *text, struct request *out, struct error *err)
{
    out->release = out->op == OP_SET && strcmp(text, "none") == 0;
    out->has_class = !out->release && job_class_parse(text, &out->class) == 0;
    if (out->release || out->has_class)
        return 0;
    char q[TEXT_QUOTE];
    return error_set(err, -EINVAL, "class: '%s' is not latency, normal or batch%s",
                     text_quote(q, text), out->op == OP_SET ? ", or none to detach the job" : "");
}

static const char *const preempt_modes[] = {
    [PREEMPT_INSTRUCTION] = "instruction", [PREEMPT_BLOCK] = "block"};

static int put_preempt(const char *text, struct request *out, struct error *err)
{
    unsigned i = 0;
    char q[TEXT_QUOTE];
    while (i < PREEMPT_COUNT && strcmp(text, preempt_modes[i]) != 0)
        i++;
    if (i == PREEMPT_COUNT)
        return error_set(err, -EINVAL, "preempt: '%s' is not block or instruction",
                         text_quote(q, text));
    out->preempt = (enum preempt_mode)i;
    out->has_preempt = true;
    return 0;
}

static int put_name(const char *text, struct request *out, struct error *err)
{
    char q[TEXT_QUOTE];
    if (!proto_name_ok(text))
        return error_set(
            err, -EINVAL,
            "name: '%s' cannot be one: a name has 1 to %d bytes of printable UTF-8, "
            "does not start with # or -, has no blank at its ends, is not a number (12 or "
            "%%12) and has no /",
            text_quote(q, text), JOB_NAME_MAX - 1);
    snprintf(out->name, sizeof(out->name), "%s", text);
    return 0;
}

static int put_visible(const json_t *v, struct request *out, struct error *err)
{
    const char *text = json_string_value(v);
    if (!text || strlen(text) >= sizeof(out->visible))
        return error_set(err, -EINVAL, "visible: a list of GPUs of less than %d bytes is needed",
                         VISIBLE_MAX);
    snprintf(out->visible, sizeof(out->visible), "%s", text);
    out->has_visible = true;
    return 0;
}

/* A number as people write it, into its place. */
static int put_text(const struct field *f, const char *text, struct request *out)
{
    uint64_t v;
    int r = f->kind == KIND_TIME      ? parse_duration_us(text, (uint64_t)f->hi, &v)
            : f->kind == KIND_BYTES   ? parse_bytes(text, (uint64_t)f->hi, &v)
            : f->kind == KIND_PERCENT ? parse_percent(text, 0, &v)
                                      : parse_u64(text, 0, (uint64_t)f->hi, &v);
    if (r == 0 && ((int64_t)v < f->lo || (v && (int64_t)v < f->least)))
        r = -ERANGE;
    if (r == 0)
        field_put(f, out, v);
    return r;
}

/* SIZE[@GPU] */
static int put_memory(const char *text, struct request *out)
{
    char size[32];
    const char *at = strchrnul(text, '@');
    if ((size_t)snprintf(size, sizeof(size), "%.*s", (int)(at - text), text) >= sizeof(size))
        return -EINVAL;
    int r = put_text(&fields[F_MEMORY], size, out);
    return r == 0 && *at ? put_text(&fields[F_GPU], at + 1, out) : r;
}

/* The configuration writes keys with _ where options have -. */
static bool is_word(const char *given, const char *word)
{
    while (*given && (*given == *word || (*given == '_' && *word == '-'))) {
        given++;
        word++;
    }
    return !*given && !*word;
}

int request_text(void *request, const char *word, const char *text, struct error *err)
{
    struct request *out = request;
    unsigned f = 0;
    while (!fields[f].word || !is_word(word, fields[f].word))
        f++;
    if (f == F_CLASS)
        return put_class(text, out, err);
    if (f == F_NAME)
        return put_name(text, out, err);
    if (f == F_PREEMPT)
        return put_preempt(text, out, err);
    if (f == F_GPUS && strcmp(text, "auto") == 0)
        text = "1";
    int r = f == F_MEMORY ? put_memory(text, out) : put_text(&fields[f], text, out);
    char q[TEXT_QUOTE];
    return r < 0 ? error_set(err, -EINVAL, "%s: '%s' is not %s", word, text_quote(q, text),
                             fields[f].allowed)
                 : 0;
}

int request_param(struct request *r, const char *name, double value, struct error *err)
{
    const struct param *f = param_find(name);
    if (!f) {
        char q[TEXT_QUOTE], known[400] = "";
        for (unsigned i = 0; param_at(i); i++)
            list_add(known, sizeof(known), param_at(i)->name);
        return error_set(err, -EINVAL, "there is no parameter %s; there are %s",
                         text_quote(q, name), known);
    }
    struct sched_params scratch;
    char range[PARAM_RANGE];
    if (param_set(&scratch, f, value) < 0)
        return error_set(err, -EINVAL, "%s: a whole number is needed, %s", name,
                         param_range(f, range));
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

static int get_cgroup(const json_t *v, struct request *out, struct error *err)
{
    const char *text = json_string_value(v);
    size_t n = text ? strlen(text) : 0;
    while (n && text[n - 1] == '/') /* the kernel writes none at the end */
        n--;
    if (!n || text[0] != '/' || n >= sizeof(out->cgroup) || !text_plain(text) ||
        strstr(text, "/.."))
        return error_set(err, -EINVAL,
                         "cgroup: a path below / of less than %d bytes is needed, as in "
                         "/proc/PID/cgroup",
                         IDENTITY_CGROUP);
    snprintf(out->cgroup, sizeof(out->cgroup), "%.*s", (int)n, text);
    return 0;
}

static int get_field(const struct field *f, const json_t *v, struct request *out, struct error *err)
{
    switch (f->kind) {
    case KIND_INT:
    case KIND_TIME:
    case KIND_BYTES:
    case KIND_PERCENT:
        return get_int(f, v, out, err);
    case KIND_TARGET:
        return get_target(v, out, err);
    case KIND_CLASS: /* what is no text is an empty one, which neither takes */
        return put_class(json_is_string(v) ? json_string_value(v) : "", out, err);
    case KIND_PREEMPT:
        return put_preempt(json_is_string(v) ? json_string_value(v) : "", out, err);
    case KIND_NAME:
        return put_name(json_is_string(v) ? json_string_value(v) : "", out, err);
    case KIND_VISIBLE:
        return put_visible(v, out, err);
    case KIND_BOOL:
        if (!json_is_boolean(v))
            return error_set(err, -EINVAL, "%s: true or false is needed", f->name);
        *(bool *)((char *)out + f->at) = json_is_true(v);
        return 0;
    case KIND_CGROUP:
        return get_cgroup(v, out, err);
    case KIND_FACTS:
        return identities_parse(v, out->facts, &out->nfacts, err);
    default:
        return get_params(v, out, err);
    }
}

/* "pid, class, ...", or "nothing". */
static const char *field_names(unsigned mask, char *buf, size_t size)
{
    snprintf(buf, size, "%s", mask ? "" : "nothing");
    for (unsigned f = 0; f < FIELDS; f++) {
        if (mask & BIT(f))
            list_add(buf, size, fields[f].name);
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
            char q[TEXT_QUOTE], names[160];
            return error_set(err, -EINVAL, "unknown field '%s': %s takes %s", text_quote(q, key),
                             ops[out->op].name,
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
                         ops[r->op].needed & BIT(F_PID)      ? "pid"
                         : ops[r->op].needed & BIT(F_CGROUP) ? "cgroup"
                                                             : "target");
    if (r->op == OP_SET && !(seen & CHANGES))
        return error_set(err, -EINVAL,
                         "set: class, weight, budget_us, gpu_min, gpu_max, preempt, min_speed or "
                         "deadline_us is missing");
    int code = request_deadline(r, r->has_class ? r->class : CLASS_NORMAL, err);
    if (code < 0)
        return code;
    if (((seen & BIT(F_GPU)) || r->started) && !r->memory_bytes)
        return error_set(err, -EINVAL, "add: gpu and started need memory_bytes");
    if (r->slurm_job && (r->name[0] || r->gpus || r->memory_bytes))
        return error_set(err, -EINVAL, "add: slurm_job takes no name, no gpus and no memory_bytes");
    if (r->release && (r->has_weight || r->has_budget || r->has_deadline || r->has_gpu_min ||
                       r->has_gpu_max || r->has_preempt || r->has_min_speed))
        return error_set(err, -EINVAL,
                         "set: class none takes no weight, no budget, no limit, no deadline, no "
                         "preemption mode and no speed");
    code = request_place(r, err);
    return code < 0 ? code : request_limits(r->gpu_min, r->gpu_max, err);
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
        char q[TEXT_QUOTE], known[128] = "";
        for (k = 0; k < ARRAY_SIZE(ops); k++)
            list_add(known, sizeof(known), ops[k].name);
        return error_set(err, -EINVAL, "op: '%s' is not one of %s", text_quote(q, op ? op : ""),
                         known);
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
        text_printable(e.text);
        return error_set(err, -EINVAL, "not JSON at byte %d: %s", e.position, e.text);
    }
    int r = json_is_object(o) ? parse_object(o, out, err)
                              : error_set(err, -EINVAL, "a message is a JSON object");
    json_decref(o);
    if (r < 0)
        memset(out, 0, sizeof(*out));
    return r;
}

json_t *proto_param(const struct param *f, double v)
{
    return f->real ? json_real(v) : json_integer((json_int_t)v);
}

static json_t *proto_target_json(const struct request *r)
{
    char text[JOB_NAME_MAX + 16];
    snprintf(text, sizeof(text), "%s", r->name);
    if (r->number)
        snprintf(text, sizeof(text), "#%llu", (unsigned long long)r->number);
    else if (r->has_owner)
        snprintf(text, sizeof(text), "%u/%s", r->owner, r->name);
    return r->pid ? json_integer(r->pid) : text[0] ? json_text(text) : NULL;
}

static json_t *params_json(const struct request *r)
{
    json_t *params = json_object();
    for (unsigned i = 0; i < PARAMS_COUNT; i++) {
        if (r->params & 1U << i)
            json_object_set_new(params, param_at(i)->name, proto_param(param_at(i), r->param[i]));
    }
    return params;
}

/* NULL: the request does not have it. */
static json_t *field_json(const struct field *f, const struct request *r)
{
    switch (f->kind) {
    case KIND_INT:
    case KIND_TIME:
    case KIND_BYTES:
    case KIND_PERCENT:
        return is_given(f, r) ? json_integer((json_int_t)number_of(f, r)) : NULL;
    case KIND_TARGET:
        return proto_target_json(r);
    case KIND_CLASS:
        return r->release     ? json_string("none")
               : r->has_class ? json_string(job_class_name(r->class))
                              : NULL;
    case KIND_PREEMPT:
        return r->has_preempt ? json_string(preempt_modes[r->preempt]) : NULL;
    case KIND_NAME:
        return r->name[0] ? json_text(r->name) : NULL;
    case KIND_VISIBLE:
        return r->has_visible ? json_text(r->visible) : NULL;
    case KIND_BOOL:
        return *(const bool *)((const char *)r + f->at) ? json_true() : NULL;
    case KIND_CGROUP:
        return r->cgroup[0] ? json_text(r->cgroup) : NULL;
    case KIND_FACTS:
        return r->nfacts ? identities_json((struct pairs){r->facts, r->nfacts}) : NULL;
    default:
        return r->params ? params_json(r) : NULL;
    }
}

const char *proto_op_name(enum proto_op op)
{
    return ops[op].name;
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
