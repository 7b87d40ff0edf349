/* The keys of `cede top`, htop's where it has them. Draws nothing and reads no terminal. */
#include <ncurses.h>
#include <string.h>

#include "base/json_text.h"
#include "cli/top/text.h"
#include "cli/top/ui.h"

#define MESSAGE_NS (8 * NSEC_PER_SEC)
#define ESCAPE     27

static const char *const classes[] = {"latency", "normal", "batch", "none"};

static const char *const help_lines[] = {
    "Jobs that share GPUs, and programs in no job (dimmed).",
    "",
    "F1 h ?       this page                 F10 q        quit",
    "arrows PgUp PgDn Home End j            move",
    "F4 \\ /       only rows with a text     Esc          all rows",
    "F6 > < .     sort by                   I            the other way round",
    "P M T        sort by share, memory, wait           N: by number",
    "F7 ]         class                     F8 [         weight",
    "p            pause                     r            resume",
    "",
    "SHARE   GPU time since the last look; 100% is one whole GPU. The bar: of its GPUs",
    "WAIT    time in which the job had work and others had the GPU",
    "SPEED   in its MPS server, of what it is alone; ? cannot be told",
    "DUE     in: its work is due in so long; late: by so much; of: time allowed",
    "WHERE   pod, container or unit",
    "STATE   as in `cede ps`; no job: F7 makes it one",
};

const char *top_help_line(size_t line)
{
    return line < ARRAY_SIZE(help_lines) ? help_lines[line] : NULL;
}

void top_say(struct top_ui *ui, const char *text)
{
    snprintf(ui->message, sizeof(ui->message), "%s", text);
    ui->message_until_ns = ui->now_ns + MESSAGE_NS;
}

/* The selected row, which the selection follows from now on, so that it is the one that changes. */
static struct top_row *chosen(struct top_ui *ui)
{
    if (!top_model_selected(&ui->model))
        top_say(ui, "no row is selected");
    top_model_select(&ui->model, ui->model.at);
    return top_model_selected(&ui->model);
}

static void act(struct top_ui *ui, const struct request *what)
{
    const struct top_row *r = chosen(ui);
    if (r)
        top_source_act(&ui->source, r, what, ui->now_ns);
}

/* ---- menus ---- */

/* The i-th column to sort by. */
static enum top_column sort_column(size_t i)
{
    enum top_column c = 0;
    while (c < TOP_COLUMNS && (!top_sort_name(c) || i-- > 0))
        c++;
    return c;
}

const char *top_menu_title(const struct top_ui *ui)
{
    return ui->mode == TOP_SORT ? "Sort by" : ui->mode == TOP_SET_CLASS ? "Class" : NULL;
}

const char *top_menu_line(const struct top_ui *ui, size_t line)
{
    if (ui->mode == TOP_SET_CLASS)
        return line < ARRAY_SIZE(classes) ? classes[line] : NULL;
    return sort_column(line) < TOP_COLUMNS ? top_sort_name(sort_column(line)) : NULL;
}

static void menu_open(struct top_ui *ui, int mode)
{
    const struct top_row *r = mode == TOP_SORT ? NULL : chosen(ui);
    if (mode == TOP_SET_CLASS && !r)
        return;
    const char *now = r ? json_get_text(r->entry, "class") : top_sort_name(ui->model.sort);
    ui->mode = (enum top_mode)mode;
    ui->choice = 0;
    for (size_t i = 0; now && top_menu_line(ui, i); i++)
        ui->choice = strcmp(top_menu_line(ui, i), now) == 0 ? i : ui->choice;
}

static void sort_by(struct top_ui *ui, int column)
{
    ui->model.sort = (enum top_column)column;
    ui->model.inverted = false;
    top_model_arrange(&ui->model);
}

static void menu_chosen(struct top_ui *ui)
{
    struct request r = {.op = OP_SET};
    if (ui->mode == TOP_SORT)
        sort_by(ui, (int)sort_column(ui->choice));
    else if (request_text(&r, "class", classes[ui->choice], NULL) == 0)
        act(ui, &r);
    ui->mode = TOP_TABLE;
}

static void menu_key(struct top_ui *ui, int key)
{
    size_t n = 0;
    while (top_menu_line(ui, n))
        n++;
    if (n && (key == KEY_UP || key == KEY_DOWN))
        ui->choice = (ui->choice + (key == KEY_UP ? n - 1 : 1)) % n;
    else if (key == '\n' || key == KEY_ENTER)
        menu_chosen(ui);
    else if (key == ESCAPE || key == 'q' || key == KEY_F(10))
        ui->mode = TOP_TABLE;
    for (size_t i = n; i > 0 && ui->mode == TOP_SET_CLASS; i--) /* n: normal, not none */
        ui->choice = classes[i - 1][0] == key ? i - 1 : ui->choice;
}

/* ---- prompts ---- */

const char *top_prompt(const struct top_ui *ui)
{
    return ui->mode == TOP_FILTER       ? "Filter: "
           : ui->mode == TOP_SET_WEIGHT ? "Weight, 1 to 10000: "
                                        : NULL;
}

static void prompt_open(struct top_ui *ui, int mode)
{
    if (mode == TOP_SET_WEIGHT && !chosen(ui))
        return;
    ui->mode = (enum top_mode)mode;
    snprintf(ui->input, sizeof(ui->input), "%s", mode == TOP_FILTER ? ui->model.filter : "");
}

static void filter_set(struct top_ui *ui, const char *text)
{
    snprintf(ui->model.filter, sizeof(ui->model.filter), "%s", text);
    top_model_arrange(&ui->model);
}

static void weight_set(struct top_ui *ui)
{
    struct request r = {.op = OP_SET};
    struct error err = {""};
    if (request_text(&r, "weight", ui->input, &err) < 0)
        top_say(ui, err.text);
    else
        act(ui, &r);
}

static void prompt_key(struct top_ui *ui, int key)
{
    const enum top_mode mode = ui->mode;
    size_t n = strlen(ui->input);
    if (key == '\n' || key == KEY_ENTER) {
        ui->mode = TOP_TABLE;
        if (mode == TOP_SET_WEIGHT && n)
            weight_set(ui);
        return;
    }
    if (key == ESCAPE) {
        ui->mode = TOP_TABLE;
        n = 0;
    } else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && n) {
        do
            n--;
        while (n && ((unsigned char)ui->input[n] & 0xc0) == 0x80);
    } else if (key >= ' ' && key < 256 && key != 127 && n + 1 < sizeof(ui->input)) {
        ui->input[n++] = (char)key;
    }
    ui->input[n] = '\0';
    if (mode == TOP_FILTER)
        filter_set(ui, ui->input);
}

/* ---- the table ---- */

#define FAR 1000000 /* more lines than there are */

static void move_lines(struct top_ui *ui, int by)
{
    top_model_move(&ui->model, by);
}

static void move_pages(struct top_ui *ui, int by)
{
    top_model_move(&ui->model, by * ((long)max_u64(ui->model.height, 2) - 1));
}

static void invert(struct top_ui *ui, int arg)
{
    ui->model.inverted = !ui->model.inverted;
    top_model_arrange(&ui->model);
}

static void all_rows(struct top_ui *ui, int arg)
{
    filter_set(ui, "");
}

static void act_now(struct top_ui *ui, int op)
{
    act(ui, &(struct request){.op = (enum proto_op)op});
}

static void show_help(struct top_ui *ui, int arg)
{
    ui->mode = TOP_HELP;
    ui->help_first = 0;
}

static void quit(struct top_ui *ui, int arg)
{
    ui->quit = true;
}

static const struct {
    int key;
    const char * or ; /* characters that do the same */
    void (*does)(struct top_ui *ui, int arg);
    int arg;
} keys[] = {
    {KEY_UP, "", move_lines, -1},
    {KEY_DOWN, "j", move_lines, 1},
    {KEY_HOME, "", move_lines, -FAR},
    {KEY_END, "", move_lines, FAR},
    {KEY_PPAGE, "", move_pages, -1},
    {KEY_NPAGE, "", move_pages, 1},
    {'P', "", sort_by, TOP_SHARE},
    {'M', "", sort_by, TOP_MEM},
    {'T', "", sort_by, TOP_WAIT},
    {'N', "", sort_by, TOP_JOB},
    {'I', "", invert, 0},
    {KEY_F(6), "<>.", menu_open, TOP_SORT},
    {KEY_F(4), "\\/", prompt_open, TOP_FILTER},
    {ESCAPE, "", all_rows, 0},
    {KEY_F(7), "]", menu_open, TOP_SET_CLASS},
    {KEY_F(8), "[", prompt_open, TOP_SET_WEIGHT},
    {'p', "", act_now, OP_PAUSE},
    {'r', "", act_now, OP_RESUME},
    {KEY_F(1), "h?", show_help, 0},
    {KEY_F(10), "q", quit, 0},
};

static void table_key(struct top_ui *ui, int key)
{
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        if (keys[i].key == key || (key > 0 && key < 128 && strchr(keys[i].or, key)))
            keys[i].does(ui, keys[i].arg);
    }
}

void top_key(struct top_ui *ui, int key)
{
    key = key == '\r' ? '\n' : key;
    ui->message[0] = '\0';
    if (top_menu_title(ui))
        menu_key(ui, key);
    else if (top_prompt(ui))
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
