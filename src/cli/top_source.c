/* See top_source.h. */
#include "cli/top_source.h"

#include <errno.h>
#include <string.h>

#include "cli/look.h"
#include "lib/json_text.h"
#include "lib/text.h"

#define CONNECT_NS (200 * NSEC_PER_MSEC) /* for a daemon that accepts nobody */
#define LATE_NS    (3 * NSEC_PER_SEC)

void top_source_init(struct top_source *s)
{
    *s = (struct top_source){.client = {.fd = -1}};
}

void top_source_close(struct top_source *s)
{
    client_close(&s->client);
    json_decref(s->partial);
    free(s->actions);
    top_source_init(s);
}

static void source_status(struct top_source *s, const char *text)
{
    snprintf(s->status, sizeof(s->status), "%s", text);
    text_show(s->status);
}

/* ---- without a daemon ---- */

static void source_records(struct top_source *s)
{
    struct error left = {""}, err = {""};
    char text[600] = "no daemon is running: these are the jobs on record";
    json_t *reply = NULL;
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
        snprintf(text + n, sizeof(text) - n, ", without GPU time; programs in no job: %s",
                 err.text);
    } else {
        snprintf(text + n, sizeof(text) - n, ", without GPU time, wait and speed");
    }
    source_status(s, text);
    s->lost = true;
    if (reply)
        s->reply(s->ctx, reply);
    json_decref(reply);
}

static void source_refuse(struct top_source *s)
{
    for (size_t i = 0; i < s->nactions; i++)
        s->done(s->ctx, &s->actions[i], -ENOENT, "no daemon is running to do it");
    s->nactions = 0;
}

/* ---- the connection ---- */

static void source_lose(struct top_source *s)
{
    client_close(&s->client);
    json_decref(s->partial);
    s->partial = NULL;
    s->under_way = false;
    if (s->acting)
        s->done(s->ctx, &s->actions[0], -EPIPE, "the daemon has gone without an answer");
    if (s->acting)
        memmove(s->actions, s->actions + 1, --s->nactions * sizeof(*s->actions));
    s->acting = false;
}

/* 0: there is a connection; -ENOENT: no daemon; another: why not is in the status. */
static int source_connect(struct top_source *s, uint64_t now_ns)
{
    struct error err = {""};
    if (s->client.fd >= 0)
        return 0;
    int r = client_open_until(&s->client, now_ns + CONNECT_NS, &err);
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

/* Actions first: a person waits for them. */
static void source_send(struct top_source *s, uint64_t now_ns)
{
    struct error err = {""};
    if (!s->partial)
        s->ps = (struct request){.op = OP_PS, .brief = true};
    s->acting = s->nactions && !s->partial;
    s->under_way = client_send(&s->client, s->acting ? &s->actions[0].request : &s->ps, &err) == 0;
    s->sent_ns = now_ns;
    if (s->under_way)
        return;
    source_lose(s);
    source_status(s, err.text);
}

void top_source_tick(struct top_source *s, uint64_t now_ns)
{
    if (s->under_way) {
        if (now_ns - s->sent_ns > LATE_NS)
            snprintf(s->status, sizeof(s->status), "ceded (pid %d) has not answered for %llu s",
                     (int)s->daemon_pid,
                     (unsigned long long)((now_ns - s->sent_ns) / NSEC_PER_SEC));
        return;
    }
    int r = source_connect(s, now_ns);
    if (r == 0) {
        source_send(s, now_ns);
    } else {
        source_refuse(s);
        if (r == -ENOENT)
            source_records(s);
    }
}

static void source_done(struct top_source *s, json_t *reply, int code, const struct error *err)
{
    const char *note = json_get_text(reply, "note");
    struct top_action a = s->actions[0];
    memmove(s->actions, s->actions + 1, --s->nactions * sizeof(*s->actions));
    s->acting = false;
    s->done(s->ctx, &a, code, code < 0 ? err->text : note ? note : "");
    json_decref(reply);
}

void top_source_ready(struct top_source *s, uint64_t now_ns)
{
    struct error err = {""};
    json_t *reply;
    bool asked = s->under_way, acting = s->acting;
    int code = client_receive(&s->client, &reply, &err);
    s->under_way = false;
    if (code == -EPIPE || !asked) {
        if (code == 0)
            json_decref(reply);
        source_lose(s);
        source_status(s, code < 0 ? err.text : "the daemon says what nobody asked");
        return;
    }
    if (acting) {
        source_done(s, reply, code, &err);
        source_send(s, now_ns); /* the next one, or to see what it did */
        return;
    }
    if (code < 0) { /* a refusal, such as of too many requests: again with the next tick */
        source_lose(s);
        source_status(s, err.text);
        return;
    }
    if (client_ps_page(&s->partial, reply, &s->ps)) {
        source_send(s, now_ns);
        return;
    }
    s->status[0] = '\0';
    s->reply(s->ctx, s->partial);
    json_decref(s->partial);
    s->partial = NULL;
    if (s->nactions)
        source_send(s, now_ns);
}

int top_source_act(struct top_source *s, const struct top_action *a)
{
    struct top_action *all = reallocarray(s->actions, s->nactions + 1, sizeof(*all));
    if (!all)
        return -ENOMEM;
    s->actions = all;
    all[s->nactions++] = *a;
    return 0;
}

bool top_source_same_pids(const struct top_source *s, const json_t *reply)
{
    return !json_get_true(reply, "daemon") || json_get_int(reply, "pid") == s->daemon_pid;
}
