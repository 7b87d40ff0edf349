/* `cede policy`: shows or changes the daemon's policy and its parameters. */
#include <errno.h>
#include <string.h>

#include "api/client.h"
#include "api/replies.h"
#include "base/json_text.h"
#include "cli/cli.h"
#include "plan/sched.h"

static const char help[] =
    "usage: cede policy [NAME] [KEY=VALUE]... [--json]\n"
    "\n"
    "Lists the policies, the current one marked, and their parameters; or makes NAME the current\n"
    "one and sets parameters (cede.conf(5)) until ceded reads its configuration again or ends.\n"
    "\n"
    "      --json  one object: {\"policy\": ..., \"policies\": [...], \"params\": {...}}\n"
    "  -h, --help  this text\n"
    "\n"
    "  cede policy\n"
    "  sudo cede policy shares\n"
    "  sudo cede policy priority rotation_us=500000\n";

static void print_list(const json_t *reply)
{
    for_each_json (p, json_object_get(reply, "policies")) {
        const char *name = json_get_text(p, "name");
        const char *summary = json_get_text(p, "summary");
        if (name)
            printf("%c %-10s %s\n", json_text_is(reply, "policy", name) ? '*' : ' ', name,
                   summary ? summary : "");
    }
    const char *key;
    json_t *p;
    json_object_foreach (json_object_get(reply, "params"), key, p) {
        const struct param *f = param_find(key); /* NULL: of another release */
        char set[80];
        snprintf(set, sizeof(set), "%s=%.10g", key, json_number_value(p));
        printf("  %-28s %s\n", set, f ? f->help : "");
    }
}

/* Puts NAME or KEY=VALUE into the request. CLI_OK, or CLI_USAGE after a message. */
static int argument(const char *arg, struct request *r)
{
    const char *value = strchr(arg, '=');
    if (!value) {
        if (r->name[0])
            return cli_usage("policy", "policy: one name at most");
        if (!proto_name_ok(arg))
            return cli_usage("policy", "bad policy name '%s': `cede policy` lists the policies",
                             arg);
        snprintf(r->name, sizeof(r->name), "%s", arg);
        return CLI_OK;
    }
    char key[64];
    double v = 0;
    struct error err = {""};
    snprintf(key, sizeof(key), "%.*s", (int)min_u64((uint64_t)(value - arg), sizeof(key) - 1), arg);
    const struct param *f = param_find(key);
    char range[PARAM_RANGE];
    if (f && parse_double(value + 1, 0, UINT32_MAX, &v) < 0)
        return cli_usage("policy", "%s: '%s' is not a number: %s is allowed", key, value + 1,
                         param_range(f, range));
    if (request_param(r, key, v, &err) < 0)
        return cli_usage("policy", "%s", err.text);
    return CLI_OK;
}

int policy_main(int argc, char **argv)
{
    bool json = false;
    const struct option_row options[] = {{"json", .flag = &json}};
    const struct command_line line = {.program = "cede policy", .help = help};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    struct request r = {.op = OP_POLICY};
    for (; optind < argc; optind++) {
        status = argument(argv[optind], &r);
        if (status != CLI_OK)
            return status;
    }
    bool changes = r.name[0] || r.params;

    struct error err = {""};
    _cleanup_json_ json_t *reply = NULL;
    int code = client_ask(&r, &reply, &err);
    if (code == -ENOENT && !changes) {
        cli_error("no daemon is running");
        reply = json_pack("{s:n, s:o}", "policy", "policies", policies_json());
        code = reply ? 0 : error_set(&err, -ENOMEM, "out of memory");
    } else if (code == -ENOENT) {
        error_set(&err, code, "no daemon is running, so there is no policy to change: start ceded");
    }
    if (code < 0) {
        cli_error("%s", err.text);
        return code == -EINVAL ? CLI_USAGE : CLI_FAILED;
    }
    json_object_del(reply, "v");
    json_object_del(reply, "ok");
    const char *current = json_get_text(reply, "policy");
    if (json)
        cli_print_json(reply);
    else if (changes)
        printf("policy: %s\n", current ? current : r.name);
    else
        print_list(reply);
    return CLI_OK;
}
