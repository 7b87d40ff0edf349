/* Times as sacct takes them: what each means in a place with summer time, and what is none. */
#include "../test.h"
#include "acct/times.h"

#define DAY 86400

/* 2026-06-15 (a Monday) 13:14:15 in Berlin, two hours before UTC. */
#define MIDNIGHT 1781474400
#define NOW      (MIDNIGHT + 13 * 3600 + 14 * 60 + 15)

static const struct {
    const char *text;
    int64_t is;
} rows[] = {
    {"now", NOW},
    {"NOW", NOW},
    {"now-7days", NOW - 7 * DAY},
    {"now-1day", NOW - DAY},
    {"now-2hours", NOW - 7200},
    {"now-2hour", NOW - 7200},
    {"now-90", NOW - 90},
    {"now+5minutes", NOW + 300},
    {"now-1week", NOW - 7 * DAY},
    {"now-0seconds", NOW},
    {"today", MIDNIGHT},
    {"midnight", MIDNIGHT},
    {"noon", MIDNIGHT + 12 * 3600},
    {"fika", MIDNIGHT + 15 * 3600},
    {"teatime", MIDNIGHT + 16 * 3600},
    {"tomorrow", MIDNIGHT + DAY},
    {"00:00", MIDNIGHT},
    {"9:05", MIDNIGHT + 9 * 3600 + 300},
    {"23:59:59", MIDNIGHT + DAY - 1},
    {"3:00PM", MIDNIGHT + 15 * 3600},
    {"12:30am", MIDNIGHT + 1800},
    {"12:30pm", MIDNIGHT + 12 * 3600 + 1800},
    {"2026-06-15", MIDNIGHT},
    {"2026-06-14T01:02", MIDNIGHT - DAY + 3720},
    {"2026-06-14T01:02:03", MIDNIGHT - DAY + 3723},
    {"2026-01-01", 1767222000},         /* in winter: one hour before UTC */
    {"2026-03-29", 1774738800},         /* a day of 23 hours */
    {"2026-03-30", 1774738800 + 82800}, /* and the next */
    {"2024-02-29", 1709161200},
    {"1970-01-02", DAY - 3600},
    {"06/14", MIDNIGHT - DAY},
    {"6/14", MIDNIGHT - DAY},
    {"06/14/26", MIDNIGHT - DAY},
    {"06/14-01:02", MIDNIGHT - DAY + 3720},
    {"06/14/26-01:02:03", MIDNIGHT - DAY + 3723},
    {"0614", MIDNIGHT - DAY},
    {"061426", MIDNIGHT - DAY},
    {"uts0", 0},
    {"uts1781474400", MIDNIGHT},
};

/* Divided by |. */
static const char none[] =
    "| |yesterday?|now-|now-days|now-1parsec|now-1 day|now-99999999999|now*1|nowhere|24:00|"
    "12:60|1:2|13:00pm|0:30am|12:00:60|2026-13-01|2026-00-01|2026-02-29|2026-06-31|"
    "2026-6-1|2026-06-15T|2026-06-15 1:00|1969-12-31|2026-06-15T01:02:03Z|06/31|13/01|"
    "06/14/2026|06/14T01:00|uts|uts-1|uts1x|-1|0|12|999999999999|\xff|06|\u0662026-06-15";

static int in_berlin(void **state)
{
    setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
    tzset();
    return 0;
}

TEST_WITH(times, in_berlin, NULL)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int64_t t = -7;
        struct error err = {""};
        if (acct_time(rows[i].text, NOW, &t, &err) != 0 || t != rows[i].is)
            fail_msg("%s: %lld, not %lld (%s)", rows[i].text, (long long)t, (long long)rows[i].is,
                     err.text);
    }
}

TEST_WITH(no_times, in_berlin, NULL)
{
    char texts[sizeof(none)], *rest = texts, *text;
    memcpy(texts, none, sizeof(none));
    while ((text = strsep(&rest, "|"))) {
        int64_t t;
        struct error err = {""};
        if (acct_time(text, NOW, &t, &err) != -EINVAL)
            fail_msg("'%s' is %lld", text, (long long)t);
        assert_non_null(strstr(err.text, "is no time"));
    }
}
