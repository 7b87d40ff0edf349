/* A program's own words: its arguments and environment. Runs in a child that may be killed at any
 * time. See identify.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "identify/identify.h"
#include "lib/util.h"

#define ARGUMENTS_MAX   4096         /* bytes; what is behind is cut */
#define ENVIRONMENT_MAX (128 * 1024) /* as much as the kernel gives one string of it */
#define VALUE_MAX       1024
#define TRIES           3

/* Up to n bytes of the file NAME. How many, or -errno. */
static ssize_t read_region(pid_t pid, const char *name, char *buf, size_t n)
{
    char path[64];
    size_t got = 0;
    ssize_t r = 1;
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    while (got < n && r > 0) {
        r = read(fd, buf + got, n - got);
        if (r < 0 && errno == EINTR)
            r = 1;
        else if (r > 0)
            got += (size_t)r;
    }
    return r < 0 ? -errno : (ssize_t)got;
}

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

/* The first of that name counts, as for getenv(3). whole: nothing was cut, so that the last string
 * is one. */
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

static int read_once(struct proc_id id, struct pairs wanted, char *text,
                     struct identify_answer *out)
{
    struct proc_image after;
    const uint32_t before = out->n;
    int r = proc_image_read(id, &out->image);
    if (r < 0)
        return r;
    ssize_t n = read_region(id.pid, "cmdline", text, ARGUMENTS_MAX);
    if (n < 0)
        return (int)n;
    if (pairs_get(wanted, IDENTIFY_ARGUMENTS))
        put_arguments(text, (size_t)n, out);
    n = read_region(id.pid, "environ", text, ENVIRONMENT_MAX);
    if (n < 0)
        return (int)n;
    const char *name, *value;
    for (size_t at = 0; pairs_next(wanted, &at, &name, &value);) {
        if (strncmp(name, IDENTIFY_ENVIRONMENT, strlen(IDENTIFY_ENVIRONMENT)) == 0)
            put_variable(text, (size_t)n, n < ENVIRONMENT_MAX, name, out);
    }
    r = proc_image_read(id, &after);
    if (r == 0 && !proc_image_same(out->image, after))
        r = -EAGAIN;
    if (r < 0)
        out->n = before;
    return r;
}

int words_read(struct proc_id id, struct pairs wanted, struct identify_answer *out)
{
    char *text = calloc(1, ENVIRONMENT_MAX);
    int r = text ? -EAGAIN : -ENOMEM;
    for (int i = 0; i < TRIES && r == -EAGAIN; i++)
        r = read_once(id, wanted, text, out);
    free(text);
    return r;
}
