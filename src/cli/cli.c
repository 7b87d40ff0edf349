/* See cli.h. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>

#include "who/users.h"

int cli_print_json(const json_t *o)
{
    if (json_dumpf(o, stdout, JSON_INDENT(2)) == 0)
        putchar('\n');
    return CLI_OK;
}

int cli_read_user(void *to, const char *name, const char *text, struct error *err)
{
    uint64_t number;
    uid_t uid;
    if (parse_u64(text, 0, UINT32_MAX - 1, &number) == 0)
        uid = (uid_t)number;
    else if (!user_find(text, &uid))
        return error_set(err, -EINVAL, "there is no user '%.40s'", text);
    *(uint32_t *)to = uid;
    return 0;
}
