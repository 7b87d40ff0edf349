/* Reads a program's words: its arguments and environment, and those that it inherits. Runs in a
 * child that may be killed at any time: see identify.h. */
#include "who/environment.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "who/cgroup.h"

#define ARGUMENTS_MAX   4096         /* bytes; the rest is cut */
#define ENVIRONMENT_MAX (128 * 1024) /* the longest string that the kernel allows in it */
#define VALUE_MAX       1024
#define TRIES           3
#define LEVELS_MAX      64 /* ancestors that are read */

static void put_arguments(const char *text, size_t n, struct identify_answer *out)
{
    char line[ARGUMENTS_MAX + 1];
    size_t used = out->n;
    while (n && !text[n - 1])
        n--;
    for (size_t i = 0; i < n; i++)
        line[i] = text[i] ? text[i] : ' ';
    line[n] = '\0';
    (void)pairs_put(out->text, sizeof(out->text), &used, IDENTIFY_ARGUMENTS, line);
    out->n = (uint32_t)used;
}

/* Adds the variable to the answer. The first one of that name counts, as for getenv(3). whole: the
 * text was not cut, so that its last string counts. */
static void put_variable(const char *text, size_t n, bool whole, const char *wanted,
                         struct identify_answer *out)
{
    const char *name = wanted + strlen(IDENTIFY_ENVIRONMENT);
    const size_t len = strlen(name);
    for (size_t i = 0, end; i < n; i = end + 1) {
        end = i + strnlen(text + i, n - i);
        if (end - i <= len || (end == n && !whole) || memcmp(text + i, name, len) != 0 ||
            text[i + len] != '=')
            continue;
        char value[VALUE_MAX];
        size_t used = out->n;
        snprintf(value, sizeof(value), "%.*s", (int)min_u64(end - i - len - 1, VALUE_MAX),
                 text + i + len + 1);
        (void)pairs_put(out->text, sizeof(out->text), &used, wanted, value);
        out->n = (uint32_t)used;
        return;
    }
}

static bool is_for_cede(const char *wanted)
{
    return strncmp(wanted, IDENTIFY_WORDS, strlen(IDENTIFY_WORDS)) == 0;
}

static bool is_of_environment(const char *wanted)
{
    return strncmp(wanted, IDENTIFY_ENVIRONMENT, strlen(IDENTIFY_ENVIRONMENT)) == 0;
}

static const char *answer_of(const struct identify_answer *out, const char *wanted)
{
    return pairs_get((struct pairs){out->text, out->n}, wanted);
}

/* Adds the variables that the answer lacks. words_only: no others than words for cede. */
static void put_variables(const char *text, size_t n, struct pairs wanted, bool words_only,
                          struct identify_answer *out)
{
    const char *name, *value;
    for (size_t at = 0; pairs_next(wanted, &at, &name, &value);) {
        if (is_of_environment(name) && (is_for_cede(name) || !words_only) && !answer_of(out, name))
            put_variable(text, n, n < ENVIRONMENT_MAX, name, out);
    }
}

/* Whether the program has written over its environment, such as a title (setproctitle(3)): no
 * string in it has the form of a variable. */
static bool is_overwritten(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i += strnlen(text + i, n - i) + 1) {
        size_t name = 0;
        while (i + name < n && (isalnum((unsigned char)text[i + name]) || text[i + name] == '_'))
            name++;
        if (name && i + name < n && text[i + name] == '=')
            return false;
    }
    return true;
}

static int read_own(struct proc_id id, struct pairs wanted, char *text, struct identify_answer *out)
{
    struct proc_image after;
    const uint32_t before = out->n;
    int r = proc_image_read(id, &out->image);
    if (r < 0)
        return r;
    ssize_t n = proc_read(id.pid, "cmdline", text, ARGUMENTS_MAX + 1);
    if (n < 0)
        return (int)n;
    if (pairs_get(wanted, IDENTIFY_ARGUMENTS))
        put_arguments(text, (size_t)n, out);
    n = proc_read(id.pid, "environ", text, ENVIRONMENT_MAX + 1);
    if (n < 0)
        return (int)n;
    out->origin.overwritten = is_overwritten(text, (size_t)n);
    put_variables(text, (size_t)n, wanted, false, out);
    r = proc_image_read(id, &after);
    if (r == 0 && !proc_image_same(out->image, after))
        r = -EAGAIN;
    if (r < 0)
        out->n = before;
    return r;
}

/* Compares a process's words for cede with those known of the program. 1: it has such words and
 * none contradicts; 0: it has none; -1: one contradicts, so that the program does not belong to
 * what this process began. */
static int says_same(const char *text, size_t n, struct pairs wanted,
                     const struct identify_answer *out)
{
    static struct identify_answer own;
    const char *name, *value;
    own.n = 0;
    put_variables(text, n, wanted, true, &own);
    for (size_t at = 0; pairs_next((struct pairs){own.text, own.n}, &at, &name, &value);) {
        const char *said = answer_of(out, name);
        if (said && strcmp(said, value) != 0)
            return -1;
    }
    return own.n > 0;
}

/* Whether the process began with the rights of its file's owner, as sudo does, so that its
 * environment comes from another user. 1, 0 or -errno. */
static int has_rights_of_file(pid_t pid, char *text)
{
    const ssize_t n = proc_read(pid, "auxv", text, ENVIRONMENT_MAX + 1);
    unsigned long entry[2];
    if (n < 0)
        return (int)n;
    for (ssize_t at = 0; at + (ssize_t)sizeof(entry) <= n; at += (ssize_t)sizeof(entry)) {
        memcpy(entry, text + at, sizeof(entry));
        if (entry[0] == AT_SECURE)
            return entry[1] != 0;
    }
    return 1;
}

/* Adds the variables that the program lacks from this process, if that is root's or the same
 * user's. *part: the program may still belong to what this process began. 0, or an error for which
 * proc_unsure() is true. */
static int inherit(struct proc_id from, uid_t uid, struct pairs wanted, char *text, bool *part,
                   struct identify_answer *out)
{
    uid_t owner;
    int r = proc_owner(from.pid, &owner);
    if (r == 0)
        r = owner == uid || owner == 0 ? has_rights_of_file(from.pid, text) : 1;
    if (r != 0)
        return proc_unsure(r) ? r : 0;
    const ssize_t n = proc_read(from.pid, "environ", text, ENVIRONMENT_MAX + 1);
    r = n < 0 ? (int)n : proc_check(from);
    if (n <= 0 || r < 0)
        return proc_unsure(r) ? r : 0;
    const int same = says_same(text, (size_t)n, wanted, out);
    *part &= same >= 0;
    if (*part && same > 0)
        out->origin.speaker = from;
    put_variables(text, (size_t)n, wanted, !out->origin.overwritten || owner != uid, out);
    return 0;
}

static int inherit_all(struct proc_id id, const char *container, struct pairs wanted, char *text,
                       struct identify_answer *out)
{
    struct proc_stat st;
    uid_t uid;
    bool part = true;
    out->origin.speaker = id;
    int r = proc_owner(id.pid, &uid);
    if (r == 0)
        r = proc_stat_read(id.pid, &st);
    if (r < 0)
        return r;
    for (int i = 0; i < LEVELS_MAX && r == 0 && st.ppid > 1; i++) {
        r = proc_stat_parent(&st);
        if (r == 0)
            r = inherit(st.id, uid, wanted, text, &part, out);
    }
    if (proc_unsure(r))
        return r;
    const pid_t first = container[0] ? cgroup_first(id.pid, container) : 0;
    r = first > 0 ? proc_stat_read(first, &st) : -ESRCH;
    if (r == 0)
        r = inherit(st.id, uid, wanted, text, &part, out);
    return proc_unsure(r) ? r : 0;
}

int environment_read(struct proc_id id, const char *container, struct pairs wanted,
                     struct identify_answer *out)
{
    char *text = calloc(1, ENVIRONMENT_MAX + 1);
    int r = text ? -EAGAIN : -ENOMEM;
    for (int i = 0; i < TRIES && r == -EAGAIN; i++)
        r = read_own(id, wanted, text, out);
    if (r == 0)
        r = inherit_all(id, container, wanted, text, out);
    if (r < 0)
        out->n = 0; /* a part of the answer might be another program's words */
    free(text);
    return r;
}
