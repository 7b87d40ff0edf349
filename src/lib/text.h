/* Text of others: whether it may be shown as it is, and what is shown instead. */
#ifndef CEDE_LIB_TEXT_H
#define CEDE_LIB_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Whether it is UTF-8 in which each code point can be seen: no control, nothing without a width,
 * nothing that changes the direction or the line of what follows, nothing whose look each font
 * decides. Two such texts that look the same may still differ, as letters of two alphabets do. */
bool text_plain(const char *text);

/* What is not plain becomes ?, the rest stays. */
void text_show(char *text);

/* For a terminal, which would obey some of it: all but printable ASCII becomes ?. */
void text_printable(char *text);

/* For an error: 32 bytes at most of it, without blanks, and as text_printable(). */
#define TEXT_QUOTE 40
const char *text_quote(char buf[static TEXT_QUOTE], const char *text);

#endif
