/* `cede top` on a terminal: the loop. Signals come as readable events, so nothing interrupts the
 * drawing, and the terminal is as it was whatever ends the program. */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <malloc.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>

#include "cli/cli.h"
#include "cli/top_facts.h"
#include "cli/top_ui.h"

#define KEPT_BYTES                                                                                 \
    (8 << 20)             /* not given back between two replies: a reply of 500 jobs takes 3 MB */
#define ESCAPE_MS    50   /* between the bytes of a key, over a network */
#define MOUSE_EVENTS 8    /* that ncurses keeps */
#define SIZE_MOST    1000 /* columns and lines */
#ifdef BUTTON5_PRESSED
#define WHEEL_DOWN BUTTON5_PRESSED
#else
#define WHEEL_DOWN 0 /* older ones do not report it */
#endif

static void on_reply(void *ctx, json_t *reply)
{
    struct top_ui *ui = ctx;
    ui->same_pids = top_source_same_pids(&ui->source, reply);
    if (top_model_update(&ui->model, reply, ui->now_ns) < 0)
        return;
    top_facts(&ui->model, ui->same_pids);
    top_model_arrange(&ui->model);
}

static void on_click(struct top_ui *ui, int x, int y)
{
    enum top_column column = y == ui->y_header ? top_draw_column_at(ui, x) : TOP_COLUMNS;
    int key = y == ui->y_keys ? top_draw_key_at(ui, x) : 0;
    if (key)
        top_key(ui, key);
    else if (column < TOP_COLUMNS)
        top_click_header(ui, column);
    else if (y > ui->y_header && y <= ui->y_header + (int)ui->model.height)
        top_click_line(ui, ui->model.first + (size_t)(y - ui->y_header - 1));
}

/* One key may stand for several events, which ncurses hands out with the last one first. */
static void on_mouse(struct top_ui *ui)
{
    MEVENT v[MOUSE_EVENTS];
    int n = 0;
    while (n < MOUSE_EVENTS && getmouse(&v[n]) == OK)
        n++;
    while (n-- > 0) {
        if (v[n].bstate & BUTTON4_PRESSED)
            top_key(ui, KEY_UP);
        else if (v[n].bstate & WHEEL_DOWN)
            top_key(ui, KEY_DOWN);
        else
            on_click(ui, v[n].x, v[n].y);
    }
}

/* False: the terminal is gone. */
static bool on_keys(struct top_ui *ui, short events)
{
    int waiting = 0, key;
    if (ioctl(0, FIONREAD, &waiting) < 0 || (waiting == 0 && events & (POLLHUP | POLLERR)))
        return false;
    while ((key = getch()) != ERR && !ui->quit) {
        if (key == KEY_MOUSE)
            on_mouse(ui);
        else if (key != KEY_RESIZE)
            top_key(ui, key);
    }
    return true;
}

/* ncurses reckons with short numbers, and has memory for each place of the screen. */
static void on_resize(void)
{
    struct winsize w;
    if (ioctl(1, TIOCGWINSZ, &w) == 0 && w.ws_row && w.ws_col)
        resizeterm((int)min_u64(w.ws_row, SIZE_MOST), (int)min_u64(w.ws_col, SIZE_MOST));
    clearok(curscr, TRUE);
}

static void on_event(struct top_ui *ui, int fd)
{
    struct signalfd_siginfo s;
    if (read(fd, &s, sizeof(s)) != (ssize_t)sizeof(s))
        return;
    switch (s.ssi_signo) {
    case SIGTSTP:
        endwin();
        raise(SIGSTOP);
        break; /* it goes on from here, with SIGCONT */
    case SIGCONT:
        endwin(); /* a shell may have set the terminal as it likes it */
        on_resize();
        break;
    case SIGWINCH:
        on_resize();
        break;
    default:
        ui->quit = true;
    }
}

/* Those that were ignored stay so. */
static int signals_open(sigset_t *before)
{
    static const int wanted[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        struct sigaction now;
        if (sigaction(wanted[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&set, wanted[i]);
    }
    sigprocmask(SIG_BLOCK, &set, before);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void top_loop(struct top_ui *ui, int signals, uint64_t interval_ns)
{
    uint64_t due = monotonic_ns();
    while (!ui->quit) {
        ui->now_ns = monotonic_ns();
        if (ui->now_ns >= due) {
            top_source_tick(&ui->source, ui->now_ns);
            due += interval_ns * (1 + (ui->now_ns - due) / interval_ns);
        }
        if (ui->source.message[0]) {
            top_say(ui, "%s", ui->source.message);
            ui->source.message[0] = '\0';
        }
        if (ui->now_ns >= ui->message_until_ns)
            ui->message[0] = '\0';
        if (!ui->source.under_way || ui->source.status[0])
            top_draw(ui);
        struct pollfd fds[] = {{.fd = 0, .events = POLLIN},
                               {.fd = signals, .events = POLLIN},
                               {.fd = ui->source.client.fd, .events = POLLIN}};
        uint64_t now = monotonic_ns();
        int ms = now >= due ? 0 : (int)((due - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC);
        if (poll(fds, ARRAY_SIZE(fds), ms) < 0 && errno != EINTR)
            return;
        ui->now_ns = monotonic_ns();
        if (fds[1].revents)
            on_event(ui, signals);
        if (fds[2].revents)
            top_source_ready(&ui->source, ui->now_ns);
        if (fds[0].revents && !on_keys(ui, fds[0].revents))
            return;
        if (fds[0].revents || fds[1].revents)
            top_draw(ui);
    }
}

/* A terminal that is not known here understands what most do. */
static SCREEN *screen_open(void)
{
    const char *names[] = {getenv("TERM"), "xterm-256color", "xterm", "vt100", "ansi"};
    SCREEN *screen = NULL;
    if (!names[0] || !names[0][0] || strcmp(names[0], "dumb") == 0) {
        cli_error("TERM says that this terminal cannot show `cede top`: try `cede top --once`");
        return NULL;
    }
    use_env(FALSE); /* on_resize() says how large it is */
    for (size_t i = 0; i < ARRAY_SIZE(names) && !screen; i++)
        screen = newterm(names[i], stdout, stdin);
    if (!screen)
        cli_error("no description of the terminal '%s', nor of any other, is in /etc/terminfo, "
                  "/lib/terminfo or /usr/share/terminfo: try `cede top --once`",
                  names[0]);
    return screen;
}

int top_screen(uint64_t interval_ns)
{
    struct top_ui ui = {.y_header = -1};
    sigset_t before;
    setlocale(LC_CTYPE, "");
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    ui.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    _cleanup_close_ int signals = signals_open(&before);
    SCREEN *screen = signals >= 0 ? screen_open() : NULL;
    if (!screen)
        return CLI_FAILED;
    on_resize();
    const char *no_color = getenv("NO_COLOR");
    top_draw_start(!no_color || !no_color[0]);
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    set_escdelay(ESCAPE_MS);
    curs_set(0);
    mousemask(BUTTON1_PRESSED | BUTTON4_PRESSED | WHEEL_DOWN, NULL);
    mouseinterval(0); /* no waiting for the release, or a second click */
    top_model_init(&ui.model);
    top_source_init(&ui.source);
    ui.source.ctx = &ui;
    ui.source.reply = on_reply;
    ui.source.done = top_done;
    top_loop(&ui, signals, interval_ns);
    move(LINES - 1, 0); /* where there is no second screen, the shell goes on below the table */
    clrtoeol();
    refresh();
    endwin();
    delscreen(screen);
    sigprocmask(SIG_SETMASK, &before, NULL);
    top_source_close(&ui.source);
    top_model_free(&ui.model);
    return CLI_OK;
}
