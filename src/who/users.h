/* Users' names and numbers, for the verbs. The daemon uses numbers only, because a directory
 * service may take minutes. */
#ifndef CEDE_WHO_USERS_H
#define CEDE_WHO_USERS_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#define USER_TEXT 40

/* The user's name in /etc/passwd, which is read without waiting; else the number. */
const char *user_text(char buf[static USER_TEXT], uid_t uid);

#define GROUP_TEXT 40
/* The group's name in /etc/group, else the number. */
const char *group_text(char buf[static GROUP_TEXT], gid_t gid);

/* Finds the number of a name that a person typed, in /etc/passwd, then in the directory service. */
bool user_find(const char *name, uid_t *uid);

/* Whether a job, or another object with "uid", belongs to another user than the caller. */
bool user_is_other(const json_t *entry);

#endif
