/* Users' names and numbers. The daemon knows numbers only: a directory service may take minutes. */
#ifndef CEDE_CLI_USERS_H
#define CEDE_CLI_USERS_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#define USER_TEXT 40

/* As /etc/passwd has it, which waits for nobody; else the number. */
const char *user_text(char buf[static USER_TEXT], uid_t uid);

/* The number of a name that a person typed: of /etc/passwd, then of the directory service. */
bool user_find(const char *name, uid_t *uid);

/* Whether a job, or another entry with "uid", is another user's than the caller's. */
bool user_is_other(const json_t *entry);

#endif
