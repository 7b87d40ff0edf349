/* Parses and formats the messages of proto.h. Everything that an untrusted peer may send is checked
 * here; no I/O. */
#include "api/proto.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "api/job_terms.h"
#include "base/json_text.h"
#include "base/link_proto.h"
#include "base/text.h"
#include "core/trial.h"
#include "plan/speeds.h"

/* The type of a field in a request. */
enum field_kind {
    KIND_NUMBER,
    KIND_TARGET,
    KIND_NAME,
    KIND_VISIBLE,
    KIND_BOOL,
    KIND_PARAMS,
    KIND_CGROUP,
    KIND_FACTS
};

struct field {
    const char *name;
    enum field_kind kind;
    size_t at, size; /* in struct request */
    size_t has;      /* offset of a bool that it is given; 0: it is given if it is not zero */
    struct number number;
};

#define AT(member)                                                                                 \
    .at = offsetof(struct request, member), .size = sizeof(((struct request *)0)->member)
#define HAS(member)           .has = offsetof(struct request, member)
#define PLAIN(member, lo, hi) KIND_NUMBER, AT(member), .number = {NUMBER_PLAIN, lo, hi, 0, NULL}

/* Fields of requests besides v, op and terms, in the order in which messages have them. Terms come
 * after the target. */
#define FIELD_LIST(X)                                                                              \
    X(PID, "pid", PLAIN(pid, 1, INT32_MAX))                                                        \
    X(TARGET, "target", .kind = KIND_TARGET)                                                       \
    X(NAME, "name", KIND_NAME, AT(name))                                                           \
    X(RENAME, "rename", KIND_NAME, AT(rename))                                                     \
    X(RUN, "run", KIND_BOOL, AT(run))                                                              \
    X(STARTED, "started", KIND_BOOL, AT(started))                                                  \
    X(MEMORY, "memory_bytes", KIND_NUMBER, AT(memory_bytes),                                       \
      .number = {NUMBER_BYTES, 1, MEMORY_MAX_BYTES, 0,                                             \
                 "a size such as 500M or 40G, with @N for another GPU than 0"})                    \
    X(GPU, "gpu", PLAIN(gpu, 0, DEVICE_GPUS_MAX - 1), HAS(has_gpu))                                \
    X(GPUS, "gpus", KIND_NUMBER, AT(gpus),                                                         \
      .number = {NUMBER_PLAIN, 1, DEVICE_GPUS_MAX, 0, "a number of GPUs from 1 to 16, or auto"})   \
    X(VISIBLE, "visible", .kind = KIND_VISIBLE)                                                    \
    X(PROGRAM, "program", PLAIN(program, 1, INT64_MAX))                                            \
    X(SLURM_JOB, "slurm_job", PLAIN(slurm_job, 1, UINT32_MAX))                                     \
    X(AFTER, "after", PLAIN(number, 0, INT64_MAX))                                                 \
    X(BRIEF, "brief", KIND_BOOL, AT(brief))                                                        \
    X(SUMS, "sums", KIND_BOOL, AT(sums))                                                           \
    X(SUMMED, "summed", KIND_BOOL, AT(summed))                                                     \
    X(PAUSE, "pause", KIND_BOOL, AT(yields_pause))                                                 \
    X(MEMORY_TOO, "memory", KIND_BOOL, AT(yields_memory))                                          \
    X(LOOK, "look", KIND_BOOL, AT(look))                                                           \
    X(WAIT, "wait_us", PLAIN(wait_us, 0, ACQUIRE_WAIT_US), HAS(has_wait))                          \
    X(PARAMS, "params", .kind = KIND_PARAMS)                                                       \
    X(CGROUP, "cgroup", .kind = KIND_CGROUP)                                                       \
    X(FACTS, "facts", .kind = KIND_FACTS)                                                          \
    X(FOR, "for_us", PLAIN(for_us, 1, TRIAL_MAX_US))                                               \
    X(HELD, "held", KIND_BOOL, AT(held))                                                           \
    X(FIRST, "first", KIND_BOOL, AT(first))                                                        \
    X(LAST, "last", KIND_BOOL, AT(last))                                                           \
    X(TOGETHER, "together", PLAIN(together, 1, 1000 * SPEED_JOBS))                                 \
    X(FROM, "from", PLAIN(from, 1, INT32_MAX))

#define X(id, ...) F_##id,
enum { FIELD_LIST(X) FIELDS };
#undef X

#define X(id, ...) [F_##id] = {__VA_ARGS__},
static const struct field fields[FIELDS] = {FIELD_LIST(X)};
#undef X

#define BIT(f) (1U << (f))

static const struct {
    const char *name, *done; /* "pause", "paused" */
    enum op_rights rights;
    unsigned allowed, needed; /* fields */
    bool terms;               /* and terms */
} ops[] = {
    [OP_ADD] = {"add", .done = "added", .rights = RIGHTS_TERMS,
                .allowed = BIT(F_PID) | BIT(F_NAME) | BIT(F_RUN) | BIT(F_STARTED) | BIT(F_MEMORY) |
                           BIT(F_GPU) | BIT(F_GPUS) | BIT(F_VISIBLE) | BIT(F_PROGRAM) |
                           BIT(F_SLURM_JOB),
                .needed = BIT(F_PID), .terms = true},
    [OP_SET] = {"set", .done = "set", .rights = RIGHTS_TERMS,
                .allowed = BIT(F_TARGET) | BIT(F_RENAME), .needed = BIT(F_TARGET), .terms = true},
    [OP_PAUSE] = {"pause", .done = "paused", .rights = RIGHTS_TURNS, .allowed = BIT(F_TARGET),
                  .needed = BIT(F_TARGET)},
    [OP_RESUME] = {"resume", .done = "resumed", .rights = RIGHTS_TURNS, .allowed = BIT(F_TARGET),
                   .needed = BIT(F_TARGET)},
    [OP_PS] = {"ps", .rights = RIGHTS_ANYBODY,
               .allowed = BIT(F_AFTER) | BIT(F_BRIEF) | BIT(F_SUMS) | BIT(F_SUMMED) | BIT(F_PID)},
    [OP_POLICY] = {"policy", .rights = RIGHTS_ADMIN, .allowed = BIT(F_NAME) | BIT(F_PARAMS)},
    [OP_SWAP_OUT] = {"swap-out", .done = "swaps out", .rights = RIGHTS_TURNS,
                     .allowed = BIT(F_TARGET), .needed = BIT(F_TARGET)},
    [OP_SWAP_IN] = {"swap-in", .done = "swaps in", .rights = RIGHTS_TURNS, .allowed = BIT(F_TARGET),
                    .needed = BIT(F_TARGET)},
    [OP_YIELD] = {"yield", .done = "yields", .rights = RIGHTS_TURNS,
                  .allowed = BIT(F_TARGET) | BIT(F_PAUSE) | BIT(F_MEMORY_TOO) | BIT(F_LOOK)},
    [OP_ACQUIRE] = {"acquire", .done = "acquires", .rights = RIGHTS_TURNS,
                    .allowed = BIT(F_TARGET) | BIT(F_WAIT)},
    [OP_TRACE] = {"trace", .rights = RIGHTS_ANYBODY},
    [OP_RULES] = {"rules", .rights = RIGHTS_ANYBODY, .allowed = BIT(F_PID) | BIT(F_AFTER)},
    [OP_IDENTITY] = {"identity", .rights = RIGHTS_ADMIN, .allowed = BIT(F_CGROUP) | BIT(F_FACTS),
                     .needed = BIT(F_CGROUP)},
    [OP_TRY] = {"try", .done = "tried", .rights = RIGHTS_TURNS,
                .allowed = BIT(F_TARGET) | BIT(F_FOR) | BIT(F_HELD) | BIT(F_FIRST) | BIT(F_LAST) |
                           BIT(F_TOGETHER),
                .needed = BIT(F_TARGET) | BIT(F_FOR)},
    [OP_PIDS] = {"pids", .rights = RIGHTS_ANYBODY, .allowed = BIT(F_TARGET) | BIT(F_FROM),
                 .needed = BIT(F_TARGET)},
    [OP_HINTS] = {"hints", .rights = RIGHTS_ANYBODY},
    [OP_ROOM] = {"room", .rights = RIGHTS_ANYBODY},
};

/* Stores a number in its member, of 32 or 64 bits. */
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

static int get_number(const struct field *f, const json_t *v, struct request *out,
                      struct error *err)
{
    uint64_t number;
    int r = number_get(&f->number, f->name, v, &number, err);
    if (r == 0)
        field_put(f, out, number);
    return r;
}

static int get_target(const json_t *v, struct request *out, struct error *err)
{
    const struct field pid = {"target", PLAIN(pid, 1, INT32_MAX)};
    if (json_is_string(v))
        return proto_target(json_string_value(v), out, err);
    if (!json_is_integer(v))
        return error_set(err, -EINVAL,
                         "target: a pid, a job's number as in \"#12\", or its name is needed");
    return get_number(&pid, v, out, err);
}

static int put_name(char to[static JOB_NAME_MAX], const char *text, struct error *err)
{
    char q[TEXT_QUOTE];
    if (!proto_name_ok(text))
        return error_set(
            err, -EINVAL,
            "name: '%s' cannot be one: a name has 1 to %d bytes of printable UTF-8, "
            "does not start with # or -, has no blank at its ends, is not a number (12 or "
            "%%12) and has no /",
            text_quote(q, text), JOB_NAME_MAX - 1);
    snprintf(to, JOB_NAME_MAX, "%s", text);
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

/* Stores a number that a person wrote. */
static int put_text(const struct field *f, const char *text, struct request *out)
{
    uint64_t v;
    int r = number_read(&f->number, text, &v);
    if (r == 0)
        field_put(f, out, v);
    return r;
}

#define MEMORY_LEAST (1U << 20) /* bytes without a unit; fewer are a mistake */

/* SIZE[@GPU] */
static int put_memory(const char *text, struct request *out)
{
    char size[32];
    const char *at = strchrnul(text, '@');
    if ((size_t)snprintf(size, sizeof(size), "%.*s", (int)(at - text), text) >= sizeof(size))
        return -EINVAL;
    int r = put_text(&fields[F_MEMORY], size, out);
    if (r == 0 && out->memory_bytes < MEMORY_LEAST && strspn(size, "0123456789") == strlen(size))
        r = -EDOM; /* bytes, where GiB were meant */
    return r == 0 && *at ? put_text(&fields[F_GPU], at + 1, out) : r;
}

int request_text(void *request, const char *word, const char *text, struct error *err)
{
    struct request *out = request;
    const struct term *t = term_of_word(word);
    if (t)
        return term_read(t, word, text, out, err);
    if (strcmp(word, "name") == 0)
        return put_name(out->op == OP_SET ? out->rename : out->name, text, err);
    const bool memory = strcmp(word, "memory") == 0;
    const char *number = !memory && strcmp(text, "auto") == 0 ? "1" : text;
    int r = memory ? put_memory(text, out) : put_text(&fields[F_GPUS], number, out);
    char q[TEXT_QUOTE];
    if (r == -EDOM)
        return error_set(err, -EINVAL, "%s: %s is bytes: give a unit, such as %.*sG or %.*sM", word,
                         text_quote(q, text), (int)strcspn(text, "@"), text,
                         (int)strcspn(text, "@"), text);
    return r < 0 ? error_set(err, -EINVAL, "%s: '%s' is not %s", word, text_quote(q, text),
                             fields[memory ? F_MEMORY : F_GPUS].number.allowed)
                 : 0;
}

unsigned request_options(struct request *r, const struct option_row *more, unsigned nmore,
                         struct option_row rows[static REQUEST_OPTIONS_MAX])
{
    const struct term *t;
    unsigned n = 0;
    for (unsigned i = 0; (t = term_at(i)); i++) {
        if (t->word)
            rows[n++] = (struct option_row){
                .name = t->word, .letter = t->letter, .read = request_text, .to = r};
    }
    for_each (x, more, nmore)
        rows[n++] = *x;
    return n;
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
    json_object_foreach ((json_t *)v, key, x) {
        /* A value that is no number becomes NaN, which no parameter takes. */
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
    while (n && text[n - 1] == '/') /* paths in /proc/PID/cgroup end without a slash */
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
    case KIND_NUMBER:
        return get_number(f, v, out, err);
    case KIND_TARGET:
        return get_target(v, out, err);
    case KIND_NAME: /* a value that is no text becomes "", which is no name */
        return put_name((char *)out + f->at, json_is_string(v) ? json_string_value(v) : "", err);
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
static const char *field_names(enum proto_op op, char *buf, size_t size)
{
    char names[160];
    snprintf(buf, size, "%s", ops[op].allowed ? "" : "nothing");
    for (unsigned f = 0; f < FIELDS; f++) {
        if (ops[op].allowed & BIT(f))
            list_add(buf, size, fields[f].name);
        if (f == F_TARGET && ops[op].terms)
            list_add(buf, size, terms_names(~0U, false, names, sizeof(names)));
    }
    return buf;
}

static int parse_fields(const json_t *o, struct request *out, unsigned *seen, struct error *err)
{
    const char *key;
    json_t *v;
    json_object_foreach ((json_t *)o, key, v) {
        const struct term *term = ops[out->op].terms ? term_of_key(key) : NULL;
        unsigned f = 0;
        if (strcmp(key, "v") == 0 || strcmp(key, "op") == 0)
            continue;
        while (!term && f < FIELDS && strcmp(key, fields[f].name) != 0)
            f++;
        if (f == FIELDS || (!term && !(ops[out->op].allowed & BIT(f)))) {
            char q[TEXT_QUOTE], names[320];
            return error_set(err, -EINVAL, "unknown field '%s': %s takes %s", text_quote(q, key),
                             ops[out->op].name, field_names(out->op, names, sizeof(names)));
        }
        int r = term ? term_get_json(term, v, out, err) : get_field(&fields[f], v, out, err);
        if (r < 0)
            return r;
        *seen |= term ? 0 : BIT(f);
    }
    return 0;
}

int request_place(const struct request *r, struct error *err)
{
    if (r->has_visible && !r->gpus)
        return error_set(err, -EINVAL, "visible needs gpus");
    if (r->gpus && r->has_gpu)
        return error_set(err, -EINVAL,
                         "gpus chooses the GPU on which the memory is taken: leave out its number");
    if (r->gpus > 1 && r->memory_bytes)
        return error_set(err, -EINVAL,
                         "memory is waited for on one GPU only: leave it out, or give gpus 1");
    return 0;
}

/* Checks that fields which require each other are there, and that none excludes another. */
static int check_request(const struct request *r, unsigned seen, struct error *err)
{
    char names[160];
    const unsigned missing = ops[r->op].needed & ~seen;
    if (missing)
        return error_set(err, -EINVAL, "%s: field %s is missing", ops[r->op].name,
                         fields[__builtin_ctz(missing)].name);
    if (r->op == OP_SET && !r->given && !r->release && !r->rename[0])
        return error_set(err, -EINVAL, "set: one of rename, %s is needed",
                         terms_names(~0U, false, names, sizeof(names)));
    if (((seen & BIT(F_GPU)) || r->started) && !r->memory_bytes)
        return error_set(err, -EINVAL, "add: gpu and started need memory_bytes");
    if (r->slurm_job && (r->name[0] || r->gpus || r->memory_bytes))
        return error_set(err, -EINVAL, "add: slurm_job takes no name, no gpus and no memory_bytes");
    if (r->release && (r->given || r->rename[0]))
        return error_set(err, -EINVAL, "set: class none takes no %s",
                         r->rename[0] ? "rename"
                                      : terms_names(r->given, false, names, sizeof(names)));
    if (r->first && r->last)
        return error_set(err, -EINVAL, "try: first and last exclude each other");
    int code = request_place(r, err);
    return code < 0 ? code : terms_check(r, r->given & TERM(class) ? r->class : CLASS_COUNT, err);
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
    while (op && k < OPS_OF_JSON && strcmp(op, ops[k].name) != 0)
        k++;
    if (!op || k == OPS_OF_JSON) {
        char q[TEXT_QUOTE], known[128] = "";
        for (k = 0; k < OPS_OF_JSON; k++)
            list_add(known, sizeof(known), ops[k].name);
        return error_set(err, -EINVAL, "op: '%s' is not one of %s", text_quote(q, op ? op : ""),
                         known);
    }
    out->op = (enum proto_op)k;
    unsigned seen = 0;
    int r = parse_fields(o, out, &seen, err);
    return r < 0 ? r : check_request(out, seen, err);
}

/* A request of libcede, which is about the process that asks. */
static int link_parse(const void *message, size_t n, struct request *out, struct error *err)
{
    static const enum proto_op link_ops[] = {OP_HINTS, OP_SET, OP_ROOM, OP_YIELD, OP_ACQUIRE};
    struct link_ask a;
    out->link = true;
    if (n != sizeof(a))
        return error_set(err, -EPROTO, "libcede and ceded are not of the same release");
    memcpy(&a, message, n);
    if (a.op >= ARRAY_SIZE(link_ops) || a.flags & ~(LINK_PAUSE | LINK_MEMORY | LINK_LOOK) ||
        a.wait_us > ACQUIRE_WAIT_US || a.bytes > MEMORY_MAX_BYTES || a.class > CLASS_COUNT ||
        a.weight > WEIGHT_MAX || (a.op == LINK_SET && !a.class && !a.weight) ||
        !memchr(a.gpu, '\0', sizeof(a.gpu)))
        return error_set(err, -EINVAL, "a value in the message of libcede is out of range");
    out->op = link_ops[a.op];
    if (a.op == LINK_SET) {
        out->given = (a.class ? TERM(class) : 0) | (a.weight ? TERM(weight) : 0);
        out->class = a.class ? (enum job_class)(a.class - 1) : 0;
        out->weight = a.weight;
    } else if (a.op == LINK_ROOM) {
        out->page = a.page;
        out->memory_bytes = a.bytes;
        memcpy(out->name, a.gpu, sizeof(a.gpu));
    } else {
        out->yields_pause = a.flags & LINK_PAUSE;
        out->yields_memory = a.flags & LINK_MEMORY;
        out->look = a.flags & LINK_LOOK;
        out->has_wait = true;
        out->wait_us = a.wait_us;
    }
    return 0;
}
_Static_assert(sizeof(((struct link_ask *)0)->gpu) <= JOB_NAME_MAX, "fits");

int proto_parse(const char *text, size_t n, struct request *out, struct error *err)
{
    const uint32_t magic = LINK_MAGIC;
    memset(out, 0, sizeof(*out));
    if (n >= sizeof(magic) && memcmp(text, &magic, sizeof(magic)) == 0)
        return link_parse(text, n, out, err);
    if (n > PROTO_MESSAGE_MAX)
        return error_set(err, -EMSGSIZE, "message of more than %d bytes", PROTO_MESSAGE_MAX);
    json_error_t e;
    _cleanup_json_ json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!o) {
        text_printable(e.text);
        return error_set(err, -EINVAL, "not JSON at byte %d: %s", e.position, e.text);
    }
    int r = json_is_object(o) ? parse_object(o, out, err)
                              : error_set(err, -EINVAL, "a message is a JSON object");
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

/* NULL: the request does not have the field. */
static json_t *field_json(const struct field *f, const struct request *r)
{
    switch (f->kind) {
    case KIND_NUMBER:
        return is_given(f, r) ? json_integer((json_int_t)number_of(f, r)) : NULL;
    case KIND_TARGET:
        return proto_target_json(r);
    case KIND_NAME:
        return *((const char *)r + f->at) ? json_text((const char *)r + f->at) : NULL;
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

const char *proto_op_done(enum proto_op op)
{
    return ops[op].done;
}

enum op_rights proto_op_rights(enum proto_op op)
{
    return ops[op].rights;
}

char *proto_format(const struct request *r)
{
    _cleanup_json_ json_t *o = json_pack("{s:i, s:s}", "v", PROTO_VERSION, "op", ops[r->op].name);
    bool bad = !o;
    for (unsigned f = 0; f < FIELDS; f++) {
        json_t *v = ops[r->op].allowed & BIT(f) ? field_json(&fields[f], r) : NULL;
        bad |= v && json_object_set_new(o, fields[f].name, v) < 0;
        if (f == F_TARGET && ops[r->op].terms)
            bad |= terms_put_json(o, r) < 0;
    }
    return bad ? NULL : json_dumps(o, JSON_COMPACT);
}
