/* See cli.h. Only text for people and the parsing of single options. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void print_error(const char *fmt, va_list ap)
{
    char text[1024];
    vsnprintf(text, sizeof(text), fmt, ap);
    fprintf(stderr, "cede: %s\n", text);
}

void cli_error(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_error(fmt, ap);
    va_end(ap);
}

int cli_usage(const char *verb, const char *fmt, ...)
{
    if (fmt) {
        va_list ap;
        va_start(ap, fmt);
        print_error(fmt, ap);
        va_end(ap);
    }
    fprintf(stderr, "try `cede %s --help`\n", verb);
    return CLI_USAGE;
}

int cli_class(const char *verb, const char *arg, struct request *r)
{
    if (job_class_parse(arg, &r->class) < 0)
        return cli_usage(verb, "unknown class '%s': use latency, normal%s", arg,
                         strcmp(verb, "set") == 0 ? ", batch or none" : " or batch");
    r->has_class = true;
    return CLI_OK;
}

int cli_budget(const char *verb, const char *arg, struct request *r)
{
    uint64_t us;
    if (parse_duration_us(arg, BUDGET_MAX_US, &us) < 0)
        return cli_usage(verb, "bad budget '%s': use a time up to 1s, such as 500us or 2ms", arg);
    r->budget_us = (uint32_t)us;
    r->has_budget = true;
    return CLI_OK;
}

int cli_deadline(const char *verb, const char *arg, struct request *r)
{
    uint64_t us;
    if (parse_duration_us(arg, DEADLINE_MAX_US, &us) < 0 || (us && us < DEADLINE_MIN_US))
        return cli_usage(verb, "bad deadline '%s': use a time from 200ms to 3600s, such as 3s",
                         arg);
    r->deadline_us = (uint32_t)us;
    r->has_deadline = true;
    return CLI_OK;
}

int cli_laxity(const char *verb, const char *arg, struct request *r)
{
    uint64_t us;
    if (parse_duration_us(arg, DEADLINE_MAX_US, &us) < 0)
        return cli_usage(verb, "bad laxity '%s': use a time below the deadline, such as 1.5s", arg);
    r->laxity_us = (uint32_t)us;
    r->has_laxity = true;
    return CLI_OK;
}

int cli_weight(const char *verb, const char *arg, struct request *r)
{
    uint64_t w;
    if (parse_u64(arg, WEIGHT_MIN, WEIGHT_MAX, &w) < 0)
        return cli_usage(verb, "bad weight '%s': use a number from %u to %u", arg, WEIGHT_MIN,
                         WEIGHT_MAX);
    r->weight = (uint32_t)w;
    r->has_weight = true;
    return CLI_OK;
}
