/* See targets.h. */
#include "cli/targets.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/direct.h"

int target_parse(const char *verb, const char *text, struct request *r)
{
    char number[32];
    struct error err = {""};
    const char *t = text;
    if (text[0] == '%' && text[1] && strspn(text + 1, "0123456789") == strlen(text + 1)) {
        snprintf(number, sizeof(number), "#%s", text + 1);
        t = number;
    }
    if (proto_target(t, r, &err) < 0)
        return cli_usage(verb, "'%s': %s", text, err.text);
    return CLI_OK;
}

static void say_done(const struct request *r, const char *target, const json_t *reply)
{
    const json_t *job = json_object_get(reply, "job");
    const char *name = json_string_value(json_object_get(job, "name"));
    json_int_t number = json_integer_value(json_object_get(job, "number"));
    char who[128];
    if (number)
        snprintf(who, sizeof(who), "#%lld %s", (long long)number, name ? name : "");
    else
        snprintf(who, sizeof(who), "%s", target);
    const char *class = json_string_value(json_object_get(job, "class"));
    if (r->op == OP_SET && !r->release) {
        printf("%s: %s, weight %lld", who, class ? class : "?",
               (long long)json_integer_value(json_object_get(job, "weight")));
        json_int_t budget = json_integer_value(json_object_get(job, "budget_us"));
        if (budget)
            printf(", budget %lld us", (long long)budget);
        json_int_t deadline = json_integer_value(json_object_get(job, "deadline_us"));
        if (deadline)
            printf(", due after %g s", (double)deadline / 1e6);
        putchar('\n');
    } else {
        printf("%s: %s\n", who,
               r->op == OP_PAUSE    ? "paused"
               : r->op == OP_RESUME ? "resumed"
                                    : "let go");
    }
    const char *note = json_string_value(json_object_get(reply, "note"));
    if (note)
        cli_error("%s: %s", who, note);
}

void target_error(const char *target, const struct error *err)
{
    size_t n = strlen(target);
    if (strncmp(err->text, target, n) == 0 && err->text[n] == ':')
        cli_error("%s", err->text);
    else
        cli_error("%s: %s", target, err->text);
}

int targets_do(const char *verb, const struct request *what, char *const *targets, int n)
{
    struct request r = *what;
    struct error err = {""};
    for (int i = 0; i < n; i++) {
        if (target_parse(verb, targets[i], &r) != CLI_OK)
            return CLI_USAGE;
    }
    struct client c;
    struct direct *d = NULL;
    int open = client_open(&c, &err);
    if (open == -ENOENT) {
        open = direct_open(&d, &err);
        /* Who has the journal may be a daemon that has come up since. */
        if (open == -EBUSY && client_open(&c, NULL) == 0)
            open = 0;
    }
    if (open < 0) {
        cli_error("%s", err.text);
        return CLI_FAILED;
    }
    int status = CLI_OK;
    for (int i = 0; i < n; i++) {
        json_t *reply;
        target_parse(verb, targets[i], &r);
        int code = d ? direct_do(d, &r, &reply, &err) : client_call(&c, &r, &reply, &err);
        if (code == 0) {
            say_done(&r, targets[i], reply);
            json_decref(reply);
            continue;
        }
        target_error(targets[i], &err);
        status = CLI_FAILED;
        if (!d && (code == -EPIPE || code == -ETIMEDOUT))
            break; /* nobody is there for the others */
    }
    if (d)
        direct_close(d);
    else
        client_close(&c);
    return status;
}

bool targets_given(int argc, char **argv, const char *verb, const char *help, int *status)
{
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    *status = CLI_OK;
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        if (c == 'h')
            fputs(help, stdout);
        else
            *status = cli_usage(verb, NULL);
        return false;
    }
    if (optind == argc)
        *status = cli_usage(verb, "%s: no target given", verb);
    return optind < argc;
}
