/* The accounting records: SQLite with a write-ahead log. Only processes that do nothing else open
 * it (acct/recorder.h, `cede acct`), since SQLite waits for disks and locks. dir is the state
 * directory, in which the file is ACCT_FILE. Not thread-safe. */
#ifndef CEDE_ACCT_DATABASE_H
#define CEDE_ACCT_DATABASE_H

#include "acct/row.h"
#include "base/util.h"

#define ACCT_FILE    "accounts.sqlite"
#define ACCT_VERSION 3 /* of the tables */

struct acct_db;

/* Whether this cede was built with SQLite. If not, the functions below fail with -ENOSYS. */
bool acct_db_built(void);

/* Opens for writing: makes the file, and migrates older tables to `version` (ACCT_VERSION, except
 * in tests). A damaged file, or one that is no database, is set aside under a name with the time,
 * as `note` then says (else ""). -EPROTO: of a newer cede. */
int acct_db_open(const char *dir, int version, struct acct_db **out, struct error *note,
                 struct error *err);
/* Opens for reading. -ENOENT: there is no file. */
int acct_db_open_readonly(const char *dir, struct acct_db **out, struct error *err);
void acct_db_close(struct acct_db *db);

/* Writes all rows or none. -EUCLEAN: the file is damaged; the next acct_db_open() sets it aside. */
int acct_db_put(struct acct_db *db, const struct acct_row *v, size_t n, struct error *err);
/* Records how many rows a session of ceded has lost in all. */
int acct_db_dropped(struct acct_db *db, int64_t session, uint64_t rows, struct error *err);
/* Deletes rows that ended before before_s, but each time only those of the oldest day, so that a
 * wrong clock cannot delete all at once. */
int acct_db_prune(struct acct_db *db, int64_t before_s, struct error *err);

/* Whether one more process may read besides `readers`. The log keeps what a reader may still look
 * at and grows while there is always one. So when it is long, no reader is admitted until all have
 * ended and the log is emptied. */
bool acct_db_admits(struct acct_db *db, unsigned readers);

/* Calls emit for each row of the answer that uid `only` may see (ACCT_ANYBODY: all), ordered by the
 * key of the sums; a result other than 0 ends the query and is returned. *dropped: rows lost. */
int acct_db_query(struct acct_db *db, const struct acct_query *q, uint32_t only,
                  int (*emit)(void *arg, const struct acct_row *row), void *arg, uint64_t *dropped,
                  struct error *err);

#endif
