/* What tests of the accounts' file begin with: a directory for it, which is removed with all that
 * is in it. */
#ifndef CEDE_TESTS_ACCT_ENV_H
#define CEDE_TESTS_ACCT_ENV_H

#include <glob.h>
#include <unistd.h>

#include "../test.h"
#include "acct/database.h"

static char dir[64];

static int begin(void **state)
{
    snprintf(dir, sizeof(dir), "/tmp/cede-acct-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static const char *path_of(const char *file)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    return path;
}

/* How many files have such a name; remove: and are no more. */
static size_t files_like(const char *like, bool remove)
{
    glob_t g;
    if (glob(path_of(like), 0, NULL, &g) != 0)
        return 0;
    const size_t n = g.gl_pathc;
    for (size_t i = 0; i < n && remove; i++)
        unlink(g.gl_pathv[i]);
    globfree(&g);
    return n;
}

static int end(void **state)
{
    files_like("*", true);
    return rmdir(dir);
}

#define TEST_OF_ACCOUNTS(name) TEST_WITH(name, begin, end)

static struct acct_db *open_version(int version, struct error *note)
{
    struct acct_db *db;
    struct error err = {""};
    if (acct_db_open(dir, version, &db, note, &err) < 0)
        fail_msg("%s", err.text);
    return db;
}

#endif
