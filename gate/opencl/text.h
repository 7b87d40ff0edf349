/* Inside the proof (proof.c): a program's text as the preprocessor's first phases leave it. */
#ifndef CEDE_GATE_OPENCL_TEXT_H
#define CEDE_GATE_OPENCL_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Options and source as one text: each -D a #define of its own line, continued lines joined,
 * comments a blank, strings "", character constants 0. NULL with the reason why it is refused:
 * options that are not known, and whatever compilers do not agree on. The text is malloc'd. */
char *text_of(const char *source, const char *options, const char **why);

enum token_type { TOKEN_END, TOKEN_NAME, TOKEN_NUMBER, TOKEN_STRING, TOKEN_SIGN };

struct token {
    enum token_type type;
    const char *s;
    size_t n;
    bool first; /* of its line */
};

/* The next token of [*at, end), and *at behind it. A sign is one character. */
struct token token_next(const char **at, const char *end);
bool token_is(const struct token *t, const char *text);

#endif
