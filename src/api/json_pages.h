/* The entries of a page of a reply, written behind each other as text with commas between. */
#ifndef CEDE_API_JSON_PAGES_H
#define CEDE_API_JSON_PAGES_H

#include <jansson.h>
#include <stdbool.h>

struct json_page {
    char *text;
    size_t n, room;
};

/* Takes the reference; NULL, as without memory, is left out. False: there is no room for it. */
static inline bool json_page_add(struct json_page *to, json_t *entry)
{
    const size_t from = to->n + (to->n > 0);
    if (!entry)
        return true;
    const size_t size = from < to->room
                            ? json_dumpb(entry, to->text + from, to->room - from, JSON_COMPACT)
                            : to->room;
    json_decref(entry);
    if (from + size > to->room)
        return false;
    if (from)
        to->text[to->n] = ',';
    to->n = from + size;
    return true;
}

#endif
