/* See run_words.h. */
#include "cli/run_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "cli/cli.h"

void run_words(struct request *r)
{
    static const struct {
        const char *variable, *word;
    } known[] = {{"CEDE_CLASS", "class"}, {"CEDE_WEIGHT", "weight"}, {"CEDE_NAME", "name"}};
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        const char *value = getenv(known[i].variable);
        struct error err = {""};
        struct request with = *r;
        if (!value || !*value)
            continue;
        if (request_text(&with, known[i].word, value, &err) == 0)
            *r = with;
        else
            cli_error("%s has no effect: %s", known[i].variable, err.text);
    }
    if (r->given & TERM(class) && r->class == CLASS_LATENCY) {
        cli_error("CEDE_CLASS=latency has no effect: the environment only lowers; give -c latency");
        r->class = CLASS_NORMAL;
    }
    if (r->weight > WEIGHT_DEFAULT) {
        cli_error("CEDE_WEIGHT=%u has no effect: the environment only lowers; give -w %u",
                  r->weight, r->weight);
        r->given &= ~TERM(weight);
        r->weight = 0;
    }
}

const char *run_words_pool(void)
{
    const char *value = getenv("CEDE_POOL");
    const bool none = !value || !*value || strcmp(value, "0") == 0 || strcmp(value, "no") == 0;
    return none ? NULL : value;
}

void run_words_pid(pid_t runner)
{
    static const char *const names[] = {"LISTEN_PID", "WATCHDOG_PID"};
    char own[16];
    snprintf(own, sizeof(own), "%d", (int)getpid());
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const char *value = getenv(names[i]);
        uint64_t pid;
        if (value && parse_u64(value, 1, INT32_MAX, &pid) == 0 && (pid_t)pid == runner) {
            setenv(names[i], own, 1);
            unsetenv("LISTEN_PIDFDID"); /* it identifies the runner, and is optional */
        }
    }
}
