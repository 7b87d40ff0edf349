/* See job_terms.h. */
#include "api/job_terms.h"

#include <errno.h>
#include <string.h>

#include "base/json_text.h"
#include "base/text.h"

#define ONLY_ADMINS "requires root or the administrators' group"

static const char *class_name(uint32_t v)
{
    return v < CLASS_COUNT ? job_class_name((enum job_class)v) : NULL;
}

static const char *preempt_name(uint32_t v)
{
    static const char *const names[] = {
        [PREEMPT_INSTRUCTION] = "instruction", [PREEMPT_BLOCK] = "block"};
    return v < ARRAY_SIZE(names) ? names[v] : NULL;
}

static const char *over_name(uint32_t v)
{
    static const char *const names[] = {
        [MEMORY_WARN] = "warn", [MEMORY_PAUSE] = "pause", [MEMORY_KILL] = "kill"};
    return v < ARRAY_SIZE(names) ? names[v] : NULL;
}

#define AT(member)   .at = offsetof(struct job_terms, member)
#define PERCENT      NUMBER_PERCENT, 0, 100, 0, "a percentage from 1% to 100%, or 0 for none"
#define TIME_TO(max) NUMBER_TIME, 0, max

static const struct term terms[] = {
    {"class", "class", 'c', AT(class), .number.allowed = "latency, normal or batch",
     .name = class_name, .always = true, .classes = OF_ALL_CLASSES},
    {"weight", "weight", 'w', AT(weight),
     .number = {NUMBER_PLAIN, WEIGHT_MIN, WEIGHT_MAX, 0, "a whole number from 1 to 10000"},
     .always = true, .classes = OF_ALL_CLASSES, .guarded = OF_ALL_CLASSES,
     .refusal = "its weight is %u now, and you may only lower it; raising it to %u " ONLY_ADMINS},
    {"budget_us", "budget", 0, AT(budget_us),
     .number = {TIME_TO(BUDGET_MAX_US), 0, "a time up to 1s, such as 500us or 2ms"}, .always = true,
     .said = ", budget %.10g us", .per = 1, .classes = OF_CLASS(LATENCY),
     .elsewhere = "only a latency job has a budget, and this is a %s job: give it class latency "
                  "too",
     .guarded = OF_CLASS(LATENCY), .rises = true,
     .refusal =
         "its latency budget is %u us now, and you may only raise it; a smaller one " ONLY_ADMINS},
    {"gpu_min", "gpu-min", 0, AT(gpu_min), .number = {PERCENT}, .said = ", gpu-min %g%%", .per = 1,
     .classes = OF_ALL_CLASSES, .guarded = OF_ALL_CLASSES,
     .refusal = "gpu-min: a floor is taken from others, which " ONLY_ADMINS},
    {"gpu_max", "gpu-max", 0, AT(gpu_max), .number = {PERCENT}, .said = ", gpu-max %g%%", .per = 1,
     .classes = OF_ALL_CLASSES, .guarded = OF_ALL_CLASSES, .none = NONE_IS_MOST,
     .refusal = "its gpu-max is %u%% now, and you may only lower it; more " ONLY_ADMINS},
    {"deadline_us", "deadline", 0, AT(deadline_us),
     .number = {TIME_TO(DEADLINE_MAX_US), DEADLINE_MIN_US,
                "a time from 200ms to 3600s, such as 3s"},
     .said = ", deadline %g s", .per = 1e6, .classes = OF_CLASS(NORMAL) | OF_CLASS(BATCH),
     .elsewhere = "a deadline lifts a normal or batch job, and this is a %s job, which runs before "
                  "them anyway",
     .stays = true},
    {"laxity_us", "laxity", 0, AT(laxity_us),
     .number = {TIME_TO(DEADLINE_MAX_US), 0, "a time below the deadline, such as 1.5s"},
     .classes = OF_ALL_CLASSES},
    {"preempt", "preempt", 0, AT(preempt), .number.allowed = "block or instruction",
     .name = preempt_name, .said = ", preempted at block ends", .classes = OF_CLASS(BATCH),
     .elsewhere = "only a batch job is preempted at block ends, and this is a %s job: give it "
                  "class batch too"},
    {"min_speed", "min-speed", 0, AT(min_speed), .number = {PERCENT},
     .classes = OF_CLASS(LATENCY) | OF_CLASS(BATCH),
     .elsewhere = "a latency job keeps a speed beside lower jobs, and a batch job in a pool; this "
                  "is a %s job: give it one of these classes too",
     .guarded = OF_CLASS(LATENCY), .none = NONE_IS_DEFAULT,
     .refusal = "it is to keep %u%% of its speed now, and you may only lower that; a higher "
                "speed " ONLY_ADMINS},
    {"memory_max_mib", "memory-max", 0, AT(memory_max_mib),
     .number = {NUMBER_MIB, 0, MEMORY_MAX_MIB, 0,
                "a size such as 8G, or 0 for none; with what happens above it: 8G,warn, 8G,pause "
                "or 8G,kill"},
     .said = ", memory-max %.10g MiB", .per = 1, .classes = OF_ALL_CLASSES,
     .guarded = OF_ALL_CLASSES, .none = NONE_IS_MOST,
     .refusal = "its memory-max is %u MiB now, and you may only lower it; more " ONLY_ADMINS},
    {"memory_over", NULL, 0, AT(memory_over), .number.allowed = "warn, pause or kill",
     .name = over_name, .classes = OF_ALL_CLASSES, .guarded = OF_ALL_CLASSES, .rises = true,
     .refusal = "what happens above its memory-max you may only change from warn to pause, and to "
                "kill; less " ONLY_ADMINS},
};

const struct job_terms terms_default = {.class = CLASS_NORMAL, .weight = WEIGHT_DEFAULT};

const struct term *term_at(unsigned i)
{
    return i < ARRAY_SIZE(terms) ? &terms[i] : NULL;
}

#define for_each_term(t) for (const struct term *t = terms; t < terms + ARRAY_SIZE(terms); t++)

static uint32_t bit_of(const struct term *t)
{
    return 1U << t->at / sizeof(uint32_t);
}

uint32_t term_get(const struct job_terms *from, const struct term *t)
{
    uint32_t v;
    memcpy(&v, (const char *)from + t->at, sizeof(v));
    return v;
}

static void term_put(struct job_terms *to, const struct term *t, uint32_t v)
{
    memcpy((char *)to + t->at, &v, sizeof(v));
}

const struct term *term_of_key(const char *key)
{
    for_each_term (t) {
        if (strcmp(key, t->key) == 0)
            return t;
    }
    return NULL;
}

static bool is_word(const char *given, const char *word)
{
    while (*given && (*given == *word || (*given == '_' && *word == '-'))) {
        given++;
        word++;
    }
    return !*given && !*word;
}

const struct term *term_of_word(const char *word)
{
    for_each_term (t) {
        if (t->word && is_word(word, t->word))
            return t;
    }
    return NULL;
}

/* ---- reading and writing ---- */

int number_get(const struct number *n, const char *field, const json_t *v, uint64_t *out,
               struct error *err)
{
    const json_int_t i = json_integer_value(v);
    if (!json_is_integer(v) || i < n->lo || i > n->hi)
        return error_set(err, -EINVAL, "%s: a whole number from %lld to %lld is needed", field,
                         (long long)n->lo, (long long)n->hi);
    if (i && i < n->least)
        return error_set(err, -EINVAL, "%s: at least %lld is needed, or 0 for none", field,
                         (long long)n->least);
    *out = (uint64_t)i;
    return 0;
}

static int parse_mib(const char *text, uint64_t hi, uint64_t *out)
{
    uint64_t bytes;
    const int r = parse_bytes(text, hi << 20, &bytes);
    *out = r == 0 ? bytes >> 20 : 0;
    return r == 0 && bytes && !*out ? -ERANGE : r; /* 8 for 8G is a mistake */
}

int number_read(const struct number *n, const char *text, uint64_t *out)
{
    const uint64_t hi = (uint64_t)n->hi;
    int r = n->unit == NUMBER_TIME      ? parse_duration_us(text, hi, out)
            : n->unit == NUMBER_BYTES   ? parse_bytes(text, hi, out)
            : n->unit == NUMBER_MIB     ? parse_mib(text, hi, out)
            : n->unit == NUMBER_PERCENT ? parse_percent(text, 0, out)
                                        : parse_u64(text, 0, hi, out);
    const bool low = r == 0 && ((int64_t)*out < n->lo || (*out && (int64_t)*out < n->least));
    return low ? -ERANGE : r;
}

static int put(const struct term *t, uint64_t v, struct request *out)
{
    term_put(&out->terms, t, (uint32_t)v);
    out->given |= bit_of(t);
    return 0;
}

/* "8G,kill": what happens above the limit is a term of its own, which follows in the table. */
static int read_memory_max(const struct term *t, const char *word, const char *text,
                           struct request *out, struct error *err)
{
    const char *comma = strrchr(text, ',');
    char size[64];
    snprintf(size, sizeof(size), "%.*s", (int)min_u64((uint64_t)(comma - text), sizeof(size)),
             text);
    const int r = term_read(t + 1, word, comma + 1 + strspn(comma + 1, " "), out, err);
    return r < 0 ? r : term_read(t, word, size, out, err);
}

int term_read(const struct term *t, const char *word, const char *text, struct request *out,
              struct error *err)
{
    if (t->at == offsetof(struct job_terms, memory_max_mib) && strchr(text, ','))
        return read_memory_max(t, word, text, out, err);
    const bool detaches = t->name == class_name && out->op == OP_SET; /* class none detaches */
    char q[TEXT_QUOTE];
    uint64_t v = 0;
    int r;
    if (detaches) {
        out->release = strcmp(text, "none") == 0;
        out->given &= ~TERM(class);
    }
    if (detaches && out->release)
        return 0;
    if (t->name) {
        while (t->name((uint32_t)v) && strcmp(text, t->name((uint32_t)v)) != 0)
            v++;
        r = t->name((uint32_t)v) ? 0 : -EINVAL;
    } else {
        r = number_read(&t->number, text, &v);
    }
    if (r == 0)
        return put(t, v, out);
    return error_set(err, -EINVAL, "%s: '%s' is not %s%s", word, text_quote(q, text),
                     t->number.allowed, detaches ? ", or none to detach the job" : "");
}

int term_get_json(const struct term *t, const json_t *v, struct request *out, struct error *err)
{
    uint64_t number;
    if (t->name) /* a value that is no text becomes "", which is none of the words */
        return term_read(t, t->key, json_is_string(v) ? json_string_value(v) : "", out, err);
    int r = number_get(&t->number, t->key, v, &number, err);
    return r < 0 ? r : put(t, number, out);
}

json_t *term_json(const struct term *t, uint32_t value)
{
    return t->name ? json_string(t->name(value)) : json_integer(value);
}

int terms_put_json(json_t *o, const struct request *r)
{
    int code = r->release ? json_object_set_new(o, "class", json_string("none")) : 0;
    for_each_term (t) {
        if (r->given & bit_of(t))
            code |= json_object_set_new(o, t->key, term_json(t, term_get(&r->terms, t)));
    }
    return code;
}

const char *terms_names(uint32_t set, bool words, char *buf, size_t size)
{
    buf[0] = '\0';
    for_each_term (t) {
        if (set & bit_of(t) && (t->word || !words))
            list_add(buf, size, words ? t->word : t->key);
    }
    return buf;
}

/* ---- checks ---- */

int terms_limits(const struct job_terms *t, struct error *err)
{
    return t->gpu_max && t->gpu_min > t->gpu_max
               ? error_set(err, -EINVAL, "gpu-min is %u%%, more than gpu-max, which is %u%%",
                           t->gpu_min, t->gpu_max)
               : 0;
}

int terms_check(const struct request *r, enum job_class class, struct error *err)
{
    for_each_term (t) {
        if (class < CLASS_COUNT && !(t->classes >> class & 1) && term_get(&r->terms, t))
            return error_set(err, -EINVAL, t->elsewhere, job_class_name(class));
    }
    if (r->given & TERM(laxity_us) && !(r->given & TERM(deadline_us)))
        return error_set(err, -EINVAL, "a laxity is a part of a deadline: give the deadline too");
    if (r->laxity_us && r->laxity_us >= r->deadline_us)
        return error_set(
            err, -EINVAL,
            "the laxity, which is the slack in the deadline, has to be shorter than it");
    if (r->min_speed > 99 && class == CLASS_BATCH)
        return error_set(
            err, -EINVAL,
            "a batch job of a pool keeps 99%% of its speed at most: give --min-speed 99%%");
    return terms_limits(&r->terms, err);
}

struct job_terms terms_after(const struct request *r, const struct job_terms *now, bool admin)
{
    struct job_terms out = *now;
    if (r->given & TERM(class))
        out.class = r->class;
    for_each_term (t) {
        const bool keeps = t->stays || t->classes == OF_ALL_CLASSES || out.class == now->class;
        if (r->given & bit_of(t) || !keeps)
            term_put(&out, t, term_get(&r->terms, t));
    }
    if (r->given & TERM(deadline_us)) {
        out.laxity_us = r->laxity_us;
        out.may_promote = admin && r->deadline_us;
    }
    return out;
}
