/* What ceded's rules say of a process: asked for, and printed. */
#ifndef CEDE_CLI_OUTCOME_H
#define CEDE_CLI_OUTCOME_H

#include <jansson.h>

#include "api/client.h"
#include "base/util.h"

/* Sends r (OP_RULES), for all pages, again from the first while a fact is not known. *all is the
 * caller's reference, also on failure; 0 or -errno. */
int rules_ask(struct client *c, struct request *r, json_t **all, struct error *err);

/* Prints which class a process gets, and why, from such a reply about one. */
void outcome_print(const json_t *all);

#define OUTCOME_CELL 288 /* bytes */
/* A text of other users, made safe for a terminal and cut. */
const char *outcome_cell(char buf[static OUTCOME_CELL], const char *text);

#endif
