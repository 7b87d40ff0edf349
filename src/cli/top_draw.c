/* The screen of `cede top`. Draws what there is into ncurses' picture of the screen, which sends
 * the terminal only what changed. Text of others passes top_fit(), so none of it steers the
 * terminal. */
#include <langinfo.h>
#include <ncurses.h>
#include <string.h>

#include "cli/top_text.h"
#include "cli/top_ui.h"
#include "lib/json_text.h"
#include "lib/text.h"

enum { PAIR_GOOD = 1, PAIR_WAIT, PAIR_BAD, PAIR_LATENCY };

static bool coloured;

void top_draw_start(bool colours)
{
    coloured = colours && has_colors() && start_color() == OK;
    if (!coloured)
        return;
    bool own = use_default_colors() == OK;
    const short back = own ? -1 : COLOR_BLACK;
    init_pair(PAIR_GOOD, COLOR_GREEN, back);
    init_pair(PAIR_WAIT, COLOR_YELLOW, back);
    init_pair(PAIR_BAD, COLOR_RED, back);
    init_pair(PAIR_LATENCY, COLOR_CYAN, back);
}

/* A line of its own, over the whole width. The last column of the last line stays free: some
 * terminals scroll. */
static void screen_text(int y, attr_t attributes, const char *text)
{
    char fitted[TOP_LINE];
    int width = y == LINES - 1 ? COLS - 1 : COLS;
    if (y < 0 || y >= LINES || width <= 0)
        return;
    attrset((int)attributes);
    mvaddstr(y, 0, top_fit(fitted, text, (unsigned)width, false));
    attrset(A_NORMAL);
}

static attr_t attribute(const struct top_row *r, enum top_column c)
{
    const char *state = json_get_text(r->entry, "state"), *class = json_get_text(r->entry, "class");
    int pair = 0;
    if (c == TOP_STATE && state)
        pair = strcmp(state, "running") == 0                                   ? PAIR_GOOD
               : strcmp(state, "paused") == 0 || strcmp(state, "stopped") == 0 ? PAIR_BAD
                                                                               : PAIR_WAIT;
    else if (c == TOP_CLASS && class && strcmp(class, "latency") == 0)
        pair = PAIR_LATENCY;
    else if (c == TOP_BAR || c == TOP_MINUTE)
        pair = PAIR_GOOD;
    return coloured ? (attr_t)COLOR_PAIR(pair) : 0;
}

static void put_row(const struct top_ui *ui, const struct top_layout *l, int y,
                    const struct top_row *r, bool selected)
{
    char cell[CELL], fitted[TOP_LINE];
    attr_t base = (selected ? A_REVERSE : 0) | (r->tagged ? A_BOLD : 0) | (r->number ? 0 : A_DIM);
    screen_text(y, base, "");
    int x = 0;
    for (enum top_column c = 0; c < TOP_COLUMNS && x < COLS; c++) {
        if (!l->width[c])
            continue;
        unsigned width = (unsigned)min_u64(l->width[c], (uint64_t)(COLS - x));
        top_cell(cell, &ui->model, r, c, width, ui->utf8);
        attrset((int)(base | (selected ? 0 : attribute(r, c))));
        mvaddstr(y, x, top_fit(fitted, cell, width, top_is_right(c)));
        x += (int)width + 1;
    }
    if (r->tagged) /* where bold is not seen */
        mvaddstr(y, 0, "*");
    attrset(A_NORMAL);
}

static void put_header(const struct top_ui *ui, const struct top_layout *l, int y)
{
    char fitted[TOP_LINE], title[32];
    screen_text(y, A_REVERSE, "");
    int x = 0;
    for (enum top_column c = 0; c < TOP_COLUMNS && x < COLS; c++) {
        if (!l->width[c])
            continue;
        bool sorted = c == ui->model.sort;
        unsigned width = (unsigned)min_u64(l->width[c], (uint64_t)(COLS - x));
        snprintf(title, sizeof(title), "%s", top_title(c));
        attrset(A_REVERSE | (sorted ? A_BOLD | A_UNDERLINE : 0));
        mvaddstr(y, x, top_fit(fitted, title, width, top_is_right(c)));
        x += (int)width + 1;
    }
    attrset(A_NORMAL);
}

static const char *user_of(const struct top_model *m, uid_t uid)
{
    for (size_t i = 0; i < m->nrows; i++) {
        if (m->rows[i]->uid == uid)
            return m->rows[i]->user;
    }
    return "?";
}

static void put_table(struct top_ui *ui, int y, int height)
{
    struct top_model *m = &ui->model;
    struct top_layout l = top_layout(m, (unsigned)COLS);
    char text[TOP_LINE];
    ui->y_header = y;
    put_header(ui, &l, y++);
    top_model_height(m, (size_t)(height > 1 ? height - 1 : 1));
    for (size_t i = 0; i < m->height && m->first + i < m->nlines; i++) {
        size_t line = m->first + i;
        if (m->lines[line].row >= 0) {
            put_row(ui, &l, y + (int)i, m->rows[m->lines[line].row], line == m->at);
            continue;
        }
        top_user_line(text, m, m->lines[line].uid, user_of(m, m->lines[line].uid));
        screen_text(y + (int)i, A_BOLD, text);
    }
    if (!m->nlines && m->reply)
        screen_text(y, A_DIM, m->filter[0] ? "no row holds the filter's text" : "no jobs");
}

static void put_menu(const struct top_ui *ui, int y, int height)
{
    char line[64], fitted[TOP_LINE];
    size_t shown = (size_t)(height > 2 ? height - 1 : 1);
    size_t first = ui->choice >= shown ? ui->choice - shown + 1 : 0;
    const unsigned width = (unsigned)min_u64(22, (uint64_t)COLS);
    attrset(A_REVERSE | A_BOLD);
    snprintf(line, sizeof(line), " %s", top_menu_title(ui));
    if (ui->typed)
        snprintf(line, sizeof(line), " %s %u", top_menu_title(ui), ui->typed);
    mvaddstr(y, 0, top_fit(fitted, line, width, false));
    for (size_t i = 0; i < shown && top_menu_line(ui, first + i); i++) {
        snprintf(line, sizeof(line), " %s", top_menu_line(ui, first + i));
        attrset(first + i == ui->choice ? A_REVERSE : A_NORMAL);
        mvaddstr(y + 1 + (int)i, 0, top_fit(fitted, line, width, false));
    }
    attrset(A_NORMAL);
}

static void put_keys(struct top_ui *ui, int y)
{
    char text[TOP_LINE];
    size_t n;
    const struct top_label *all = top_labels(ui, &n);
    ui->y_keys = y;
    if (ui->mode == TOP_PROMPT) {
        snprintf(text, sizeof(text), "%s%s", top_prompt(ui), ui->input);
        screen_text(y, A_BOLD, text);
        return;
    }
    screen_text(y, A_NORMAL, "");
    int x = 0;
    for (size_t i = 0; i < n && x + (int)strlen(all[i].key) + (int)strlen(all[i].text) < COLS;
         i++) {
        attrset(A_BOLD);
        mvaddstr(y, x, all[i].key);
        attrset(A_REVERSE);
        addstr(all[i].text);
        x += (int)(strlen(all[i].key) + strlen(all[i].text));
        attrset(A_NORMAL);
    }
}

int top_draw_key_at(const struct top_ui *ui, int x)
{
    size_t n;
    const struct top_label *all = top_labels(ui, &n);
    for (size_t i = 0; i < n && ui->mode != TOP_PROMPT; i++) {
        x -= (int)(strlen(all[i].key) + strlen(all[i].text));
        if (x < 0)
            return all[i].code;
    }
    return 0;
}

enum top_column top_draw_column_at(const struct top_ui *ui, int x)
{
    struct top_layout l = top_layout(&ui->model, (unsigned)COLS);
    for (enum top_column c = 0; c < TOP_COLUMNS; c++) {
        x -= l.width[c] ? (int)l.width[c] + 1 : 0;
        if (l.width[c] && x < 0)
            return c;
    }
    return TOP_COLUMNS;
}

static void put_help(const struct top_ui *ui, int y, int height)
{
    for (int i = 0; i < height; i++) {
        const char *line = top_help_line(ui->help_first + (size_t)i);
        screen_text(y + i, A_NORMAL, line ? line : "");
    }
}

/* The lines of GPUs: a third of the screen at most. */
static int put_gpus(const struct top_ui *ui, int y)
{
    const struct top_model *m = &ui->model;
    char line[TOP_LINE];
    unsigned room = (unsigned)(LINES / 3 > 1 ? LINES / 3 : 1);
    unsigned shown = m->ngpus > room ? room - 1 : m->ngpus;
    for (unsigned i = 0; i < shown; i++) {
        top_gpu_line(line, m, &m->gpus[i], (unsigned)COLS, ui->utf8);
        screen_text(y++, A_NORMAL, line);
    }
    if (shown < m->ngpus) {
        snprintf(line, sizeof(line), "and %u more GPUs", m->ngpus - shown);
        screen_text(y++, A_NORMAL, line);
    }
    return y;
}

void top_draw(struct top_ui *ui)
{
    char line[TOP_LINE];
    bool said = ui->message[0];
    erase();
    top_summary(line, &ui->model);
    screen_text(0, A_BOLD, ui->model.reply ? line : "waiting for the first reply");
    int y = LINES >= 6 ? put_gpus(ui, 1) : 1;
    int bottom = LINES - 2;
    if (ui->mode == TOP_HELP)
        put_help(ui, 1, bottom - 1);
    else
        put_table(ui, y, bottom - y);
    if (ui->mode == TOP_MENU)
        put_menu(ui, y, bottom - y);
    snprintf(line, sizeof(line), "%s%s", said ? ui->message : ui->source.status,
             !said && !ui->source.status[0] && ui->model.filter[0] ? "filter: " : "");
    if (!said && !ui->source.status[0] && ui->model.filter[0])
        strncat(line, ui->model.filter, sizeof(line) - strlen(line) - 1);
    attr_t bad = coloured ? (attr_t)COLOR_PAIR(PAIR_BAD) : 0;
    screen_text(bottom, A_BOLD | (ui->source.status[0] && !said ? bad : 0), line);
    put_keys(ui, LINES - 1);
    refresh();
}
