/* See proof.h. The text is read three times: for the names that it defines (functions and macros:
 * parts), for the macros' shapes, and for what each part uses. What a part uses taints it, and
 * every part that names it; what stands outside of parts taints all.
 *
 * All branches of conditionals count. Nothing is expanded: without ## a name that comes out of a
 * macro stands somewhere in the text, in a part that is named where the macro is used. */
#include "gate/opencl/proof.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate/opencl/names.h"
#include "gate/opencl/text.h"

#define PARTS_MAX 512U
#define WORDS     (PARTS_MAX / 64)
#define HASHES    (4 * PARTS_MAX)
#define BRANCHES  64U /* nested conditionals */
#define OUTSIDE   0U  /* the part that stands for what is in none */

struct part {
    struct token name;
    bool function, macro;
    bool calls_tail;       /* a macro whose replacement ends in a name that is not known */
    bool parenthesis;      /* a macro without parameters whose replacement begins with one */
    bool local;            /* uses what is of a work-group */
    const char *why;       /* the first thing it must not use, or NULL */
    struct token what;     /* that thing */
    uint64_t names[WORDS]; /* the parts it names */
};

enum reading { DEFINITIONS, SHAPES, USES };

struct proving {
    char *text;
    struct part parts[PARTS_MAX];
    uint16_t hashes[HASHES]; /* part + 1 */
    unsigned nparts;
    bool apart;      /* parts can be told apart */
    const char *why; /* the text is refused altogether */

    /* While reading. */
    enum reading reading;
    int depth, braces;
    struct {
        int depth, lowest;
    } branches[BRANCHES];
    unsigned nbranches;

    /* The declaration at depth 0 that is being read. */
    const char *start;
    struct token previous, declared; /* declared: the name before its parameters */
    bool equals, aggregate, braced;  /* seen in it: '=', struct and the like, braces */
    bool odd;                        /* not simply a function */
    unsigned tokens, function;       /* function: whose body is being read, or OUTSIDE */
};

/* ---- parts ---- */

static uint16_t *part_slot(struct proving *p, const struct token *name)
{
    uint32_t h = 2166136261U;
    for (size_t i = 0; i < name->n; i++)
        h = (h ^ (unsigned char)name->s[i]) * 16777619U;
    for (;; h++) {
        uint16_t *at = &p->hashes[h % HASHES];
        if (!*at)
            return at;
        const struct token *t = &p->parts[*at - 1].name;
        if (t->n == name->n && memcmp(t->s, name->s, t->n) == 0)
            return at;
    }
}

/* OUTSIDE: there is none of that name. */
static unsigned part_find(struct proving *p, const struct token *name)
{
    uint16_t at = *part_slot(p, name);
    return at ? at - 1U : OUTSIDE;
}

static struct part *part_add(struct proving *p, const struct token *name)
{
    uint16_t *at = part_slot(p, name);
    if (!*at) {
        if (p->nparts == PARTS_MAX) {
            p->why = "it has too many functions and macros";
            return &p->parts[OUTSIDE];
        }
        p->parts[p->nparts].name = *name;
        *at = (uint16_t)++p->nparts;
    }
    return &p->parts[*at - 1];
}

static void part_taint(struct part *part, const struct token *what, const char *why)
{
    if (part->why)
        return;
    part->why = why;
    part->what = *what;
}

/* ---- what a part uses ---- */

/* The parameters of a macro; of what is no macro: none. */
struct parameters {
    struct token v[32];
    unsigned n;
};

static bool is_parameter(const struct parameters *m, const struct token *t)
{
    for (unsigned i = 0; i < m->n; i++) {
        if (m->v[i].n == t->n && memcmp(m->v[i].s, t->s, t->n) == 0)
            return true;
    }
    return false;
}

/* A compiler's own, or a name as it is in object code. */
static bool reserved(const struct token *t)
{
    return t->n > 1 && t->s[0] == '_' && (t->s[1] == '_' || t->s[1] == 'Z');
}

static bool is_local(const struct token *t)
{
    return token_is(t, "local") || token_is(t, "__local");
}

static void use_name(struct proving *p, struct part *part, const struct parameters *m,
                     const struct token *before, const struct token *t, const struct token *next)
{
    const char *why;
    enum name_kind kind = name_kind(t->s, t->n, &why);
    unsigned other = part_find(p, t);
    bool called = token_is(next, "(");
    /* Waiting within a work-group concerns no other group. */
    bool mine = token_is(t, "volatile") && (is_local(before) || is_local(next));
    if (kind == NAME_BAD && !mine) {
        part_taint(part, t, why);
    } else if (is_parameter(m, t)) {
        if (called)
            part_taint(part, t, "which is whatever its macro is given");
    } else if (other != OUTSIDE) {
        part->names[other / 64] |= 1ULL << other % 64;
        if (called && p->parts[other].calls_tail)
            part_taint(part, t, "which stands for a function that is not known");
    } else if (kind == NAME_LOCAL || mine) {
        part->local = true;
    } else if (kind == NAME_UNKNOWN) {
        unsigned behind = next->type == TOKEN_NAME ? part_find(p, next) : OUTSIDE;
        if (called || (behind != OUTSIDE && p->parts[behind].parenthesis) ||
            (t->n > 4 && memcmp(t->s, "get_", 4) == 0))
            part_taint(part, t, "which is not known");
        else if (reserved(t))
            part_taint(part, t, "which is not OpenCL C");
    }
}

/* Everything in [s, end), less the lines of directives: those are read by themselves. */
static void part_use(struct proving *p, unsigned owner, const struct parameters *m, const char *s,
                     const char *end)
{
    struct part *part = &p->parts[owner];
    struct token before = {TOKEN_END, s, 0, false}, t = token_next(&s, end);
    while (t.type != TOKEN_END) {
        if (t.first && token_is(&t, "#")) {
            s = memchr(s, '\n', (size_t)(end - s));
            if (!s)
                return;
            t = token_next(&s, end);
            continue;
        }
        struct token next = token_next(&s, end);
        if (t.type == TOKEN_NAME)
            use_name(p, part, m, &before, &t, &next);
        else if (t.type == TOKEN_STRING)
            part_taint(part, &t, "a string");
        else if (token_is(&t, "#") && token_is(&next, "#"))
            part_taint(part, &t, "which makes names out of parts of names");
        before = t;
        t = next;
    }
}

/* ---- directives ---- */

/* Brackets that a macro leaves open, or closes, would be missing in the count. */
static bool text_balanced(const char *s, const char *end)
{
    int depth = 0;
    for (struct token t = token_next(&s, end); t.type != TOKEN_END; t = token_next(&s, end)) {
        if (t.type == TOKEN_SIGN && strchr("([{", *t.s))
            depth++;
        if (t.type == TOKEN_SIGN && strchr(")]}", *t.s) && --depth < 0)
            return false;
    }
    return depth == 0;
}

static void read_define(struct proving *p, const char *s, const char *end)
{
    struct parameters m = {.n = 0};
    struct token name = token_next(&s, end), t = {TOKEN_END, s, 0, false};
    if (name.type != TOKEN_NAME) {
        p->why = "it has a #define without a name";
        return;
    }
    bool parameters = s < end && *s == '(';
    if (parameters) {
        for (t = token_next(&s, end); t.type != TOKEN_END && !token_is(&t, ")");
             t = token_next(&s, end)) {
            if (t.type == TOKEN_NAME && m.n == sizeof(m.v) / sizeof(*m.v))
                p->why = "it has a macro with too many parameters";
            else if (t.type == TOKEN_NAME)
                m.v[m.n++] = t;
        }
        if (t.type == TOKEN_END)
            p->why = "it has a #define without an end";
    }
    if (p->why)
        return;
    struct part *part = part_add(p, &name);
    if (p->reading == DEFINITIONS) {
        part->macro = true;
        p->apart &= text_balanced(s, end);
    } else if (p->reading == SHAPES) {
        const char *at = s, *why;
        struct token first = token_next(&at, end), last = first;
        for (t = first; t.type != TOKEN_END; t = token_next(&at, end))
            last = t;
        part->parenthesis |= !parameters && token_is(&first, "(");
        part->calls_tail |= !parameters && last.type == TOKEN_NAME && !is_parameter(&m, &last) &&
                            part_find(p, &last) == OUTSIDE &&
                            name_kind(last.s, last.n, &why) == NAME_UNKNOWN;
    } else {
        part_use(p, part_find(p, &name), &m, s, end);
    }
}

static void read_conditional(struct proving *p, const struct token *word)
{
    /* One that begins in the middle of a function's head may choose its name. */
    if (!p->depth && p->tokens)
        p->apart = false;
    if (word->s[0] == 'i') {
        if (p->nbranches == BRANCHES) {
            p->why = "its conditionals are too deep";
            return;
        }
        p->branches[p->nbranches].depth = p->branches[p->nbranches].lowest = p->depth;
        p->nbranches++;
        return;
    }
    if (!p->nbranches) {
        p->apart = false;
        return;
    }
    int depth = p->branches[p->nbranches - 1].depth, lowest = p->branches[p->nbranches - 1].lowest;
    if (p->depth != depth || lowest < depth)
        p->apart = false;
    if (token_is(word, "endif"))
        p->nbranches--;
    if (p->nbranches) {
        int *outer = &p->branches[p->nbranches - 1].lowest;
        *outer = lowest < *outer ? lowest : *outer;
    }
}

/* A line from behind its #. */
static void read_directive(struct proving *p, const char *s, const char *end)
{
    static const char *const choices[] = {"if",   "ifdef",    "ifndef", "elif",
                                          "else", "elifndef", "endif",  "elifdef"};
    static const char *const pragmas[] = {"OPENCL", "unroll", "nounroll", "ivdep"};
    struct token word = token_next(&s, end);
    if (word.type == TOKEN_END || word.type == TOKEN_NUMBER || token_is(&word, "line") ||
        token_is(&word, "undef") || token_is(&word, "error"))
        return;
    for (size_t i = 0; i < sizeof(choices) / sizeof(*choices); i++) {
        if (token_is(&word, choices[i])) {
            read_conditional(p, &word);
            return;
        }
    }
    if (token_is(&word, "define")) {
        read_define(p, s, end);
        return;
    }
    if (token_is(&word, "pragma")) {
        word = token_next(&s, end);
        for (size_t i = 0; i < sizeof(pragmas) / sizeof(*pragmas); i++) {
            if (token_is(&word, pragmas[i]))
                return;
        }
    }
    p->why = token_is(&word, "include") ? "it includes other files"
                                        : "it has a directive that is not known";
}

/* ---- declarations ---- */

static void begin_declaration(struct proving *p, const char *at)
{
    p->start = at;
    p->previous = (struct token){TOKEN_END, at, 0, false};
    p->declared = p->previous;
    p->equals = p->aggregate = p->braced = p->odd = false;
    p->tokens = 0;
    p->function = OUTSIDE;
}

/* A variable that all work-groups share: from OpenCL C 2.0 on. Without macros, as those may stand
 * for an address space. */
static bool is_variable(struct proving *p, const char *end)
{
    static const char *const excuses[] = {"__constant", "constant", "typedef", "const",
                                          "sampler_t",  "struct",   "union",   "enum"};
    const char *s = p->start;
    if (p->tokens < 2 || (p->declared.n && !p->equals)) /* a stray semicolon, a prototype */
        return false;
    for (struct token t = token_next(&s, end); t.type != TOKEN_END; t = token_next(&s, end)) {
        for (size_t i = 0; i < sizeof(excuses) / sizeof(*excuses); i++) {
            if (token_is(&t, excuses[i]))
                return false;
        }
        unsigned other = t.type == TOKEN_NAME ? part_find(p, &t) : OUTSIDE;
        if (other != OUTSIDE && p->parts[other].macro)
            return false;
    }
    return true;
}

/* `end` is at its semicolon or brace. */
static void end_declaration(struct proving *p, const char *end, unsigned owner)
{
    static const struct parameters none;
    if (p->reading != USES)
        return;
    if (owner == OUTSIDE && is_variable(p, end))
        part_taint(&p->parts[OUTSIDE], p->declared.n ? &p->declared : &p->previous,
                   "a variable of all work-groups");
    part_use(p, owner, &none, p->start, end);
}

/* At depth 0, or the brace that opens from there. */
static void read_declaration(struct proving *p, const struct token *t, const char *behind)
{
    if (!p->tokens++)
        p->start = t->s;
    if (token_is(t, "(")) {
        bool attribute =
            token_is(&p->previous, "__attribute__") || token_is(&p->previous, "__attribute");
        if (p->previous.type != TOKEN_NAME || (!attribute && p->declared.n))
            p->odd = true;
        else if (!attribute)
            p->declared = p->previous;
    } else if (token_is(t, "{") && p->declared.n && !p->equals) {
        if (p->reading == DEFINITIONS) {
            part_add(p, &p->declared)->function = true;
            p->apart &= !p->odd && !p->braced;
        }
        p->function = part_find(p, &p->declared);
        end_declaration(p, t->s, p->function);
        p->start = behind; /* of the body */
    } else if (token_is(t, "{")) {
        p->apart &= p->equals || p->aggregate;
        p->braced = true;
    } else if (token_is(t, ";")) {
        unsigned function = p->declared.n && !p->equals ? part_find(p, &p->declared) : OUTSIDE;
        end_declaration(p, t->s, p->parts[function].function ? function : OUTSIDE);
        begin_declaration(p, behind);
        return;
    }
    p->equals |= token_is(t, "=");
    p->aggregate |= token_is(t, "struct") || token_is(t, "union") || token_is(t, "enum");
    p->previous = *t;
}

static void read_closing(struct proving *p, const struct token *t, const char *behind)
{
    static const struct parameters none;
    if (p->depth < 0) {
        p->apart = false;
        p->depth = 0;
    }
    if (p->nbranches && p->depth < p->branches[p->nbranches - 1].lowest)
        p->branches[p->nbranches - 1].lowest = p->depth;
    if (p->depth)
        return;
    p->previous = *t;
    if (p->function == OUTSIDE)
        return;
    if (p->reading == USES)
        part_use(p, p->function, &none, p->start, t->s);
    begin_declaration(p, behind);
}

static void read_text(struct proving *p, const char *text, const char *end, enum reading reading)
{
    const char *at = text;
    p->reading = reading;
    p->depth = 0;
    p->nbranches = 0;
    begin_declaration(p, text);
    bool first = true;
    while (!p->why) {
        struct token t = token_next(&at, end);
        if (t.type == TOKEN_END)
            break;
        t.first |= first;
        first = false;
        if (t.first && token_is(&t, "#")) {
            const char *line_end = memchr(at, '\n', (size_t)(end - at));
            line_end = line_end ? line_end : end;
            read_directive(p, at, line_end);
            at = line_end;
            continue;
        }
        bool sign = t.type == TOKEN_SIGN;
        if (!p->depth)
            read_declaration(p, &t, at);
        if (sign && strchr("([{", *t.s))
            p->depth++;
        if (sign && strchr(")]}", *t.s)) {
            p->depth--;
            read_closing(p, &t, at);
        }
    }
    if (p->depth || p->nbranches || p->function != OUTSIDE)
        p->apart = false;
    for (unsigned i = 0; i < p->nparts; i++)
        p->apart &= !(p->parts[i].function && p->parts[i].macro);
    if (!p->why)
        end_declaration(p, end, p->function);
}

/* ---- the answer ---- */

static size_t shown(size_t n)
{
    return n < 32 ? n : 32;
}

static void judge(struct proving *p, const char *kernel, struct proof *out)
{
    struct token name = {TOKEN_NAME, kernel, strlen(kernel), false};
    unsigned start = part_find(p, &name), n = 0;
    bool one = p->apart && start != OUTSIDE && p->parts[start].function;
    uint16_t todo[PARTS_MAX];
    bool reached[PARTS_MAX] = {false};
    for (unsigned i = 0; i < p->nparts; i++) {
        if (!one || i == start || i == OUTSIDE) {
            reached[i] = true;
            todo[n++] = (uint16_t)i;
        }
    }
    for (unsigned at = 0; at < n; at++) {
        const struct part *part = &p->parts[todo[at]];
        out->needs_local_size |= part->local;
        if (part->why && !out->reason[0])
            snprintf(out->reason, sizeof(out->reason), "%s%.*s uses %.*s, %s",
                     part->function ? ""
                     : part->macro  ? "macro "
                                    : "it",
                     (int)shown(part->name.n), part->name.s, (int)shown(part->what.n), part->what.s,
                     part->why);
        for (unsigned w = 0; w < WORDS; w++) {
            for (uint64_t bits = part->names[w]; bits; bits &= bits - 1) {
                unsigned i = w * 64 + (unsigned)__builtin_ctzll(bits);
                if (!reached[i]) {
                    reached[i] = true;
                    todo[n++] = (uint16_t)i;
                }
            }
        }
    }
    out->sliceable = !out->reason[0];
}

struct proving *proof_read(const char *source, const char *options)
{
    struct proving *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->nparts = 1; /* OUTSIDE */
    p->apart = true;
    p->text = text_of(source, options, &p->why);
    for (int i = DEFINITIONS; i <= USES && p->text; i++)
        read_text(p, p->text, p->text + strlen(p->text), (enum reading)i);
    return p;
}

void proof_judge(struct proving *p, const char *kernel, struct proof *out)
{
    *out = (struct proof){0};
    if (p && !p->why)
        judge(p, kernel, out);
    const char *why = p ? p->why : "there is no memory";
    if (why)
        snprintf(out->reason, sizeof(out->reason), "%s", why);
}

void proof_free(struct proving *p)
{
    if (p)
        free(p->text);
    free(p);
}

void proof_of(const char *source, const char *options, const char *kernel, struct proof *out)
{
    struct proving *p = proof_read(source, options);
    proof_judge(p, kernel, out);
    proof_free(p);
}
