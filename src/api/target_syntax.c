/* Names of jobs, and targets in requests, as proto.h describes them. No I/O. */
#include <errno.h>
#include <string.h>

#include "api/proto.h"
#include "base/text.h"

/* Whether text is a number: 12 for a process, or %12, which the verbs take for job #12. */
static bool is_number(const char *text)
{
    const char *digits = text + (text[0] == '%');
    return *digits && !digits[strspn(digits, "0123456789")];
}

/* Verbs would take a leading - for an option, and blanks at the ends are not visible. */
static bool has_bad_end(const char *name, size_t n)
{
    return name[0] == '-' || name[0] == ' ' || name[n - 1] == ' ';
}

bool proto_name_ok(const char *name)
{
    size_t n = strnlen(name, JOB_NAME_MAX);
    if (n == 0 || n == JOB_NAME_MAX || name[0] == '#' || memchr(name, '/', n) || is_number(name) ||
        has_bad_end(name, n))
        return false;
    return text_plain(name);
}

bool proto_name_from(char name[static JOB_NAME_MAX], const char *text)
{
    snprintf(name, JOB_NAME_MAX, "%s", text);
    if (proto_name_ok(name))
        return true;
    for (char *p = name; *p; p++)
        *p = *p <= ' ' || *p > '~' || *p == '#' || *p == '%' || *p == '/' ? '_' : *p;
    name[0] = name[0] == '-' ? '_' : name[0];
    return proto_name_ok(name);
}

int proto_target(const char *text, struct request *out, struct error *err)
{
    out->pid = 0;
    out->number = 0;
    out->name[0] = '\0';
    out->has_owner = false;
    uint64_t v;
    const char *name = strchr(text, '/');
    if (text[0] == '#') {
        if (parse_u64(text + 1, 1, INT64_MAX, &v) < 0)
            return error_set(err, -EINVAL, "target: after # a job's number is needed, as in #12");
        out->number = v;
        return 0;
    }
    if (*text && strspn(text, "0123456789") == strlen(text)) {
        if (parse_u64(text, 1, INT32_MAX, &v) < 0)
            return error_set(err, -EINVAL, "target: a pid is 1 to %d", INT32_MAX);
        out->pid = (pid_t)v;
        return 0;
    }
    char user[16];
    if (name) {
        if ((size_t)snprintf(user, sizeof(user), "%.*s", (int)min_u64((size_t)(name - text), 15),
                             text) != (size_t)(name - text) ||
            parse_u64(user, 0, UINT32_MAX - 1, &v) < 0)
            return error_set(err, -EINVAL,
                             "target: before / the number of a user is needed, as in 1000/train");
        out->has_owner = true;
        out->owner = (uid_t)v;
        text = name + 1;
    }
    if (!proto_name_ok(text))
        return error_set(err, -EINVAL,
                         "target: a pid, a job's number as in #12, or its name of 1 to %d bytes, "
                         "also with its user as in 1000/train",
                         JOB_NAME_MAX - 1);
    snprintf(out->name, sizeof(out->name), "%s", text);
    return 0;
}
