/* The state of `cede top` on a terminal, which keys.c changes and draw.c shows. */
#ifndef CEDE_CLI_TOP_UI_H
#define CEDE_CLI_TOP_UI_H

#include "cli/top/model.h"
#include "cli/top/source.h"

enum top_mode { TOP_TABLE, TOP_HELP, TOP_SORT, TOP_SET_CLASS, TOP_FILTER, TOP_SET_WEIGHT };

struct top_ui {
    struct top_model model;
    struct top_source source;
    enum top_mode mode;
    size_t choice;        /* line of the menu */
    char input[TOP_TEXT]; /* of the prompt */
    size_t help_first;    /* line that is shown first */
    bool quit;
    char message[256]; /* shown until a key, or message_until_ns */
    uint64_t message_until_ns, now_ns;
};

/* The title of the mode's menu, and its prompt; NULL: the mode has none. */
const char *top_menu_title(const struct top_ui *ui);
const char *top_prompt(const struct top_ui *ui);
/* A line of the menu or the help; NULL: there is no such line. */
const char *top_menu_line(const struct top_ui *ui, size_t line);
const char *top_help_line(size_t line);

void top_say(struct top_ui *ui, const char *text);

/* Handles a key of ncurses. */
void top_key(struct top_ui *ui, int key);

/* Draws all of it; only what changed reaches the terminal. */
void top_draw(struct top_ui *ui);
void top_draw_start(bool colours);

/* Runs until a key or a signal ends it. Returns an exit status. */
int top_screen(uint64_t interval_ns);

#endif
