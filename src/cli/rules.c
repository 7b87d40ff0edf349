/* `cede rules`: lists ceded's rules, or tests them on a process. Changes nothing. */
#include <errno.h>
#include <string.h>

#include "api/client.h"
#include "base/json_text.h"
#include "cli/cli.h"
#include "cli/outcome.h"

static const char help[] =
    "usage: cede rules [--json]\n"
    "       cede rules test PID [--json]\n"
    "\n"
    "Lists the rules of cede.conf(5) in their order, those marked that can never match; or says "
    "of\n"
    "a process which rule matches it and why the others do not.\n"
    "\n"
    "      --json  one object: {\"rules\": [...], \"environment\": ..., \"others\": ...}, of a\n"
    "              process also {\"pid\": ..., \"outcome\": {...}}\n"
    "  -h, --help  this text\n"
    "\n"
    "  cede rules\n"
    "  sudo cede rules test 4711\n";

static void print_condition(const json_t *c, bool of_process)
{
    char a[OUTCOME_CELL], b[OUTCOME_CELL], d[OUTCOME_CELL];
    const char *name = json_get_text(c, "name"), *seen = json_get_text(c, "seen");
    const json_t *holds = json_object_get(c, "holds");
    printf("    %s%s%s = %s", json_get_text(c, "key"), name ? " " : "", outcome_cell(a, name),
           outcome_cell(b, json_get_text(c, "wanted")));
    if (of_process && json_is_null(holds))
        printf("   not known yet");
    else if (of_process)
        printf("   %s: it has %s", json_is_true(holds) ? "yes" : "no",
               seen && *seen ? outcome_cell(d, seen) : "none that is known");
    putchar('\n');
}

static void print_rule(const json_t *r, bool of_process)
{
    char a[OUTCOME_CELL];
    const json_t *matches = json_object_get(r, "matches");
    const char *class = json_get_text(r, "class"), *warning = json_get_text(r, "warning");
    const char *group = json_get_text(r, "group"), *promised = json_get_text(r, "promised");
    printf("%s %s%s%s%s%s%s%s%s\n", json_get_text(r, "kind"),
           outcome_cell(a, json_get_text(r, "name")), class ? ": class " : "", class ? class : "",
           group ? ", group " : "", group ? group : "", promised ? ", as promised: " : "",
           promised ? promised : "",
           !of_process             ? ""
           : json_is_null(matches) ? "   (not known yet)"
           : json_is_true(matches) ? "   (matches)"
                                   : "   (does not match)");
    for_each_json (c, json_object_get(r, "conditions"))
        print_condition(c, of_process);
    if (warning)
        printf("    never matches: %s\n", outcome_cell(a, warning));
}

static void print_all(const json_t *all, bool of_process)
{
    const json_t *others = json_object_get(all, "others");
    for_each_json (r, json_object_get(all, "rules"))
        print_rule(r, of_process);
    if (of_process) {
        outcome_print(all);
        return;
    }
    if (json_get_true(all, "environment"))
        printf("no rule: what CEDE_CLASS in its environment asks for, latency excepted\n");
    printf("%s%s\n", json_is_string(others) ? "all others: class " : "all others: in no job",
           json_is_string(others) ? json_string_value(others) : "");
}

int rules_main(int argc, char **argv)
{
    bool json = false;
    const struct option_row options[] = {{"json", .flag = &json}};
    const struct command_line line = {.program = "cede rules", .help = help};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    struct request r = {.op = OP_RULES};
    uint64_t pid = 0;
    if (optind < argc && strcmp(argv[optind], "test") != 0)
        return cli_usage("rules", "rules: '%s' is not test", argv[optind]);
    const bool test = optind < argc;
    if (test && (argc != optind + 2 || parse_u64(argv[optind + 1], 1, INT32_MAX, &pid) < 0))
        return cli_usage("rules", "rules test: one pid is needed");
    r.pid = (pid_t)pid;

    _cleanup_client_ struct client c = {.fd = -1};
    struct error err = {""};
    _cleanup_json_ json_t *all = NULL;
    int code = client_open(&c, &err);
    if (code == -ENOENT)
        error_set(&err, code, "no daemon is running, so no rules are in force: start ceded");
    if (code == 0)
        code = rules_ask(&c, &r, &all, &err);
    if (code < 0)
        return cli_error("%s", err.text);
    static const char *const of_message[] = {"v", "ok", "more", "pending"};
    for (size_t i = 0; i < ARRAY_SIZE(of_message); i++)
        json_object_del(all, of_message[i]);
    if (json)
        cli_print_json(all);
    else
        print_all(all, test);
    return CLI_OK;
}
