/* See targets.h. */
#include "cli/targets.h"

#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/direct.h"
#include "cli/users.h"
#include "lib/json_text.h"
#include "lib/text.h"

int target_parse(const char *verb, const char *text, struct request *r)
{
    char number[JOB_NAME_MAX + 32], user[64];
    struct error err = {""};
    const char *t = text, *name = strchr(text, '/');
    uid_t uid;
    /* Messages have numbers: the client may wait for a directory service, the daemon must not. */
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

static void say_done(const struct request *r, const char *target, const json_t *reply)
{
    const json_t *job = json_object_get(reply, "job");
    char who[TARGET_TEXT];
    snprintf(who, sizeof(who), "%s", target);
    if (json_get_int(job, "number"))
        target_text(who, job);
    const char *class = json_get_text(job, "class");
    if (r->op == OP_SET && !r->release) {
        printf("%s: %s, weight %lld", who, class ? class : "?",
               (long long)json_get_int(job, "weight"));
        json_int_t budget = json_get_int(job, "budget_us");
        if (budget)
            printf(", budget %lld us", (long long)budget);
        json_int_t deadline = json_get_int(job, "deadline_us");
        if (deadline)
            printf(", deadline %g s", (double)deadline / 1e6);
        json_int_t min = json_get_int(job, "gpu_min"), max = json_get_int(job, "gpu_max");
        if (min)
            printf(", gpu-min %lld%%", (long long)min);
        if (max)
            printf(", gpu-max %lld%%", (long long)max);
        if (json_get_text(job, "preempt"))
            printf(", preempted at block ends");
        putchar('\n');
    } else {
        printf("%s: %s\n", who,
               r->op == OP_PAUSE    ? "paused"
               : r->op == OP_RESUME ? "resumed"
                                    : "detached");
    }
    const char *note = json_get_text(reply, "note");
    if (note)
        cli_error("%s: %s", who, note);
}

static void target_error(const char *target, const struct error *err)
{
    size_t n = strlen(target);
    if (strncmp(err->text, target, n) == 0 && err->text[n] == ':')
        cli_error("%s", err->text);
    else
        cli_error("%s: %s", target, err->text);
}

/* Who does it: the daemon, or this process where none runs. */
struct doer {
    struct client client;
    struct direct *direct;
    finish_fn finish; /* NULL: a reply says that it is done */
};

static int doer_open(struct doer *d, finish_fn finish)
{
    struct error err = {""};
    *d = (struct doer){.finish = finish};
    int open = client_open(&d->client, &err);
    if (open == -ENOENT && finish) {
        error_set(&err, open,
                  "no daemon is running, and swapping requires one: start ceded, which also finds "
                  "what an earlier one has swapped out");
    } else if (open == -ENOENT) {
        open = direct_open(&d->direct, &err);
        /* The holder of the journal may be a daemon that has started since. */
        if (open == -EBUSY && client_open(&d->client, NULL) == 0)
            open = 0;
    }
    if (open < 0)
        cli_error("%s", err.text);
    return open;
}

static void doer_close(struct doer *d)
{
    if (d->direct)
        direct_close(d->direct);
    else
        client_close(&d->client);
}

/* Does it for one target, and says what became of it. -EPIPE and -ETIMEDOUT: nobody is there for
 * others. */
static int do_one(struct doer *d, const struct request *r, const char *target)
{
    struct error err = {""};
    json_t *reply;
    int code = d->direct ? direct_do(d->direct, r, &reply, &err)
                         : client_call(&d->client, r, &reply, &err);
    if (code == 0) {
        if (d->finish)
            code = d->finish(&d->client, r, reply, &err);
        else
            say_done(r, target, reply);
        json_decref(reply);
    }
    if (code == 0)
        return 0;
    target_error(target, &err);
    return !d->direct || (code != -EPIPE && code != -ETIMEDOUT) ? code : -EIO;
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
    if (!all) {
        cli_error("out of memory");
        return CLI_FAILED;
    }
    /* All of them before anything is done: looking up a user may take its time. */
    for (int i = 0; i < n && status == CLI_OK; i++) {
        all[i] = *what;
        status = target_parse(verb, targets[i], &all[i]);
    }
    if (status == CLI_OK)
        status = do_all(all, targets, n, finish);
    free(all);
    return status;
}

/* ---- all that no job owns ---- */

static int list_unmanaged(struct doer *d, json_t **out)
{
    struct error err = {""};
    *out = NULL;
    if (d->direct) {
        *out = json_object();
        direct_unmanaged(d->direct, *out);
        return 0;
    }
    int r = client_call(&d->client, &(struct request){.op = OP_PS}, out, &err);
    if (r < 0)
        cli_error("%s", err.text);
    return r;
}

/* A process whose ancestor is in the list too comes into that one's job. */
static bool has_ancestor(const json_t *list, pid_t pid)
{
    const json_t *u;
    size_t i;
    json_array_foreach(list, i, u)
    {
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
    const json_t *list = json_object_get(reply, "unmanaged"), *u;
    struct round n = {.more = (size_t)json_get_int(reply, "unmanaged_more")};
    size_t i;
    json_array_foreach(list, i, u)
    {
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
    /* A reply names so many at most: again, as long as that brings something. */
    do {
        json_t *reply;
        n.gone = list_unmanaged(&d, &reply) < 0;
        if (!n.gone)
            n = set_round(&d, &r, reply);
        json_decref(reply);
        done += n.done;
        failed += n.failed + n.gone;
    } while (n.more && n.done && !n.gone);
    doer_close(&d);
    size_t foreign = n.foreign + n.more;
    if (!done && !failed)
        puts("no unmanaged GPU programs: nothing to set");
    if (n.detached)
        cli_error("%zu GPU program%s detached by -c none: not set", n.detached,
                  n.detached == 1 ? " was" : "s were");
    if (foreign)
        cli_error("%zu GPU program%s: not set; that takes root or the administrators' group",
                  foreign, foreign == 1 ? " belongs to another user" : "s belong to other users");
    return failed ? CLI_FAILED : CLI_OK;
}

int targets_verb(int argc, char **argv, const char *verb, const char *help, enum proto_op op,
                 finish_fn finish)
{
    char program[32];
    const struct request r = {.op = op};
    snprintf(program, sizeof(program), "cede %s", verb);
    const struct command_line line = {.program = program, .help = help};
    int status = options_read(argc, argv, &line, NULL, 0);
    if (status != OPTIONS_GO_ON)
        return status;
    if (optind == argc)
        return cli_usage(verb, "%s: no target given", verb);
    return targets_do(verb, &r, argv + optind, argc - optind, finish);
}
