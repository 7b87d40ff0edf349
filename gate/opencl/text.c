/* See text.h. */
#include "gate/opencl/text.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (1U << 20) /* bytes of a source: what is longer takes too long to look at */

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\v' || c == '\f';
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$';
}

/* ---- options ---- */

/* Harmless with any value; those that take one may have it in the next word. */
static const struct {
    const char *name;
    bool value;
} known_options[] = {
    {"-I", true}, {"-U", true}, {"-w", false}, {"-Werror", false}, {"-g", false},
};

/* The end of a word of options. */
static const char *word_end(const char *s)
{
    return s + strcspn(s, " \t\n\v\f\r");
}

/* -DNAME=VALUE as "#define NAME VALUE\n". */
static char *put_define(char *to, const char *s, const char *end)
{
    const char *equals = memchr(s, '=', (size_t)(end - s)), *name_end = equals ? equals : end;
    to = mempcpy(to, "#define ", 8);
    to = mempcpy(to, s, (size_t)(name_end - s));
    *to++ = ' ';
    if (equals)
        to = mempcpy(to, equals + 1, (size_t)(end - equals - 1));
    else
        *to++ = '1';
    *to++ = '\n';
    return to;
}

static const char *put_options(char **to, const char *s)
{
    if (strpbrk(s, "\"'\\#%?") || strstr(s, "/*"))
        return "quotes and the like in the build options";
    for (s += strspn(s, " \t\n\v\f\r"); *s; s += strspn(s, " \t\n\v\f\r")) {
        const char *end = word_end(s);
        size_t n = (size_t)(end - s);
        bool known = false;
        if (strncmp(s, "-D", 2) == 0) {
            if (n == 2) {
                s = end + strspn(end, " \t\n\v\f\r");
                end = word_end(s);
            } else {
                s += 2;
            }
            if (memmem(s, (size_t)(end - s), "//", 2))
                return "a comment in the build options";
            *to = put_define(*to, s, end);
            known = true;
        } else if (strncmp(s, "-cl-std=", 8) == 0) {
            known = strncmp(s + 8, "CL1.", 4) == 0 || strncmp(s + 8, "CL2.", 4) == 0 ||
                    strncmp(s + 8, "CL3.", 4) == 0;
        } else if (strncmp(s, "-cl-", 4) == 0 || (n == 3 && strncmp(s, "-O", 2) == 0)) {
            known = true;
        }
        for (size_t i = 0; !known && i < sizeof(known_options) / sizeof(*known_options); i++) {
            const char *name = known_options[i].name;
            size_t k = strlen(name);
            if (strncmp(s, name, k) != 0 || (n > k && !known_options[i].value))
                continue;
            known = true;
            if (n == k && known_options[i].value)
                end = word_end(end + strspn(end, " \t\n\v\f\r"));
        }
        if (!known)
            return "a build option that is not known";
        s = end;
    }
    return NULL;
}

/* ---- source ---- */

/* Joins continued lines, in place. */
static const char *join_lines(char *s)
{
    char *to = s;
    for (; *s; s++) {
        const char *trigraph =
            s[0] == '?' && s[1] == '?' && s[2] ? strchr("=/'()!<>-", s[2]) : NULL;
        if (trigraph)
            return "a trigraph";
        if (*s == '\r') {
            if (s[1] != '\n')
                return "a carriage return that ends no line";
            continue;
        }
        if (*s == '\\') {
            size_t gap = strspn(s + 1, " \t\v\f");
            char next = s[1 + gap] == '\r' ? s[2 + gap] : s[1 + gap];
            if (next == '\n' && gap)
                return "blanks between a backslash and the end of the line";
            if (next == '\n') {
                s += s[1] == '\r' ? 2 : 1;
                continue;
            }
        }
        *to++ = *s;
    }
    *to = '\0';
    return NULL;
}

/* The line that starts here is a directive of that name. */
static bool is_directive(const char *line, const char *name)
{
    line += strspn(line, " \t\v\f");
    if (*line++ != '#')
        return false;
    line += strspn(line, " \t\v\f");
    size_t n = strlen(name);
    return strncmp(line, name, n) == 0 && !name_char(line[n]);
}

static const char *skip_message(char **s)
{
    size_t n = strcspn(*s, "\n");
    bool comment = memmem(*s, n, "/*", 2);
    *s += n;
    return comment ? "a comment in a message of the preprocessor" : NULL;
}

/* Comments to blanks, strings to "", characters to 0; in place, lines joined already. */
static const char *strip_text(char *s)
{
    char *to = s;
    bool line_start = true;
    while (*s) {
        char c = *s;
        /* Its text is no C, and often has an apostrophe. (#warning is refused later.) */
        if (line_start && is_directive(s, "error")) {
            const char *why = skip_message(&s);
            if (why)
                return why;
            continue;
        }
        line_start = c == '\n';
        if (c == '/' && s[1] == '/') {
            s += strcspn(s, "\n");
        } else if (c == '/' && s[1] == '*') {
            char *end = strstr(s + 2, "*/");
            if (!end)
                return "a comment that does not end";
            s = end + 2;
            *to++ = ' ';
        } else if (c == '"' || c == '\'') {
            char *end = s + 1;
            for (; *end != c; end++) {
                if (*end == '\\' && end[1])
                    end++;
                if (!*end || *end == '\n')
                    return "a quote that is not closed";
            }
            s = end + 1;
            if (c == '"')
                *to++ = '"';
            else /* not grown together with a name before it, such as L */
                *to++ = '0';
        } else if ((c == '%' && (s[1] == ':' || s[1] == '>')) || (c == '<' && s[1] == '%')) {
            return "a digraph";
        } else if (c == '\\' || (unsigned char)c >= 0x7f || (c < ' ' && !blank(c) && c != '\n')) {
            return "characters that are not C's";
        } else {
            *to++ = c;
            s++;
        }
    }
    *to = '\0';
    return NULL;
}

char *text_of(const char *source, const char *options, const char **why)
{
    size_t size = strnlen(source, TEXT_MAX);
    size_t more = options ? strnlen(options, TEXT_MAX) : 0;
    *why = "its source is too long";
    if (size == TEXT_MAX || more == TEXT_MAX)
        return NULL;
    /* "-DA" becomes "#define A 1\n": at most five times its length. */
    char *text = malloc(size + 5 * more + 16), *to = text;
    *why = "there is no memory";
    if (!text)
        return NULL;
    *why = options ? put_options(&to, options) : NULL;
    memcpy(to, source, size + 1);
    if (!*why)
        *why = join_lines(to);
    if (!*why)
        *why = strip_text(to);
    if (*why) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- tokens ---- */

struct token token_next(const char **at, const char *end)
{
    struct token t = {TOKEN_END, *at, 0, false};
    const char *s = *at;
    for (; s < end && (blank(*s) || *s == '\n'); s++)
        t.first |= *s == '\n';
    t.s = s;
    if (s == end) {
        *at = s;
        return t;
    }
    bool number =
        (*s >= '0' && *s <= '9') || (*s == '.' && s + 1 < end && s[1] >= '0' && s[1] <= '9');
    if (number) {
        t.type = TOKEN_NUMBER;
        for (s++; s < end && (name_char(*s) || *s == '.' ||
                              ((*s == '+' || *s == '-') && strchr("eEpP", s[-1])));
             s++)
            ;
    } else if (name_char(*s)) {
        t.type = TOKEN_NAME;
        while (s < end && name_char(*s))
            s++;
    } else {
        t.type = *s == '"' ? TOKEN_STRING : TOKEN_SIGN;
        s++;
    }
    t.n = (size_t)(s - t.s);
    *at = s;
    return t;
}

bool token_is(const struct token *t, const char *text)
{
    return t->n == strlen(text) && memcmp(t->s, text, t->n) == 0;
}
