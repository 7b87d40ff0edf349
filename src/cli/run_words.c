/* See run_words.h. */
#include "cli/run_words.h"

#include <stdlib.h>
#include <string.h>

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
    if (r->has_class && r->class == CLASS_LATENCY) {
        cli_error("CEDE_CLASS=latency has no effect: the environment only lowers; give -c latency");
        r->class = CLASS_NORMAL;
    }
    if (r->has_weight && r->weight > WEIGHT_DEFAULT) {
        cli_error("CEDE_WEIGHT=%u has no effect: the environment only lowers; give -w %u",
                  r->weight, r->weight);
        r->has_weight = false;
    }
}

const char *run_words_pool(void)
{
    const char *value = getenv("CEDE_POOL");
    const bool none = !value || !*value || strcmp(value, "0") == 0 || strcmp(value, "no") == 0;
    return none ? NULL : value;
}
