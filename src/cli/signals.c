/* See signals.h. */
#include "cli/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE_NS (5 * NSEC_PER_SEC) /* from SIGTERM to SIGKILL, and then until it gives up */
#define PASSES   20                 /* a group that grows meanwhile is looked at so often */
#define LOOK_NS  (20 * NSEC_PER_MSEC)

static const struct {
    const char *name;
    int number;
} names[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"KILL", SIGKILL},
             {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM}, {"CONT", SIGCONT},
             {"STOP", SIGSTOP}, {"ALRM", SIGALRM}, {"ABRT", SIGABRT}};

int signals_read(void *to, const char *name, const char *text, struct error *err)
{
    const char *plain = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
    uint64_t number;
    int found = parse_u64(text, 1, (uint64_t)SIGRTMAX, &number) == 0 ? (int)number : 0;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        found = strcasecmp(plain, names[i].name) == 0 ? names[i].number : found;
    *(int *)to = found;
    return found ? 0
                 : error_set(err, -EINVAL, "%s: '%s' is not a signal such as TERM, KILL, INT or 15",
                             name, text);
}

const char *signals_name(int signal, char buf[static 16])
{
    snprintf(buf, 16, "signal %d", signal);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (names[i].number == signal)
            snprintf(buf, 16, "SIG%s", names[i].name);
    }
    return buf;
}

static bool is_in(const struct signalled *s, struct proc_id id)
{
    for (size_t i = 0; i < s->n; i++) {
        if (proc_same(s->v[i], id))
            return true;
    }
    return false;
}

/* Adds the members that are not in `to` yet. Returns how many, or -errno. */
static int gather(struct signalled *to, bool (*is_member)(const struct proc_stat *st, void *arg),
                  void *arg)
{
    _cleanup_free_ pid_t *pids = NULL;
    size_t n;
    int r = proc_list(&pids, &n), fresh = 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct proc_stat st;
        if (pids[i] == getpid() || proc_stat_read(pids[i], &st) < 0 || st.kernel ||
            proc_ended(&st) || is_in(to, st.id) || !is_member(&st, arg))
            continue;
        struct proc_id *v = reallocarray(to->v, to->n + 1, sizeof(*v));
        if (!v)
            return -ENOMEM;
        to->v = v;
        to->v[to->n++] = st.id;
        fresh++;
    }
    return r < 0 ? r : fresh;
}

int signals_send(struct signalled *to, int signal,
                 bool (*is_member)(const struct proc_stat *st, void *arg), void *arg)
{
    const size_t before = to->n;
    int r = 1;
    /* All are found before the first one ends, since its end may cut the others off. */
    for (int i = 0; i < PASSES && r > 0; i++)
        r = gather(to, is_member, arg);
    for (size_t i = before; i < to->n; i++) {
        const int sent = proc_signal(to->v[i], signal);
        to->sent += sent == 0;
        to->refused += sent == -EPERM;
    }
    return r < 0 ? r : (int)(to->n - before);
}

void signalled_free(struct signalled *s)
{
    free(s->v);
    *s = (struct signalled){NULL, 0, 0, 0};
}

static bool is_descendant(const struct proc_stat *st, void *arg)
{
    return proc_in_tree(st->id.pid, getpid());
}

unsigned signals_end_descendants(void)
{
    unsigned all = 0;
    static const int with[] = {SIGTERM, SIGKILL};
    for (size_t i = 0; i < ARRAY_SIZE(with); i++) {
        _cleanup_(signalled_free) struct signalled s = {NULL, 0, 0, 0};
        const uint64_t until_ns = monotonic_ns() + GRACE_NS;
        bool left = true;
        while (left && monotonic_ns() < until_ns) {
            _cleanup_(signalled_free) struct signalled look = {NULL, 0, 0, 0};
            while (waitpid(-1, NULL, WNOHANG) > 0)
                ;
            left = signals_send(&s, with[i], is_descendant, NULL) >= 0 &&
                   signals_send(&look, 0, is_descendant, NULL) > 0;
            if (left)
                nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        }
        all = s.n > all ? (unsigned)s.n : all;
        if (!left)
            break;
    }
    return all;
}
