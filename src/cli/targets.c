/* See targets.h. */
#include "cli/targets.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "api/client.h"
#include "api/job_terms.h"
#include "base/json_text.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/transient.h"
#include "who/users.h"

int target_parse(const char *verb, const char *text, struct request *r)
{
    char number[JOB_NAME_MAX + 32], user[64];
    struct error err = {""};
    const char *t = text, *name = strchr(text, '/');
    uid_t uid;
    /* Users are sent as numbers, because the daemon must not wait for a directory service. */
    if (name && name > text && (size_t)(name - text) < sizeof(user) &&
        strspn(text, "0123456789") != (size_t)(name - text)) {
        snprintf(user, sizeof(user), "%.*s", (int)(name - text), text);
        if (!user_find(user, &uid))
            return cli_usage(verb, "'%s': there is no user %s", text, user);
        snprintf(number, sizeof(number), "%u%s", uid, name);
        t = number;
    } else if (text[0] == '%' && text[1] && strspn(text + 1, "0123456789") == strlen(text + 1)) {
        snprintf(number, sizeof(number), "#%s", text + 1);
        t = number;
    }
    if (proto_target(t, r, &err) < 0)
        return cli_usage(verb, "'%s': %s", text, err.text);
    return CLI_OK;
}

const char *target_text(char buf[static TARGET_TEXT], const json_t *job)
{
    char user[USER_TEXT];
    const char *name = json_get_text(job, "name");
    bool other = user_is_other(job);
    snprintf(buf, TARGET_TEXT, "#%lld %s%s%s", (long long)json_get_int(job, "number"),
             name ? name : "", other ? " of user " : "",
             other ? user_text(user, (uid_t)json_get_int(job, "uid")) : "");
    text_show(buf);
    return buf;
}

const char *memory_away(const json_t *job)
{
    if (!json_text_is(job, "state", "swapped"))
        return NULL;
    return json_get_true(json_object_get(job, "yielded"), "memory")
               ? "its memory is in host memory, as it was yielded: `cede acquire` brings it back"
           : json_get_true(job, "swap_by_user")
               ? "its memory was swapped out by hand: `cede swap in` brings it back"
               : "its memory is in host memory for a latency job: it comes back when there is "
                 "room, or by `cede swap in`";
}

void say_memory_away(const json_t *job)
{
    char who[TARGET_TEXT];
    if (memory_away(job))
        cli_error("%s: %s", target_text(who, job), memory_away(job));
}

bool say_vain(const json_t *job, const json_t *reply)
{
    char who[TARGET_TEXT];
    const char *note = json_get_text(reply, "note");
    const bool vain = json_get_true(reply, "vain");
    if (vain) {
        cli_error("%s: %s", target_text(who, job), note ? note : "nothing to do");
        say_memory_away(job);
    }
    return vain;
}

static void say_done(const struct request *r, const char *target, const json_t *reply)
{
    const json_t *job = json_object_get(reply, "job");
    char who[TARGET_TEXT];
    snprintf(who, sizeof(who), "%s", target);
    if (json_get_int(job, "number"))
        target_text(who, job);
    const char *class = json_get_text(job, "class");
    if (say_vain(job, reply))
        return;
    if (r->op == OP_SET && !r->release) {
        printf("%s: %s, weight %lld", who, class ? class : "?",
               (long long)json_get_int(job, "weight"));
        const struct term *t;
        for (unsigned i = 0; (t = term_at(i)); i++) {
            const json_t *v = json_object_get(job, t->key);
            if (t->said && (json_is_string(v) || json_integer_value(v)))
                printf(t->said, (double)json_integer_value(v) / t->per);
        }
        putchar('\n');
    } else {
        printf("%s: %s\n", who, r->release ? "detached" : proto_op_done(r->op));
    }
    const char *note = json_get_text(reply, "note");
    if (note)
        cli_error("%s: %s", who, note);
    if (r->op == OP_RESUME)
        say_memory_away(job);
}

static void target_error(const char *target, const struct error *err)
{
    size_t n = strlen(target);
    if (strncmp(err->text, target, n) == 0 && err->text[n] == ':')
        cli_error("%s", err->text);
    else
        cli_error("%s: %s", target, err->text);
}

/* A daemon that has just started finds the GPU programs within this time. */
#define FRESH_NS      NSEC_PER_SEC
#define LOOK_AGAIN_MS 20

/* The daemon that serves the requests, which is started if none runs. */
struct doer {
    struct client client;
    struct transient transient;
    finish_fn finish; /* NULL: the request is done when its reply comes */
};

static int doer_open(struct doer *d, finish_fn finish)
{
    struct error err = {""};
    *d = (struct doer){.transient = TRANSIENT_NONE, .finish = finish};
    const int r = transient_connect(&d->transient, NULL, &d->client, 0, &err);
    if (r < 0) {
        transient_close(&d->transient);
        cli_error("%s", err.text);
    }
    return r;
}

static void doer_close(struct doer *d)
{
    client_close(&d->client);
    transient_close(&d->transient);
}

/* A transient daemon that leaves after its last job has not carried out a request that it does not
 * answer, so the request goes to another daemon. */
static int doer_call(struct doer *d, const struct request *r, json_t **reply, struct error *err)
{
    int code = client_call(&d->client, r, reply, err);
    if (code != -EPIPE)
        return code;
    client_close(&d->client);
    code = transient_connect(&d->transient, NULL, &d->client, 0, err);
    return code < 0 ? -EPIPE : client_call(&d->client, r, reply, err);
}

/* Sends the request for one target, and prints the outcome. -EPIPE and -ETIMEDOUT: no daemon
 * answers, so other targets are pointless. */
static int do_one(struct doer *d, const struct request *r, const char *target)
{
    struct error err = {""};
    _cleanup_json_ json_t *reply = NULL;
    int code = doer_call(d, r, &reply, &err);
    if (code == 0 && d->finish)
        code = d->finish(&d->client, r, reply, &err);
    else if (code == 0)
        say_done(r, target, reply);
    if (code < 0)
        target_error(target, &err);
    return code == 0 && json_get_true(reply, "failed") ? -EIO : code; /* the note has said it */
}

static int do_all(const struct request *all, char *const *targets, int n, finish_fn finish)
{
    struct doer d;
    if (doer_open(&d, finish) < 0)
        return CLI_FAILED;
    int status = CLI_OK;
    for (int i = 0; i < n; i++) {
        int code = do_one(&d, &all[i], targets[i]);
        status = code < 0 ? CLI_FAILED : status;
        if (code == -EPIPE || code == -ETIMEDOUT)
            break;
    }
    doer_close(&d);
    return status;
}

int targets_do(const char *verb, const struct request *what, char *const *targets, int n,
               finish_fn finish)
{
    struct request *all = calloc((size_t)n, sizeof(*all));
    int status = CLI_OK;
    if (!all)
        return cli_error("out of memory");
    /* All targets are parsed before any request, since looking up a user may take long. */
    for (int i = 0; i < n && status == CLI_OK; i++) {
        all[i] = *what;
        status = target_parse(verb, targets[i], &all[i]);
    }
    if (status == CLI_OK)
        status = do_all(all, targets, n, finish);
    free(all);
    return status;
}

/* ---- programs in no job ---- */

static int list_unmanaged(struct doer *d, json_t **out)
{
    const uint64_t until_ns = d->transient.none_ns ? d->transient.none_ns + FRESH_NS : 0;
    struct error err = {""};
    int r;
    *out = NULL;
    while ((r = doer_call(d, &(struct request){.op = OP_PS}, out, &err)) == 0 &&
           !json_array_size(json_object_get(*out, "unmanaged")) && monotonic_ns() < until_ns) {
        json_decref(*out);
        *out = NULL;
        poll(NULL, 0, LOOK_AGAIN_MS);
    }
    if (r < 0)
        cli_error("%s", err.text);
    return r;
}

/* Whether an ancestor of the process is in the list, too: the process then joins that one's job. */
static bool has_ancestor(const json_t *list, pid_t pid)
{
    for_each_json (u, list) {
        pid_t other = (pid_t)json_get_int(u, "pid");
        if (other != pid && json_get_true(u, "may_set") && !json_get_true(u, "detached") &&
            proc_in_tree(pid, other))
            return true;
    }
    return false;
}

struct round {
    size_t done, failed, foreign, detached, more;
    bool gone; /* no daemon is there any more */
};

static struct round set_round(struct doer *d, struct request *r, const json_t *reply)
{
    const json_t *list = json_object_get(reply, "unmanaged");
    struct round n = {.more = (size_t)json_get_int(reply, "unmanaged_more")};
    for_each_json (u, list) {
        char target[24];
        r->pid = (pid_t)json_get_int(u, "pid");
        snprintf(target, sizeof(target), "%d", (int)r->pid);
        if (json_get_true(u, "detached")) {
            n.detached++;
        } else if (!json_get_true(u, "may_set")) {
            n.foreign++;
        } else if (!n.gone && !has_ancestor(list, r->pid)) {
            int code = do_one(d, r, target);
            n.gone = code == -EPIPE || code == -ETIMEDOUT;
            *(code < 0 ? &n.failed : &n.done) += 1;
        }
    }
    return n;
}

int targets_do_others(const struct request *what)
{
    struct request r = *what;
    struct doer d;
    struct round n = {.done = 0};
    size_t done = 0, failed = 0;
    if (doer_open(&d, NULL) < 0)
        return CLI_FAILED;
    /* A reply names a limited number of programs, so rounds go on while they set any. */
    do {
        _cleanup_json_ json_t *reply = NULL;
        n.gone = list_unmanaged(&d, &reply) < 0;
        if (!n.gone)
            n = set_round(&d, &r, reply);
        done += n.done;
        failed += n.failed + n.gone;
    } while (n.more && n.done && !n.gone);
    doer_close(&d);
    size_t foreign = n.foreign + n.more;
    if (!done && !failed)
        puts("no unmanaged GPU programs: nothing to set");
    if (n.detached)
        cli_error("%zu GPU program%s detached by hand: not set", n.detached,
                  n.detached == 1 ? " was" : "s were");
    if (foreign && geteuid() == 0) /* users ask for theirs */
        cli_error("%zu GPU program%s: not set; that takes root or the administrators' group",
                  foreign, foreign == 1 ? " belongs to another user" : "s belong to other users");
    return failed ? CLI_FAILED : CLI_OK;
}

int targets_none(const char *verb)
{
    return cli_usage(verb, "%s: no target given; a shell takes #12 for a comment: write %%12",
                     verb);
}

int targets_verb(int argc, char **argv, const char *verb, const char *help,
                 const struct request *what, finish_fn finish)
{
    char program[32];
    snprintf(program, sizeof(program), "cede %s", verb);
    const struct command_line line = {.program = program, .help = help};
    int status = options_read(argc, argv, &line, NULL, 0);
    if (status != OPTIONS_GO_ON)
        return status;
    if (optind == argc)
        return targets_none(verb);
    return targets_do(verb, what, argv + optind, argc - optind, finish);
}
