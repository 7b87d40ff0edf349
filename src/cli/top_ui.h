/* The state of `cede top` on a terminal: what top_keys.c changes and top_draw.c shows. */
#ifndef CEDE_CLI_TOP_UI_H
#define CEDE_CLI_TOP_UI_H

#include "cli/top_model.h"
#include "cli/top_source.h"

enum top_mode { TOP_TABLE, TOP_HELP, TOP_MENU, TOP_PROMPT };
enum top_ask { ASK_SORT, ASK_CLASS, ASK_SIGNAL, ASK_SEARCH, ASK_FILTER, ASK_WEIGHT };

struct top_ui {
    struct top_model model;
    struct top_source source;
    enum top_mode mode;
    enum top_ask ask; /* of a menu or prompt */
    size_t choice;    /* line of the menu */
    unsigned typed;   /* digits of a signal's number */
    char input[TOP_TEXT], before[TOP_TEXT];
    size_t help_first; /* line that is shown first */
    bool utf8, quit, same_pids;
    char message[256]; /* until a key or a time */
    uint64_t message_until_ns, now_ns;
    /* Of what is being done to several rows. */
    unsigned done, failed;
    char failure[256];
    /* Where things are on the screen, for the mouse; top_draw.c says it. */
    int y_header, y_keys;
};

/* Keys of the lowest line: what is shown, and what a click on it does. */
struct top_label {
    const char *key, *text;
    int code;
};
const struct top_label *top_labels(const struct top_ui *ui, size_t *n);

/* Menus. NULL: no such line. */
const char *top_menu_line(const struct top_ui *ui, size_t line);
const char *top_menu_title(const struct top_ui *ui);
/* What a prompt asks for. */
const char *top_prompt(const struct top_ui *ui);
/* NULL: no such line. */
const char *top_help_line(size_t line);

void top_say(struct top_ui *ui, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* What became of an action, as in struct top_source. */
void top_done(void *ui, const struct top_action *a, int code, const char *text);

/* A key of ncurses. */
void top_key(struct top_ui *ui, int key);
/* A click of the mouse: at y on a line of the table, or on the column. */
void top_click_line(struct top_ui *ui, size_t line);
void top_click_header(struct top_ui *ui, enum top_column c);

/* Draws all of it; only what changed reaches the terminal. */
void top_draw(struct top_ui *ui);
void top_draw_start(bool colours);
/* The column at x; TOP_COLUMNS: none. */
enum top_column top_draw_column_at(const struct top_ui *ui, int x);
/* The key of the lowest line at x; 0: none. */
int top_draw_key_at(const struct top_ui *ui, int x);

/* Until a key or a signal ends it. An exit status. */
int top_screen(uint64_t interval_ns);

#endif
