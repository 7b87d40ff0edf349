/* See source.h. */
#include "cli/top/source.h"

#include <errno.h>
#include <string.h>

#include "base/json_text.h"
#include "base/text.h"
#include "cli/top/text.h"
#include "cli/without_daemon.h"
#include "who/procfs.h"

#define CONNECT_NS (200 * NSEC_PER_MSEC) /* a daemon that accepts no connection costs this long */
#define LATE_NS    (3 * NSEC_PER_SEC)

void top_source_init(struct top_source *s, struct top_model *model)
{
    *s = (struct top_source){.model = model, .client = {.fd = -1}};
}

void top_source_close(struct top_source *s)
{
    client_close(&s->client);
    json_decref(s->partial);
    s->partial = NULL;
}

static void source_status(struct top_source *s, const char *text)
{
    snprintf(s->status, sizeof(s->status), "%s", text);
    text_show(s->status);
}

/* ---- replies ---- */

/* Sets the row's user, and where its process runs if the daemon's pids are those of this namespace.
 */
static void row_facts(struct top_row *r, bool same_pids)
{
    char cgroup[4096];
    r->facts = true;
    user_text(r->user, r->uid);
    if (same_pids && proc_cgroup(r->pid, cgroup, sizeof(cgroup)) == 0)
        top_where(r->where, cgroup);
}

static void source_reply(struct top_source *s, json_t *reply)
{
    struct top_model *m = s->model;
    bool same_pids = !json_get_true(reply, "daemon") || json_get_int(reply, "pid") == s->daemon_pid;
    s->replies++;
    if (top_model_update(m, reply, s->now_ns) < 0)
        return;
    for (size_t i = 0; i < m->nrows; i++) {
        if (!m->rows[i].facts)
            row_facts(&m->rows[i], same_pids);
        top_pod(m->rows[i].where, m->rows[i].entry);
    }
    top_model_arrange(m);
}

static void source_records(struct top_source *s)
{
    struct error left = {""}, err = {""};
    char text[600] = "no daemon is running: these are the jobs on record";
    _cleanup_json_ json_t *reply = NULL;
    if (s->daemon_pid)
        snprintf(text, sizeof(text), "ceded (pid %d) has ended: these are the jobs on record",
                 (int)s->daemon_pid);
    size_t n = strlen(text);
    if (look_records(LOOK_ONLY, &reply, &left, &err) < 0) {
        snprintf(text + n, sizeof(text) - n, ", but: %s", err.text);
        reply = json_pack("{s:[], s:b}", "jobs", "daemon", 0);
    } else if (left.text[0]) {
        snprintf(text + n, sizeof(text) - n, "; %s", left.text);
    } else if (look_others(reply, &err) < 0) {
        snprintf(text + n, sizeof(text) - n,
                 ", without GPU time; programs in no job are not shown: %s", err.text);
    } else {
        snprintf(text + n, sizeof(text) - n, ", without GPU time, wait and speed");
    }
    source_status(s, text);
    s->lost = true;
    source_reply(s, reply);
}

/* ---- actions ---- */

static void source_done(struct top_source *s, int code, const char *text)
{
    const struct request *r = &s->action.request;
    const char *what = code < 0             ? text
                       : r->op == OP_PAUSE  ? "paused"
                       : r->op == OP_RESUME ? "resumed"
                       : r->release         ? "detached"
                                            : "set";
    snprintf(s->message, sizeof(s->message), "%s: %s%s%s", s->action.who, what,
             code == 0 && text[0] ? "; " : "", code == 0 ? text : "");
    s->acting = s->wanted = false;
}

void top_source_act(struct top_source *s, const struct top_row *r, const struct request *what,
                    uint64_t now_ns)
{
    if (s->wanted) {
        snprintf(s->message, sizeof(s->message), "%s: not answered yet; nothing more is done",
                 s->action.who);
        return;
    }
    struct top_action *a = &s->action;
    *a = (struct top_action){.request = *what};
    a->request.number = r->number;
    a->request.pid = r->number ? 0 : r->pid;
    snprintf(a->who, sizeof(a->who), r->number ? "#%llu %.80s" : "pid %llu %.80s",
             r->number ? (unsigned long long)r->number : (unsigned long long)r->pid, r->name);
    s->wanted = true;
    top_source_tick(s, now_ns);
}

/* ---- the connection ---- */

static void source_lose(struct top_source *s, const char *why)
{
    top_source_close(s);
    s->under_way = false;
    if (s->acting)
        source_done(s, -EPIPE, "the daemon has gone without an answer");
    source_status(s, why);
}

/* 0: there is a connection; -ENOENT: no daemon runs; other errors are explained in the status. */
static int source_connect(struct top_source *s)
{
    struct error err = {""};
    if (s->client.fd >= 0)
        return 0;
    int r = client_open_until(&s->client, s->now_ns + CONNECT_NS, &err);
    if (r < 0) {
        source_status(s, err.text);
        return r;
    }
    s->client.until_ns = 0;
    if (s->lost || (s->daemon_pid && s->daemon_pid != s->client.daemon_pid))
        snprintf(s->message, sizeof(s->message), "ceded is there%s (pid %d)",
                 s->daemon_pid ? " again" : "", (int)s->client.daemon_pid);
    s->daemon_pid = s->client.daemon_pid;
    s->lost = false;
    return 0;
}

/* Sends the action if there is one, because a person waits for it, else the request for a reply. */
static void source_send(struct top_source *s)
{
    struct error err = {""};
    if (!s->partial)
        s->ps = (struct request){.op = OP_PS, .brief = true, .sums = true};
    s->acting = s->wanted && !s->partial;
    s->under_way = client_send(&s->client, s->acting ? &s->action.request : &s->ps, &err) == 0;
    s->sent_ns = s->now_ns;
    if (!s->under_way)
        source_lose(s, err.text);
}

void top_source_tick(struct top_source *s, uint64_t now_ns)
{
    s->now_ns = now_ns;
    if (s->under_way) {
        if (now_ns - s->sent_ns > LATE_NS)
            snprintf(s->status, sizeof(s->status), "ceded (pid %d) has not answered for %llu s",
                     (int)s->daemon_pid,
                     (unsigned long long)((now_ns - s->sent_ns) / NSEC_PER_SEC));
        return;
    }
    int r = source_connect(s);
    if (r == 0) {
        source_send(s);
        return;
    }
    if (s->wanted)
        source_done(s, -ENOENT, "no daemon is running to do it");
    if (r == -ENOENT)
        source_records(s);
}

void top_source_ready(struct top_source *s, uint64_t now_ns)
{
    struct error err = {""};
    json_t *reply = NULL;
    bool asked = s->under_way;
    s->now_ns = now_ns;
    int code = client_receive(&s->client, &reply, &err);
    s->under_way = false;
    if (code == -EPIPE || !asked) {
        json_decref(reply);
        source_lose(s, code < 0 ? err.text : "the daemon says what nobody asked");
    } else if (s->acting) {
        const char *note = json_get_text(reply, "note");
        source_done(s, code, code < 0 ? err.text : note ? note : "");
        json_decref(reply);
        source_send(s);    /* the next reply shows the effect */
    } else if (code < 0) { /* refused, as for too many requests: the next tick repeats it */
        source_lose(s, err.text);
    } else if (client_ps_page(&s->partial, reply, &s->ps)) {
        source_send(s);
    } else {
        s->status[0] = '\0';
        source_reply(s, s->partial);
        json_decref(s->partial);
        s->partial = NULL;
        if (s->wanted)
            source_send(s);
    }
}
