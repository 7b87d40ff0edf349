/* The screen of `cede top`. It is drawn into ncurses' picture of the screen, which sends the
 * terminal only the changes. Texts of users pass top_fit(), so none of them controls the terminal.
 */
#include <ncurses.h>
#include <string.h>

#include "base/json_text.h"
#include "cli/top/text.h"
#include "cli/top/ui.h"

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

/* Draws one line over the whole width. The last column of the last line stays free, because some
 * terminals scroll when it is written. */
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
    const char *state = json_get_text(r->entry, "state");
    int pair = 0;
    if (c == TOP_STATE && state)
        pair = strcmp(state, "running") == 0                                   ? PAIR_GOOD
               : strcmp(state, "paused") == 0 || strcmp(state, "stopped") == 0 ? PAIR_BAD
                                                                               : PAIR_WAIT;
    else if (c == TOP_CLASS && json_text_is(r->entry, "class", "latency"))
        pair = PAIR_LATENCY;
    else if (c == TOP_BAR)
        pair = PAIR_GOOD;
    return coloured ? (attr_t)COLOR_PAIR(pair) : 0;
}

/* Draws a row, or the titles if r is NULL. */
static void put_row(const struct top_model *m, const struct top_layout *l, int y,
                    const struct top_row *r, bool selected)
{
    char cell[CELL], fitted[TOP_LINE];
    const attr_t base = (!r || selected ? A_REVERSE : 0) | (r && !r->number ? A_DIM : 0);
    screen_text(y, base, "");
    int x = 0;
    for (enum top_column c = 0; c < TOP_COLUMNS && x < COLS; c++) {
        if (!l->width[c])
            continue;
        unsigned width = (unsigned)min_u64(l->width[c], (uint64_t)(COLS - x));
        attr_t own = selected ? 0 : r ? attribute(r, c) : c == m->sort ? A_BOLD | A_UNDERLINE : 0;
        snprintf(cell, sizeof(cell), "%s", top_title(c));
        if (r)
            top_cell(cell, m, r, c);
        attrset((int)(base | own));
        mvaddstr(y, x, top_fit(fitted, cell, width, top_is_right(c)));
        x += (int)width + 1;
    }
    attrset(A_NORMAL);
}

static void put_table(struct top_ui *ui, int y, int height)
{
    struct top_model *m = &ui->model;
    struct top_layout l = top_layout(m, (unsigned)COLS);
    put_row(m, &l, y++, NULL, false);
    top_model_height(m, (size_t)(height > 1 ? height - 1 : 1));
    for (size_t i = m->first; i < m->first + m->height && i < m->nlines; i++)
        put_row(m, &l, y + (int)(i - m->first), m->lines[i], i == m->at);
    if (!m->nlines && m->reply)
        screen_text(y, A_DIM, m->filter[0] ? "no row contains the filter's text" : "no jobs");
}

static void put_menu(const struct top_ui *ui, int y, int height)
{
    char line[64], fitted[TOP_LINE];
    size_t shown = (size_t)(height > 2 ? height - 1 : 1);
    size_t first = ui->choice >= shown ? ui->choice - shown + 1 : 0;
    const char *text = top_menu_title(ui);
    for (size_t i = 0; i <= shown && text; i++, text = top_menu_line(ui, first + i - 1)) {
        snprintf(line, sizeof(line), " %s", text);
        attrset(i == 0 ? A_REVERSE | A_BOLD : first + i - 1 == ui->choice ? A_REVERSE : A_NORMAL);
        mvaddstr(y + (int)i, 0,
                 top_fit(fitted, line, (unsigned)min_u64(22, (uint64_t)COLS), false));
    }
    attrset(A_NORMAL);
}

/* Draws the keys, the most important ones first, since a narrow terminal shows only those. */
static void put_keys(const struct top_ui *ui, int y)
{
    static const char *const table[][2] = {
        {"F1", "Help"},   {"F4", "Filter"}, {"F6", "Sort"},  {"F7", "Class"},
        {"F8", "Weight"}, {"p", "Pause"},   {"r", "Resume"}, {"F10", "Quit"},
    };
    static const char *const menu[][2] = {{"Enter", "Choose"}, {"Esc", "Cancel"}};
    const char *const(*all)[2] = ui->mode == TOP_TABLE ? table : menu;
    const size_t n = ui->mode == TOP_TABLE ? ARRAY_SIZE(table) : ARRAY_SIZE(menu);
    char text[TOP_LINE];
    snprintf(text, sizeof(text), "%s%s", top_prompt(ui) ? top_prompt(ui) : "", ui->input);
    screen_text(y, A_BOLD, top_prompt(ui) ? text : "");
    int x = 0;
    for (size_t i = 0; i < n && !top_prompt(ui); i++) {
        int width = (int)(strlen(all[i][0]) + strlen(all[i][1]));
        if (x + width >= COLS)
            break;
        attrset(A_BOLD);
        mvaddstr(y, x, all[i][0]);
        attrset(A_REVERSE);
        addstr(all[i][1]);
        attrset(A_NORMAL);
        x += width;
    }
}

static void put_help(const struct top_ui *ui, int y, int height)
{
    for (int i = 0; i < height; i++) {
        const char *line = top_help_line(ui->help_first + (size_t)i);
        screen_text(y + i, A_NORMAL, line ? line : "");
    }
}

/* Draws the lines of GPUs, which take a third of the screen at most. */
static int put_gpus(const struct top_ui *ui, int y)
{
    const struct top_model *m = &ui->model;
    char line[TOP_LINE];
    unsigned room = (unsigned)(LINES / 3 > 1 ? LINES / 3 : 1);
    unsigned shown = m->ngpus > room ? room - 1 : m->ngpus;
    for (unsigned i = 0; i < shown; i++) {
        top_gpu_line(line, &m->gpus[i], (unsigned)COLS);
        screen_text(y++, A_NORMAL, line);
    }
    if (shown < m->ngpus) {
        snprintf(line, sizeof(line), "and %u more GPUs", m->ngpus - shown);
        screen_text(y++, A_NORMAL, line);
    }
    return y;
}

/* Draws the latest message, else what is wrong with the daemon, else the filter. */
static void put_message(const struct top_ui *ui, int y)
{
    char line[TOP_LINE] = "";
    const bool wrong = !ui->message[0] && ui->source.status[0];
    if (ui->message[0] || wrong)
        snprintf(line, sizeof(line), "%s", wrong ? ui->source.status : ui->message);
    else if (ui->model.filter[0])
        snprintf(line, sizeof(line), "filter: %s", ui->model.filter);
    screen_text(y, A_BOLD | (wrong && coloured ? (attr_t)COLOR_PAIR(PAIR_BAD) : 0), line);
}

void top_draw(struct top_ui *ui)
{
    char line[TOP_LINE];
    const int bottom = LINES - 2;
    erase();
    top_summary(line, &ui->model);
    screen_text(0, A_BOLD, ui->model.reply ? line : "waiting for the first reply");
    int y = LINES >= 6 ? put_gpus(ui, 1) : 1;
    if (ui->mode == TOP_HELP)
        put_help(ui, 1, bottom - 1);
    else
        put_table(ui, y, bottom - y);
    if (top_menu_title(ui))
        put_menu(ui, y, bottom - y);
    put_message(ui, bottom);
    put_keys(ui, LINES - 1);
    refresh();
}
