/* The keys of `cede top`: htop's where it has them. Draws nothing and reads no terminal. */
#include <errno.h>
#include <ncurses.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#include "cli/targets.h"
#include "cli/top_facts.h"
#include "cli/top_text.h"
#include "cli/top_ui.h"
#include "lib/json_text.h"
#include "lib/text.h"

#define MESSAGE_NS (8 * NSEC_PER_SEC)
#define ESCAPE     27

/* In the order of their need: a narrow terminal has the first ones. */
static const struct top_label labels[] = {
    {"F1", "Help", KEY_F(1)},   {"F3", "Search", KEY_F(3)}, {"F4", "Filter", KEY_F(4)},
    {"F5", "Users", KEY_F(5)},  {"F6", "Sort", KEY_F(6)},   {"F7", "Class", KEY_F(7)},
    {"F8", "Weight", KEY_F(8)}, {"p", "Pause", 'p'},        {"r", "Resume", 'r'},
    {"k", "Kill", 'k'},         {"F10", "Quit", KEY_F(10)}, {"Sp", "Tag", ' '},
};

static const struct top_label menu_labels[] = {{"Enter", "Choose", '\n'},
                                               {"Esc", "Cancel", ESCAPE}};

static const struct {
    int number;
    const char *name;
} signals[] = {
    {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},
    {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}, {SIGCONT, "SIGCONT"},
    {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},
};

static const char *const classes[] = {"latency", "normal", "batch", "none"};

static const char *const help_lines[] = {
    "Jobs that share GPUs, and programs in no job (dimmed).",
    "",
    "F1 h ?       this page                 F10 q        quit",
    "arrows PgUp PgDn Home End j            move",
    "F3 /         search; F3 or n: next     F4 \\         only rows with a text; Esc: all",
    "F5 t         group by user             F6 > < .     sort by; I: the other way round",
    "P M T        sort by share, memory, wait           N: by number",
    "space        tag; U: untag all         what follows is done to all tagged rows",
    "F7 ]         class                     F8 [         weight",
    "p            pause                     r            resume",
    "F9 k         send a signal to the processes of a job",
    "mouse        click on a row, on a title to sort, wheel",
    "",
    "SHARE   GPU time since the last look; 100% is one whole GPU. The bar: of its GPUs",
    "MINUTE  the same in the last minute, newest on the right",
    "WAIT    time in which the job had work and others had the GPU",
    "SPEED   in its MPS server, of what it is alone; ? cannot be told",
    "DUE     in: its work is due in so long; late: by so much; of: time allowed",
    "WHERE   container or unit",
    "STATE   as in `cede ps`; no job: F7 makes it one",
};

const struct top_label *top_labels(const struct top_ui *ui, size_t *n)
{
    bool table = ui->mode == TOP_TABLE;
    *n = table ? ARRAY_SIZE(labels) : ARRAY_SIZE(menu_labels);
    return table ? labels : menu_labels;
}

const char *top_help_line(size_t line)
{
    return line < ARRAY_SIZE(help_lines) ? help_lines[line] : NULL;
}

void top_say(struct top_ui *ui, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(ui->message, sizeof(ui->message), fmt, ap);
    va_end(ap);
    text_show(ui->message);
    ui->message_until_ns = ui->now_ns + MESSAGE_NS;
}

/* ---- menus ---- */

/* The i-th column to sort by. */
static enum top_column sort_column(size_t i)
{
    for (enum top_column c = 0; c < TOP_COLUMNS; c++) {
        if (top_sort_name(c) && i-- == 0)
            return c;
    }
    return TOP_COLUMNS;
}

const char *top_menu_line(const struct top_ui *ui, size_t line)
{
    switch (ui->ask) {
    case ASK_SORT:
        return sort_column(line) < TOP_COLUMNS ? top_sort_name(sort_column(line)) : NULL;
    case ASK_CLASS:
        return line < ARRAY_SIZE(classes) ? classes[line] : NULL;
    case ASK_SIGNAL:
        return line < ARRAY_SIZE(signals) ? signals[line].name : NULL;
    default:
        return NULL;
    }
}

const char *top_menu_title(const struct top_ui *ui)
{
    return ui->ask == ASK_SORT ? "Sort by" : ui->ask == ASK_CLASS ? "Class" : "Send signal";
}

const char *top_prompt(const struct top_ui *ui)
{
    return ui->ask == ASK_SEARCH   ? "Search: "
           : ui->ask == ASK_FILTER ? "Filter: "
                                   : "Weight, 1 to 10000: ";
}

static bool anything_chosen(struct top_ui *ui)
{
    for (size_t i = 0; i < ui->model.nrows; i++) {
        if (ui->model.rows[i]->tagged)
            return true;
    }
    if (!top_model_selected(&ui->model))
        top_say(ui, "no row is selected");
    top_model_select(&ui->model, ui->model.at); /* which it stays, until there is an answer */
    return top_model_selected(&ui->model);
}

static void menu_open(struct top_ui *ui, enum top_ask ask)
{
    if (ask != ASK_SORT && !anything_chosen(ui))
        return;
    const struct top_row *r = top_model_selected(&ui->model);
    const char *now = ask == ASK_SORT    ? top_sort_name(ui->model.sort)
                      : ask == ASK_CLASS ? json_get_text(r ? r->entry : NULL, "class")
                                         : NULL;
    ui->mode = TOP_MENU;
    ui->ask = ask;
    ui->choice = 0;
    ui->typed = 0;
    for (size_t i = 0; now && top_menu_line(ui, i); i++)
        ui->choice = strcmp(top_menu_line(ui, i), now) == 0 ? i : ui->choice;
}

static void prompt_open(struct top_ui *ui, enum top_ask ask)
{
    if (ask == ASK_WEIGHT && !anything_chosen(ui))
        return;
    ui->mode = TOP_PROMPT;
    ui->ask = ask;
    snprintf(ui->input, sizeof(ui->input), "%s", ask == ASK_FILTER ? ui->model.filter : "");
    snprintf(ui->before, sizeof(ui->before), "%s", ui->model.filter);
}

/* ---- what is done to rows ---- */

static void row_who(char buf[static TOP_WHO], const struct top_row *r)
{
    if (r->number)
        snprintf(buf, TOP_WHO, "#%llu %.80s", (unsigned long long)r->number, r->name);
    else
        snprintf(buf, TOP_WHO, "pid %d %.80s", (int)r->pid, r->name);
    text_show(buf);
}

static void act_on(struct top_ui *ui, struct top_row *r, const struct request *what, int signal)
{
    struct top_action a = {.request = *what};
    struct error err = {""};
    int code = 0;
    row_who(a.who, r);
    if (signal) {
        unsigned sent;
        code = ui->same_pids ? top_signal(r, signal, &sent, &err)
                             : error_set(&err, -ESRCH, "its processes have other numbers here");
        ui->done += code == 0;
    } else {
        a.request.number = r->number;
        a.request.pid = r->number ? 0 : r->pid;
        code = top_source_act(&ui->source, &a);
        error_set(&err, code, "out of memory");
    }
    if (code < 0 && !ui->failed++)
        snprintf(ui->failure, sizeof(ui->failure), "%.90s: %.160s", a.who, err.text);
}

static void act_said(struct top_ui *ui)
{
    if (ui->failed > 1)
        top_say(ui, "%s (and %u more failed)", ui->failure, ui->failed - 1);
    else if (ui->failed)
        top_say(ui, "%s", ui->failure);
    else if (ui->done > 1)
        top_say(ui, "%u rows: done", ui->done);
}

static void act(struct top_ui *ui, const struct request *what, int signal)
{
    bool any = false;
    ui->done = ui->failed = 0;
    for (size_t i = 0; i < ui->model.nrows; i++) {
        any |= ui->model.rows[i]->tagged;
        if (ui->model.rows[i]->tagged)
            act_on(ui, ui->model.rows[i], what, signal);
    }
    struct top_row *r = top_model_selected(&ui->model);
    if (!any && !r)
        top_say(ui, "no row is selected");
    else if (!any)
        act_on(ui, r, what, signal);
    if (signal && ui->done == 1)
        top_say(ui, "signal %d was sent", signal);
    if (signal || ui->failed)
        act_said(ui);
    if (!signal)
        top_source_tick(&ui->source, ui->now_ns);
}

void top_done(void *ctx, const struct top_action *a, int code, const char *text)
{
    struct top_ui *ui = ctx;
    const struct request *r = &a->request;
    if (code < 0 && !ui->failed++)
        snprintf(ui->failure, sizeof(ui->failure), "%.90s: %.160s", a->who, text);
    ui->done += code == 0;
    if (code == 0)
        top_say(ui, "%s: %s%s%s", a->who,
                r->op == OP_PAUSE    ? "paused"
                : r->op == OP_RESUME ? "resumed"
                : r->release         ? "detached"
                                     : "set",
                text[0] ? "; " : "", text);
    act_said(ui);
}

static void menu_chosen(struct top_ui *ui)
{
    struct request r = {.op = OP_SET};
    ui->mode = TOP_TABLE;
    if (ui->ask == ASK_SORT) {
        ui->model.sort = sort_column(ui->choice);
        ui->model.inverted = false;
        top_model_arrange(&ui->model);
    } else if (ui->ask == ASK_SIGNAL) {
        act(ui, &r, ui->typed ? (int)ui->typed : signals[ui->choice].number);
    } else if (request_text(&r, "class", classes[ui->choice], NULL) == 0) {
        act(ui, &r, 0);
    }
}

static void menu_digit(struct top_ui *ui, int key)
{
    unsigned n = ui->typed * 10 + (unsigned)(key - '0');
    ui->typed = n <= 64 ? n : (unsigned)(key - '0');
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        ui->choice = (unsigned)signals[i].number == ui->typed ? i : ui->choice;
}

static void menu_key(struct top_ui *ui, int key)
{
    size_t n = 0;
    while (top_menu_line(ui, n))
        n++;
    if (n && (key == KEY_UP || key == KEY_DOWN)) {
        ui->choice = (ui->choice + (key == KEY_UP ? n - 1 : 1)) % n;
        ui->typed = 0;
    } else if (key == '\n' || key == KEY_ENTER) {
        menu_chosen(ui);
    } else if (key == ESCAPE || key == 'q' || key == KEY_F(10)) {
        ui->mode = TOP_TABLE;
    } else if (ui->ask == ASK_SIGNAL && key >= '0' && key <= '9') {
        menu_digit(ui, key);
    } else if (ui->ask == ASK_CLASS) {
        for (size_t i = n; i > 0; i--) /* n: normal, not none */
            ui->choice = classes[i - 1][0] == key ? i - 1 : ui->choice;
    }
}

/* ---- prompts ---- */

static void prompt_changed(struct top_ui *ui)
{
    if (ui->ask == ASK_FILTER) {
        snprintf(ui->model.filter, sizeof(ui->model.filter), "%s", ui->input);
        top_model_arrange(&ui->model);
    } else if (ui->ask == ASK_SEARCH && ui->input[0] &&
               !top_model_search(&ui->model, ui->input, false)) {
        top_say(ui, "nothing holds '%s'", ui->input);
    }
}

static void prompt_enter(struct top_ui *ui)
{
    struct request r = {.op = OP_SET};
    struct error err = {""};
    ui->mode = TOP_TABLE;
    if (ui->ask != ASK_WEIGHT || !ui->input[0])
        return;
    if (request_text(&r, "weight", ui->input, &err) < 0)
        top_say(ui, "%s", err.text);
    else
        act(ui, &r, 0);
}

static void prompt_key(struct top_ui *ui, int key)
{
    size_t n = strlen(ui->input);
    if (key == '\n' || key == KEY_ENTER) {
        prompt_enter(ui);
    } else if (key == ESCAPE) {
        ui->mode = TOP_TABLE;
        ui->input[0] = '\0';
        if (ui->ask == ASK_FILTER)
            prompt_changed(ui);
    } else if (key == KEY_F(3) && ui->ask == ASK_SEARCH) {
        top_model_search(&ui->model, ui->input, true);
    } else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && n) {
        do
            n--;
        while (n && ((unsigned char)ui->input[n] & 0xc0) == 0x80);
        ui->input[n] = '\0';
        prompt_changed(ui);
    } else if (key >= ' ' && key < 256 && key != 127 && n + 1 < sizeof(ui->input)) {
        ui->input[n] = (char)key;
        ui->input[n + 1] = '\0';
        prompt_changed(ui);
    }
}

/* ---- the table ---- */

static void table_tag(struct top_ui *ui)
{
    struct top_row *r = top_model_selected(&ui->model);
    if (r)
        r->tagged = !r->tagged;
    top_model_move(&ui->model, 1);
}

static bool key_moves(struct top_ui *ui, int key)
{
    struct top_model *m = &ui->model;
    long page = (long)max_u64(m->height, 2) - 1;
    long by = key == KEY_UP || key == KEY_SR                   ? -1
              : key == KEY_DOWN || key == 'j' || key == KEY_SF ? 1
              : key == KEY_PPAGE                               ? -page
              : key == KEY_NPAGE                               ? page
              : key == KEY_HOME                                ? -(long)m->nlines
              : key == KEY_END                                 ? (long)m->nlines
                                                               : 0;
    if (by)
        top_model_move(m, by);
    return by;
}

static bool key_sorts(struct top_ui *ui, int key)
{
    enum top_column by = key == 'P'   ? TOP_SHARE
                         : key == 'M' ? TOP_MEM
                         : key == 'T' ? TOP_WAIT
                         : key == 'N' ? TOP_JOB
                                      : TOP_COLUMNS;
    if (by < TOP_COLUMNS) {
        ui->model.sort = by;
        ui->model.inverted = false;
    } else if (key == 'I') {
        ui->model.inverted = !ui->model.inverted;
    } else if (key == KEY_F(5) || key == 't') {
        ui->model.grouped = !ui->model.grouped;
    } else {
        return false;
    }
    top_model_arrange(&ui->model);
    return true;
}

static void key_changes(struct top_ui *ui, int key)
{
    switch (key) {
    case ' ':
        table_tag(ui);
        break;
    case 'U':
        top_model_untag(&ui->model);
        break;
    case 'p':
        act(ui, &(struct request){.op = OP_PAUSE}, 0);
        break;
    case 'r':
        act(ui, &(struct request){.op = OP_RESUME}, 0);
        break;
    case 'k':
    case KEY_F(9):
        menu_open(ui, ASK_SIGNAL);
        break;
    case KEY_F(7):
    case ']':
        menu_open(ui, ASK_CLASS);
        break;
    case KEY_F(8):
    case '[':
        prompt_open(ui, ASK_WEIGHT);
        break;
    }
}

static void table_key(struct top_ui *ui, int key)
{
    if (key_moves(ui, key) || key_sorts(ui, key))
        return;
    switch (key) {
    case KEY_F(1):
    case 'h':
    case '?':
        ui->mode = TOP_HELP;
        ui->help_first = 0;
        break;
    case KEY_F(3):
    case '/':
        prompt_open(ui, ASK_SEARCH);
        break;
    case 'n':
        top_model_search(&ui->model, ui->ask == ASK_SEARCH ? ui->input : "", true);
        break;
    case KEY_F(4):
    case '\\':
        prompt_open(ui, ASK_FILTER);
        break;
    case ESCAPE:
        ui->model.filter[0] = '\0';
        top_model_arrange(&ui->model);
        break;
    case KEY_F(6):
    case '>':
    case '<':
    case '.':
        menu_open(ui, ASK_SORT);
        break;
    case KEY_F(10):
    case 'q':
        ui->quit = true;
        break;
    default:
        key_changes(ui, key);
    }
}

void top_key(struct top_ui *ui, int key)
{
    key = key == '\r' ? '\n' : key;
    ui->message[0] = '\0';
    if (ui->mode == TOP_MENU)
        menu_key(ui, key);
    else if (ui->mode == TOP_PROMPT)
        prompt_key(ui, key);
    else if (ui->mode == TOP_TABLE)
        table_key(ui, key);
    else if (key == KEY_DOWN && top_help_line(ui->help_first + 1))
        ui->help_first++;
    else if (key == KEY_UP && ui->help_first)
        ui->help_first--;
    else if (key != KEY_UP && key != KEY_DOWN)
        ui->mode = TOP_TABLE;
}

void top_click_line(struct top_ui *ui, size_t line)
{
    if (ui->mode == TOP_TABLE && line < ui->model.nlines)
        top_model_select(&ui->model, line);
}

void top_click_header(struct top_ui *ui, enum top_column c)
{
    if (ui->mode == TOP_TABLE)
        top_model_sort(&ui->model, c == TOP_BAR || c == TOP_MINUTE ? TOP_SHARE : c);
}
