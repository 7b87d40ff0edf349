/* See users.h. */
#include "who/users.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json_text.h"
#include "base/text.h"
#include "base/util.h"

/* Finds the first entry with that name or, if name is NULL, with that number. */
static bool passwd_find(const char *name, uid_t uid, char buf[static USER_TEXT], uid_t *found)
{
    _cleanup_fclose_ FILE *f = fopen("/etc/passwd", "re");
    for (const struct passwd *p; f && (p = fgetpwent(f));) {
        if (name ? strcmp(p->pw_name, name) != 0 : p->pw_uid != uid)
            continue;
        snprintf(buf, USER_TEXT, "%s", p->pw_name);
        *found = p->pw_uid;
        return true;
    }
    return false;
}

const char *user_text(char buf[static USER_TEXT], uid_t uid)
{
    uid_t same;
    if (!passwd_find(NULL, uid, buf, &same))
        snprintf(buf, USER_TEXT, "%u", uid);
    text_show(buf);
    return buf;
}

const char *group_text(char buf[static GROUP_TEXT], gid_t gid)
{
    _cleanup_fclose_ FILE *f = fopen("/etc/group", "re");
    snprintf(buf, GROUP_TEXT, "%u", gid);
    for (const struct group *g; f && (g = fgetgrent(f));) {
        if (g->gr_gid == gid) {
            snprintf(buf, GROUP_TEXT, "%s", g->gr_name);
            break;
        }
    }
    text_show(buf);
    return buf;
}

bool user_find(const char *name, uid_t *uid)
{
    char buf[USER_TEXT];
    if (passwd_find(name, 0, buf, uid))
        return true;
    const struct passwd *p = getpwnam(name);
    if (p)
        *uid = p->pw_uid;
    return p;
}

bool user_is_other(const json_t *entry)
{
    const json_t *uid = json_object_get(entry, "uid");
    return uid && json_integer_value(uid) != (json_int_t)getuid();
}
