/* See times.h. */
#include "acct/times.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define COUNT_MAX 1000000000U

/* Reads a number of exactly n digits. */
static bool digits(const char **s, int n, int *out)
{
    *out = 0;
    for (int i = 0; i < n; i++) {
        if (!isdigit((unsigned char)**s))
            return false;
        *out = *out * 10 + *(*s)++ - '0';
    }
    return true;
}

/* Reads a number of one or two digits. */
static bool one_or_two(const char **s, int *out)
{
    const bool two = isdigit((unsigned char)(*s)[0]) && isdigit((unsigned char)(*s)[1]);
    return digits(s, two ? 2 : 1, out);
}

static bool skip(const char **s, char c)
{
    bool is = **s == c;
    *s += is;
    return is;
}

/* Reads all of s as H:MM[:SS][AM|PM]. */
static bool clock_time(const char *s, struct tm *t)
{
    if (!one_or_two(&s, &t->tm_hour) || !skip(&s, ':') || !digits(&s, 2, &t->tm_min))
        return false;
    if (skip(&s, ':') && !digits(&s, 2, &t->tm_sec))
        return false;
    const bool pm = strcasecmp(s, "pm") == 0;
    if (pm || strcasecmp(s, "am") == 0) {
        if (t->tm_hour < 1 || t->tm_hour > 12)
            return false;
        t->tm_hour = t->tm_hour % 12 + (pm ? 12 : 0);
        s += 2;
    }
    return !*s && t->tm_hour < 24 && t->tm_min < 60 && t->tm_sec < 60;
}

static bool day_exists(const struct tm *t)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const int year = t->tm_year + 1900;
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return year >= 1970 && t->tm_mon >= 0 && t->tm_mon < 12 && t->tm_mday >= 1 &&
           t->tm_mday <= days[t->tm_mon] + (leap && t->tm_mon == 1);
}

/* Checks a day that was read, and reads the time after it, if any. */
static bool rest_of_day(const char *s, char between, struct tm *t)
{
    t->tm_mon--;
    return day_exists(t) && (!*s || (skip(&s, between) && clock_time(s, t)));
}

static bool iso_day(const char *s, struct tm *t)
{
    if (!digits(&s, 4, &t->tm_year) || !skip(&s, '-') || !digits(&s, 2, &t->tm_mon) ||
        !skip(&s, '-') || !digits(&s, 2, &t->tm_mday))
        return false;
    t->tm_year -= 1900;
    return rest_of_day(s, 'T', t);
}

static bool american_day(const char *s, struct tm *t)
{
    int year;
    if (!one_or_two(&s, &t->tm_mon))
        return false;
    const bool slash = skip(&s, '/');
    if (!(slash ? one_or_two(&s, &t->tm_mday) : digits(&s, 2, &t->tm_mday)))
        return false;
    if (slash ? skip(&s, '/') : isdigit((unsigned char)*s)) {
        if (!digits(&s, 2, &year))
            return false;
        t->tm_year = 100 + year;
    }
    return rest_of_day(s, '-', t);
}

static bool day_word(const char *s, struct tm *t)
{
    static const struct {
        const char *text;
        int days, hours;
    } words[] = {{"today", 0, 0}, {"midnight", 0, 0}, {"noon", 0, 12},
                 {"fika", 0, 15}, {"teatime", 0, 16}, {"tomorrow", 1, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcasecmp(s, words[i].text) == 0) {
            t->tm_mday += words[i].days;
            t->tm_hour = words[i].hours;
            return true;
        }
    }
    return false;
}

/* "now", "now-7days" */
static bool relative(const char *s, int64_t now, int64_t *out)
{
    static const struct {
        const char *text;
        int64_t s;
    } units[] = {{"", 1},        {"second", 1},  {"minute", 60},
                 {"hour", 3600}, {"day", 86400}, {"week", 7 * 86400}};
    char count[16], unit[16];
    uint64_t n;
    *out = now;
    if (strncasecmp(s, "now", 3) != 0 || !s[3])
        return strcasecmp(s, "now") == 0;
    size_t len = strspn(s + 4, "0123456789");
    if ((s[3] != '-' && s[3] != '+') || len >= sizeof(count) || strlen(s + 4 + len) >= sizeof(unit))
        return false;
    snprintf(count, sizeof(count), "%.*s", (int)len, s + 4);
    snprintf(unit, sizeof(unit), "%s", s + 4 + len);
    len = strlen(unit);
    if (len > 1 && tolower((unsigned char)unit[len - 1]) == 's')
        unit[len - 1] = '\0';
    if (parse_u64(count, 0, COUNT_MAX, &n) < 0)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strcasecmp(unit, units[i].text) == 0) {
            *out = now + (s[3] == '-' ? -1 : 1) * (int64_t)n * units[i].s;
            return true;
        }
    }
    return false;
}

int acct_time(const char *text, time_t now, int64_t *out, struct error *err)
{
    bool (*const forms[])(const char *s, struct tm *t) = {iso_day, american_day, clock_time,
                                                          day_word};
    struct tm day;
    uint64_t seconds;
    if (relative(text, now, out))
        return 0;
    if (strncmp(text, "uts", 3) == 0 && parse_u64(text + 3, 0, INT64_MAX / 2, &seconds) == 0) {
        *out = (int64_t)seconds;
        return 0;
    }
    localtime_r(&now, &day);
    day.tm_hour = day.tm_min = day.tm_sec = 0;
    day.tm_isdst = -1;
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        struct tm t = day;
        if (!forms[i](text, &t))
            continue;
        *out = mktime(&t);
        return 0;
    }
    return error_set(err, -EINVAL,
                     "'%.40s' is no time: YYYY-MM-DD[THH:MM[:SS]], HH:MM, MM/DD, today, "
                     "now-7days, now-2hours",
                     text);
}
