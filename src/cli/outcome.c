/* See outcome.h. */
#include "cli/outcome.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json_text.h"
#include "base/text.h"

#define WAIT_NS (12 * NSEC_PER_SEC) /* ceded waits for 10 s for a program's own facts */
#define NAP_NS  (20L * 1000000)

#define CHARACTERS (OUTCOME_CELL / 4)

const char *outcome_cell(char buf[static OUTCOME_CELL], const char *text)
{
    snprintf(buf, OUTCOME_CELL, "%.*s%s", CHARACTERS, text ? text : "",
             text && strlen(text) > CHARACTERS ? "..." : "");
    text_show(buf);
    return buf;
}

void outcome_print(const json_t *all)
{
    char a[OUTCOME_CELL];
    const json_t *o = json_object_get(all, "outcome");
    const char *by = json_get_text(o, "by"), *class = json_get_text(o, "class"),
               *note = json_get_text(o, "note"), *promised = json_get_text(o, "promised");
    const json_int_t job = json_get_int(all, "job");
    printf("process %lld: ", (long long)json_get_int(all, "pid"));
    if (!by)
        printf("not known: it does not let its arguments and environment be read\n");
    else if (strcmp(by, "rule") == 0)
        printf("class %s by rule %s\n", class, outcome_cell(a, json_get_text(o, "rule")));
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
        printf("    Its pod was promised: %s.\n", outcome_cell(a, promised));
    if (json_get_true(all, "environment_overwritten"))
        printf("    It has written over its environment, so that its ancestors' counts.\n");
    if (json_get_int(all, "words_of"))
        printf("    It is of what process %lld began, whose CEDE_CLASS it has.\n",
               (long long)json_get_int(all, "words_of"));
    if (job)
        printf("    It is in job #%lld, which rules leave as it is.\n", (long long)job);
}

int rules_ask(struct client *c, struct request *r, json_t **all, struct error *err)
{
    const uint64_t until = monotonic_ns() + WAIT_NS;
    *all = NULL;
    for (bool more = true; more;) {
        _cleanup_json_ json_t *page = NULL;
        const int code = client_call(c, r, &page, err);
        if (code < 0)
            return code;
        if (json_get_true(page, "pending") && monotonic_ns() < until) {
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
        else
            *all = json_incref(page);
    }
    return 0;
}
