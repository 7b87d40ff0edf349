/* See result.h. Every expression is evaluated within one repeat and the median taken afterwards, so
 * that a ratio never mixes two moments of the machine. */
#include "bench/result.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "bench/cell.h"
#include "bench/stats.h"

int result_init(struct result *r, const struct scenario *s, size_t repeats, bool soft)
{
    *r = (struct result){
        .s = s,
        .soft = soft,
        .repeats = repeats,
        .slots = (s->nphases ? s->nphases : s->nconfigs) + s->nroles,
        .points = scenario_points(s),
    };
    r->at = calloc(r->repeats * r->slots * r->points, sizeof(json_t *));
    r->cells = json_array();
    return r->at && r->cells ? 0 : -ENOMEM;
}

void result_free(struct result *r)
{
    free(r->at);
    json_decref(r->cells);
    r->at = NULL;
    r->cells = NULL;
}

size_t result_slot_alone(const struct result *r, const struct role *role)
{
    return r->slots - r->s->nroles + (size_t)(role - r->s->roles);
}

static json_t **place(const struct result *r, size_t repeat, size_t slot, size_t point)
{
    return &r->at[(repeat * r->slots + slot) * r->points + point];
}

json_t *result_at(const struct result *r, size_t repeat, size_t slot, size_t point)
{
    return *place(r, repeat, slot, point);
}

const json_t *result_metric(const json_t *cell, const char *role, const char *name)
{
    char with_unit[64];
    const json_t *m = json_object_get(json_object_get(cell, "roles"), role);
    const json_t *v = json_object_get(m, name);
    snprintf(with_unit, sizeof(with_unit), "%s_us", name);
    return v ? v : json_object_get(m, with_unit);
}

double result_part(const json_t *summary, const char *which)
{
    const json_t *v = json_object_get(summary, which);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static double cell_metric(const json_t *cell, const char *role, const char *name)
{
    const json_t *v = result_metric(cell, role, name);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

void result_put(struct result *r, size_t repeat, size_t slot, size_t point, json_t *cell)
{
    static const char *const names[][2] = {
        {"rate", "share"}, {"rate_min", "share_min"}, {"rate_max", "share_max"}};
    *place(r, repeat, slot, point) = cell;
    for (size_t i = 0; i < r->s->nroles; i++) {
        const struct role *role = &r->s->roles[i];
        const json_t *alone = *place(r, repeat, result_slot_alone(r, role), point);
        json_t *m = json_object_get(json_object_get(cell, "roles"), role->name);
        double base = cell_metric(alone, role->name, "rate");
        for (size_t k = 0; k < ARRAY_SIZE(names) && m && base > 0; k++) {
            double v = cell_metric(cell, role->name, names[k][0]);
            if (!isnan(v) && !json_object_get(m, names[k][1]))
                json_object_set_new(m, names[k][1], json_real(v / base));
        }
    }
}

/* ---- expressions ---- */

struct where {
    const struct result *r;
    size_t repeat, point;
};

static const char *slot_name(const struct result *r, size_t slot)
{
    if (slot >= r->slots - r->s->nroles)
        return "alone";
    return r->s->nphases ? r->s->phases[slot].name : r->s->configs[slot].name;
}

static int value(void *arg, const char *name, double *out)
{
    const struct where *w = arg;
    const struct scenario *s = w->r->s;
    char text[96], *save = NULL;
    for (size_t i = 0; i < s->naxes; i++) {
        if (strcmp(name, s->axes[i].name) == 0) {
            *out = s[w->point].axes[i].at;
            return 0;
        }
    }
    snprintf(text, sizeof(text), "%s", name);
    const char *config = strtok_r(text, ".", &save), *role = strtok_r(NULL, ".", &save);
    const char *what = strtok_r(NULL, ".", &save);
    if (!config || !role || !what)
        return -ENOENT;
    size_t slot = 0;
    while (slot < w->r->slots && strcmp(slot_name(w->r, slot), config) != 0)
        slot++;
    if (slot == w->r->slots)
        return -ENOENT;
    const struct role *known = scenario_role(s, role);
    if (strcmp(config, "alone") == 0 && known && !s->nphases)
        slot = result_slot_alone(w->r, known);
    *out = cell_metric(*place(w->r, w->repeat, slot, w->point), role, what);
    return 0;
}

static void select_point(void *arg, size_t i)
{
    ((struct where *)arg)->point = i;
}

static int evaluate(const struct result *r, const char *text, size_t repeat, size_t point,
                    struct expr_result *out)
{
    struct where w = {r, repeat, point};
    struct expr_env env = {value, select_point, r->points, point, &w};
    return expr_eval(text, &env, out, NULL);
}

/* A check at one point: both sides' medians over repeats. A check names the cells that it needs:
 * cells that failed miss the target, missing ones leave it open. NULL: it cannot be evaluated. */
static json_t *check_point(const struct result *r, const char *check, size_t point, bool once)
{
    double left[RESULT_REPEATS], right[RESULT_REPEATS];
    struct expr_result e = {.op = EXPR_NONE};
    for (size_t i = 0; i < r->repeats; i++) {
        if (evaluate(r, check, i, point, &e) < 0)
            return NULL;
        bool known = !isnan(e.left) && (e.op == EXPR_NONE || !isnan(e.right));
        left[i] = known ? e.left : NAN;
        right[i] = isnan(e.left) ? NAN : e.right;
    }
    json_t *l = stats_summary(left, r->repeats), *q = stats_summary(right, r->repeats);
    bool holds = expr_holds(e.op, result_part(l, "median"), result_part(q, "median"));
    return json_pack("{s:o, s:o, s:o, s:o}", "point",
                     once ? json_object() : point_json(&r->s[point]), "value", l, "limit", q,
                     "pass",
                     json_is_null(l) || e.op == EXPR_NONE ? json_null() : json_boolean(holds));
}

/* *partly: some of its points were measured, others were not, as the run was cut off. */
static json_t *target_json(const struct result *r, const struct target *t, bool *partly)
{
    json_t *points = json_array();
    struct expr_result e;
    size_t measured = 0, missed = 0;
    /* One value for all points together. */
    bool once = r->points > 1 && evaluate(r, t->check, 0, 0, &e) == 0 && !e.pointwise;
    for (size_t p = 0; p < (once ? 1 : r->points); p++) {
        if (t->when[0] && (evaluate(r, t->when, 0, p, &e) < 0 ||
                           !expr_holds(e.op, e.left, e.op == EXPR_NONE ? 0 : e.right)))
            continue;
        json_t *o = check_point(r, t->check, p, once);
        measured += o && !json_is_null(json_object_get(o, "value"));
        missed += json_is_false(json_object_get(o, "pass"));
        if (o)
            json_array_append_new(points, o);
    }
    size_t n = json_array_size(points);
    *partly |= measured > 0 && measured < n;
    return json_pack("{s:s, s:s, s:o, s:o}", "name", t->name, "check", t->check, "points", points,
                     "pass",
                     missed                      ? json_false()
                     : measured && measured == n ? json_true()
                                                 : json_null());
}

/* ---- tables ---- */

/* The summary over repeats of every number of every role, as the first cell that is ok has them. */
static json_t *row(const struct result *r, size_t slot, size_t point)
{
    const json_t *model = NULL;
    size_t failed = 0, there = 0;
    const char *error = NULL;
    for (size_t i = 0; i < r->repeats; i++) {
        const json_t *c = *place(r, i, slot, point);
        const char *status = json_string_value(json_object_get(c, "status"));
        there += c != NULL;
        if (status && strcmp(status, "ok") == 0) {
            model = model ? model : c;
        } else if (status) {
            failed += strcmp(status, "failed") == 0;
            error = json_string_value(json_object_get(c, "error"));
        }
    }
    if (!there)
        return NULL;
    json_t *o = json_pack("{s:s, s:o, s:s, s:I, s:I}", "config", slot_name(r, slot), "point",
                          point_json(&r->s[point]), "status",
                          failed  ? "failed"
                          : model ? "ok"
                                  : "unavailable",
                          "repeats", (json_int_t)there, "failed", (json_int_t)failed);
    if (error)
        json_object_set_new(o, "error", json_string(error));
    json_t *roles = json_object(), *metrics, *v;
    const char *role, *name;
    json_object_foreach(json_object_get(model, "roles"), role, metrics)
    {
        json_t *m = json_object();
        json_object_foreach(metrics, name, v)
        {
            double values[RESULT_REPEATS];
            if (!json_is_number(v) && !json_is_null(v))
                continue;
            for (size_t i = 0; i < r->repeats; i++)
                values[i] = cell_metric(*place(r, i, slot, point), role, name);
            json_object_set_new(m, name, stats_summary(values, r->repeats));
        }
        json_object_set_new(roles, role, m);
    }
    json_object_set_new(o, "roles", roles);
    return o;
}

static void flat_results(json_t *results, const json_t *row)
{
    static const char *const names[] = {"p50_us", "p99_us", "late",     "share",     "rate",
                                        "cpu",    "us",     "pause_us", "resume_us", "speed"};
    char at[96] = "", key[256];
    const char *config = json_string_value(json_object_get(row, "config")), *axis, *role;
    json_t *v, *metrics;
    json_object_foreach(json_object_get(row, "point"), axis, v)
    {
        size_t n = strlen(at);
        snprintf(at + n, sizeof(at) - n, "%s%s=%.10g", n ? "," : "[", axis, json_number_value(v));
    }
    json_object_foreach(json_object_get(row, "roles"), role, metrics)
    {
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
            double m = result_part(json_object_get(metrics, names[i]), "median");
            if (isnan(m))
                continue;
            snprintf(key, sizeof(key), "%s.%s.%s%s%s", config, role, names[i], at,
                     at[0] ? "]" : "");
            json_object_set_new(results, key, json_real(m));
        }
    }
}

json_t *result_json(const struct result *r)
{
    json_t *rows = json_array(), *results = json_object(), *targets = json_array();
    json_int_t failed = 0, missed = 0, unavailable = 0;
    bool partly = false;
    const json_t *cell;
    size_t i;
    size_t ways = r->slots - r->s->nroles;
    for (size_t p = 0; p < r->points; p++) {
        json_t *alone = NULL;
        for (size_t k = 0; k < r->slots; k++) {
            size_t slot = (k + ways) % r->slots; /* alone first */
            json_t *o = row(r, slot, p);
            if (!o)
                continue;
            flat_results(results, o);
            if (alone && slot >= ways) { /* all roles alone share a row */
                json_object_update(json_object_get(alone, "roles"), json_object_get(o, "roles"));
                if (strcmp(json_string_value(json_object_get(o, "status")), "ok") != 0) {
                    json_object_set(alone, "status", json_object_get(o, "status"));
                    json_object_set(alone, "error", json_object_get(o, "error"));
                }
                json_decref(o);
                continue;
            }
            alone = slot >= ways ? o : alone;
            json_array_append_new(rows, o);
        }
    }
    json_array_foreach(r->cells, i, cell)
    {
        const char *status = json_string_value(json_object_get(cell, "status"));
        failed += strcmp(status, "failed") == 0;
        unavailable += strcmp(status, "unavailable") == 0;
    }
    for (size_t t = 0; t < r->s->ntargets; t++) {
        if (r->soft && strcmp(r->s->targets[t].only, "nvidia") == 0)
            continue;
        json_t *o = target_json(r, &r->s->targets[t], &partly);
        missed += json_is_false(json_object_get(o, "pass"));
        json_array_append_new(targets, o);
    }
    json_t *pass = failed || missed ? json_false() : partly ? json_null() : json_true();
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:I}", "results", results, "rows", rows,
                     "targets", targets, "pass", pass, "failed_cells", failed, "missed", missed,
                     "unavailable_cells", unavailable);
}
