/* Runs the PTX that libcede and bench/programs/checkpoint.py bring, thread by thread: as much of
 * PTX as nvcc makes of libcede/cede_future.cu, laid out as scripts/ptx writes it. An instruction
 * that is not known ends the test: add it. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_gpu.h"

#define INSTRUCTIONS 96
#define LABELS       16
#define REGISTERS    64 /* of a class */

enum { CLASS_P, CLASS_R, CLASS_RD, CLASSES };
enum { TID, NTID, CTAID, SPECIALS };

struct operand {
    enum { NOTHING, REGISTER, NUMBER, SPECIAL, PARAMETER, LABEL } kind;
    int64_t value; /* of a register: its place, with `offset` if it is an address */
    int64_t offset;
};

struct instruction {
    char op[24], text[64];
    struct operand guard, a[4];
};

struct program {
    char name[24];
    unsigned n, nlabels, nparams;
    bool wide[16]; /* the parameters of 64 bits */
    struct instruction code[INSTRUCTIONS];
    struct {
        char name[24];
        unsigned at;
    } labels[LABELS];
};

static struct program programs[4];
static unsigned nprograms;

static _Noreturn void fail(const char *what, const char *text)
{
    fprintf(stderr, "fake_ptx: %s: %s\n", what, text);
    abort();
}

static bool narrow(const struct operand *o)
{
    return o->value / REGISTERS == CLASS_R;
}

/* ---- reading --------------------------------------------------------------------------------- */

static unsigned label_of(struct program *p, const char *name)
{
    for (unsigned i = 0; i < p->nlabels; i++) {
        if (strcmp(p->labels[i].name, name) == 0)
            return i;
    }
    if (p->nlabels == LABELS)
        fail("too many labels", name);
    snprintf(p->labels[p->nlabels].name, sizeof(p->labels[0].name), "%s", name);
    return p->nlabels++;
}

static struct operand operand_of(struct program *p, char *t)
{
    static const char *const specials[] = {"%tid.x", "%ntid.x", "%ctaid.x"};
    struct operand o = {.kind = REGISTER};
    char *end = strchr(t, ']');
    if (*t == '[' && end)
        *end = '\0', t++;
    for (int i = 0; i < SPECIALS; i++) {
        if (strcmp(t, specials[i]) == 0)
            return (struct operand){SPECIAL, i, 0};
    }
    if (strstr(t, "_param_"))
        return (struct operand){PARAMETER, strtol(strstr(t, "_param_") + 7, NULL, 10), 0};
    if (*t == '$')
        return (struct operand){LABEL, label_of(p, t), 0};
    if (*t != '%')
        return (struct operand){NUMBER, strtoll(t, NULL, 10), 0};
    int class = t[1] == 'p' ? CLASS_P : t[2] == 'd' ? CLASS_RD : CLASS_R;
    long number = strtol(t + (class == CLASS_RD ? 3 : 2), &end, 10);
    if (number >= REGISTERS)
        fail("too many registers", t);
    o.value = class * REGISTERS + number;
    o.offset = *end == '+' ? strtoll(end + 1, NULL, 10) : 0;
    return o;
}

static void read_instruction(struct program *p, char *line)
{
    if (p->n == INSTRUCTIONS)
        fail("too long", p->name);
    struct instruction *i = &p->code[p->n++];
    char *save, *t;
    snprintf(i->text, sizeof(i->text), "%s", line);
    t = strtok_r(line, " ,;", &save);
    if (t && *t == '@') {
        i->guard = operand_of(p, t + 1);
        t = strtok_r(NULL, " ,;", &save);
    }
    snprintf(i->op, sizeof(i->op), "%s", t ? t : "");
    for (unsigned k = 0; k < 4 && (t = strtok_r(NULL, " ,;", &save)); k++)
        i->a[k] = operand_of(p, t);
}

/* text: from the name on. */
static const struct program *program_of(const char *text)
{
    size_t length = strcspn(text, "(");
    for (unsigned i = 0; i < nprograms; i++) {
        if (strlen(programs[i].name) == length && memcmp(programs[i].name, text, length) == 0)
            return &programs[i];
    }
    if (nprograms == 4)
        fail("too many kernels", "cede_future.ptx");
    struct program *p = &programs[nprograms++];
    snprintf(p->name, sizeof(p->name), "%.*s", (int)length, text);
    for (const char *at = text; *at != '}'; at += strcspn(at, "\n") + 1) {
        char line[96];
        snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
        if (strncmp(line, ".param", 6) == 0)
            p->wide[p->nparams++] = strncmp(line, ".param .u64", 11) == 0;
        else if (*line == '$')
            p->labels[label_of(p, strtok(line, ":"))].at = p->n;
        else if (*line == '@' || (*line >= 'a' && *line <= 'z' && at != text))
            read_instruction(p, line);
    }
    return p;
}

unsigned fake_ptx_params(const char *text, void **params, uint64_t *out)
{
    const struct program *p = program_of(text);
    for (unsigned i = 0; i < p->nparams; i++)
        out[i] = p->wide[i] ? *(uint64_t *)params[i] : *(uint32_t *)params[i];
    return p->nparams;
}

/* ---- running --------------------------------------------------------------------------------- */

struct thread {
    uint64_t r[CLASSES * REGISTERS], special[SPECIALS];
    const uint64_t *params;
};

static uint64_t value_of(const struct thread *t, const struct operand *o)
{
    switch (o->kind) {
    case REGISTER:
        return t->r[o->value];
    case SPECIAL:
        return t->special[o->value];
    case PARAMETER:
        return t->params[o->value];
    default:
        return (uint64_t)o->value;
    }
}

static bool compare(const char *op, uint64_t a, uint64_t b)
{
    const char *type = op + 8; /* setp.XX.TYPE */
    if (strcmp(type, "s32") == 0)
        a = (uint64_t)(int32_t)a, b = (uint64_t)(int32_t)b;
    else if (strcmp(type, "u32") == 0)
        a = (uint32_t)a, b = (uint32_t)b;
    else if (strcmp(type, "s64") != 0)
        fail("unknown type", op);
    bool less = *type == 's' ? (int64_t)a < (int64_t)b : a < b;
    if (strncmp(op + 5, "eq", 2) == 0)
        return a == b;
    if (op[5] != 'g' && op[5] != 'l')
        fail("unknown comparison", op);
    return (op[6] == 'e' && a == b) || (a != b && less == (op[5] == 'l'));
}

static bool is(const struct instruction *i, const char *op)
{
    return strcmp(i->op, op) == 0;
}

static uint64_t load(const struct instruction *i, uint64_t address)
{
    const void *at = (const void *)(uintptr_t)address;
    if (is(i, "ld.global.u64"))
        return *(const uint64_t *)at;
    return is(i, "ld.global.s32") ? (uint64_t) * (const int32_t *)at : *(const uint32_t *)at;
}

static uint64_t compute(const struct instruction *i, const struct thread *t)
{
    uint64_t a = value_of(t, &i->a[1]), b = value_of(t, &i->a[2]), c = value_of(t, &i->a[3]);
    if (strncmp(i->op, "ld.param", 8) == 0 || strncmp(i->op, "mov", 3) == 0 ||
        strncmp(i->op, "cvta", 4) == 0 || is(i, "cvt.u64.u32") || is(i, "cvt.u32.u64"))
        return a;
    if (strncmp(i->op, "ld.global", 9) == 0)
        return load(i, a + (uint64_t)i->a[1].offset);
    if (strncmp(i->op, "setp", 4) == 0)
        return compare(i->op, a, b);
    if (strncmp(i->op, "add", 3) == 0)
        return a + b;
    const struct {
        const char *op;
        uint64_t result;
    } others[] = {{"mad.lo.s32", a * b + c}, {"mul.lo.s64", a * b},
                  {"mul.wide.u32", a * b},   {"min.u32", a < b ? a : b},
                  {"and.b32", a & b},        {"or.pred", a | b},
                  {"not.b32", ~a},           {"neg.s32", -a},
                  {"selp.b32", c ? a : b}};
    for (unsigned k = 0; k < sizeof(others) / sizeof(*others); k++) {
        if (is(i, others[k].op))
            return others[k].result;
    }
    fail("unknown instruction", i->text);
}

static void run_thread(const struct program *p, struct thread *t)
{
    for (unsigned at = 0, steps = 0; at < p->n; at++) {
        const struct instruction *i = &p->code[at];
        if (++steps > 1000)
            fail("runs for ever", p->name);
        if (i->guard.kind == REGISTER && !value_of(t, &i->guard))
            continue;
        if (is(i, "ret"))
            return;
        if (strncmp(i->op, "bra", 3) == 0) {
            at = p->labels[i->a[0].value].at - 1;
        } else if (is(i, "red.global.add.u64")) {
            *(uint64_t *)(uintptr_t)value_of(t, &i->a[0]) += value_of(t, &i->a[1]);
        } else if (strncmp(i->op, "st.global", 9) == 0) {
            void *to = (void *)(uintptr_t)(value_of(t, &i->a[0]) + (uint64_t)i->a[0].offset);
            uint64_t v = value_of(t, &i->a[1]);
            memcpy(to, &v, is(i, "st.global.u64") ? 8 : 4);
        } else {
            uint64_t v = compute(i, t);
            t->r[i->a[0].value] = narrow(&i->a[0]) ? (uint32_t)v : v;
        }
    }
    fail("ends without ret", p->name);
}

void fake_ptx_run(const char *name, const uint64_t *params, unsigned blocks, unsigned threads)
{
    const struct program *p = program_of(name);
    for (unsigned i = blocks * threads; i-- > 0;) { /* in no particular order */
        struct thread t = {.special = {i % threads, threads, i / threads}, .params = params};
        run_thread(p, &t);
    }
}
