/* See identify_process.h. */
#include "daemon/identify_process.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "api/rules/match.h"
#include "api/rules/rule_lint.h"
#include "base/child.h"
#include "base/log.h"
#include "base/loop_poll.h"

#define START_AGAIN_NS NSEC_PER_SEC

static void unlink_it(struct identifier *x)
{
    if (!x->pid)
        return;
    loop_poll_stop(&x->poll);
    close_p(&x->link);
    x->link = -1;
}

static void on_identified(uv_poll_t *p, int status, int events)
{
    static struct identify_answer a;
    struct identifier *x = p->data;
    bool any = false, late = false;
    for (unsigned i = 0; i < LOOKUPS_SENT; i++) {
        ssize_t n = recv(x->link, &a, sizeof(a), MSG_DONTWAIT);
        if (n == 0)
            uv_poll_stop(p); /* cede-identify has ended: SIGCHLD does the rest */
        if (n <= 0)
            break;
        late |= lookups_take(x->lookups, &a, (size_t)n, monotonic_ns());
        any = true;
    }
    if (any)
        x->answered(x->arg, late);
}

static int identifier_start(struct identifier *x)
{
    if (monotonic_ns() < x->start_at)
        return -EAGAIN;
    x->start_at = monotonic_ns() + START_AGAIN_NS;
    const struct child_spec spec = {.file = CHILD_SELF,
                                    .argv = (const char *const[]){"cede-identify", NULL},
                                    .session = true,
                                    .fresh = true};
    x->link = child_start_linked(&spec, CHILD_SOCKET, IDENTIFY_LINK_FD, &x->pid);
    if (x->link < 0)
        return x->link;
    int r = loop_poll_start(x->loop, x->link, UV_READABLE, on_identified, x, &x->poll);
    if (r < 0)
        unlink_it(x); /* at which it ends */
    return r;
}

static int identifier_send(void *arg, const void *message, size_t n)
{
    struct identifier *x = arg;
    int r = x->pid ? 0 : identifier_start(x);
    if (r < 0 && r != -EAGAIN)
        log_say(LOG_WARNING,
                "cannot start cede-identify, without which CEDE_CLASS and some rules have no "
                "effect: %s",
                strerror(-r));
    if (r < 0)
        return r;
    return send(x->link, message, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n ? 0 : -EAGAIN;
}

int identifier_init(struct identifier *x, uv_loop_t *loop, void (*answered)(void *arg, bool late),
                    void *arg)
{
    *x = (struct identifier){.loop = loop, .link = -1, .answered = answered, .arg = arg};
    x->lookups = lookups_new(identifier_send, x);
    x->identities = identities_new();
    return x->lookups && x->identities ? 0 : -ENOMEM;
}

void identifier_use(struct identifier *x, struct rule_list *l, const struct config *c,
                    struct principals *principals)
{
    char wanted[IDENTIFY_WANTED];
    *l = (struct rule_list){.rules = c->rules,
                            .n = x->loop ? c->nrules : 0,
                            .principals = principals,
                            .pool_batch = c->pool != POOL_OF_NONE,
                            .pool_latency = c->pool == POOL_OF_LATENCY,
                            .pool_latency_sm = c->pool_latency_sm,
                            .environment = x->loop && c->environment,
                            .identities = x->identities,
                            .lookups = x->lookups};
    rules_warn(l, "cede.conf");
    if (x->lookups)
        lookups_want(x->lookups, (struct pairs){wanted, classify_wants(l, wanted, sizeof(wanted))});
}

void identifier_reap(struct identifier *x)
{
    int status;
    if (!x->pid || waitpid(x->pid, &status, WNOHANG) != x->pid)
        return;
    log_say(LOG_WARNING,
            "cede-identify (pid %d), which reads what programs say of themselves, has ended; "
            "another follows",
            (int)x->pid);
    unlink_it(x);
    x->pid = 0;
    lookups_again(x->lookups, monotonic_ns());
}

void identifier_free(struct identifier *x)
{
    unlink_it(x);
    lookups_free(x->lookups);
    identities_free(x->identities);
    x->lookups = NULL;
    x->identities = NULL;
}
