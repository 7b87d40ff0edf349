/* Verbs and messages of test_chaos.c that go wrong: what is no request, clients that say nothing,
 * verbs that are killed in the middle, and several verbs at once. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "chaos.h"

void rubbish(struct load *l)
{
    static char text[80000];
    _cleanup_close_ int fd = chaos.up ? connect_raw(0) : -1;
    size_t n = 0, kind = draw(6), times = kind == 5 ? 50 : 1 + draw(3);
    if (fd < 0)
        return;
    while (times-- > 0) {
        n = (size_t)snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"%s\",\"target\":\"l%u\"}",
                             kind == 4 ? "hints" : "ps", chaos.started);
        if (kind == 0)
            n = draw(n);
        if (kind == 1)
            text[draw(n)] ^= (char)(1U << draw(7));
        if (kind == 2)
            memset(text, '[', n = 1 + draw(sizeof(text) - 1));
        for (size_t i = 0; kind == 3 && i < (n = 1 + draw(300)); i++)
            text[i] = (char)draw(256);
        (void)send(fd, text, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    done(" %zu", kind);
}

void silence(struct load *l)
{
    int *fd = &chaos.silent[draw(SILENT)];
    if (*fd > 0)
        close(*fd);
    *fd = chaos.up ? connect_raw(0) : 0;
}

static const char *const names[] = {"pause", "resume", "swap-out", "swap-in", "ps", "set"};

static pid_t begin_verb(const char *as, const char *name, const struct load *l)
{
    bool set = strcmp(name, "set") == 0;
    pid_t pid = SPAWN(as, "cede", name, pid_text(l->pid), set ? "-c" : NULL, "batch");
    watch(pid, as)->may_end = true;
    return pid;
}

static void end_verb(const char *as, pid_t pid)
{
    char file[32];
    snprintf(file, sizeof(file), "%s.err", as);
    if (finish(pid) > 1)
        fail_msg("%s: %s", as, contents(file));
}

/* A request of which nobody awaits the end: its sender, ceded or both are killed in it. */
void torn(struct load *l)
{
    const char *name = names[draw(ARRAY_SIZE(names))];
    unsigned whom = (unsigned)draw(chaos.up ? 4 : 1);
    char text[96];
    done(" %s %s", name, l->name);
    l->known = false;
    if (chaos.up && draw(2)) {
        _cleanup_close_ int fd = connect_raw(0);
        snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"%s\",\"target\":\"%d\"%s}", name,
                 (int)l->pid, strcmp(name, "set") == 0 ? ",\"weight\":77" : "");
        (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
        usleep((useconds_t)draw(1000));
        if (whom)
            kill_ceded(whom == 3);
        return;
    }
    pid_t pid = begin_verb("torn", name, l);
    usleep((useconds_t)draw(chaos.verb_us * 3 / 2));
    if (whom < 2)
        slay(pid);
    if (whom)
        kill_ceded(whom == 3);
    if (whom >= 2)
        end_verb("torn", pid);
    chaos.clean = false; /* without ceded it may have done it by itself */
}

/* Several at once, about one job or several; ceded begins or dies meanwhile. */
void crowd(struct load *l)
{
    static const char *const as[] = {"crowd0", "crowd1", "crowd2", "crowd3", "crowd4"};
    pid_t pids[ARRAY_SIZE(as)];
    bool was_up = chaos.up;
    for (size_t i = 0; i < ARRAY_SIZE(as); i++) {
        l = any_load();
        l->known = false;
        pids[i] = begin_verb(as[i], names[draw(ARRAY_SIZE(names))], l);
    }
    usleep((useconds_t)draw(chaos.verb_us * 2));
    if (!was_up && draw(2))
        start();
    else if (was_up && draw(2))
        kill_ceded(draw(2));
    for (size_t i = 0; i < ARRAY_SIZE(as); i++)
        end_verb(as[i], pids[i]);
    chaos.clean = false;
}
