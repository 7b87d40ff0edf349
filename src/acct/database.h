/* The file with the accounts: SQLite, write-ahead log, one table. Only processes that do nothing
 * else open it (acct/keeper.h, `cede acct`), since SQLite waits for disks and locks. A path is that
 * of the state directory; the file in it is ACCT_FILE. Not thread-safe. */
#ifndef CEDE_ACCT_DATABASE_H
#define CEDE_ACCT_DATABASE_H

#include "acct/row.h"
#include "lib/util.h"

#define ACCT_FILE    "accounts.sqlite"
#define ACCT_VERSION 2 /* of the tables */

struct acct_db;

/* Whether this cede was built with SQLite. If not, all below fail with -ENOSYS. */
bool acct_db_built(void);

/* For writing: makes the file, and brings older tables up to `version` (ACCT_VERSION, but in
 * tests). What is no database, or a damaged one, is set aside under a name with the time in it;
 * `note` then says so ("": not). -EPROTO: of a newer cede. */
int acct_db_open(const char *dir, int version, struct acct_db **out, struct error *note,
                 struct error *err);
/* For reading. -ENOENT: there is none. */
int acct_db_open_readonly(const char *dir, struct acct_db **out, struct error *err);
void acct_db_close(struct acct_db *db);

/* All or none. -EUCLEAN: the file is damaged; the next acct_db_open() sets it aside. */
int acct_db_put(struct acct_db *db, const struct acct_row *v, size_t n, struct error *err);
/* So many rows of that session of ceded were lost, in all. */
int acct_db_dropped(struct acct_db *db, int64_t session, uint64_t rows, struct error *err);
/* Forgets rows that ended before then, of those the oldest that are within a day: a clock that is
 * wrong for an hour cannot take the rest. */
int acct_db_prune(struct acct_db *db, int64_t before_s, struct error *err);

/* With so many processes that read now: whether one more may. What one of them may still look at
 * stays in the log, which grows while there is always one. So when it is long, all of them end
 * first; then it is emptied. */
bool acct_db_admits(struct acct_db *db, unsigned readers);

/* Calls emit for each row of the answer, of what `only` may see (ACCT_ANYBODY: all), ordered by
 * what they are summed up by; what that returns ends it if it is not 0. *dropped: rows lost. */
int acct_db_query(struct acct_db *db, const struct acct_query *q, uint32_t only,
                  int (*emit)(void *arg, const struct acct_row *row), void *arg, uint64_t *dropped,
                  struct error *err);

#endif
