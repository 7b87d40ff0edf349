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

#define GRACE_NS  (5 * NSEC_PER_SEC) /* from SIGTERM to SIGKILL, and then until it gives up */
#define PASSES    20                 /* a group that grows meanwhile is looked at so often */
#define LOOK_NS   (20 * NSEC_PER_MSEC)
#define PID_LIMIT (4U << 20) /* all pids are below: PID_MAX_LIMIT of Linux */

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

struct member {
    struct proc_id id;
    bool sure; /* it was listed after its start time was read, so the pid was not another's */
    bool done;
};

static struct member *find_member(const struct signalled *s, struct proc_id id)
{
    for (size_t i = 0; i < s->n; i++) {
        if (proc_same(s->v[i].id, id))
            return &s->v[i];
    }
    return NULL;
}

/* Adds the members that are not in `to` yet. Returns how many, or -errno. */
static int gather(struct signalled *to, int (*list)(struct pid_list *out, void *arg), void *arg)
{
    _cleanup_(pid_list_free) struct pid_list pids = {0};
    int r = list(&pids, arg), fresh = 0;
    for (size_t i = 0; r == 0 && i < pids.n; i++) {
        struct proc_stat st;
        if (pids.v[i] == getpid() || proc_stat_read(pids.v[i], &st) < 0 || st.kernel ||
            proc_ended(&st))
            continue;
        struct member *known = find_member(to, st.id);
        if (known) {
            known->sure = true;
            continue;
        }
        struct member *v = reallocarray(to->v, to->n + 1, sizeof(*v));
        if (!v)
            return -ENOMEM;
        to->v = v;
        to->v[to->n++] = (struct member){.id = st.id};
        fresh++;
    }
    return r < 0 ? r : fresh;
}

int signals_send(struct signalled *to, int signal, int (*list)(struct pid_list *out, void *arg),
                 void *arg)
{
    const unsigned before = to->found;
    int r = 1;
    /* All are found before the first one ends, since its end may cut the others off. */
    for (int i = 0; i < PASSES && r > 0; i++)
        r = gather(to, list, arg);
    for_each (x, to->v, to->n) {
        if (!x->sure || x->done)
            continue;
        const int sent = proc_signal(x->id, signal);
        x->done = true;
        to->found++;
        to->sent += sent == 0;
        to->refused += sent == -EPERM;
    }
    return r < 0 ? r : (int)(to->found - before);
}

void signalled_free(struct signalled *s)
{
    free(s->v);
    *s = (struct signalled){NULL, 0, 0, 0, 0};
}

/* Each path upwards is climbed once, and then its processes lead to its end. */
static int list_descendants(struct pid_list *out, void *arg)
{
    _cleanup_free_ pid_t *pids = NULL;
    pid_t *up = calloc(PID_LIMIT, sizeof(*up));
    const pid_t self = getpid();
    size_t n = 0;
    int r = up ? proc_list(&pids, &n) : -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        struct proc_stat st;
        if (pids[i] != self && proc_stat_read(pids[i], &st) == 0)
            up[pids[i]] = st.ppid;
    }
    for (size_t i = 0; r == 0 && i < n; i++) {
        pid_t top = pids[i];
        /* A pid that was reused meanwhile may close a loop. */
        for (size_t steps = 0; up[top] && steps < n; steps++)
            top = up[top];
        for (pid_t p = pids[i], next; p != top; p = next) {
            next = up[p];
            up[p] = top;
        }
        if (top == self && pids[i] != self)
            r = pid_list_push(out, pids[i]);
    }
    free(up);
    return r;
}

unsigned signals_end_descendants(void)
{
    unsigned all = 0;
    static const int with[] = {SIGTERM, SIGKILL};
    for (size_t i = 0; i < ARRAY_SIZE(with); i++) {
        _cleanup_(signalled_free) struct signalled s = {NULL, 0, 0, 0, 0};
        const uint64_t until_ns = monotonic_ns() + GRACE_NS;
        bool left = true;
        while (left && monotonic_ns() < until_ns) {
            _cleanup_(signalled_free) struct signalled look = {NULL, 0, 0, 0, 0};
            while (waitpid(-1, NULL, WNOHANG) > 0)
                ;
            left = signals_send(&s, with[i], list_descendants, NULL) >= 0 &&
                   signals_send(&look, 0, list_descendants, NULL) > 0;
            if (left)
                nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        }
        all = s.found > all ? s.found : all;
        if (!left)
            break;
    }
    return all;
}
