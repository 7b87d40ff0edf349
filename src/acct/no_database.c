/* Replaces database.c in a cede that is built without SQLite. */
#include <errno.h>

#include "acct/database.h"

bool acct_db_built(void)
{
    return false;
}

static int not_built(struct error *err)
{
    return error_set(err, -ENOSYS,
                     "this cede was built without SQLite, and keeps no accounting records: install "
                     "libsqlite3-dev and build it again");
}

int acct_db_open(const char *dir, int version, struct acct_db **out, struct error *note,
                 struct error *err)
{
    return not_built(err);
}

int acct_db_open_readonly(const char *dir, struct acct_db **out, struct error *err)
{
    return not_built(err);
}

void acct_db_close(struct acct_db *db)
{
}

int acct_db_put(struct acct_db *db, const struct acct_row *v, size_t n, struct error *err)
{
    return not_built(err);
}

int acct_db_dropped(struct acct_db *db, int64_t session, uint64_t rows, struct error *err)
{
    return not_built(err);
}

int acct_db_prune(struct acct_db *db, int64_t before_s, struct error *err)
{
    return not_built(err);
}

bool acct_db_admits(struct acct_db *db, unsigned readers)
{
    return true;
}

int acct_db_query(struct acct_db *db, const struct acct_query *q, uint32_t only,
                  int (*emit)(void *arg, const struct acct_row *row), void *arg, uint64_t *dropped,
                  struct error *err)
{
    return not_built(err);
}
