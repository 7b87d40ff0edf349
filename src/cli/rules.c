/* `cede rules`: lists ceded's rules, or tests them on a process. Changes nothing. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "api/client.h"
#include "base/json_text.h"
#include "base/text.h"
#include "cli/cli.h"

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

#define WAIT_NS (12 * NSEC_PER_SEC) /* ceded waits for 10 s for a program's own facts */
#define NAP_NS  (20L * 1000000)
#define CELL    72 /* characters of a fact */

/* A text of other users, made safe for a terminal and cut to CELL characters. */
static const char *cell_shown(char buf[static CELL * 4], const char *text)
{
    snprintf(buf, CELL * 4, "%.*s%s", CELL, text ? text : "",
             text && strlen(text) > CELL ? "..." : "");
    text_show(buf);
    return buf;
}

static void print_condition(const json_t *c, bool of_process)
{
    char a[CELL * 4], b[CELL * 4], d[CELL * 4];
    const char *name = json_get_text(c, "name"), *seen = json_get_text(c, "seen");
    const json_t *holds = json_object_get(c, "holds");
    printf("    %s%s%s = %s", json_get_text(c, "key"), name ? " " : "", cell_shown(a, name),
           cell_shown(b, json_get_text(c, "wanted")));
    if (of_process && json_is_null(holds))
        printf("   not known yet");
    else if (of_process)
        printf("   %s: it has %s", json_is_true(holds) ? "yes" : "no",
               seen && *seen ? cell_shown(d, seen) : "none that is known");
    putchar('\n');
}

static void print_rule(const json_t *r, bool of_process)
{
    char a[CELL * 4];
    const json_t *matches = json_object_get(r, "matches"), *c;
    const char *class = json_get_text(r, "class"), *warning = json_get_text(r, "warning");
    size_t i;
    const char *group = json_get_text(r, "group"), *promised = json_get_text(r, "promised");
    printf("%s %s%s%s%s%s%s%s%s\n", json_get_text(r, "kind"),
           cell_shown(a, json_get_text(r, "name")), class ? ": class " : "", class ? class : "",
           group ? ", group " : "", group ? group : "", promised ? ", as promised: " : "",
           promised ? promised : "",
           !of_process             ? ""
           : json_is_null(matches) ? "   (not known yet)"
           : json_is_true(matches) ? "   (matches)"
                                   : "   (does not match)");
    json_array_foreach(json_object_get(r, "conditions"), i, c)
    {
        print_condition(c, of_process);
    }
    if (warning)
        printf("    never matches: %s\n", cell_shown(a, warning));
}

static void print_outcome(const json_t *all)
{
    char a[CELL * 4];
    const json_t *o = json_object_get(all, "outcome");
    const char *by = json_get_text(o, "by"), *class = json_get_text(o, "class"),
               *note = json_get_text(o, "note"), *promised = json_get_text(o, "promised");
    const json_int_t job = json_get_int(all, "job");
    printf("process %lld: ", (long long)json_get_int(all, "pid"));
    if (!by)
        printf("not known: it does not let its arguments and environment be read\n");
    else if (strcmp(by, "rule") == 0)
        printf("class %s by rule %s\n", class, cell_shown(a, json_get_text(o, "rule")));
    else if (strcmp(by, "environment") == 0)
        printf("class %s by what it or its pod says (CEDE_CLASS, cede.io/class, a promise)\n",
               class);
    else if (strcmp(by, "others") == 0)
        printf("class %s as all others\n", class);
    else
        printf("no rule matches it, and its environment has no CEDE_CLASS that counts\n");
    if (note)
        printf("    %s\n", note);
    if (promised)
        printf("    Its pod was promised: %s.\n", cell_shown(a, promised));
    if (json_get_true(all, "environment_overwritten"))
        printf("    It has written over its environment, so that its ancestors' counts.\n");
    if (json_get_int(all, "words_of"))
        printf("    It is of what process %lld began, whose CEDE_CLASS it has.\n",
               (long long)json_get_int(all, "words_of"));
    if (job)
        printf("    It is in job #%lld, which rules leave as it is.\n", (long long)job);
}

static void print_all(const json_t *all, bool of_process)
{
    const json_t *r, *others = json_object_get(all, "others");
    size_t i;
    json_array_foreach(json_object_get(all, "rules"), i, r)
    {
        print_rule(r, of_process);
    }
    if (of_process) {
        print_outcome(all);
        return;
    }
    if (json_get_true(all, "environment"))
        printf("no rule: what CEDE_CLASS in its environment asks for, latency excepted\n");
    printf("%s%s\n", json_is_string(others) ? "all others: class " : "all others: in no job",
           json_is_string(others) ? json_string_value(others) : "");
}

/* Asks for all pages, again from the first while a fact is not known. */
static int rules_ask(struct client *c, struct request *r, json_t **all, struct error *err)
{
    const uint64_t until = monotonic_ns() + WAIT_NS;
    int code = 0;
    *all = NULL;
    for (bool more = true; more && code == 0;) {
        json_t *page = NULL;
        code = client_call(c, r, &page, err);
        if (code == 0 && json_get_true(page, "pending") && monotonic_ns() < until) {
            json_decref(page);
            json_decref(*all);
            *all = NULL;
            r->number = 0;
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
            continue;
        }
        json_t *rules = json_object_get(page, "rules");
        const size_t n = json_array_size(rules);
        more = json_get_true(page, "more") && n > 0;
        if (n)
            r->number = (uint64_t)json_get_int(json_array_get(rules, n - 1), "number");
        if (*all)
            json_array_extend(json_object_get(*all, "rules"), rules);
        else if (code == 0)
            *all = json_incref(page);
        json_decref(page);
    }
    return code;
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

    struct client c;
    struct error err = {""};
    json_t *all = NULL;
    int code = client_open(&c, &err);
    if (code == -ENOENT)
        error_set(&err, code, "no daemon is running, so no rules are in force: start ceded");
    if (code == 0) {
        code = rules_ask(&c, &r, &all, &err);
        client_close(&c);
    }
    if (code < 0) {
        json_decref(all);
        cli_error("%s", err.text);
        return CLI_FAILED;
    }
    static const char *const of_message[] = {"v", "ok", "more", "pending"};
    for (size_t i = 0; i < ARRAY_SIZE(of_message); i++)
        json_object_del(all, of_message[i]);
    if (json)
        cli_print_json(all);
    else
        print_all(all, test);
    json_decref(all);
    return CLI_OK;
}
