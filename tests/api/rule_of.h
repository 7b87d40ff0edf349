/* Rules in tests, as the configuration file has them. */
#ifndef CEDE_TESTS_API_RULE_OF_H
#define CEDE_TESTS_API_RULE_OF_H

#include "../test.h"
#include "daemon/config.h"

/* The first one of this text, which begins with "[", or of these keys. Where a file has the end of
 * a line the text has ';'; class batch is not said. */
static struct rule rule_of(const char *fmt, ...) PRINTF_LIKE(1, 2);
static struct rule rule_of(const char *fmt, ...)
{
    struct config c;
    struct error err = {""};
    char keys[512], text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(keys, sizeof(keys), fmt, ap);
    va_end(ap);
    const char *title = keys[0] == '[' ? "" : "[rule r]\n";
    const char *class = keys[0] == '[' || strstr(keys, ";class=") ? "" : "\nclass=batch";
    int n = snprintf(text, sizeof(text), "%s%s%s", title, keys, class);
    for (char *p = text; (p = strchr(p, ';'));)
        *p = '\n';
    if (config_parse("rule_of", text, (size_t)n, &c, &err) < 0)
        fail_msg("%s: %s", keys, err.text);
    const struct rule r = c.rules[0];
    config_free(&c);
    return r;
}

#endif
