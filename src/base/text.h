/* Checks whether foreign text may be shown as it is, and makes it fit to be shown. */
#ifndef CEDE_BASE_TEXT_H
#define CEDE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Whether it is UTF-8 in which each code point is visible: no control characters, none without a
 * width, none that changes the direction or the line of the text, none whose look is up to the
 * font. Two such texts that look the same may still differ, as letters of two alphabets do. */
bool text_plain(const char *text);

/* Replaces everything that is not plain by ?. */
void text_show(char *text);

/* Replaces everything but printable ASCII by ?, because a terminal would obey control sequences. */
void text_printable(char *text);

/* At most 32 bytes of the text for an error message, as text_printable() and without blanks. */
#define TEXT_QUOTE 40
const char *text_quote(char buf[static TEXT_QUOTE], const char *text);

#endif
