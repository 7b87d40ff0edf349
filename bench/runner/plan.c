/* See plan.h. */
#include "bench/runner/plan.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* A text where hi is 0, else a number from lo to hi. */
struct plan_field {
    const char *name;
    size_t offset;
    double lo, hi, otherwise;
    bool whole;
};

static const struct plan_field session_fields[] = {
    {"base", offsetof(struct session, base), 0, 0, 0, false},
    {"conf", offsetof(struct session, conf), 0, 0, 0, false},
    {"start", offsetof(struct session, start), 0, 0, 0, false},
    {"stop", offsetof(struct session, stop), 0, 0, 0, false},
    {"run", offsetof(struct session, run), 0, 0, 0, false},
    {"wrap", offsetof(struct session, wrap), 0, 0, 0, false},
    {"gpus", offsetof(struct session, gpus), 1, 16, 1, true},
    {"settle", offsetof(struct session, settle), 0, 60, 0.5, false},
    {"seconds", offsetof(struct session, seconds), 0.01, 600, 4, false},
};
static const struct plan_field role_fields[] = {
    {"name", offsetof(struct role, name), 0, 0, 0, false},
    {"load", offsetof(struct role, load), 0, 0, 0, false},
    {"program", offsetof(struct role, program), 0, 0, 0, false},
    {"terms", offsetof(struct role, terms), 0, 0, 0, false},
    {"options", offsetof(struct role, options), 0, 0, 0, false},
    {"env", offsetof(struct role, env), 0, 0, 0, false},
    {"count", offsetof(struct role, count), 1, PLAN_PROGRAMS, 1, true},
    {"ready", offsetof(struct role, ready), 1, 600, 60, false},
};
static const struct plan_field phase_fields[] = {
    {"name", offsetof(struct phase, name), 0, 0, 0, false},
    {"steps", offsetof(struct phase, steps), 0, 0, 0, false},
    {"seconds", offsetof(struct phase, seconds), 0.01, 600, 4, false},
};

static int read_field(const json_t *o, const struct plan_field *f, void *to, struct error *err)
{
    const json_t *v = json_object_get(o, f->name);
    double number = v ? json_number_value(v) : f->otherwise;
    void *at = (char *)to + f->offset;
    if (f->hi > 0) {
        if ((v && !json_is_number(v)) || !(number >= f->lo && number <= f->hi) ||
            (f->whole && number > floor(number)))
            return error_set(err, -EINVAL, "plan: %s has to be a %s from %g to %g", f->name,
                             f->whole ? "whole number" : "number", f->lo, f->hi);
        *(double *)at = number;
        return 0;
    }
    if (v && (!json_is_string(v) || json_string_length(v) >= PLAN_TEXT))
        return error_set(err, -EINVAL, "plan: %s has to be a text below %d bytes", f->name,
                         PLAN_TEXT);
    *(const char **)at = v ? json_string_value(v) : "";
    return 0;
}

static int read_fields(const json_t *o, const struct plan_field *fields, size_t n, void *to,
                       struct error *err)
{
    int r = json_is_object(o) ? 0 : error_set(err, -EINVAL, "plan: an object is missing");
    for (size_t i = 0; i < n && r == 0; i++)
        r = read_field(o, &fields[i], to, err);
    return r;
}

int plan_read(const json_t *o, struct session *x, struct error *err)
{
    const json_t *roles = json_object_get(o, "roles"), *phases = json_object_get(o, "phases");
    *x = (struct session){.nroles = json_array_size(roles), .nphases = json_array_size(phases)};
    int r = read_fields(o, session_fields, ARRAY_SIZE(session_fields), x, err);
    if (r == 0 && (x->nroles < 1 || x->nroles > PLAN_ROLES || x->nphases > PLAN_PHASES))
        r = error_set(err, -EINVAL, "plan: 1 to %d roles and at most %d phases are allowed",
                      PLAN_ROLES, PLAN_PHASES);
    for (size_t i = 0; i < x->nroles && r == 0; i++) {
        const json_t *v = json_array_get(roles, i);
        struct role *role = &x->roles[i];
        r = read_fields(v, role_fields, ARRAY_SIZE(role_fields), role, err);
        role->later = json_is_true(json_object_get(v, "later"));
        if (!json_object_get(v, "options"))
            role->options = NULL;
        if (r == 0 && (!role->name[0] || !role->load[0] == !role->program[0]))
            r = error_set(err, -EINVAL, "plan: a role needs a name, and either load or program");
    }
    for (size_t i = 0; i < x->nphases && r == 0; i++)
        r = read_fields(json_array_get(phases, i), phase_fields, ARRAY_SIZE(phase_fields),
                        &x->phases[i], err);
    return r;
}

const struct role *plan_role(const struct session *x, const char *name)
{
    for (size_t i = 0; i < x->nroles; i++) {
        if (strcmp(x->roles[i].name, name) == 0)
            return &x->roles[i];
    }
    return NULL;
}

const char *plan_line(const char *list, const char *previous, char *buf, size_t size)
{
    const char *at = previous ? previous + strcspn(previous, "\n") : list;
    at += strspn(at, "\n");
    if (!*at)
        return NULL;
    snprintf(buf, size, "%.*s", (int)strcspn(at, "\n"), at);
    return at;
}
