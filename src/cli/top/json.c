/* The output of `cede top` without a terminal: JSON, or a table. */
#include "base/json_text.h"
#include "base/text.h"
#include "cli/top/text.h"

/* Copies fields that the entry has, as `cede ps` prints them. */
static void copy_fields(json_t *to, const struct top_row *r, const char *const *keys)
{
    for (; *keys; keys++) {
        json_t *value = json_object_get(r->entry, *keys);
        if (value)
            json_object_set(to, *keys, value);
    }
}

static json_t *row_json(const struct top_row *r)
{
    static const char *const of_all[] = {"number", "pid", "name", "uid", "gpus", NULL};
    static const char *const of_jobs[] = {"class", "weight",      "state",        "namespace",
                                          "pod",   "container",   "memory_bytes", "mps",
                                          "speed", "deadline_us", "due",          NULL};
    json_t *o = json_pack("{s:s, s:s*}", "user", r->user, "where", r->where[0] ? r->where : NULL);
    copy_fields(o, r, of_all);
    if (!r->number)
        return o;
    copy_fields(o, r, of_jobs);
    json_object_set_new(o, "share", json_finite(r->share < 0 ? NAN : r->share));
    json_object_set_new(o, "wait", json_finite(r->wait < 0 ? NAN : r->wait));
    return o;
}

static json_t *gpu_json(const struct top_gpu *g)
{
    return json_pack("{s:i, s:s, s:s, s:f, s:O*, s:i}", "gpu", (int)g->index, "label",
                     g->label ? g->label : "", "name", g->name ? g->name : "", "share", g->share,
                     "idle_while_waiting_s", json_object_get(g->entry, "idle_while_waiting_s"),
                     "jobs", (int)g->jobs);
}

json_t *top_json(const struct top_model *m)
{
    json_t *jobs = json_array(), *nobody = json_array(), *gpus = json_array();
    for (size_t i = 0; i < m->nlines; i++)
        json_array_append_new(m->lines[i]->number ? jobs : nobody, row_json(m->lines[i]));
    for (unsigned i = 0; i < m->ngpus; i++)
        json_array_append_new(gpus, gpu_json(&m->gpus[i]));
    return json_pack("{s:b, s:O*, s:o, s:o, s:o}", "daemon", json_get_true(m->reply, "daemon"),
                     "policy", json_object_get(m->reply, "policy"), "gpus", gpus, "jobs", jobs,
                     "nobody", nobody);
}

void top_print(FILE *f, const struct top_model *m)
{
    char line[TOP_LINE], cell[CELL];
    top_summary(line, m);
    fprintf(f, "%s\n", line);
    for (unsigned i = 0; i < m->ngpus; i++) {
        top_gpu_line(line, &m->gpus[i], 80);
        text_show(line);
        fprintf(f, "%s\n", line);
    }
    struct top_layout l = top_layout(m, 160);
    for (size_t i = 0; m->nlines && i <= m->nlines; i++) {
        const struct top_row *r = i ? m->lines[i - 1] : NULL;
        for (enum top_column c = 0; c < TOP_NAME_COLUMN; c++) {
            if (!l.width[c])
                continue;
            snprintf(cell, sizeof(cell), "%s", top_title(c));
            if (r)
                top_cell(cell, m, r, c);
            fprintf(f, "%s ", top_fit(line, cell, l.width[c], top_is_right(c)));
        }
        fprintf(f, "%s\n", r ? r->name : top_title(TOP_NAME_COLUMN));
    }
}
