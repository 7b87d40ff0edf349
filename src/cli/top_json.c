/* `cede top` without a terminal: as JSON, and as a table. */
#include <string.h>

#include "cli/top_text.h"
#include "lib/json_text.h"
#include "lib/text.h"
#include "lib/util.h"

static json_t *known_json(double v)
{
    return v < 0 ? json_null() : json_real(v);
}

static json_t *minute_json(const struct top_history *h, uint64_t now_ns)
{
    json_t *a = json_array();
    for (unsigned i = 0; i < TOP_SECONDS; i++)
        json_array_append_new(
            a, json_real((double)(long)(1000 * top_history_part(h, now_ns, i, TOP_SECONDS) + 0.5) /
                         1000));
    return a;
}

static json_t *row_field(const struct top_row *r, const char *key)
{
    return json_incref(json_object_get(r->entry, key));
}

static json_t *top_job_json(const struct top_model *m, const struct top_row *r)
{
    return json_pack(
        "{s:o*, s:i, s:o*, s:I, s:s, s:o*, s:o*, s:o*, s:o*, s:o, s:o, s:o*, s:o*, s:o*, s:o*, "
        "s:o*, "
        "s:s*, s:o}",
        "number", row_field(r, "number"), "pid", (int)r->pid, "name", row_field(r, "name"), "uid",
        (json_int_t)r->uid, "user", r->user, "class", row_field(r, "class"), "weight",
        row_field(r, "weight"), "state", row_field(r, "state"), "gpus", row_field(r, "gpus"),
        "share", known_json(r->share), "wait", known_json(r->wait), "memory_bytes",
        row_field(r, "memory_bytes"), "mps", row_field(r, "mps"), "speed", row_field(r, "speed"),
        "deadline_us", row_field(r, "deadline_us"), "due", row_field(r, "due"), "where",
        r->where[0] ? r->where : NULL, "minute", minute_json(&r->history, m->now_ns));
}

static json_t *top_nobody_json(const struct top_row *r)
{
    return json_pack("{s:i, s:o*, s:I, s:s, s:o*, s:s*}", "pid", (int)r->pid, "name",
                     row_field(r, "name"), "uid", (json_int_t)r->uid, "user", r->user, "gpus",
                     row_field(r, "gpus"), "where", r->where[0] ? r->where : NULL);
}

static json_t *top_gpu_json(const struct top_model *m, const struct top_gpu *g)
{
    return json_pack("{s:i, s:s, s:s, s:f, s:O*, s:i, s:o}", "gpu", (int)g->index, "label",
                     g->label ? g->label : "", "name", g->name ? g->name : "", "share", g->share,
                     "idle_while_waiting_s", json_object_get(g->entry, "idle_while_waiting_s"),
                     "jobs", (int)g->jobs, "minute", minute_json(&g->history, m->now_ns));
}

json_t *top_json(const struct top_model *m)
{
    json_t *jobs = json_array(), *nobody = json_array(), *gpus = json_array();
    for (size_t i = 0; i < m->nlines; i++) {
        const struct top_row *r = m->lines[i].row < 0 ? NULL : m->rows[m->lines[i].row];
        if (r && r->number)
            json_array_append_new(jobs, top_job_json(m, r));
        else if (r)
            json_array_append_new(nobody, top_nobody_json(r));
    }
    for (unsigned i = 0; i < m->ngpus; i++)
        json_array_append_new(gpus, top_gpu_json(m, &m->gpus[i]));
    const json_t *policy = json_object_get(m->reply, "policy");
    return json_pack("{s:b, s:O*, s:o, s:o, s:o}", "daemon", json_get_true(m->reply, "daemon"),
                     "policy", policy, "gpus", gpus, "jobs", jobs, "nobody", nobody);
}

void top_print(FILE *f, const struct top_model *m, bool utf8)
{
    char line[TOP_LINE], cell[CELL], fitted[TOP_LINE];
    top_summary(line, m);
    fprintf(f, "%s\n", line);
    for (unsigned i = 0; i < m->ngpus; i++) {
        top_gpu_line(line, m, &m->gpus[i], 80, utf8);
        text_show(line);
        fprintf(f, "%s\n", line);
    }
    struct top_layout l = top_layout(m, 160);
    size_t n = m->nlines ? m->nlines + 1 : 0;
    for (size_t i = 0; i < n; i++) {
        for (enum top_column c = 0; c < TOP_NAME_COLUMN; c++) {
            if (!l.width[c])
                continue;
            snprintf(cell, sizeof(cell), "%s", top_title(c));
            if (i)
                top_cell(cell, m, m->rows[m->lines[i - 1].row], c, l.width[c], utf8);
            fprintf(f, "%s ", top_fit(fitted, cell, l.width[c], top_is_right(c)));
        }
        fprintf(f, "%s\n", i ? m->rows[m->lines[i - 1].row]->name : top_title(TOP_NAME_COLUMN));
    }
}
