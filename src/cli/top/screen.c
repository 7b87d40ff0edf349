/* The loop of `cede top` on a terminal. Signals come through a descriptor, so none interrupts the
 * drawing, and the terminal is restored whichever signal ends the program. */
#include <errno.h>
#include <locale.h>
#include <malloc.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>

#include "cli/cli.h"
#include "cli/top/ui.h"

#define KEPT_BYTES                                                                                 \
    (8 << 20)          /* malloc keeps this much between replies: one of 500 jobs takes 3 MB */
#define ESCAPE_MS 50   /* between the bytes of one key, which may come over a network */
#define SIZE_MOST 1000 /* columns and lines */

/* False: the terminal is gone. */
static bool on_keys(struct top_ui *ui, short events)
{
    int waiting = 0, key;
    if (ioctl(0, FIONREAD, &waiting) < 0 || (waiting == 0 && events & (POLLHUP | POLLERR)))
        return false;
    while ((key = getch()) != ERR && !ui->quit) {
        if (key != KEY_RESIZE)
            top_key(ui, key);
    }
    return true;
}

/* The size is limited, as ncurses counts in short integers and has memory for each character. */
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
        break; /* the program goes on here when SIGCONT has come */
    case SIGCONT:
        endwin(); /* the shell may have changed the terminal's settings */
        on_resize();
        break;
    case SIGWINCH:
        on_resize();
        break;
    default:
        ui->quit = true;
    }
}

/* Blocks the signals and opens their descriptor; signals that were ignored stay ignored. */
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
            top_say(ui, ui->source.message);
            ui->source.message[0] = '\0';
        }
        if (ui->now_ns >= ui->message_until_ns)
            ui->message[0] = '\0';
        if (!ui->source.under_way || ui->source.status[0] || ui->message[0])
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

/* Opens the screen. For a terminal without a description here, common ones are tried. */
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
    struct top_ui ui = {.mode = TOP_TABLE};
    sigset_t before;
    setlocale(LC_CTYPE, "");
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
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
    top_model_init(&ui.model);
    top_source_init(&ui.source, &ui.model);
    top_loop(&ui, signals, interval_ns);
    move(LINES - 1, 0); /* without a second screen the shell goes on below the table */
    clrtoeol();
    refresh();
    endwin();
    delscreen(screen);
    sigprocmask(SIG_SETMASK, &before, NULL);
    top_source_close(&ui.source);
    top_model_free(&ui.model);
    return CLI_OK;
}
