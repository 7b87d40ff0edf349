/* See top_text.h. */
#include "cli/top_text.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <wchar.h>

#include "lib/json_text.h"
#include "lib/text.h"
#include "lib/util.h"

/* rank: columns of a high one go first when there is no room. */
static const struct {
    const char *title, *sort;
    unsigned width, rank;
    bool right;
} columns[TOP_COLUMNS] = {
    [TOP_JOB] = {"JOB", "job", 5, 0, true},
    [TOP_PID] = {"PID", "pid", 7, 10, true},
    [TOP_CLASS] = {"CLASS", "class", 7, 0, false},
    [TOP_WEIGHT] = {"WEIGHT", "weight", 6, 7, true},
    [TOP_STATE] = {"STATE", "state", 9, 1, false},
    [TOP_GPU] = {"GPU", "gpu", 3, 4, false},
    [TOP_SHARE] = {"SHARE", "share", 5, 0, true},
    [TOP_BAR] = {"", NULL, 6, 5, false},
    [TOP_MINUTE] = {"MINUTE", NULL, 10, 3, false},
    [TOP_WAIT] = {"WAIT", "wait", 4, 2, true},
    [TOP_MEM] = {"MEM", "memory", 4, 6, true},
    [TOP_SPEED] = {"SPEED", "speed", 5, 9, true},
    [TOP_DUE] = {"DUE", "due", 11, 8, false},
    [TOP_WHERE_COLUMN] = {"WHERE", "where", 14, 12, false},
    [TOP_USER] = {"USER", "user", 8, 11, false},
    [TOP_NAME_COLUMN] = {"NAME", "name", 10, 0, false},
};
#define RANKS 12

const char *top_title(enum top_column c)
{
    return columns[c].title;
}

const char *top_sort_name(enum top_column c)
{
    return columns[c].sort;
}

bool top_is_right(enum top_column c)
{
    return columns[c].right;
}

/* Whether any row has something to say there. */
static bool column_used(const struct top_model *m, enum top_column c)
{
    if (c != TOP_SPEED && c != TOP_DUE && c != TOP_WHERE_COLUMN && c != TOP_USER)
        return true;
    for (size_t i = 0; i < m->nrows; i++) {
        const struct top_row *r = m->rows[i];
        if ((c == TOP_SPEED &&
             (json_object_get(r->entry, "mps") || json_object_get(r->entry, "speed"))) ||
            (c == TOP_DUE &&
             (json_object_get(r->entry, "due") || json_object_get(r->entry, "deadline_us"))) ||
            (c == TOP_WHERE_COLUMN && r->where[0]) || (c == TOP_USER && r->uid != m->rows[0]->uid))
            return true;
    }
    return false;
}

static unsigned layout_sum(const struct top_layout *l)
{
    unsigned sum = 0;
    for (enum top_column c = 0; c < TOP_COLUMNS; c++)
        sum += l->width[c] ? l->width[c] + 1 : 0;
    return sum ? sum - 1 : 0;
}

struct top_layout top_layout(const struct top_model *m, unsigned terminal)
{
    struct top_layout l;
    for (enum top_column c = 0; c < TOP_COLUMNS; c++)
        l.width[c] = column_used(m, c) ? columns[c].width : 0;
    for (unsigned rank = RANKS; rank > 0; rank--) {
        for (enum top_column c = 0; c < TOP_COLUMNS && layout_sum(&l) > terminal; c++)
            l.width[c] = columns[c].rank == rank ? 0 : l.width[c];
    }
    /* Names have what is left, after a longer graph */
    unsigned left = terminal - (unsigned)min_u64(layout_sum(&l), terminal);
    if (l.width[TOP_MINUTE] && left > 30) {
        unsigned more = (unsigned)min_u64(left - 30, TOP_SECONDS / 2 - 10);
        l.width[TOP_MINUTE] += more;
        left -= more;
    }
    l.width[TOP_NAME_COLUMN] += left;
    return l;
}

/* ---- cells ---- */

static void percent(char buf[static CELL], double v)
{
    snprintf(buf, CELL, v < 0 ? "-" : "%.0f%%", v * 100);
}

static void due_text(char buf[static CELL], const json_t *entry)
{
    const json_t *due = json_object_get(entry, "due");
    json_int_t in = json_get_int(due, "in_us"), of = json_get_int(entry, "deadline_us");
    char time[CELL];
    cell_time(time, due ? (in < 0 ? -in : in) : of);
    if (due || of)
        snprintf(buf, CELL, "%s %.20s", !due ? "of" : in < 0 ? "late" : "in", time);
    else
        snprintf(buf, CELL, "-");
}

static const char *row_text(const struct top_row *r, const char *key, const char *nobodys)
{
    const char *s = r->number ? json_get_text(r->entry, key) : nobodys;
    return s ? s : "-";
}

void top_cell(char buf[static CELL], const struct top_model *m, const struct top_row *r,
              enum top_column c, unsigned width, bool utf8)
{
    json_int_t weight = json_get_int(r->entry, "weight");
    const double of = fmax(r->ngpus, 1);
    buf[0] = '\0';
    switch (c) {
    case TOP_JOB:
        snprintf(buf, CELL, r->number ? "#%llu" : "-", (unsigned long long)r->number);
        break;
    case TOP_PID:
        snprintf(buf, CELL, "%d", (int)r->pid);
        break;
    case TOP_CLASS:
        snprintf(buf, CELL, "%s", row_text(r, "class", "-"));
        break;
    case TOP_WEIGHT:
        snprintf(buf, CELL, weight ? "%lld" : "-", (long long)weight);
        break;
    case TOP_STATE:
        snprintf(buf, CELL, "%s", row_text(r, "state", "no job"));
        break;
    case TOP_GPU:
        cell_gpus(buf, r->entry, json_object_get(m->reply, "gpus"), false);
        break;
    case TOP_SHARE:
        percent(buf, r->share);
        break;
    case TOP_BAR:
        if (r->share >= 0)
            top_bar(buf, CELL, r->share / of, width, utf8);
        break;
    case TOP_MINUTE:
        if (r->number)
            top_graph(buf, CELL, &r->history, m->now_ns, of, width, utf8);
        break;
    case TOP_WAIT:
        percent(buf, r->wait);
        break;
    case TOP_MEM:
        cell_memory(buf, r->entry);
        break;
    case TOP_SPEED:
        cell_speed(buf, r->entry);
        break;
    case TOP_DUE:
        due_text(buf, r->entry);
        break;
    case TOP_WHERE_COLUMN:
        snprintf(buf, CELL, "%s", r->where[0] ? r->where : "-");
        break;
    case TOP_USER:
        snprintf(buf, CELL, "%s", r->user);
        break;
    case TOP_NAME_COLUMN:
        snprintf(buf, CELL, "%s", r->name);
        break;
    case TOP_COLUMNS:
        break;
    }
}

/* ---- what fits ---- */

#define MARKS_MAX 2 /* combining characters on one: more of them run over other lines */

const char *top_fit(char buf[static TOP_LINE], const char *text, unsigned width, bool right)
{
    char shown[TOP_LINE];
    snprintf(shown, sizeof(shown), "%s", text);
    text_show(shown);
    text = shown;
    size_t used = 0, left = strlen(text);
    unsigned columns_used = 0, marks = MARKS_MAX;
    mbstate_t state = {0};
    while (left && used + 8 < TOP_LINE) {
        wchar_t wc = L'?';
        size_t n = mbrtowc(&wc, text, left, &state);
        int w = n != 0 && n <= left ? wcwidth(wc) : -1;
        if (n == 0 || n > left) {
            memset(&state, 0, sizeof(state));
            n = 1;
        }
        if (w > 0 && columns_used + (unsigned)w > width)
            break;
        if (w < 0 && columns_used + 1 > width)
            break;
        if (w < 0) {
            buf[used++] = '?';
        } else if (w > 0 || marks < MARKS_MAX) {
            memcpy(buf + used, text, n);
            used += n;
        }
        marks = w == 0 ? marks + (marks < MARKS_MAX) : w < 0 ? MARKS_MAX : 0;
        columns_used += w < 0 ? 1 : (unsigned)w;
        text += n;
        left -= n;
    }
    unsigned fill = (unsigned)min_u64(width - columns_used, TOP_LINE - 1 - used);
    if (right)
        memmove(buf + fill, buf, used);
    memset(buf + (right ? 0 : used), ' ', fill);
    buf[used + fill] = '\0';
    return buf;
}

void top_bar(char *buf, size_t size, double value, unsigned n, bool utf8)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    double length = fmin(fmax(value, 0), 1) * n;
    unsigned full = (unsigned)(utf8 ? length : round(length));
    unsigned eighth = utf8 ? (unsigned)((length - full) * 8) : 0;
    size_t used = 0;
    buf[0] = '\0';
    for (unsigned i = 0; i < full && used + 4 < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s", utf8 ? "█" : "|");
    if (used + 4 < size)
        snprintf(buf + used, size - used, "%s", eighths[eighth]);
}

/* Dots of one column of a braille character, from the lowest up: U+2800 and these bits. */
static unsigned dots(double v, bool second)
{
    static const unsigned char bits[2][4] = {{0x40, 0x04, 0x02, 0x01}, {0x80, 0x20, 0x10, 0x08}};
    unsigned n = (unsigned)ceil(fmin(fmax(v, 0), 1) * 4 - 0.04), out = 0;
    for (unsigned i = 0; i < n && i < 4; i++)
        out |= bits[second][i];
    return out;
}

void top_graph(char *buf, size_t size, const struct top_history *h, uint64_t now_ns, double of,
               unsigned n, bool utf8)
{
    static const char levels[] = " .:-=+*#";
    size_t used = 0;
    n = (unsigned)min_u64(n, TOP_SECONDS / 2);
    for (unsigned i = 0; i < n && used + 4 < size; i++) {
        if (!utf8) {
            double v = fmin(top_history_part(h, now_ns, i, n) / of, 1);
            buf[used++] = levels[(unsigned)ceil(fmax(v, 0) * 7 - 0.04)];
            continue;
        }
        unsigned b = dots(top_history_part(h, now_ns, 2 * i, 2 * n) / of, false) |
                     dots(top_history_part(h, now_ns, 2 * i + 1, 2 * n) / of, true);
        if (b) {
            buf[used++] = (char)0xe2;
            buf[used++] = (char)(0xa0 | b >> 6);
            buf[used++] = (char)(0x80 | (b & 0x3f));
        } else {
            buf[used++] = ' ';
        }
    }
    buf[used] = '\0';
}

/* ---- lines ---- */

#define IDLE_SHOWN 0.05 /* less is the error of the driver's samples */

void top_gpu_line(char buf[static TOP_LINE], const struct top_model *m, const struct top_gpu *g,
                  unsigned terminal, bool utf8)
{
    char bar[256], graph[128], fitted[TOP_LINE], label[24];
    unsigned cells = terminal >= 100 ? 40 : terminal >= 70 ? 20 : 8;
    unsigned minute = terminal >= 100 ? 30 : terminal >= 60 ? 15 : 6;
    snprintf(label, sizeof(label), "%.*s", (int)sizeof(label) - 1, g->label ? g->label : "");
    top_bar(bar, sizeof(bar), g->share, cells, utf8);
    top_graph(graph, sizeof(graph), &g->history, m->now_ns, 1, minute, utf8);
    int n = snprintf(buf, TOP_LINE, "GPU %-2u [%s] %3.0f%% ", g->index,
                     top_fit(fitted, bar, cells, false), fmin(g->share, 1) * 100);
    n += snprintf(buf + n, TOP_LINE - (size_t)n, "%s %2u job%s ",
                  top_fit(fitted, graph, minute, false), g->jobs, g->jobs == 1 ? " " : "s");
    if (g->idle >= IDLE_SHOWN)
        snprintf(buf + n, TOP_LINE - (size_t)n, "%2.0f%% idle while jobs wait", g->idle * 100);
    else
        snprintf(buf + n, TOP_LINE - (size_t)n, "%s", g->name && g->name[0] ? g->name : label);
}

void top_user_line(char buf[static TOP_LINE], const struct top_model *m, uid_t uid,
                   const char *user)
{
    unsigned rows;
    double share = top_user_share(m, uid, &rows);
    snprintf(buf, TOP_LINE, "%s: %u row%s, %.0f%%", user, rows, rows == 1 ? "" : "s", share * 100);
}

void top_summary(char buf[static TOP_LINE], const struct top_model *m)
{
    const char *policy = json_get_text(m->reply, "policy");
    size_t running = 0, waiting = 0, n;
    for (size_t i = 0; i < m->njobs; i++) {
        const char *state = row_text(m->rows[i], "state", "");
        running += strcmp(state, "running") == 0;
        waiting += strcmp(state, "waiting") == 0 || strcmp(state, "throttled") == 0;
    }
    n = (size_t)snprintf(buf, TOP_LINE, "%zu job%s: %zu running, %zu waiting", m->njobs,
                         m->njobs == 1 ? "" : "s", running, waiting);
    if (m->nrows > m->njobs)
        n += (size_t)snprintf(buf + n, TOP_LINE - n, "; %zu in no job", m->nrows - m->njobs);
    if (policy)
        snprintf(buf + n, TOP_LINE - n, "; policy %.32s", policy);
}

/* ---- where ---- */

#define ID_DIGITS 32 /* of a container's name at least */
#define ID_SHOWN  12 /* as docker ps does */

void top_where(char buf[static TOP_WHERE], const char *cgroup)
{
    const char *last = strrchr(cgroup, '/');
    last = last ? last + 1 : cgroup;
    size_t n = strlen(last), digits = 0;
    for (size_t i = 0; i < n && digits < ID_DIGITS; i++) {
        digits = isxdigit((unsigned char)last[i]) ? digits + 1 : 0;
        if (digits == ID_DIGITS)
            n = i + 1 - ID_DIGITS + ID_SHOWN;
    }
    if (digits < ID_DIGITS && n > 6 && strcmp(last + n - 6, ".scope") == 0)
        n -= 6;
    snprintf(buf, TOP_WHERE, "%.*s", (int)n, last);
    text_printable(buf);
}
